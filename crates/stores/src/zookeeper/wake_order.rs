//! `?mode=session`: the line of candidates, as nodes that people can see and that wake one process each.
//!
//! Whoever leads or stands in a group has a node below the group's own, `SESSION-0000000007`: ephemeral, on the session
//! of ZooKeeper's that the candidate's life hangs on, and sequential, in the order in which they came. Each process
//! watches the nodes of its own candidates and that of the one before the first of them, and nothing else. A
//! candidate that ends takes its node along, which wakes the one behind it; one that leaves is taken out in the very
//! transaction that writes the group's entry; and one that is called (it was promoted, or another came before it)
//! has its node written there.
//!
//! Nothing is decided from these nodes. The order in line is that of the entry, which knows priorities and offers
//! and does not follow the numbers; a node too many wakes somebody for nothing, and one too few costs a wait until
//! the next look. The term is in the entry, a node that stays, and rises in the same transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Node;

use super::connection::{Link, Refused, WatchRequest};
use super::messages::{
    self, Ask, BAD_VERSION, NO_NODE, NODE_EXISTS, SESSION_EXPIRED, SESSION_MOVED, Stay, Step,
    TransactionOutcome,
};
use super::sessions::transact;
use super::wire::Attached;
use super::{ZookeeperRegister, entry, guard_path, parts, version};
use crate::engine::{Effect, fresh};
use crate::register::{
    Key, QueuePosition, Record, Register, RegisterResult, Swapped, Version, WakeOrder, WakeOrders,
};

/// How often a line is looked at again that changed meanwhile, before its group is written without it.
const ATTEMPTS_MAX: usize = 4;
/// Nodes that one write takes out or calls; more are left to the next one, and to the ends of their sessions.
const NODES_AT_ONCE_MAX: usize = 512;

/// The nodes below a group, by the session that they show, in the order of their numbers.
type Shown = BTreeMap<u128, Vec<String>>;

/// The session whose candidacy a node shows, and its number; none for a node of another kind.
fn candidacy(name: &str) -> Option<(u128, i64)> {
    let (session, number) = name.split_at_checked(32)?;
    let number = number.strip_prefix('-')?.parse().ok()?;
    Some((u128::from_str_radix(session, 16).ok()?, number))
}

/// What a group's children show.
fn shown(group: &str, names: &[String]) -> Shown {
    let mut found: BTreeMap<u128, Vec<(i64, String)>> = BTreeMap::new();
    for name in names {
        if let Some((session, number)) = candidacy(name) {
            found.entry(session).or_default().push((number, format!("{group}/{name}")));
        }
    }
    let in_order = |mut nodes: Vec<(i64, String)>| {
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, path)| path).collect()
    };
    found.into_iter().map(|(session, nodes)| (session, in_order(nodes))).collect()
}

/// What a write does to the nodes of a line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Moves {
    /// Nodes that are taken out.
    out: Vec<String>,
    /// Nodes that are written, to wake, with what they say.
    called: Vec<(String, Node)>,
    /// Candidates that are not shown.
    missing: Vec<(u128, Node)>,
}

fn moves(shown: &Shown, line: &WakeOrder) -> Moves {
    let stands = |session: &u128| line.candidates.iter().any(|(one, _)| one == session);
    let gone = shown.iter().filter(|(session, _)| !stands(session));
    let mut moves = Moves {
        out: gone.flat_map(|(_, nodes)| nodes.clone()).take(NODES_AT_ONCE_MAX).collect(),
        ..Moves::default()
    };
    for (session, node) in &line.candidates {
        match shown.get(session).and_then(|nodes| nodes.last()) {
            None => moves.missing.push((*session, node.clone())),
            Some(path) if line.called.contains(session) => {
                moves.called.push((path.clone(), node.clone()));
            }
            Some(_) => {}
        }
    }
    moves.called.truncate(NODES_AT_ONCE_MAX);
    moves
}

impl ZookeeperRegister {
    /// The candidates that are shown below a group: as the nearest server knows them, or as a majority does.
    async fn line_of(&self, group: &str, is_fresh: bool) -> RegisterResult<Shown> {
        let listing = async |link: Link| {
            let fresh = if is_fresh { Some(self.freshen(&link).await?) } else { None };
            let asked = link.ask(Ask::Children { path: group }).await?;
            if let Some(fresh) = fresh {
                fresh.answer().await?;
            }
            match asked.answer().await? {
                (0, body) => Ok(messages::children(&body)?),
                (NO_NODE, _) => Ok(Vec::new()),
                (code, _) => Err(Refused::Code(code)),
            }
        };
        Ok(shown(group, &self.wire.ask(Effect::Reads, listing).await?))
    }

