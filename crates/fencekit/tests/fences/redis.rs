//! Redis.

use std::sync::Arc;

use regent::fencing::WriteError;
use regent::fencing::redis::{Command, RedisFence};
use regent_fencekit::redis::RedisTarget;

use crate::{leader, unique};
use regent_servers::or_skip;
use regent_servers::redis::redis as server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_stale_leaders_out() {
    let Some(server) = or_skip("fence redis", server()) else { return };
    let target = Arc::new(RedisTarget::connect(&server.url, 4).await.unwrap());
    crate::keeps_stale_leaders_out("redis", &server.version, target).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_performs_whatever_it_is_given_or_nothing() {
    let Some(server) = or_skip("fence redis", server()) else { return };
    let client = redis::Client::open(server.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let name = unique("orders");
    let (fence, key) = (RedisFence::of(&name).unwrap(), |it: &str| format!("{{{name}}}:{it}"));
    let commands = [
        Command::new("SET").key(key("a")).arg("1"),
        Command::new("HSET").key(key("h")).arg("f").arg("v"),
        Command::new("RPUSH").key(key("l")).arg("x").arg("y"),
        Command::new("DEL").key(key("a")),
    ];
    let answers = fence.write(&mut connection, &leader(101), &commands).await.unwrap();
    assert_eq!(answers.len(), 4);
    let length: i64 = redis::cmd("LLEN").arg(key("l")).query_async(&mut connection).await.unwrap();
    assert_eq!(length, 2);

    let stale = leader(100);
    let refused = fence.write(&mut connection, &stale, &commands).await.unwrap_err();
    assert_eq!(refused.to_string(), "STALE_TERM: term 100 < current 101");
    assert!(stale.is_refused());
    let length: i64 = redis::cmd("LLEN").arg(key("l")).query_async(&mut connection).await.unwrap();
    assert_eq!(length, 2, "nothing of it was done");

    // The highest terms there are differ by one.
    let (high, higher) = ((1_u64 << 53) - 2, (1_u64 << 53) - 1);
    fence.write(&mut connection, &leader(higher), &[]).await.unwrap();
    let refused = fence.write(&mut connection, &leader(high), &[]).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("STALE_TERM: term {high} < current {higher}"));

    // A command that the server refuses stops the rest, and nobody says that nothing happened.
    let wrong =
        [Command::new("SET").key(key("b")).arg("1"), Command::new("LPUSH").key(key("b")).arg("2")];
    let error = fence.write(&mut connection, &leader(higher), &wrong).await.unwrap_err();
    assert!(matches!(error, WriteError::Uncertain(_)), "{error}");

    // A mark that is none admits nobody.
    let _: () =
        redis::cmd("SET").arg(fence.key()).arg("x").query_async(&mut connection).await.unwrap();
    let error = fence.write(&mut connection, &leader(higher), &[]).await.unwrap_err();
    assert!(matches!(error, WriteError::Failed(_)), "{error}");
    assert!(error.to_string().contains("holds no term"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_of_a_write_reaches_the_mark() {
    let Some(server) = or_skip("fence redis", server()) else { return };
    let client = redis::Client::open(server.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let name = unique("orders");
    let fence = RedisFence::of(&name).unwrap();
    fence.write(&mut connection, &leader(101), &[]).await.unwrap();
    for command in [
        Command::new("DEL").key(fence.key()),
        Command::new("DEL").key(format!("{{{name}}}:a")).arg(fence.key()),
        Command::new("SET").arg(fence.key()).arg("1"),
    ] {
        let permit = leader(101);
        let error = fence.write(&mut connection, &permit, std::slice::from_ref(&command)).await;
        let error = error.expect_err("a command on the mark was sent");
        assert!(matches!(error, WriteError::Failed(_)), "{command:?}: {error}");
        assert!(error.to_string().contains("holds the mark"), "{command:?}: {error}");
        assert!(!permit.is_refused());
    }
    let stale = fence.write(&mut connection, &leader(100), &[]).await.unwrap_err();
    assert_eq!(stale.to_string(), "STALE_TERM: term 100 < current 101");
}
