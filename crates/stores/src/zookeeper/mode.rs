//! Who times sessions below a root, and that all who elect there agree on it.

use super::ZookeeperRegister;
use super::connection::{Link, Refused};
use super::messages::{self, Ask, Stay, Step};
use crate::engine::address::StoreAddress;
use crate::engine::{Effect, UrlError};
use crate::register::{RegisterError, RegisterResult};

/// Who times sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Those who watch them.
    Cas,
    /// ZooKeeper.
    Session,
}

impl Mode {
    const fn word(self) -> &'static str {
        match self {
            Self::Cas => "cas",
            Self::Session => "session",
        }
    }

    /// The mode that a URL asks for.
    pub(super) fn of(place: &StoreAddress) -> Result<Self, UrlError> {
        match place.options.iter().find(|(name, _)| name == "mode") {
            None => Ok(Self::Cas),
            Some((_, word)) if word == Self::Cas.word() => Ok(Self::Cas),
            Some((_, word)) if word == Self::Session.word() => Ok(Self::Session),
            Some((_, other)) => Err(UrlError::new(format_args!(
                "unknown mode {other:?}; known are cas (those who watch a session time it) and session (ZooKeeper \
                 does)"
            ))),
        }
    }
}

impl ZookeeperRegister {
    /// Makes sure, once, that all who elect below this root time sessions in one way: to those who watch, a
    /// session that ZooKeeper times looks silent, and they would end it under its leader.
    pub(super) async fn agree(&self) -> RegisterResult<()> {
        let agreeing = async || {
            let (path, ours) = (format!("{}/mode", self.root), self.mode.word());
            let (data, rights) = (ours.as_bytes(), self.wire.rights());
            let steps = [Step::Create { path: &path, data, rights, stay: Stay::ForGood }];
            // Whoever was first has written it; a doubt about this is none about what is asked after it.
            let said = self.wire.ask(Effect::Reads, async |link: Link| {
                let created = link.ask(Ask::Transaction { steps: &steps }).await?;
                let asked = link.ask(Ask::Get { path: &path }).await?;
                created.answer().await?;
                match asked.answer().await? {
                    (0, body) => Ok(messages::found(&body)?.0),
                    (code, _) => Err(Refused::Code(code)),
                }
            });
            let said = said.await?;
            if said == data {
                return Ok(());
            }
            Err(RegisterError::unfit(format_args!(
                "others elect below {} in ZooKeeper with mode={}, and here it is mode={ours}; two ways to time a \
                 session would end it under its leader: give all the same mode, or another root",
                self.root,
                String::from_utf8_lossy(&said),
            )))
        };
        self.agreed.get_or_try_init(agreeing).await.copied()
    }
}
