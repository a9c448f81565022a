//! One of the two stores of a move: a service, or a store that others run, used directly.

use std::sync::Arc;

use regent::remote::{AddressError, Remote, RemoteError};
use regent_api::{Code, MoveGroupRequest, Problem, PutGroupRequest};
use regent_election::store::{Consistency, GroupView, LeaderView, Level, Store, StoreError};
use regent_election::{Group, Home, NameError, Policy, RequestId, Step};
use regent_stores::{LeaseStore, OpenError, open_register};

/// Where a group lives, or shall live.
#[derive(Debug)]
pub struct Side {
    reach: Reach,
    home: Home,
}

#[derive(Debug)]
enum Reach {
    Service(Remote),
    Store(Arc<dyn Store>),
}

/// Why a URL names no side of a move.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    /// What is secret in the URL cannot be told from the rest.
    #[error("{scheme}://...: {why}")]
    Secret {
        /// What the URL opens with.
        scheme: String,
        /// What is wrong, and how it is written.
        why: &'static str,
    },
    /// The URL cannot be told to participants.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The address of a service is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Every no of either kind of side is a problem with a code.
pub(super) type SideResult<T> = Result<T, Problem>;

impl Side {
    /// Opens what `url` names. A store of one process alone cannot be moved from or to: nobody else would
    /// find it.
    ///
    /// # Errors
    /// If the URL is none, or its store cannot be opened.
    pub fn open(url: &str) -> Result<Self, SideError> {
        let home = Home::new(&without_secrets(url)?)?;
        if url.starts_with("http:") || url.starts_with("https:") {
            return Ok(Self { reach: Reach::Service(Remote::new(url)?), home });
        }
        let register = open_register(url)?;
        Ok(Self::over(Arc::new(LeaseStore::new(register)), home))
    }

    /// A store that the caller has opened, under the URL by which participants reach it.
    #[must_use]
    pub fn over(store: Arc<dyn Store>, home: Home) -> Self {
        Self { reach: Reach::Store(store), home }
    }

    /// Its URL as everybody may see it.
    #[must_use]
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// Whether it serves, and what it claims.
    pub(super) async fn level(&self) -> SideResult<Level> {
        match &self.reach {
            Reach::Service(remote) => {
                let ready = remote.ready().await.map_err(problem_of)?;
                let known = [Level::Strict, Level::LeaseOnly, Level::BestEffort];
                // What a later version calls by another word is taken for the least.
                let level = known.into_iter().find(|level| level.to_string() == ready.level);
                Ok(level.unwrap_or(Level::BestEffort))
            }
            Reach::Store(store) => {
                store.ready().await?;
                Ok(store.describe().level)
            }
        }
    }

