//! TLS to PostgreSQL, with libpq's parameters and meanings.
//!
//! Two modes of libpq are refused: `allow` and `prefer` speak in the clear whenever somebody between us and the server
//! says that it has no TLS. Without `sslmode` there is no TLS, where libpq would prefer it: the same for a server that
//! has none, and plain to see.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::engine::UrlError;
use crate::engine::tls::ClientTls;
use crate::engine::tls::options::{Ca, Environment, TlsOptions, Verify, Words, or_variable, value};
use crate::engine::tls::stream::TlsIo;

/// The parameter that says what is encrypted and verified.
const MODE: &str = "sslmode";

/// What libpq calls the files.
const WORDS: Words = Words {
    ca: or_variable("sslrootcert", "PGSSLROOTCERT"),
    certificate: or_variable("sslcert", "PGSSLCERT"),
    key: or_variable("sslkey", "PGSSLKEY"),
    server_name: None,
};

/// In place of a file: the CAs of the system.
const SYSTEM: &str = "system";

/// The parameters of a URL that are read here.
pub(super) fn parameters() -> Vec<&'static str> {
    let mut names = vec![MODE];
    names.extend(WORDS.parameters());
    names
}

/// What a URL and the environment ask for.
pub(super) fn wanted(
    options: &[(String, String)],
    environment: Environment<'_>,
) -> Result<Option<TlsOptions>, UrlError> {
    let mode = value(options, MODE).map(str::to_owned).or_else(|| environment("PGSSLMODE"));
    let verify = match mode.as_deref() {
        Some("disable") if WORDS.are_in(options) => {
            return Err(UrlError::new(
                "sslmode=disable beside files for TLS; leave out one or the other",
            ));
        }
        None if !WORDS.are_in(options) => return Ok(None),
        Some("disable") => return Ok(None),
        Some("require") => Verify::Nothing,
        Some("verify-ca") => Verify::Chain,
        None | Some("verify-full") => Verify::Name,
        Some(mode @ ("allow" | "prefer")) => {
            return Err(UrlError::new(format_args!(
                "sslmode={mode} falls back to plaintext in silence; choose verify-full, verify-ca, require or disable"
            )));
        }
        Some(_) => {
            return Err(UrlError::new(
                "unknown sslmode; known are disable, require, verify-ca and verify-full",
            ));
        }
    };
    let mut tls = WORDS.read(verify, options, environment)?;
    if tls.ca == Ca::File(SYSTEM.into()) {
        tls.ca = Ca::System;
        if verify != Verify::Name {
            return Err(UrlError::new(
                "sslrootcert=system with a weaker sslmode than verify-full: a CA of the system gives anybody a \
                 certificate for a name of their own",
            ));
        }
    }
    match (tls.verify, &tls.ca) {
        // As libpq has it: who names a CA wants it looked at.
        (Verify::Nothing, Ca::File(_)) => tls.verify = Verify::Chain,
        (Verify::Chain, Ca::System) => {
            return Err(UrlError::new(
                "sslmode=verify-ca needs sslrootcert, the file of the CA; for the CAs of the system use verify-full",
            ));
        }
        (Verify::Name, _) | (Verify::Chain, Ca::File(_)) | (Verify::Nothing, Ca::System) => {}
    }
    Ok(Some(tls))
}

/// Makes connections encrypted, if there is a way to. Whether it must is the `sslmode` of the driver's configuration.
#[derive(Clone, Debug)]
pub(super) struct PostgresTls(pub(super) Option<Arc<ClientTls>>);

/// A handshake with one host.
pub(super) struct Handshake {
    tls: Option<Arc<ClientTls>>,
    host: String,
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = TlsIo<Socket>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { tls: self.0.clone(), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = TlsIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsIo<Socket>>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let tls = self.tls.ok_or_else(|| io::Error::other("no TLS was asked for"))?;
            tls.shake_hands(&self.host, stream).await
        })
    }
}

impl TlsStream for TlsIo<Socket> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &str, variables: &[(&str, &str)]) -> Result<Option<TlsOptions>, String> {
        let options = crate::engine::address::options(options);
        let environment = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        wanted(&options, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn modes_mean_what_libpq_means_by_them() {
        let verified = |options: &str, variables: &[(&str, &str)]| {
            asked(options, variables).unwrap().map(|tls| (tls.verify, tls.ca))
        };
        let file = || Ca::File("/ca".into());
        assert_eq!(verified("", &[]), None);
        assert_eq!(verified("sslmode=disable", &[("PGSSLMODE", "require")]), None);
        assert_eq!(verified("sslmode=require", &[]), Some((Verify::Nothing, Ca::System)));
        assert_eq!(verified("sslmode=require&sslrootcert=/ca", &[]), Some((Verify::Chain, file())));
        assert_eq!(
            verified("sslmode=verify-ca&sslrootcert=/ca", &[]),
            Some((Verify::Chain, file()))
        );
        assert_eq!(
            verified("sslmode=verify-full&sslrootcert=/ca", &[]),
            Some((Verify::Name, file()))
        );
        assert_eq!(verified("sslrootcert=/ca", &[]), Some((Verify::Name, file())));
        assert_eq!(verified("sslrootcert=system", &[]), Some((Verify::Name, Ca::System)));
        assert_eq!(verified("sslmode=verify-full", &[]), Some((Verify::Name, Ca::System)));
    }

    #[test]
    fn variables_of_libpq_count_where_the_url_says_nothing() {
        let variables = [
            ("PGSSLMODE", "verify-full"),
            ("PGSSLROOTCERT", "/ca"),
            ("PGSSLCERT", "/c"),
            ("PGSSLKEY", "/k"),
        ];
        let tls = asked("", &variables).unwrap().unwrap();
        assert_eq!((tls.verify, tls.ca), (Verify::Name, Ca::File("/ca".into())));
        assert_eq!(tls.identity.unwrap().key, std::path::Path::new("/k"));
        // Files alone ask for nothing.
        assert_eq!(asked("", &variables[1..]), Ok(None));
    }

    #[test]
    fn what_falls_back_or_verifies_less_than_it_says_is_refused() {
        let refusal = |options: &str| asked(options, &[]).unwrap_err();
        for mode in ["allow", "prefer"] {
            assert!(refusal(&format!("sslmode={mode}")).contains("falls back to plaintext"));
            assert!(asked("", &[("PGSSLMODE", mode)]).is_err());
        }
        assert!(refusal("sslmode=always").contains("known are disable, require"));
        assert!(refusal("sslmode=verify-ca").contains("needs sslrootcert"));
        assert!(refusal("sslmode=require&sslrootcert=system").contains("weaker"));
        assert!(refusal("sslmode=disable&sslrootcert=/ca").contains("leave out"));
    }
}
