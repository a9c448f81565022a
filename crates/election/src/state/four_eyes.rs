//! Four eyes: what two principals must ask for (semantics 38).
//!
//! In a group whose policy says `four_eyes`, the first request that `needs_two` names is only noted: who
//! asked, and the digest of exactly what. The very same request of another principal, with the right for it, is carried
//! out. Time is counted by the driver, as every wait is: after ten minutes it proposes `Elapsed` and the proposal goes.
//!
//! A group has one proposal. Another principal's different request does not take its place: it is refused, and names
//! the open one. Whoever made a proposal may replace it by another of their own. One whose maker has lost the right
//! since counts for nothing.
//!
//! Two users of the replica's own machine count as one: who is root there is both.

use sha2::{Digest, Sha256};

use super::{State, Turn, VerbResult};
use crate::access::Principal;
use crate::codec::{CodecError, Input, Wire, malformed, wire_struct};
use crate::command::{Command, WaitKind};
use crate::door::Step;
use crate::limits::APPROVAL_MS;
use crate::name::Group;
use crate::outcome::{Effect, Refusal};
use crate::state::Wait;
use crate::term::Revision;

/// What one principal asked for, and waits for another to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    who: Principal,
    /// Of the bytes of the command. Not a print as for request ids: somebody could look for another command that has
    /// the same one.
    digest: CommandDigest,
    since: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandDigest([u8; 32]);

wire_struct!(Proposal { who, digest, since });

impl Wire for CommandDigest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            *byte = u8::take(input)?;
        }
        Ok(Self(bytes))
    }
}

impl CommandDigest {
    fn of(command: &Command) -> Self {
        let mut bytes = Vec::with_capacity(256);
        command.put(&mut bytes);
        Self(Sha256::digest(&bytes).into())
    }
}

impl Command {
    /// Whether two principals must ask for it in a group whose policy says so (semantics 38). What opens a group
    /// again, or lets it arrive, needs one: two have closed it.
    fn needs_two(&self) -> bool {
        match self.plain() {
            Self::StepDown { immediate, .. } => *immediate,
            Self::PutPolicy { .. } | Self::Delete { .. } => true,
            Self::Move { step, .. } => match step {
                Step::Stop | Step::Depart { .. } => true,
                Step::Expect { .. } | Step::Arrive { .. } | Step::Resume { .. } => false,
            },
            Self::Open { .. }
            | Self::ChangeTtl { .. }
            | Self::Close { .. }
            | Self::Expire { .. }
            | Self::Campaign { .. }
            | Self::Withdraw { .. }
            | Self::Accept { .. }
            | Self::Resign { .. }
            | Self::Offer { .. }
            | Self::Warm { .. }
            | Self::Transfer { .. }
            | Self::Admit { .. }
            | Self::ForgetFence { .. }
            | Self::Report { .. }
            | Self::Relieve { .. }
            | Self::PutSettings { .. }
            | Self::PutBindings { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::As { .. }
            | Self::Elapsed { .. }
            | Self::Refill { .. } => false,
        }
    }
}

impl Proposal {
    /// What the driver times.
    pub(super) fn wait(&self, group: &Group) -> Wait {
        let (group, kind) = (group.clone(), WaitKind::Approval);
        Wait { group, kind, since: self.since, for_ms: APPROVAL_MS }
    }

    /// Whether this principal is another one than the proposal's.
    fn is_by_other(&self, who: &Principal) -> bool {
        match (&self.who, who) {
            (Principal::Local(_), Principal::Local(_)) => false,
            (one, other) => one != other,
        }
    }

    fn refusal(&self, group: &Group, is_other: bool) -> Refusal {
        let (proposal, by) = (self.since, Box::new(self.who.clone()));
        Refusal::SecondApprovalNeeded { group: group.clone(), proposal, by, is_other }
    }
}

impl State {
    /// Runs a command, if nobody else must ask for it or somebody else has. What a rule then refuses leaves the
    /// proposal open.
    pub(super) fn run_approved(&mut self, turn: &mut Turn, command: Command) -> VerbResult {
        let approved = self.approve(turn, &command)?;
        let ran = self.run(turn, command)?;
        if let Some(group) = approved {
            self.proposals.remove(&group);
        }
        Ok(ran)
    }

