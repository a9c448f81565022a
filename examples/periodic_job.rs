//! A job that runs every so often, on one machine of many.
//!
//! ```text
//! cargo run -p regent --features stores --example periodic_job -- http://127.0.0.1:7400
//! cargo run -p regent --features stores --example periodic_job -- memory: 3
//! ```
//! The check stands before every run: after a pause (a laptop that slept, a virtual machine that was
//! moved) the first thing this process learns is that it does not lead any more.

use std::error::Error;
use std::time::Duration;

use regent::Stop;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
    let rounds = words.next().map_or(Ok(u64::MAX), |rounds| rounds.parse())?;
    println!("ran {} times", run(&url, rounds, Duration::from_millis(100)).await?);
    Ok(())
}

/// Runs the job so many times, each a pause after the one before, whenever this process leads.
pub async fn run(url: &str, rounds: u64, every: Duration) -> Result<u64, Box<dyn Error>> {
    let regent = regent::connect(url).await?;
    let mut done = 0;
    while done < rounds {
        let leadership = regent.campaign("nightly-report").await?;
        println!("elected, term {}", leadership.term());
        let mut clock = tokio::time::interval(every);
        let stop: Option<Stop> = loop {
            tokio::select! {
                stop = leadership.lost() => break Some(stop),
                _ = clock.tick() => {}
            }
            let Ok(permit) = leadership.check() else { break None };
            done += 1;
            println!("report {done} under term {}", permit.term());
            if done >= rounds {
                break None;
            }
        };
        if let Some(stop) = stop {
            println!("stop within {:?}: {:?}", stop.within, stop.why);
        }
        // Whoever is next begins at once; without this, after a ttl.
        leadership.resign().await?;
    }
    regent.close().await;
    Ok(done)
}
