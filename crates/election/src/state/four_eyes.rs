//! Four eyes: what two principals must ask for (semantics 38).
//!
//! In a group whose policy says `four_eyes`, the first request that `needs_two` names is only noted: who
//! asked, and the digest of exactly what. The very same request of another principal, with the right for it, is carried
//! out. Time is counted by the driver, as every wait is: after ten minutes it proposes `Elapsed` and the proposal goes.
//!
//! Every principal has one place in a group, for at most [`PROPOSALS_PER_GROUP_MAX`] of them, so nobody can keep another
//! from proposing. Whoever made a proposal may replace it by another of their own, which has the time that is left of the
//! first one: nobody holds a place for longer by asking again. Two principals that fill all places need to block nobody:
//! together they can do everything.
//!
//! A command that would change nothing, or that a rule refuses whoever asks, needs no second principal. So who repeats
//! the steps of another, as `regent migrate` does, passes what is done already and confirms what is not.
//!
//! Two users of the replica's own machine count as one: who is root there is both.
//!
//! The road not taken: keeping the right of the proposed command beside its digest. A proposal is only compared with a
//! command of the same digest, and then that command tells the right by which its maker is judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{State, Turn, VerbResult, weight};
use crate::access::Principal;
use crate::codec::{CodecError, Input, Wire, malformed};
use crate::command::{Command, WaitKind};
use crate::door::{Door, Step};
use crate::limits::{APPROVAL_MS, PROPOSALS_PER_GROUP_MAX};
use crate::name::Group;
use crate::outcome::{Effect, Refusal};
use crate::state::Wait;
use crate::term::Revision;

/// What waits for a second principal: by its group, and the revision at which its place was taken. That revision names
/// the proposal for people and for the driver that times it.
pub(super) type Proposals = BTreeMap<(Group, Revision), Proposal>;

/// What one principal asked for, and waits for another to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    /// Who asked, and is charged.
    pub(super) who: Arc<Principal>,
    /// Of the bytes of the command. Not a print as for request ids: somebody could look for another command that has
    /// the same one.
    digest: CommandDigest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandDigest([u8; 32]);

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

impl Proposal {
    /// Whether this principal is another one than the proposal's.
    fn is_by_other(&self, who: &Principal) -> bool {
        match (&*self.who, who) {
            (Principal::Local(_), Principal::Local(_)) => false,
            (one, other) => one != other,
        }
    }
}

/// What the driver times for a proposal.
pub(super) fn approval_wait((group, since): &(Group, Revision)) -> Wait {
    let (group, kind) = (group.clone(), WaitKind::Approval);
    Wait { group, kind, since: *since, for_ms: APPROVAL_MS }
}

impl State {
    /// Runs a command, if nobody else must ask for it or somebody else has. What a rule then refuses leaves the
    /// proposal open.
    pub(super) fn run_approved(&mut self, turn: &mut Turn, command: Command) -> VerbResult {
        let approved = self.approve(turn, &command)?;
        let ran = self.run(turn, command)?;
        if let Some((group, digest)) = approved {
            self.drop_proposals(turn, &group, |proposal| proposal.digest == digest);
        }
        Ok(ran)
    }

    /// The proposals that this command confirms; none if it needs no second principal.
    fn approve(
        &mut self,
        turn: &mut Turn,
        command: &Command,
    ) -> Result<Option<(Group, CommandDigest)>, Refusal> {
        let Some(group) = command.group().filter(|_| self.needs_two(command)) else {
            return Ok(None);
        };
        let Some(who) = turn.who.clone() else {
            return Err(Refusal::NobodyToApprove { group: group.clone() });
        };
        let digest = CommandDigest::of(command);
        if self.is_proposed_by_other(group, &who, command, &digest) {
            return Ok(Some((group.clone(), digest)));
        }
        let refusal = |proposal: Revision, by: &Principal, is_other: bool| {
            let (group, by) = (group.clone(), Box::new(by.clone()));
            Refusal::SecondApprovalNeeded { group, proposal, by, is_other }
        };
        let own = self.proposals_of(group).find(|(_, open)| !open.is_by_other(&who));
        let since = match own {
            Some((since, own)) if own.digest == digest => {
                return Err(refusal(since, &own.who, false));
            }
            Some((since, _)) => since,
            None => {
                let oldest = self.proposals_of(group).next();
                if let Some((since, oldest)) = oldest.filter(|_| !self.has_place(group)) {
                    return Err(refusal(since, &oldest.who, true));
                }
                let since = turn.revision;
                let wait = approval_wait(&(group.clone(), since));
                let Wait { group, kind, since, for_ms } = wait;
                turn.effects.push(Effect::Wait { group, kind, since, for_ms });
                since
            }
        };
        let refusal = refusal(since, &who, false);
        let payer = Some(Arc::clone(&who));
        let replaced = self.proposals.insert((group.clone(), since), Proposal { who, digest });
        self.proposal_has_gone(replaced);
        self.accounts.charge(&payer, weight::PROPOSAL);
        Err(refusal)
    }

