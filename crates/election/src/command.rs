//! What can be asked of the state machine. Everything that changes state is one of these.
//!
//! Time enters only here: the store's driver measures and proposes [`Command::Expire`] and
//! [`Command::Elapsed`]; the state machine itself never knows what time it is. What all commands are
//! asked, whoever wants to know, is in `table`; their tags in the log and their names are below the enum.

mod table;

use std::fmt;

use crate::access::{Binding, Principal, SecretDigest, TokenId, TokenLabel};
use crate::codec::{CodecError, Input, Wire, malformed, wire_enum};
use crate::door::Step;
use crate::name::{Group, Metadata, Node, Reason, RequestId, Resource, SessionId, SessionNo};
use crate::policy::{Policy, Priority, Settings};
use crate::term::{Revision, Term};

pub use table::{Adds, Frees, Grows, Promotes, Repeats};

/// One command with what travels beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What to do.
    pub command: Command,
    /// Makes a repeat take effect once (semantics 19).
    pub request: Option<RequestId>,
    /// Sessions that have not been heard for half their ttl, among the standbys concerned. They are
    /// passed over when an office is filled (semantics 12). Sorted.
    pub silent: Vec<SessionNo>,
    /// The proposer's wall clock in milliseconds since 1970: a note for people in the history. No
    /// rule reads it.
    pub wall_ms: u64,
}

impl Entry {
    /// A command alone: no request id, nobody silent, no note.
    #[must_use]
    pub const fn bare(command: Command) -> Self {
        Self { command, request: None, silent: Vec::new(), wall_ms: 0 }
    }
}

/// What a campaign's loser does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLost {
    /// It stands in line until it withdraws or its session ends.
    Stand,
    /// It leaves nothing behind: no standby, and no session that this campaign opened.
    Leave,
}

/// How to open the session of a campaign, if it is not open yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The participant's label.
    pub node: Node,
    /// How long the session lives unheard; none means the default, or that of the session if it is
    /// open already. One that is given must equal the open session's.
    pub ttl_ms: Option<u64>,
    /// Whether the session ends by itself once it neither leads nor stands: one that the caller
    /// never asked for must not linger.
    pub passing: bool,
}

/// What a wait in a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// The office stays empty for the policy's lock delay.
    LockDelay,
    /// The holder was told to stop and has one ttl to say that it did.
    Ending,
    /// A promoted session has a third of its ttl to accept.
    Acceptance,
    /// The leader is left alone until its minimum tenure is served.
    MinimumTenure,
    /// A proposal waits for its second principal.
    Approval,
}

impl WaitKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::LockDelay, Self::Ending, Self::Acceptance, Self::MinimumTenure, Self::Approval];

    /// The word for files and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::LockDelay => "lock_delay",
            Self::Ending => "ending",
            Self::Acceptance => "acceptance",
            Self::MinimumTenure => "minimum_tenure",
            Self::Approval => "approval",
        }
    }
}

/// What can be found out about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// Somebody acts under a term that is not the one in office.
    SplitBrain,
    /// A fence refused a term that was over.
    StaleAttempt,
    /// The leader's renewal came when little of its term was left.
    NearMiss,
    /// The leader's renewals come later and later: they are about to come too late.
    Failing,
}

impl Finding {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::SplitBrain, Self::StaleAttempt, Self::NearMiss, Self::Failing];

    /// The word for files and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SplitBrain => "split_brain",
            Self::StaleAttempt => "stale_attempt",
            Self::NearMiss => "near_miss",
            Self::Failing => "failing",
        }
    }
}