    /// The group whose proposal this command confirms; none if it needs no second principal.
    fn approve(&mut self, turn: &mut Turn, command: &Command) -> Result<Option<Group>, Refusal> {
        let Some(group) = command.group().filter(|_| command.needs_two()) else { return Ok(None) };
        let is_guarded =
            self.groups.get(group).is_some_and(|state| self.policy_of(state).four_eyes);
        if !is_guarded {
            return Ok(None);
        }
        let Some(who) = turn.who.clone() else {
            return Err(Refusal::NobodyToApprove { group: group.clone() });
        };
        let digest = CommandDigest::of(command);
        let counts = |open: &&Proposal| self.may(&open.who, command).is_ok();
        if let Some(open) = self.proposals.get(group).filter(counts) {
            match (open.is_by_other(&who), open.digest == digest) {
                (true, true) => return Ok(Some(group.clone())),
                (false, true) => return Err(open.refusal(group, false)),
                (true, false) => return Err(open.refusal(group, true)),
                (false, false) => {}
            }
        }
        let proposal = Proposal { who, digest, since: turn.revision };
        let Wait { group: of, kind, since, for_ms } = proposal.wait(group);
        turn.effects.push(Effect::Wait { group: of, kind, since, for_ms });
        let refusal = proposal.refusal(group, false);
        self.proposals.insert(group.clone(), proposal);
        Err(refusal)
    }

    /// Its ten minutes are over; whether it was still open.
    pub(super) fn drop_proposal(&mut self, group: &Group, since: Revision) -> bool {
        let is_it = self.proposals.get(group).is_some_and(|proposal| proposal.since == since);
        if is_it {
            self.proposals.remove(group);
        }
        is_it
    }

    /// Whether some policy asks for two principals.
    pub(super) fn wants_two(&self) -> bool {
        let wants = |policy: &crate::policy::Policy| policy.four_eyes;
        wants(&self.settings.default_policy)
            || self.groups.iter().any(|(_, state)| state.policy.as_deref().is_some_and(wants))
    }

    pub(super) fn put_proposals(&self, out: &mut Vec<u8>) {
        (self.proposals.len() as u64).put(out);
        for (group, proposal) in &self.proposals {
            group.put(out);
            proposal.put(out);
        }
    }

    pub(super) fn take_proposals(&mut self, input: &mut Input<'_>) -> Result<(), CodecError> {
        for _ in 0..input.count("proposals")? {
            let group = Group::take(input)?;
            let is_next = self.proposals.keys().next_back().is_none_or(|last| *last < group);
            if !is_next || self.groups.get(&group).is_none() {
                return Err(malformed("proposals")("they are out of order, or for no group"));
            }
            self.proposals.insert(group, Proposal::take(input)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Binding, Role};
    use crate::command::Entry;
    use crate::name::Reason;
    use crate::outcome::Answer;
    use crate::policy::{Policy, Settings};
    use crate::state::STATE_VERSION;

    fn group() -> Group {
        Group::new("billing").unwrap()
    }

    fn ask(state: &mut State, who: &str, command: Command) -> Result<Answer, Refusal> {
        let applied = state.apply(Entry::bare(command.on_behalf_of(who.parse().unwrap())));
        assert_eq!(state.check_invariants(), Ok(()));
        assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&*state));
        applied.answer
    }

    fn bind(state: &mut State, names: &[&str]) {
        let operator = |who: &&str| Binding {
            who: who.parse().unwrap(),
            role: Role::Administrator,
            groups: vec!["*".parse().unwrap()],
            nodes: vec!["self".parse().unwrap()],
        };
        let bindings = names.iter().map(operator).collect();
        let expected_version = state.access().bindings().version();
        let put = Command::PutBindings { expected_version, bindings };
        state.apply(Entry::bare(put)).answer.unwrap();
    }

    fn put(four_eyes: bool) -> Command {
        let policy = Policy { four_eyes, standbys_max: 7, ..Policy::default() };
        Command::PutPolicy { group: group(), policy: Some(Box::new(policy)) }
    }

    /// A store with operators alice, bob and carol, and a group that needs two of them.
    fn guarded() -> State {
        let mut state = State::new(Settings::default());
        bind(&mut state, &["user:alice", "user:bob", "user:carol"]);
        assert_eq!(
            ask(&mut state, "user:alice", put(true)),
            Ok(Answer::Done),
            "one switches it on"
        );
        assert_eq!(state.encode()[0], STATE_VERSION);
        state
    }

    fn is_proposed(answer: &Result<Answer, Refusal>, by: &str) -> bool {
        matches!(answer, Err(Refusal::SecondApprovalNeeded { by: found, is_other: false, .. })
            if found.to_string() == by)
    }

