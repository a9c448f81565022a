//! Access: who may do what, as the applied state says (semantics 37).
//!
//! Promise kept here (S11): a command of an authenticated caller is judged by the bindings at its own place in the
//! log. Whatever a server thought of the caller before, a binding that was taken away first counts first. What a
//! session holds is its owner's: nobody else can use the session, whoever learned its id.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::session::Session;
use super::{Rest, State, Turn, VerbResult, done};
use crate::access::{
    AccessError, AccessTable, AccessView, Binding, Bindings, CredentialFlaw, Extent, Principal,
    Request, Right, SecretDigest, SessionOwner, TokenId, TokenLabel, TokenRecord, judge,
};
use crate::command::{Command, Opening};
use crate::limits::TOKENS_MAX;
use crate::name::{Group, Node, SessionId, SessionNo};
use crate::outcome::{Answer, Cause, Refusal};

/// Whether a session leads or stands in the group that a command names, if it names one.
fn holds(session: &Session, command: &Command) -> bool {
    let is_there = |group| session.leads.contains(group) || session.stands.contains(group);
    command.group().is_none_or(is_there)
}

impl State {
    /// The bindings and the tokens.
    #[must_use]
    pub fn access(&self) -> &Arc<AccessTable> {
        &self.access
    }

    /// Who may do what, and whose a session is.
    pub(super) fn access_view(&self, session: Option<SessionId>) -> AccessView {
        let found = session.and_then(|id| self.sessions.get(self.by_secret.get(&id)?));
        let session = found.map(|session| SessionOwner {
            node: session.node.clone(),
            owner: session.owner.as_deref().cloned(),
        });
        AccessView { table: Arc::clone(&self.access), session, may_be_old: false, live: None }
    }

    /// Whether whoever asks for a command, if that is known, may have it applied now: by a token that is not revoked,
    /// and with the right for it. With one that is revoked an owner of a session can give up what the session holds.
    ///
    /// The date at which a token expires is not looked at: it is a wall clock's affair, and no rule reads one.
    pub fn admits(&self, asked: &Command) -> Result<(), Refusal> {
        let Command::As { who, command } = asked else { return Ok(()) };
        let plain = command.get();
        if let Some(token) = command.token() {
            let record = self.access.token(token).filter(|record| record.principal == *who);
            let is_good = record.is_some_and(|record| !record.revoked);
            let may_give_up = plain.gives_up() && self.is_owner(who, plain);
            if !is_good && !may_give_up {
                return Err(Refusal::CredentialOver { flaw: CredentialFlaw::Revoked });
            }
        }
        self.may(who, plain)
    }

    /// Whether the session that a command names is open and of this principal.
    fn is_owner(&self, who: &Principal, command: &Command) -> bool {
        let open = command.session().and_then(|id| self.sessions.get(self.by_secret.get(&id)?));
        open.is_some_and(|session| session.owner.as_deref() == Some(who))
    }

    /// Whether `who` may have this command applied now.
    pub fn may(&self, who: &Principal, command: &Command) -> Result<(), Refusal> {
        let open = command.session().and_then(|id| self.sessions.get(self.by_secret.get(&id)?));
        match open.map(|session| session.owner.as_deref()) {
            Some(Some(owner)) if owner != who => return Err(Refusal::SessionOfAnother),
            // What somebody holds it may always give up. Where it holds nothing it is judged like everybody: the
            // refusal of a resignation names the leader.
            Some(Some(_)) if command.gives_up() && open.is_some_and(|it| holds(it, command)) => {
                return Ok(());
            }
            // One that was opened without authentication is anybody's who may stand under its name.
            Some(Some(_) | None) | None => {}
        }
        let named = if let Command::Open { node, .. }
        | Command::Campaign { opening: Some(Opening { node, .. }), .. } = command
        {
            Some(node)
        } else {
            None
        };
        let node = open.map(|session| &session.node).or(named);
        let right = command.right();
        let extent = match command.group() {
            Some(group) => Extent::Group(group),
            None if right == Right::Stand => Extent::SomeGroup,
            None => Extent::Cluster,
        };
        judge(self.access.bindings(), Request { who, right, extent, node })?;
        Ok(())
    }

