//! [`Regent`]: this process as a participant.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use regent_election::participant::Transition;
use regent_election::{Budget, Group, Metadata, NameError, Node, Priority, Refusal};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use crate::connect::{BackendChoice, Connect};
use crate::driver::{ClaimId, Input, PermanentFailure};
use crate::error::{CampaignError, ConnectError};
use crate::follow::{Followed, HOPS_MAX};
use crate::leadership::Leadership;
use crate::lock::Locks;
use crate::remote::{Chosen, Context, ContextError, Wanted};
use crate::session::{Command, Session, Waiter};
use crate::tenure::Hold;
use crate::warming::{Offer, OfferError, WarmUp};

/// One session of this process, for all the groups it stands in. Cheap to clone.
///
/// When the last clone and everything it gave out is gone, the session is closed in the background;
/// [`Regent::close`] waits for that.
#[derive(Clone)]
pub struct Regent {
    session: Arc<Session>,
    /// How it was made, for the session of its locks.
    made: Arc<Connect>,
    locks: Arc<Locks>,
    followed: Arc<Followed>,
}

impl Regent {
    pub(crate) fn new(session: Arc<Session>, made: Connect) -> Self {
        let made = Arc::new(made);
        Self { session, made, locks: Arc::default(), followed: Arc::default() }
    }

    /// A session at `url`, with options to be set.
    pub fn at(url: impl Into<String>) -> Connect {
        Connect::new(BackendChoice::Url(url.into()))
    }

    /// A session at the servers of a context that `regent login` made: the named one, or without a name whatever
    /// `REGENT_SERVER`, `REGENT_CONTEXT` and the current context say, as for the command. The credential of the context
    /// becomes that of this process, which has one identity: a second context is refused.
    pub fn from_context(name: Option<&str>) -> Result<Connect, ConnectError> {
        let wrong = |error: ContextError| ConnectError::Context(error.to_string());
        let wanted = Wanted { server: None, context: name };
        match wanted.choose(&|name| std::env::var_os(name)).map_err(wrong)? {
            // The credential of a context goes to its own servers only.
            Chosen::Servers(url) => match Context::in_use() {
                Some(used) => Err(wrong(ContextError::InUse(used.clone()))),
                None => Ok(Self::at(url)),
            },
            Chosen::Context(name, context) => {
                context.use_for_process(&name).map_err(wrong)?;
                Ok(Self::at(context.server))
            }
            Chosen::Nobody => Err(ConnectError::Context(
                "there is no current context; make one with `regent login URL`".to_owned(),
            )),
        }
    }

    /// The label of this process.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.session.node
    }

    /// The timers of this session.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.session.budget
    }

    /// Stands in `group` and waits until this process leads it: for as long as it takes, through
    /// any outage. Dropping the future withdraws.
    ///
    /// Several campaigns of one process in one group are served in turn, one term each. If the group
    /// moves to another store, the campaign goes on there.
    pub fn campaign(&self, group: impl ToGroup) -> Campaign {
        Campaign {
            regent: self.clone(),
            group: group.to_group(),
            priority: 0,
            metadata: Metadata::NONE,
        }
    }

    /// What this process does when the leader of `group` offers it the office: the leader drains and
    /// hands over once the work of `warm_up` has ended, and leads on meanwhile. Without a warm-up,
    /// this process is warm at once.
    ///
    /// It is dropped if the offer lapses, or if this process leads before it has ended.
    pub fn on_offer<F, Work>(&self, group: impl ToGroup, warm_up: F) -> Result<(), OfferError>
    where
        F: Fn(Offer) -> Work + Send + Sync + 'static,
        Work: Future<Output = ()> + Send + 'static,
    {
        let (group, warm_up) = (group.to_group()?, WarmUp::new(warm_up)?);
        self.followed.warm_up(&group, &warm_up);
        self.session.command(Command::WarmUp(group, warm_up));
        Ok(())
    }

    /// Every change of phase in every group of this process from now on, in order, none missing.
    #[must_use]
    pub fn transitions(&self) -> Transitions {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.followed.subscribe(&sender);
        self.session.command(Command::Subscribe(sender));
        Transitions { receiver }
    }

    /// Leaves every group, tells all work to stop and waits until it has, gives up what is held and
    /// closes the session. Says whether the store was told everything; if not, what was held is free
    /// after one ttl.
    pub async fn close(self) -> bool {
        let followed = self.followed.close();
        let sessions = [Some(&self.session), self.locks.session()].into_iter().flatten();
        let leaving: Vec<_> = sessions
            .chain(&followed)
            .map(|session| {
                let (sender, receiver) = oneshot::channel();
                session.command(Command::Leave(Some(sender)));
                receiver
            })
            .collect();
        let mut is_told = true;
        for left in leaving {
            is_told &= left.await.unwrap_or(false);
        }
        is_told
    }

    pub(crate) fn made(&self) -> &Connect {
        &self.made
    }

    pub(crate) const fn followed(&self) -> &Arc<Followed> {
        &self.followed
    }

    pub(crate) const fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl fmt::Debug for Regent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regent").field("node", &self.session.node).finish_non_exhaustive()
    }
}

/// What names a group: its name, checked or not.
pub trait ToGroup {
    /// The group, or why it cannot be one.
    fn to_group(&self) -> Result<Group, NameError>;
}