    /// One try to write a group with its line. None if the line changed meanwhile, and nothing happened.
    async fn swap_once(
        &self,
        path: &str,
        over: Option<(u64, i32)>,
        record: &Record,
        moves: &Moves,
    ) -> RegisterResult<Option<Swapped>> {
        let rights = self.wire.rights();
        let guard = over.map_or_else(fresh, |(guard, _)| guard);
        let (data, child) = (entry(guard, record), guard_path(path, guard));
        let (mut steps, next) = match over {
            None => {
                let stay = Stay::ForGood;
                let create = Step::Create { path, data: &data, rights, stay };
                (vec![create, Step::Create { path: &child, data: &[], rights, stay }], 0)
            }
            Some((_, number)) => {
                let (writes, next) = messages::write(path, &data, number);
                let mut steps = vec![Step::Check { path: &child }];
                steps.extend(writes);
                (steps, next)
            }
        };
        let of_the_entry = steps.len();
        steps.extend(moves.out.iter().map(|path| Step::Delete { path }));
        let call = |(path, node): &(String, Node)| (path.clone(), node.to_string().into_bytes());
        let called: Vec<_> = moves.called.iter().map(call).collect();
        steps.extend(called.iter().map(|(path, data)| Step::SetAny { path, data }));
        let judged = |outcome| match outcome {
            Ok(TransactionOutcome::Done) => Ok(Some(Swapped::Done(version(guard, next)))),
            Ok(TransactionOutcome::Failed { step, code }) if step < of_the_entry => {
                match (over, code) {
                    (None, NODE_EXISTS) | (Some(_), BAD_VERSION | NO_NODE) => {
                        Ok(Some(Swapped::Conflict))
                    }
                    (_, SESSION_EXPIRED | SESSION_MOVED) => Ok(None),
                    (_, code) => Err(self.meaning(&Refused::Code(code))),
                }
            }
            Ok(TransactionOutcome::Failed {
                code: NO_NODE | SESSION_EXPIRED | SESSION_MOVED,
                ..
            }) => Ok(None),
            Ok(TransactionOutcome::Failed { code, .. }) => Err(self.meaning(&Refused::Code(code))),
            Err(refused) => Err(self.meaning(&refused)),
        };
        // One who joins is shown in the transaction that lets it join, which is then made through its session.
        for (session, node) in &moves.missing {
            let Some(slot) = self.slot_if_heard(*session) else { continue };
            let slot = slot.lock().await;
            let held = slot.as_ref().filter(|held| held.is_within(regent_clock::now()));
            let Some(held) = held else { continue };
            let _seat = self.seat().await;
            let Some(Attached { link, .. }) = self.attach(held).await? else { continue };
            let life = self.life_path(*session);
            let (own, label) = (own_path(path, *session), node.to_string());
            let stay = Stay::WithSessionInOrder;
            steps.push(Step::Check { path: &life });
            steps.push(Step::Create { path: &own, data: label.as_bytes(), rights, stay });
            return judged(self.in_time_on(&link, &steps).await?);
        }
        let written = self.wire.ask(Effect::Writes, async |link: Link| {
            // Codes are judged with the step that they are of.
            transact(&link, &steps).await
        });
        judged(Ok(written.await?))
    }

    /// Shows a candidate of this process, unless the group's entry has another version.
    async fn show(
        &self,
        path: &str,
        seen: Option<(u64, i32)>,
        (session, node): &(u128, Node),
    ) -> RegisterResult<()> {
        let (Some(slot), Some((_, number))) = (self.slot_if_heard(*session), seen) else {
            return Ok(());
        };
        let slot = slot.lock().await;
        let held = slot.as_ref().filter(|held| held.is_within(regent_clock::now()));
        let Some(held) = held else { return Ok(()) };
        let _seat = self.seat().await;
        let Some(Attached { link, .. }) = self.attach(held).await? else { return Ok(()) };
        let (own, label, life) =
            (own_path(path, *session), node.to_string(), self.life_path(*session));
        let (rights, stay) = (self.wire.rights(), Stay::WithSessionInOrder);
        let steps = [
            Step::CheckVersion { path, version: number },
            Step::Check { path: &life },
            Step::Create { path: &own, data: label.as_bytes(), rights, stay },
        ];
        match self.in_time_on(&link, &steps).await? {
            // Whatever became of it, whoever waits looks once more.
            Ok(_) => Ok(()),
            Err(refused) => Err(self.meaning(&refused)),
        }
    }
}

