//! Who may do what: bindings from a file, what a change of them would do, and why somebody may or may not.

use std::fmt::{self, Write as _};

use regent::remote::{Remote, RemoteError};
use regent_api::{
    BindingBody, BindingsResponse, Gate, PutBindingsRequest, ROUTES, UsageBody, UsageResponse,
};
use regent_election::access::{Binding, Bindings, Extent, Grant, Principal, Request, Right, judge};
use regent_election::{Group, Node};
use serde::Deserialize;

/// Why bindings are not applied.
#[derive(Debug, thiserror::Error)]
pub enum AccessFileError {
    /// The file is no list of bindings.
    #[error("{0}")]
    Malformed(String),
    /// One of them, or all together, is refused.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// A file of bindings: `[[binding]]` once for each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BindingsFile {
    #[serde(default)]
    binding: Vec<BindingBody>,
}

/// Reads bindings from the text of a file, and checks them as a store does.
///
/// # Errors
/// If the text is no TOML of this shape, or a binding breaks a rule.
pub fn read_bindings(text: &str) -> Result<Vec<BindingBody>, AccessFileError> {
    let file: BindingsFile =
        toml::from_str(text).map_err(|error| AccessFileError::Malformed(error.to_string()))?;
    checked(0, &file.binding)?;
    Ok(file.binding)
}

fn checked(version: u64, bodies: &[BindingBody]) -> Result<Bindings, AccessFileError> {
    let bindings = bodies.to_vec();
    Bindings::try_from(BindingsResponse { version, bindings })
        .map_err(|problem| AccessFileError::Refused(problem.detail))
}

/// What a change takes away and what it adds.
#[derive(Debug)]
pub struct Difference {
    pub removed: Vec<BindingBody>,
    pub added: Vec<BindingBody>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.removed.is_empty() && self.added.is_empty() {
            return f.write_str("nothing changes");
        }
        let signed = self.removed.iter().map(|it| ('-', it));
        let signed = signed.chain(self.added.iter().map(|it| ('+', it)));
        for (at, (sign, body)) in signed.enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            let BindingBody { who, role, groups, nodes } = body;
            let (groups, nodes) = (groups.join(", "), nodes.join(", "));
            write!(f, "{end}{sign} {who} is {role} in {groups} (nodes: {nodes})")?;
        }
        Ok(())
    }
}

/// Compares what holds with what shall hold.
#[must_use]
pub fn difference(present: &[BindingBody], wanted: &[BindingBody]) -> Difference {
    let missing = |from: &[BindingBody], of: &[BindingBody]| {
        of.iter().filter(|body| !from.contains(body)).cloned().collect()
    };
    Difference { removed: missing(wanted, present), added: missing(present, wanted) }
}

/// Replaces the bindings of a cluster, and says what changed. With `is_dry` nothing is sent but the question.
///
/// # Errors
/// If the cluster cannot be asked or refuses, or somebody changed the bindings meanwhile.
pub async fn apply(
    remote: &Remote,
    wanted: Vec<BindingBody>,
    is_dry: bool,
) -> Result<(u64, Difference), AccessFileError> {
    let present = remote.bindings().await?;
    let difference = difference(&present.bindings, &wanted);
    if is_dry || present.bindings == wanted {
        return Ok((present.version, difference));
    }
    let request = PutBindingsRequest { expected_version: present.version, bindings: wanted };
    Ok((remote.put_bindings(&request).await?.version, difference))
}

/// What principals take of the state, for people.
#[must_use]
pub fn usage_text(usage: &UsageResponse) -> String {
    let mut text = String::new();
    for UsageBody { principal, bytes } in &usage.largest {
        let part = usage.bytes_max_each.map_or_else(String::new, |max| {
            format!("  {} % of its share", bytes.saturating_mul(100) / max.max(1))
        });
        let _ = writeln!(text, "{bytes:>14} bytes  {principal}{part}");
    }
    let others = usage.principals.saturating_sub(usage.largest.len() as u64);
    let each = usage.bytes_max_each.map_or_else(
        || "one principal may take all of it".into(),
        |max| format!("one principal may take {max}"),
    );
    let _ =
        write!(text, "{others} more principals; the state has {} bytes, {each}", usage.state_bytes);
    text
}