impl ToGroup for Group {
    fn to_group(&self) -> Result<Group, NameError> {
        Ok(self.clone())
    }
}

impl ToGroup for str {
    fn to_group(&self) -> Result<Group, NameError> {
        Group::new(self)
    }
}

impl ToGroup for String {
    fn to_group(&self) -> Result<Group, NameError> {
        Group::new(self)
    }
}

impl<T: ToGroup + ?Sized> ToGroup for &T {
    fn to_group(&self) -> Result<Group, NameError> {
        (**self).to_group()
    }
}

/// A campaign to be: await it to stand.
#[derive(Clone, Debug)]
#[must_use = "nobody stands before the campaign is awaited"]
pub struct Campaign {
    regent: Regent,
    group: Result<Group, NameError>,
    priority: Priority,
    metadata: Metadata,
}

impl Campaign {
    /// Its claim in the line; the higher one is promoted first. It never deposes a leader.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// What it tells the world as leader: an address, a version.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    pub(crate) fn ttl(&self) -> std::time::Duration {
        self.regent.budget().ttl()
    }

    async fn run(self) -> Result<Leadership, CampaignError> {
        let group = self.group.clone()?;
        let mut hops = 0;
        let _wanted = self.regent.followed().want(&group);
        loop {
            // Two terms of one group never work at once in one process, though each is of another store.
            self.regent.settle(&group).await;
            let home = self.regent.home_of(&group);
            let stood_at = home.now();
            // Who went ahead stands there already.
            let standing = self.regent.followed().stand(&home, &group, &self);
            let outcome = tokio::select! {
                biased;
                outcome = standing.outcome() => outcome,
                to = self.left_behind(&group, &home) => {
                    if let Some(to) = to {
                        self.follow(&group, &to).await?;
                    }
                    continue;
                }
            };
            let refusal = match outcome {
                Ok(leadership) => {
                    // Refused, it is dropped here, and so given up.
                    self.regent.followed().take_term(&group, leadership.term())?;
                    self.look_ahead(&leadership, &home);
                    return Ok(leadership);
                }
                Err(CampaignError::Refused(refusal)) => refusal,
                Err(error) => return Err(error),
            };
            match &refusal {
                Refusal::Moved { to, .. } => {
                    // Who stood for a while is in no circle.
                    let has_stood = home.now().since(stood_at) >= self.ttl();
                    hops = if has_stood { 1 } else { hops + 1 };
                    if hops > HOPS_MAX {
                        return Err(CampaignError::Refused(refusal));
                    }
                    self.follow(&group, to).await?;
                }
                _ => return Err(CampaignError::Refused(refusal)),
            }
        }
    }

    pub(crate) const fn regent(&self) -> &Regent {
        &self.regent
    }

    /// What it claims.
    pub(crate) const fn claim(&self) -> (Priority, &Metadata) {
        (self.priority, &self.metadata)
    }

    /// Begins to stand in one store.
    pub(crate) fn stand(&self, session: &Arc<Session>, group: &Group) -> Standing {
        let (reply, answer) = oneshot::channel();
        let (told, stands) = watch::channel(false);
        let claim = session.next_claim();
        // Made before it is sent: dropped at any point after, the claim is withdrawn.
        let withdrawal = Withdrawal { session: Arc::clone(session), claim };
        let waiter =
            Waiter { session: Arc::clone(session), group: group.clone(), stands: told, reply };
        let (priority, metadata) = (self.priority, self.metadata.clone());
        let group = group.clone();
        let span = tracing::info_span!("campaign", %group, node = %session.node);
        session.command(Command::Claim { claim, group, priority, metadata, waiter });
        Standing { withdrawal, answer, stands, span }
    }
}

/// A candidate in one store. Dropped, it withdraws.
#[derive(Debug)]
pub(crate) struct Standing {
    withdrawal: Withdrawal,
    answer: oneshot::Receiver<Result<Hold, PermanentFailure>>,
    stands: watch::Receiver<bool>,
    span: tracing::Span,
}

impl Standing {
    /// Waits until this process leads, or never can.
    async fn outcome(self) -> Result<Leadership, CampaignError> {
        let answer = self.answer.instrument(self.span).await;
        drop(self.withdrawal);
        match answer {
            Ok(Ok(hold)) => Ok(Leadership::new(hold)),
            Ok(Err(why)) => Err(why.into()),
            Err(_) => Err(CampaignError::Closed),
        }
    }

    /// How to learn that the store knows of it.
    pub(crate) fn stands(&self) -> watch::Receiver<bool> {
        self.stands.clone()
    }

    /// Where, and which one.
    pub(crate) const fn identity(&self) -> (&Arc<Session>, ClaimId) {
        (&self.withdrawal.session, self.withdrawal.claim)
    }
}

impl IntoFuture for Campaign {
    type Output = Result<Leadership, CampaignError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Withdraws a claim when dropped. One that has been answered is known no more, so that saying it
/// then does nothing.
#[derive(Debug)]
struct Withdrawal {
    session: Arc<Session>,
    claim: ClaimId,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.session.tell(Input::Unclaim { claim: self.claim });
    }
}

/// Changes of phase, one after the other.
#[derive(Debug)]
pub struct Transitions {
    receiver: mpsc::UnboundedReceiver<Transition>,
}

impl Transitions {
    /// The next one; none when the session has ended.
    pub async fn next(&mut self) -> Option<Transition> {
        self.receiver.recv().await
    }
}
