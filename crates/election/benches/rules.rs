//! What the rules cost: time per apply, memory per idle group and session, mass expiry.
//!
//! `cargo bench -p regent-election` prints one table. Times are CPU time of the one thread: on a shared
//! machine the hands of a clock tell more about the neighbours. A benchmark of its own instead of a framework:
//! memory is half of what is asked, and one run must show everything side by side.

#![allow(unsafe_code, reason = "neither a counting allocator nor the CPU clock can be had without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use regent_election::deadlines::Deadlines;
use regent_election::{
    Answer, Applied, Command, Entry, Group, IfLost, Metadata, Moment, Node, Opening, SessionId,
    SessionNo, Settings, State, Term,
};

/// Bytes asked of the system and not given back.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged; counting touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size, Ordering::Relaxed);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// CPU time of this thread.
#[derive(Clone, Copy)]
struct Instant(Duration);

impl Instant {
    fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live timespec of ours, which the call fills in.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(failed, 0, "this system has no CPU clock");
        Self(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    fn elapsed(self) -> Duration {
        Self::now().0 - self.0
    }
}

fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

fn main() {
    // `cargo test --benches` calls this with --test: then one small round shows that it runs.
    let is_test = std::env::args().any(|word| word == "--test");
    let sizes: &[usize] = if is_test { &[1000] } else { &[100_000, 1_000_000] };
    println!("{:<58} {:>12}", "what", "measured");
    for &groups in sizes {
        led_by_one_session(groups);
    }
    for &sessions in sizes {
        heartbeats(sessions);
    }
    one_group(if is_test { 1000 } else { 200_000 });
}

fn row(what: &str, measured: impl std::fmt::Display) {
    println!("{what:<58} {measured:>12}");
}

fn per(total: Duration, count: usize) -> String {
    format!("{:.0} ns", total.as_nanos() as f64 / count as f64)
}

fn millis(total: Duration) -> String {
    format!("{:.1} ms", total.as_secs_f64() * 1000.0)
}

fn session(number: usize) -> SessionId {
    SessionId::new(number as u128 + 1).expect("counts from one")
}

fn open(state: &mut State, number: usize) -> Applied {
    let node = Node::new(&format!("node-{number}")).expect("a plain name");
    state.apply(Entry::bare(Command::Open { session: session(number), node, ttl_ms: 10_000 }))
}

fn campaign(state: &mut State, group: &Group, number: usize) -> Applied {
    state.apply(Entry::bare(Command::Campaign {
        group: group.clone(),
        session: session(number),
        opening: None::<Opening>,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    }))
}

fn names(count: usize) -> Vec<Group> {
    (0..count).map(|n| Group::new(&format!("team/service-{n}")).expect("a plain name")).collect()
}

/// Every session may hold 131,072 groups, so a million of them need several.
fn led_by_one_session(count: usize) {
    let per_session = count.min(100_000);
    let groups = names(count);
    let mut state = State::new(Settings::default());
    let leaders = count.div_ceil(per_session);
    for number in 0..leaders * 2 {
        open(&mut state, number);
    }
    let before = live();
    let start = Instant::now();
    for (at, group) in groups.iter().enumerate() {
        black_box(campaign(&mut state, group, at / per_session));
    }
    let elected = start.elapsed();
    // The names themselves are shared with this benchmark's own list: count them too.
    let name_bytes = groups.iter().map(|group| group.as_str().len() + 16).sum::<usize>();
    let bytes = (live() - before + name_bytes) as f64 / count as f64;
    row(&format!("{count} groups: campaign and win, each"), per(elected, count));
    row(&format!("{count} groups: memory of a led, idle group"), format!("{bytes:.0} B"));

    let start = Instant::now();
    let encoded = state.encode();
    row(&format!("{count} groups: encode the whole state"), millis(start.elapsed()));
    row(
        &format!("{count} groups: bytes of a group in a snapshot"),
        format!("{:.0} B", encoded.len() as f64 / count as f64),
    );
    let start = Instant::now();
    let decoded = State::decode(&encoded).expect("what was encoded can be decoded");
    row(&format!("{count} groups: decode the whole state"), millis(start.elapsed()));
    drop((decoded, encoded));

    for (at, group) in groups.iter().enumerate() {
        campaign(&mut state, group, leaders + at / per_session);
    }
    let victim = state.find_session(session(0)).expect("it is open");
    let start = Instant::now();
    let applied = state.apply(Entry::bare(Command::Expire { sessions: vec![victim] }));
    let expired = start.elapsed();
    assert_eq!(applied.events.len(), per_session, "every office has its successor");
    row(
        &format!("one entry: a session with {per_session} groups expires, all succeeded"),
        millis(expired),
    );
    row("  the same, each group", per(expired, per_session));

    let mut slice_max = Duration::ZERO;
    let mut slices = 0;
    let successor = state.find_session(session(leaders)).expect("it is open");
    state.begin(Entry::bare(Command::Expire { sessions: vec![successor] }));
    loop {
        let start = Instant::now();
        let finished = state.advance(256).is_some();
        slice_max = slice_max.max(start.elapsed());
        slices += 1;
        if finished {
            break;
        }
    }
    row(
        &format!("  in slices of 256 groups: {slices} slices, the longest"),
        format!("{:.2} ms", slice_max.as_secs_f64() * 1000.0),
    );
}

fn heartbeats(count: usize) {
    let mut deadlines = Deadlines::new();
    let mut now = Moment::from_millis(1000);
    let before = live();
    for number in 0..count {
        deadlines.open(SessionNo(number as u64), 10_000, now);
    }
    let bytes = (live() - before) as f64 / count as f64;
    row(&format!("{count} sessions: memory of a deadline"), format!("{bytes:.0} B"));
    let start = Instant::now();
    let mut checks = Duration::ZERO;
    // Three renewals per ttl, two ttls long, the driver turning every 50 ms.
    for round in 0..6 {
        for number in 0..count {
            if number % (count / 64).max(1) == 0 {
                let begun = Instant::now();
                now = now + Duration::from_millis(3333 / 64);
                deadlines.turn(now);
                black_box(deadlines.due(now, usize::MAX));
                checks += begun.elapsed();
            }
            black_box(deadlines.heartbeat(SessionNo(number as u64), Some(round), now));
        }
    }
    let heard = start.elapsed() - checks;
    row(&format!("{count} sessions: one heartbeat"), per(heard, 6 * count));
    row(&format!("{count} sessions: finding who is due, per heartbeat"), per(checks, 6 * count));
}

fn one_group(rounds: usize) {
    let mut state = State::new(Settings::default());
    open(&mut state, 0);
    open(&mut state, 1);
    let group = Group::new("billing").expect("a plain name");
    let start = Instant::now();
    for round in 0..rounds {
        let (winner, next) = (round % 2, (round + 1) % 2);
        campaign(&mut state, &group, winner);
        campaign(&mut state, &group, next);
        let term = Term::new(round as u64 + 1).expect("few rounds");
        let applied = state.apply(Entry::bare(Command::Resign {
            group: group.clone(),
            session: session(winner),
            term,
        }));
        assert_eq!(applied.answer, Ok(Answer::Done), "round {round}");
    }
    row("one group: stand, accept, resign, promote: one hand-over", per(start.elapsed(), rounds));
}
