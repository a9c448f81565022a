//! `kubernetes://NAMESPACE`: Lease objects as a register.
//!
//! Every entry is a Lease of the namespace, written only over the `resourceVersion` and `uid` that were read. A group
//! named like an object is the Lease of that name, so `kubectl get lease` shows who leads; the bytes lie in
//! an annotation (see `object`). Sessions and settings are Leases, too, and no `ConfigMaps`: heartbeats are
//! what Leases are made for, audit rules leave them out, and one rule on `leases` (get, list, watch, create,
//! update) is all that a participant must be allowed.
//!
//! Sessions are timed by those who watch them, and never by `renewTime`, which was read from somebody else's
//! wall clock. The client's own retries are off: a write that is sent twice may conflict with itself.

mod object;

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};
use regent_election::store::{Description, Level};
use tokio::sync::{Mutex, Semaphore};
use tokio_stream::StreamExt as _;

use crate::engine::address::options;
use crate::engine::limits::{LISTED_AT_ONCE_MAX, POLL_EVERY, WAITING_REQUESTS_MAX};
use crate::engine::{Effect, Sent, UrlError, in_time};
use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, Swapped, Version,
};
use crate::time::SystemTime;

/// The longest watch that is asked for, in seconds; the client refuses longer ones.
const WATCH_SECONDS_MAX: u64 = 290;

/// A register in a namespace of Kubernetes.
pub struct KubernetesRegister {
    /// None means that of the context, or the one this process runs in.
    namespace: Option<String>,
    /// None means `KUBECONFIG`, the home's own, or the service account of the pod.
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    request_for: Duration,
    api: Mutex<Option<Api<Lease>>>,
    waits: Semaphore,
}

impl fmt::Debug for KubernetesRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KubernetesRegister({})", self.place())
    }
}

