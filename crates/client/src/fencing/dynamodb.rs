//! DynamoDB: a condition on the very item that is written.
//!
//! ```text
//!   { "id": "7", "paid": true, "regent_term": 101 }                       an item
//!   { "id": "7", "regent_term": 102, "regent_gone": true }                what a deletion leaves
//! ```
//!
//! Every write sets `regent_term` under the condition `attribute_not_exists(regent_term) OR regent_term <=
//! :term`; the service compares and writes in one step, and its numbers are exact to 38 digits.
//!
//! A deletion leaves a stone with the mark, because the mark must outlive the item; readers pass over stones
//! ([`is_gone`]). The road not taken is a mark in an item of its own, written in one transaction with the
//! other: twice the price of each write, and a second key that somebody forgets.
//!
//! ```no_run
//! # async fn example(client: aws_sdk_dynamodb::Client, leadership: &regent::Leadership)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use std::collections::HashMap;
//! use aws_sdk_dynamodb::types::AttributeValue;
//! use regent::fencing::dynamodb::FencedTable;
//!
//! let orders = FencedTable::new(client, "orders", ["id"]);
//! let key = HashMap::from([("id".to_owned(), AttributeValue::S("7".into()))]);
//! let permit = leadership.check()?;
//! orders
//!     .update(&permit, key, |update| {
//!         update.update_expression("SET paid = :p").expression_attribute_values(":p", AttributeValue::Bool(true))
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! A write is sent once, however often the client given here would try again: behind a lost answer the next
//! attempt adds twice, or meets its own predecessor and says that nothing was written.
//!
//! **What it does not hold against.** The mark is per item: a new leader raises it by its first write of that
//! item. Global tables with more than one region that is written to decide by the last clock, unless they are
//! of strong consistency. A `TimeToLive` of the table deletes stones, and marks with them. Writes without the
//! condition pass.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemOutput};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use regent_election::error_text::with_causes;
use regent_election::{FenceError, Term};

use super::{Proof, WriteError, WriteResult, refuse};

/// The attribute that holds the mark.
pub const TERM: &str = "regent_term";
/// The attribute of a stone.
pub const GONE: &str = "regent_gone";

const CONDITION: &str = "attribute_not_exists(#regent_term) OR #regent_term <= :regent_term";

/// An item, or its key.
pub type Item = HashMap<String, AttributeValue>;

/// A table whose items are written under terms.
#[derive(Clone, Debug)]
pub struct FencedTable {
    client: Client,
    table: String,
    key: Vec<String>,
}

impl FencedTable {
    /// A table with these key attributes.
    pub fn new<const N: usize>(client: Client, table: impl Into<String>, key: [&str; N]) -> Self {
        Self { client, table: table.into(), key: key.map(str::to_owned).to_vec() }
    }

    /// Writes an item whole, if no higher term was there.
    pub async fn put(&self, proof: &impl Proof, item: Item) -> WriteResult<PutItemOutput> {
        self.put_if(proof, item, |put| put).await
    }

    /// The same, with more said about it: a condition of the caller's own holds besides.
    pub async fn put_if(
        &self,
        proof: &impl Proof,
        mut item: Item,
        more: impl FnOnce(PutItemFluentBuilder) -> PutItemFluentBuilder,
    ) -> WriteResult<PutItemOutput> {
        let key = self.key_of(&item);
        item.insert(TERM.to_owned(), number(proof.term()));
        let put = more(self.client.put_item().set_item(Some(item)));
        let condition = conjunction(put.get_condition_expression().as_deref());
        let sent = put
            .table_name(&self.table)
            .condition_expression(condition)
            .expression_attribute_names("#regent_term", TERM)
            .expression_attribute_values(":regent_term", number(proof.term()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .customize()
            .config_override(once())
            .send()
            .await;
        match sent {
            Ok(done) => Ok(done),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                    let found = failed.item().cloned();
                    Err(self.refused(proof, key, found).await)
                }
                Some(_) | None => Err(meaning(&error)),
            },
        }
    }

