//! The election as the supervisor sees it: a stream of news, and three things to tell it.
//!
//! The library keeps the lease, on a thread of its own: this file turns its [`Leadership`] into
//! [`Event`]s of the machine. The term is held until the machine says that nothing of the work is
//! alive, and only then given up (semantics 14). The session also says who else leads, which is for
//! people, for [`Plan::once`] and for fencing the previous leader; nothing else is decided by it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use regent::{
    CampaignError, Connect, Current, LeaderWatch, Leadership, NotElected, Phase, Regent,
    Transition, Transitions, Why,
};
use regent_election::timing::Budget;
use regent_election::{Group, Metadata, Moment, Node, Priority, Refusal, Term};

use crate::machine::Event;
use crate::observer::SharedObserver;
use crate::plan::Plan;
use crate::supervisor::SuperviseError;

/// Leaders remembered: this process, and those before it.
const LEADERS_MAX: usize = 4;

type Soon<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Who led before, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) node: Node,
    pub(crate) term: Term,
    pub(crate) metadata: Metadata,
}

/// One candidate in one group.
pub(crate) struct Election {
    group: Group,
    priority: Priority,
    metadata: Metadata,
    observer: SharedObserver,
    regent: Regent,
    transitions: Transitions,
    watch: LeaderWatch,
    campaign: Option<Soon<Result<Leadership, CampaignError>>>,
    leadership: Option<Leadership>,
    /// The farewell: whether the store heard everything.
    closing: Option<Soon<bool>>,
    is_settled: bool,
    news: VecDeque<Event>,
    /// The end of the lease as last told.
    valid_until: Moment,
    /// The last few leaders seen, oldest first: one of them may turn out to be this process.
    leaders: VecDeque<Predecessor>,
    /// Who was last seen to lead.
    pub(crate) seen: Option<Node>,
    /// Why the work was last told to stop.
    pub(crate) stops_for: Why,
    /// What made this candidacy hopeless.
    pub(crate) permanent_failure: Option<CampaignError>,
}

impl Election {
    /// Stands from here on.
    pub(crate) async fn stand(
        plan: &Plan,
        budget: &Budget,
        at: Connect,
        observer: SharedObserver,
    ) -> Result<Self, SuperviseError> {
        let mut connect = at.ttl(budget.ttl()).stop_grace(budget.stop_grace());
        if plan.fence_previous.is_some() {
            // Who led before is asked of the server that the plan names.
            connect = connect.follow(false);
        }
        let regent = connect.connect().await?;
        let watch = regent.watch_leader(&plan.group).map_err(CampaignError::Name)?;
        let mut election = Self {
            group: plan.group.clone(),
            priority: plan.priority,
            metadata: plan.metadata.clone(),
            observer,
            transitions: regent.transitions(),
            watch,
            regent,
            campaign: None,
            leadership: None,
            closing: None,
            is_settled: false,
            news: VecDeque::new(),
            valid_until: Moment::ZERO,
            leaders: VecDeque::new(),
            seen: None,
            stops_for: Why::Asked,
            permanent_failure: None,
        };
        election.stand_again();
        Ok(election)
    }

    fn stand_again(&mut self) {
        self.stand_after(Duration::ZERO);
    }

