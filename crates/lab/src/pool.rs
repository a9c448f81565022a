//! Simulations beside each other, on threads that share nothing but the number of the next one.
//!
//! Every job is a world of its own, so the results do not depend on how many threads there are or which
//! one ends first. The caller adds up what comes back and shows how far it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{io, panic, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The name of threads that run simulations.
const THREAD: &str = "lab";

/// Why a simulation has no result.
#[derive(Debug)]
pub enum PoolError {
    /// The system starts no thread.
    NoThread(io::Error),
    /// The simulator itself panicked, not the code under test.
    Failed,
}

/// Threads that do job after job. Dropped, each ends after the job that it does.
#[derive(Debug)]
pub struct Pool<T> {
    results: UnboundedReceiver<T>,
    is_over: Arc<AtomicBool>,
}

impl<T: Send + 'static> Pool<T> {
    /// Starts so many threads; they do job 0, job 1 and so on until `job` has none of that number.
    pub fn start(
        threads: usize,
        job: impl Fn(u64) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Self, PoolError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let shared = Arc::new((job, AtomicU64::new(0)));
        let (send, results) = unbounded_channel();
        let pool = Self { results, is_over };
        for _ in 0..threads.max(1) {
            let (shared, send) = (Arc::clone(&shared), send.clone());
            let is_over = Arc::clone(&pool.is_over);
            spawn(move || {
                let (job, next) = &*shared;
                while !is_over.load(Ordering::Relaxed) {
                    let Some(result) = job(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    if send.send(result).is_err() {
                        return;
                    }
                }
            })?;
        }
        Ok(pool)
    }

    /// The next result, in the order in which they come; none when all threads have ended. Nothing is lost
    /// if the wait is given up.
    pub async fn next(&mut self) -> Option<T> {
        self.results.recv().await
    }

    /// Begins no more jobs. Those under way still give their results.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Runs one simulation on a thread of its own and waits for it.
pub fn alone<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T, PoolError> {
    spawn(body)?.join().map_err(|_| PoolError::Failed)
}

fn spawn<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>, PoolError> {
    thread::Builder::new().name(THREAD.into()).spawn(body).map_err(PoolError::NoThread)
}

/// How many threads run beside each other if the caller does not say: one for each core.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps panics of simulations off standard error: a panic of the code under test is a broken promise, told
/// with its story, and not once more by the thread.
pub fn silence_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some(THREAD) {
            usual(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_job_is_done_once_and_a_stopped_pool_begins_no_more() {
        let mut pool = Pool::start(3, |number| (number < 100).then_some(number)).unwrap();
        let mut seen = Vec::new();
        while let Some(number) = pool.next().await {
            seen.push(number);
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..100), "{seen:?}");
        let mut endless = Pool::start(2, Some).unwrap();
        assert!(endless.next().await.is_some());
        endless.stop();
        while endless.next().await.is_some() {}
    }

    #[test]
    fn a_simulator_that_panics_is_told_from_one_that_ends() {
        assert_eq!(alone(|| 7).unwrap(), 7);
        assert!(matches!(alone(|| panic!("on purpose")), Err(PoolError::Failed)));
    }
}
