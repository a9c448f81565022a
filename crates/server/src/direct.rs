//! The short way from an address to its route.
//!
//! Renewals and reads are most of what a server is asked, and the general router costs each of them
//! several allocations. So what exactly names a row of the table goes straight to it; everything
//! else, and every problem with an address, is the general router's.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method as Verb;
use regent_api::{Code, Method, Problem, ROUTES, Route};

/// What opens the address of everything about one group.
const OF_GROUPS: &str = "/v1/groups/";
/// What stands for the group in the table.
const GROUP: &str = "{group}";

/// Rows by method and address, those of a group by what follows the group.
struct Table {
    of_group: HashMap<(Verb, &'static str), &'static Route>,
    plain: HashMap<(Verb, &'static str), &'static Route>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { of_group: HashMap::new(), plain: HashMap::new() };
    for route in ROUTES {
        let verb = match route.method {
            Method::Get => Verb::GET,
            Method::Post => Verb::POST,
            Method::Put => Verb::PUT,
            Method::Delete => Verb::DELETE,
        };
        let tail = route.path.strip_prefix(OF_GROUPS).and_then(|rest| rest.strip_prefix(GROUP));
        match tail {
            Some(tail) => table.of_group.insert((verb, tail), route),
            None => table.plain.insert((verb, route.path), route),
        };
    }
    table
});

/// The row that this method and path name, if they name one exactly.
pub(crate) fn find(verb: &Verb, path: &str) -> Option<&'static Route> {
    let key = verb.clone();
    match segment(path) {
        Some((_, tail)) => TABLE.of_group.get(&(key, tail)).copied(),
        None => TABLE.plain.get(&(key, path)).copied(),
    }
}

/// The segment that names a group, as it was sent, and what follows it.
fn segment(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(OF_GROUPS)?;
    let end = rest.find('/').unwrap_or(rest.len());
    (end > 0).then(|| rest.split_at(end))
}

/// The decoded group of a path, for a route that has one.
pub(crate) fn group(route: &Route, path: &str) -> Result<Option<String>, Problem> {
    if !route.path.contains(GROUP) {
        return Ok(None);
    }
    let sent = segment(path).map(|(group, _)| group).unwrap_or_default();
    let group = decoded(sent).ok_or_else(|| {
        Problem::new(Code::BadRequest, "the group in the path is no UTF-8 text").at("group")
    })?;
    Ok(Some(group))
}

/// `%2F` and the like become what they stand for; a `%` that stands for nothing stays.
fn decoded(sent: &str) -> Option<String> {
    if !sent.contains('%') {
        return Some(sent.to_owned());
    }
    let mut bytes = Vec::with_capacity(sent.len());
    let mut rest = sent.as_bytes();
    while let [first, more @ ..] = rest {
        let digit = |at: usize| more.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (*first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &more[2..];
            }
            (byte, _, _) => {
                bytes.push(byte);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use regent_api::Operation;

    use super::*;

    #[test]
    fn every_row_of_the_table_is_found_by_its_own_address() {
        for route in ROUTES {
            let verb: Verb = route.method.word().parse().unwrap();
            let path = route.path.replace(GROUP, "team%2Fbilling");
            let found = find(&verb, &path).map(|found| found.operation);
            assert_eq!(found, Some(route.operation), "{} {path}", route.method.word());
        }
    }

    #[test]
    fn an_address_that_names_no_row_exactly_is_left_to_the_router() {
        for (verb, path) in [
            (Verb::GET, "/v1/groups/"),
            (Verb::GET, "/v1/groups//leader"),
            (Verb::GET, "/v1/groups/a/leader/"),
            (Verb::GET, "/v1/groups/a/b/leader"),
            (Verb::POST, "/v1/groups/a/leader"),
            (Verb::HEAD, "/v1/groups/a/leader"),
            (Verb::GET, "/v1/groups/{group}/nothing"),
            (Verb::GET, "/nothing"),
        ] {
            assert!(find(&verb, path).is_none(), "{verb} {path}");
        }
    }

    #[test]
    fn a_group_is_decoded_as_it_was_meant() {
        let route = Operation::Leader.route();
        let of = |sent: &str| group(route, &format!("/v1/groups/{sent}/leader"));
        assert_eq!(of("team%2fbilling").unwrap().as_deref(), Some("team/billing"));
        assert_eq!(of("100%").unwrap().as_deref(), Some("100%"));
        assert_eq!(of("a%2").unwrap().as_deref(), Some("a%2"));
        assert_eq!(of("%C3%A4").unwrap().as_deref(), Some("\u{e4}"));
        assert_eq!(of("%ff").unwrap_err().code, Code::BadRequest);
        assert_eq!(group(Operation::Healthz.route(), "/healthz").unwrap(), None);
    }
}
