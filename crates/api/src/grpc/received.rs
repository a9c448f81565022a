//! Messages that a client received, as the answers they mirror.
//!
//! An answer that cannot be read is no answer: whoever gets `None` knows as little as if it had been
//! lost on the way.

use regent_election::{Metadata, Revision, Term};

use super::generated as pb;
use super::generated::watch_event;
use super::words;
use crate::{
    Bookmark, CampaignResponse, Closing, Gap, HeartbeatResponse, LeaderChanged, LeaderResponse,
    Offer, Office, Present, SessionResponse, Stale, Tenure, WatchEvent,
};

impl From<pb::HeartbeatResponse> for HeartbeatResponse {
    fn from(heard: pb::HeartbeatResponse) -> Self {
        Self { ttl_ms: heard.ttl_ms, epoch: heard.epoch, revision: Revision(heard.revision) }
    }
}

impl pb::Office {
    /// The office, if it can be read.
    #[must_use]
    pub fn received(self) -> Option<Office> {
        Some(Office {
            group: self.group.parse().ok()?,
            leader: option(self.leader)?,
            term: Term::new(self.term)?,
            state: words::state(self.state)?,
            metadata: Metadata::new(self.metadata).ok()?,
            valid_for_ms: self.valid_for_ms,
            moved_to: option(self.moved_to)?,
            revision: Revision(self.revision),
            cursor: self.cursor.parse().ok()?,
        })
    }
}

impl pb::CampaignResponse {
    /// The answer, if it can be read.
    #[must_use]
    pub fn received(self) -> Option<CampaignResponse> {
        Some(CampaignResponse {
            elected: self.elected,
            standing: self.standing,
            session_id: option(self.session_id)?,
            ttl_ms: self.ttl_ms,
            retry_after_ms: self.retry_after_ms,
            office: self.office?.received()?,
        })
    }
}

impl pb::LeaderResponse {
    /// The answer, if it can be read.
    #[must_use]
    pub fn received(self) -> Option<LeaderResponse> {
        let consistency = pb::Consistency::try_from(self.consistency).ok()?.into();
        Some(LeaderResponse {
            office: self.office?.received()?,
            consistency,
            valid_for_unknown: self.valid_for_unknown,
        })
    }
}

impl pb::SessionResponse {
    /// The answer, if it can be read.
    #[must_use]
    pub fn received(self) -> Option<SessionResponse> {
        let tenures = self.tenures.into_iter().map(pb::Tenure::received);
        let standing = self.standing.iter().map(|group| group.parse().ok());
        let offers = self.offers.into_iter().map(pb::Offer::received);
        Some(SessionResponse {
            session_id: self.session_id.parse().ok()?,
            node_id: self.node_id.parse().ok()?,
            ttl_ms: self.ttl_ms,
            epoch: self.epoch,
            tenures: tenures.collect::<Option<_>>()?,
            standing: standing.collect::<Option<_>>()?,
            offers: offers.collect::<Option<_>>()?,
            revision: Revision(self.revision),
        })
    }
}

impl pb::Tenure {
    fn received(self) -> Option<Tenure> {
        Some(Tenure {
            group: self.group.parse().ok()?,
            term: Term::new(self.term)?,
            state: words::state(self.state)?,
            offered_to: option(self.offered_to)?,
            is_warm: self.is_warm,
            moves_to: option(self.moves_to)?,
        })
    }
}

impl pb::Offer {
    fn received(self) -> Option<Offer> {
        Some(Offer {
            group: self.group.parse().ok()?,
            term: Term::new(self.term)?,
            by: self.by.parse().ok()?,
            is_warm: self.is_warm,
        })
    }
}

