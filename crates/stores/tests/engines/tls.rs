//! Elections over TLS on servers that accept nothing else, and who is refused: the wrong CA, the wrong name, no
//! certificate, no TLS.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{Campaign, CampaignSession, Heartbeat, Store};
use regent_election::{Group, Metadata, Node, SessionId};
use regent_servers::certificates::{Certificates, NAME};
use regent_servers::{Server, or_skip, report, starting};
use regent_stores::LeaseStore;
use regent_stores::engine::UrlError;
use regent_stores::register::{Encryption, Key, Register, RegisterError};

use crate::judge::unique;

/// How long a request may take: long enough for a machine that is busy with other tests.
const REQUEST_FOR: Duration = Duration::from_secs(20);

type Opened = Result<Arc<dyn Register>, UrlError>;

/// A server that requires TLS, and how its engine is opened.
struct Case {
    store: &'static str,
    server: Server,
    certificates: Certificates,
    open: fn(&str) -> Opened,
}

impl Case {
    /// Starts a server, or says why not.
    fn start(
        store: &'static str,
        start: impl Fn(&Certificates) -> Result<Server, String>,
        open: fn(&str) -> Opened,
    ) -> Option<Self> {
        let certificates = Certificates::make().unwrap();
        let server = or_skip(store, starting(|| start(&certificates)))?;
        Some(Self { store, server, certificates, open })
    }

    fn file(&self, name: &str) -> String {
        self.certificates.path(name).display().to_string()
    }

    /// The URL of the server by its right name, with these parameters, in which `{ca.crt}` stands for that file.
    fn url(&self, parameters: &str) -> String {
        self.filled(&self.server.url.replace("127.0.0.1", NAME), parameters)
    }

    /// The same by its address, for which it has no certificate.
    fn url_by_address(&self, parameters: &str) -> String {
        self.filled(&self.server.url, parameters)
    }

    fn filled(&self, url: &str, parameters: &str) -> String {
        let mut url = format!("{url}{parameters}");
        for name in
            ["ca.crt", "other-ca.crt", "client.crt", "client.key", "stranger.crt", "stranger.key"]
        {
            url = url.replace(&format!("{{{name}}}"), &self.file(name));
        }
        url
    }

    /// One election from beginning to end.
    async fn elects(&self, url: &str, encryption: Encryption) {
        let register = (self.open)(url).unwrap();
        assert_eq!(register.encryption(), Some(encryption));
        let warnings = register.examine().await.unwrap().join("\n");
        let is_unverified = encryption == Encryption::Unverified;
        assert_eq!(warnings.contains("certificate is not verified"), is_unverified, "{warnings}");
        let store: Arc<dyn Store> = Arc::new(LeaseStore::new(register));
        let session = SessionId::new(unique()).unwrap();
        let group = Group::new(&format!("tls/{:032x}", unique())).unwrap();
        let campaign = Campaign {
            group: group.clone(),
            node: Node::new("a").unwrap(),
            session: CampaignSession::Own(session),
            ttl_ms: Some(30_000),
            wait: None,
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        };
        let term = store.campaign(campaign).await.unwrap().elected.unwrap();
        let heartbeat = Heartbeat { session, sequence: None, disowned: vec![], beliefs: None };
        store.heartbeat(heartbeat).await.unwrap();
        store.renew(&group, session, term, None).await.unwrap();
        store.resign(&group, session, term, None).await.unwrap();
        store.shut_down().await;
    }

    /// That nothing is read from there, and that the error says why in one of these words.
    async fn refuses(&self, url: &str, words: &[&str]) {
        let register = (self.open)(url).unwrap();
        let refused = register.load(&Key::setting("tls")).await.unwrap_err();
        assert!(matches!(refused, RegisterError::Unavailable { .. }), "{refused:?}");
        let why = refused.to_string();
        assert!(words.iter().any(|word| why.contains(word)), "{}: {why}", self.store);
        eprintln!("{}: {why}", self.store);
        register.shut_down().await;
    }

