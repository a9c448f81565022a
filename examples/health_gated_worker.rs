//! A worker that leads only while it can work.
//!
//! ```text
//! cargo run -p regent --features stores --example health_gated_worker -- http://127.0.0.1:7400
//! cargo run -p regent --features stores --example health_gated_worker -- memory: 2
//! ```
//! It needs some disk space, and it must get on: a beacon says when real work was done. In this
//! example it gets stuck on purpose after a few pieces of work. A heartbeat alone would keep such a
//! leader in office for ever; here it is drained, and whoever is next takes over.

use std::error::Error;
use std::time::Duration;

use regent::Regent;
use regent::health::{Beacon, DiskSpace, Progress, Thresholds};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
    let rounds = words.next().map_or(Ok(u64::MAX), |rounds| rounds.parse())?;
    let terms = run(&url, rounds).await?;
    println!("led under the terms {terms:?}");
    Ok(())
}

/// Leads so many times and gets stuck each time; says under which terms.
pub async fn run(url: &str, rounds: u64) -> Result<Vec<u64>, Box<dyn Error>> {
    let often = Thresholds {
        every: Duration::from_millis(50),
        timeout: Duration::from_secs(1),
        ill_after: 2,
        well_after: 2,
    };
    let (progress, beacon) = Progress::within(Duration::from_millis(200));
    let regent = Regent::at(url)
        .ttl(Duration::from_secs(2))
        .check(DiskSpace::at_least(std::env::temp_dir(), 1 << 20).with(often))
        .check(progress.with(often))
        .connect()
        .await?;
    let mut terms = Vec::new();
    while (terms.len() as u64) < rounds {
        let leadership = regent.campaign("worker").await?;
        println!("elected, term {}", leadership.term());
        terms.push(leadership.term().get());
        let stop = tokio::select! {
            () = work(&beacon) => None,
            stop = leadership.lost() => Some(stop),
        };
        println!("stopped: {:?}", stop.map(|stop| stop.why));
        leadership.resign().await?;
    }
    regent.close().await;
    Ok(terms)
}

/// Does a few pieces of work and then none any more, though it goes on for ever.
async fn work(beacon: &Beacon) {
    let _working = beacon.working();
    for piece in 1..=3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        println!("piece {piece} is done");
        beacon.did_work();
    }
    std::future::pending::<()>().await;
}
