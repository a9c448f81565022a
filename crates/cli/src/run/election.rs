//! The election as `regent run` sees it: a stream of news, and three things to tell it.
//!
//! The library keeps the lease, on a thread of its own: this file turns its [`Leadership`] into
//! [`Event`]s of the supervisor. The term is held until the supervisor says that nothing of the work is
//! alive, and only then given up (semantics 14). Beside it a watch sees who else leads, which is for
//! people, for `--once` and for whoever has to be fenced; nothing is decided by it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use regent::office::Sight;
use regent::{
    CampaignError, ConnectError, Leadership, Phase, Regent, Transition, Transitions, Why,
};
use regent_election::timing::Budget;
use regent_election::{Group, Metadata, Moment, Node, Priority, Refusal, Term};
use tokio::sync::mpsc;

use super::machine::Event;
use super::place::Place;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::remark;

/// Leaders remembered: this process, and whoever was before it.
const LEADERS_MAX: usize = 4;
/// A lease that reaches farther by less than this is the same lease, read a moment later.
const EXTENSION_MIN: Duration = Duration::from_millis(1);

type Soon<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Who led before, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) node: Node,
    pub(crate) term: Term,
    pub(crate) metadata: Metadata,
}

/// Who stands, and for what.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) group: Group,
    /// Its name; without one, the host's and random digits.
    pub(crate) node: Option<Node>,
    pub(crate) priority: Priority,
    pub(crate) metadata: Metadata,
    /// Whether it goes where its group goes.
    pub(crate) follows: bool,
}

/// One candidate in one group.
pub(crate) struct Election {
    candidate: Candidate,
    regent: Regent,
    look_every: Duration,
    transitions: Transitions,
    /// None once it cannot be had at all.
    watch: Option<mpsc::UnboundedReceiver<Sight>>,
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
    pub(crate) hopeless: Option<CampaignError>,
}

impl Election {
    /// Stands from here on.
    pub(crate) async fn stand(
        candidate: Candidate,
        budget: &Budget,
        place: &Place,
    ) -> Result<Self, Failure> {
        let mut connect = place
            .connect()
            .ttl(budget.ttl())
            .stop_grace(budget.stop_grace())
            .follow(candidate.follows);
        if let Some(node) = &candidate.node {
            connect = connect.node(node.as_str());
        }
        let regent = connect.connect().await.map_err(refused)?;
        let mut election = Self {
            transitions: regent.transitions(),
            watch: Some(place.watch(candidate.group.clone())?),
            // Fine enough that a guard hears of a lease long before it counts.
            look_every: (budget.ttl() / 50)
                .clamp(Duration::from_millis(10), Duration::from_millis(100)),
            candidate,
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
            hopeless: None,
        };
        election.stand_again();
        Ok(election)
    }

    fn stand_again(&mut self) {
        self.stand_after(Duration::ZERO);
    }

    fn stand_after(&mut self, pause: Duration) {
        let Candidate { group, priority, metadata, .. } = self.candidate.clone();
        let campaign = self.regent.campaign(group).priority(priority).metadata(metadata);
        self.campaign = Some(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            campaign.await
        }));
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

    /// Under which name it stands.
    pub(crate) fn node(&self) -> &Node {
        self.regent.node()
    }

    /// Whether the store has heard all it must.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
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
                watched = next_of(&mut self.watch) => self.watched(watched),
                () = tokio::time::sleep(self.look_every), if self.leadership.is_some() => {}
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
                remark(&format!("{error}; trying again after a ttl"));
                self.stand_after(self.regent.budget().ttl());
                return;
            }
            Err(error) => {
                self.hopeless = Some(error);
                self.news.push_back(Event::Hopeless);
                return;
            }
        };
        let (term, phase) = (leadership.term(), leadership.phase());
        self.valid_until = valid_until(&leadership);
        self.leadership = Some(leadership);
        self.news.push_back(Event::Elected { term, valid_until: self.valid_until });
        self.tell(phase);
    }

    fn changed(&mut self, transition: &Transition) {
        let held = self.leadership.as_ref().map(Leadership::term);
        if transition.group != self.candidate.group || held != Some(transition.term) {
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
                let by = self.leadership.as_ref().map_or(Moment::ZERO, valid_until);
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
        let until = valid_until(leadership);
        if until > self.valid_until + EXTENSION_MIN {
            self.valid_until = until;
            self.news.push_back(Event::Extended { valid_until: until });
        }
    }

    fn watched(&mut self, watched: Option<Sight>) {
        match watched {
            Some(Sight { term, leader, metadata, .. }) => self.saw(term, leader, metadata),
            None => self.watch = None,
        }
    }

    fn saw(&mut self, term: Term, leader: Option<Node>, metadata: Metadata) {
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

/// Until when a term is valid. The clock is read first: the result is never later than the truth.
fn valid_until(leadership: &Leadership) -> Moment {
    let now = regent_clock::now();
    now + leadership.valid_for()
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

async fn next_of(watch: &mut Option<mpsc::UnboundedReceiver<Sight>>) -> Option<Sight> {
    match watch {
        Some(watch) => watch.recv().await,
        None => std::future::pending().await,
    }
}

fn refused(error: ConnectError) -> Failure {
    match error {
        ConnectError::Address(error) => error.into(),
        ConnectError::Budget(error) => Failure::usage(format!("--ttl, --grace: {error}")),
        ConnectError::Name(error) => error.into(),
        ConnectError::UnknownScheme { .. }
        | ConnectError::FeatureMissing { .. }
        | ConnectError::NotByUrl { .. } => Failure::usage(format!("--server: {error}")),
        ConnectError::NoRuntime
        | ConnectError::System(_)
        | ConnectError::StaysHere
        | ConnectError::Store(_) => Failure::new(Exit::Unavailable, error.to_string()),
    }
}

/// Why a candidate may never stand.
pub(crate) fn hopeless(error: &CampaignError) -> Failure {
    match error {
        CampaignError::Name(_) => Failure::usage(error.to_string()),
        CampaignError::Refused(_)
        | CampaignError::CannotFollow { .. }
        | CampaignError::TooManyGroups => Failure::new(Exit::Refused, error.to_string()),
        CampaignError::Closed => Failure::new(Exit::Unavailable, error.to_string()),
    }
}
