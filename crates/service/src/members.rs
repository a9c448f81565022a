//! A list of members as an operator writes it: `1=HOST:PEER/HOST:CLIENT,2=…`.

use std::collections::BTreeSet;
use std::fmt::Write;

use regent_replica::limits::REPLICAS_MAX;
use regent_replica::member::failures_survived;
use regent_replica::{Member, Members, ReplicaId};

use crate::address::host_and_port;

/// A replica's number from text.
pub fn replica_id(text: &str) -> Result<ReplicaId, String> {
    let refuse = || {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is no number of a replica; it is a whole number from 1 on")
    };
    text.trim().parse().ok().and_then(ReplicaId::new).ok_or_else(refuse)
}

/// A host and a port from text.
pub fn address(text: &str) -> Result<String, String> {
    host_and_port(text)?;
    Ok(text.to_owned())
}

/// The members that a list names; those in `witnesses` vote and keep no state.
pub fn parse(list: &str, witnesses: &[ReplicaId]) -> Result<Members, String> {
    let mut members = Members::new();
    let mut addresses = BTreeSet::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (id, peer_address, client_address) = one(part)?;
        for address in [&peer_address, &client_address] {
            if !addresses.insert(address.clone()) {
                return Err(format!(
                    "{address} stands twice in the list; every address is one's own"
                ));
            }
        }
        let is_witness = witnesses.contains(&id);
        let member = Member { peer_address, client_address, is_witness };
        if members.insert(id, member).is_some() {
            return Err(format!("replica {id} stands twice in the list"));
        }
    }
    if let Some(nobody) = witnesses.iter().find(|id| !members.contains_key(id)) {
        return Err(format!("replica {nobody} is to be a witness, but is not in the list"));
    }
    if members.values().all(|member| member.is_witness) {
        return Err("at least one replica must keep state; witnesses keep none".into());
    }
    if members.len() > REPLICAS_MAX {
        return Err(format!("{} replicas are too many; at most {REPLICAS_MAX}", members.len()));
    }
    Ok(members)
}

fn one(part: &str) -> Result<(ReplicaId, String, String), String> {
    let parts = part.split_once('=').and_then(|(id, both)| Some((id, both.split_once('/')?)));
    let Some((id, (peer, client))) = parts else {
        let shown: String = part.chars().take(80).collect();
        return Err(format!(
            "{shown:?} is no member; write it like 1=10.0.0.1:7401/10.0.0.1:7400 (number, peers, clients)"
        ));
    };
    Ok((replica_id(id)?, address(peer)?, address(client)?))
}

/// The list as [`parse`] reads it.
pub fn show(members: &Members) -> String {
    let mut list = String::new();
    for (id, member) in members {
        let comma = if list.is_empty() { "" } else { "," };
        // Writing into a string cannot fail.
        let _ = write!(list, "{comma}{id}={}/{}", member.peer_address, member.client_address);
    }
    list
}

/// How many voters must agree.
pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// How many failures, in words.
pub fn failures(count: u64) -> String {
    match count {
        0 => "no failure".to_owned(),
        1 => "1 failure".to_owned(),
        more => format!("{more} failures"),
    }
}

/// What an operator should know about this number of voters.
pub fn warnings(voters: usize, witnesses: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if voters > 0 && voters.is_multiple_of(2) {
        warnings.push(format!(
            "{voters} voters survive {}, no more than {} would: use an odd number",
            failures(failures_survived(voters) as u64),
            voters - 1
        ));
    }
    if witnesses > 1 {
        warnings.push(format!(
            "{witnesses} witnesses keep no state: the loss of {} full replicas would lose it; one witness is enough",
            voters.saturating_sub(witnesses)
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_shown() {
        let list = "1=a:7401/a:7400,2=10.0.0.2:7401/10.0.0.2:7400,30=[::1]:7401/[::1]:7400";
        let witness = [replica_id("30").unwrap()];
        let members = parse(list, &witness).unwrap();
        assert_eq!(show(&members), list);
        let witnesses: Vec<bool> = members.values().map(|member| member.is_witness).collect();
        assert_eq!(witnesses, [false, false, true]);
    }

    #[test]
    fn lists_that_make_no_cluster_are_refused_with_the_reason() {
        let refuse = |list: &str, witnesses: &[u64]| {
            let witnesses: Vec<_> = witnesses.iter().map(|n| ReplicaId::new(*n).unwrap()).collect();
            parse(list, &witnesses).unwrap_err()
        };
        assert!(refuse("1=a:1", &[]).contains("write it like"));
        assert!(refuse("0=a:1/a:2", &[]).contains("from 1 on"));
        assert!(refuse("1=a:1/a:x", &[]).contains("no host and port"));
        assert!(refuse("1=a:1/a:2,1=b:1/b:2", &[]).contains("replica 1 stands twice"));
        assert!(refuse("1=a:1/a:2,2=a:1/b:2", &[]).contains("a:1 stands twice"));
        assert!(refuse("1=a:1/a:2", &[2]).contains("not in the list"));
        assert!(refuse("1=a:1/a:2", &[1]).contains("keep state"));
        assert!(refuse("", &[]).contains("keep state"));
        let many: Vec<_> = (1..=17).map(|n| format!("{n}=h{n}:1/h{n}:2")).collect();
        assert!(refuse(&many.join(","), &[]).contains("at most 16"));
    }

    #[test]
    fn an_even_number_of_voters_is_warned_about() {
        for odd in [1, 3, 5, 7, 9] {
            assert!(warnings(odd, 0).is_empty());
        }
        assert!(warnings(4, 1)[0].contains("4 voters survive 1 failure, no more than 3 would"));
        assert!(warnings(3, 2)[0].contains("one witness is enough"));
        assert_eq!([1, 2, 3, 4, 5].map(quorum), [1, 2, 2, 3, 3]);
    }
}
