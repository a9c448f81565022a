//! URLs of buckets: `s3://key:secret@bucket/prefix?region=…`, and what the environment adds to them.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, Error, ObjectStore, RetryConfig};

use super::bucket::Cloud;
use crate::engine::UrlError;
use crate::engine::address::{decoded, options};

/// What every object opens with unless the URL has a path.
const ROOT: &str = "regent";
/// How often an object is looked at unless the URL says otherwise: each look is paid for.
const OBJECT_POLL_EVERY_MS: u64 = 1000;
/// The shortest and the longest time between two looks that can be asked for.
const OBJECT_POLL_EVERY_MS_BOUNDS: [u64; 2] = [10, 60_000];
/// The shortest and the longest time that a request may be given.
const REQUEST_MS_BOUNDS: [u64; 2] = [100, 60_000];

/// What a URL opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) cloud: Cloud,
    pub(super) bucket: String,
    pub(super) root: Path,
    /// Whether the server is not the cloud's own.
    pub(super) is_elsewhere: bool,
    pub(super) look_every: Duration,
    pub(super) request_for: Duration,
}

/// A URL, cut into its parts.
struct ObjectAddress {
    cloud: Cloud,
    login: Option<(String, String)>,
    bucket: String,
    root: Path,
    region: Option<String>,
    endpoint: Option<String>,
    /// A file of the certificates that are trusted besides the system's.
    ca: Option<String>,
    look_every: Duration,
    request_for: Duration,
}

impl ObjectAddress {
    /// Cuts a URL; `request_for` is how long a request may take unless it says otherwise.
    fn parse(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| UrlError::new("no \"://\" after the scheme"))?;
        let cloud = match scheme {
            "s3" => Cloud::Amazon,
            "gs" => Cloud::Google,
            "az" | "azure" => Cloud::Azure,
            _ => return Err(UrlError::new("not a bucket; known are s3://, gs:// and az://")),
        };
        let (rest, given) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, root) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, bucket) = match authority.rsplit_once('@') {
            Some((login, bucket)) => (Some(login), bucket),
            None => (None, authority),
        };
        if bucket.is_empty() {
            return Err(UrlError::new("no bucket"));
        }
        if bucket.contains(':') {
            return Err(UrlError::new(
                "a bucket has no port, and a slash within a secret is written %2F",
            ));
        }
        let login = login
            .map(|login| login.split_once(':').unwrap_or((login, "")))
            .map(|(user, secret)| (decoded(user), decoded(secret)));
        let root = decoded(root.trim_matches('/'));
        let root = Path::parse(if root.is_empty() { ROOT } else { &root })
            .map_err(|error| UrlError::new(format_args!("no prefix: {error}")))?;
        let mut place = Self {
            cloud,
            login,
            bucket: bucket.to_owned(),
            root,
            region: None,
            endpoint: None,
            ca: None,
            look_every: Duration::from_millis(OBJECT_POLL_EVERY_MS),
            request_for,
        };
        for (name, value) in options(given) {
            match name.as_str() {
                "region" if cloud == Cloud::Amazon => place.region = Some(value),
                "endpoint" => place.endpoint = Some(value),
                "ca" => place.ca = Some(value),
                "poll_ms" => place.look_every = millis(&name, &value, OBJECT_POLL_EVERY_MS_BOUNDS)?,
                "timeout_ms" => place.request_for = millis(&name, &value, REQUEST_MS_BOUNDS)?,
                _ => {
                    return Err(UrlError::new(format_args!(
                        "unknown option {name:?}; known are region (of s3), endpoint, ca, poll_ms and timeout_ms"
                    )));
                }
            }
        }
        Ok(place)
    }

    /// How its server is spoken to, if it is at this address.
    fn client(&self, endpoint: Option<&str>) -> Result<ClientOptions, UrlError> {
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let mut client = ClientOptions::new()
            .with_timeout(self.request_for)
            .with_connect_timeout(self.request_for)
            .with_allow_http(is_plain);
        if let Some(file) = &self.ca {
            let bad = |why: &dyn std::fmt::Display| {
                UrlError::new(format_args!("ca: no certificates in {file:?}: {why}"))
            };
            let pem = std::fs::read(file).map_err(|error| bad(&error))?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| bad(&error))?;
            if certificates.is_empty() {
                return Err(bad(&"it holds none"));
            }
            for certificate in certificates {
                client = client.with_root_certificate(certificate);
            }
        }
        Ok(client)
    }
}

/// The time that an option names.
fn millis(name: &str, value: &str, bounds: [u64; 2]) -> Result<Duration, UrlError> {
    let [shortest, longest] = bounds;
    let ms = value.parse().ok().filter(|ms| (shortest..=longest).contains(ms));
    ms.map(Duration::from_millis).ok_or_else(|| {
        UrlError::new(format_args!("{name} is no number from {shortest} to {longest}"))
    })
}