    /// That a URL without parameters is enough if the environment says the rest. Variables are of a whole process, so
    /// it is another one: this very program, started again for one test.
    fn reads_in_environment(&self, url: &str, variables: &[(&str, &str)]) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "tls::reads_what_its_environment_says", "--nocapture"]);
        child.env(CHILD_URL, url);
        for (name, value) in variables {
            child.env(name, self.filled("", value));
        }
        let ended = child.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let complained = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.contains(CHILD_READ), "{said} {complained}");
    }

    fn passed(&self) {
        report(self.store, &self.server.version, 1, 0, "over TLS, which the server requires");
    }
}

/// The URL that a child is to read from, and what it says when it has.
const CHILD_URL: &str = "REGENT_TEST_TLS_URL";
const CHILD_READ: &str = "read over verified TLS";
/// Reads that it tries: the usual time-out is short for a busy machine.
const CHILD_READS_MAX: usize = 5;

/// What the child is: no test unless it was started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_what_its_environment_says() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let register = regent_stores::open_register(&url).unwrap();
    assert_eq!(register.encryption(), Some(Encryption::Verified));
    let mut why = None;
    for _ in 0..CHILD_READS_MAX {
        match register.load(&Key::setting("tls")).await {
            Ok(_) => return println!("{CHILD_READ}"),
            Err(error) => why = Some(error),
        }
    }
    panic!("{why:?}");
}

