//! Who calls: from a request's head to a principal, and from there to a store that is guarded against it.
//!
//! A bearer token that is shown always counts, wherever it is shown: a program on the replica's own machine that was
//! given one means to act as that principal, and not with all the rights of its user. Without one, a caller on the
//! Unix socket is known by its user id, for which the kernel vouches, and one over TLS by its client certificate.
//! Everybody else is unknown. Whoever shows a certificate and a token must mean the same principal by both, and both
//! must be good: a stolen token is then worthless on another node's connection.
//!
//! Who calls is found out once and remembered on the connection, with the credential that was shown, until it shows
//! another one or the table of tokens changes ([`Lasts`]). Whether the credential is still good, and what the caller may do,
//! is judged with every request.
//!
//! Nothing of a token gets into a message or a log.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use regent_api::{Code, Gate, Problem, Route};
use regent_election::access::{
    BearerToken, Caller, GuardedStore, Principal, Right, SecretDigest, TOKEN_PREFIX,
};
use regent_election::state::Question;
use regent_election::store::{Consistency, StoreError};
use regent_election::{Account, Group, Refusal};
use sha2::{Digest, Sha256};

use crate::admission::Class;
use crate::app::{App, dice};
use crate::audit;
use crate::config::Auth;
use crate::known_peer::Lasts;
use crate::quiet::{self, Quiet};
use crate::router::Peer;

/// Lines that callers without a right can cause.
static DENIED: Quiet = quiet::lines();

/// Finds out who calls, and refuses whoever may not. None if callers are not authenticated here, or need not be for
/// this route.
///
/// `group` is the one that the request names, if its head says so; the guarded store judges again by what the body
/// says.
pub(crate) async fn admit(
    app: &App,
    peer: &Peer,
    headers: &HeaderMap,
    route: &Route,
    group: Option<&Group>,
) -> Result<Option<GuardedStore>, Problem> {
    let (Auth::Required, Gate::Needs(right)) = (app.config.auth, route.gate) else {
        return Ok(None);
    };
    let shown = authorization(headers);
    let known = shown.ok().and_then(|shown| peer.activity.known_peer().caller_known(shown));
    if let Some(guarded) = &known {
        peer.trail.identified(&guarded.caller().who);
        let is_allowed = match route.gives_up {
            true => guarded.is_good(),
            false => guarded.is_allowed(right, route.extent(group)),
        };
        if is_allowed {
            return Ok(known);
        }
    }
    // Boxed, because it is seldom and large: the future of every request would have room for it.
    Box::pin(admit_judged(app, peer, shown, known, route, right, group)).await.map(Some)
}

/// The same for a caller that is not known yet on this connection, or not known to be allowed this.
async fn admit_judged(
    app: &App,
    peer: &Peer,
    shown: Result<Option<&[u8]>, TooMany>,
    known: Option<GuardedStore>,
    route: &Route,
    right: Right,
    group: Option<&Group>,
) -> Result<GuardedStore, Problem> {
    let guarded = match known {
        Some(guarded) => guarded,
        None => match identify(app, peer, shown).await {
            Ok((caller, lasts)) => {
                peer.trail.identified(&caller.who);
                let store = audit::store(app, &peer.trail);
                let guarded = GuardedStore::new(store, caller, Arc::clone(&app.known));
                peer.activity.known_peer().knows_caller(shown.ok().flatten(), lasts, &guarded);
                guarded
            }
            Err(problem) => {
                if problem.code == Code::Unauthenticated {
                    app.failures.count(regent_clock::now(), peer.activity.address(), dice)?;
                }
                return Err(problem);
            }
        },
    };
    // What a caller holds it may give up: whether it holds it, the store knows.
    if route.gives_up {
        return Ok(guarded.for_giving_up().await?);
    }
    let extent = route.extent(group);
    if let Err(error) = guarded.check_applied(right, extent).await {
        // A credential that is over stays so. Whoever has it must not use up what its principal may ask.
        if let StoreError::Refused(Refusal::CredentialOver { .. }) = error {
            return Err(denied(&guarded, route, error.into()));
        }
        // Before others are denied the store is asked, which costs more than the denial.
        app.count(Class::Read, Some(&guarded), &peer.activity)?;
        let checked = guarded.check(right, extent).await;
        checked.map_err(|error| denied(&guarded, route, error.into()))?;
    }
    Ok(guarded)
}

/// More headers `authorization` than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooMany;

/// The header `authorization`, if there is one.
fn authorization(headers: &HeaderMap) -> Result<Option<&[u8]>, TooMany> {
    let mut shown = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let (first, second) = (shown.next(), shown.next());
    second.map_or(Ok(first), |_| Err(TooMany))
}

fn denied(guarded: &GuardedStore, route: &Route, problem: Problem) -> Problem {
    let who = &guarded.caller().who;
    if let Some(untold) = DENIED.admit() {
        tracing::info!(%who, route = route.id, code = problem.code.word(), untold, "denied");
    }
    problem
}