    /// The group as its operator sees it; none if nobody has named it.
    pub(super) async fn group(&self, group: &Group) -> SideResult<Option<GroupView>> {
        let view = match &self.reach {
            Reach::Service(remote) => match remote.show_group(group).await {
                Ok(view) => GroupView::try_from(view).map_err(Problem::from),
                Err(error) => Err(problem_of(error)),
            },
            Reach::Store(store) => store.group(group).await.map_err(Problem::from),
        };
        match view {
            Ok(view) => Ok(Some(view)),
            Err(problem) if problem.code == Code::GroupUnknown => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Who leads.
    pub(super) async fn leader(&self, group: &Group) -> SideResult<LeaderView> {
        match &self.reach {
            Reach::Service(remote) => {
                let read = remote.leader(group, regent_api::Consistency::Linearizable).await;
                Ok(read.map_err(problem_of)?.office.into())
            }
            Reach::Store(store) => Ok(store.leader(group, Consistency::Linearizable).await?),
        }
    }

    /// Takes one step of the move.
    pub(super) async fn step(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> SideResult<GroupView> {
        match &self.reach {
            Reach::Service(remote) => {
                let request = MoveGroupRequest::of(step, request);
                let view = remote.move_group(group, &request).await.map_err(problem_of)?;
                Ok(GroupView::try_from(view)?)
            }
            Reach::Store(store) => Ok(store.move_group(group, step, request).await?),
        }
    }

    /// Gives the group the policy that it has on the other side.
    pub(super) async fn put_policy(&self, group: &Group, policy: Policy) -> SideResult<()> {
        match &self.reach {
            Reach::Service(remote) => {
                let request = PutGroupRequest { policy: Some(policy.into()), request_id: None };
                remote.put_group(group, &request).await.map_err(problem_of)?;
            }
            Reach::Store(store) => {
                store.put_policy(group, Some(policy), None).await?;
            }
        }
        Ok(())
    }

    /// Lets go of it.
    pub async fn shut_down(&self) {
        if let Reach::Store(store) = &self.reach {
            store.shut_down().await;
        }
    }
}

/// What a service, or the way to it, said, as a problem with a code.
fn problem_of(error: RemoteError) -> Problem {
    let why = error.to_string();
    match error {
        RemoteError::Refused(problem) => *problem,
        RemoteError::Unavailable { problem: Some(problem), .. }
        | RemoteError::Uncertain { problem: Some(problem), .. } => *problem,
        RemoteError::Unavailable { problem: None, .. } => {
            StoreError::Unavailable { why, retry_after: None }.into()
        }
        RemoteError::Uncertain { problem: None, .. } | RemoteError::Protocol { .. } => {
            StoreError::Uncertain { why }.into()
        }
    }
}

/// Whether asking again may help.
pub(super) const fn is_passing(problem: &Problem) -> bool {
    matches!(
        problem.code,
        Code::StoreUnavailable
            | Code::ShuttingDown
            | Code::RateLimited
            | Code::RequestTimeout
            | Code::Uncertain
            | Code::Internal
    )
}

/// Options of a URL whose names say that their values are secret.
const SECRET_WORDS: [&str; 4] = ["password", "token", "secret", "key"];

/// Options that name the file of a key for TLS, which every host has by itself: the name is no secret, and without it
/// nobody could follow.
const KEY_FILES: [&str; 5] = ["key", "sslkey", "ssl-key", "tlskey", "client-key"];

/// The URL without what is secret in it: everybody who asks for the group is told this. A login goes, too,
/// but for the name of a database's user: what stands alone before an `@` may be a token.
///
/// # Errors
/// If a login cannot be told from a path.
pub fn without_secrets(url: &str) -> Result<String, SideError> {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
        return Ok(url.to_owned());
    };
    let (place, options) = match rest.split_once('?') {
        Some((place, options)) => (place, Some(options)),
        None => (rest, None),
    };
    let place = match (place.rsplit_once('@'), place.find('/')) {
        (None, _) => place.to_owned(),
        (Some((login, _)), Some(slash)) if slash < login.len() => {
            let why = "an @ behind a slash: write a slash in a password as %2F, and an @ in a path as %40";
            return Err(SideError::Secret { scheme: scheme.to_owned(), why });
        }
        (Some((login, host)), _) => {
            let user = login.split(':').next().unwrap_or_default();
            let has_users = matches!(scheme, "postgres" | "postgresql" | "mysql");
            if has_users { format!("{user}@{host}") } else { host.to_owned() }
        }
    };
    let is_public = |option: &&str| {
        let name = option.split('=').next().unwrap_or_default().to_ascii_lowercase();
        let is_file = KEY_FILES.contains(&name.as_str());
        is_file || !SECRET_WORDS.iter().any(|word| name.contains(word))
    };
    let options: Option<Vec<&str>> = options.map(|all| all.split('&').filter(is_public).collect());
    let options = options.filter(|all| !all.is_empty()).map(|all| format!("?{}", all.join("&")));
    Ok(format!("{scheme}://{place}{}", options.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_names_a_databases_user_and_nothing_secret() {
        for (given, kept) in [
            ("postgres://regent:se@cret@db:5432/x?a=b", "postgres://regent@db:5432/x?a=b"),
            ("postgres://regent@db/x?sslpassword=a&a=b", "postgres://regent@db/x?a=b"),
            (
                "postgres://u:p@db/x?sslmode=verify-full&sslcert=/c&sslkey=/k",
                "postgres://u@db/x?sslmode=verify-full&sslcert=/c&sslkey=/k",
            ),
            ("s3://bucket?access_key_id=a&secret_access_key=b", "s3://bucket"),
            ("redis://:secret@cache", "redis://cache"),
            ("nats://TOKEN@host", "nats://host"),
            (
                "s3://id:secret@bucket/prefix?region=x&session_token=y",
                "s3://bucket/prefix?region=x",
            ),
            ("etcd://a,b,c", "etcd://a,b,c"),
            ("file:///var/lib/x:y@z", "file:///var/lib/x:y@z"),
            ("http://a:7400,b:7400", "http://a:7400,b:7400"),
        ] {
            assert_eq!(without_secrets(given).ok().as_deref(), Some(kept));
        }
        assert!(without_secrets("postgres://u:p/w@db").is_err());
    }
}
