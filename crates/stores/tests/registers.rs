//! The contract of registers, kept by the one in memory; and broken by one that ignores conditions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::Description;
use regent_stores::file::FileRegister;
use regent_stores::register::contract::{CaseResult, Harness, cases};
use regent_stores::register::memory::MemoryRegister;
use regent_stores::register::{
    Found, Key, KeyKind, Record, Register, RegisterResult, Swapped, Version,
};
use regent_stores::time::{SystemTime, Time};

struct Hands<R>(R);

#[async_trait]
impl<R: Register + Clone> Harness for Hands<R> {
    fn register(&self) -> Arc<dyn Register> {
        Arc::new(self.0.clone())
    }

    fn time(&self) -> Arc<dyn Time> {
        SystemTime::shared()
    }

    fn unique(&self) -> u128 {
        unique()
    }
}

fn unique() -> u128 {
    let half = || u128::from(getrandom::u64().expect("the system has random numbers"));
    half() << 64 | half()
}

async fn judge(register: impl Register + Clone) -> (Vec<String>, Vec<&'static str>) {
    judged(Arc::new(Hands(register))).await
}

/// Runs all cases at once: the names of those that broke, and of those that were skipped.
async fn judged(harness: Arc<dyn Harness>) -> (Vec<String>, Vec<&'static str>) {
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let harness = Arc::clone(&harness);
            (case.name, tokio::spawn(async move { case.run(harness).await }))
        })
        .collect();
    let (mut broken, mut skipped) = (Vec::new(), Vec::new());
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            CaseResult::Held => {}
            CaseResult::Skipped(_) => skipped.push(name),
            CaseResult::Broken(why) => broken.push(format!("{name}: {why}")),
        }
    }
    (broken, skipped)
}

/// Each handle as another process would have it: opened anew, sharing nothing but the files.
#[derive(Clone)]
struct Folder(Arc<tempfile::TempDir>);

#[async_trait]
impl Harness for Folder {
    fn register(&self) -> Arc<dyn Register> {
        Arc::new(FileRegister::open(self.0.path()).expect("a directory of one's own"))
    }

    fn time(&self) -> Arc<dyn Time> {
        SystemTime::shared()
    }

    fn unique(&self) -> u128 {
        unique()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_keep_the_contract() {
    let folder = Folder(Arc::new(tempfile::tempdir().expect("a temporary directory")));
    let (broken, skipped) = judged(Arc::new(folder)).await;
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert_eq!(skipped.len(), 8, "only what is about the server's sessions: {skipped:?}");
}

#[tokio::test]
async fn a_damaged_or_half_written_file_is_told_and_never_taken_for_another() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let register = FileRegister::open(folder.path()).expect("a directory of one's own");
    let key = Key::setting("x");
    // What a process that was killed while it wrote leaves behind is nobody's entry.
    std::fs::write(folder.path().join("settings/+17"), b"half").expect("written");
    assert_eq!(register.list(KeyKind::Setting, "", None, 10).await, Ok(Vec::new()));
    register.swap(&key, None, Record::bare(b"value".to_vec())).await.expect("the first");
    let file = folder.path().join("settings/x");
    let whole = std::fs::read(&file).expect("it is there");
    std::fs::write(&file, &whole[..whole.len() - 1]).expect("cut");
    let error = register.load(&key).await.expect_err("cut").to_string();
    assert!(error.contains("it has 4 bytes and should have 5"), "{error}");
    let swapped = register.swap(&key, None, Record::bare(b"other".to_vec())).await;
    assert!(swapped.is_err(), "what cannot be read is not written over: {swapped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_register_in_memory_keeps_the_contract() {
    let (broken, skipped) = judge(MemoryRegister::new()).await;
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert_eq!(skipped.len(), 8, "only what is about the server's sessions: {skipped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sessions_of_its_own_it_keeps_all_of_it() {
    let (broken, skipped) = judge(MemoryRegister::with_sessions(SystemTime::shared())).await;
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert!(skipped.is_empty(), "{skipped:?}");
}

/// A register that takes conditions for advice, as some servers do.
#[derive(Clone, Debug)]
struct Careless(MemoryRegister);

#[async_trait]
impl Register for Careless {
    fn describe(&self) -> Description {
        self.0.describe()
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.0.examine().await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        self.0.load(key).await
    }

    async fn swap(
        &self,
        key: &Key,
        _expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        loop {
            let found = self.0.load(key).await?.map(|found| found.version);
            let answer = self.0.swap(key, found.as_ref(), record.clone()).await?;
            if matches!(answer, Swapped::Done(_)) {
                return Ok(answer);
            }
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        self.0.wait(key, seen, patience).await
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        self.0.list(kind, prefix, after, count).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_that_ignores_conditions_is_found_out() {
    let (broken, _) = judge(Careless(MemoryRegister::new())).await;
    for case in [
        "an_entry_is_created_once",
        "a_swap_from_an_old_version_conflicts",
        "a_swap_of_an_entry_that_is_not_there_conflicts",
        "racing_creates_have_one_winner",
        "racing_swaps_of_one_version_have_one_winner",
    ] {
        assert!(broken.iter().any(|line| line.starts_with(case)), "{case} held: {broken:#?}");
    }
}
