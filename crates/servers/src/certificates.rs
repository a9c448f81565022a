//! Certificates for servers that require TLS: a CA, its server, its client, and a CA that is a stranger to them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::{Skip, folder};

/// The one name that the server's certificate has. What listens on 127.0.0.1 is reached under it, and under its
/// address it has the wrong name.
pub const NAME: &str = "localhost";

/// Files of certificates, deleted when this is dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes all of them.
    pub fn make() -> Result<Self, Skip> {
        let made = Self { folder: folder() };
        let failed = |error: rcgen::Error| error.to_string();
        let ca = authority("ca of tests").map_err(failed)?;
        let stranger = authority("ca of nobody").map_err(failed)?;
        made.write("ca.crt", &ca.pem(), 0o644)?;
        made.write("other-ca.crt", &stranger.pem(), 0o644)?;
        for (who, issuer) in [("server", &ca), ("client", &ca), ("stranger", &stranger)] {
            let (certificate, key) = issued(who, issuer).map_err(failed)?;
            made.write(&format!("{who}.crt"), &certificate, 0o644)?;
            made.write(&format!("{who}.key"), &key, 0o600)?;
        }
        Ok(made)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> Result<(), Skip> {
        let path = self.path(name);
        std::fs::write(&path, text)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(mode)))
            .map_err(|error| error.to_string())
    }

    /// One of the files: `ca.crt`, `other-ca.crt`, or `.crt` and `.key` of `server`, `client` and `stranger`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts what a server needs into its folder: `ca.crt`, `server.crt` and `server.key`.
    pub fn put_into(&self, folder: &Path) -> Result<(), Skip> {
        for name in ["ca.crt", "server.crt", "server.key"] {
            std::fs::copy(self.path(name), folder.join(name)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = called(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// A certificate and its key, in PEM.
fn issued(
    who: &str,
    issuer: &CertifiedIssuer<'static, KeyPair>,
) -> Result<(String, String), rcgen::Error> {
    let mut params = called(who);
    params.subject_alt_names = vec![rcgen::SanType::DnsName(NAME.try_into()?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn called(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