    fn stand_after(&mut self, pause: Duration) {
        let campaign = self
            .regent
            .campaign(&self.group)
            .priority(self.priority)
            .metadata(self.metadata.clone());
        self.campaign = Some(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            campaign.await
        }));
    }

    /// The work failed by itself: standing again costs a pause if this is soon after the election.
    pub(crate) fn work_failed(&self) {
        if let Some(leadership) = &self.leadership {
            leadership.failed();
        }
    }

    /// Nothing of the work runs any more: the term is given up, and the next one stood for.
    pub(crate) fn work_ended(&mut self) {
        // Dropped, it is given up in the background; `close` waits for that.
        self.leadership = None;
        if self.closing.is_none() {
            self.stand_again();
        }
    }

    /// This term is to be given up once the work has ended.
    pub(crate) fn resign(&mut self) {
        if let Some(leadership) = self.leadership.clone() {
            tokio::spawn(leadership.resign());
        }
    }

    /// This process leaves for good.
    pub(crate) fn leave(&mut self) {
        self.campaign = None;
        self.leadership = None;
        self.closing = Some(Box::pin(self.regent.clone().close()));
    }

    /// The term that is held, if any.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        self.leadership.clone()
    }

    /// Under which name it stands.
    pub(crate) fn node(&self) -> &Node {
        self.regent.node()
    }

    /// Whether the store has heard all it must.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Why it is not elected at this moment.
    pub(crate) fn why_not_elected(&self, just_seen: bool) -> NotElected {
        self.regent.why_not_elected(&self.group, just_seen)
    }

    /// Who led before `term`.
    pub(crate) fn predecessor(&self, term: Term) -> Option<&Predecessor> {
        self.leaders.iter().rev().find(|before| before.term < term)
    }

    /// The next thing that happens. Safe to drop and to call again.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            self.look();
            if let Some(news) = self.news.pop_front() {
                return news;
            }
            tokio::select! {
                biased;
                Some(transition) = self.transitions.next() => self.changed(&transition),
                won = soon(&mut self.campaign) => self.won(won),
                told = soon(&mut self.closing) => {
                    self.is_settled = told;
                    self.news.push_back(Event::Left);
                }
                current = self.watch.next() => self.saw(current),
                // Looked at above, as after everything else: whatever is told next knows of it.
                Some(_) = extended(self.leadership.as_ref(), self.valid_until) => {}
            }
        }
    }

    fn won(&mut self, won: Result<Leadership, CampaignError>) {
        let leadership = match won {
            Ok(leadership) => leadership,
            // The group may come back, or the way to it be opened.
            Err(
                error @ (CampaignError::CannotFollow { .. }
                | CampaignError::Refused(Refusal::Moved { .. })),
            ) => {
                self.observer.remark(&format!("{error}; trying again after a ttl"));
                self.stand_after(self.regent.budget().ttl());
                return;
            }
            Err(error) => {
                self.permanent_failure = Some(error);
                self.news.push_back(Event::PermanentFailure);
                return;
            }
        };
        let (term, phase) = (leadership.term(), leadership.phase());
        self.valid_until = leadership.valid_until();
        self.leadership = Some(leadership);
        self.news.push_back(Event::Elected { term, valid_until: self.valid_until });
        self.tell(phase);
    }

    fn changed(&mut self, transition: &Transition) {
        let held = self.leadership.as_ref().map(Leadership::term);
        if transition.group != self.group || held != Some(transition.term) {
            return;
        }
        match transition.to {
            Phase::Stopping | Phase::Lost => self.stops_for = transition.why,
            Phase::Standby | Phase::Leading | Phase::Jeopardy | Phase::Stopped => {}
        }
        match (transition.from, transition.to) {
            (Phase::Jeopardy, Phase::Leading) => self.news.push_back(Event::Recovered),
            (_, to) => self.tell(to),
        }
    }

    /// Tells what a phase means for the work.
    fn tell(&mut self, phase: Phase) {
        match phase {
            Phase::Jeopardy => self.news.push_back(Event::Jeopardy),
            Phase::Stopping => {
                let by = self.leadership.as_ref().map_or(Moment::ZERO, Leadership::valid_until);
                self.news.push_back(Event::StopBy { by });
            }
            Phase::Lost => self.news.push_back(Event::Lost),
            Phase::Standby | Phase::Leading | Phase::Stopped => {}
        }
    }

    /// Tells how far the lease reaches, when that has changed.
    fn look(&mut self) {
        let Some(leadership) = &self.leadership else { return };
        match leadership.phase() {
            Phase::Leading | Phase::Jeopardy => {}
            Phase::Standby | Phase::Stopping | Phase::Stopped | Phase::Lost => return,
        }
        let until = leadership.valid_until();
        if until > self.valid_until {
            self.valid_until = until;
            self.news.push_back(Event::Extended { valid_until: until });
        }
    }

    fn saw(&mut self, current: Current) {
        let Current { leader, term, metadata, .. } = current;
        self.seen.clone_from(&leader);
        let Some(node) = leader else { return };
        if node != *self.node() {
            self.news.push_back(Event::OtherLeads);
        }
        self.leaders.retain(|known| known.term != term);
        self.leaders.push_back(Predecessor { node, term, metadata });
        if self.leaders.len() > LEADERS_MAX {
            self.leaders.pop_front();
        }
    }
}

/// Waits until the lease of a term that is held reaches farther than `after`; for ever if none is held.
async fn extended(leadership: Option<&Leadership>, after: Moment) -> Option<Moment> {
    match leadership {
        Some(leadership) => leadership.extended(after).await,
        None => std::future::pending().await,
    }
}

/// The outcome of something that is under way, once; for ever if nothing is.
async fn soon<T>(under_way: &mut Option<Soon<T>>) -> T {
    let outcome = match under_way {
        Some(under_way) => under_way.await,
        None => std::future::pending().await,
    };
    *under_way = None;
    outcome
}