/// Everything that can change the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a session; repeated with the same secret, node and ttl it answers the same session.
    Open {
        /// The new session's secret.
        session: SessionId,
        /// The participant's label.
        node: Node,
        /// How long it lives unheard.
        ttl_ms: u64,
    },
    /// Changes a session's ttl (semantics 7).
    ChangeTtl {
        session: SessionId,
        /// The new ttl.
        ttl_ms: u64,
    },
    /// Ends a session by its owner's wish: all its tenures end as resigned.
    Close { session: SessionId },
    /// Ends sessions that were not heard in time. Proposed by the store's driver only.
    Expire {
        /// Which; those already gone are passed over.
        sessions: Vec<SessionNo>,
    },
    /// Wins a vacant office, or stands in line, or leaves.
    Campaign {
        group: Group,
        session: SessionId,
        /// How to open the session if it is not open.
        opening: Option<Opening>,
        /// What the loser does.
        if_lost: IfLost,
        /// Its claim in the line.
        priority: Priority,
        /// What it tells the world as leader; fixed for the length of the tenure.
        metadata: Metadata,
    },
    /// Leaves the line, or the office.
    Withdraw { group: Group, session: SessionId },
    /// A promoted session says that it knows and will act.
    Accept {
        group: Group,
        session: SessionId,
        /// The term it was promoted to.
        term: Term,
    },
    /// The leader has stopped and gives the office up; also confirms the end of an ending tenure.
    Resign {
        group: Group,
        session: SessionId,
        /// The term it held.
        term: Term,
    },
    /// First step of a hand-over: the leader goes on leading, `to` is asked to get warm.
    Offer {
        group: Group,
        session: SessionId,
        term: Term,
        /// The standby meant.
        to: Node,
    },
    /// The standby of an offer says that it is warm.
    Warm {
        group: Group,
        session: SessionId,
        /// The term of the leader that offered.
        term: Term,
    },
    /// The leader has stopped and hands the office to a named standby.
    Transfer { group: Group, session: SessionId, term: Term, to: Node },
    /// An administrator ends a tenure.
    StepDown {
        group: Group,
        /// Why, for the history.
        reason: Reason,
        /// Who shall follow, if anybody in particular.
        to: Option<Node>,
        /// Whether to skip the wait for the holder: two may act for a while, and only fencing
        /// protects then.
        immediate: bool,
    },
    /// Creates a group or changes its policy; `None` returns it to the default policy.
    PutPolicy {
        group: Group,
        /// Its new policy.
        policy: Option<Box<Policy>>,
    },
    /// Ends a group; the store-wide floor keeps its terms from coming back.
    Delete { group: Group },
    /// One step of a group's move between two stores (semantics 34).
    Move { group: Group, step: Step },
    /// Admits a term at a resource and raises its fence, or refuses it: one step (S3).
    Admit {
        group: Group,
        /// Where it is to be admitted.
        resource: Resource,
        term: Term,
    },
    /// Forgets a resource's fence; no term it refused is ever admitted.
    ForgetFence { group: Group, resource: Resource },
    /// Notes something that was found out about a group: who leads does not change.
    Report {
        group: Group,
        /// What was found.
        finding: Finding,
        /// Who did what, for the history.
        reason: Reason,
    },
    /// Asks the holder of a term to hand over to a standby; it leads on until it does. Without effect if its office
    /// is on offer already.
    Relieve {
        group: Group,
        /// The term that is meant: a later leader is left alone.
        term: Term,
        /// The standby that shall follow.
        to: Node,
        /// Why, for the history.
        reason: Reason,
    },
    /// Changes what holds for the whole store.
    PutSettings {
        /// The new settings.
        settings: Box<Settings>,
    },
    /// Replaces all bindings of principals to roles.
    PutBindings {
        /// The version that the change was made from; another one refuses it.
        expected_version: u64,
        bindings: Vec<Binding>,
    },
    /// Makes a token known. Only a digest of its secret is.
    CreateToken {
        token: TokenId,
        /// Boxed: it would make every command larger.
        digest: Box<SecretDigest>,
        /// Whom its bearer is.
        principal: Principal,
        /// When servers begin to refuse it, by their wall clocks.
        expires_ms: Option<u64>,
        /// What people note about it.
        label: TokenLabel,
    },
    /// Makes a token useless, but for giving up what its bearer holds.
    RevokeToken { token: TokenId },
    /// A command of an authenticated caller: it is judged by the bindings as they are when it is applied, and a
    /// session that it opens is the caller's (semantics 37).
    As {
        /// Who asks.
        who: Principal,
        /// For what.
        command: OnBehalf,
    },
    /// A wait is over. Proposed by the store's driver only; without effect if the wait has changed.
    Elapsed {
        group: Group,
        kind: WaitKind,
        /// The revision at which it began.
        since: Revision,
    },
    /// A session that was silent is heard again: vacant offices it stands for may be filled.
    /// Proposed by the store's driver only.
    Refill { session: SessionNo },
}

/// A command of an authenticated caller. It is never itself one on behalf of somebody else: the bytes of such a
/// nesting are refused, so that reading them takes no more stack than reading a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnBehalf {
    /// The token that was shown, if any: one that is revoked where the command is applied counts for nothing.
    token: Option<TokenId>,
    command: Box<Command>,
}

impl OnBehalf {
    pub(crate) const fn get(&self) -> &Command {
        &self.command
    }

    pub(crate) const fn token(&self) -> Option<TokenId> {
        self.token
    }
}

impl Command {
    /// This command as an authenticated caller asks for it. One that is on behalf of somebody already stays so: nobody
    /// can speak in another's name.
    #[must_use]
    pub fn on_behalf_of(self, who: Principal, token: Option<TokenId>) -> Self {
        match self {
            Self::As { .. } => self,
            command => {
                let command = OnBehalf { token, command: Box::new(command) };
                Self::As { who, command }
            }
        }
    }

    /// Who asks, if it is known, and for what.
    #[must_use]
    pub fn into_parts(self) -> (Option<Principal>, Self) {
        match self {
            Self::As { who, command } => (Some(who), *command.command),
            command => (None, command),
        }
    }

    /// What is asked for, whoever asks.
    #[must_use]
    pub fn plain(&self) -> &Self {
        match self {
            Self::As { command, .. } => command.get(),
            command => command,
        }
    }

