//! Cases about sessions that the server times, for registers that have them.

use std::time::Duration;

use super::bench::{Bench, PATIENCE, sessions};
use super::{Fault, ensure};
use crate::register::ServerSessions;

/// The ttl of sessions that are to end.
const SHORT: Duration = Duration::from_millis(1000);
/// The ttl of sessions that are to outlive their case.
const LONG: Duration = Duration::from_secs(60);

/// The ttl nearest to this one that the server keeps.
async fn bounded(sessions: &dyn ServerSessions, ttl: Duration) -> Result<Duration, Fault> {
    let (min, max) = sessions.bounds().await?;
    Ok(ttl.max(min).min(max))
}

pub(super) async fn a_session_lives_while_it_is_heard_and_ends_for_good(
    bench: Bench,
) -> Result<(), Fault> {
    let (register, other) = (bench.register(), bench.other());
    let (here, there) = (sessions(&*register)?, sessions(&*other)?);
    let session = bench.unique();
    let asked = bounded(here, LONG).await?;
    let ttl = here.granted(asked);
    ensure!(ttl >= asked, "{asked:?} asked for, {ttl:?} granted");
    ensure!(here.begin(session, ttl).await?, "a fresh session did not begin");
    ensure!(here.begin(session, ttl).await?, "beginning again is a sign of life");
    ensure!(there.is_alive(session).await?, "a session that began is not alive");
    ensure!(there.beat(session, ttl).await?, "a living session was not heard");
    there.end(session).await?;
    for (name, sessions) in [("here", here), ("there", there)] {
        ensure!(!sessions.is_alive(session).await?, "alive after its end ({name})");
        ensure!(!sessions.beat(session, ttl).await?, "heard after its end ({name})");
        ensure!(!sessions.is_alive(session).await?, "revived by a late heartbeat ({name})");
    }
    here.end(session).await?;
    Ok(())
}

pub(super) async fn a_session_that_nobody_began_is_not_alive(bench: Bench) -> Result<(), Fault> {
    let register = bench.register();
    let sessions = sessions(&*register)?;
    let session = bench.unique();
    ensure!(!sessions.is_alive(session).await?, "alive without a beginning");
    ensure!(!sessions.beat(session, LONG).await?, "a heartbeat began a session");
    ensure!(!sessions.is_alive(session).await?, "a heartbeat began a session");
    Ok(())
}

pub(super) async fn an_unheard_session_ends_after_a_whole_ttl_and_not_a_moment_sooner(
    bench: Bench,
) -> Result<(), Fault> {
    let (register, other) = (bench.register(), bench.other());
    let (here, there) = (sessions(&*register)?, sessions(&*other)?);
    let session = bench.unique();
    let ttl = here.granted(bounded(here, SHORT).await?);
    let begun_at = bench.now();
    ensure!(here.begin(session, ttl).await?, "a fresh session did not begin");
    let given_up_at = begun_at + ttl * 3 + PATIENCE;
    while there.is_alive(session).await? {
        ensure!(bench.now() < given_up_at, "unheard, but alive");
        bench.sleep(Duration::from_millis(25)).await;
    }
    let lived = bench.now().since(begun_at);
    ensure!(lived >= bench.at_least(ttl), "a session of {ttl:?} lived only {lived:?}");
    ensure!(!here.beat(session, ttl).await?, "heard after its end");
    Ok(())
}

pub(super) async fn a_session_that_is_heard_lives_on(bench: Bench) -> Result<(), Fault> {
    let (register, other) = (bench.register(), bench.other());
    let (here, there) = (sessions(&*register)?, sessions(&*other)?);
    let session = bench.unique();
    let ttl = here.granted(bounded(here, SHORT).await?);
    let begun_at = bench.now();
    let mut heard_at = begun_at;
    ensure!(here.begin(session, ttl).await?, "a fresh session did not begin");
    // Every beat must count from itself: a ttl that counted from the beginning would be over.
    while bench.now().since(begun_at) < ttl * 2 {
        bench.sleep(ttl / 5).await;
        let sent_at = bench.now();
        if !there.beat(session, ttl).await? {
            let unheard = bench.now().since(heard_at);
            // A machine that was held up for a whole ttl has shown nothing.
            ensure!(unheard >= bench.at_least(ttl), "ended after {unheard:?} of {ttl:?}");
            return Ok(());
        }
        heard_at = sent_at;
    }
    here.end(session).await?;
    Ok(())
}

pub(super) async fn a_wait_for_the_end_of_a_session_ends_with_it(
    bench: Bench,
) -> Result<(), Fault> {
    let (register, other) = (bench.register(), bench.other());
    let (here, there) = (sessions(&*register)?, sessions(&*other)?);
    let session = bench.unique();
    let ttl = here.granted(bounded(here, LONG).await?);
    ensure!(here.begin(session, ttl).await?, "a fresh session did not begin");
    let end = async {
        bench.sleep(Duration::from_millis(50)).await;
        there.end(session).await
    };
    let look = || async {
        here.wait_for_end(session, PATIENCE).await?;
        Ok(!here.is_alive(session).await?)
    };
    let wait = bench.in_time("the end", bench.until("the end", look));
    let (seen, ended) = tokio::join!(wait, end);
    ended?;
    seen?
}
