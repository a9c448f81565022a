//! What is said: the weakness on start, and one line for each change of who leads.

use regent_election::Node;
use regent_lab::protocols::Pace;
use serde_json::{Value, json};

use super::Algorithm;
use super::roster::Roster;
use crate::duration::show;

/// Whom a node takes for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Which node.
    pub(crate) node: Node,
    /// Whom, if anybody.
    pub(crate) leader: Option<Node>,
}

impl Standing {
    /// Whether it takes itself for the leader.
    pub(crate) fn is_leader(&self) -> bool {
        self.leader.as_ref() == Some(&self.node)
    }

    /// For people.
    pub(crate) fn line(&self) -> String {
        let node = &self.node;
        match &self.leader {
            None => "nobody leads".to_owned(),
            Some(leader) if leader == node => format!("{node} leads"),
            Some(leader) => format!("{node} follows {leader}"),
        }
    }

    /// For programs.
    pub(crate) fn object(&self) -> Value {
        json!({
            "node": self.node.as_str(),
            "leader": self.leader.as_ref().map(Node::as_str),
            "is_leader": self.is_leader(),
        })
    }
}

/// What this is not, before it does anything.
pub(crate) fn weakness(algorithm: Algorithm) -> [String; 3] {
    let own = match algorithm {
        Algorithm::Bully => {
            "the highest name takes the office back whenever it returns, so a node that comes and goes \
             takes the office along"
        }
        Algorithm::Ring | Algorithm::ChangRoberts => {
            "a node that dies while a token is on its way costs the election, which is held again"
        }
    };
    [
        format!(
            "{} elects without a store: whoever is cut off, paused or slow may lead beside another \
             leader, and neither knows",
            algorithm.name()
        ),
        own.to_owned(),
        "there is no term and nothing to fence by: use it only where a wrong leader is harmless, and \
         `regent run` or `regent campaign` everywhere else"
            .to_owned(),
    ]
}

/// Where it listens and how patient it is.
pub(crate) fn greeting(algorithm: Algorithm, roster: &Roster, pace: &Pace) -> String {
    format!(
        "{} is one of {} peers by {}, on {}; a silent leader is missed after {} to {}",
        roster.own_name(),
        roster.count(),
        algorithm.name(),
        roster.own_address(),
        show(pace.patience_min),
        show(pace.patience_max),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line_or_one_object() {
        let told = |leader: Option<&str>| Standing {
            node: Node::new("a").unwrap(),
            leader: leader.map(|name| Node::new(name).unwrap()),
        };
        assert_eq!(told(None).line(), "nobody leads");
        assert_eq!(told(Some("a")).line(), "a leads");
        assert_eq!(told(Some("c")).line(), "a follows c");
        assert_eq!(
            told(Some("c")).object().to_string(),
            r#"{"is_leader":false,"leader":"c","node":"a"}"#
        );
        assert_eq!(told(None).object()["leader"], Value::Null);
    }

    #[test]
    fn every_algorithm_says_that_two_may_lead_and_where_to_go_instead() {
        for algorithm in Algorithm::ALL {
            let text = weakness(algorithm).join("\n");
            for part in ["lead beside another", "no term", "harmless", "regent run"] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
