//! TLS to MySQL and MariaDB, with the parameters of their clients.
//!
//! The driver shakes hands by itself, so files are read once, when the store is opened. `PREFERRED` is refused, because
//! it speaks in the clear whenever somebody between us and the server says that it has no TLS. `VERIFY_CA` is refused
//! because the driver cannot do it: it recognises a wrong name by words that rustls no longer uses.

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use rustls::crypto::aws_lc_rs;

use crate::engine::UrlError;
use crate::engine::tls::options::{TlsOptions, Verify, Words, parameter, value};
use crate::engine::tls::{ClientTls, read, system_certificates};

/// The parameter that says what is encrypted and verified.
const MODE: &str = "ssl-mode";

/// What their clients call the files; they read no variables.
const WORDS: Words = Words {
    ca: parameter("ssl-ca"),
    certificate: parameter("ssl-cert"),
    key: parameter("ssl-key"),
    server_name: None,
};

/// The parameters of a URL that are read here.
pub(super) fn parameters() -> Vec<&'static str> {
    let mut names = vec![MODE];
    names.extend(WORDS.parameters());
    names
}

/// What a URL asks for.
pub(super) fn wanted(options: &[(String, String)]) -> Result<Option<TlsOptions>, UrlError> {
    let mode = value(options, MODE).map(str::to_ascii_uppercase);
    let has_files = WORDS.are_in(options);
    let verify = match mode.as_deref() {
        None if !has_files => return Ok(None),
        Some("DISABLED") if has_files => {
            return Err(UrlError::new(
                "ssl-mode=DISABLED beside files for TLS; leave out one or the other",
            ));
        }
        Some("DISABLED") => return Ok(None),
        Some("REQUIRED") if value(options, WORDS.ca.parameter).is_some() => {
            return Err(UrlError::new(
                "ssl-mode=REQUIRED verifies nothing, so ssl-ca has no use; write ssl-mode=VERIFY_IDENTITY",
            ));
        }
        Some("REQUIRED") => Verify::Nothing,
        None | Some("VERIFY_IDENTITY") => Verify::Name,
        Some("VERIFY_CA") => {
            return Err(UrlError::new(
                "ssl-mode=VERIFY_CA is not offered; write VERIFY_IDENTITY and name the server as its certificate does",
            ));
        }
        Some("PREFERRED") => {
            return Err(UrlError::new(
                "ssl-mode=PREFERRED falls back to plaintext in silence; choose VERIFY_IDENTITY, REQUIRED or DISABLED",
            ));
        }
        Some(_) => {
            return Err(UrlError::new(
                "unknown ssl-mode; known are DISABLED, REQUIRED and VERIFY_IDENTITY",
            ));
        }
    };
    WORDS.read(verify, options, &|_| None).map(Some)
}

/// The driver's options with TLS as it was asked for.
pub(super) fn with_tls(opts: Opts, tls: TlsOptions) -> Result<Opts, UrlError> {
    if opts.socket().is_some() {
        return Err(UrlError::new("TLS is for hosts, not for sockets; leave out one or the other"));
    }
    // The driver takes the provider of the process. Who has set one keeps it.
    let _ = aws_lc_rs::default_provider().install_default();
    let files = read(&tls).map_err(UrlError::new)?;
    let roots = match (&files.ca, tls.verify) {
        (Some(pem), _) => vec![pem.clone()],
        (None, Verify::Nothing) => Vec::new(),
        (None, Verify::Name | Verify::Chain) => {
            system_certificates()?.iter().map(|der| der.to_vec()).collect()
        }
    };
    let identity = files.identity.as_ref().map(|(certificate, key)| {
        ClientIdentity::new(certificate.clone().into(), key.clone().into())
    });
    let is_verified = tls.verify != Verify::Nothing;
    // Everything that can be wrong with the files is said now, and in the words of all engines.
    ClientTls::open(tls, None)?;
    let ssl = SslOpts::default()
        // It wants some CAs even if it looks at none.
        .with_disable_built_in_roots(is_verified)
        .with_root_certs(roots.into_iter().map(Into::into).collect())
        .with_client_identity(identity)
        .with_danger_accept_invalid_certs(!is_verified);
    // A server on this host would tell the driver its socket, and the driver would go there without TLS.
    Ok(OptsBuilder::from_opts(opts).prefer_socket(false).ssl_opts(ssl).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tls::options::Ca;

    fn asked(options: &str) -> Result<Option<TlsOptions>, String> {
        wanted(&crate::engine::address::options(options)).map_err(|error| error.to_string())
    }

    #[test]
    fn modes_mean_what_mysql_means_by_them() {
        let verified = |options: &str| asked(options).unwrap().map(|tls| (tls.verify, tls.ca));
        let file = || Ca::File("/ca".into());
        assert_eq!(verified(""), None);
        assert_eq!(verified("ssl-mode=DISABLED"), None);
        assert_eq!(verified("ssl-mode=REQUIRED"), Some((Verify::Nothing, Ca::System)));
        assert_eq!(verified("ssl-mode=required"), Some((Verify::Nothing, Ca::System)));
        assert_eq!(verified("ssl-mode=VERIFY_IDENTITY"), Some((Verify::Name, Ca::System)));
        assert_eq!(verified("ssl-ca=/ca"), Some((Verify::Name, file())));
        assert_eq!(verified("ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca"), Some((Verify::Name, file())));
    }

    #[test]
    fn what_falls_back_or_verifies_less_than_it_says_is_refused() {
        let refusal = |options: &str| asked(options).unwrap_err();
        assert!(refusal("ssl-mode=PREFERRED").contains("falls back to plaintext"));
        assert!(refusal("ssl-mode=VERIFY_CA&ssl-ca=/ca").contains("write VERIFY_IDENTITY"));
        assert!(refusal("ssl-mode=REQUIRED&ssl-ca=/ca").contains("verifies nothing"));
        assert!(refusal("ssl-mode=DISABLED&ssl-ca=/ca").contains("leave out"));
        assert!(refusal("ssl-mode=on").contains("known are DISABLED"));
        assert!(refusal("ssl-cert=/c").contains("give ssl-key"));
    }
}
