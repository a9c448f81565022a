//! Groups that have moved to another store: this process follows them.
//!
//! Whoever campaigns where a group no longer lives is told where it went. There a second session is opened,
//! with the same node and the same timers, and the campaign goes on; it is remembered, so that the next one
//! begins where the group is, though the old store be gone. A leader that is told to stop asks where its
//! group goes while its work still stops, so that the way is open when it is needed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_election::participant::Why;
use regent_election::store::Consistency;
use regent_election::{Group, Home};

use tokio::runtime::Handle;

use crate::error::ConnectError;
use crate::leadership::Leadership;
use crate::regent::Regent;
use crate::session::Command;

/// Moves in a row that one campaign follows before it takes a breath: more of them are a circle.
pub(crate) const HOPS_MAX: usize = 4;

/// Where groups went that were to be found here.
#[derive(Default)]
pub(crate) struct Followed {
    inside: Mutex<Inside>,
    /// One at a time connects, so that all groups that went to one place share a session there.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Inside {
    homes: BTreeMap<String, Regent>,
    groups: BTreeMap<Group, String>,
}

impl Followed {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Every change is one insertion, so a panic elsewhere leaves nothing half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions that were opened to follow.
    pub(crate) fn homes(&self) -> Vec<Regent> {
        self.inside().homes.values().cloned().collect()
    }

    fn of(&self, group: &Group) -> Option<Regent> {
        let inside = self.inside();
        inside.homes.get(inside.groups.get(group)?).cloned()
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.inside().groups).finish()
    }
}

impl Regent {
    /// The session in the store where `group` was last known to live.
    pub(crate) fn home_of(&self, group: &Group) -> Self {
        let mut home = self.clone();
        while let Some(next) = home.followed().of(group) {
            home = next;
        }
        home
    }

    /// Opens a session where `group` went, unless there is one, and remembers it.
    pub(crate) async fn follow(&self, group: &Group, to: &Home) -> Result<(), ConnectError> {
        let followed = self.followed();
        let one_at_a_time = followed.connecting.lock().await;
        let url = to.as_str();
        let known = followed.inside().homes.get(url).cloned();
        let home = match known {
            Some(home) => home,
            None => self.made().at_home(url, self.node())?.connect().await?,
        };
        // Who asks for its leader is answered from there.
        home.session().command(Command::Observe(group.clone()));
        let mut inside = followed.inside();
        inside.homes.insert(url.to_owned(), home);
        if inside.groups.insert(group.clone(), url.to_owned()).as_deref() != Some(url) {
            tracing::info!(%group, %to, "the group has moved; following");
        }
        drop(one_at_a_time);
        Ok(())
    }

    /// Finds out, once this leadership is told to stop, whether its group moves, and gets ready.
    pub(crate) fn look_ahead(&self, leadership: &Leadership) {
        // A handle would keep the term; what is watched does not.
        let (regent, group) = (self.clone(), leadership.group().clone());
        let mut standing = leadership.tenure().watch();
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let told = standing.wait_for(|standing| standing.is_to_stop()).await;
            if told.is_ok_and(|standing| standing.why != Why::Ending) {
                return;
            }
            let asked = regent.session().reads.leader(&group, Consistency::Linearizable).await;
            let Ok(Some(to)) = asked.map(|office| office.moved_to) else { return };
            if let Err(error) = regent.follow(&group, &to).await {
                tracing::warn!(%group, %to, %error, "the group moves to where this process cannot go");
            }
        });
    }
}