const OTHER_CA: &[&str] = &["from a CA that is not trusted"];
const OTHER_NAME: &[&str] = &["not valid for name \"127.0.0.1\""];
const NO_CERTIFICATE: &[&str] = &["asks for a client certificate", "refuses us"];

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        let register = regent_stores::postgres::PostgresRegister::new(url, REQUEST_FOR)?;
        Ok(Arc::new(register))
    };
    let Some(case) = Case::start("postgres", regent_servers::postgres::with_tls, open) else {
        return;
    };
    let own = "&sslcert={client.crt}&sslkey={client.key}";
    let full = format!("?sslmode=verify-full&sslrootcert={{ca.crt}}{own}");
    case.elects(&case.url(&full), Encryption::Verified).await;
    // Without a look at the name, and without any look at all, it is encrypted all the same.
    let chain = format!("?sslmode=verify-ca&sslrootcert={{ca.crt}}{own}");
    case.elects(&case.url_by_address(&chain), Encryption::VerifiedIssuer).await;
    let blind = case.url_by_address(&format!("?sslmode=require{own}"));
    case.elects(&blind, Encryption::Unverified).await;

    case.refuses(&case.url(&full.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url(&chain.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(&full), OTHER_NAME).await;
    let nobody = "?sslmode=verify-full&sslrootcert={ca.crt}";
    case.refuses(&case.url(nobody), &["requires a valid client certificate"]).await;
    let stranger = format!("{nobody}&sslcert={{stranger.crt}}&sslkey={{stranger.key}}");
    case.refuses(&case.url(&stranger), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["no encryption"]).await;
    let variables = [
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "{ca.crt}"),
        ("PGSSLCERT", "{client.crt}"),
        ("PGSSLKEY", "{client.key}"),
    ];
    case.reads_in_environment(&case.url(""), &variables);
    case.passed();
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_without_tls_is_refused_when_tls_is_asked_for() {
    let Some(server) = or_skip("postgres", regent_servers::postgres::postgres()) else { return };
    let url = format!("{}?sslmode=require", server.url);
    let register = regent_stores::postgres::PostgresRegister::new(&url, REQUEST_FOR).unwrap();
    let refused = register.load(&Key::setting("tls")).await.unwrap_err().to_string();
    assert!(refused.contains("server does not support TLS"), "{refused}");
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::redis::RedisRegister::new(url, REQUEST_FOR)?))
    };
    let Some(case) = Case::start("redis", regent_servers::redis::with_tls, open) else { return };
    let secure = |url: String| url.replace("redis://", "rediss://");
    let own = "?cacert={ca.crt}&cert={client.crt}&key={client.key}";
    case.elects(&secure(case.url(own)), Encryption::Verified).await;
    case.elects(&secure(case.url_by_address(&format!("{own}&sni={NAME}"))), Encryption::Verified)
        .await;

    let other = own.replace("{ca.crt}", "{other-ca.crt}");
    case.refuses(&secure(case.url(&other)), OTHER_CA).await;
    case.refuses(&secure(case.url_by_address(own)), OTHER_NAME).await;
    case.refuses(&secure(case.url("?cacert={ca.crt}")), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["if it requires TLS, write rediss://"]).await;
    case.passed();
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::etcd::EtcdRegister::new(url, REQUEST_FOR)?))
    };
    let Some(case) = Case::start("etcd", regent_servers::etcd::with_tls, open) else { return };
    let own = "?cacert={ca.crt}&cert={client.crt}&key={client.key}";
    case.elects(&case.url(own).replace("etcd://", "etcds://"), Encryption::Verified).await;

    case.refuses(&case.url(&own.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(own), OTHER_NAME).await;
    case.refuses(&case.url("?cacert={ca.crt}"), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["if it requires TLS, write etcds://"]).await;
    let variables = [
        ("ETCDCTL_CACERT", "{ca.crt}"),
        ("ETCDCTL_CERT", "{client.crt}"),
        ("ETCDCTL_KEY", "{client.key}"),
    ];
    case.reads_in_environment(&case.url("").replace("etcd://", "etcds://"), &variables);
    case.passed();
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::nats::NatsRegister::new(url, REQUEST_FOR)?))
    };
    let Some(case) = Case::start("nats", regent_servers::nats::with_tls, open) else { return };
    let own = "?tlsca={ca.crt}&tlscert={client.crt}&tlskey={client.key}";
    case.elects(&case.url(own).replace("nats://", "tls://"), Encryption::Verified).await;

    case.refuses(&case.url(&own.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(own), OTHER_NAME).await;
    case.refuses(&case.url("?tlsca={ca.crt}"), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["requires TLS"]).await;
    let variables =
        [("NATS_CA", "{ca.crt}"), ("NATS_CERT", "{client.crt}"), ("NATS_KEY", "{client.key}")];
    case.reads_in_environment(&case.url("").replace("nats://", "tls://"), &variables);
    case.passed();
}

#[cfg(feature = "consul")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::consul::ConsulRegister::new(url, REQUEST_FOR)?))
    };
    let Some(case) = Case::start("consul", regent_servers::consul::with_tls, open) else { return };
    let own = "?tls=true&ca-file={ca.crt}&client-cert={client.crt}&client-key={client.key}";
    case.elects(&case.url(own), Encryption::Verified).await;
    case.elects(
        &case.url_by_address(&format!("{own}&tls-server-name={NAME}")),
        Encryption::Verified,
    )
    .await;

    case.refuses(&case.url(&own.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(own), OTHER_NAME).await;
    case.refuses(&case.url("?tls=true&ca-file={ca.crt}"), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["HTTP request to an HTTPS server"]).await;
    let variables = [
        ("CONSUL_HTTP_SSL", "true"),
        ("CONSUL_CACERT", "{ca.crt}"),
        ("CONSUL_CLIENT_CERT", "{client.crt}"),
        ("CONSUL_CLIENT_KEY", "{client.key}"),
        ("CONSUL_TLS_SERVER_NAME", NAME),
    ];
    case.reads_in_environment(&case.url_by_address(""), &variables);
    case.passed();
}

