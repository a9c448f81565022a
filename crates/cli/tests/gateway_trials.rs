//! Two leaders, one of them late, hundreds of times: through the gateway nothing is lost, past it much is.
//!
//! In every trial an old leader writes after a pause of its own, the storage thinks about it for a while, and
//! a new leader writes in between. A write of the old one that lands after one of the new one has destroyed
//! it: that is what fencing is for, and without it this must happen, or the trials show nothing.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use process::upstream::{Upstream, put};
use process::{Room, Running};

const TRIALS: u64 = 300;
/// The longest pause, and the longest that the storage thinks.
const PAUSE_MS_MAX: u64 = 8;

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One trial against whatever listens there. Gives what the two leaders were answered.
fn trial(address: &str, number: u64, dice: &mut Dice) -> (u16, u16) {
    let (old, new) = (2 * number + 1, 2 * number + 2);
    let [pause, thinks, takes_over, thinks_too] = [(); 4].map(|()| dice.below(PAUSE_MS_MAX));
    let is_cut = dice.below(40) == 0;
    let to = address.to_owned();
    let late = thread::spawn(move || {
        // Checked; and then the process stands still for a while.
        thread::sleep(Duration::from_millis(pause));
        if is_cut {
            half_a_write(&to, old);
        }
        put(&to, &format!("/row/slow/{thinks}"), Some(old)).status
    });
    thread::sleep(Duration::from_millis(takes_over));
    let status = put(address, &format!("/row/slow/{thinks_too}"), Some(new)).status;
    (late.join().unwrap(), status)
}

/// Begins a write and goes away.
fn half_a_write(address: &str, term: u64) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let head = format!("PUT /half HTTP/1.1\r\nhost: x\r\nregent-term: {term}\r\n");
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(b"content-length: 1000\r\n\r\nhalf");
}

/// Writes that landed after one of a higher term.
fn lost(terms: &[u64]) -> usize {
    let mut highest = 0;
    let mut count = 0;
    for &term in terms {
        count += usize::from(term < highest);
        highest = highest.max(term);
    }
    count
}

fn start(room: &Room, upstream: &Upstream) -> (Running, String) {
    let running = room.start(&[
        "fence",
        "gateway",
        "--group",
        "billing",
        "--upstream",
        &upstream.url,
        "--data",
        &room.text("fence"),
        "--listen",
        "127.0.0.1:0",
        // Far longer than the storage ever takes, on a machine that is busy, too.
        "--settle",
        "2s",
    ]);
    let line = running.line_with("listens on");
    (running, line.split_once("http://").unwrap().1.to_owned())
}

/// S3: no stale write in hundreds of trials, through pauses, half writes and a gateway that is killed.
#[test]
fn no_late_leader_ever_writes_over_its_successor_through_the_gateway() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let (mut running, mut address) = start(&room, &upstream);
    let mut dice = Dice(0x5eed);
    let (mut refused, mut written) = (0, 0);
    for number in 0..TRIALS {
        if number % 75 == 74 {
            running.kill();
            (running, address) = start(&room, &upstream);
        }
        let (old, new) = trial(&address, number, &mut dice);
        assert_eq!(new, 200, "trial {number}: the new leader was refused; {}", running.errors());
        refused += usize::from(old == 409);
        written += usize::from(old == 200);
        assert_eq!(
            lost(&upstream.terms()),
            0,
            "trial {number}: a write of a lower term landed late"
        );
    }
    let terms = upstream.terms();
    assert_eq!(terms.iter().filter(|term| *term % 2 == 0).count() as u64, TRIALS);
    assert!(refused > 0 && written > 0, "{refused} refused, {written} written: no race was tried");
}

/// The same trials without a fence lose data: they can fail.
#[test]
fn the_same_trials_without_a_gateway_lose_writes() {
    let upstream = Upstream::start();
    let address = upstream.url.trim_start_matches("http://").to_owned();
    let mut dice = Dice(0x5eed);
    for number in 0..TRIALS {
        trial(&address, number, &mut dice);
    }
    let count = lost(&upstream.terms());
    assert!(count > 0, "no write was lost in {TRIALS} trials without a fence");
}
