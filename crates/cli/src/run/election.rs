//! The election as `regent run` sees it: a stream of news, and three things to tell it.
//!
//! A thin driver of the participant's machine, like [`crate::keep`]: it reads the lease clock, sends
//! what it is told to, and turns what the machine says into [`Event`]s of the supervisor. Nothing of
//! sessions, attempts and watches is seen outside this file, so that whatever else keeps a lease (the
//! library's own leadership, a store used directly) can take its place.

use std::collections::VecDeque;
use std::time::Duration;

use regent::fresh;
use regent::remote::{Remote, RemoteError, RemoteResult, Scope, Watched, Watching};
use regent_api::WatchEvent;
use regent_election::participant::{
    self, Attempt, Phase, Reply, Request, Transition, Trouble, Why,
};
use regent_election::timing::Budget;
use regent_election::{Group, Metadata, Moment, Node, Participant, Priority, Term};
use tokio::sync::mpsc;

use super::machine::Event;
use crate::failure::Failure;
use crate::keep::is_hopeless;
use crate::output::remark;

/// Timers stand still while a machine sleeps, and the lease clock does not: it is read at least this
/// often.
const TICK: Duration = Duration::from_millis(250);
/// Leaders remembered: this process, and whoever was before it.
const LEADERS_MAX: usize = 4;

type Answer = (Attempt, Request, RemoteResult<Reply>);

/// Who led before, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) node: Node,
    pub(crate) term: Term,
    pub(crate) metadata: Metadata,
}

/// Who stands, and for what.
pub(crate) struct Candidate {
    pub(crate) group: Group,
    pub(crate) node: Node,
    pub(crate) priority: Priority,
    pub(crate) metadata: Metadata,
}

/// One candidate in one group.
pub(crate) struct Election {
    machine: Participant,
    remote: Remote,
    group: Group,
    node: Node,
    answer: mpsc::UnboundedSender<Answer>,
    answers: mpsc::UnboundedReceiver<Answer>,
    /// None once it cannot be had at all.
    watch: Option<Watching>,
    ahead: VecDeque<participant::Event>,
    news: VecDeque<Event>,
    wake_at: Option<Moment>,
    /// The end of the lease as last told.
    valid_until: Option<Moment>,
    has_led: bool,
    /// Why the work was last told to stop.
    pub(crate) stops_for: Why,
    is_leaving: bool,
    has_left: bool,
    /// The last few leaders seen, oldest first: one of them may turn out to be this process.
    leaders: VecDeque<Predecessor>,
    /// Who was last seen to lead, and under which term.
    pub(crate) seen: (Option<Node>, Term),
    /// What made this candidacy hopeless.
    pub(crate) hopeless: Option<RemoteError>,
    /// The last trouble told, so that it is told once.
    told: String,
}

impl Election {
    /// Stands from here on.
    pub(crate) fn stand(
        candidate: Candidate,
        budget: Budget,
        remote: &Remote,
    ) -> Result<Self, Failure> {
        let Candidate { group, node, priority, metadata } = candidate;
        let (answer, answers) = mpsc::unbounded_channel();
        let stand = participant::Event::Stand { group: group.clone(), priority, metadata };
        Ok(Self {
            machine: Participant::new(node.clone(), budget, fresh::number()?),
            // A promotion is noticed by the watch at once, and by the next heartbeat without it.
            watch: Some(remote.watch(Scope::Group(group.clone()), None)),
            remote: remote.clone().with_timeout(budget.request_timeout()),
            group,
            node,
            answer,
            answers,
            ahead: VecDeque::from([stand]),
            news: VecDeque::new(),
            wake_at: None,
            valid_until: None,
            has_led: false,
            stops_for: Why::Asked,
            is_leaving: false,
            has_left: false,
            leaders: VecDeque::new(),
            seen: (None, Term::NONE),
            hopeless: None,
            told: String::new(),
        })
    }

    /// Nothing of the work runs any more.
    pub(crate) fn work_ended(&mut self) {
        self.ahead.push_back(participant::Event::Stopped { group: self.group.clone() });
    }

    /// This term is to be given up once the work has ended.
    pub(crate) fn resign(&mut self) {
        self.ahead.push_back(participant::Event::Resign { group: self.group.clone() });
    }

