//! Who may do what, compared with a reference that a person can check by reading it (S11).

#![allow(clippy::unwrap_used, reason = "a test may")]

use proptest::prelude::*;
use regent_election::access::{
    Binding, Bindings, Extent, Grant, Nearest, Principal, Request, Right, judge,
};
use regent_election::{Group, Node};

/// The reference: the same question, answered without anything that the rules use.
mod reference {
    pub(crate) fn allows(
        bindings: &[(&str, &str, Vec<&str>, Vec<&str>)],
        (who, right, group, node): (&str, &str, Option<&str>, Option<&str>),
    ) -> bool {
        let rights = |role: &str| match role {
            "observer" => vec!["observe"],
            "participant" => vec!["observe", "stand"],
            "operator" => vec!["observe", "operate"],
            _ => vec!["observe", "operate", "administer"],
        };
        if who.starts_with("local:") && rights("administrator").contains(&right) {
            return true;
        }
        if who.starts_with("replica:") && right == "replicate" {
            return true;
        }
        bindings.iter().any(|(pattern, role, groups, nodes)| {
            like(pattern, who)
                && rights(role).contains(&right)
                && match group {
                    Some("*cluster*") => groups.iter().any(|it| it.chars().all(|c| c == '*')),
                    Some(group) => groups.iter().any(|it| like(it, group)),
                    None => true,
                }
                && node.is_none_or(|node| {
                    nodes.iter().any(|it| match *it {
                        "self" => {
                            !who.starts_with("replica:") && who.ends_with(&format!(":{node}"))
                        }
                        it => like(it, node),
                    })
                })
        })
    }

    fn like(pattern: &str, text: &str) -> bool {
        match pattern.split_at_checked(1) {
            None => text.is_empty(),
            Some(("*", rest)) => (0..=text.len()).any(|at| like(rest, &text[at..])),
            Some((one, rest)) => text.strip_prefix(one).is_some_and(|text| like(rest, text)),
        }
    }
}

const WHO: &[&str] =
    &["node:a", "node:b", "node:ab", "user:a", "user:op", "local:root", "replica:1"];
const GROUPS: &[&str] = &["billing", "billing/eu", "orders", "o"];
const NODES: &[&str] = &["a", "b", "ab", "root"];

type Row = (&'static str, &'static str, Vec<&'static str>, Vec<&'static str>);

fn binding() -> impl Strategy<Value = Row> {
    let who = prop::sample::select(vec![
        "*",
        "node:*",
        "node:a",
        "node:a*",
        "user:op",
        "user:*",
        "local:*",
        "replica:*",
        "*:a",
        "node:*b",
    ]);
    let role = prop::sample::select(vec!["observer", "participant", "operator", "administrator"]);
    let groups = prop::sample::subsequence(vec!["*", "billing", "billing/*", "o*", "**"], 1..3);
    let nodes = prop::sample::subsequence(vec!["self", "*", "a", "a*"], 0..3);
    (who, role, groups, nodes)
}

fn bindings(rows: &[Row]) -> Bindings {
    let list = rows.iter().map(|(who, role, groups, nodes)| Binding {
        who: who.parse().unwrap(),
        role: role.parse().unwrap(),
        groups: groups.iter().map(|it| it.parse().unwrap()).collect(),
        nodes: nodes.iter().map(|it| it.parse().unwrap()).collect(),
    });
    Bindings::new(1, list.collect()).unwrap()
}

