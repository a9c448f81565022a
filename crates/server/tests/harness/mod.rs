//! A server on a free port over the real in-memory store, for the tests of every face.

pub(crate) mod access;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::Store;
use regent_server::{ServerConfig, serve};
use regent_stores::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Nothing here should take this long; it only keeps a broken test from hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {PATIENCE:?}"),
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<dyn Store>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(ServerConfig::default()).await
    }

    pub(crate) async fn with(config: ServerConfig) -> Self {
        Self::on(MemoryStore::new().unwrap(), config).await
    }

    /// A server over a store that is as the test wants it.
    pub(crate) async fn on(store: impl Store, config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn({
            let store = Arc::clone(&store);
            async move {
                let shutdown = async move {
                    let _ = stopped.await;
                };
                serve(vec![listener], store, config, shutdown).await.unwrap();
            }
        });
        Self { address, store, stop: Some(stop), served: Some(served) }
    }

    /// Asks the server to shut down, and goes on.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("a server is stopped once").send(());
    }

    /// Waits until it has.
    pub(crate) async fn stopped(&mut self) {
        patiently("the end of the server", self.served.take().unwrap()).await.unwrap();
    }
}