/// Who calls, and for how long that is known by what was shown.
async fn identify(
    app: &App,
    peer: &Peer,
    shown: Result<Option<&[u8]>, TooMany>,
) -> Result<(Caller, Lasts), Problem> {
    let Ok(shown) = shown else {
        return Err(unknown("there is more than one Authorization header"));
    };
    if let Some(header) = shown {
        let text = std::str::from_utf8(header).ok().filter(|text| text.is_ascii());
        let Some((scheme, token)) = text.and_then(|text| text.split_once(' ')) else {
            return Err(unknown("the Authorization header is not `Bearer TOKEN`"));
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unknown("the Authorization header is not `Bearer TOKEN`"));
        }
        let (caller, lasts) = bearer(app, peer, token.trim()).await?;
        if let Some(voucher) = &peer.client
            && *voucher.who() != caller.who
        {
            let (named, shown) = (voucher.who(), &caller.who);
            peer.trail.identified(named);
            return Err(unknown(&format!(
                "the client certificate is of {named} and the token is of {shown}; show one of them, or two of the same principal"
            )));
        }
        let voucher = caller.voucher.clone().or_else(|| peer.client.clone());
        return Ok((Caller { voucher, ..caller }, lasts));
    }
    if let Some(voucher) = &peer.client {
        let (who, voucher) = (voucher.who().clone(), Some(Arc::clone(voucher)));
        return Ok((Caller { who, token: None, voucher, wall_ms }, Lasts::Connection));
    }
    match peer.user_id {
        Some(id) if id == 0 || id == rustix::process::geteuid().as_raw() => {
            let name = if id == 0 { "root".to_owned() } else { id.to_string() };
            let account = Account::new(&name).map_err(Problem::from)?;
            let who = Principal::Local(account);
            Ok((Caller { who, token: None, voucher: None, wall_ms }, Lasts::Connection))
        }
        Some(_) | None => Err(unknown(
            "no credential was shown; send `Authorization: Bearer TOKEN` (`regent auth token create` makes one), or show a client certificate",
        )),
    }
}

/// The caller that a token names, if the store knows the token and its secret is right. Whether it is still good is
/// judged later: with one that is not, its bearer may still give up what it holds.
///
/// A token that is not of this cluster's making may be one of an issuer that is believed.
async fn bearer(app: &App, peer: &Peer, text: &str) -> Result<(Caller, Lasts), Problem> {
    if let Some(issuers) = app.issuers.as_ref().filter(|_| !text.starts_with(TOKEN_PREFIX)) {
        let (now, address) = (regent_clock::now(), peer.activity.address());
        // One that is not judged is answered as one more failure.
        let is_judged = || issuers.is_good(text) || peer.activity.known_peer().takes_judgement();
        if app.failures.is_used_up(now, address) && !is_judged() {
            return Err(unknown("the token is not judged"));
        }
        let identified = issuers.identify(text, peer.client.clone()).await;
        return match identified {
            Ok(caller) => {
                if caller.voucher.as_ref().is_none_or(|voucher| voucher.flaw().is_none()) {
                    peer.activity.known_peer().showed_good_token();
                }
                Ok((caller, Lasts::Request))
            }
            Err(why) => Err(unknown(&why)),
        };
    }
    let known = peer.activity.known_peer().token_known(text);
    let (id, digest) = match known {
        Some(known) => known,
        None => {
            let token: BearerToken = text.parse().map_err(|why| unknown(&format!("{why}")))?;
            (token.id, digest(&token))
        }
    };
    let view = app.store.ask(Question::access(None), Consistency::Stale).await?;
    let (table, lasts) = match &view.live {
        Some(live) => {
            let (version, table) = live.look();
            (table, Lasts::Table { live: live.clone(), version })
        }
        None => (view.table, Lasts::Request),
    };
    match table.token(id) {
        Some(record) if record.digest.is(&digest) => {
            if known.is_none() {
                peer.activity.known_peer().knows_token(text, id, digest);
            }
            let who = record.principal.clone();
            Ok((Caller { who, token: Some(id), voucher: None, wall_ms }, lasts))
        }
        None if view.may_be_old => Err(Problem::new(
            Code::StoreUnavailable,
            "this server has not heard of a majority since it started, and does not know the token",
        )
        .retry_after(1000)),
        Some(_) | None => Err(unknown(
            "this cluster does not know the token; if it was made this very moment, try again",
        )),
    }
}

/// What is stored of a token's secret.
pub(crate) fn digest(token: &BearerToken) -> SecretDigest {
    SecretDigest(Sha256::digest(token.secret()).into())
}

/// The wall clock, for the expiry of tokens. No election depends on it.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn unknown(why: &str) -> Problem {
    Problem::new(Code::Unauthenticated, why)
}
