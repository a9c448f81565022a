//! Cases about sessions that the server times, for registers that have them.

use std::time::Duration;

use super::bench::{Bench, PATIENCE, sessions};
use super::{Fault, ensure};
use crate::register::{Found, Key, RegisterError, ServerSessions, Swapped};

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
    ensure!(there.heartbeat(session, ttl).await?, "a living session was not heard");
    there.end(session).await?;
    for (name, sessions) in [("here", here), ("there", there)] {
        ensure!(!sessions.is_alive(session).await?, "alive after its end ({name})");
        ensure!(!sessions.heartbeat(session, ttl).await?, "heard after its end ({name})");
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
    ensure!(!sessions.heartbeat(session, LONG).await?, "a heartbeat began a session");
    ensure!(!sessions.is_alive(session).await?, "a heartbeat began a session");
    Ok(())
}

pub(super) async fn a_session_begins_with_its_entry_once(bench: Bench) -> Result<(), Fault> {
    let (register, other) = (bench.register(), bench.other());
    let (here, there) = (sessions(&*register)?, sessions(&*other)?);
    let (session, ttl) = (bench.unique(), here.granted(bounded(here, LONG).await?));
    let records = [bench.record(), bench.record()];
    let (one, two) = tokio::join!(
        here.begin_with_entry(session, ttl, records[0].clone()),
        there.begin_with_entry(session, ttl, records[1].clone()),
    );
    let (version, record) = match (one?, two?) {
        (Some(Swapped::Done(version)), Some(Swapped::Conflict)) => (version, &records[0]),
        (Some(Swapped::Conflict), Some(Swapped::Done(version))) => (version, &records[1]),
        both => return Err(Fault::Broken(format!("two began one session: {both:?}"))),
    };
    let found = bench.load(&Key::session(session)).await?;
    ensure!(found.version == version && found.value == record.value, "another entry: {found:?}");
    ensure!(there.is_alive(session).await?, "it has its entry and is not alive");
    here.end(session).await?;
    let late = there.begin_with_entry(session, ttl, bench.record()).await?;
    ensure!(!matches!(late, Some(Swapped::Done(_))), "begun again after its end: {late:?}");
    ensure!(!here.is_alive(session).await?, "alive after its end");
    ensure!(bench.load(&Key::session(session)).await? == found, "its entry was replaced");
    Ok(())
}

pub(super) async fn a_session_that_is_alive_without_an_entry_is_not_said_to_have_ended(
    bench: Bench,
) -> Result<(), Fault> {
    let register = bench.register();
    let sessions = sessions(&*register)?;
    let (session, ttl) = (bench.unique(), sessions.granted(bounded(sessions, LONG).await?));
    ensure!(sessions.begin(session, ttl).await?, "a fresh session did not begin");
    let begun = sessions.begin_with_entry(session, ttl, bench.record()).await;
    let is_honest =
        matches!(begun, Ok(Some(Swapped::Done(_))) | Err(RegisterError::Unavailable { .. }));
    ensure!(is_honest, "a session that is alive: {begun:?}");
    ensure!(sessions.is_alive(session).await?, "it has ended by that");
    sessions.end(session).await?;
    Ok(())
}

pub(super) async fn a_session_is_heard_by_what_its_entry_says(bench: Bench) -> Result<(), Fault> {
    let (register, other) = (bench.register(), bench.other());
    let (here, there) = (sessions(&*register)?, sessions(&*other)?);
    let (session, record) = (bench.unique(), bench.record());
    let short = here.granted(bounded(here, SHORT).await?);
    let long = here.granted(bounded(here, short * 2).await?);
    let unknown = there.heartbeat_with_entry(session, &|_| Some(long)).await?;
    ensure!(unknown == (None, false), "heard before it began: {unknown:?}");
    let begun = here.begin_with_entry(session, short, record.clone()).await?;
    let Some(Swapped::Done(version)) = begun else {
        return Err(Fault::Broken(format!("after a heartbeat that found nothing: {begun:?}")));
    };
    let entry = Some(Found { value: record.value.clone(), version });
    let silent = there.heartbeat_with_entry(session, &|_| None).await?;
    ensure!(silent == (entry.clone(), false), "heard for no ttl: {silent:?}");
    let is_own = |found: &Found| (found.value == record.value).then_some(long);
    let heard_at = bench.now();
    let heard = there.heartbeat_with_entry(session, &is_own).await?;
    ensure!(heard == (entry.clone(), true), "not heard: {heard:?}");
    // The ttl that the entry gave is the one that counts, if the server keeps a longer one at all.
    while bench.now().since(heard_at) < bench.at_least(long) * 3 / 4 {
        if !here.is_alive(session).await? {
            let lived = bench.now().since(heard_at);
            ensure!(lived >= bench.at_least(long), "{long:?} asked for, lived {lived:?}");
        }
        bench.sleep(Duration::from_millis(100)).await;
    }
    here.end(session).await?;
    let ended = there.heartbeat_with_entry(session, &is_own).await?;
    ensure!(ended == (entry, false), "heard after its end: {ended:?}");
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
    ensure!(!here.heartbeat(session, ttl).await?, "heard after its end");
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
    // Every heartbeat must count from itself: a ttl that counted from the beginning would be over.
    while bench.now().since(begun_at) < ttl * 2 {
        bench.sleep(ttl / 5).await;
        let sent_at = bench.now();
        if !there.heartbeat(session, ttl).await? {
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