    /// Whether two principals must ask for it: it is about a group whose policy says so, known or not, and would change
    /// something that hurts. What opens a group again, or lets it arrive, needs one: two have closed it.
    fn needs_two(&self, command: &Command) -> bool {
        let Some(group) = command.group() else { return false };
        if !self.policy(group).four_eyes {
            return false;
        }
        let state = self.groups.get(group);
        match command.plain() {
            Command::StepDown { immediate, .. } => *immediate && state.is_some(),
            Command::PutPolicy { policy, .. } => state.is_none_or(|it| it.policy != *policy),
            Command::Delete { .. } => state.is_some_and(|state| !state.doomed),
            Command::Move { step, .. } => match (step, self.door(group)) {
                (Step::Expect { .. }, Door::Open | Door::Moved { .. })
                | (Step::Depart { .. }, Door::Open | Door::Expected { .. })
                | (Step::Stop, Door::Open) => true,
                // They are refused, or have been taken before.
                (Step::Expect { .. }, Door::Expected { .. } | Door::Stopped { .. })
                | (Step::Depart { .. }, Door::Moved { .. } | Door::Stopped { .. })
                | (Step::Stop, Door::Expected { .. } | Door::Moved { .. } | Door::Stopped { .. })
                | (Step::Arrive { .. } | Step::Resume { .. }, _) => false,
            },
            Command::Open { .. }
            | Command::ChangeTtl { .. }
            | Command::Close { .. }
            | Command::Expire { .. }
            | Command::Campaign { .. }
            | Command::Withdraw { .. }
            | Command::Accept { .. }
            | Command::Resign { .. }
            | Command::Offer { .. }
            | Command::Warm { .. }
            | Command::Transfer { .. }
            | Command::Admit { .. }
            | Command::ForgetFence { .. }
            | Command::Report { .. }
            | Command::Relieve { .. }
            | Command::PutSettings { .. }
            | Command::PutBindings { .. }
            | Command::CreateToken { .. }
            | Command::RevokeToken { .. }
            | Command::As { .. }
            | Command::Elapsed { .. }
            | Command::Refill { .. } => false,
        }
    }

    /// Whether a command would take a place for a proposal: for the budget of the state.
    pub(super) fn takes_place(&self, who: &Principal, command: &Command) -> bool {
        let Some(group) = command.group().filter(|_| self.needs_two(command)) else { return false };
        let digest = CommandDigest::of(command);
        self.proposals_of(group).all(|(_, open)| open.is_by_other(who))
            && self.has_place(group)
            && !self.is_proposed_by_other(group, who, command, &digest)
    }

    /// Whether another principal, which still has the right for it, has asked for this very command.
    fn is_proposed_by_other(
        &self,
        group: &Group,
        who: &Principal,
        command: &Command,
        digest: &CommandDigest,
    ) -> bool {
        self.proposals_of(group).any(|(_, open)| {
            open.digest == *digest && open.is_by_other(who) && self.may(&open.who, command).is_ok()
        })
    }

    fn has_place(&self, group: &Group) -> bool {
        self.proposals_of(group).count() < PROPOSALS_PER_GROUP_MAX
    }

    /// The proposals of a group, the oldest first.
    fn proposals_of(&self, group: &Group) -> impl Iterator<Item = (Revision, &Proposal)> {
        let (first, last) = ((group.clone(), Revision(0)), (group.clone(), Revision(u64::MAX)));
        self.proposals.range(first..=last).map(|((_, since), proposal)| (*since, proposal))
    }

    /// Drops proposals of a group, and tells the driver to time them no longer: whoever proposes and confirms again
    /// and again must not fill its memory.
    fn drop_proposals(&mut self, turn: &mut Turn, group: &Group, goes: impl Fn(&Proposal) -> bool) {
        let gone = self.proposals_of(group).filter(|(_, open)| goes(open)).map(|(since, _)| since);
        for since in gone.collect::<Vec<_>>() {
            let gone = self.proposals.remove(&(group.clone(), since));
            self.proposal_has_gone(gone);
            let (group, kind) = (group.clone(), WaitKind::Approval);
            turn.effects.push(Effect::WaitDropped { group, kind, since });
        }
    }

    /// The group is gone, and all that was proposed about it.
    pub(super) fn drop_all_proposals(&mut self, turn: &mut Turn, group: &Group) {
        self.drop_proposals(turn, group, |_| true);
    }

