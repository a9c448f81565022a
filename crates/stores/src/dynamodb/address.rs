//! `dynamodb://table?region=eu-west-1`: which table, where, and as whom.

use crate::engine::UrlError;
use crate::engine::address::{decoded, options};

/// What a URL says.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) table: String,
    /// The region, or that of the surroundings.
    pub(super) region: Option<String>,
    /// Another service than Amazon's own.
    pub(super) endpoint: Option<String>,
    /// An access key and its secret, instead of those of the surroundings.
    pub(super) login: Option<(String, String)>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({self})")
    }
}

impl std::fmt::Display for Address {
    /// For people: everything but the login.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.table)?;
        if let Some(region) = &self.region {
            write!(f, " in {region}")?;
        }
        // What lies before an @ may be a secret here, too.
        if let Some(endpoint) = &self.endpoint {
            let place = endpoint.rsplit(['@', '/']).next().unwrap_or_default();
            write!(f, " at {place}")?;
        }
        Ok(())
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let (_, rest) =
            url.split_once("://").ok_or_else(|| UrlError::new("no \"://\" after the scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, table) = match rest.rsplit_once('@') {
            Some((login, table)) => (Some(login), table),
            None => (None, rest),
        };
        let login = match login.map(|login| login.split_once(':')) {
            None => None,
            Some(Some((key, secret))) if !key.is_empty() && !secret.is_empty() => {
                Some((decoded(key), decoded(secret)))
            }
            Some(_) => {
                return Err(UrlError::new("before the @ stand an access key and its secret"));
            }
        };
        let table = table.trim_end_matches('/').to_owned();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(3..=255).contains(&table.len()) || !table.bytes().all(is_plain) {
            return Err(UrlError::new(
                "a table's name is of 3 to 255 letters, digits, -, _ and .; write it like \
                 dynamodb://elections?region=eu-west-1",
            ));
        }
        let (mut region, mut endpoint) = (None, None);
        for (name, value) in options(query) {
            let place = match name.as_str() {
                "region" => &mut region,
                "endpoint" => &mut endpoint,
                _ => {
                    return Err(UrlError::new(format_args!(
                        "unknown option {name:?}; known are region, endpoint"
                    )));
                }
            };
            if value.is_empty() {
                return Err(UrlError::new(format_args!("{name} is empty")));
            }
            *place = Some(value);
        }
        if endpoint.as_ref().is_some_and(|it: &String| !it.starts_with("http")) {
            return Err(UrlError::new("an endpoint is written like http://127.0.0.1:8000"));
        }
        Ok(Self { table, region, endpoint, login })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_table_and_shows_no_secret() {
        let url = "dynamodb://me:se%2Fcret@elections?region=eu-west-1&endpoint=http://a:b@h:1";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.table, "elections");
        assert_eq!(address.region.as_deref(), Some("eu-west-1"));
        assert_eq!(address.login, Some(("me".into(), "se/cret".into())));
        assert_eq!(address.to_string(), "elections in eu-west-1 at h:1");
        assert_eq!(Address::parse("dynamodb://elections").unwrap().to_string(), "elections");
    }

    #[test]
    fn what_names_no_table_is_refused() {
        for url in [
            "dynamodb:elections",
            "dynamodb://ab",
            "dynamodb://a/b/c",
            "dynamodb://elections?zone=1",
            "dynamodb://elections?region=",
            "dynamodb://elections?endpoint=host:1",
            "dynamodb://key@elections",
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(!error.contains("key@"), "{error}");
        }
    }
}
