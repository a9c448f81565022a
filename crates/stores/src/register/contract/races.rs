//! Cases about many who write at once: exactly one of them does.

use tokio::task::JoinSet;

use super::bench::Bench;
use super::{Fault, ensure};
use crate::register::{Key, Record, Swapped, Version};

/// How many race.
const RACERS: u64 = 8;
/// How often.
const ROUNDS: u32 = 5;

pub(super) async fn racing_creates_have_one_winner(bench: Bench) -> Result<(), Fault> {
    for _ in 0..ROUNDS {
        race(&bench, bench.key()?, None).await?;
    }
    Ok(())
}

pub(super) async fn racing_swaps_of_one_version_have_one_winner(bench: Bench) -> Result<(), Fault> {
    let (key, mut version) = bench.entry().await?;
    for _ in 0..ROUNDS {
        version = race(&bench, key.clone(), Some(version)).await?;
    }
    Ok(())
}

/// All racers swap from the same state; the one that was told so must be the one that is stored.
async fn race(bench: &Bench, key: Key, from: Option<Version>) -> Result<Version, Fault> {
    let mut racers = JoinSet::new();
    for number in 0..RACERS {
        let register = if number % 2 == 0 { bench.register() } else { bench.other() };
        let (key, from, record) = (key.clone(), from.clone(), bench.record());
        racers.spawn(async move {
            let answer = register.swap(&key, from.as_ref(), record.clone()).await;
            (record, answer)
        });
    }
    let mut winners: Vec<(Record, Version)> = Vec::new();
    while let Some(raced) = racers.join_next().await {
        let (record, answer) = raced.map_err(|error| Fault::Broken(error.to_string()))?;
        if let Swapped::Done(version) = answer? {
            winners.push((record, version));
        }
    }
    let found = bench.load(&key).await?;
    match winners.as_slice() {
        [(record, version)] => {
            let is_stored = found.value == record.value && found.version == *version;
            ensure!(is_stored, "{version:?} won, but {found:?} is stored");
            Ok(version.clone())
        }
        others => Err(Fault::Broken(format!("{} of {RACERS} racers won", others.len()))),
    }
}

pub(super) async fn racing_additions_lose_nothing(bench: Bench) -> Result<(), Fault> {
    const EACH: u64 = 4;
    let key = bench.key()?;
    let mut racers = JoinSet::new();
    for number in 0..RACERS {
        let (bench, key) = (bench.clone(), key.clone());
        racers.spawn(async move {
            let register = if number % 2 == 0 { bench.register() } else { bench.other() };
            let mut added = 0;
            let add = || async {
                let found = register.load(&key).await?;
                let sum = found.as_ref().map_or(0, |found| sum_of(&found.value)) + 1;
                // The rest of the value is fresh, as all values are.
                let mut value = sum.to_be_bytes().to_vec();
                value.extend(bench.unique().to_be_bytes());
                let from = found.map(|found| found.version);
                let answer = register.swap(&key, from.as_ref(), Record::bare(value)).await?;
                Ok(matches!(answer, Swapped::Done(_)))
            };
            while added < EACH {
                bench.until("one addition", add).await?;
                added += 1;
            }
            Ok::<(), Fault>(())
        });
    }
    while let Some(raced) = racers.join_next().await {
        raced.map_err(|error| Fault::Broken(error.to_string()))??;
    }
    let sum = sum_of(&bench.load(&key).await?.value);
    ensure!(sum == RACERS * EACH, "{} additions came to {sum}", RACERS * EACH);
    Ok(())
}

fn sum_of(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
