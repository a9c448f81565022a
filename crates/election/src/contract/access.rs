//! Access: bindings, tokens, and whose a session is (S11).
//!
//! A store has one list of bindings for everybody, so a case adds its own to it, for principals that nobody else
//! names, and takes them off again.

use std::sync::Arc;

use super::bench::{Bench, LONG_MS, Player, refused};
use super::{Fault, ensure};
use crate::access::{
    Binding, Caller, GuardedStore, Principal, Role, SecretDigest, TokenId, TokenLabel,
};
use crate::name::{Group, Node};
use crate::outcome::{Cause, Refusal};
use crate::policy::Policy;
use crate::store::{
    Consistency, Heartbeat, NewToken, OfficeState, Open, Scope, Store, StoreError, StoreResult,
};

/// A principal that nobody else names, as text.
fn stranger(bench: &Bench) -> String {
    format!("node:contract-{}", bench.secret().reveal())
}

fn principal(text: &str) -> Principal {
    text.parse().expect("the cases name principals well")
}

fn binding(who: &str, role: Role, groups: &str) -> Binding {
    let plain = "the cases name patterns well";
    let groups = vec![groups.parse().expect(plain)];
    Binding {
        who: who.parse().expect(plain),
        role,
        groups,
        nodes: vec!["self".parse().expect(plain)],
    }
}

