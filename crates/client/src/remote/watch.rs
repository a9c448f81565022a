//! Watch: every change of who leads, in order, through any number of broken connections.
//!
//! The watch remembers the cursor of the last event it gave out and opens the next stream after it
//! (`Last-Event-ID`), so that nothing is lost and nothing comes twice. If the server has forgotten
//! what lies between, it says so with a `GAP`, which is given out like any event: only the caller
//! knows what it must read again.
//!
//! Being cut off is told too ([`Watched::Interrupted`]): a caller that acts on who leads should know
//! that what it knows is getting old.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::HeaderName;
use regent_api::{Operation, WatchEvent, WatchManyQuery, WatchQuery};
use regent_election::store::Scope;
use regent_election::{Cursor, Group};
use tokio::time::{Sleep, sleep};

use super::backoff::Backoff;
use super::error::RemoteError;
use super::send::Call;
use super::sse::Parser;
use super::{Remote, RemoteResult};
use crate::fresh;
use crate::limits::STREAM_SILENCE_MAX;

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Something the server said.
    Event(Box<WatchEvent>),
    /// The stream ended; it is opened again by itself.
    Interrupted {
        why: String,
        /// After how long.
        retry_in: Duration,
    },
}

/// A watch under way. Dropping it ends it.
#[derive(Debug)]
pub struct Watching {
    remote: Remote,
    scope: Scope,
    cursor: Option<Cursor>,
    backoff: Backoff,
    /// The pause before the next stream; kept, so that a dropped future does not start it anew.
    pause: Option<Pin<Box<Sleep>>>,
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    body: Incoming,
    parser: Parser,
    ready: VecDeque<WatchEvent>,
}

impl Remote {
    /// Watches these groups from just after `cursor`; without one, from the present state, which comes first.
    #[must_use]
    pub fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> Watching {
        Watching {
            remote: self.clone(),
            scope,
            cursor,
            backoff: Backoff::default(),
            pause: None,
            stream: None,
        }
    }
}

impl Watching {
    /// The place up to which everything was given out.
    #[must_use]
    pub const fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// The next thing, in order, none missing, none twice. It waits for ever if need be.
    ///
    /// An error is final: the server refuses this watch, or speaks something else. Dropping the
    /// future before it is ready loses nothing.
    pub async fn next(&mut self) -> RemoteResult<Watched> {
        if let Some(pause) = &mut self.pause {
            pause.await;
            self.pause = None;
        }
        loop {
            let Some(stream) = &mut self.stream else {
                match self.remote.open_stream(self.request()).await {
                    Ok(body) => {
                        let (parser, ready) = (Parser::default(), VecDeque::new());
                        self.stream = Some(Stream { body, parser, ready });
                        continue;
                    }
                    Err(RemoteError::Unavailable { why, retry_after, problem: _ }) => {
                        return self.interrupted(why, retry_after);
                    }
                    Err(error) => return Err(error),
                }
            };
            if let Some(event) = stream.ready.pop_front() {
                return self.give(event);
            }
            match tokio::time::timeout(STREAM_SILENCE_MAX, stream.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    stream.ready.extend(events(&mut stream.parser, &bytes)?);
                }
                Ok(Some(Err(error))) => {
                    return self.interrupted(format!("the stream broke: {error}"), None);
                }
                Ok(None) => return self.interrupted("the server ended the stream".into(), None),
                Err(_) => {
                    let seconds = STREAM_SILENCE_MAX.as_secs();
                    let why = format!("the server said nothing for {seconds} s");
                    self.remote.avoid_preferred();
                    return self.interrupted(why, None);
                }
            }
        }
    }

    fn give(&mut self, event: WatchEvent) -> RemoteResult<Watched> {
        self.cursor = Some(event.cursor());
        self.remote.note(event.cursor().revision);
        if let WatchEvent::Stale(stale) = &event {
            // Another server may hear a quorum. If none does, this one is asked again, and says so again.
            self.remote.avoid_preferred();
            let why = format!(
                "the server has had no quorum for {} s: what it told may be over",
                stale.confirmed_ago_ms / 1000
            );
            return self.interrupted(why, None);
        }
        self.backoff.reset();
        if let WatchEvent::Closing(closing) = &event {
            self.remote.avoid_preferred();
            let retry_after = Duration::from_millis(closing.retry_after_ms);
            return self.interrupted("the server is closing".into(), Some(retry_after));
        }
        Ok(Watched::Event(Box::new(event)))
    }

    fn interrupted(&mut self, why: String, asked: Option<Duration>) -> RemoteResult<Watched> {
        self.stream = None;
        let retry_in = self.backoff.pause(asked, fresh::number()?);
        self.pause = Some(Box::pin(sleep(retry_in)));
        Ok(Watched::Interrupted { why, retry_in })
    }

    fn request(&self) -> Call {
        let call = match &self.scope {
            Scope::Group(group) | Scope::Turn(group) => {
                let path = Operation::Watch.route().of_group(group);
                Call::bare(Operation::Watch, path).query(&WatchQuery::default())
            }
            Scope::Groups(groups) => {
                let names: Vec<_> = groups.iter().map(Group::as_str).collect();
                many(&WatchManyQuery { groups: Some(names.join(",")), ..Default::default() })
            }
            Scope::Prefix(prefix) => {
                many(&WatchManyQuery { prefix: Some(prefix.clone()), ..Default::default() })
            }
        };
        match self.cursor {
            Some(cursor) => {
                call.header(HeaderName::from_static("last-event-id"), cursor.to_string())
            }
            None => call,
        }
    }
}

fn many(query: &WatchManyQuery) -> Call {
    Call::bare(Operation::WatchMany, Operation::WatchMany.route().path.to_owned()).query(query)
}

/// The events that these bytes finish. One of a later version is passed over.
fn events(parser: &mut Parser, bytes: &[u8]) -> RemoteResult<Vec<WatchEvent>> {
    let messages =
        parser.push(bytes).map_err(|error| RemoteError::Protocol { why: error.to_string() })?;
    let mut events = Vec::with_capacity(messages.len());
    for message in messages {
        match WatchEvent::parse(&message.name, &message.data) {
            Ok(event) => events.extend(event),
            Err(error) => {
                let why = format!("an event {:?} cannot be read: {error}", message.name);
                return Err(RemoteError::Protocol { why });
            }
        }
    }
    Ok(events)
}
