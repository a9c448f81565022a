//! Failures of TLS in words for people.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Why a certificate is refused.
pub(crate) fn told(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate(why),
        Error::General(why) => why.clone(),
        other => other.to_string(),
    }
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        // A stranger's CA may have the name of one that is believed.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no CA that is believed here has issued it".to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "no revocation list that is here is of its CA".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it was issued for another use (extended key usage)".to_owned()
        }
        CertificateError::NotValidForName => "it is for another host".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            // Told as `DnsName("a")`.
            let plain = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
            let names: Vec<String> = presented.iter().map(plain).collect();
            let names = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
            format!("it is for {names} and not for {}", expected.to_str())
        }
        other => Error::InvalidCertificate(other.clone()).to_string(),
    }
}

/// Why a handshake failed, as the side that accepted it knows it.
pub(crate) fn handshake(error: io::Error) -> io::Error {
    match inner(&error) {
        Some(inner) => {
            io::Error::new(error.kind(), format!("the TLS handshake failed: {}", told(inner)))
        }
        None => error,
    }
}

fn inner<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(error);
    }
    if let Some(error) = error.downcast_ref::<io::Error>()
        && let Some(inside) = error.get_ref()
    {
        return inner(inside);
    }
    error.source().and_then(inner)
}

/// What a client should be told of an error of its connection, if TLS is why there is none: the server never heard
/// the request then.
#[must_use]
pub fn client_failure(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    match inner(error)? {
        Error::InvalidCertificate(why) => {
            let way_out = match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "; name the file of its CA with --ca or REGENT_CA"
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    "; use a name that it has, or issue another one"
                }
                _ => "",
            };
            let why = certificate(why);
            Some(format!("the certificate of the server is refused: {why}{way_out}"))
        }
        // What a server in the clear answers to a handshake is no record of TLS.
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => Some("the server does not speak TLS there; use http://".to_owned()),
        // Alerts about certificates are sent within a handshake only. With TLS 1.3 a client may have sent its first
        // request by then, which a server that refuses the handshake cannot read.
        Error::AlertReceived(alert) => refused(*alert).map(str::to_owned),
        _ => None,
    }
}

/// What a server means by an alert about the client's certificate.
fn refused(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            Some("the server asks for a client certificate; name one with --cert and --cert-key")
        }
        AlertDescription::CertificateExpired => {
            Some("the server refuses the client certificate: it has expired")
        }
        AlertDescription::CertificateRevoked => {
            Some("the server refuses the client certificate: it was revoked")
        }
        AlertDescription::UnknownCA => {
            Some("the server refuses the client certificate: no CA that it believes has issued it")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError
        | AlertDescription::HandshakeFailure => Some(
            "the server refuses the handshake, perhaps the client certificate; its log says why",
        ),
        _ => None,
    }
}