    /// Changes an item, if no higher term was there; one that is gone or never was is made, as updates do.
    /// `change` gives the expression and its values.
    pub async fn update(
        &self,
        proof: &impl Proof,
        key: Item,
        change: impl FnOnce(UpdateItemFluentBuilder) -> UpdateItemFluentBuilder,
    ) -> WriteResult<UpdateItemOutput> {
        let update = change(self.client.update_item());
        let expression = with_term(update.get_update_expression().as_deref());
        let condition = conjunction(update.get_condition_expression().as_deref());
        let sent = update
            .table_name(&self.table)
            .set_key(Some(key.clone()))
            .update_expression(expression)
            .condition_expression(condition)
            .expression_attribute_names("#regent_term", TERM)
            .expression_attribute_names("#regent_gone", GONE)
            .expression_attribute_values(":regent_term", number(proof.term()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .customize()
            .config_override(once())
            .send()
            .await;
        match sent {
            Ok(done) => Ok(done),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    let found = failed.item().cloned();
                    Err(self.refused(proof, key, found).await)
                }
                Some(_) | None => Err(meaning(&error)),
            },
        }
    }

    /// Deletes an item, if no higher term was there: a stone with the mark is left.
    pub async fn delete(&self, proof: &impl Proof, key: Item) -> WriteResult<PutItemOutput> {
        let mut stone = key;
        stone.insert(GONE.to_owned(), AttributeValue::Bool(true));
        self.put(proof, stone).await
    }

    /// Reads an item as it is now; stones are nothing.
    pub async fn get(
        &self,
        key: Item,
    ) -> Result<Option<Item>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.look(key).await.map_err(|error| error.into_service_error())?;
        Ok(found.filter(|item| !is_gone(item)))
    }

    async fn look(
        &self,
        key: Item,
    ) -> Result<Option<Item>, SdkError<aws_sdk_dynamodb::operation::get_item::GetItemError>> {
        let asked = self.client.get_item().table_name(&self.table).set_key(Some(key));
        Ok(asked.consistent_read(true).send().await?.item)
    }

    fn key_of(&self, item: &Item) -> Item {
        let of = |name: &String| Some((name.clone(), item.get(name)?.clone()));
        self.key.iter().filter_map(of).collect()
    }

    /// A condition did not hold: the fence's, or one of the caller's own. Not every service tells the item
    /// beside the refusal; then it is read, and a mark never falls, so what is found is no lower than what
    /// refused.
    async fn refused(&self, proof: &impl Proof, key: Item, found: Option<Item>) -> WriteError {
        let found = match found.filter(|item| item.contains_key(TERM)) {
            Some(item) => Some(item),
            None => match self.look(key).await {
                Ok(found) => found,
                Err(error) => return WriteError::Failed(error.into_service_error().into()),
            },
        };
        let (given, current) = (proof.term(), found.as_ref().and_then(mark));
        match current {
            Some(current) if given < current => refuse(proof, FenceError::Stale { given, current }),
            Some(_) | None => WriteError::failed("a condition of the request did not hold"),
        }
    }
}

/// One attempt, whatever the client's own rule is.
fn once() -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder().retry_config(RetryConfig::disabled())
}

/// Whether an item is the stone of a deleted one.
#[must_use]
pub fn is_gone(item: &Item) -> bool {
    item.contains_key(GONE)
}

/// The mark of an item.
#[must_use]
pub fn mark(item: &Item) -> Option<Term> {
    Term::new(item.get(TERM)?.as_n().ok()?.parse().ok()?)
}

fn number(term: Term) -> AttributeValue {
    AttributeValue::N(term.to_string())
}

/// The fence's condition, and the caller's own.
fn conjunction(own: Option<&str>) -> String {
    match own {
        Some(own) => format!("({own}) AND ({CONDITION})"),
        None => CONDITION.to_owned(),
    }
}

