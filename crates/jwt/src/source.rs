//! The issuers that are believed, with their keys as they were last read.
//!
//! Keys are read at the start, at intervals, and when a token names one that is not known, though not more often than
//! every ten seconds: tokens of strangers name what they like. Such a read runs in a task of its own and puts off no
//! other, so a stranger that hangs up cannot keep keys from being read. If a read fails, the keys stay as they were.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use regent_files::Trust;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::issuers::{Issuer, IssuersError, KeyPlace, read};
use crate::keys::KeySet;
use crate::limits::{KEYS_BYTES_MAX, KEYS_FETCH_TIMEOUT, KEYS_READ_AGAIN_AFTER, KEYS_READ_EVERY};
use crate::token::{Unverified, Verified, WhyNot, verify};

/// Issuers and their keys.
#[derive(Debug)]
pub struct Believed {
    issuers: Vec<Arc<Known>>,
}

#[derive(Debug)]
struct Known {
    issuer: Issuer,
    keys: RwLock<Arc<KeySet>>,
    /// Held while they are read.
    read: Mutex<LastRead>,
}

/// When keys were last read, and when that was last tried. What strangers make be tried must not put off the next
/// read that is due.
#[derive(Debug, Default)]
struct LastRead {
    tried_at: Option<Instant>,
    done_at: Option<Instant>,
}

impl Believed {
    /// Reads a file of issuers, and the keys that are in files. Keys behind addresses come later: an issuer that
    /// cannot be reached must not keep a server from starting.
    ///
    /// # Errors
    /// If the file, or a file of keys that it names, cannot be used.
    pub fn open(path: &Path) -> Result<Self, IssuersError> {
        let mut issuers = Vec::new();
        for issuer in read(path)? {
            let (keys, read) = match &issuer.keys {
                KeyPlace::Https { .. } => (KeySet::default(), LastRead::default()),
                KeyPlace::File(file) => match from_file(file) {
                    Ok(keys) => {
                        let now = Some(Instant::now());
                        (keys, LastRead { tried_at: now, done_at: now })
                    }
                    Err(why) => {
                        let (path, issuer) = (path.to_owned(), issuer.issuer.clone());
                        return Err(IssuersError::Entry { path, issuer, why });
                    }
                },
            };
            let (keys, read) = (RwLock::new(Arc::new(keys)), Mutex::new(read));
            issuers.push(Arc::new(Known { issuer, keys, read }));
        }
        Ok(Self { issuers })
    }

    /// Whom a token names.
    ///
    /// # Errors
    /// If it is not believed.
    pub async fn identify(&self, token: &str, now_s: u64) -> Result<(Verified, SignedBy), WhyNot> {
        let token = Unverified::read(token)?;
        let issuer = token.issuer(self.issuers.iter().map(|known| &known.issuer))?;
        let known = self.issuers.iter().find(|known| std::ptr::eq(&raw const known.issuer, issuer));
        let known = known.ok_or(WhyNot::Issuer)?;
        if !known.keys().knows(token.kid()) {
            // Another task: a caller that hangs up must not end the read for everybody.
            let known = Arc::clone(known);
            let _ =
                tokio::spawn(async move { known.read_if_tried(KEYS_READ_AGAIN_AFTER).await }).await;
        }
        let keys = known.keys();
        let verified = verify(&token, &known.issuer, &keys, now_s)?;
        let (kid, known) = (token.kid().to_owned(), Arc::clone(known));
        Ok((verified, SignedBy { kid, known, keys }))
    }

    /// Reads keys again, for ever: those in files every ten seconds, those behind addresses every five minutes.
    pub async fn keep_fresh(&self) {
        loop {
            for known in &self.issuers {
                let every = match known.issuer.keys {
                    KeyPlace::File(_) => KEYS_READ_AGAIN_AFTER,
                    KeyPlace::Https { .. } => KEYS_READ_EVERY,
                };
                known.read_if_due(every).await;
            }
            tokio::time::sleep(KEYS_READ_AGAIN_AFTER).await;
        }
    }
}

/// The key that a token was believed by.
#[derive(Debug)]
pub struct SignedBy {
    kid: String,
    known: Arc<Known>,
    keys: Arc<KeySet>,
}

impl SignedBy {
    /// Whether its issuer still has it, as its keys were last read.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        let now = self.known.keys();
        Arc::ptr_eq(&now, &self.keys) || now.agrees(&self.keys, &self.kid)
    }
}

impl Known {
    fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the keys again if nobody has tried for so long, and nobody is doing it.
    async fn read_if_tried(&self, before: Duration) {
        let Ok(mut read) = self.read.try_lock() else { return };
        if read.tried_at.is_none_or(|at| at.elapsed() >= before) {
            self.read_again(&mut read).await;
        }
    }

    /// Reads the keys again if they are so old.
    async fn read_if_due(&self, every: Duration) {
        let mut read = self.read.lock().await;
        if read.done_at.is_none_or(|at| at.elapsed() >= every) {
            self.read_again(&mut read).await;
        }
    }

    async fn read_again(&self, read: &mut LastRead) {
        read.tried_at = Some(Instant::now());
        let found = match &self.issuer.keys {
            KeyPlace::File(path) => from_file(path),
            KeyPlace::Https { url, ca } => from_address(url, ca.as_deref()).await,
        };
        let issuer = &self.issuer.issuer;
        if found.is_ok() {
            read.done_at = Some(Instant::now());
        }
        match found {
            Ok(keys) if keys == *self.keys() => {}
            Ok(keys) => {
                tracing::info!(issuer, ?keys, "the keys of an issuer of tokens were read");
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
            }
            Err(error) => {
                tracing::warn!(issuer, error, "the keys of an issuer of tokens stay as they were");
            }
        }
    }
}

fn from_file(path: &Path) -> Result<KeySet, String> {
    let bytes = regent_files::read(path, KEYS_BYTES_MAX as u64, Trust::Own);
    let bytes = bytes.map_err(|error| error.to_string())?;
    KeySet::read(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Fetches keys over HTTPS. A redirect is not followed: an operator names the place itself.
async fn from_address(url: &str, ca: Option<&Path>) -> Result<KeySet, String> {
    let told = |error: &dyn std::fmt::Display| format!("{url}: {error}");
    let address: Uri = url.parse().map_err(|error| told(&error))?;
    let roots = roots(ca)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| told(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let fetched = timeout(KEYS_FETCH_TIMEOUT, async {
        let answer = client.get(address).await.map_err(|error| chain(&error))?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), KEYS_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| error.to_string())?.to_bytes())
    });
    let bytes = fetched
        .await
        .map_err(|_| format!("{url}: no answer in {} s", KEYS_FETCH_TIMEOUT.as_secs()))?
        .map_err(|error| told(&error))?;
    KeySet::read(&bytes).map_err(|error| told(&error))
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    regent_election::error_text::with_causes(error)
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err("this system has no CA certificates; name some with `ca`".to_owned());
            }
        }
        Some(path) => {
            let bytes = regent_files::read(path, KEYS_BYTES_MAX as u64, Trust::Own);
            let bytes = bytes.map_err(|error| error.to_string())?;
            for certificate in CertificateDer::pem_slice_iter(&bytes) {
                let added = certificate
                    .map_err(|error| error.to_string())
                    .and_then(|it| roots.add(it).map_err(|error| error.to_string()));
                added.map_err(|why| format!("{}: {why}", path.display()))?;
            }
            if roots.is_empty() {
                return Err(format!("{} holds no certificate", path.display()));
            }
        }
    }
    Ok(roots)
}