/// Changes the bindings of one principal and leaves the others alone, whoever changes them meanwhile.
async fn bind(bench: &Bench, who: &str, own: &[Binding]) -> Result<(), Fault> {
    loop {
        let table = bench.store().access().await?;
        let mut list = table.bindings().list().to_vec();
        list.retain(|binding| binding.who.as_str() != who);
        list.extend_from_slice(own);
        match bench.store().put_bindings(table.bindings().version(), list).await {
            Err(StoreError::Refused(Refusal::BindingsChanged { .. })) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

const fn long_ago() -> u64 {
    1
}

fn as_principal(bench: &Bench, who: &str) -> Arc<dyn Store> {
    let caller = Caller { who: principal(who), token: None, voucher: None, wall_ms: long_ago };
    Arc::new(GuardedStore::new(bench.store(), caller, Arc::default()))
}

/// A player whose store is guarded against it, under its own name.
fn player_as(bench: &Bench, who: &str) -> Player {
    let name = principal(who).own_name().unwrap_or_default().to_owned();
    Player { store: as_principal(bench, who), ..bench.newcomer(&name, LONG_MS) }
}

fn is_denied(no: &Refusal) -> bool {
    matches!(no, Refusal::Denied { .. })
}

fn is_anothers(no: &Refusal) -> bool {
    *no == Refusal::SessionOfAnother
}

pub(super) async fn bindings_are_replaced_only_from_the_version_that_was_read(
    bench: Bench,
) -> Result<(), Fault> {
    let who = stranger(&bench);
    let before = bench.store().access().await?.bindings().version();
    bind(&bench, &who, &[binding(&who, Role::Observer, "*")]).await?;
    let seen = bench.other().access().await?;
    ensure!(seen.bindings().version() > before, "{before} {:?}", seen.bindings().version());
    ensure!(
        seen.bindings().list().iter().any(|binding| binding.who.as_str() == who),
        "the binding is not there"
    );
    let late = bench.store().put_bindings(before, Vec::new()).await;
    refused(
        "an old version",
        late,
        |no| matches!(no, Refusal::BindingsChanged { expected, .. } if *expected == before),
    )?;
    bind(&bench, &who, &[]).await
}

pub(super) async fn a_token_is_kept_until_it_is_revoked_and_never_changes_hands(
    bench: Bench,
) -> Result<(), Fault> {
    let who = stranger(&bench);
    let token = TokenId(bench.secret().get() as u64);
    let new = |principal: &str, digest: u8| NewToken {
        token,
        digest: SecretDigest([digest; 32]),
        principal: self::principal(principal),
        expires_ms: None,
        label: TokenLabel::new("contract").expect("a plain word is a label"),
    };
    bench.store().create_token(new(&who, 7)).await?;
    bench.store().create_token(new(&who, 7)).await?;
    let other = bench.store().create_token(new(&who, 8)).await;
    refused("another secret", other, |no| matches!(no, Refusal::TokenExists { .. }))?;
    for kind in ["local:root", "replica:1"] {
        let taken = bench.store().create_token(new(kind, 7)).await;
        refused(kind, taken, |no| matches!(no, Refusal::Access(_)))?;
    }
    let kept = bench.other().access().await?;
    let record = kept.token(token).ok_or_else(|| Fault::Broken("no such token".into()))?;
    ensure!(record.principal == principal(&who) && !record.revoked, "{record:?}");
    for _ in 0..2 {
        bench.store().revoke_token(token).await?;
    }
    let kept = bench.other().access().await?;
    ensure!(kept.token(token).is_some_and(|record| record.revoked), "it is not revoked");
    let unknown = bench.store().revoke_token(TokenId(token.0 ^ 1)).await;
    refused("an unknown token", unknown, |no| matches!(no, Refusal::TokenUnknown { .. }))?;
    let caller =
        Caller { who: principal(&who), token: Some(token), voucher: None, wall_ms: long_ago };
    let guarded: Arc<dyn Store> =
        Arc::new(GuardedStore::new(bench.store(), caller, Arc::default()));
    let late = guarded.leader(&bench.group(), Consistency::Stale).await;
    refused("a revoked token", late, |no| matches!(no, Refusal::CredentialOver { .. }))
}

pub(super) async fn a_principal_acts_only_where_it_is_bound_and_under_its_own_name(
    bench: Bench,
) -> Result<(), Fault> {
    let (who, parent) = (stranger(&bench), bench.parent());
    let group = bench.group_under(&parent);
    let elsewhere = bench.group();
    let alice = player_as(&bench, &who);
    refused("nobody's binding", alice.store.campaign(alice.bid(&group)).await, is_denied)?;
    bind(&bench, &who, &[binding(&who, Role::Participant, &format!("{parent}/*"))]).await?;
    let false_name =
        Player { node: Node::new("mallory").expect("a name"), ..player_as(&bench, &who) };
    refused("a false name", false_name.store.campaign(false_name.bid(&group)).await, is_denied)?;
    let open = Open { node: false_name.node.clone(), ttl_ms: LONG_MS, session: false_name.session };
    refused("a false name", alice.store.open(open).await, is_denied)?;
    refused("another group", alice.store.campaign(alice.bid(&elsewhere)).await, is_denied)?;
    let term = alice.win(&group).await?;
    refused("an operator's verb", alice.store.delete(&group, None).await, is_denied)?;
    refused("another group", alice.store.leader(&elsewhere, Consistency::Stale).await, is_denied)?;
    let seen = bench.leader(&group).await?;
    ensure!(seen.term == term && seen.leader.as_ref() == Some(&alice.node), "{seen:?}");
    ensure!(bench.leader(&elsewhere).await?.term.get() == 0, "a denied campaign left a trace");
    alice.store.close(alice.session).await?;
    bind(&bench, &who, &[]).await
}

pub(super) async fn a_session_serves_only_the_principal_that_opened_it(
    bench: Bench,
) -> Result<(), Fault> {
    let (who, thief) = (stranger(&bench), stranger(&bench));
    let group = bench.group();
    let everywhere = |who: &str| Binding {
        nodes: vec!["*".parse().expect("a star is a pattern")],
        ..binding(who, Role::Participant, "*")
    };
    bind(&bench, &who, &[everywhere(&who)]).await?;
    bind(&bench, &thief, &[everywhere(&thief)]).await?;
    let alice = player_as(&bench, &who);
    let term = alice.win(&group).await?;
    let session = alice.session;
    // The id leaked; the thief even uses alice's name.
    let thief_store = as_principal(&bench, &thief);
    let bid = alice.bid(&group);
    refused("campaign", thief_store.campaign(bid).await, is_anothers)?;
    refused("renew", thief_store.renew(&group, session, term, None).await, is_anothers)?;
    refused("resign", thief_store.resign(&group, session, term, None).await, is_anothers)?;
    refused("withdraw", thief_store.withdraw(&group, session, None).await, is_anothers)?;
    refused("accept", thief_store.accept(&group, session, term, None).await, is_anothers)?;
    refused("close", thief_store.close(session).await, is_anothers)?;
    refused("show", thief_store.session(session).await, is_anothers)?;
    let to = alice.node.clone();
    refused("offer", thief_store.offer(&group, session, term, &to, None).await, is_anothers)?;
    refused("transfer", thief_store.transfer(&group, session, term, &to, None).await, is_anothers)?;
    let beat = Heartbeat { session, sequence: None, disowned: Vec::new(), beliefs: None };
    refused("heartbeat", thief_store.heartbeat(beat.clone()).await, is_anothers)?;
    let open = Open { node: alice.node.clone(), ttl_ms: LONG_MS, session };
    refused("open", thief_store.open(open).await, is_anothers)?;
    let office = bench.leader(&group).await?;
    ensure!(office.term == term && office.state == OfficeState::Leading, "{office:?}");
    alice.store.heartbeat(beat).await?;
    alice.store.renew(&group, session, term, None).await?;
    alice.store.close(session).await?;
    bind(&bench, &thief, &[]).await?;
    bind(&bench, &who, &[]).await
}

pub(super) async fn a_principal_that_may_no_longer_stand_is_told_to_stop_and_can_still_resign(
    bench: Bench,
) -> Result<(), Fault> {
    let (who, next) = (stranger(&bench), stranger(&bench));
    let group = bench.group();
    bind(&bench, &who, &[binding(&who, Role::Participant, "*")]).await?;
    bind(&bench, &next, &[binding(&next, Role::Participant, "*")]).await?;
    let (alice, bob) = (player_as(&bench, &who), player_as(&bench, &next));
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    // Observing is not enough to go on.
    bind(&bench, &who, &[binding(&who, Role::Observer, "*")]).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.state == OfficeState::Ending && office.term == term, "{office:?}");
    let renewal = alice.store.renew(&group, alice.session, term, None).await;
    refused("a renewal", renewal, is_denied)?;
    alice.store.resign(&group, alice.session, term, None).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.leader.as_ref() == Some(&bob.node), "{office:?}");
    let history = bench.store().history(&group).await?;
    ensure!(history.iter().any(|change| change.cause == Cause::Policy), "{history:?}");
    // A standby leaves the line with its right.
    bob.store.close(bob.session).await?;
    bind(&bench, &next, &[]).await?;
    bind(&bench, &who, &[]).await
}

pub(super) async fn lists_and_watches_show_only_groups_that_may_be_observed(
    bench: Bench,
) -> Result<(), Fault> {
    let (who, parent) = (stranger(&bench), bench.parent());
    let shown: Vec<Group> = (0..3).map(|n| group(&format!("{parent}/open/{n}"))).collect();
    let hidden: Vec<Group> = (0..3).map(|n| group(&format!("{parent}/shut/{n}"))).collect();
    bind(&bench, &who, &[binding(&who, Role::Observer, &format!("{parent}/open/*"))]).await?;
    let guarded = as_principal(&bench, &who);
    let mut watch = guarded.watch(Scope::Prefix(format!("{parent}/")), None).await?;
    let alice = bench.player("alice", LONG_MS).await?;
    for group in hidden.iter().chain(&shown) {
        alice.win(group).await?;
    }
    for group in &shown {
        let event = bench.change(&mut *watch).await?;
        ensure!(event.group == *group, "{event:?}");
    }
    let hit = guarded.watch(Scope::Groups(hidden.clone()), None).await;
    refused("a watch of hidden groups", hit.map(drop), is_denied)?;
    let mixed = [&hidden[..1], &shown[..1]].concat();
    let mut mixed = guarded.watch(Scope::Groups(mixed), None).await?;
    for group in [&hidden[0], &shown[0]] {
        let term = alice.store.leader(group, Consistency::Linearizable).await?.term;
        alice.store.resign(group, alice.session, term, None).await?;
    }
    let event = bench.change(&mut *mixed).await?;
    ensure!(event.group == shown[0], "{event:?}");
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = guarded.groups(&parent, after.as_ref(), 2).await?;
        seen.extend(page.groups.into_iter().map(|view| view.group));
        ensure!(page.next.as_ref().is_none_or(|next| shown.contains(next)), "{:?}", page.next);
        match page.next {
            None => break,
            next => after = next,
        }
    }
    ensure!(seen == shown, "{seen:?}");
    let table: StoreResult<_> = guarded.access().await;
    refused("the bindings", table, is_denied)?;
    // Without the right to watch, a watch ends with the next change at the latest.
    bind(&bench, &who, &[]).await?;
    alice.store.close(alice.session).await?;
    bench.ended(&mut *watch).await
}

