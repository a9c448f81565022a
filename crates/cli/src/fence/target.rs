//! What `regent fence test` hammers, by URL. Each is prepared in a corner of its own, and cleared afterwards.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use regent::fencing::trial::Target;
use regent::fencing::trial::exec::ExecTarget;
use regent::fencing::trial::file::FileTarget;
use regent::fencing::trial::http::HttpTarget;

use crate::exit::Exit;
use crate::failure::Failure;

/// Copies of a program, connections to a server.
const BESIDE: usize = 8;
/// What is known, for messages.
const KNOWN: &str = "postgres://, redis://, dynamodb://, s3://, gs://, az://, file:///DIRECTORY, http://HOST:PORT/PATH \
                     and exec:PROGRAM";

/// A target and what is to be cleared after it.
pub(super) struct Opened {
    pub(super) target: Arc<dyn Target>,
    /// What it is, without any password.
    pub(super) kind: &'static str,
    corner: Corner,
}

/// What a run leaves behind unless it is cleared.
enum Corner {
    /// Nothing that this program may take away.
    Theirs,
    Directory(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(Arc<regent::fencing::trial::postgres::PostgresTarget>),
    #[cfg(feature = "dynamodb")]
    Dynamodb(Arc<regent::fencing::trial::dynamodb::DynamodbTarget>),
}

/// Opens what a URL names. `room` is a name that nobody has used.
pub(super) async fn open(url: &str, room: &str) -> Result<Opened, Failure> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "file" => {
            let directory = rest.strip_prefix("//").filter(|path| path.starts_with('/'));
            let directory = directory.ok_or_else(|| {
                Failure::usage("a directory is written like file:///var/tmp, with three slashes")
            })?;
            let corner = PathBuf::from(directory).join(room);
            std::fs::create_dir(&corner).map_err(|error| Failure::file(&corner, &error))?;
            let target = Arc::new(FileTarget::at(&corner));
            Ok(Opened { target, kind: "file", corner: Corner::Directory(corner) })
        }
        "http" => {
            let target = HttpTarget::at(url).map_err(|error| Failure::usage(error.to_string()))?;
            Ok(Opened { target: Arc::new(target), kind: "http", corner: Corner::Theirs })
        }
        "https" => Err(Failure::usage("this command speaks no TLS; test what lies behind it")),
        "exec" => {
            let target = ExecTarget::start(rest, BESIDE).map_err(|error| {
                Failure::new(Exit::Unavailable, format!("{rest} does not start: {error}"))
            })?;
            Ok(Opened { target: Arc::new(target), kind: "exec", corner: Corner::Theirs })
        }
        "postgres" | "postgresql" => postgres(url, room).await,
        "redis" => redis(url).await,
        "dynamodb" => dynamodb(url, room).await,
        "s3" | "gs" | "az" | "azure" => object(url, room),
        _ => Err(Failure::usage(format!(
            "{scheme:?} is nothing that can be tested; known are {KNOWN}"
        ))),
    }
}

impl Opened {
    /// Takes away what the trials have made.
    pub(super) async fn clear(self) -> Result<(), Failure> {
        match self.corner {
            Corner::Theirs => Ok(()),
            Corner::Directory(path) => {
                std::fs::remove_dir_all(&path).map_err(|error| Failure::file(&path, &error))
            }
            #[cfg(feature = "postgres")]
            Corner::Postgres(target) => target.clear().await.map_err(|error| unreached(&*error)),
            #[cfg(feature = "dynamodb")]
            Corner::Dynamodb(target) => target.clear().await.map_err(|error| unreached(&*error)),
        }
    }
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str, room: &str) -> Result<Opened, Failure> {
    let target = regent::fencing::trial::postgres::PostgresTarget::prepare(url, room).await;
    let target = Arc::new(target.map_err(|error| unreached(&*error))?);
    let corner = Corner::Postgres(Arc::clone(&target));
    Ok(Opened { target, kind: "postgres", corner })
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str, _: &str) -> Result<Opened, Failure> {
    Err(not_built_in("postgres"))
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Opened, Failure> {
    let target = regent::fencing::trial::redis::RedisTarget::connect(url, BESIDE).await;
    let target = Arc::new(target.map_err(|error| unreached(&*error))?);
    Ok(Opened { target, kind: "redis", corner: Corner::Theirs })
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &str) -> Result<Opened, Failure> {
    Err(not_built_in("redis"))
}

/// A table of its own is made and deleted; the one of the URL is not touched.
#[cfg(feature = "dynamodb")]
async fn dynamodb(url: &str, room: &str) -> Result<Opened, Failure> {
    let opened = regent_stores::dynamodb::client(url).await;
    let (client, _) = opened.map_err(|error| Failure::usage(error.to_string()))?;
    let target = regent::fencing::trial::dynamodb::DynamodbTarget::prepare(client, room).await;
    let target = Arc::new(target.map_err(|error| unreached(&*error))?);
    let corner = Corner::Dynamodb(Arc::clone(&target));
    Ok(Opened { target, kind: "dynamodb", corner })
}

#[cfg(not(feature = "dynamodb"))]
async fn dynamodb(_: &str, _: &str) -> Result<Opened, Failure> {
    Err(not_built_in("dynamodb"))
}

#[cfg(feature = "object")]
fn object(url: &str, room: &str) -> Result<Opened, Failure> {
    let bucket = regent_stores::object::bucket(url, std::time::Duration::from_secs(30));
    let (store, root) = bucket.map_err(|error| Failure::usage(error.to_string()))?;
    let target = regent::fencing::trial::object::ObjectTarget::new(store, root.join(room));
    Ok(Opened { target: Arc::new(target), kind: "object", corner: Corner::Theirs })
}

#[cfg(not(feature = "object"))]
fn object(_: &str, _: &str) -> Result<Opened, Failure> {
    Err(not_built_in("object"))
}

#[allow(dead_code, reason = "a build with every engine lacks none")]
pub(super) fn not_built_in(feature: &str) -> Failure {
    Failure::new(
        Exit::Config,
        format!(
            "{feature} is not built in; build with --features {feature}, or with --features full"
        ),
    )
}

#[allow(dead_code, reason = "a build without engines reaches none")]
fn unreached(error: &(dyn Error + 'static)) -> Failure {
    Failure::new(Exit::Unavailable, whole(error))
}

/// An error with its causes.
#[allow(dead_code, reason = "a build without engines reaches none")]
pub(super) fn whole(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