    /// How many elements its lists have: each takes more memory than it has bytes. What is a bounded text has none.
    #[must_use]
    pub fn elements(&self) -> usize {
        let of_policy = |policy: &Policy| policy.allow.len() + policy.priorities.len();
        match self.plain() {
            Self::Expire { sessions } => sessions.len(),
            Self::Campaign { metadata, .. } => metadata.iter().count(),
            Self::PutPolicy { policy, .. } => policy.as_deref().map_or(0, of_policy),
            Self::PutSettings { settings } => of_policy(&settings.default_policy),
            Self::PutBindings { bindings, .. } => {
                bindings.iter().map(|one| 1 + one.groups.len() + one.nodes.len()).sum()
            }
            Self::Open { .. }
            | Self::ChangeTtl { .. }
            | Self::Close { .. }
            | Self::Withdraw { .. }
            | Self::Accept { .. }
            | Self::Resign { .. }
            | Self::Offer { .. }
            | Self::Warm { .. }
            | Self::Transfer { .. }
            | Self::StepDown { .. }
            | Self::Delete { .. }
            | Self::Move { .. }
            | Self::Admit { .. }
            | Self::ForgetFence { .. }
            | Self::Report { .. }
            | Self::Relieve { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::As { .. }
            | Self::Elapsed { .. }
            | Self::Refill { .. } => 0,
        }
    }

    /// Who asks, if it is known.
    #[must_use]
    pub const fn who(&self) -> Option<&Principal> {
        if let Self::As { who, .. } = self { Some(who) } else { None }
    }
}

impl Wire for OnBehalf {
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(token) = self.token {
            TOKEN_TAG.put(out);
            token.put(out);
        }
        self.command.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let token = if input.peek() == Some(TOKEN_TAG) {
            u8::take(input)?;
            Some(TokenId::take(input)?)
        } else {
            None
        };
        if input.peek() == Some(AS_TAG) {
            return Err(malformed("a command")("it is on behalf of two principals"));
        }
        Ok(Self { token, command: Box::new(Command::take(input)?) })
    }
}

/// What all commands of one kind have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name in histories and recordings.
    pub name: &'static str,
    /// The names of its fields.
    pub fields: &'static [&'static str],
}

/// The tag of [`Command::As`] in the list below.
const AS_TAG: u8 = 26;

/// What stands before a token in [`OnBehalf`], where otherwise the tag of a command stands: no command has it.
const TOKEN_TAG: u8 = 255;

/// Generates encoding, names and field lists of all commands from one list.
macro_rules! commands {
    ($($tag:literal = $variant:ident $name:literal { $($field:ident),* $(,)? }),* $(,)?) => {
        wire_enum!(Command "a command" { $($tag = $variant { $($field),* }),* });

        impl Command {
            /// All kinds of commands.
            pub const KINDS: &'static [Kind] =
                &[$(Kind { name: $name, fields: &[$(stringify!($field)),*] }),*];

            /// Its name in histories and recordings: of what is asked for, whoever asks.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self.plain() {
                    $(Self::$variant { .. } => $name,)*
                }
            }

            /// All its fields, for logs: the `Debug` of a session's secret hides it.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, &dyn fmt::Debug)> {
                match self {
                    $(Self::$variant { $($field),* } => vec![$((stringify!($field), $field)),*],)*
                }
            }
        }
    };
}

// Tag in the log = variant, name in histories and recordings, fields in the order of the format. A released tag or
// name is never given to another command.
commands! {
    1 = Open "open" { session, node, ttl_ms },
    2 = ChangeTtl "change_ttl" { session, ttl_ms },
    3 = Close "close" { session },
    4 = Expire "expire" { sessions },
    5 = Campaign "campaign" { group, session, opening, if_lost, priority, metadata },
    6 = Withdraw "withdraw" { group, session },
    7 = Accept "accept" { group, session, term },
    8 = Resign "resign" { group, session, term },
    9 = Offer "offer" { group, session, term, to },
    10 = Warm "warm" { group, session, term },
    11 = Transfer "transfer" { group, session, term, to },
    12 = StepDown "step_down" { group, reason, to, immediate },
    13 = PutPolicy "put_policy" { group, policy },
    14 = Delete "delete" { group },
    15 = PutSettings "put_settings" { settings },
    16 = Elapsed "elapsed" { group, kind, since },
    17 = Refill "refill" { session },
    18 = Move "move" { group, step },
    19 = Admit "admit" { group, resource, term },
    20 = ForgetFence "forget_fence" { group, resource },
    21 = Report "report" { group, finding, reason },
    22 = Relieve "relieve" { group, term, to, reason },
    23 = PutBindings "put_bindings" { expected_version, bindings },
    24 = CreateToken "create_token" { token, digest, principal, expires_ms, label },
    25 = RevokeToken "revoke_token" { token },
    26 = As "as" { who, command },
}
