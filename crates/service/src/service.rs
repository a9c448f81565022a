//! The service on a store, and on a replica of our own.

use std::future::Future;
use std::sync::Arc;

use regent_election::store::{Description, Store};
use regent_server::{Cluster, Listener, ServeError, ServerConfig, serve_cluster};

use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::client_tls::{self, ClientPort};
use crate::error::ReplicaError;
use crate::port::ReplicaCluster;
use crate::replica::{self, ReplicaOptions};

/// A store that is ready to be served.
#[derive(Debug)]
#[must_use = "nothing is served before `serve`"]
pub struct Service {
    store: Arc<dyn Store>,
    cluster: Option<Arc<dyn Cluster>>,
    /// None for a store that belongs to no cluster of ours.
    cluster_id: Option<u128>,
    config: ServerConfig,
}

impl Service {
    /// A service on the replica in a directory, which runs from here on.
    ///
    /// # Errors
    /// If the directory holds no replica and none may be founded there, or the replica cannot start.
    pub async fn on_replica(options: ReplicaOptions) -> Result<Self, ReplicaError> {
        let directory = options.directory.clone();
        let segment_bytes = options.replica.disk.segment_bytes;
        let certificates = options.replica.certificates.as_ref();
        let are_peers_local = certificates.is_none() && !options.replica.is_insecure;
        let accepts_plaintext = certificates.is_some_and(|files| files.accepts_plaintext);
        let store = replica::run(options).await?;
        let handle = store.handle().clone();
        let cluster_id = Some(handle.identity().cluster);
        let cluster =
            ReplicaCluster { handle, directory, segment_bytes, are_peers_local, accepts_plaintext };
        let config = ServerConfig::default();
        Ok(Self { store, cluster: Some(Arc::new(cluster)), cluster_id, config })
    }

    /// A service on any other store.
    pub fn on_store(store: Arc<dyn Store>) -> Self {
        Self { store, cluster: None, cluster_id: None, config: ServerConfig::default() }
    }

    /// A listener that speaks TLS to clients, and nothing else. `reload` says that certificates are to be read again.
    ///
    /// # Errors
    /// If the certificates cannot be used, or this build has no TLS.
    pub fn secured(
        &self,
        listener: TcpListener,
        port: &ClientPort,
        reload: Arc<Notify>,
    ) -> Result<Listener, ReplicaError> {
        client_tls::secured(listener, port, self.cluster_id, reload)
    }

    /// Limits and timeouts other than the defaults.
    pub fn with_config(mut self, config: ServerConfig) -> Self {
        self.config = config;
        self
    }

    /// What the store is.
    #[must_use]
    pub fn describe(&self) -> Description {
        self.store.describe()
    }

    /// Serves until `shutdown` is ready, then ends in order: requests under way are answered, and the
    /// store shuts down.
    ///
    /// # Errors
    /// If there is no listener, or the configuration is refused.
    pub async fn serve(
        self,
        listeners: Vec<impl Into<Listener>>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        serve_cluster(listeners, self.store, self.cluster, self.config, shutdown).await
    }
}
