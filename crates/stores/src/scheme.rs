//! What a URL may name: one table for opening, for `regent store list` and for messages.
//!
//! Every engine that was written has a line here, whether this build has it or not: "built without" and
//! "no such thing" are different answers.

use std::path::PathBuf;
use std::sync::Arc;

use regent_election::store::Level;

use crate::file::FileRegister;
use crate::register::Register;

/// How a scheme becomes a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opener {
    /// A store of this process alone, in memory.
    Memory,
    /// A register, which the lease makes a store of. Nothing is sent yet.
    Register(fn(&str) -> Result<Arc<dyn Register>, String>),
    /// Written, but not built in.
    #[allow(dead_code, reason = "a build with everything misses nothing")]
    Missing,
}

/// One kind of store.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scheme {
    /// What its URLs open with.
    pub name: &'static str,
    /// What they may open with as well.
    pub aliases: &'static [&'static str],
    /// How one is written.
    pub example: &'static str,
    /// The feature that builds it in; none if it always is.
    pub feature: Option<&'static str>,
    /// The most that it claims; a deployment may be weaker, and [`Register::examine`] tells.
    pub level: Level,
    /// Why not more, or under which condition.
    pub why: &'static str,
    pub(crate) opener: Opener,
}

impl Scheme {
    /// Whether this build has it.
    #[must_use]
    pub const fn is_built_in(&self) -> bool {
        !matches!(self.opener, Opener::Missing)
    }

    /// The scheme that opens this URL, by its name or an alias.
    #[must_use]
    pub fn of(url: &str) -> Option<&'static Self> {
        let word = url.split(':').next().unwrap_or_default();
        SCHEMES.iter().find(|scheme| scheme.name == word || scheme.aliases.contains(&word))
    }
}

/// An opener, or that it is missing.
macro_rules! engine {
    ($name:ident, $feature:literal, $open:expr) => {
        #[cfg(feature = $feature)]
        const $name: Opener = Opener::Register($open);
        #[cfg(not(feature = $feature))]
        const $name: Opener = Opener::Missing;
    };
}

/// The usual way to open an engine across a network: by its URL, with the usual time-out.
#[cfg(feature = "engine")]
macro_rules! at {
    ($register:ty) => {
        at!($register, crate::engine::limits::REQUEST_FOR)
    };
    ($register:ty, $request_for:expr) => {
        |url| match <$register>::new(url, $request_for) {
            Ok(register) => Ok(Arc::new(register)),
            Err(error) => Err(error.to_string()),
        }
    };
}

engine!(CONSUL, "consul", at!(crate::consul::ConsulRegister));
engine!(DYNAMODB, "dynamodb", at!(crate::dynamodb::DynamodbRegister));
engine!(ETCD, "etcd", at!(crate::etcd::EtcdRegister));
engine!(KUBERNETES, "kubernetes", at!(crate::kubernetes::KubernetesRegister));
engine!(MYSQL, "mysql", at!(crate::mysql::MysqlRegister));
engine!(NATS, "nats", at!(crate::nats::NatsRegister));
engine!(OBJECT, "object", at!(crate::object::ObjectRegister, crate::object::REQUEST_FOR));
engine!(POSTGRES, "postgres", at!(crate::postgres::PostgresRegister));
engine!(REDIS, "redis", at!(crate::redis::RedisRegister));
engine!(REDLOCK, "redlock", at!(crate::redlock::RedlockRegister));
engine!(ZOOKEEPER, "zookeeper", at!(crate::zookeeper::ZookeeperRegister));

fn open_file(url: &str) -> Result<Arc<dyn Register>, String> {
    let directory = directory_of(url)?;
    Ok(Arc::new(FileRegister::open(directory).map_err(|error| error.to_string())?))
}

/// The directory that a URL names: `file:///var/lib/regent`, `file:data`.
pub(crate) fn directory_of(url: &str) -> Result<PathBuf, String> {
    let path = url.strip_prefix("file:").unwrap_or(url);
    // An empty authority says the same as none: file:///var is /var.
    let path = match path.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) | None => path,
    };
    if path.is_empty() || path.contains('\0') {
        return Err("no directory is named; write it like file:///var/lib/regent".into());
    }
    Ok(PathBuf::from(path))
}

