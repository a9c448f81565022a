//! Settings of TLS on the port of clients.

use std::path::PathBuf;

use super::{ConfigError, Effective, Key};
use crate::client_tls::{ClientAuth, ClientPort};

/// The names of client certificates that may count beside URIs.
const DNS: &str = "dns";
const COMMON_NAME: &str = "cn";

impl Effective {
    /// How TLS is spoken to clients, if it is; refuses settings that would silently not count.
    pub(super) fn client_port(&self) -> Result<Option<ClientPort>, ConfigError> {
        let path = |key| Some(self.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from);
        let refuse = |what: String| Err(ConfigError::Together { what });
        let together = |given: Key, missing: Key| {
            let said = self.origin(given);
            format!("{given} is set and {missing} is not (from {said}); they go together")
        };
        let (ca, crl) = (path(Key::TlsClientCa), path(Key::TlsCrl));
        let auth = ClientAuth::find(&self.text(Key::TlsClientAuth)).unwrap_or_default();
        let (certificate, key) = match (path(Key::TlsCert), path(Key::TlsKey)) {
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => return refuse(together(Key::TlsCert, Key::TlsKey)),
            (None, Some(_)) => return refuse(together(Key::TlsKey, Key::TlsCert)),
            (None, None) if ca.is_some() => {
                return refuse(together(Key::TlsClientCa, Key::TlsCert));
            }
            (None, None) if auth != ClientAuth::Off => {
                return refuse(together(Key::TlsClientAuth, Key::TlsCert));
            }
            (None, None) if crl.is_some() => return refuse(together(Key::TlsCrl, Key::TlsCert)),
            (None, None) => return Ok(None),
        };
        match (auth, &ca) {
            (ClientAuth::Off, Some(_)) => {
                let said = self.origin(Key::TlsClientCa);
                return refuse(format!(
                    "tls_client_ca is set and tls_client_auth is off (from {said}); set tls_client_auth to optional or required"
                ));
            }
            (ClientAuth::Optional | ClientAuth::Required, None) => {
                return refuse(together(Key::TlsClientAuth, Key::TlsClientCa));
            }
            (ClientAuth::Off, None) if crl.is_some() => {
                return refuse(together(Key::TlsCrl, Key::TlsClientCa));
            }
            (ClientAuth::Off, None) | (ClientAuth::Optional | ClientAuth::Required, Some(_)) => {}
        }
        let names = self.words(Key::TlsClientNames);
        if let Some(other) = names.iter().find(|name| ![DNS, COMMON_NAME].contains(&name.as_str()))
        {
            let said = self.origin(Key::TlsClientNames);
            return refuse(format!(
                "tls_client_names: {other:?} is neither {DNS:?} nor {COMMON_NAME:?} (from {said})"
            ));
        }
        let has = |kind: &str| names.iter().any(|name| name == kind);
        let (dns_names, common_names) = (has(DNS), has(COMMON_NAME));
        Ok(Some(ClientPort { certificate, key, ca, crl, auth, dns_names, common_names }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(flags: &[(Key, &str)]) -> Result<Option<ClientPort>, String> {
        let flags: Vec<(Key, String)> =
            flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        let effective = Effective::resolve(&flags, &|_| None, None).map_err(|e| e.to_string())?;
        effective.client_port().map_err(|error| error.to_string())
    }

    #[test]
    fn settings_that_would_not_count_are_refused_with_who_said_so() {
        assert_eq!(port(&[]), Ok(None));
        let server = [(Key::TlsCert, "c"), (Key::TlsKey, "k")];
        let plain = port(&server).unwrap().unwrap();
        assert_eq!(
            (plain.auth, plain.dns_names, plain.common_names),
            (ClientAuth::Off, true, false)
        );
        let with = |more: &[(Key, &'static str)]| port(&[&server[..], more].concat());
        for (flags, why) in [
            (port(&server[..1]), "tls_cert is set and tls_key is not (from --tls-cert)"),
            (port(&server[1..]), "tls_key is set and tls_cert is not"),
            (port(&[(Key::TlsClientCa, "a")]), "tls_client_ca is set and tls_cert is not"),
            (port(&[(Key::TlsClientAuth, "optional")]), "tls_client_auth is set and tls_cert"),
            (port(&[(Key::TlsCrl, "l")]), "tls_crl is set and tls_cert is not"),
            (with(&[(Key::TlsClientCa, "a")]), "tls_client_auth is off"),
            (with(&[(Key::TlsCrl, "l")]), "tls_crl is set and tls_client_ca is not"),
            (with(&[(Key::TlsClientAuth, "required")]), "tls_client_ca is not"),
            (
                with(&[
                    (Key::TlsClientAuth, "required"),
                    (Key::TlsClientCa, "a"),
                    (Key::TlsClientNames, "dns,mail"),
                ]),
                "\"mail\" is neither",
            ),
        ] {
            let error = flags.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let all = [
            (Key::TlsClientAuth, "required"),
            (Key::TlsClientCa, "a"),
            (Key::TlsCrl, "l"),
            (Key::TlsClientNames, "cn"),
        ];
        let port = with(&all).unwrap().unwrap();
        assert_eq!(
            (port.auth, port.ca, port.crl),
            (ClientAuth::Required, Some("a".into()), Some("l".into()))
        );
        assert_eq!((port.dns_names, port.common_names), (false, true));
    }
}
