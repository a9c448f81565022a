//! Who hears what a supervisor has to say.

use std::sync::Arc;

/// Hears what happens, for people and for their programs. Nothing depends on its being read.
///
/// [`changed`](Self::changed) is called on the supervisor's own task. While it blocks, the runtime does
/// not answer the session's probe and the lease is not renewed: a process that hangs must not lead
/// (semantics 31).
pub trait Observer: Send + Sync + 'static {
    /// What the supervisor does has changed: one line for people, and the same as a JSON object. The object
    /// is also what [`Plan::state_file`](crate::Plan::state_file) holds.
    fn changed(&self, line: &str, object: &str);

    /// Something that people may want to know. Called on any thread.
    fn remark(&self, text: &str);
}

/// The observer as the parts share it.
pub(crate) type SharedObserver = Arc<dyn Observer>;

/// Writes the log, unless the caller has something better.
pub(crate) struct Logged;

impl Observer for Logged {
    fn changed(&self, line: &str, _: &str) {
        tracing::info!("{line}");
    }

    fn remark(&self, text: &str) {
        tracing::warn!("{text}");
    }
}
