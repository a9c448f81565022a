//! A policy on the command line: only what is named changes.

use clap::Args;
use regent_api::{PolicyBody, PriorityRule};
use regent_election::NodePattern;

use crate::duration::parse_ms;

/// Flags that name parts of a policy.
#[derive(Clone, Debug, Args)]
#[group(id = "policy", multiple = true)]
pub(crate) struct PolicyArgs {
    /// Shortest ttl a candidate's session may have
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    ttl_min: Option<u64>,
    /// Longest ttl a candidate's session may have
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    ttl_max: Option<u64>,
    /// Shortest pause a losing candidate is told
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    retry_min: Option<u64>,
    /// Longest pause a losing candidate is told; `half-ttl` means half its own ttl
    #[arg(long, value_name = "DURATION", value_parser = parse_retry_max)]
    retry_max: Option<RetryMax>,
    /// How long the office stays empty after a leader was lost
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lock_delay: Option<u64>,
    /// How long a leader is left alone before a better candidate is preferred; 0s is off
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    minimum_tenure: Option<u64>,
    /// Whether a better candidate is offered the office once the minimum tenure is served
    #[arg(long, value_name = "BOOL")]
    prefer_priority: Option<bool>,
    /// Who may campaign, `*` for any run of characters; repeat it for more, `'*'` for everybody
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<NodePattern>,
    /// A priority that overrides what candidates claim, the first match counts; repeat it for more
    #[arg(long = "priority", value_name = "PATTERN=N", conflicts_with = "no_priorities")]
    priorities: Vec<PriorityRule>,
    /// Forget all priorities: candidates have the ones they claim
    #[arg(long)]
    no_priorities: bool,
    /// Most standbys in line
    #[arg(long, value_name = "N")]
    standbys_max: Option<u32>,
    /// Whether two operators must ask for a forced step-down, another policy, deletion and recovery
    #[arg(long, value_name = "BOOL")]
    four_eyes: Option<bool>,
}

/// The longest pause: a duration, or derived from the ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryMax(Option<u64>);

fn parse_retry_max(text: &str) -> Result<RetryMax, String> {
    match text {
        "half-ttl" => Ok(RetryMax(None)),
        other => parse_ms(other).map(|ms| RetryMax(Some(ms))),
    }
}

impl PolicyArgs {
    /// Whether anything was named, be it the default: naming it makes it the group's own.
    pub(crate) fn is_given(&self) -> bool {
        [
            self.ttl_min.is_some(),
            self.ttl_max.is_some(),
            self.retry_min.is_some(),
            self.retry_max.is_some(),
            self.lock_delay.is_some(),
            self.minimum_tenure.is_some(),
            self.prefer_priority.is_some(),
            !self.allow.is_empty(),
            !self.priorities.is_empty(),
            self.no_priorities,
            self.standbys_max.is_some(),
            self.four_eyes.is_some(),
        ]
        .contains(&true)
    }

    /// `policy` with what was named in its place.
    pub(crate) fn over(&self, policy: PolicyBody) -> PolicyBody {
        let everybody = NodePattern::new("*").ok();
        PolicyBody {
            ttl_ms_min: self.ttl_min.unwrap_or(policy.ttl_ms_min),
            ttl_ms_max: self.ttl_max.unwrap_or(policy.ttl_ms_max),
            retry_ms_min: self.retry_min.unwrap_or(policy.retry_ms_min),
            retry_ms_max: self.retry_max.map_or(policy.retry_ms_max, |max| max.0),
            lock_delay_ms: self.lock_delay.unwrap_or(policy.lock_delay_ms),
            minimum_tenure_ms: self.minimum_tenure.unwrap_or(policy.minimum_tenure_ms),
            prefer_priority: self.prefer_priority.unwrap_or(policy.prefer_priority),
            allow: match self.allow.as_slice() {
                [] => policy.allow,
                [one] if Some(one) == everybody.as_ref() => Vec::new(),
                some => some.to_vec(),
            },
            priorities: if self.no_priorities {
                Vec::new()
            } else if self.priorities.is_empty() {
                policy.priorities
            } else {
                self.priorities.clone()
            },
            standbys_max: self.standbys_max.unwrap_or(policy.standbys_max),
            four_eyes: self.four_eyes.unwrap_or(policy.four_eyes),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn given(flags: &[&str]) -> PolicyArgs {
        Alone::try_parse_from([&["x"], flags].concat()).unwrap().policy
    }

    #[test]
    fn what_is_not_named_stays_as_it_is() {
        let before = PolicyBody {
            lock_delay_ms: 7,
            retry_ms_max: Some(5000),
            allow: vec![NodePattern::new("a").unwrap()],
            ..PolicyBody::default()
        };
        assert_eq!(given(&[]).over(before.clone()), before);
        let after = given(&["--ttl-max", "30s", "--retry-max", "half-ttl", "--allow", "*"])
            .over(before.clone());
        let expected =
            PolicyBody { ttl_ms_max: 30_000, retry_ms_max: None, allow: vec![], ..before };
        assert_eq!(after, expected);
    }

    #[test]
    fn naming_a_default_is_naming_something() {
        assert!(!given(&[]).is_given());
        for flags in [
            ["--ttl-min", "500ms"],
            ["--retry-max", "half-ttl"],
            ["--prefer-priority", "false"],
            ["--priority", "web-*=-3"],
        ] {
            assert!(given(&flags).is_given(), "{flags:?}");
        }
    }
}
