//! From bytes and query strings to requests, with messages a person can act on.
//!
//! Nesting needs no bound of its own: every request type has a fixed depth, a deeper value is
//! refused at the first field that does not expect one, before anything below it is read.

use regent_election::Group;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::limits::ECHO_BYTES_MAX;
use crate::problem::{Code, Problem};
use crate::wire::Object;

/// How near an unknown name must be to a known one to be worth asking about (0 to 1).
const NEAR_ENOUGH: f64 = 0.7;

/// A request from a JSON body.
pub fn from_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(Code::BadRequest, "the body is empty; send a JSON object"));
    }
    // Where a value stands is noted only for those who get it wrong: it would cost every heartbeat a tenth.
    let mut json = serde_json::Deserializer::from_slice(body);
    if let Ok(Object(value)) = Object::deserialize(&mut json)
        && json.end().is_ok()
    {
        return Ok(value);
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| explain("body", &error.path().to_string(), &error.inner().to_string()))?;
    json.end().map_err(|error| explain("body", ".", &error.to_string()))?;
    Ok(value)
}

/// What stands behind the `?`.
pub fn from_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(pairs)
        .map_err(|error| explain("query", &error.path().to_string(), &error.inner().to_string()))
}

/// A group from one decoded part of a path.
pub fn group(part: &str) -> Result<Group, Problem> {
    Group::new(part).map_err(|error| Problem::from(error).at("group"))
}

fn explain(place: &str, path: &str, message: &str) -> Problem {
    if let Some((unknown, known)) = unknown_field(message) {
        return unknown_name(place, unknown, &known);
    }
    let message = shorten(message, 4 * ECHO_BYTES_MAX);
    if path == "." {
        return Problem::new(Code::BadRequest, format!("the {place} is wrong: {message}"));
    }
    let path = shorten(path, ECHO_BYTES_MAX);
    Problem::new(Code::BadRequest, format!("{path}: {message}")).at(&path)
}

fn unknown_name(place: &str, unknown: &str, known: &[&str]) -> Problem {
    let unknown = shorten(unknown, ECHO_BYTES_MAX);
    let nearest = nearest(&unknown, known);
    let hint = match (nearest, known) {
        (Some(name), _) => format!("did you mean `{name}`?"),
        (None, []) => "it knows none".to_owned(),
        (None, _) => format!("it knows {}", known.join(", ")),
    };
    let mut problem =
        Problem::new(Code::BadRequest, format!("the {place} has no field `{unknown}`; {hint}"))
            .at(&unknown);
    problem.facts.did_you_mean = nearest.map(str::to_owned);
    problem
}

/// Reads serde's sentence about an unknown field, which exists only as text: the unknown name, and
/// those it expected. A sentence of another shape is passed on as it is.
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (unknown, rest) = rest.split_once("`, ")?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((unknown, known))
}

fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(unknown, name), *name))
        .filter(|(nearness, _)| *nearness >= NEAR_ENOUGH)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// At most `bytes_max` of a client's own text, without control characters.