impl KubernetesRegister {
    /// A register in the namespace that `url` names, like `kubernetes://elections?context=production`. Where
    /// the cluster is, the kubeconfig or the pod's service account says, when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let how = "write it like kubernetes://namespace?context=name&kubeconfig=/path";
        let (_, rest) = url
            .split_once("://")
            .ok_or_else(|| UrlError::new(format_args!("no \"://\" after the scheme; {how}")))?;
        let (namespace, rest) = rest.split_once('?').unwrap_or((rest, ""));
        let namespace = namespace.trim_end_matches('/');
        if !namespace.is_empty() && !object::is_plain(namespace) {
            return Err(UrlError::new(format_args!("{namespace:?} is no namespace; {how}")));
        }
        let (mut kubeconfig, mut context) = (None, None);
        for (name, value) in options(rest) {
            match name.as_str() {
                "kubeconfig" => kubeconfig = Some(PathBuf::from(value)),
                "context" => context = Some(value),
                _ => return Err(UrlError::new(format_args!("unknown option {name:?}; {how}"))),
            }
        }
        Ok(Self {
            namespace: Some(namespace.to_owned()).filter(|name| !name.is_empty()),
            kubeconfig,
            context,
            request_for,
            api: Mutex::new(None),
            waits: Semaphore::new(WAITING_REQUESTS_MAX),
        })
    }

    fn place(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or("the namespace of the context");
        match &self.context {
            None => namespace.to_owned(),
            Some(context) => format!("{namespace} of {context}"),
        }
    }

    fn server(&self) -> String {
        format!("Kubernetes, {}", self.place())
    }

    async fn api(&self) -> RegisterResult<Api<Lease>> {
        let mut held = self.api.lock().await;
        if let Some(api) = &*held {
            return Ok(api.clone());
        }
        let api = self
            .connect()
            .await
            .map_err(|why| RegisterError::unavailable(format_args!("{}: {why}", self.server())))?;
        *held = Some(api.clone());
        Ok(api)
    }

    async fn connect(&self) -> Result<Api<Lease>, String> {
        let chosen = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
                let config = Config::from_custom_kubeconfig(file, &chosen).await;
                config.map_err(|error| error.to_string())?
            }
            (None, Some(_)) => {
                Config::from_kubeconfig(&chosen).await.map_err(|error| error.to_string())?
            }
            (None, None) => Config::infer().await.map_err(|error| error.to_string())?,
        };
        config.connect_timeout = Some(self.request_for);
        config.default_retry = false;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        Ok(Api::namespaced(client, &namespace))
    }

    /// One request, within its time-out.
    async fn ask<T>(
        &self,
        effect: Effect,
        request: impl AsyncFnOnce(&Api<Lease>) -> Result<T, Error>,
    ) -> RegisterResult<Result<T, u16>> {
        let server = self.server();
        let answer = in_time(self.request_for, effect, &server, async |sent: &Sent| {
            let api = self.api().await?;
            sent.leaves_now();
            match request(&api).await {
                Ok(answer) => Ok(Ok(answer)),
                Err(Error::Api(status)) if matches!(status.code, 404 | 409 | 410) => {
                    Ok(Err(status.code))
                }
                Err(error) => Err(meaning(effect, &server, &error)),
            }
        });
        answer.await
    }

    /// The object of this name, if it is there, and the revision of the whole at that moment.
    async fn look(&self, name: &str) -> RegisterResult<(Option<Lease>, String)> {
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = self.ask(Effect::Reads, async |api| api.list(&only).await).await?;
        let listed = listed.map_err(|code| self.refused(code))?;
        let revision = listed.metadata.resource_version.unwrap_or_default();
        Ok((listed.items.into_iter().next(), revision))
    }

    /// Returns when the object was changed after the revision, or may have been.
    async fn watch(&self, name: &str, revision: &str, patience: Duration) -> RegisterResult<()> {
        let seconds = patience.as_secs().clamp(1, WATCH_SECONDS_MAX);
        let seconds = u32::try_from(seconds).unwrap_or(1);
        let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(seconds);
        let api = self.api().await?;
        let failed = |error: &Error| meaning(Effect::Reads, &self.server(), error);
        let mut events = pin!(api.watch(&only, revision).await.map_err(|error| failed(&error))?);
        while let Some(event) = events.next().await {
            match event.map_err(|error| failed(&error))? {
                WatchEvent::Bookmark(_) => {}
                // An error is a revision that is forgotten already: then anything may have happened.
                WatchEvent::Added(_)
                | WatchEvent::Modified(_)
                | WatchEvent::Deleted(_)
                | WatchEvent::Error(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// The error of a status that is no answer to what was asked.
    fn refused(&self, code: u16) -> RegisterError {
        RegisterError::unavailable(format_args!(
            "{} answers {code}; does the namespace exist, and may this participant use its leases?",
            self.server()
        ))
    }
}

/// What an error says about a request.
fn meaning(effect: Effect, server: &str, error: &Error) -> RegisterError {
    let why = format!("{server}: {error}");
    let is_unsent = match error {
        Error::Api(status) => (400..500).contains(&status.code),
        Error::Service(error) => error
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect),
        Error::BuildRequest(_) | Error::HttpError(_) | Error::Auth(_) => true,
        _ => false,
    };
    if is_unsent { RegisterError::unavailable(why) } else { effect.unanswered(why) }
}

#[async_trait]
impl Register for KubernetesRegister {
    fn describe(&self) -> Description {
        Description {
            name: "kubernetes",
            place: self.place(),
            level: Level::LeaseOnly,
            caveat: Some(
                "terms rise only while the Lease objects live: kubectl delete lease, or the end of the \
                 namespace, takes terms back"
                    .into(),
            ),
        }
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let one = ListParams::default().limit(1);
        let listed = self.ask(Effect::Reads, async |api| api.list(&one).await).await?;
        listed.map_err(|code| self.refused(code))?;
        Ok(Vec::new())
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let name = object::name(key);
        // Without a revision asked for, the server reads from its quorum and not from its cache.
        match self.ask(Effect::Reads, async |api| api.get(&name).await).await? {
            Ok(lease) => Ok(Some(object::entry(key.kind(), lease, Some(key))?.1)),
            Err(404) => Ok(None),
            Err(code) => Err(self.refused(code)),
        }
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let over = match expected {
            None => None,
            Some(version) => match object::Over::the(version) {
                Some(over) => Some(over),
                // Never given out here, so the entry cannot have it.
                None => return Ok(Swapped::Conflict),
            },
        };
        let lease = object::lease(key, &record, over, SystemTime::shared().wall_ms());
        let how = PostParams { field_manager: Some("regent".into()), ..PostParams::default() };
        let name = object::name(key);
        let written = self
            .ask(Effect::Writes, async |api| match expected {
                None => api.create(&how, &lease).await,
                Some(_) => api.replace(&name, &how, &lease).await,
            })
            .await?;
        match (written, expected) {
            (Ok(lease), _) => {
                let version = object::version(&lease.metadata).ok_or_else(|| {
                    let server = self.server();
                    RegisterError::uncertain(format_args!("{server}: no resourceVersion or no uid"))
                })?;
                Ok(Swapped::Done(version))
            }
            (Err(409), _) | (Err(404), Some(_)) => Ok(Swapped::Conflict),
            (Err(code), _) => Err(self.refused(code)),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        let Ok(_place) = self.waits.try_acquire() else {
            tokio::time::sleep(patience.min(POLL_EVERY)).await;
            return Ok(());
        };
        // The look tells the revision to watch from: that of the entry may be forgotten already.
        let name = object::name(key);
        let (held, revision) = self.look(&name).await?;
        let version = held.and_then(|lease| object::version(&lease.metadata));
        if version.as_ref() != seen {
            return Ok(());
        }
        let changed = self.watch(&name, &revision, patience);
        // The end of a patience is no failure.
        tokio::time::timeout(patience, changed).await.unwrap_or(Ok(()))
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        // Objects are ordered by their own names, which are not ours: a page needs all of them.
        let at_once = u32::try_from(LISTED_AT_ONCE_MAX).unwrap_or(u32::MAX);
        let mut page = ListParams::default().labels(&object::selector(kind)).limit(at_once);
        let mut entries = Vec::new();
        loop {
            let listed = self.ask(Effect::Reads, async |api| api.list(&page).await).await?;
            let listed = listed.map_err(|code| self.refused(code))?;
            for lease in listed.items {
                let (key, found) = object::entry(kind, lease, None)?;
                let is_after = after.is_none_or(|after| key.name() > after);
                if is_after && key.name().starts_with(prefix) {
                    entries.push((key, found));
                }
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => break,
            }
        }
        entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        entries.truncate(count);
        Ok(entries)
    }

    async fn shut_down(&self) {
        *self.api.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        KubernetesRegister::new(url, Duration::from_secs(1)).unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_a_namespace_and_how_to_find_the_cluster() {
        let url = "kubernetes://elections?context=east&kubeconfig=/a%20b";
        let register = KubernetesRegister::new(url, Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "elections of east");
        assert_eq!(register.kubeconfig, Some(PathBuf::from("/a b")));
        let plain = KubernetesRegister::new("k8s://", Duration::from_secs(1)).unwrap();
        assert_eq!(plain.namespace, None);
        assert!(refusal("kubernetes://No_Name").contains("is no namespace"));
        assert!(refusal("kubernetes://a?b=c").contains("unknown option \"b\""));
        assert!(refusal("kubernetes:a").contains("\"://\""));
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_unavailable() {
        let url = "kubernetes://a?kubeconfig=/nonexistent/file";
        let register = KubernetesRegister::new(url, Duration::from_secs(30)).unwrap();
        let refusal = register.load(&Key::setting("x")).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    }
}
