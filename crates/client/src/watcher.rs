//! One watch for everything a session is interested in.
//!
//! A watch is a hint: it makes a standby accept its office at once instead of at its next heartbeat,
//! and it tells applications who leads. One stream serves all groups; when the set changes it is
//! opened anew, which begins with the present state, so that nothing falls between.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use regent_api::limits::WATCH_GROUPS_MAX;
use regent_election::Group;
use regent_election::store::Scope;
use tokio::sync::{mpsc, watch};

use crate::backend::{Backend, ObservedLeaders};
use crate::limits::RECONNECT_MAX;
use crate::session::Command;

/// Watches whatever `watched` holds, for ever.
pub(crate) async fn watch_all(
    office: Arc<dyn Backend>,
    mut watched: watch::Receiver<BTreeMap<Group, usize>>,
    commands: mpsc::UnboundedSender<Command>,
) {
    loop {
        let groups: Vec<Group> = watched.borrow_and_update().keys().cloned().collect();
        let Some(scope) = scope_of(groups.clone()) else {
            if watched.changed().await.is_err() {
                return;
            }
            continue;
        };
        let (sights, mut seen) = ObservedLeaders::channel();
        let mut watching = pin!(async {
            office.watch(scope, sights).await;
            // It cannot be had. Servers are replaced, so it is asked for again, but not soon.
            tokio::time::sleep(RECONNECT_MAX).await;
        });
        loop {
            tokio::select! {
                changed = watched.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                Some(sight) = seen.recv() => {
                    // A prefix may cover more than was asked for.
                    let is_meant = groups.binary_search(&sight.group).is_ok();
                    if is_meant && commands.send(Command::Sighted(sight)).is_err() {
                        return;
                    }
                }
                () = &mut watching => break,
            }
        }
    }
}

/// What to watch to see all of these: each by name, or everything that opens like all of them.
fn scope_of(mut groups: Vec<Group>) -> Option<Scope> {
    match groups.len() {
        0 => None,
        1 => groups.pop().map(Scope::Group),
        2..=WATCH_GROUPS_MAX => Some(Scope::Groups(groups)),
        _ => {
            let first = groups.first()?.as_str();
            let last = groups.last()?.as_str();
            // In order of their names the first and the last differ the most.
            let same = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
            Some(Scope::Prefix(first.get(..same).unwrap_or_default().to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: impl IntoIterator<Item = String>) -> Vec<Group> {
        let mut groups: Vec<Group> =
            names.into_iter().map(|name| Group::new(&name).unwrap()).collect();
        groups.sort();
        groups
    }

    #[test]
    fn few_groups_are_watched_by_name_and_many_by_how_they_open() {
        assert_eq!(scope_of(Vec::new()), None);
        let one = groups(["billing".to_owned()]);
        assert_eq!(scope_of(one.clone()), Some(Scope::Group(one[0].clone())));
        let few = groups((0..WATCH_GROUPS_MAX).map(|n| format!("shard-{n}")));
        assert_eq!(scope_of(few.clone()), Some(Scope::Groups(few)));
        let many = groups((0..=WATCH_GROUPS_MAX).map(|n| format!("shard-{n}")));
        assert_eq!(scope_of(many), Some(Scope::Prefix("shard-".to_owned())));
    }
}
