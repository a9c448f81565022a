//! Keeps the door's marks on disk, by a thread of its own: the door waits for no disk while it is locked.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use regent::fencing::http::door::Door;
use regent_clock::now;
use regent_election::fence::doorkeeper::DoorRules;
use regent_election::{Moment, Term};

use crate::mark::{LastEnd, MarkError, MarkFile};

/// The thread that writes marks.
#[derive(Debug)]
pub(crate) struct Keeper {
    asked: mpsc::Sender<Option<Term>>,
    thread: JoinHandle<MarkFile>,
}

/// Opens the door at the mark that was read.
pub(crate) fn open(
    rules: DoorRules,
    mark: MarkFile,
    kept: Term,
    last_end: LastEnd,
) -> io::Result<(Arc<Door>, Keeper)> {
    let settled_at = match last_end {
        LastEnd::Quiet => Moment::ZERO,
        // Whatever the last process had connections to, the kernel closed them before this one started.
        LastEnd::Unknown => now() + rules.settle_for,
    };
    let (ask, asked) = mpsc::channel();
    let sender = ask.clone();
    let door = Door::open(rules, kept, settled_at, move |_, mark| {
        let _ = sender.send(Some(mark));
    });
    let told = Arc::clone(&door);
    let thread =
        Builder::new().name("mark".to_owned()).spawn(move || keep_marks(&told, mark, &asked))?;
    Ok((door, Keeper { asked: ask, thread }))
}

impl Keeper {
    /// Ends, and notes whether anything that passed may still take effect.
    pub(crate) fn end(self, door: &Door) -> Result<LastEnd, MarkError> {
        let _ = self.asked.send(None);
        let Ok(mark) = self.thread.join() else { return Ok(LastEnd::Unknown) };
        if !door.is_quiet() {
            return Ok(LastEnd::Unknown);
        }
        mark.keep(door.looks().mark, LastEnd::Quiet)?;
        Ok(LastEnd::Quiet)
    }
}

/// Keeps marks until it is told to end; of several that wait, the last one is the highest.
fn keep_marks(door: &Arc<Door>, file: MarkFile, asked: &mpsc::Receiver<Option<Term>>) -> MarkFile {
    while let Ok(Some(mut mark)) = asked.recv() {
        let mut is_last = false;
        for next in asked.try_iter() {
            match next {
                Some(higher) => mark = mark.max(higher),
                None => is_last = true,
            }
        }
        match file.keep(mark, LastEnd::Unknown) {
            Ok(()) => {
                tracing::info!(term = mark.get(), "the mark is kept");
                door.kept(mark);
            }
            Err(error) => {
                tracing::error!(%error, term = mark.get(), "the mark cannot be kept; nothing of this term passes");
                door.not_kept();
            }
        }
        if is_last {
            break;
        }
    }
    file
}
