//! One connection to one Redis server, made again when it is lost.
//!
//! Every request shares it. A request is never repeated here: whether a lost one may be sent again is
//! for the caller to say. The crate's own connection manager was not taken, because it cannot refuse a
//! server by its role, and a replica would answer reads with what was.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, RedisError, RedisResult,
    ScriptInvocation,
};

use crate::engine::held::Held;
use crate::engine::tls::options::{TLS, Words, cut_out, environment, once_each, parameter};
use crate::engine::tls::stream::NetStream;
use crate::engine::tls::{ClientTls, encryption};
use crate::engine::{Effect, UrlError};
use crate::register::{Encryption, RegisterError, RegisterResult};

/// What `redis-cli` calls the files; it reads none of them from the environment.
pub(crate) const WORDS: Words = Words {
    ca: parameter("cacert"),
    certificate: parameter("cert"),
    key: parameter("key"),
    server_name: Some(parameter("sni")),
};

/// A server and the connection to it.
pub(crate) struct Wire {
    client: Client,
    tls: Option<Arc<ClientTls>>,
    held: Held<MultiplexedConnection>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.place())
    }
}

impl Wire {
    /// A wire to the server that `url` names. It connects when it is first used.
    pub(crate) fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let mut ours = WORDS.parameters();
        ours.push(TLS);
        let (rest, options) = cut_out(url, &ours);
        once_each(&options)?;
        let (head, others) = rest.split_once('?').unwrap_or((&rest, ""));
        let others = crate::engine::address::options(others);
        if let Some((other, _)) = others.iter().find(|(name, _)| name != "protocol") {
            return Err(UrlError::new(format_args!(
                "unknown option {other:?}; known are protocol, {}",
                ours.join(", ")
            )));
        }
        let is_asked = head.starts_with("rediss:");
        let tls = WORDS.wanted(is_asked, &options, &environment)?;
        if tls.is_some() && url.contains('#') {
            return Err(UrlError::new(
                "what follows the # would turn verification off; name the CA of the server with ?cacert=FILE",
            ));
        }
        let tls = tls.map(|tls| ClientTls::open(tls, None)).transpose()?.map(Arc::new);
        Self::by(&rest.replacen("rediss:", "redis:", 1), tls, request_for)
    }

    /// A wire to the server of a URL that says nothing of TLS, by TLS if there is a way to.
    pub(crate) fn by(
        url: &str,
        tls: Option<Arc<ClientTls>>,
        request_for: Duration,
    ) -> Result<Self, UrlError> {
        let client = Client::open(url).map_err(|error| {
            UrlError::new(format_args!(
                "not a URL of Redis ({}); write it like redis://user:password@host:6379/0, and for TLS rediss://",
                error.detail().unwrap_or(error.category())
            ))
        })?;
        Ok(Self { client, tls, held: Held::new(request_for, |_| true) })
    }

    /// Where the server is, without the login.
    pub(crate) fn place(&self) -> String {
        let info = self.client.get_connection_info();
        match info.redis_settings().db() {
            0 => info.addr().to_string(),
            db => format!("{}/{db}", info.addr()),
        }
    }

    /// Which of the server's databases is ours.
    pub(crate) fn database(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    /// How the connection is protected.
    pub(crate) fn encryption(&self) -> Encryption {
        encryption(self.tls.as_deref())
    }

    /// A connection of its own, to hear what is published.
    pub(crate) async fn subscriber(&self) -> RedisResult<PubSub> {
        match &self.tls {
            None => self.client.get_async_pubsub().await,
            Some(tls) => {
                let settings = self.client.get_connection_info().redis_settings();
                PubSub::new(settings, self.dial(tls).await?).await
            }
        }
    }

    async fn dial(&self, tls: &Arc<ClientTls>) -> RedisResult<NetStream> {
        let ConnectionAddr::Tcp(host, port) = self.client.get_connection_info().addr() else {
            return Err(RedisError::from(std::io::Error::other(
                "TLS is for hosts, not for sockets",
            )));
        };
        // An address of version 6 has colons of its own.
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Ok(NetStream::connect(&format!("{host}:{port}"), Some(tls)).await?)
    }

    /// Runs a script: all of it or nothing of it.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        effect: Effect,
        script: &ScriptInvocation<'_>,
    ) -> RegisterResult<T> {
        self.ask(effect, async |connection| script.invoke_async(connection).await).await
    }

    /// Sends one command.
    pub(crate) async fn send<T: FromRedisValue>(
        &self,
        effect: Effect,
        command: &Cmd,
    ) -> RegisterResult<T> {
        self.ask(effect, async |connection| command.query_async(connection).await).await
    }

    async fn ask<T>(
        &self,
        effect: Effect,
        request: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> RegisterResult<T> {
        let server = format!("Redis at {}", self.place());
        let asking = async |mut connection: MultiplexedConnection| {
            let answer = request(&mut connection).await;
            answer.map_err(|error| meaning(effect, &server, &error))
        };
        self.held.ask(effect, &server, async || self.connect().await, asking).await
    }

    pub(crate) async fn connect(&self) -> RegisterResult<MultiplexedConnection> {
        let refused = |error: RedisError| {
            // A server that expects TLS hangs up on whoever speaks in the clear.
            let is_hint = self.tls.is_none() && error.is_connection_dropped();
            let hint =
                if is_hint { " (if it requires TLS, write rediss:// or ?tls=true)" } else { "" };
            RegisterError::unavailable(format_args!("no Redis at {}: {error}{hint}", self.place()))
        };
        // Both limits are ours to keep: a request knows best how long it may take.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = match &self.tls {
            None => self.client.get_multiplexed_async_connection_with_config(&config).await,
            Some(tls) => self.secure(tls, config).await,
        }
        .map_err(refused)?;
        let role: redis::Value =
            redis::cmd("ROLE").query_async(&mut connection).await.map_err(refused)?;
        let role = match role {
            redis::Value::Array(parts) => {
                parts.into_iter().next().and_then(|role| String::from_redis_value(role).ok())
            }
            _ => None,
        };
        if role.as_deref() == Some("master") {
            return Ok(connection);
        }
        Err(RegisterError::unavailable(format_args!(
            "Redis at {} is a {}, which lags behind its master; give the URL of the master",
            self.place(),
            role.as_deref().unwrap_or("server of no known role")
        )))
    }

    async fn secure(
        &self,
        tls: &Arc<ClientTls>,
        config: AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let (stream, info) = (self.dial(tls).await?, self.client.get_connection_info());
        let made =
            MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await;
        let (connection, driver) = made?;
        // It ends with the last handle of its connection.
        tokio::spawn(driver);
        Ok(connection)
    }

    /// Drops whatever connection there is. Requests under way keep theirs until they are answered.
    pub(crate) async fn hang_up(&self) {
        self.held.hang_up().await;
    }
}

/// What an error says about the request.
fn meaning(effect: Effect, server: &str, error: &RedisError) -> RegisterError {
    let why = format!("{server}: {error}");
    if why.contains("WRONGTYPE") {
        return RegisterError::corrupt(why);
    }
    // The server itself refused. Every script reads all it needs before it writes, and a server that may
    // not write refuses the first write, so nothing happened.
    if error.code().is_some() {
        return RegisterError::unavailable(why);
    }
    effect.unanswered(why)
}