/// The right of a word: a right itself, or a verb like `campaign` or `step-down`.
#[must_use]
pub fn right_of(word: &str) -> Option<Right> {
    let plain = |text: &str| text.replace('-', "").to_ascii_lowercase();
    let of_route = || {
        let route = ROUTES.iter().find(|route| plain(route.id) == plain(word))?;
        match route.gate {
            Gate::Needs(right) => Some(right),
            Gate::Open => None,
        }
    };
    word.parse().ok().or_else(of_route)
}

/// Whether somebody may do something, and why.
#[derive(Debug)]
pub struct Explained {
    pub is_allowed: bool,
    pub why: String,
}

/// Judges by bindings as the store does.
///
/// # Errors
/// If the bindings are none.
pub fn explain(
    bindings: BindingsResponse,
    who: &Principal,
    right: Right,
    group: &Group,
    node: Option<&Node>,
) -> Result<Explained, AccessFileError> {
    let bindings = checked(bindings.version, &bindings.bindings)?;
    let asked = Request { who, right, extent: Extent::Group(group), node };
    let under = node.map(|node| format!(" as node {node}")).unwrap_or_default();
    let by = |grant: Grant| match grant {
        Grant::Binding(index) => {
            let shown = bindings.list().get(index).map(Binding::to_string).unwrap_or_default();
            format!("binding {} ({shown}) allows {who} to {right} in {group}{under}", index + 1)
        }
        Grant::Local => format!("{who} is an administrator of the machine, and may {right}"),
        Grant::Replica => format!("{who} is a replica, and may {right}"),
    };
    Ok(match judge(&bindings, asked) {
        Ok(grant) => Explained { is_allowed: true, why: by(grant) },
        Err(denial) => Explained { is_allowed: false, why: denial.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[binding]]
        who = "node:web-*"
        role = "participant"
        groups = ["billing"]

        [[binding]]
        who = "user:*"
        role = "observer"
        groups = ["*"]
        nodes = []
    "#;

    #[test]
    fn a_file_is_read_with_its_defaults_and_a_mistake_is_told() {
        let read = read_bindings(FILE).unwrap();
        assert_eq!((read[0].nodes.as_slice(), read[1].nodes.len()), (&["self".to_owned()][..], 0));
        let error = |text: &str| read_bindings(text).unwrap_err().to_string();
        assert!(error(&FILE.replace("observer", "boss")).contains("no role"));
        assert!(error(&FILE.replace("who =", "whom =")).contains("whom"));
        assert!(error(&FILE.replace("[\"billing\"]", "[]")).contains("names no groups"));
    }

    #[test]
    fn a_change_is_told_by_what_goes_and_what_comes() {
        let (all, some) =
            (read_bindings(FILE).unwrap(), read_bindings(FILE).unwrap()[1..].to_vec());
        assert_eq!(difference(&all, &all).to_string(), "nothing changes");
        assert_eq!(
            difference(&all, &some).to_string(),
            "- node:web-* is participant in billing (nodes: self)"
        );
        assert_eq!(difference(&some, &all).added.len(), 1);
    }

    #[test]
    fn a_question_is_answered_with_the_binding_that_decides() {
        let told = |who: &str, verb: &str, group: &str, node: Option<&str>| {
            let bindings = BindingsResponse { version: 1, bindings: read_bindings(FILE).unwrap() };
            let (who, right) = (who.parse().unwrap(), right_of(verb).unwrap());
            let (group, node) = (Group::new(group).unwrap(), node.map(|it| it.parse().unwrap()));
            explain(bindings, &who, right, &group, node.as_ref()).unwrap()
        };
        let yes = told("node:web-1", "campaign", "billing", Some("web-1"));
        assert!(yes.is_allowed && yes.why.starts_with("binding 1"), "{}", yes.why);
        let no = told("node:web-1", "stand", "billing", Some("web-2"));
        assert!(!no.is_allowed && no.why.contains("other nodes: self"), "{}", no.why);
        assert_eq!(right_of("step-down"), Some(Right::Operate));
        assert_eq!(right_of("healthz"), None);
        assert!(told("local:root", "administer", "billing", None).is_allowed);
    }
}