proptest! {
    #[test]
    fn the_rules_agree_with_the_reference(
        rows in prop::collection::vec(binding(), 0..6),
        who in prop::sample::select(WHO),
        right in prop::sample::select(Right::ALL.to_vec()),
        group in prop::option::of(prop::sample::select(GROUPS)),
        cluster in any::<bool>(),
        node in prop::option::of(prop::sample::select(NODES)),
    ) {
        let all = bindings(&rows);
        let principal: Principal = who.parse().unwrap();
        let named = group.map(|it| Group::new(it).unwrap());
        let extent = match &named {
            Some(group) => Extent::Group(group),
            None if cluster => Extent::Cluster,
            None => Extent::SomeGroup,
        };
        let node_name = node.map(|it| Node::new(it).unwrap());
        let asked = Request { who: &principal, right, extent, node: node_name.as_ref() };
        let place = group.or(cluster.then_some("*cluster*"));
        let expected = reference::allows(&rows, (who, right.word(), place, node));
        match judge(&all, asked) {
            Ok(Grant::Binding(index)) => {
                prop_assert!(expected);
                // The binding that is named allows it alone.
                prop_assert!(reference::allows(&rows[index..=index], (who, right.word(), place, node)));
            }
            Ok(Grant::Local) => prop_assert!(expected && who.starts_with("local:")),
            Ok(Grant::Replica) => prop_assert!(expected && who.starts_with("replica:")),
            Err(denial) => {
                prop_assert!(!expected);
                prop_assert_eq!(denial.right, right);
                prop_assert!(denial.to_string().contains(right.word()));
                // What is named as nearest would do with one thing changed.
                match denial.nearest {
                    Some(Nearest::OtherNodes { number, .. }) => prop_assert!(reference::allows(
                        &rows[number - 1..number], (who, right.word(), place, None))),
                    Some(Nearest::OtherGroups { number, .. }) => prop_assert!(reference::allows(
                        &rows[number - 1..number], (who, right.word(), None, None))),
                    Some(Nearest::OtherRole { number, .. }) => prop_assert!(reference::allows(
                        &rows[number - 1..number], (who, "observe", place, None))),
                    None => {}
                }
            }
        }
    }
}

fn explain(rows: &[Row], who: &str, right: Right, group: &str, node: Option<&str>) -> String {
    let (who, group) = (who.parse().unwrap(), Group::new(group).unwrap());
    let node = node.map(|node| Node::new(node).unwrap());
    let asked = Request { who: &who, right, extent: Extent::Group(&group), node: node.as_ref() };
    match judge(&bindings(rows), asked) {
        Ok(grant) => format!("{grant:?}"),
        Err(denial) => denial.to_string(),
    }
}

#[test]
fn a_denial_names_the_missing_right_and_the_nearest_binding() {
    let rows: &[Row] = &[
        ("node:*", "observer", vec!["*"], vec![]),
        ("node:a", "participant", vec!["billing"], vec!["self"]),
    ];
    assert_eq!(explain(rows, "node:a", Right::Stand, "billing", Some("a")), "Binding(1)");
    assert_eq!(
        explain(rows, "node:a", Right::Stand, "billing", Some("b")),
        "node:a lacks the right stand in billing as node b; binding 2 (node:a is participant in billing) allows other nodes: self"
    );
    assert_eq!(
        explain(rows, "node:a", Right::Stand, "orders", Some("a")),
        "node:a lacks the right stand in orders as node a; binding 2 (node:a is participant in billing) gives it in other groups"
    );
    assert_eq!(
        explain(rows, "node:b", Right::Operate, "orders", None),
        "node:b lacks the right operate in orders; binding 1 (node:* is observer in *) does not give it"
    );
    assert_eq!(
        explain(rows, "user:eve", Right::Observe, "orders", None),
        "user:eve lacks the right observe in orders; no binding names it"
    );
}

#[test]
fn bindings_are_bounded_in_number_patterns_and_bytes() {
    let one = |groups: usize| Binding {
        who: "node:a".parse().unwrap(),
        role: "observer".parse().unwrap(),
        groups: vec!["x".repeat(200).parse().unwrap(); groups],
        nodes: Vec::new(),
    };
    assert!(Bindings::new(1, vec![one(1); 256]).is_ok());
    let error = |list| Bindings::new(1, list).unwrap_err().to_string();
    assert!(error(vec![one(1); 257]).contains("at most 256"));
    assert!(error(vec![one(65)]).contains("at most 64"));
    assert!(error(vec![one(0)]).contains("names no groups"));
    assert!(error(vec![one(60); 20]).contains("wider patterns"));
}