    /// Its ten minutes are over; whether it was still open.
    pub(super) fn drop_proposal(&mut self, group: &Group, since: Revision) -> bool {
        let gone = self.proposals.remove(&(group.clone(), since));
        self.proposal_has_gone(gone)
    }

    /// Nobody is charged for a proposal that is not there any more; whether there was one.
    fn proposal_has_gone(&mut self, gone: Option<Proposal>) -> bool {
        let payer = gone.map(|proposal| proposal.who);
        self.accounts.release(&payer, weight::PROPOSAL);
        payer.is_some()
    }

    /// Whether some policy asks for two principals.
    pub(super) fn wants_two(&self) -> bool {
        let wants = |policy: &crate::policy::Policy| policy.four_eyes;
        wants(&self.settings.default_policy)
            || self.groups.iter().any(|(_, state)| state.policy.as_deref().is_some_and(wants))
    }

    /// Whether each proposal is about a group that is known, and the only one there.
    pub(super) fn has_plain_proposals(&self) -> bool {
        let groups = || self.proposals.keys().map(|(group, _)| group);
        groups().all(|group| self.groups.get(group).is_some())
            && groups().zip(groups().skip(1)).all(|(one, next)| one != next)
    }

    /// What must be true of all proposals.
    pub(super) fn check_proposals(&self) -> Result<(), String> {
        for ((group, _), Proposal { who, .. }) in &self.proposals {
            if self.proposals_of(group).nth(PROPOSALS_PER_GROUP_MAX).is_some() {
                return Err(format!("{group} has more than {PROPOSALS_PER_GROUP_MAX} proposals"));
            }
            let own = self.proposals_of(group).filter(|(_, open)| !open.is_by_other(who));
            if own.count() > 1 {
                return Err(format!("{who} has two proposals in {group}"));
            }
        }
        Ok(())
    }

    pub(super) fn put_proposals(&self, out: &mut Vec<u8>) {
        (self.proposals.len() as u64).put(out);
        for ((group, since), Proposal { who, digest }) in &self.proposals {
            group.put(out);
            who.put(out);
            digest.put(out);
            since.put(out);
        }
    }

    pub(super) fn take_proposals(&mut self, input: &mut Input<'_>) -> Result<(), CodecError> {
        for _ in 0..input.count("proposals")? {
            let group = Group::take(input)?;
            let who = self.accounts.intern(Principal::take(input)?);
            let digest = CommandDigest::take(input)?;
            let key = (group, Revision::take(input)?);
            if self.proposals.keys().next_back().is_some_and(|last| *last >= key) {
                return Err(malformed("proposals")("they are out of order, or one is named twice"));
            }
            self.accounts.charge(&Some(Arc::clone(&who)), weight::PROPOSAL);
            self.proposals.insert(key, Proposal { who, digest });
        }
        self.check_proposals().map_err(malformed("proposals"))
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

    fn group() -> Group {
        Group::new("billing").unwrap()
    }

    fn ask(state: &mut State, who: &str, command: Command) -> Result<Answer, Refusal> {
        let applied = state.apply(Entry::bare(command.on_behalf_of(who.parse().unwrap(), None)));
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
        assert_eq!(state.encode()[0], crate::state::STATE_VERSION, "alice is charged for it");
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
        assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
        assert!(state.waits().next().is_none());
    }

    #[test]
    fn a_different_request_takes_no_others_proposals_place() {
        let mut state = guarded();
        let delete = Command::Delete { group: group() };
        let asked = ask(&mut state, "user:alice", delete.clone());
        assert!(is_proposed(&asked, "user:alice"), "{asked:?}");
        let since = state.waits().next().unwrap().since;
        let other = ask(&mut state, "user:bob", put(false));
        assert!(is_proposed(&other, "user:bob"), "in a place of its own: {other:?}");
        assert_eq!(state.encode()[0], crate::state::STATE_VERSION);
        // Its own maker may ask for something else: that waits, for no longer than the first.
        let down = Command::Move { group: group(), step: Step::Stop };
        let asked = ask(&mut state, "user:alice", down.clone());
        assert!(is_proposed(&asked, "user:alice"), "{asked:?}");
        assert!(state.waits().any(|wait| wait.since == since));
        assert_eq!(state.waits().count(), 2);
        let late = ask(&mut state, "user:carol", delete);
        assert!(is_proposed(&late, "user:carol"), "alice asks for that no longer: {late:?}");
        assert_eq!(ask(&mut state, "user:bob", down), Ok(Answer::Done));
        assert_eq!(ask(&mut state, "user:carol", put(false)), Ok(Answer::Done), "bob's");
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
