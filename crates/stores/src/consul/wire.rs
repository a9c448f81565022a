//! What Consul's HTTP API says and is told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::engine::Effect;
use crate::engine::address::StoreAddress;
use crate::engine::http::HttpAnswer;
use crate::register::{Found, RegisterError, RegisterResult, Version};

/// One key as Consul holds it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Row {
    key: String,
    /// In base64; none for no bytes, and after a write, which does not repeat them.
    value: Option<String>,
    /// The session of Consul's that has locked it.
    pub(super) session: Option<String>,
    modify_index: u64,
}

impl Row {
    /// The entry it holds.
    pub(super) fn found(self) -> RegisterResult<Found> {
        let value =
            STANDARD.decode(self.value.as_deref().unwrap_or_default()).map_err(|error| {
                RegisterError::corrupt(format_args!("the value of {} in Consul: {error}", self.key))
            })?;
        Ok(Found { value, version: Version::from(self.modify_index) })
    }

    /// Its version alone.
    pub(super) fn version(&self) -> Version {
        Version::from(self.modify_index)
    }
}

/// What became of a transaction.
#[derive(Debug)]
pub(super) enum TransactionOutcome {
    /// All of it happened.
    Done(Vec<Row>),
    /// Nothing of it did, in Consul's words.
    Refused(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Transaction {
    results: Option<Vec<Step>>,
    errors: Option<Vec<Refusal>>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(rename = "KV")]
    row: Row,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "What")]
    what: String,
}

/// The steps of a transaction that reads these keys.
pub(super) fn get_steps(keys: &[String]) -> Vec<u8> {
    let steps: Vec<_> =
        keys.iter().map(|key| json!({ "KV": { "Verb": "get", "Key": key } })).collect();
    json!(steps).to_string().into_bytes()
}

/// The one step of a transaction that writes a key if it still has this index; 0 is that of no key.
pub(super) fn swap_step(key: &str, value: &[u8], index: u64, flags: u64) -> Vec<u8> {
    let value = STANDARD.encode(value);
    let step = json!({ "Verb": "cas", "Key": key, "Value": value, "Index": index, "Flags": flags });
    json!([{ "KV": step }]).to_string().into_bytes()
}

/// The steps of a transaction that creates a key if it is not there, locked by a session of Consul's if one is
/// named.
pub(super) fn create_steps(key: &str, value: &[u8], session: Option<&str>) -> Vec<u8> {
    let value = STANDARD.encode(value);
    let absent = json!({ "Verb": "check-not-exists", "Key": key });
    let write = match session {
        Some(id) => json!({ "Verb": "lock", "Key": key, "Value": value, "Session": id }),
        None => json!({ "Verb": "set", "Key": key, "Value": value }),
    };
    json!([{ "KV": absent }, { "KV": write }]).to_string().into_bytes()
}

/// The steps of a transaction that takes a key from the session of Consul's that holds it, for another.
pub(super) fn move_steps(key: &str, from: &str, to: &str) -> Vec<u8> {
    let unlock = json!({ "Verb": "unlock", "Key": key, "Value": "", "Session": from });
    let lock = json!({ "Verb": "lock", "Key": key, "Value": "", "Session": to });
    json!([{ "KV": unlock }, { "KV": lock }]).to_string().into_bytes()
}

/// A session of Consul's that no health ends, and that releases what it holds.
pub(super) fn session(node: &str, ttl_ms: u64) -> Vec<u8> {
    let none: [&str; 0] = [];
    json!({
        "Node": node, "Name": "regent", "TTL": format!("{ttl_ms}ms"), "LockDelay": "0s",
        "Behavior": "release", "Checks": none, "NodeChecks": none, "ServiceChecks": none,
    })
    .to_string()
    .into_bytes()
}

/// A node that no agent stands behind.
pub(super) fn node(name: &str) -> Vec<u8> {
    json!({ "Node": name, "Address": "127.0.0.1" }).to_string().into_bytes()
}

#[derive(Deserialize)]
struct Made {
    #[serde(rename = "ID")]
    id: String,
}

/// The id of a session that was made.
pub(super) fn made(answer: &HttpAnswer) -> RegisterResult<String> {
    json(answer).map(|made: Made| made.id)
}

#[derive(Deserialize)]
struct Renewed {
    #[serde(rename = "TTL")]
    ttl: String,
}

/// The ttl of a session that was renewed; 0 for one that is not ours, because ours are told in milliseconds.
pub(super) fn renewed(answer: &HttpAnswer) -> RegisterResult<u64> {
    let sessions: Vec<Renewed> = json(answer)?;
    let ttl_ms = |renewed: &Renewed| renewed.ttl.strip_suffix("ms")?.parse().ok();
    Ok(sessions.first().and_then(ttl_ms).unwrap_or(0))
}

