//! The OpenAPI 3.1 document, built from the table of routes and the types' schemas.
//!
//! Written by hand it would soon be wrong; generated from annotations on handlers it would describe
//! code, not the contract. The table is the contract, and both the router and this follow it.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::problem::{Code, PROBLEM_JSON, Problem};
use crate::route::{Method, Reply, Route};
use crate::routes::ROUTES;
use crate::schema;
use crate::watch::WatchEvent;

/// The whole document.
#[must_use]
pub fn document() -> Value {
    let mut schemas = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.word().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    // The stream's events stand in no operation's schema, since a stream has none in OpenAPI.
    schemas.subschema_for::<WatchEvent>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Regent",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Leader election: one leader per group, told to everyone, fenced by its term.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas.take_definitions(true)},
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters(route, schemas),
        "responses": responses(route, schemas),
    });
    if let Some(request) = route.request {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": request(schemas)}},
        });
    }
    operation
}

fn parameters(route: &Route, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let mut parameters = Vec::new();
    if route.path.contains("{group}") {
        parameters.push(json!({
            "name": "group", "in": "path", "required": true,
            "schema": schemas.subschema_for::<schema::GroupName>(),
        }));
    }
    if let Reply::JsonOrEvents(_) = route.reply {
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "required": false,
            "description": "The cursor to resume from, as browsers send it; it wins over `cursor`.",
            "schema": schemas.subschema_for::<schema::Cursor>(),
        }));
    }
    for (name, schema) in query_fields(route, schemas) {
        parameters.push(json!({"name": name, "in": "query", "required": false, "schema": schema}));
    }
    parameters
}

/// The fields of a query type, one parameter each.
fn query_fields(route: &Route, schemas: &mut SchemaGenerator) -> Vec<(String, Value)> {
    let Some(query) = route.query else { return Vec::new() };
    let reference = query(schemas).to_value();
    let name = reference["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    let fields = name
        .and_then(|name| schemas.definitions().get(name))
        .and_then(|definition| definition["properties"].as_object());
    fields
        .map(|fields| fields.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect())
        .unwrap_or_default()
}

fn responses(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let content = match route.reply {
        Reply::Json(of) => json!({"application/json": {"schema": of(schemas)}}),
        Reply::JsonOrEvents(of) => json!({
            "application/json": {"schema": of(schemas)},
            "text/event-stream": {"schema": {
                "type": "string",
                "description": "Server-sent events; `event` and `data` as in WatchEvent, `id` is the cursor.",
            }},
        }),
        Reply::Other(label) => json!({label: {}}),
    };
    let mut responses = Map::new();
    responses.insert("200".into(), json!({"description": "It is so.", "content": content}));
    let problem = schemas.subschema_for::<Problem>();
    for (status, codes) in by_status(route) {
        let lines: Vec<_> = codes
            .iter()
            .map(|code| format!("`{}`: {}", code.word(), code.meaning().trim()))
            .collect();
        let mut response = json!({
            "description": lines.join("\n\n"),
            "content": {PROBLEM_JSON: {"schema": &problem}},
        });
        if matches!(status, 429 | 503) {
            response["headers"] = json!({"Retry-After": {
                "description": "Seconds to wait, rounded up.", "schema": {"type": "integer"},
            }});
        }
        responses.insert(status.to_string(), response);
    }
    responses.into()
}

fn by_status(route: &Route) -> BTreeMap<u16, Vec<Code>> {
    let mut statuses = BTreeMap::<u16, Vec<Code>>::new();
    for code in route.codes_all() {
        statuses.entry(code.status()).or_default().push(code);
    }
    statuses
}

/// The methods of one path, as an `Allow` header lists them. What can be read can be asked for its
/// head alone.
#[must_use]
pub fn allow(path: &str) -> String {
    let mut words = Vec::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        words.push(route.method.word());
        if route.method == Method::Get {
            words.push("HEAD");
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_in_the_document_leads_somewhere() {
        let document = document();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 100, "{}", references.len());
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("references stay inside");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    fn collect(value: &Value, references: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let ("$ref", Value::String(reference)) = (name.as_str(), value) {
                        references.push(reference.clone());
                    }
                    collect(value, references);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn the_document_holds_every_route_and_its_parameters() {
        let document = document();
        for route in ROUTES {
            let method = route.method.word().to_ascii_lowercase();
            let operation = &document["paths"][route.path][&method];
            assert_eq!(operation["operationId"], route.id);
            assert_eq!(
                operation["requestBody"].is_object(),
                route.request.is_some(),
                "{}",
                route.id
            );
        }
        let watch = document["paths"]["/v1/watch"]["get"]["parameters"].as_array().unwrap();
        let names: Vec<_> = watch.iter().map(|each| each["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Last-Event-ID", "cursor", "groups", "prefix", "wait_ms"]);
    }

    #[test]
    fn every_code_is_explained_in_the_document() {
        let text = document().to_string();
        for code in Code::ALL {
            assert!(text.contains(code.word()), "{code}");
        }
    }

    #[test]
    fn a_path_with_three_methods_allows_three_and_the_head() {
        assert_eq!(allow("/v1/groups/{group}"), "PUT, GET, HEAD, DELETE");
        assert_eq!(allow("/nowhere"), "");
    }
}
