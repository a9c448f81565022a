//! The one function that decides who may do what, and says why.

use std::fmt;

use super::{Binding, Bindings, Principal, Right};
use crate::name::{Group, Node};

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent<'a> {
    /// In this group.
    Group(&'a Group),
    /// In at least one group: the request names none, and shows or touches only what the caller may see in each.
    SomeGroup,
    /// In the cluster as a whole: a binding must reach every group.
    Cluster,
}

/// What is asked: may this principal use this right there, under this node name?
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub who: &'a Principal,
    pub right: Right,
    pub extent: Extent<'a>,
    /// The node in whose name the caller acts; none if the request names none.
    pub node: Option<&'a Node>,
}

/// Why something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// By the binding at this place of the list, counted from 0.
    Binding(usize),
    /// The caller is the superuser of the replica's own machine, or the replica's own user.
    Local,
    /// The caller is a replica of this cluster.
    Replica,
}

/// A binding of the same principal that almost allows what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// It gives the right in this group, under other node names.
    OtherNodes { number: usize, binding: Box<Binding> },
    /// It gives the right, in other groups.
    OtherGroups { number: usize, binding: Box<Binding> },
    /// It reaches the group, with a role that lacks the right.
    OtherRole { number: usize, binding: Box<Binding> },
}

/// Why something is denied: what is missing, and what comes nearest to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub who: Principal,
    /// The missing right.
    pub right: Right,
    /// The group it is missing in, if the request named one.
    pub group: Option<Group>,
    /// The node in whose name the caller wanted to act.
    pub node: Option<Node>,
    /// None if no binding names the principal at all.
    pub nearest: Option<Nearest>,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherNodes { number, binding } => {
                let nodes: Vec<String> = binding.nodes.iter().map(ToString::to_string).collect();
                let nodes = if nodes.is_empty() { "none".into() } else { nodes.join(", ") };
                write!(f, "binding {number} ({binding}) allows other nodes: {nodes}")
            }
            Self::OtherGroups { number, binding } => {
                write!(f, "binding {number} ({binding}) gives it in other groups")
            }
            Self::OtherRole { number, binding } => {
                write!(f, "binding {number} ({binding}) does not give it")
            }
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lacks the right {}", self.who, self.right)?;
        if let Some(group) = &self.group {
            write!(f, " in {group}")?;
        }
        if let Some(node) = &self.node {
            write!(f, " as node {node}")?;
        }
        match &self.nearest {
            Some(nearest) => write!(f, "; {nearest}"),
            None => write!(f, "; no binding names it"),
        }
    }
}

impl Binding {
    fn reaches(&self, extent: Extent<'_>) -> bool {
        match extent {
            Extent::Group(group) => {
                self.groups.iter().any(|pattern| pattern.matches(group.as_str()))
            }
            Extent::SomeGroup => true,
            Extent::Cluster => self.groups.iter().any(super::Pattern::is_everything),
        }
    }

    fn allows_node(&self, who: &Principal, node: Option<&Node>) -> bool {
        node.is_none_or(|node| self.nodes.iter().any(|rule| rule.allows(who, node)))
    }
}

/// Decides by the bindings alone, and explains: default deny, and no binding takes away what another one gives.
///
/// Without any binding, local principals are administrators and replicas replicate (see [`Principal`]).
pub fn judge(bindings: &Bindings, asked: Request<'_>) -> Result<Grant, Box<Denial>> {
    judge_by(bindings.naming(asked.who), asked)
}

/// The same by those bindings that name the principal, each with its place in the list.
pub(super) fn judge_by<'a>(
    named: impl Iterator<Item = (usize, &'a Binding)>,
    asked: Request<'_>,
) -> Result<Grant, Box<Denial>> {
    let Request { who, right, extent, node } = asked;
    match who {
        Principal::Local(_) if super::Role::Administrator.has(right) => return Ok(Grant::Local),
        Principal::Replica(_) if right == Right::Replicate => return Ok(Grant::Replica),
        Principal::Node(_) | Principal::User(_) | Principal::Local(_) | Principal::Replica(_) => {}
    }
    let mut nearest: Option<(Near, usize, &Binding)> = None;
    for (index, binding) in named {
        let near = match (binding.role.has(right), binding.reaches(extent)) {
            (true, true) if binding.allows_node(who, node) => return Ok(Grant::Binding(index)),
            (true, true) => Near::Nodes,
            (true, false) => Near::Groups,
            (false, true) => Near::Role,
            (false, false) => continue,
        };
        if nearest.is_none_or(|(nearest, ..)| near < nearest) {
            nearest = Some((near, index + 1, binding));
        }
    }
    let group = match extent {
        Extent::Group(group) => Some(group.clone()),
        Extent::SomeGroup | Extent::Cluster => None,
    };
    let nearest = nearest.map(|(near, number, binding)| near.shown(number, binding));
    Err(Box::new(Denial { who: who.clone(), right, group, node: node.cloned(), nearest }))
}

/// In what a binding that comes near to what is asked differs from it; the least is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    Nodes,
    Groups,
    Role,
}

impl Near {
    fn shown(self, number: usize, binding: &Binding) -> Nearest {
        let binding = Box::new(binding.clone());
        match self {
            Self::Nodes => Nearest::OtherNodes { number, binding },
            Self::Groups => Nearest::OtherGroups { number, binding },
            Self::Role => Nearest::OtherRole { number, binding },
        }
    }
}
