//! Every code an error can have, with its status and what to do about it.
//!
//! "No" and "perhaps" are never mixed: every code but `UNCERTAIN`, `STORE_CORRUPT` and `INTERNAL`
//! means that nothing happened.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $status:literal, $title:literal;)+) => {
        /// What went wrong, for programs. Codes are never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $variant,)+
            /// A code of a later version; judge by the status.
            Unrecognised,
        }

        impl Code {
            /// All codes that this version can give.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word on the wire.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ Self::Unrecognised => "UNRECOGNISED" }
            }

            /// The HTTP status it always comes with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ Self::Unrecognised => 500 }
            }

            /// The same few words every time.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ Self::Unrecognised => "unrecognised" }
            }

            /// What it means and what to do, for the documents.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ Self::Unrecognised => "" }
            }
        }
    };
}

codes! {
    /// The request cannot be understood; `detail` says where. Repeating it is pointless.
    BadRequest = "BAD_REQUEST", 400, "the request cannot be understood";
    /// No credential was shown, or one that is none of this cluster's; `detail` says which.
    Unauthenticated = "UNAUTHENTICATED", 401, "a good credential is required";
    /// The credential has expired or was revoked: with it you can give up what you hold, nothing else.
    CredentialOver = "CREDENTIAL_OVER", 401, "the credential is over";
    /// The caller lacks a right; `right` names it, and `detail` the nearest binding.
    Forbidden = "FORBIDDEN", 403, "the caller lacks a right";
    /// The session was opened by another principal.
    SessionOfAnother = "SESSION_OF_ANOTHER", 403, "this session belongs to another principal";
    /// A browser sent this on behalf of another site, or under a host name this server does not know.
    CrossOrigin = "CROSS_ORIGIN", 403, "a request of another site";
    /// The group's policy allows other nodes.
    NotAllowed = "NOT_ALLOWED", 403, "this node may not campaign here";
    /// The signed term is not one: forged, over, of another group, or by an unknown key; `detail` says which.
    TokenRefused = "TOKEN_REFUSED", 403, "the signed term is refused";
    /// No such address. A slash inside a group name is written %2F.
    NotFound = "NOT_FOUND", 404, "there is nothing at this address";
    /// No such group, and campaigns do not create one.
    GroupUnknown = "GROUP_UNKNOWN", 404, "there is no such group";
    /// The group has no fence for this resource.
    FenceUnknown = "FENCE_UNKNOWN", 404, "there is no such fence";
    /// There is no such token.
    AuthTokenUnknown = "AUTH_TOKEN_UNKNOWN", 404, "there is no such token";
    /// The address exists for other methods; `Allow` lists them.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, "this address does not know this method";
    /// The request came too slowly. Nothing happened.
    RequestTimeout = "REQUEST_TIMEOUT", 408, "the request came too slowly";
    /// The caller does not hold this office under this term: stop at once.
    NotLeader = "NOT_LEADER", 409, "the caller does not hold this office";
    /// The tenure was told to end: stop at once, then resign to confirm.
    TenureEnding = "TENURE_ENDING", 409, "this tenure is ending";
    /// The session id belongs to another node or ttl, or to a session that has ended.
    SessionMismatch = "SESSION_MISMATCH", 409, "this session id is taken";
    /// The heartbeat's number is not above the last one: a late duplicate, or two processes with one session.
    HeartbeatNotNewer = "HEARTBEAT_NOT_NEWER", 409, "a heartbeat that is not newer than the last";
    /// The group is being deleted; its last tenure is ending.
    GroupEnding = "GROUP_ENDING", 409, "the group is being deleted";
    /// The group has moved to another store: campaign and ask there; `moved_to` says where.
    Moved = "MOVED", 409, "the group has moved to another store";
    /// The group is on its way here from another store; finish its move first.
    OnItsWay = "ON_ITS_WAY", 409, "the group is on its way here";
    /// The group is not expected here, or not any more by this move.
    NotExpected = "NOT_EXPECTED", 409, "the group is not expected here";
    /// The group is stopped for recovery; finish that first. Candidates may stand and wait.
    GroupStopped = "GROUP_STOPPED", 409, "the group is stopped for recovery";
    /// The office is not vacant, so the group cannot arrive.
    StillLed = "STILL_LED", 409, "the office is not vacant";
    /// Nobody leads, so nobody can step down.
    NobodyLeads = "NOBODY_LEADS", 409, "nobody leads";
    /// A higher term was granted, or admitted at this resource: stop at once; both numbers are told.
    StaleTerm = "STALE_TERM", 409, "a higher term has been seen";
    /// The term's holder has given it up or lost it, and nobody has followed yet: stop at once.
    TermOver = "TERM_OVER", 409, "this term is over";
    /// The group has granted no such term.
    NeverGranted = "NEVER_GRANTED", 409, "this term was never granted";
    /// A limit of the store or of a policy is reached.
    Full = "FULL", 409, "a limit is reached";
    /// The named successor does not stand in this group.
    SuccessorUnknown = "SUCCESSOR_UNKNOWN", 409, "the successor does not stand here";
    /// More than one session stands under the successor's name.
    SuccessorAmbiguous = "SUCCESSOR_AMBIGUOUS", 409, "more than one successor of that name";
    /// The named successor has not been heard for half its ttl.
    SuccessorSilent = "SUCCESSOR_SILENT", 409, "the successor has not been heard lately";
    /// There is no offer to this session.
    NoOffer = "NO_OFFER", 409, "there is no such offer";
    /// The store has forgotten request ids of that age, so it cannot know whether this one ran.
    RequestTooOld = "REQUEST_TOO_OLD", 409, "this request id is too old";
    /// The request id names a revision that the store has not reached.
    RequestAhead = "REQUEST_AHEAD", 409, "this request id is ahead of the store";
    /// The request id was used for another request.
    RequestReused = "REQUEST_REUSED", 409, "this request id was used before";
    /// The group has used every term below 2^53.
    TermsExhausted = "TERMS_EXHAUSTED", 409, "no terms are left";
    /// Another replica leads the log and must be asked; `leader_address` says where.
    OtherReplicaLeads = "OTHER_REPLICA_LEADS", 409, "another replica leads the log";
    /// The bindings have changed since they were read: read them again, then repeat.
    BindingsChanged = "BINDINGS_CHANGED", 409, "the bindings have changed";
    /// There is a token of this id already.
    AuthTokenExists = "AUTH_TOKEN_EXISTS", 409, "there is such a token already";
    /// The group's policy wants two principals for this. The request is noted as a proposal, `known_revision` says which: another operator
    /// must send the same within ten minutes. Or the group has no place for another proposal, or callers have no names here; `detail` says.
    SecondApprovalNeeded = "SECOND_APPROVAL_NEEDED", 409, "a second operator must ask for this";
    /// The members cannot be changed like this; `detail` says why.
    MemberRefused = "MEMBER_REFUSED", 409, "this change of members is refused";
    /// The session expired, was closed, or never was: whatever it held is lost.
    SessionExpired = "SESSION_EXPIRED", 410, "this session is not open";
    /// The body is larger than 64 KiB.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, "the body is too large";
    /// The body is not labelled `application/json`.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", 415, "the body must be application/json";
    /// The ttl does not fit the bounds of the group or of the store.
    TtlOutOfBounds = "TTL_OUT_OF_BOUNDS", 422, "the ttl is out of bounds";
    /// The policy contradicts itself or the store.
    PolicyRefused = "POLICY_REFUSED", 422, "the policy is refused";
    /// The bindings or the token break a bound; `detail` says which.
    AccessRefused = "ACCESS_REFUSED", 422, "the bindings or the token are refused";
    /// A write came without a term; send the one you were elected with as `Regent-Term`.
    TermMissing = "TERM_MISSING", 428, "a term is required here";
    /// The server has more to do than it can: nothing happened, try again after `retry_after_ms`.
    RateLimited = "RATE_LIMITED", 429, "too many requests";
    /// A fault of the server. It may have happened.
    Internal = "INTERNAL", 500, "a fault of the server";
    /// The store holds what Regent cannot have written: call a person.
    StoreCorrupt = "STORE_CORRUPT", 500, "the store is damaged";
    /// This kind of store cannot do this at all.
    Unsupported = "UNSUPPORTED", 501, "this store cannot do this";
    /// What lies behind the gateway cannot be reached. Nothing happened.
    UpstreamUnavailable = "UPSTREAM_UNAVAILABLE", 502, "the upstream is unavailable";
    /// The fence cannot know yet whether this may pass, so it does not. Nothing happened; try again.
    FenceClosed = "FENCE_CLOSED", 503, "the fence cannot admit this now";
    /// The store cannot serve now. Nothing happened; try again.
    StoreUnavailable = "STORE_UNAVAILABLE", 503, "the store is unavailable";
    /// This server is going away. Nothing happened; try another one.
    ShuttingDown = "SHUTTING_DOWN", 503, "the server is shutting down";
    /// The outcome is unknown: it may have happened. Look before you decide anything.
    Uncertain = "UNCERTAIN", 504, "the outcome is unknown";
}

impl Code {
    /// Whether it is certain that nothing happened.
    #[must_use]
    pub const fn nothing_happened(self) -> bool {
        !matches!(self, Self::Uncertain | Self::Internal | Self::StoreCorrupt | Self::Unrecognised)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        let known = Self::ALL.iter().copied().find(|code| code.word() == word);
        Ok(known.unwrap_or(Self::Unrecognised))
    }
}

impl JsonSchema for Code {
    fn schema_name() -> Cow<'static, str> {
        "Code".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each: Vec<_> = Self::ALL
            .iter()
            .map(|code| {
                serde_json::json!({
                    "const": code.word(),
                    "title": format!("{} {}", code.status(), code.title()),
                    "description": code.meaning().trim(),
                })
            })
            .collect();
        json_schema!({
            "type": "string",
            "oneOf": each,
            "description": "What went wrong, for programs. Codes are never renamed; take an unknown one by its status.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_word_and_an_error_status() {
        let mut words: Vec<_> = Code::ALL.iter().map(|code| code.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{code}");
            assert!(!code.meaning().trim().is_empty(), "{code}");
        }
    }
}
