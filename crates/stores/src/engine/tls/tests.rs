//! Tests of files and handshakes without any store.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use regent_servers::certificates::{Certificates, NAME};
use rustls::{NamedGroup, ServerConfig};

use super::options::Identity;
use super::*;

fn options(certificates: &Certificates) -> TlsOptions {
    TlsOptions {
        verify: Verify::Name,
        ca: Ca::File(certificates.path("ca.crt")),
        identity: Some(Identity {
            certificate: certificates.path("client.crt"),
            key: certificates.path("client.key"),
        }),
        server_name: None,
    }
}

fn refusal(options: TlsOptions) -> String {
    ClientTls::open(options, None).expect_err("refused").to_string()
}

fn server(certificates: &Certificates) -> tokio_rustls::TlsAcceptor {
    let file = |name: &str| std::fs::read(certificates.path(name)).unwrap();
    let chain = super::certificates(Path::new("server.crt"), &file("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config).into()
}

#[tokio::test]
async fn a_handshake_agrees_on_a_post_quantum_group() {
    let certificates = Certificates::make().unwrap();
    let tls = ClientTls::open(options(&certificates), None).unwrap();
    let (here, there) = tokio::io::duplex(1 << 16);
    let (ours, theirs) =
        tokio::join!(tls.shake_hands(NAME, here), server(&certificates).accept(there));
    theirs.unwrap();
    let group = ours.unwrap().0.get_ref().1.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::X25519MLKEM768);
}

#[test]
fn files_that_cannot_be_used_are_named_when_the_store_is_opened() {
    let certificates = Certificates::make().unwrap();
    let good = || options(&certificates);
    let missing = TlsOptions { ca: Ca::File("/no/such/ca".into()), ..good() };
    assert!(refusal(missing).contains("/no/such/ca"));
    let no_certificate = TlsOptions { ca: Ca::File(certificates.path("client.key")), ..good() };
    assert!(refusal(no_certificate).contains("client.key holds no certificate in PEM"));
    let path = |name| certificates.path(name);
    let identity = Some(Identity { certificate: path("client.crt"), key: path("server.key") });
    assert!(refusal(TlsOptions { identity, ..good() }).contains("does not fit the key in"));
    let server_name = Some("not a name".to_owned());
    assert!(refusal(TlsOptions { server_name, ..good() }).contains("no name that a certificate"));

    let open = |mode| std::fs::set_permissions(path("client.key"), Permissions::from_mode(mode));
    open(0o640).unwrap();
    assert!(refusal(good()).contains("client.key can be read by others"));
    open(0o600).unwrap();
    std::fs::set_permissions(path("ca.crt"), Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(good()).contains("ca.crt can be written by others"));
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let certificates = Certificates::make().unwrap();
    let tls = ClientTls::open(options(&certificates), None).unwrap();
    let first = tls.config();
    assert!(Arc::ptr_eq(&first, &tls.config()), "the same files, the same configuration");
    let (own, other) = (certificates.path("ca.crt"), certificates.path("other-ca.crt"));
    std::fs::copy(other, &own).unwrap();
    let second = tls.config();
    assert!(!Arc::ptr_eq(&first, &second));
    std::fs::write(&own, "nothing").unwrap();
    assert!(Arc::ptr_eq(&second, &tls.config()), "the last good ones");
    std::fs::remove_file(&own).unwrap();
    assert!(Arc::ptr_eq(&second, &tls.config()), "the last good ones");
}