pub(super) async fn what_needs_two_principals_is_done_when_another_one_asks_for_the_same(
    bench: Bench,
) -> Result<(), Fault> {
    let (who, next, group) = (stranger(&bench), stranger(&bench), bench.group());
    for name in [&who, &next] {
        bind(&bench, name, &[binding(name, Role::Operator, group.as_str())]).await?;
    }
    let (alice, bob) = (as_principal(&bench, &who), as_principal(&bench, &next));
    let policy = |four_eyes| Some(Policy { four_eyes, ..Policy::default() });
    let unnamed = bench.store().put_policy(&group, policy(true), None).await;
    let has_no_name = |no: &Refusal| matches!(no, Refusal::NobodyToApprove { .. });
    refused("a policy that nobody could change again", unnamed, has_no_name)?;
    alice.put_policy(&group, policy(true), None).await?;
    let is_noted = |who: &str| {
        let who = principal(who);
        move |no: &Refusal| matches!(no, Refusal::SecondApprovalNeeded { by, is_other: false, .. } if **by == who)
    };
    // The same policy again is no change, and takes nobody's consent.
    bob.put_policy(&group, policy(true), None).await?;
    for _ in 0..2 {
        let alone = alice.put_policy(&group, policy(false), None).await;
        refused("one principal, twice", alone.map(drop), is_noted(&who))?;
    }
    let other = bob.delete(&group, None).await;
    refused("another request", other.map(drop), is_noted(&next))?;
    ensure!(bench.other().group(&group).await?.policy.four_eyes, "one was enough");
    bob.put_policy(&group, policy(false), None).await?;
    ensure!(!bench.other().group(&group).await?.policy.four_eyes, "two were not enough");
    alice.delete(&group, None).await?;
    bind(&bench, &next, &[]).await?;
    bind(&bench, &who, &[]).await
}

fn group(name: &str) -> Group {
    Group::new(name).expect("the cases name groups well")
}