impl pb::WatchEvent {
    /// The event, if it can be read; none for a kind of a later version too.
    #[must_use]
    pub fn received(self) -> Option<WatchEvent> {
        Some(match self.event? {
            watch_event::Event::State(present) => WatchEvent::State(present.received()?),
            watch_event::Event::LeaderChanged(changed) => {
                WatchEvent::LeaderChanged(changed.received()?)
            }
            watch_event::Event::Gap(gap) => WatchEvent::Gap(Gap {
                oldest: gap.oldest.parse().ok()?,
                present: gap.present?.received()?,
                retry_after_ms: gap.retry_after_ms,
            }),
            watch_event::Event::Bookmark(bookmark) => WatchEvent::Bookmark(Bookmark {
                revision: Revision(bookmark.revision),
                cursor: bookmark.cursor.parse().ok()?,
                confirmed_ago_ms: bookmark.confirmed_ago_ms,
            }),
            watch_event::Event::Stale(stale) => WatchEvent::Stale(Stale {
                cursor: stale.cursor.parse().ok()?,
                confirmed_ago_ms: stale.confirmed_ago_ms,
            }),
            watch_event::Event::Closing(closing) => WatchEvent::Closing(Closing {
                cursor: closing.cursor.parse().ok()?,
                retry_after_ms: closing.retry_after_ms,
            }),
        })
    }
}

impl pb::Present {
    fn received(self) -> Option<Present> {
        let offices = self.offices.into_iter().map(pb::Office::received);
        Some(Present {
            offices: offices.collect::<Option<_>>()?,
            next: option(self.next)?,
            cursor: self.cursor.parse().ok()?,
        })
    }
}

impl pb::LeaderChanged {
    fn received(self) -> Option<LeaderChanged> {
        Some(LeaderChanged {
            group: self.group.parse().ok()?,
            leader: option(self.leader)?,
            term: Term::new(self.term)?,
            cause: words::cause(self.cause)?,
            metadata: Metadata::new(self.metadata).ok()?,
            revision: Revision(self.revision),
            cursor: self.cursor.parse().ok()?,
        })
    }
}

/// A name that may be absent; none only if it is there and cannot be read.
#[expect(clippy::option_option, reason = "absent and unreadable are two things")]
fn option<T: std::str::FromStr>(given: Option<String>) -> Option<Option<T>> {
    match given {
        Some(given) => given.parse().ok().map(Some),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use regent_election::store::OfficeState;
    use regent_election::{Cause, Cursor, Incarnation};

    use super::*;

    fn cursor() -> Cursor {
        Cursor::after(Incarnation(7), Revision(12))
    }

    fn office() -> Office {
        Office {
            group: "team/billing".parse().unwrap(),
            leader: Some("web-1".parse().unwrap()),
            term: Term::new(4).unwrap(),
            state: OfficeState::Leading,
            metadata: Metadata::new([("zone", "b")]).unwrap(),
            moved_to: None,
            valid_for_ms: Some(900),
            revision: Revision(12),
            cursor: cursor(),
        }
    }

    #[test]
    fn what_a_server_writes_a_client_receives() {
        let present = Present { offices: vec![office()], next: None, cursor: cursor() };
        let events = [
            WatchEvent::State(present.clone()),
            WatchEvent::LeaderChanged(LeaderChanged {
                group: "g".parse().unwrap(),
                leader: None,
                term: Term::NONE,
                cause: Cause::Expired,
                metadata: Metadata::NONE,
                revision: Revision(1),
                cursor: cursor(),
            }),
            WatchEvent::Gap(Gap { oldest: cursor(), present, retry_after_ms: 3 }),
            WatchEvent::Bookmark(Bookmark {
                revision: Revision(1),
                cursor: cursor(),
                confirmed_ago_ms: Some(7),
            }),
            WatchEvent::Stale(Stale { cursor: cursor(), confirmed_ago_ms: 10_000 }),
            WatchEvent::Closing(Closing { cursor: cursor(), retry_after_ms: 5 }),
        ];
        for event in events {
            assert_eq!(pb::WatchEvent::from(event.clone()).received(), Some(event));
        }
        let campaigned = CampaignResponse {
            elected: true,
            standing: false,
            session_id: Some("0123456789abcdef0123456789abcdef".parse().unwrap()),
            ttl_ms: 10_000,
            retry_after_ms: None,
            office: office(),
        };
        let message = pb::CampaignResponse::from(campaigned.clone());
        assert_eq!(message.received(), Some(campaigned));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_none() {
        let mut message = pb::Office::from(office());
        message.state = 99;
        assert_eq!(message.received(), None);
        let mut message = pb::Office::from(office());
        message.leader = Some("a b".to_owned());
        assert_eq!(message.received(), None);
    }
}