/// Opens the bucket that a URL names. Nothing is sent yet.
pub(super) fn open(url: &str, request_for: Duration) -> Result<Opened, UrlError> {
    let place = ObjectAddress::parse(url, request_for)?;
    let (store, is_elsewhere) = match place.cloud {
        Cloud::Amazon => amazon(&place)?,
        Cloud::Google => google(&place)?,
        Cloud::Azure => azure(&place)?,
    };
    let store = store.map_err(|error| UrlError::new(format_args!("no bucket: {error}")))?;
    let ObjectAddress { cloud, bucket, root, look_every, request_for, .. } = place;
    Ok(Opened { store, cloud, bucket, root, is_elsewhere, look_every, request_for })
}

/// A store, or why not, and whether its server is not the cloud's own.
type Built = (Result<Arc<dyn ObjectStore>, Error>, bool);

/// A request that is sent again by itself would meet its own success.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn amazon(place: &ObjectAddress) -> Result<Built, UrlError> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(&place.bucket);
    if let Some(region) = &place.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &place.endpoint {
        builder = builder
            .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint)
            .with_virtual_hosted_style_request(false);
    }
    if let Some((key, secret)) = &place.login {
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
    }
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let client = place.client(endpoint.as_deref())?;
    // Set last: the environment can turn conditions off.
    let builder = builder
        .with_client_options(client)
        .with_retry(once())
        .with_conditional_put(S3ConditionalPut::ETagMatch);
    Ok((builder.build().map(|store| Arc::new(store) as _), endpoint.is_some()))
}

fn google(place: &ObjectAddress) -> Result<Built, UrlError> {
    if place.login.is_some() {
        return Err(UrlError::new(
            "gs:// takes no login; name a file with GOOGLE_APPLICATION_CREDENTIALS",
        ));
    }
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&place.bucket);
    if let Some(endpoint) = &place.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let client = place.client(place.endpoint.as_deref())?;
    let builder = builder.with_client_options(client).with_retry(once());
    Ok((builder.build().map(|store| Arc::new(store) as _), place.endpoint.is_some()))
}

fn azure(place: &ObjectAddress) -> Result<Built, UrlError> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(&place.bucket);
    if let Some(endpoint) = &place.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some((account, key)) = &place.login {
        builder = builder.with_account(account).with_access_key(key);
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let client = place.client(endpoint.as_deref())?;
    let builder = builder.with_client_options(client).with_retry(once());
    Ok((builder.build().map(|store| Arc::new(store) as _), endpoint.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        open(url, Duration::from_secs(1)).unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_a_bucket_and_nothing_it_does_not_know() {
        let parse = |url| ObjectAddress::parse(url, Duration::from_secs(1)).unwrap();
        let place =
            parse("s3://key:a%2Fb@bucket/some/where/?region=x&poll_ms=250&timeout_ms=20000");
        assert_eq!(place.login, Some(("key".into(), "a/b".into())));
        assert_eq!((place.bucket.as_str(), place.root.as_ref()), ("bucket", "some/where"));
        assert_eq!(place.look_every, Duration::from_millis(250));
        assert_eq!(place.request_for, Duration::from_secs(20));
        let place = parse("s3://bucket");
        assert_eq!((place.root.as_ref(), place.request_for), (ROOT, Duration::from_secs(1)));
        assert!(refusal("s3://").contains("no bucket"));
        assert!(refusal("s3://key:se/cret@bucket").contains("%2F"));
        assert!(refusal("s3://a?ttl=1").contains("unknown option"));
        assert!(refusal("s3://a?poll_ms=0").contains("from 10 to 60000"));
        assert!(refusal("s3://a?timeout_ms=x").contains("from 100 to 60000"));
        assert!(refusal("s3://a?ca=/no/such/file").contains("no certificates"));
        assert!(refusal("s3://a/b//c").contains("no prefix"));
        assert!(refusal("gs://a?region=x").contains("unknown option"));
        assert!(refusal("gs://a:b@c").contains("takes no login"));
        assert!(refusal("ftp://a").contains("not a bucket"));
    }

    #[test]
    fn a_server_of_its_own_is_told_from_the_clouds() {
        let is_elsewhere = |url: &str| open(url, Duration::from_secs(1)).unwrap().is_elsewhere;
        assert!(is_elsewhere("s3://a:b@c?endpoint=http://127.0.0.1:1&region=x"));
        assert!(!is_elsewhere("s3://a:b@c?region=x"));
        assert!(is_elsewhere("az://a:Yg==@c?endpoint=http://127.0.0.1:1/a"));
        assert!(!is_elsewhere("az://a:Yg==@c"));
    }
}
