//! Our own replicated store: Raft driven without I/O, and the thin drivers beside it.

pub mod backup;
pub mod core;
pub mod disk;
mod fitting;
pub mod handle;
pub mod io;
mod keeper;
pub mod limits;
pub mod log;
pub mod measure;
pub mod member;
pub mod node;
pub mod peers;
pub mod raft_codec;
mod recent;
pub mod replicated;
pub mod store;
pub mod tape;
pub mod timing;
pub mod tuning;

pub use backup::{Backup, BackupError};
pub use core::{Core, CoreConfig, Recovered, Role, Status};
pub use handle::Handle;
pub use measure::Measures;
pub use member::{Member, MemberChange, Members, ReplicaId};
pub use node::{Node, NodeConfig};
pub use replicated::ReplicatedState;
pub use store::ReplicaStore;
pub use tape::{LogLeader, Tape};
pub use timing::{Timing, TimingError};
pub use tuning::{Advice, Tune};
