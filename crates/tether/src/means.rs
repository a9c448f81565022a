//! By what means a tree is held together, and what each of them leaves open (semantics 32).

use std::fmt;
use std::path::PathBuf;

use crate::cgroup;
use crate::spawn::{self, Namespace};

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contain {
    /// The best that can be had: a namespace, else a cgroup, else the descendants.
    #[default]
    Auto,
    /// A pid namespace or nothing.
    Namespace,
    /// A cgroup or nothing.
    Cgroup,
    /// The descendants, by their parents.
    Descendants,
}

/// What is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// A pid namespace, whose first process is the guard.
    Namespace(Namespace),
    /// A cgroup that can be killed whole, under this name.
    Cgroup,
    /// Whoever descends from the guard, which is their subreaper.
    Descendants,
}

impl Means {
    /// Tries what can be had here, by doing it once; or says why what was asked for cannot be.
    pub fn find(contain: Contain) -> Result<Self, String> {
        match contain {
            Contain::Auto => {
                Ok(Self::namespace().or_else(|_| Self::cgroup()).unwrap_or(Self::Descendants))
            }
            Contain::Namespace => Self::namespace(),
            Contain::Cgroup => Self::cgroup(),
            Contain::Descendants => Ok(Self::Descendants),
        }
    }

    fn namespace() -> Result<Self, String> {
        let mut why = String::new();
        for namespace in Namespace::BEST_FIRST {
            match spawn::try_out(namespace) {
                Ok(()) => return Ok(Self::Namespace(namespace)),
                Err(error) => why = error.to_string(),
            }
        }
        Err(format!("no pid namespace can be made here: {why}"))
    }

    fn cgroup() -> Result<Self, String> {
        let path = cgroup::make(&format!("regent-try-{}", std::process::id()))
            .map_err(|error| format!("no cgroup can be made here: {error}"))?;
        cgroup::remove(&path);
        Ok(Self::Cgroup)
    }

    /// Where the cgroup of one program would lie; none for other means.
    pub(crate) fn make_cgroup(&self, name: &str) -> std::io::Result<Option<PathBuf>> {
        match self {
            Self::Cgroup => cgroup::make(name).map(Some),
            Self::Namespace(_) | Self::Descendants => Ok(None),
        }
    }

    /// What these means do not cover, as a clause for people.
    #[must_use]
    pub const fn limits(&self) -> &'static str {
        match self {
            Self::Namespace(Namespace { users: false, .. }) => {
                "not covered: tasks in uninterruptible sleep, a pause of the whole machine"
            }
            Self::Namespace(Namespace { users: true, .. }) => {
                "not covered: tasks in uninterruptible sleep, a pause of the whole machine; \
                 set-user-id programs have no power in it"
            }
            Self::Cgroup => {
                "not covered: tasks in uninterruptible sleep, a pause of the whole machine, \
                 a program that moves itself to another cgroup, descendants of the program if \
                 wrapper and guard are killed at once"
            }
            Self::Descendants => {
                "not covered: tasks in uninterruptible sleep, a pause of the whole machine, \
                 a program that forks faster than it is killed or becomes a user who cannot be \
                 killed from here, descendants of the program if \
                 wrapper and guard are killed at once"
            }
        }
    }
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespace(namespace) => match (namespace.users, namespace.mounts) {
                (false, true) => "a pid namespace",
                (false, false) => "a pid namespace (with the /proc of the machine)",
                (true, true) => "a pid and user namespace",
                (true, false) => "a pid and user namespace (with the /proc of the machine)",
            },
            Self::Cgroup => "a cgroup",
            Self::Descendants => "its descendants",
        })
    }
}
