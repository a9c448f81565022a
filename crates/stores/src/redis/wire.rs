//! One connection to one Redis server, made again when it is lost.
//!
//! Every request shares it. A request is never repeated here: whether a lost one may be sent again is
//! for the caller to say. The crate's own connection manager was not taken, because it cannot refuse a
//! server by its role, and a replica would answer reads with what was.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, ScriptInvocation};

use crate::engine::held::Held;
use crate::engine::{Effect, UrlError};
use crate::register::{RegisterError, RegisterResult};

/// A server and the connection to it.
pub(crate) struct Wire {
    client: Client,
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
        if url.starts_with("rediss:") {
            return Err(UrlError::new(
                "this build speaks no TLS to Redis; use redis:// through a tunnel, or another store",
            ));
        }
        let client = Client::open(url).map_err(|error| {
            UrlError::new(format_args!(
                "not a URL of Redis ({}); write it like redis://user:password@host:6379/0",
                error.detail().unwrap_or(error.category())
            ))
        })?;
        Ok(Self { client, held: Held::new(request_for, |_| true) })
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

    /// The client, for connections of another kind.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
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

    async fn connect(&self) -> RegisterResult<MultiplexedConnection> {
        let refused = |error: RedisError| {
            RegisterError::unavailable(format_args!("no Redis at {}: {error}", self.place()))
        };
        // Both limits are ours to keep: a request knows best how long it may take.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
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
