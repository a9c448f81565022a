//! Targets by URL. Each is prepared in a corner of its own, and cleared afterwards.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use regent_election::error_text::with_causes;

use crate::Target;
use crate::exec::ExecTarget;
use crate::file::FileTarget;
use crate::http::HttpTarget;

/// Copies of a program, connections to a server.
const BESIDE: usize = 8;
/// What is known, for messages.
const KNOWN: &str = "postgres://, redis://, rediss://, dynamodb://, s3://, gs://, az://, file:///DIRECTORY, http://HOST:PORT/PATH \
                     and exec:PROGRAM";

/// Why a target cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The URL names nothing that can be.
    #[error("{0}")]
    Url(String),
    /// Its directory cannot be made or removed.
    #[error("{}: {error}", .path.display())]
    File {
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It does not answer.
    #[error("{0}")]
    Unreached(String),
    /// Its driver is not part of this build.
    #[error("{0} is not built in; build with --features {0}, or with --features full")]
    NotBuiltIn(&'static str),
}

/// A target and what is to be cleared after it.
pub struct Opened {
    /// What is tried.
    pub target: Arc<dyn Target>,
    /// What it is, without any password.
    pub kind: &'static str,
    corner: Corner,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// What a run leaves behind unless it is cleared.
enum Corner {
    /// Nothing that this program may take away.
    Theirs,
    Directory(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(Arc<crate::postgres::PostgresTarget>),
    #[cfg(feature = "dynamodb")]
    Dynamodb(Arc<crate::dynamodb::DynamodbTarget>),
}

/// Opens what a URL names. `room` is a name that nobody has used.
pub async fn open(url: &str, room: &str) -> Result<Opened, TargetError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "file" => {
            let directory = rest.strip_prefix("//").filter(|path| path.starts_with('/'));
            let directory = directory.ok_or_else(|| {
                TargetError::Url(
                    "a directory is written like file:///var/tmp, with three slashes".into(),
                )
            })?;
            let corner = PathBuf::from(directory).join(room);
            std::fs::create_dir(&corner)
                .map_err(|error| TargetError::File { path: corner.clone(), error })?;
            let target = Arc::new(FileTarget::at(&corner));
            Ok(Opened { target, kind: "file", corner: Corner::Directory(corner) })
        }
        "http" => {
            let target =
                HttpTarget::at(url).map_err(|error| TargetError::Url(error.to_string()))?;
            Ok(Opened { target: Arc::new(target), kind: "http", corner: Corner::Theirs })
        }
        "https" => {
            Err(TargetError::Url("this command speaks no TLS; test what lies behind it".into()))
        }
        "exec" => {
            let target = ExecTarget::start(rest, BESIDE).map_err(|error| {
                TargetError::Unreached(format!("{rest} does not start: {error}"))
            })?;
            Ok(Opened { target: Arc::new(target), kind: "exec", corner: Corner::Theirs })
        }
        "postgres" | "postgresql" => postgres(url, room).await,
        "redis" | "rediss" => redis(url).await,
        "dynamodb" => dynamodb(url, room).await,
        "s3" | "gs" | "az" | "azure" => object(url, room),
        _ => Err(TargetError::Url(format!(
            "{scheme:?} is nothing that can be tested; known are {KNOWN}"
        ))),
    }
}

impl Opened {
    /// Takes away what the trials have made.
    pub async fn clear(self) -> Result<(), TargetError> {
        match self.corner {
            Corner::Theirs => Ok(()),
            Corner::Directory(path) => {
                std::fs::remove_dir_all(&path).map_err(|error| TargetError::File { path, error })
            }
            #[cfg(feature = "postgres")]
            Corner::Postgres(target) => target.clear().await.map_err(|error| unreached(&*error)),
            #[cfg(feature = "dynamodb")]
            Corner::Dynamodb(target) => target.clear().await.map_err(|error| unreached(&*error)),
        }
    }
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str, room: &str) -> Result<Opened, TargetError> {
    let target = crate::postgres::PostgresTarget::prepare(url, room).await;
    let target = Arc::new(target.map_err(|error| unreached(&*error))?);
    let corner = Corner::Postgres(Arc::clone(&target));
    Ok(Opened { target, kind: "postgres", corner })
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str, _: &str) -> Result<Opened, TargetError> {
    Err(TargetError::NotBuiltIn("postgres"))
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Opened, TargetError> {
    let target = crate::redis::RedisTarget::connect(url, BESIDE).await;
    let target = Arc::new(target.map_err(|error| unreached(&*error))?);
    Ok(Opened { target, kind: "redis", corner: Corner::Theirs })
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &str) -> Result<Opened, TargetError> {
    Err(TargetError::NotBuiltIn("redis"))
}

/// A table of its own is made and deleted; the one of the URL is not touched.
#[cfg(feature = "dynamodb")]
async fn dynamodb(url: &str, room: &str) -> Result<Opened, TargetError> {
    let opened = regent_stores::dynamodb::client(url).await;
    let (client, _) = opened.map_err(|error| TargetError::Url(error.to_string()))?;
    let target = crate::dynamodb::DynamodbTarget::prepare(client, room).await;
    let target = Arc::new(target.map_err(|error| unreached(&*error))?);
    let corner = Corner::Dynamodb(Arc::clone(&target));
    Ok(Opened { target, kind: "dynamodb", corner })
}

#[cfg(not(feature = "dynamodb"))]
async fn dynamodb(_: &str, _: &str) -> Result<Opened, TargetError> {
    Err(TargetError::NotBuiltIn("dynamodb"))
}

#[cfg(feature = "object")]
fn object(url: &str, room: &str) -> Result<Opened, TargetError> {
    let bucket = regent_stores::object::bucket(url, std::time::Duration::from_secs(30));
    let (store, root) = bucket.map_err(|error| TargetError::Url(error.to_string()))?;
    let target = crate::object::ObjectTarget::new(store, root.join(room));
    Ok(Opened { target: Arc::new(target), kind: "object", corner: Corner::Theirs })
}

#[cfg(not(feature = "object"))]
fn object(_: &str, _: &str) -> Result<Opened, TargetError> {
    Err(TargetError::NotBuiltIn("object"))
}

#[allow(dead_code, reason = "a build without engines reaches none")]
fn unreached(error: &(dyn Error + 'static)) -> TargetError {
    TargetError::Unreached(with_causes(error))
}