    /// Replaces the bindings. Whoever may no longer stand leaves the lines, and is told to stop where it leads.
    pub(super) fn put_bindings(&mut self, expected: u64, list: Vec<Binding>) -> VerbResult {
        let version = self.access.bindings.version();
        if expected != version {
            return Err(Refusal::BindingsChanged { expected, version });
        }
        if list == self.access.bindings.list() {
            return done();
        }
        let bindings = Bindings::new(version + 1, list)?;
        Arc::make_mut(&mut self.access).bindings = Arc::new(bindings);
        let mut concerned = BTreeSet::new();
        for session in self.sessions.values().filter(|session| session.owner.is_some()) {
            concerned.extend(session.leads.iter().chain(&session.stands).cloned());
        }
        Ok((Answer::Done, Rest::Rebind(concerned.into_iter().rev().collect())))
    }

    /// Brings one group in line with changed bindings.
    pub(super) fn rebind(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.get(group) else { return };
        let leader_may = state.office.tenure().is_none_or(|it| self.may_stand(it.session, group));
        let misfits: BTreeSet<SessionNo> = state
            .line
            .iter()
            .map(|standby| standby.session)
            .filter(|session| !self.may_stand(*session, group))
            .collect();
        if !misfits.is_empty() {
            self.dismiss(turn, group, |session| !misfits.contains(&session));
            self.prefer(turn, group);
        }
        if !leader_may {
            self.begin_ending(turn, group, Cause::Policy, None);
        }
    }

    /// Whether a session's owner may stand here, under the session's name. A session without an owner was opened
    /// without authentication, and no binding is about it.
    fn may_stand(&self, session: SessionNo, group: &Group) -> bool {
        let Some(session) = self.sessions.get(&session) else { return true };
        let Some(who) = session.owner.as_deref() else { return true };
        let extent = Extent::Group(group);
        let node: Option<&Node> = Some(&session.node);
        judge(self.access.bindings(), Request { who, right: Right::Stand, extent, node }).is_ok()
    }

    pub(super) fn create_token(
        &mut self,
        turn: &Turn,
        token: TokenId,
        digest: SecretDigest,
        principal: Principal,
        expires_ms: Option<u64>,
        label: TokenLabel,
    ) -> VerbResult {
        match principal {
            Principal::Node(_) | Principal::User(_) => {}
            Principal::Replica(_) | Principal::Local(_) => {
                return Err(AccessError::NoTokenFor(principal).into());
            }
        }
        if let Some(known) = self.access.token(token) {
            let is_same = known.digest == digest && known.principal == principal;
            return if is_same { done() } else { Err(Refusal::TokenExists { token }) };
        }
        let is_full = self.access.tokens.len() >= TOKENS_MAX;
        let revoked = self.access.tokens().filter(|(_, record)| record.revoked);
        // The oldest one: its bearer has had the longest time to give up what it held.
        let spare = revoked.min_by_key(|(id, record)| (record.created_ms, *id)).map(|(id, _)| id);
        if is_full && spare.is_none() {
            return Err(Refusal::Full { what: "the table of tokens", max: TOKENS_MAX as u64 });
        }
        let tokens = &mut Arc::make_mut(&mut self.access).tokens;
        if let Some(spare) = spare.filter(|_| is_full) {
            tokens.remove(&spare);
        }
        let created_ms = turn.wall_ms;
        tokens.insert(
            token,
            TokenRecord { digest, principal, label, created_ms, expires_ms, revoked: false },
        );
        done()
    }

