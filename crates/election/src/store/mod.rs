//! The Store port: what an election needs of whatever keeps its state.
//!
//! [`Store`] is what an engine has to do, eight methods by value: it applies commands, counts
//! heartbeats, reads and watches. What callers use (campaign, renew, resign, …) are methods of
//! `dyn Store`, written once above the port (`verbs`), with the wait of a campaign (`campaign`). Every
//! store passes the same contract suite.
//!
//! "No" and "perhaps" are never mixed: [`StoreError::Refused`] and [`StoreError::Unavailable`] mean
//! that nothing happened, [`StoreError::Uncertain`] that it may have.
//!
//! The road not taken: a port with one method for each verb, so that each engine can use what it is
//! best at. Every engine then translated the same verbs into the same commands, and the copies drifted.

mod campaign;
mod port;
mod time;
mod verbs;
mod views;

pub use campaign::{Campaign, CampaignSession, Campaigned};
pub use port::{
    Consistency, Description, Done, Level, Scope, Store, StoreError, StoreResult, Watch, WatchItem,
};
pub use time::{Pause, Time};
pub use verbs::{Heartbeat, NewToken, Open, StepDown, SteppedDown};
pub use views::{
    Census, FenceView, FencesPage, GroupView, GroupsPage, HeartbeatView, LeaderView, OfferView,
    OfficeNote, OfficeState, OfficesView, SessionView, SharesView, StandbyView, TenureView,
};
