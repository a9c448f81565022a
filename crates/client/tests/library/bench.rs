//! A server in this process, and participants at it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use regent::{Connect, Regent};
use regent_election::store::Store;
use regent_server::ServerConfig;
use regent_stores::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Far longer than anything takes on a slow machine; reached only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server over a store in memory. Dropping it ends it.
pub(crate) struct Bench {
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Store>,
    _stop: oneshot::Sender<()>,
    /// The server has a runtime of its own: tests block theirs.
    _runtime: Runtime,
}

struct Runtime(Option<tokio::runtime::Runtime>);

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bench {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&store);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let shutdown = async move {
                let _ = stopped.await;
            };
            regent_server::serve(vec![listener], served, ServerConfig::default(), shutdown)
                .await
                .unwrap();
        });
        Self { url, store, _stop: stop, _runtime: Runtime(Some(runtime)) }
    }

    /// A session at this server over HTTP.
    pub(crate) fn at(&self, node: &str) -> Connect {
        Regent::at(&self.url).node(node)
    }

    /// A session at this server's store without HTTP.
    pub(crate) fn over(&self, node: &str) -> Connect {
        Regent::over(Arc::clone(&self.store)).node(node)
    }
}

/// What comes of something that must come.
pub(crate) async fn soon<T>(what: &str, something: impl IntoFuture<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, something.into_future()).await {
        Ok(it) => it,
        Err(_) => panic!("{what}: not within {} s", PATIENCE.as_secs()),
    }
}

/// Waits until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Who leads, by the store's word.
pub(crate) async fn leader_of(bench: &Bench, group: &str) -> Option<String> {
    let group = group.parse().unwrap();
    let view = bench
        .store
        .leader(&group, regent_election::store::Consistency::Linearizable)
        .await
        .unwrap();
    view.leader.map(|node| node.to_string())
}