/// What a transaction came to.
pub(super) fn outcome(
    effect: Effect,
    place: &StoreAddress,
    answer: &HttpAnswer,
) -> RegisterResult<TransactionOutcome> {
    // A conflict rolls the whole transaction back; whatever else is not success is no answer to it.
    if !matches!(answer.status.as_u16(), 200 | 409) {
        return Err(failure(effect, place, answer));
    }
    let said: Transaction = serde_json::from_slice(&answer.body)
        .map_err(|error| effect.unanswered(format_args!("Consul at {place}: {error}")))?;
    let refusals = said.errors.unwrap_or_default();
    if answer.status.as_u16() == 200 && refusals.is_empty() {
        let steps = said.results.unwrap_or_default();
        return Ok(TransactionOutcome::Done(steps.into_iter().map(|step| step.row).collect()));
    }
    let words: Vec<_> = refusals.into_iter().map(|refusal| refusal.what).collect();
    Ok(TransactionOutcome::Refused(format!("Consul at {place}: {}", words.join("; "))))
}

/// The error that a status stands for. A request that Consul refused did nothing; one that failed inside it
/// may have been committed by servers that this agent lost.
pub(super) fn failure(effect: Effect, place: &StoreAddress, answer: &HttpAnswer) -> RegisterError {
    let words = String::from_utf8_lossy(&answer.body);
    let words: String = words.trim().chars().take(200).collect();
    let why = format!("Consul at {place}: {} {words}", answer.status);
    if answer.status.is_client_error() {
        RegisterError::unavailable(why)
    } else {
        effect.unanswered(why)
    }
}

/// The one row of a read.
pub(super) fn row(answer: &HttpAnswer) -> RegisterResult<Row> {
    let rows: Vec<Row> = json(answer)?;
    match <[Row; 1]>::try_from(rows) {
        Ok([row]) => Ok(row),
        Err(rows) => {
            Err(RegisterError::unavailable(format_args!("Consul read {} keys as one", rows.len())))
        }
    }
}

/// The names that a listing of keys holds, without what they all open with.
pub(super) fn keys(answer: &HttpAnswer, opening: &str) -> RegisterResult<Vec<String>> {
    let keys: Vec<String> = json(answer)?;
    // Folders of Consul's own interface are keys that end in a slash; they are no entries.
    let names = keys.iter().filter_map(|key| key.strip_prefix(opening));
    Ok(names.filter(|name| !name.is_empty() && !name.ends_with('/')).map(str::to_owned).collect())
}

/// What a read said.
pub(super) fn json<T: DeserializeOwned>(answer: &HttpAnswer) -> RegisterResult<T> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| RegisterError::unavailable(format_args!("not what Consul says: {error}")))
}

/// The index from which a blocking query goes on. At 0 it would not block.
pub(super) fn index(answer: &HttpAnswer) -> u64 {
    let index = answer.headers.get("x-consul-index").and_then(|index| index.to_str().ok());
    index.and_then(|index| index.parse().ok()).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use hyper::{HeaderMap, StatusCode};

    use super::*;

    fn answer(status: u16, body: &str) -> HttpAnswer {
        let status = StatusCode::from_u16(status).unwrap();
        HttpAnswer { status, headers: HeaderMap::new(), body: body.to_owned().into() }
    }

    fn place() -> StoreAddress {
        StoreAddress::parse("consul://host", 8500).unwrap()
    }

    #[test]
    fn a_transaction_is_done_refused_or_in_doubt() {
        let outcome = |status, body| outcome(Effect::Writes, &place(), &answer(status, body));
        let done = r#"{"Results":[{"KV":{"Key":"k","Value":null,"ModifyIndex":8}}],"Errors":null}"#;
        let TransactionOutcome::Done(rows) = outcome(200, done).unwrap() else { panic!("refused") };
        assert_eq!(rows[0].version(), Version("8".into()));
        let refused = r#"{"Results":null,"Errors":[{"OpIndex":0,"What":"index is stale"}]}"#;
        let TransactionOutcome::Refused(why) = outcome(409, refused).unwrap() else {
            panic!("done")
        };
        assert!(why.contains("index is stale"));
        for (status, body, is_doubtful) in [
            (500, "leadership lost while committing log", true),
            (200, "not json", true),
            (403, "Permission denied", false),
            (413, "too large", false),
        ] {
            let error = outcome(status, body).unwrap_err();
            assert_eq!(matches!(error, RegisterError::Uncertain { .. }), is_doubtful, "{error:?}");
        }
    }

    #[test]
    fn a_session_is_told_and_heard_in_milliseconds() {
        let told: serde_json::Value = serde_json::from_slice(&session("n", 10_500)).unwrap();
        assert_eq!((&told["TTL"], &told["Behavior"]), (&"10500ms".into(), &"release".into()));
        assert_eq!(told["NodeChecks"], json!([]));
        for (body, expected) in
            [(r#"[{"TTL":"10500ms"}]"#, 10_500), (r#"[{"TTL":"15s"}]"#, 0), ("[]", 0)]
        {
            assert_eq!(renewed(&answer(200, body)).unwrap(), expected);
        }
    }

    #[test]
    fn a_listing_leaves_out_folders_and_what_is_elsewhere() {
        let listed =
            answer(200, r#"["r/groups/","r/groups/a","r/groups/b/","r/groups/b/c","r/x"]"#);
        assert_eq!(keys(&listed, "r/groups/").unwrap(), ["a", "b/c"]);
    }

    #[test]
    fn a_value_that_is_no_base64_is_corrupt() {
        let row = row(&answer(200, r#"[{"Key":"k","Value":"?","ModifyIndex":8}]"#)).unwrap();
        assert!(matches!(row.found(), Err(RegisterError::Corrupt { .. })));
    }
}
