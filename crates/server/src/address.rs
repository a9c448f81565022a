//! From a method and a path to a row of the table of routes: the only router there is.
//!
//! An address is either one of a few fixed paths, or `/v1/groups/{group}` and one of a few tails. Two maps
//! find each without an allocation. The road not taken is a general router: it has to answer HEAD, 404 and
//! 405 in the same words anyway, and it costs every heartbeat several allocations.

use std::collections::HashMap;
use std::sync::LazyLock;

use hyper::Method as Verb;
use regent_api::{Code, Method, Problem, ROUTES, Route};

/// What opens the address of everything about one group.
const OF_GROUPS: &str = "/v1/groups/";
/// What stands for the group in the table.
const GROUP: &str = "{group}";

/// Rows by address, those of a group by what follows the group. An address has at most a few methods.
#[derive(Default)]
struct Table {
    of_group: HashMap<&'static str, Vec<&'static Route>>,
    plain: HashMap<&'static str, Vec<&'static Route>>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::default();
    for route in ROUTES {
        let tail = route.path.strip_prefix(OF_GROUPS).and_then(|rest| rest.strip_prefix(GROUP));
        let rows = match tail {
            Some(tail) => table.of_group.entry(tail),
            None => table.plain.entry(route.path),
        };
        rows.or_default().push(route);
    }
    table
});

/// What a method and a path name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A row of the table. HEAD finds the row of GET.
    Row(&'static Route),
    /// A path of the table, which does not have this method.
    OtherMethods(&'static str),
    /// No path of the table.
    Nothing,
}

/// Finds a row by method and path.
pub(crate) fn find(verb: &Verb, path: &str) -> Found {
    let rows = match segment(path) {
        Some((_, tail)) => TABLE.of_group.get(tail),
        None => TABLE.plain.get(path),
    };
    let Some(rows) = rows else { return Found::Nothing };
    let word = if *verb == Verb::HEAD { Method::Get.word() } else { verb.as_str() };
    match rows.iter().find(|route| route.method.word() == word) {
        Some(route) => Found::Row(route),
        None => Found::OtherMethods(rows[0].path),
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
            let Found::Row(found) = find(&verb, &path) else { panic!("{verb} {path}") };
            assert_eq!(found.operation, route.operation, "{verb} {path}");
        }
    }

    #[test]
    fn a_path_without_this_method_is_told_from_a_path_that_does_not_exist() {
        let head = find(&Verb::HEAD, "/v1/groups/a/leader");
        assert!(matches!(head, Found::Row(route) if route.operation == Operation::Leader));
        for verb in [Verb::POST, Verb::OPTIONS, Verb::from_bytes(b"get").unwrap()] {
            let found = find(&verb, "/v1/groups/a/leader");
            let is_right = matches!(found, Found::OtherMethods("/v1/groups/{group}/leader"));
            assert!(is_right, "{verb}: {found:?}");
        }
        assert!(matches!(find(&Verb::HEAD, "/v1/groups/a/resign"), Found::OtherMethods(_)));
        for path in [
            "",
            "*",
            "/nothing",
            "/v1/groups/",
            "/v1/groups//leader",
            "/v1/groups/a/leader/",
            "/v1/groups/a/b/leader",
            "/v1/groups/{group}/nothing",
        ] {
            assert!(matches!(find(&Verb::GET, path), Found::Nothing), "{path}");
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