    pub(super) fn revoke_token(&mut self, token: TokenId) -> VerbResult {
        let tokens = &mut Arc::make_mut(&mut self.access).tokens;
        match tokens.get_mut(&token) {
            None => Err(Refusal::TokenUnknown { token }),
            Some(record) => {
                record.revoked = true;
                done()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{NodeRule, Role};
    use crate::codec::{decode_entry, encode_entry};
    use crate::command::Entry;
    use crate::policy::Settings;

    fn who(text: &str) -> Principal {
        text.parse().unwrap()
    }

    fn bound(state: &mut State, names: &[&str]) {
        let bindings = names.iter().map(|name| Binding {
            who: name.parse().unwrap(),
            role: Role::Participant,
            groups: vec!["*".parse().unwrap()],
            nodes: vec![NodeRule::Own],
        });
        let expected_version = state.access().bindings().version();
        let put = Command::PutBindings { expected_version, bindings: bindings.collect() };
        state.apply(Entry::bare(put)).answer.unwrap();
    }

    fn open(session: u128, node: &str) -> Command {
        let (session, node) = (SessionId::new(session).unwrap(), Node::new(node).unwrap());
        Command::Open { session, node, ttl_ms: 10_000 }
    }

    fn ask(state: &mut State, name: &str, command: Command) -> Result<Answer, Refusal> {
        state.apply(Entry::bare(command.on_behalf_of(who(name), None))).answer
    }

    #[test]
    fn a_state_with_owners_survives_its_bytes_and_one_without_is_told_as_before() {
        let mut state = State::new(Settings::default());
        state.apply(Entry::bare(open(1, "a"))).answer.unwrap();
        assert_eq!(state.encode()[0], 1, "nothing of it is about access");
        bound(&mut state, &["node:a", "node:b"]);
        ask(&mut state, "node:b", open(2, "b")).unwrap();
        let bytes = state.encode();
        assert_eq!(bytes[0], 5, "no policy asks for two");
        let decoded = State::decode(&bytes).unwrap();
        assert_eq!(decoded, state);
        let view = decoded.access_view(SessionId::new(2).ok());
        assert_eq!(view.session.unwrap().owner, Some(who("node:b")));
        // A session of nobody goes to whoever may stand under its name.
        let close = Command::Close { session: SessionId::new(1).unwrap() };
        assert!(matches!(ask(&mut state, "node:b", close.clone()), Err(Refusal::Denied { .. })));
        assert_eq!(ask(&mut state, "node:a", close), Ok(Answer::Done));
        assert!(State::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn what_is_denied_is_judged_at_its_place_in_the_log_and_changes_nothing() {
        let mut state = State::new(Settings::default());
        bound(&mut state, &["node:a"]);
        let before = state.clone();
        for (name, command) in [
            ("node:a", open(1, "b")),
            ("node:b", open(1, "b")),
            ("node:a", Command::Delete { group: Group::new("g").unwrap() }),
            ("node:a", Command::PutBindings { expected_version: 1, bindings: Vec::new() }),
            // What only time may bring.
            ("local:root", Command::Expire { sessions: Vec::new() }),
        ] {
            let denied = ask(&mut state, name, command.clone());
            assert!(
                matches!(denied, Err(Refusal::Denied { .. })),
                "{name} {command:?}: {denied:?}"
            );
        }
        let mut expected = before;
        expected.leap(state.revision());
        assert_eq!(state, expected);
    }

    /// The refusal of a resignation names the leader and its term, and the end of a session is remembered.
    #[test]
    fn giving_up_what_one_does_not_hold_is_judged_like_everything_else() {
        let mut state = State::new(Settings::default());
        bound(&mut state, &["node:a"]);
        ask(&mut state, "node:a", open(1, "a")).unwrap();
        let (session, group) = (SessionId::new(1).unwrap(), Group::new("g").unwrap());
        let campaign = Command::Campaign {
            group: group.clone(),
            session,
            opening: None,
            if_lost: crate::command::IfLost::Stand,
            priority: 0,
            metadata: crate::name::Metadata::NONE,
        };
        ask(&mut state, "node:a", campaign).unwrap();
        bound(&mut state, &[]);
        let term = crate::term::Term::new(1).unwrap();
        let elsewhere = Group::new("secret").unwrap();
        let resign = |group: &Group| Command::Resign { group: group.clone(), session, term };
        let denied = ask(&mut state, "node:a", resign(&elsewhere));
        assert!(matches!(denied, Err(Refusal::Denied { .. })), "{denied:?}");
        let close = Command::Close { session: SessionId::new(99).unwrap() };
        let denied = ask(&mut state, "node:a", close);
        assert!(matches!(denied, Err(Refusal::Denied { .. })), "{denied:?}");
        assert_eq!(ask(&mut state, "node:a", resign(&group)), Ok(Answer::Done));
        let close = Command::Close { session };
        assert_eq!(ask(&mut state, "node:a", close), Ok(Answer::Done));
    }

    /// A server that has not applied the revocation yet may take the command: what counts is the log.
    #[test]
    fn a_command_is_judged_by_its_token_at_its_place_in_the_log() {
        let mut state = State::new(Settings::default());
        bound(&mut state, &["node:a", "node:b"]);
        let create = |number, name: &str| Command::CreateToken {
            token: TokenId(number),
            digest: Box::new(SecretDigest([0; 32])),
            principal: who(name),
            expires_ms: None,
            label: TokenLabel::new("").unwrap(),
        };
        let revoked = Err(Refusal::CredentialOver { flaw: CredentialFlaw::Revoked });
        for (number, name) in [(1, "node:a"), (2, "node:b")] {
            state.apply(Entry::bare(create(number, name))).answer.unwrap();
        }
        let by = |state: &mut State, name: &str, token, command: Command| {
            let entry = Entry::bare(command.on_behalf_of(who(name), Some(TokenId(token))));
            assert_eq!(decode_entry(&encode_entry(&entry)).as_ref(), Ok(&entry));
            state.apply(entry).answer
        };
        assert!(by(&mut state, "node:a", 1, open(1, "a")).is_ok());
        assert_eq!(by(&mut state, "node:a", 2, open(2, "a")), revoked, "it is of another");
        assert_eq!(by(&mut state, "node:a", 3, open(2, "a")), revoked, "there is none");
        state.apply(Entry::bare(Command::RevokeToken { token: TokenId(1) })).answer.unwrap();
        assert_eq!(by(&mut state, "node:a", 1, open(2, "a")), revoked);
        let close = |number| Command::Close { session: SessionId::new(number).unwrap() };
        assert_eq!(by(&mut state, "node:a", 1, close(9)), revoked, "what was never opened");
        assert_eq!(by(&mut state, "node:b", 2, close(1)), Err(Refusal::SessionOfAnother));
        assert_eq!(by(&mut state, "node:a", 1, close(1)), Ok(Answer::Done), "its own");
    }

    #[test]
    fn nobody_speaks_on_behalf_of_two() {
        let once = open(1, "a").on_behalf_of(who("node:a"), None);
        assert_eq!(once.clone().on_behalf_of(who("node:b"), None), once);
        let entry = Entry::bare(once);
        let bytes = encode_entry(&entry);
        assert_eq!(decode_entry(&bytes).unwrap(), entry);
        // Version, tag of `As`, and the principal once more before the command.
        let principal = &bytes[1..1 + 1 + 1 + "node:a".len()];
        let nested: Vec<u8> = [&bytes[..1], principal, &bytes[1..]].concat();
        assert!(decode_entry(&nested).unwrap_err().to_string().contains("two principals"));
        let token: Vec<u8> = [255].into_iter().chain(7_u64.to_le_bytes()).collect();
        let nested: Vec<u8> = [&bytes[..1], principal, &token, &bytes[1..]].concat();
        assert!(decode_entry(&nested).unwrap_err().to_string().contains("two principals"));
    }

    #[test]
    fn a_full_table_of_tokens_forgets_the_oldest_that_was_revoked() {
        let mut state = State::new(Settings::default());
        let create = |state: &mut State, number: u64| {
            let create = Command::CreateToken {
                token: TokenId(number),
                digest: Box::new(SecretDigest([0; 32])),
                principal: who("user:a"),
                expires_ms: None,
                label: TokenLabel::new("").unwrap(),
            };
            let entry = Entry { wall_ms: 10_000 - number, ..Entry::bare(create) };
            state.apply(entry).answer
        };
        for number in 0..TOKENS_MAX as u64 {
            create(&mut state, number).unwrap();
        }
        assert!(matches!(create(&mut state, 5000), Err(Refusal::Full { .. })));
        for number in [7, 9] {
            let revoke = Command::RevokeToken { token: TokenId(number) };
            state.apply(Entry::bare(revoke)).answer.unwrap();
        }
        create(&mut state, 5000).unwrap();
        let is_kept = |number| state.access().token(TokenId(number)).is_some();
        assert!(is_kept(7) && !is_kept(9) && is_kept(5000), "9 was made before 7");
    }
}