    #[test]
    fn the_same_request_of_another_principal_is_carried_out_and_of_the_same_one_is_not() {
        let mut state = guarded();
        for command in [Command::Move { group: group(), step: Step::Stop }, put(false)] {
            for _ in 0..2 {
                let asked = ask(&mut state, "user:alice", command.clone());
                assert!(is_proposed(&asked, "user:alice"), "{asked:?}");
            }
            assert_eq!(ask(&mut state, "user:bob", command), Ok(Answer::Done));
        }
        // It is off: one is enough, and nothing of it is left.
        assert_eq!(ask(&mut state, "user:alice", put(false)), Ok(Answer::Done));
        assert_eq!(state.encode()[0], STATE_VERSION - 1);
    }

    #[test]
    fn a_different_request_takes_no_others_proposals_place() {
        let mut state = guarded();
        let delete = Command::Delete { group: group() };
        let asked = ask(&mut state, "user:alice", delete.clone());
        assert!(is_proposed(&asked, "user:alice"), "{asked:?}");
        let other = ask(&mut state, "user:bob", put(false));
        assert!(
            matches!(other, Err(Refusal::SecondApprovalNeeded { is_other: true, .. })),
            "{other:?}"
        );
        // Its own maker may ask for something else, and then that is what waits.
        let asked = ask(&mut state, "user:alice", put(false));
        assert!(is_proposed(&asked, "user:alice"), "{asked:?}");
        let late = ask(&mut state, "user:bob", delete);
        assert!(
            matches!(late, Err(Refusal::SecondApprovalNeeded { is_other: true, .. })),
            "{late:?}"
        );
        assert_eq!(ask(&mut state, "user:bob", put(false)), Ok(Answer::Done));
    }

    #[test]
    fn a_proposal_ends_with_its_time_and_with_its_makers_right() {
        let mut state = guarded();
        let delete = Command::Delete { group: group() };
        assert!(ask(&mut state, "user:alice", delete.clone()).is_err());
        let wait = state.waits().next().unwrap();
        assert_eq!((wait.kind, wait.for_ms), (WaitKind::Approval, APPROVAL_MS));
        let elapsed = |since| Command::Elapsed { group: group(), kind: WaitKind::Approval, since };
        let early = Entry::bare(elapsed(Revision(wait.since.0 + 1)));
        assert_eq!(state.apply(early).answer, Ok(Answer::Overtaken));
        assert_eq!(state.apply(Entry::bare(elapsed(wait.since))).answer, Ok(Answer::Done));
        assert!(state.waits().next().is_none());
        let asked = ask(&mut state, "user:bob", delete.clone());
        assert!(is_proposed(&asked, "user:bob"), "{asked:?}");
        // Bob is dismissed before Carol agrees with him.
        bind(&mut state, &["user:alice", "user:carol"]);
        let asked = ask(&mut state, "user:carol", delete.clone());
        assert!(is_proposed(&asked, "user:carol"), "{asked:?}");
        assert_eq!(ask(&mut state, "user:alice", delete), Ok(Answer::Done));
    }

    #[test]
    fn what_has_no_principal_is_refused_and_one_machine_is_one_principal() {
        let mut state = guarded();
        let delete = Command::Delete { group: group() };
        let nobody = state.apply(Entry::bare(delete.clone())).answer;
        assert_eq!(nobody, Err(Refusal::NobodyToApprove { group: group() }));
        assert!(ask(&mut state, "local:root", delete.clone()).is_err());
        let asked = ask(&mut state, "local:1000", delete.clone());
        assert!(is_proposed(&asked, "local:root"), "{asked:?}");
        assert_eq!(ask(&mut state, "user:alice", delete), Ok(Answer::Done));
        let mut open = State::new(Settings::default());
        let nobody = open.apply(Entry::bare(put(true))).answer;
        assert_eq!(nobody, Err(Refusal::NobodyToApprove { group: group() }));
    }

    #[test]
    fn what_a_rule_refuses_leaves_the_proposal_open_and_the_rest_needs_one() {
        let mut state = guarded();
        let down = |immediate| Command::StepDown {
            group: group(),
            reason: Reason::new("x").unwrap(),
            to: None,
            immediate,
        };
        let one = ask(&mut state, "user:alice", down(false));
        assert_eq!(one, Err(Refusal::NobodyLeads { group: group() }));
        assert!(is_proposed(&ask(&mut state, "user:alice", down(true)), "user:alice"));
        for _ in 0..2 {
            let two = ask(&mut state, "user:bob", down(true));
            assert_eq!(two, Err(Refusal::NobodyLeads { group: group() }));
        }
        let kept = state.clone().reborn(0, 0, crate::term::Term::NONE).unwrap();
        assert!(kept.waits().next().is_none(), "a restored store knows no proposals");
        assert!(kept.policy(&group()).four_eyes);
    }
}