#[cfg(feature = "zookeeper")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::zookeeper::ZookeeperRegister::new(url, REQUEST_FOR)?))
    };
    let start = regent_servers::zookeeper::with_tls;
    let Some(case) = Case::start("zookeeper", start, open) else { return };
    let own = "?tls=true&ca={ca.crt}&cert={client.crt}&key={client.key}";
    case.elects(&case.url(own), Encryption::Verified).await;

    case.refuses(&case.url(&own.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(own), OTHER_NAME).await;
    case.refuses(&case.url("?tls=true&ca={ca.crt}"), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["write ?tls=true"]).await;
    case.passed();
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::mysql::MysqlRegister::new(url, REQUEST_FOR)?))
    };
    let Some(case) = Case::start("mysql", regent_servers::mysql::with_tls, open) else { return };
    let own = "&ssl-cert={client.crt}&ssl-key={client.key}";
    let full = format!("?ssl-mode=VERIFY_IDENTITY&ssl-ca={{ca.crt}}{own}");
    case.elects(&case.url(&full), Encryption::Verified).await;
    // Without any look at the certificate it is encrypted all the same.
    let blind = case.url_by_address(&format!("?ssl-mode=REQUIRED{own}"));
    case.elects(&blind, Encryption::Unverified).await;

    case.refuses(&case.url(&full.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(&full), OTHER_NAME).await;
    case.refuses(&case.url("?ssl-ca={ca.crt}"), &["if this user needs a client certificate"]).await;
    case.refuses(&case.url(""), &["if this user needs TLS"]).await;
    case.passed();
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_without_tls_is_refused_when_tls_is_asked_for() {
    let Some(server) = or_skip("mysql", regent_servers::mysql::mysql()) else { return };
    let url = format!("{}?ssl-mode=REQUIRED", server.url);
    let register = regent_stores::mysql::MysqlRegister::new(&url, REQUEST_FOR).unwrap();
    let refused = register.load(&Key::setting("tls")).await.unwrap_err().to_string();
    assert!(refused.contains("server does not have this capability"), "{refused}");
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_without_tls_is_refused_when_tls_is_asked_for() {
    let Some(server) = or_skip("nats", regent_servers::nats::nats()) else { return };
    let certificates = Certificates::make().unwrap();
    let url = format!("{}?tlsca={}", server.url, certificates.path("ca.crt").display());
    let register = regent_stores::nats::NatsRegister::new(&url, REQUEST_FOR).unwrap();
    let refused = register.load(&Key::setting("tls")).await.unwrap_err().to_string();
    assert!(refused.contains("TLS"), "{refused}");
}

/// Three that require TLS, as one.
#[cfg(feature = "redlock")]
fn three_redis_with_tls(certificates: &Certificates) -> Result<Server, String> {
    let mut all = regent_servers::redis::with_tls(certificates)?;
    all.url = all.url.replace("redis://", "redlock://");
    for _ in 0..2 {
        let more = regent_servers::redis::with_tls(certificates)?;
        all.url += &more.url.replace("redis://", ",");
        all.processes.extend(more.processes);
    }
    Ok(all)
}

#[cfg(feature = "redlock")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_elects_over_tls_and_refuses_whoever_is_not_who_it_must_be() {
    let open = |url: &str| -> Opened {
        Ok(Arc::new(regent_stores::redlock::RedlockRegister::new(url, REQUEST_FOR)?))
    };
    let Some(case) = Case::start("redlock", three_redis_with_tls, open) else { return };
    let own = "?tls=true&cacert={ca.crt}&cert={client.crt}&key={client.key}";
    case.elects(&case.url(own), Encryption::Verified).await;

    case.refuses(&case.url(&own.replace("{ca.crt}", "{other-ca.crt}")), OTHER_CA).await;
    case.refuses(&case.url_by_address(own), OTHER_NAME).await;
    case.refuses(&case.url("?tls=true&cacert={ca.crt}"), NO_CERTIFICATE).await;
    case.refuses(&case.url(""), &["if it requires TLS, write rediss:// or ?tls=true"]).await;
    case.passed();
}