/// An update that sets the mark, too, and takes the sign of a stone away.
fn with_term(own: Option<&str>) -> String {
    let mut clauses = [
        ("SET", vec!["#regent_term = :regent_term".to_owned()]),
        ("REMOVE", vec!["#regent_gone".to_owned()]),
    ];
    let mut others = String::new();
    for (word, body) in parts(own.unwrap_or_default()) {
        match clauses.iter_mut().find(|(name, _)| word.eq_ignore_ascii_case(name)) {
            Some((_, bodies)) => bodies.push(body.trim().to_owned()),
            None => others.push_str(&format!(" {word} {}", body.trim())),
        }
    }
    let ours = clauses.map(|(word, bodies)| format!("{word} {}", bodies.join(", ")));
    format!("{}{others}", ours.join(" "))
}

/// The clauses of an update expression. The words that begin them are reserved, so nothing else is one.
fn parts(expression: &str) -> Vec<(&str, &str)> {
    let is_clause = |word: &str| {
        ["SET", "REMOVE", "ADD", "DELETE"].iter().any(|it| word.eq_ignore_ascii_case(it))
    };
    let mut starts = Vec::new();
    let mut at = 0;
    for piece in expression.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if is_clause(word) {
            starts.push((at, at + word.len()));
        }
        at += piece.len();
    }
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([expression.len()]);
    let clause = |((start, body), end): (&(usize, usize), usize)| {
        (&expression[*start..*body], &expression[*body..end])
    };
    starts.iter().zip(ends).map(clause).collect()
}

/// What an error that is no failed condition means.
fn meaning<E>(error: &SdkError<E>) -> WriteError
where
    E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    let text = with_causes(error);
    match error {
        SdkError::ConstructionFailure(_) => WriteError::failed(text),
        // The service said no, and not that it failed halfway.
        SdkError::ServiceError(answer) if answer.raw().status().as_u16() < 500 => {
            WriteError::failed(text)
        }
        _ => WriteError::uncertain(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_keeps_its_clauses_and_sets_the_mark() {
        let ours = "SET #regent_term = :regent_term";
        assert_eq!(with_term(None), format!("{ours} REMOVE #regent_gone"));
        assert_eq!(
            with_term(Some("SET paid = :p, #n = if_not_exists(#n, :z)")),
            format!("{ours}, paid = :p, #n = if_not_exists(#n, :z) REMOVE #regent_gone")
        );
        assert_eq!(
            with_term(Some("REMOVE a, b ADD visits :one set c = :c")),
            format!("{ours}, c = :c REMOVE #regent_gone, a, b ADD visits :one")
        );
        assert_eq!(
            with_term(Some("delete tags :t")),
            format!("{ours} REMOVE #regent_gone delete tags :t")
        );
    }

    /// A service that tells the item beside the refusal is not asked again; here nobody could be.
    #[tokio::test]
    async fn a_mark_that_is_told_beside_the_refusal_is_taken_from_there() {
        use super::super::Pretender;
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::v2026_01_12())
            .build();
        let table = FencedTable::new(Client::from_conf(config), "orders", ["id"]);
        let item = |term: u64| {
            let mark = number(Term::new(term).unwrap());
            Item::from([("id".to_owned(), AttributeValue::S("7".into())), (TERM.to_owned(), mark)])
        };
        let stale = Pretender::new(Term::new(100).unwrap());
        let told = table.refused(&stale, table.key_of(&item(101)), Some(item(101))).await;
        assert_eq!(told.to_string(), "STALE_TERM: term 100 < current 101");
        assert!(stale.is_refused());
        let own = Pretender::new(Term::new(101).unwrap());
        let told = table.refused(&own, table.key_of(&item(101)), Some(item(101))).await;
        assert!(matches!(told, WriteError::Failed(_)) && !own.is_refused(), "{told}");
    }

    #[test]
    fn a_condition_of_the_callers_own_holds_besides() {
        assert_eq!(conjunction(None), CONDITION);
        assert_eq!(
            conjunction(Some("a = :a OR b = :b")),
            format!("(a = :a OR b = :b) AND ({CONDITION})")
        );
    }
}
