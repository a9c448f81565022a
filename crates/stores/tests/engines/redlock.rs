//! `redlock://` on five real Redis servers.

use std::sync::Arc;
use std::time::Duration;

use regent_election::Group;
use regent_stores::redlock::RedlockRegister;
use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, takes_nothing_back, unique};
use regent_servers::redis::own;
use regent_servers::{Server, Skip, or_skip, report, starting};

/// Five servers that know nothing of each other.
pub(crate) fn five() -> Result<Server, Skip> {
    if let Some(server) = Server::given("REGENT_TEST_REDLOCK_URL") {
        return Ok(server);
    }
    own_five()
}

fn own_five() -> Result<Server, Skip> {
    let mut all =
        Server { url: "redlock://".into(), version: String::new(), processes: Vec::new() };
    for number in 0..5 {
        let one = starting(own)?;
        let comma = if number == 0 { "" } else { "," };
        all.url += &format!("{comma}{}", one.url.strip_prefix("redis://").unwrap());
        all.version = format!("5 x {}", one.version);
        all.processes.extend(one.processes);
    }
    Ok(all)
}

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(RedlockRegister::new(url, Duration::from_secs(20)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("redlock", five()) else { return };
    keeps_the_contract("redlock", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_minorities_take_nothing_back() {
    let Some(mut server) = or_skip("redlock", own_five()) else { return };
    let url = server.url.clone();
    let mut turn = 0;
    let strike = |server: &mut Server| {
        // Each time another two of five.
        let (one, other) = (turn % 5, (turn + 1) % 5);
        turn += 2;
        server.processes[one].kill();
        server.processes[other].kill();
        server.processes[one].start_again().expect("it starts again");
        server.processes[other].start_again().expect("it starts again");
    };
    takes_nothing_back("redlock", &mut server, || client(&url), strike).await;
}

/// Raises the number under the key by one.
async fn raise(register: &dyn Register, key: &Key) -> Result<u64, RegisterError> {
    let found = register.load(key).await?;
    let number = found
        .as_ref()
        .map_or(0, |found| std::str::from_utf8(&found.value).unwrap().parse::<u64>().unwrap());
    let record = Record::bare((number + 1).to_string().into_bytes());
    match register.swap(key, found.as_ref().map(|found| &found.version), record).await? {
        Swapped::Done(_) => Ok(number + 1),
        Swapped::Conflict => panic!("nobody else writes"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_down_works_and_three_down_refuses() {
    let Some(mut server) = or_skip("redlock", own_five()) else { return };
    let register = client(&server.url);
    let key = Key::group(&Group::new(&format!("five/{:032x}", unique())).unwrap());
    let mut last = raise(&*register, &key).await.unwrap();

    // Every pair may be down; what was written meanwhile is read when others are.
    for first in 0..5 {
        let second = (first + 1) % 5;
        for number in [first, second] {
            server.processes[number].kill();
        }
        for _ in 0..3 {
            let next = raise(&*register, &key).await.expect("three of five are a majority");
            assert_eq!(next, last + 1);
            last = next;
        }
        for number in [first, second] {
            server.processes[number].start_again().unwrap();
        }
    }

    for number in 0..3 {
        server.processes[number].kill();
    }
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    let refusal = register.swap(&key, None, Record::bare(Vec::new())).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    assert!(register.examine().await.is_err());

    for number in 0..3 {
        server.processes[number].start_again().unwrap();
    }
    assert_eq!(raise(&*register, &key).await.unwrap(), last + 1, "what was refused did not happen");
    report("redlock", &server.version, 1, 0, "two of five down works, three down refuses");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("redlock", five()) else { return };
    keeps_elections("redlock", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_redlock() {
    let Some(mut server) = or_skip("redlock", own_five()) else { return };
    let url = server.url.clone();
    let mut turn = 0;
    let strike = |server: &mut Server| {
        turn += 1;
        for number in [turn % 5, (turn + 2) % 5] {
            server.processes[number].kill();
            server.processes[number].start_again().expect("it starts again");
        }
    };
    elects_through_kills("redlock", &mut server, || client(&url), strike).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_redlock_may_be_cut() {
    let Some(mut server) = or_skip("redlock", own_five()) else { return };
    bears_cuts("redlock", &mut server, client).await;
}