fn shorten(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut short: String =
        text[..end].chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if end < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CampaignRequest, HeartbeatRequest, PutGroupRequest, WatchQuery};

    fn refused<T: DeserializeOwned>(body: &str) -> Problem {
        match from_body::<T>(body.as_bytes()) {
            Ok(_) => panic!("{body} was accepted"),
            Err(problem) => problem,
        }
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_known_one() {
        for (unknown, meant) in [
            ("ttl", "ttl_ms"),
            ("wait", "wait_ms"),
            ("session", "session_id"),
            ("sessionId", "session_id"),
            ("prio", "priority"),
        ] {
            let problem =
                refused::<CampaignRequest>(&format!(r#"{{"node_id":"a","{unknown}":1}}"#));
            assert_eq!(problem.facts.did_you_mean.as_deref(), Some(meant), "{}", problem.detail);
            assert!(problem.detail.contains(&format!("did you mean `{meant}`?")));
        }
        let problem = refused::<CampaignRequest>(r#"{"node_id":"a","zzz":1}"#);
        assert!(problem.detail.contains("it knows node_id, ttl_ms"), "{}", problem.detail);
    }

    #[test]
    fn an_unknown_field_inside_a_policy_is_found_too() {
        let problem = refused::<PutGroupRequest>(r#"{"policy":{"lock_delay":5}}"#);
        assert_eq!(problem.facts.did_you_mean.as_deref(), Some("lock_delay_ms"));
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_field() {
        for (body, field, part) in [
            (r#"{"node_id":"a","ttl_ms":-5}"#, "ttl_ms", "a whole number of milliseconds"),
            (r#"{"node_id":"a","ttl_ms":1.5}"#, "ttl_ms", "a whole number of milliseconds"),
            (r#"{"node_id":"a","ttl_ms":"10s"}"#, "ttl_ms", "a whole number of milliseconds"),
            (r#"{"node_id":"a","ttl_ms":18446744073709551615}"#, "ttl_ms", "stop being exact"),
            (r#"{"node_id":"a","ttl_ms":1e400}"#, "ttl_ms", "out of range"),
            (r#"{"node_id":"a b"}"#, "node_id", "letters, digits"),
            (r#"{"node_id":"a","session_id":"abc"}"#, "session_id", "32 hexadecimal"),
            (r#"{"node_id":"a","metadata":{"zone":3}}"#, "metadata.zone", "string"),
            (r#"{"node_id":"a","priority":40000}"#, "priority", "i16"),
        ] {
            let problem = refused::<CampaignRequest>(body);
            assert_eq!(problem.facts.field.as_deref(), Some(field), "{body}: {}", problem.detail);
            assert!(problem.detail.contains(part), "{body}: {}", problem.detail);
        }
    }

    #[test]
    fn broken_json_is_refused_with_its_place() {
        assert!(refused::<CampaignRequest>("{").detail.contains("line 1 column 1"));
        assert!(refused::<CampaignRequest>(r#"{"node_id":"a"} x"#).detail.contains("trailing"));
        assert!(refused::<CampaignRequest>("  ").detail.contains("empty"));
        assert!(
            refused::<CampaignRequest>(r#"{"node_id":"a","node_id":"b"}"#)
                .detail
                .contains("duplicate field")
        );
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(refused::<CampaignRequest>(&deep).detail.contains("invalid type"));
        let deep = format!(r#"{{"node_id":"a","metadata":{{"k":{deep}}}}}"#);
        assert!(refused::<CampaignRequest>(&deep).detail.contains("metadata.k"));
    }

    #[test]
    fn an_array_is_no_object_at_any_depth() {
        for body in ["[]", r#"["a"]"#, r#"{"policy":[]}"#, r#"{"policy":{"priorities":[["*",1]]}}"#]
        {
            let problem = refused::<PutGroupRequest>(body);
            assert!(problem.detail.contains("expected an object"), "{body}: {}", problem.detail);
        }
        refused::<HeartbeatRequest>(
            r#"{"session_id":"00000000000000000000000000000001","disown":[["g",1]]}"#,
        );
    }

    #[test]
    fn a_hostile_name_is_repeated_only_in_part() {
        let problem = refused::<CampaignRequest>(&format!(r#"{{"{}":1}}"#, "é`".repeat(20_000)));
        assert!(problem.detail.len() < 1000, "{}", problem.detail.len());
    }

    #[test]
    fn a_query_is_refused_like_a_body() {
        let wrong = |query: &str| from_query::<WatchQuery>(query).unwrap_err();
        assert_eq!(wrong("wait=1").facts.did_you_mean.as_deref(), Some("wait_ms"));
        assert_eq!(wrong("wait_ms=-1").facts.field.as_deref(), Some("wait_ms"));
        assert_eq!(wrong("cursor=x").facts.field.as_deref(), Some("cursor"));
        assert!(wrong("cursor=1-2&cursor=1-3").detail.contains("duplicate"));
        let query = from_query::<WatchQuery>("cursor=5f-3-0&wait_ms=10").unwrap();
        assert_eq!(query.wait_ms, Some(10));
        assert_eq!(from_query::<WatchQuery>("").unwrap(), WatchQuery::default());
    }
}