/// What the nodes of a candidate open with; the server adds the number.
fn own_path(group: &str, session: u128) -> String {
    format!("{group}/{session:032x}-")
}

#[async_trait]
impl WakeOrders for ZookeeperRegister {
    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
        line: &WakeOrder,
    ) -> RegisterResult<Swapped> {
        self.agree().await?;
        let path = self.path(key);
        let over = match expected.map(parts) {
            None => None,
            Some(Some(over)) => Some(over),
            // Never given out here, so the entry cannot have it.
            Some(None) => return Ok(Swapped::Conflict),
        };
        for tried in 0..ATTEMPTS_MAX {
            let moves = moves(&self.line_of(&path, tried > 0).await?, line);
            if let Some(swapped) = self.swap_once(&path, over, &record, &moves).await? {
                return Ok(swapped);
            }
        }
        // The entry is what counts; whoever waits looks by itself after a while.
        Register::swap(self, key, expected, record).await
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        place: &QueuePosition,
        patience: Duration,
    ) -> RegisterResult<()> {
        // The ear first, then the wish, then the look: what changes in between is heard.
        let mut subscription = self.wire.listen();
        let path = self.path(key);
        let is_missing = |shown: &Shown, (session, _): &(u128, Node)| !shown.contains_key(session);
        let mut shown = self.line_of(&path, false).await?;
        if place.own.iter().any(|own| is_missing(&shown, own)) {
            shown = self.line_of(&path, true).await?;
        }
        for own in place.own.iter().filter(|own| is_missing(&shown, own)) {
            self.show(&path, seen.and_then(parts), own).await?;
        }
        if place.own.iter().any(|own| is_missing(&shown, own)) {
            shown = self.line_of(&path, true).await?;
        }
        let last = |session: &u128| shown.get(session).and_then(|nodes| nodes.last()).cloned();
        let own = place.own.iter().filter_map(|(session, _)| last(session));
        // Calls are for whoever they are for; of the one before, only its end is of interest. One that is not
        // shown is watched by what it lives by.
        let before = place.before.map(|one| last(&one).unwrap_or_else(|| self.life_path(one)));
        let wishes: Vec<WatchRequest> =
            own.map(WatchRequest::Change).chain(before.map(WatchRequest::End)).collect();
        let are_there = self.wish(&wishes).await?;
        if are_there && self.glance(key).await?.as_ref() == seen {
            let paths: Vec<&str> = wishes.iter().map(WatchRequest::path).collect();
            let _ = tokio::time::timeout(patience, subscription.changed_any(&paths)).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        Node::new(name).unwrap()
    }

    fn names() -> Vec<String> {
        let one = |session: u128, number: i64| format!("{session:032x}-{number:010}");
        vec![one(2, 7), "0123456789abcdef".into(), one(1, 3), one(2, 4), one(3, 9)]
    }

    #[test]
    fn what_is_no_candidacy_is_left_alone() {
        let shown = shown("/g", &names());
        assert_eq!(shown.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        // The later of two is the one that stays.
        assert!(shown[&2].last().unwrap().ends_with("-0000000007"));
        for name in
            ["", "x", "00000000000000000000000000000001", "é0000000000000000000000000000000"]
        {
            assert_eq!(candidacy(name), None, "{name}");
        }
    }

    #[test]
    fn a_write_takes_out_who_left_calls_who_must_look_and_shows_who_came() {
        let line = WakeOrder {
            candidates: vec![(2, node("b")), (3, node("c")), (4, node("d"))],
            called: vec![3, 4],
        };
        let moves = moves(&shown("/g", &names()), &line);
        assert_eq!(moves.out, [format!("/g/{:032x}-0000000003", 1)]);
        assert_eq!(moves.called, [(format!("/g/{:032x}-0000000009", 3), node("c"))]);
        assert_eq!(moves.missing, [(4, node("d"))]);
    }
}
