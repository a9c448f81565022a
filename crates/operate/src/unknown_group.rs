//! A group that the store does not know, told as such whatever was asked of it, with the name that may have been meant.
//!
//! The server answers some questions about a group that nobody ever named ("nobody leads, term 0"), because a candidate
//! may be about to create it. An operator who mistyped a name should not read that as an answer.

use regent::remote::{Remote, RemoteError, RemoteResult};
use regent_api::{Code, GroupsQuery, Office, Problem};
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::{Group, Term};

/// Pages of groups that are read to find a name that may have been meant.
const PAGES_MAX: usize = 8;
/// How alike two names must be, by Jaro and Winkler, to be taken for one another.
const NEAR_ENOUGH: f64 = 0.85;

/// The same outcome, or, if the store does not know the group at all, a refusal that says so.
///
/// # Errors
/// What was passed in, or `GROUP_UNKNOWN`.
pub async fn explained<T>(
    remote: &Remote,
    group: &Group,
    outcome: RemoteResult<T>,
) -> RemoteResult<T> {
    let error = match outcome {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let is_about_group = matches!(
        error.code(),
        Some(
            Code::GroupUnknown
                | Code::NobodyLeads
                | Code::NotLeader
                | Code::NeverGranted
                | Code::TermOver
                | Code::FenceUnknown
        )
    );
    if is_about_group {
        must_exist(remote, group).await?;
    }
    Err(error)
}

/// Refuses a group that the store does not know. Whoever may not read it is not told.
///
/// # Errors
/// `GROUP_UNKNOWN`, with the name that may have been meant.
pub async fn must_exist(remote: &Remote, group: &Group) -> RemoteResult<()> {
    match remote.history(group).await {
        Err(error) if error.code() == Some(Code::GroupUnknown) => {
            Err(RemoteError::Refused(Box::new(unknown(remote, group).await)))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether an office may be of a group that nobody ever named: of one that exists it is true as well, before the first
/// election.
#[must_use]
pub fn is_blank(office: &Office) -> bool {
    office.leader.is_none() && office.term == Term::NONE && office.moved_to.is_none()
}

async fn unknown(remote: &Remote, group: &Group) -> Problem {
    let nearest = nearest(remote, group).await;
    let hint = match &nearest {
        Some(name) => format!("did you mean {name}?"),
        None => "`regent group list` shows those that there are".to_owned(),
    };
    let mut problem =
        Problem::new(Code::GroupUnknown, format!("there is no group {group}; {hint}"));
    problem.facts.group = Some(group.clone());
    problem.facts.did_you_mean = nearest;
    problem
}

/// The known name that is most like this one. A store with very many groups is not read through: those that begin alike
/// come first.
async fn nearest(remote: &Remote, group: &Group) -> Option<String> {
    let opening: String = group.as_str().chars().take(2).collect();
    for prefix in [opening, String::new()] {
        let known = names(remote, prefix).await;
        let best = known
            .iter()
            .map(|name| (strsim::jaro_winkler(group.as_str(), name), name))
            .filter(|(likeness, _)| *likeness >= NEAR_ENOUGH)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((_, name)) = best {
            return Some(name.clone());
        }
    }
    None
}

async fn names(remote: &Remote, prefix: String) -> Vec<String> {
    let count = u32::try_from(GROUPS_PAGE_MAX).ok();
    let mut query = GroupsQuery { prefix, after: None, count };
    let mut names = Vec::new();
    for _ in 0..PAGES_MAX {
        // A hint is not worth an error.
        let Ok(page) = remote.list_groups(&query).await else { break };
        names.extend(page.groups.iter().map(|office| office.group.to_string()));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    names
}
