//! The smallest leader: runs something while leading, and nothing while not.
//!
//! ```text
//! cargo run -p regent --features stores --example hello_leader -- http://127.0.0.1:7400
//! cargo run -p regent --features stores --example hello_leader -- memory: 3
//! ```
//! Start it twice against a service: one of them greets. Stop that one: the other goes on.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regent::Leadership;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
    let rounds = words.next().map_or(Ok(u64::MAX), |rounds| rounds.parse())?;
    println!("greeted {} times", run(&url, rounds).await?);
    Ok(())
}

/// Greets so many times, whenever this process leads.
pub async fn run(url: &str, rounds: u64) -> Result<u64, Box<dyn Error>> {
    let regent = regent::connect(url).await?;
    let greeted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&greeted);
    let leading = regent.lead("hello", move |leadership: Leadership| {
        let greeted = Arc::clone(&counted);
        async move {
            // Dropped at once when the leadership ends, wherever it waits.
            while greeted.load(Ordering::SeqCst) < rounds {
                println!("hello from {}, term {}", leadership.node(), leadership.term());
                greeted.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    let enough = async {
        while greeted.load(Ordering::SeqCst) < rounds {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        never = leading => return Err(never.into()),
        () = enough => {}
    }
    regent.close().await;
    Ok(greeted.load(Ordering::SeqCst))
}
