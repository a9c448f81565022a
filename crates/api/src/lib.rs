//! The wire: types of every verb, problem details, OpenAPI. Nothing else.
