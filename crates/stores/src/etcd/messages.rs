//! The few messages of etcd's protocol that we speak, written by hand.
//!
//! A client crate was not taken: it needs a compiler of its own when it is built, and we need ten of the
//! protocol's hundred messages. Fields that we never set or read are left out, which the encoding allows.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
    #[prost(bool, tag = "6")]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl From<Request> for RequestOp {
    fn from(request: Request) -> Self {
        Self { request: Some(request) }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

/// `result` and `target` are numbers of the protocol's enumerations, see [`Compare::created`].
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Against", tags = "5, 6")]
    pub(super) against: Option<Against>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Against {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

impl Compare {
    const EQUAL: i32 = 0;
    const GREATER: i32 = 1;
    const CREATE: i32 = 1;
    const MOD: i32 = 2;

    /// The key was changed last at this revision; zero is a key that is not there.
    pub(super) fn changed_at(key: &str, revision: i64) -> Self {
        let against = Some(Against::ModRevision(revision));
        Self { result: Self::EQUAL, target: Self::MOD, key: key.into(), against }
    }

    /// The key is there.
    pub(super) fn is_there(key: &str) -> Self {
        let against = Some(Against::CreateRevision(0));
        Self { result: Self::GREATER, target: Self::CREATE, key: key.into(), against }
    }

    /// The key is not there.
    pub(super) fn is_absent(key: &str) -> Self {
        Self::changed_at(key, 0)
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    /// What the read found that was asked for at this place among the requests that were carried out.
    pub(super) fn read(&self, place: usize) -> Option<&KeyValue> {
        self.responses.get(place)?.range.as_ref()?.kvs.first()
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl_s: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl_s: i64,
}

/// Asks to revoke a lease, or to keep it alive: the same on the wire.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    /// Only of one kept alive; zero if it has ended.
    #[prost(int64, tag = "3")]
    pub(super) ttl_s: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// Zero leaves out puts.
    #[prost(int32, repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

/// Asks for the state of a member, or for all members: both are asked with nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MembersResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Member {
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}
