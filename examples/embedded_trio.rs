//! Three copies of a program elect among themselves, with no server at all.
//!
//! ```text
//! cargo run -p regent --features embedded --example embedded_trio
//! ```
//! Here the three run in one process, each with its own replica in its own directory. In life they
//! are three processes on three machines, with the same list of members.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;

use regent::{Embedded, Regent, Replica};

/// Drawn once, for this cluster alone.
const CLUSTER: u128 = 0x7472_696f_0001;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = std::env::temp_dir().join(format!("regent-trio-{}", std::process::id()));
    let led = run(&place).await;
    std::fs::remove_dir_all(&place)?;
    println!("led in turn: {}", led?.join(", "));
    Ok(())
}

/// Lets each of three copies lead once; says who led, in order.
pub async fn run(place: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let copies = start(place).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for (_, regent) in &copies {
        waiting.spawn(regent.campaign("the-one").into_future());
    }
    let mut led = Vec::new();
    while let Some(elected) = waiting.join_next().await {
        let leadership = elected??;
        println!("{} leads, term {}", leadership.node(), leadership.term());
        led.push(leadership.node().to_string());
        leadership.resign().await?;
    }
    for (replica, regent) in copies {
        regent.close().await;
        replica.stop().await;
    }
    Ok(led)
}

async fn start(place: &Path) -> Result<Vec<(Replica, Regent)>, Box<dyn Error>> {
    // Free ports of this machine; in life every copy listens at its own address in the list.
    let listeners: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let addresses: Vec<String> = listeners
        .iter()
        .map(|it| it.local_addr().map(|at| at.to_string()))
        .collect::<Result<_, _>>()?;
    let mut copies = Vec::new();
    for (number, listener) in (1..).zip(listeners) {
        let mut embedded = Embedded::new(number, place.join(number.to_string()));
        for (other, address) in (1..).zip(&addresses) {
            embedded = embedded.member(other, address);
        }
        // The first start of all three; every later one leaves this out.
        let replica = embedded.listener(listener).founding(CLUSTER).start().await?;
        let regent = replica.session().node(format!("copy-{number}")).connect().await?;
        copies.push((replica, regent));
    }
    Ok(copies)
}