/// Everything that a URL may name.
pub const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "memory",
        aliases: &[],
        example: "memory:",
        feature: None,
        level: Level::BestEffort,
        why: "everything is gone with the process: for trying things",
        opener: Opener::Memory,
    },
    Scheme {
        name: "file",
        aliases: &[],
        example: "file:///var/lib/elections",
        feature: None,
        level: Level::Strict,
        why: "one host and one disk: for the processes of one machine; refused on network file systems",
        opener: Opener::Register(open_file),
    },
    Scheme {
        name: "etcd",
        aliases: &["etcds"],
        example: "etcd://h1:2379,h2:2379,h3:2379",
        feature: Some("etcd"),
        level: Level::Strict,
        why: "a majority of members; restoring a snapshot of the cluster takes back terms",
        opener: ETCD,
    },
    Scheme {
        name: "zookeeper",
        aliases: &["zk"],
        example: "zookeeper://h1:2181,h2:2181,h3:2181/regent",
        feature: Some("zookeeper"),
        level: Level::Strict,
        why: "a majority of servers; deleted nodes or an older snapshot take terms back; with ?mode=session ZooKeeper \
              times sessions and shows lines, with a ttl of 2 to 20 ticks",
        opener: ZOOKEEPER,
    },
    Scheme {
        name: "postgres",
        aliases: &["postgresql"],
        example: "postgres://user:password@host:5432/database",
        feature: Some("postgres"),
        level: Level::Strict,
        why: "one primary, or synchronous standbys; an asynchronous failover takes back the last terms",
        opener: POSTGRES,
    },
    Scheme {
        name: "mysql",
        aliases: &["mariadb"],
        example: "mysql://user:password@host:3306/database",
        feature: Some("mysql"),
        level: Level::Strict,
        why: "one primary; an asynchronous failover takes back the last terms",
        opener: MYSQL,
    },
    Scheme {
        name: "redis",
        aliases: &["rediss"],
        example: "redis://host:6379/0",
        feature: Some("redis"),
        level: Level::LeaseOnly,
        why: "terms rise only while the server remembers: appendfsync always, no failover to a replica",
        opener: REDIS,
    },
    Scheme {
        name: "redlock",
        aliases: &[],
        example: "redlock://a:6379,b:6379,c:6379",
        feature: Some("redlock"),
        level: Level::LeaseOnly,
        why: "a majority of independent servers, none of which may forget what it promised",
        opener: REDLOCK,
    },
    Scheme {
        name: "consul",
        aliases: &[],
        example: "consul://host:8500/prefix",
        feature: Some("consul"),
        level: Level::Strict,
        why: "Raft of its servers; deleted keys or an older snapshot take terms back; with ?mode=session Consul \
              times sessions, of ten seconds or more",
        opener: CONSUL,
    },
    Scheme {
        name: "dynamodb",
        aliases: &[],
        example: "dynamodb://elections?region=eu-west-1",
        feature: Some("dynamodb"),
        level: Level::Strict,
        why: "one region; a global table must have strong consistency between regions",
        opener: DYNAMODB,
    },
    Scheme {
        name: "nats",
        aliases: &["tls"],
        example: "nats://a:4222,b:4222,c:4222/bucket?replicas=3",
        feature: Some("nats"),
        level: Level::LeaseOnly,
        why: "terms rise only while the bucket remembers: three replicas, or sync_interval always",
        opener: NATS,
    },
    Scheme {
        name: "kubernetes",
        aliases: &["k8s"],
        example: "kubernetes://namespace?context=production",
        feature: Some("kubernetes"),
        level: Level::LeaseOnly,
        why: "terms rise only while the Lease objects live; kubectl get lease shows who leads",
        opener: KUBERNETES,
    },
    Scheme {
        name: "s3",
        aliases: &[],
        example: "s3://bucket/prefix?region=eu-west-1",
        feature: Some("object"),
        level: Level::Strict,
        why: "conditional writes of S3, proved before the first; lease-only where ?endpoint= names another server",
        opener: OBJECT,
    },
    Scheme {
        name: "gs",
        aliases: &[],
        example: "gs://bucket/prefix",
        feature: Some("object"),
        level: Level::Strict,
        why: "generations of Google's objects, about one write a second to each: a ttl of 5 seconds or more",
        opener: OBJECT,
    },
    Scheme {
        name: "az",
        aliases: &["azure"],
        example: "az://container/prefix",
        feature: Some("object"),
        level: Level::Strict,
        why: "conditional writes of Azure's blobs; the account is that of AZURE_STORAGE_ACCOUNT_NAME",
        opener: OBJECT,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_told_apart() {
        let mut words: Vec<&str> = SCHEMES
            .iter()
            .flat_map(|scheme| scheme.aliases.iter().chain(std::iter::once(&scheme.name)))
            .copied()
            .collect();
        words.sort_unstable();
        let count = words.len();
        words.dedup();
        assert_eq!(words.len(), count, "{words:?}");
        for scheme in SCHEMES {
            assert_eq!(Scheme::of(scheme.example).map(|found| found.name), Some(scheme.name));
            assert!(scheme.is_built_in() || scheme.feature.is_some());
        }
    }

    #[test]
    fn a_url_names_a_directory() {
        for (url, path) in [
            ("file:data", "data"),
            ("file:./data", "./data"),
            ("file:/var/lib/regent", "/var/lib/regent"),
            ("file:///var/lib/regent", "/var/lib/regent"),
            ("file:///srv/with:colon", "/srv/with:colon"),
        ] {
            assert_eq!(directory_of(url), Ok(path.into()), "{url}");
        }
        assert!(directory_of("file:").is_err());
        assert_eq!(Scheme::of("postgresql://x").map(|scheme| scheme.name), Some("postgres"));
        assert!(Scheme::of("FILE:x").is_none() && Scheme::of("").is_none());
    }
}