    /// This process leaves for good.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        self.ahead.push_back(participant::Event::Leave);
    }

    /// Whether the store has heard all it must.
    pub(crate) fn is_settled(&self) -> bool {
        self.machine.is_done()
    }

    /// Who led before `term`.
    pub(crate) fn predecessor(&self, term: Term) -> Option<&Predecessor> {
        self.leaders.iter().rev().find(|before| before.term < term)
    }

    /// The next thing that happens. Safe to drop and to call again.
    pub(crate) async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            self.turn()?;
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                Some(answered) = self.answers.recv() => self.answered(answered),
                watched = next_of(&mut self.watch) => self.watched(watched),
                () = tokio::time::sleep(pause) => self.ahead.push_back(participant::Event::Tick),
            }
        }
    }

    /// Lets the machine take everything that has happened, and does what it says.
    fn turn(&mut self) -> Result<(), Failure> {
        while let Some(event) = self.ahead.pop_front() {
            // Read before anything is sent: validity counts from here.
            let now = regent_clock::now();
            for action in self.machine.on(now, event) {
                self.act(action)?;
            }
            self.look();
        }
        if self.is_leaving && !self.has_left && self.machine.is_done() {
            self.has_left = true;
            self.news.push_back(Event::Left);
        }
        Ok(())
    }

    fn act(&mut self, action: participant::Action) -> Result<(), Failure> {
        use participant::Action;
        match action {
            Action::Send { attempt, request } => self.send(attempt, request),
            Action::Transition(transition) => self.changed(&transition),
            Action::StopWork { by, .. } => {
                self.news.push_back(Event::StopBy { by });
            }
            // The supervisor and the guard have deadlines of their own, before this one.
            Action::LastResort { .. } => {}
            Action::NeedSession => {
                self.ahead.push_back(participant::Event::Session(fresh::session_id()?));
            }
            Action::Trouble { trouble, .. } => self.trouble(&trouble),
            Action::WakeAt(at) => self.wake_at = Some(at),
        }
        Ok(())
    }

    fn send(&self, attempt: Attempt, request: Request) {
        let (remote, answer) = (self.remote.clone(), self.answer.clone());
        tokio::spawn(async move {
            let answered = remote.perform(&request).await;
            // Nobody listens any more once the command has ended.
            let _ = answer.send((attempt, request, answered));
        });
    }

    fn answered(&mut self, (attempt, asked, answered): Answer) {
        if let Err(error) = &answered
            && !self.has_led
            && !self.is_leaving
            && is_hopeless(error)
        {
            self.hopeless = Some(error.clone());
            self.news.push_back(Event::Hopeless);
        }
        let answer = answered.map_err(|error| error.into_store_error(&asked));
        self.ahead.push_back(participant::Event::Answered { attempt, answer });
    }

    fn changed(&mut self, transition: &Transition) {
        tracing::info!(
            group = %self.group,
            node = %self.node,
            term = transition.term.get(),
            phase = transition.to.word(),
            why = ?transition.why,
            "the phase changed"
        );
        match (transition.from, transition.to) {
            (Phase::Jeopardy, Phase::Leading) => self.news.push_back(Event::Recovered),
            (_, Phase::Leading) => {
                let now = regent_clock::now();
                let held = self.machine.valid_until(&self.group);
                let (term, valid_until) = held.unwrap_or((transition.term, now));
                (self.has_led, self.valid_until) = (true, Some(valid_until));
                self.news.push_back(Event::Elected { term, valid_until });
            }
            (_, Phase::Jeopardy) => self.news.push_back(Event::Jeopardy),
            (_, Phase::Lost) => {
                self.stops_for = transition.why;
                self.news.push_back(Event::Lost);
            }
            // What a stop demands comes as a demand of its own, with its moment.
            (_, Phase::Stopping) => self.stops_for = transition.why,
            (_, Phase::Standby | Phase::Stopped) => self.valid_until = None,
        }
    }

    /// Tells how far the lease reaches, when that has changed.
    fn look(&mut self) {
        let (Some(told), Some(phase)) = (self.valid_until, self.machine.phase(&self.group)) else {
            return;
        };
        let is_leading = matches!(phase, Phase::Leading | Phase::Jeopardy);
        if let Some((_, until)) = self.machine.valid_until(&self.group)
            && is_leading
            && until != told
        {
            self.valid_until = Some(until);
            self.news.push_back(Event::Extended { valid_until: until });
        }
    }

    fn watched(&mut self, watched: RemoteResult<Watched>) {
        let event = match watched {
            Ok(Watched::Event(event)) => *event,
            Ok(Watched::Interrupted { why, .. }) => {
                tracing::debug!(%why, "the watch broke");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "going on without a watch");
                self.watch = None;
                return;
            }
        };
        match event {
            WatchEvent::LeaderChanged(changed) => {
                self.saw(changed.term, changed.leader, changed.metadata);
            }
            WatchEvent::State(present) => {
                if let Some(office) = present.offices.into_iter().next() {
                    self.saw(office.term, office.leader, office.metadata);
                }
            }
            WatchEvent::Gap(_) | WatchEvent::Bookmark(_) | WatchEvent::Closing(_) => {}
        }
    }

    fn saw(&mut self, term: Term, leader: Option<Node>, metadata: Metadata) {
        let holds = self.machine.valid_until(&self.group).map(|(term, _)| term);
        if let Some(node) = &leader
            && holds != Some(term)
        {
            self.leaders.retain(|known| known.term != term);
            self.leaders.push_back(Predecessor { node: node.clone(), term, metadata });
            if self.leaders.len() > LEADERS_MAX {
                self.leaders.pop_front();
            }
            if *node != self.node {
                self.news.push_back(Event::OtherLeads);
            }
        }
        self.seen = (leader.clone(), term);
        let group = self.group.clone();
        self.ahead.push_back(participant::Event::Watched { group, term, leader });
    }

    fn trouble(&mut self, trouble: &Trouble) {
        let text = trouble.to_string();
        if !self.is_leaving && self.told != text {
            remark(&text);
            self.told = text;
        }
    }

    fn pause(&self) -> Duration {
        let now = regent_clock::now();
        self.wake_at.map_or(TICK, |at| now.until(at).min(TICK)).max(Duration::from_millis(1))
    }
}

async fn next_of(watch: &mut Option<Watching>) -> RemoteResult<Watched> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}
