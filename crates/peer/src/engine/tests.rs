//! Engines without sockets and clocks: a network of vectors, and time that is counted.

use std::time::Duration;

use proptest::prelude::*;
use regent_election::Node;
use regent_protocols::bully::{Bully, Bullying};
use regent_protocols::ring::Ring;
use regent_protocols::ring::chang_roberts::ChangRoberts;

use super::*;
use crate::Algorithm;
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::pace::{Wishes, settle};
use crate::roster::Peer;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7501 + number))
}

fn roster(me: u16) -> Roster {
    let peer = |(number, name): (usize, &&str)| Peer {
        name: Node::new(name).unwrap(),
        address: address(number as u16),
    };
    let peers = NAMES.iter().enumerate().map(peer).collect();
    Roster::new(peers, &Node::new(NAMES[usize::from(me)]).unwrap(), false).unwrap()
}

fn pace<P: Spoken>() -> Pace {
    settle(P::ALGORITHM, NAMES.len() as u16, &Wishes::default()).unwrap()
}

/// Five nodes on wires that lose nothing; whoever is dead or paused has a queue all the same, as a socket.
struct World<P: Spoken> {
    now: Moment,
    nodes: Vec<Option<Engine<P>>>,
    paused: [bool; NAMES.len()],
    queues: Vec<VecDeque<(SocketAddr, Vec<u8>)>>,
    /// What was dropped, by the reason.
    dropped: Vec<Dropped>,
    chance: u64,
}

impl<P: Spoken> World<P> {
    fn new() -> Self {
        Self::with_chance(0)
    }

    /// A world in which other nodes lose their patience first.
    fn with_chance(chance: u64) -> Self {
        let mut world = Self {
            now: Moment::from_millis(1_000_000),
            nodes: NAMES.iter().map(|_| None).collect(),
            paused: [false; NAMES.len()],
            queues: NAMES.iter().map(|_| VecDeque::new()).collect(),
            dropped: Vec::new(),
            chance,
        };
        for number in 0..NAMES.len() {
            world.start(number);
        }
        world
    }

    fn start(&mut self, number: usize) {
        self.chance += 1;
        let own = roster(number as u16);
        let engine = Engine::start(own, pace::<P>(), self.chance, self.now);
        self.queues[number].clear();
        self.nodes[number] = Some(engine);
    }

    fn kill(&mut self, number: usize) {
        self.nodes[number] = None;
        self.queues[number].clear();
    }

    /// Lets everybody who runs take what has come and what is due, and carries what they post.
    fn turn(&mut self) {
        for number in 0..NAMES.len() {
            let Some(engine) = self.nodes[number].as_mut().filter(|_| !self.paused[number]) else {
                continue;
            };
            for (from, bytes) in std::mem::take(&mut self.queues[number]) {
                self.dropped.extend(engine.take(self.now, from, &bytes).err());
            }
            engine.wake(self.now);
            for post in engine.posts() {
                let to = usize::from(post.to.port() - 7501);
                if self.nodes[to].is_some() {
                    self.queues[to].push_back((address(number as u16), post.bytes));
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.turn();
            self.now = self.now + Duration::from_millis(1);
        }
    }

    fn leader(&self, number: usize) -> Option<usize> {
        let engine = self.nodes[number].as_ref().expect("it runs");
        engine.leader.map(|leader| usize::from(leader.0))
    }

    /// Whom all who run agree on.
    #[track_caller]
    fn agree_on(&self, leader: usize) {
        for number in (0..NAMES.len()).filter(|number| self.nodes[*number].is_some()) {
            assert_eq!(self.leader(number), Some(leader), "{} at {:?}", NAMES[number], self.now);
        }
    }
}

const LONG: Duration = Duration::from_secs(10);

fn the_dead_are_succeeded_and_whoever_returns_is_one_of_them_again<P: Spoken>(is_bully: bool) {
    let mut world = World::<P>::new();
    world.pass(LONG);
    world.agree_on(4);
    world.kill(4);
    world.pass(LONG);
    world.agree_on(3);
    world.start(4);
    world.pass(LONG);
    // The bully takes the office back; a ring leaves it where it is.
    world.agree_on(if is_bully { 4 } else { 3 });
    // It has lived before, was told so, and is heard.
    let life = world.nodes[4].as_ref().unwrap().life;
    assert_eq!(life.run, 2);
    assert_eq!(world.nodes[0].as_ref().unwrap().heard[4], Some(life));
    world.kill(3);
    world.pass(LONG);
    world.agree_on(4);
    for number in [1, 2, 4] {
        world.kill(number);
    }
    world.pass(LONG);
    world.agree_on(0);
}

#[test]
fn bully_among_engines() {
    the_dead_are_succeeded_and_whoever_returns_is_one_of_them_again::<Bully>(true);
}

#[test]
fn ring_among_engines() {
    the_dead_are_succeeded_and_whoever_returns_is_one_of_them_again::<Ring>(false);
}

#[test]
fn chang_roberts_among_engines() {
    the_dead_are_succeeded_and_whoever_returns_is_one_of_them_again::<ChangRoberts>(false);
}

/// The weakness that is stated on start, seen: two lead, and neither knows.
fn a_paused_leader_leads_beside_another_one<P: Spoken>() {
    let mut world = World::<P>::new();
    world.pass(LONG);
    world.agree_on(4);
    world.paused[4] = true;
    world.pass(LONG);
    assert_eq!((world.leader(3), world.leader(4)), (Some(3), Some(4)));
    world.paused[4] = false;
    world.pass(LONG);
    world.agree_on(4);
}

#[test]
fn a_paused_leader_of_bullies_leads_beside_another_one() {
    a_paused_leader_leads_beside_another_one::<Bully>();
}

#[test]
fn a_paused_leader_of_a_ring_leads_beside_another_one() {
    a_paused_leader_leads_beside_another_one::<Ring>();
}

#[test]
fn a_paused_leader_of_chang_roberts_leads_beside_another_one() {
    a_paused_leader_leads_beside_another_one::<ChangRoberts>();
}

/// A leader is paused and succeeded; it comes back with a token of the election that replaced it, and the new leader is
/// just slow enough for that token to be passed over it. An election that is over elects no one again.
fn a_token_of_an_ended_election_elects_no_one<P: Spoken>(chance: u64) {
    let mut world = World::<P>::with_chance(chance);
    world.pass(LONG);
    world.kill(4);
    world.pass(LONG);
    world.start(4);
    world.pass(LONG);
    world.agree_on(3);
    world.paused[3] = true;
    world.pass(LONG);
    assert_eq!((world.leader(3), world.leader(4)), (Some(3), Some(4)));
    (world.paused[3], world.paused[4]) = (false, true);
    // Longer than the answer to a token may take, and shorter than any node's patience with its leader.
    let pace = pace::<P>();
    let slow_for = pace.answer_within + pace.heartbeat_every;
    assert!(slow_for + pace.heartbeat_every < pace.patience_min);
    world.pass(slow_for);
    world.paused[4] = false;
    world.pass(LONG);
    world.agree_on(4);
}

#[test]
fn a_token_of_an_ended_ring_election_elects_no_one() {
    (0..20).for_each(a_token_of_an_ended_election_elects_no_one::<Ring>);
}

#[test]
fn a_token_of_an_ended_chang_roberts_election_elects_no_one() {
    (0..20).for_each(a_token_of_an_ended_election_elects_no_one::<ChangRoberts>);
}

/// Without lives, the others would take a restarted node's tokens for those they have passed already.
fn a_node_that_flaps_is_heard_every_time<P: Spoken>() {
    let mut world = World::<P>::new();
    world.pass(LONG);
    for restarts in 1..=5 {
        world.kill(4);
        world.pass(Duration::from_millis(50));
        world.start(4);
        world.pass(LONG);
        assert_eq!(world.nodes[4].as_ref().unwrap().life.run, restarts + 1);
        let leader = world.leader(0).unwrap();
        world.agree_on(leader);
    }
    // And it can still win: everybody who led meanwhile is gone.
    for number in 0..4 {
        world.kill(number);
        world.start(number);
    }
    world.pass(LONG);
    let leader = world.leader(0).unwrap();
    world.agree_on(leader);
}

#[test]
fn a_bully_that_flaps_is_heard_every_time() {
    a_node_that_flaps_is_heard_every_time::<Bully>();
}

#[test]
fn a_node_of_a_ring_that_flaps_is_heard_every_time() {
    a_node_that_flaps_is_heard_every_time::<Ring>();
}

#[test]
fn a_node_of_chang_roberts_that_flaps_is_heard_every_time() {
    a_node_that_flaps_is_heard_every_time::<ChangRoberts>();
}

fn alone(me: u16) -> Engine<Bully> {
    let mut engine = Engine::start(roster(me), pace::<Bully>(), 7, Moment::from_millis(1));
    engine.posts();
    engine
}

fn datagram(sender: u16, life: Life, word: &Word<Bullying>) -> Vec<u8> {
    let digest = roster(0).digest(&pace::<Bully>());
    let head = Head { algorithm: Algorithm::Bully, sender: NodeId(sender), digest, life };
    wire::write::<Bully>(&head, word).unwrap()
}

const NOW: Moment = Moment::from_millis(2);
const FIRST: Life = Life { run: 1, nonce: 99 };

#[test]
fn whoever_starts_greets_everybody_and_says_that_nobody_leads() {
    let mut engine = Engine::<Ring>::start(roster(0), pace::<Ring>(), 7, NOW);
    assert_eq!(engine.posts().len(), 4);
    assert_eq!(engine.leaders(), [None]);
    assert_eq!(engine.leaders(), []);
    let mut highest = Engine::<Bully>::start(roster(4), pace::<Bully>(), 7, NOW);
    assert_eq!(highest.leaders(), [None, Some(NodeId(4))]);
}

#[test]
fn a_datagram_of_somebody_else_changes_nothing() {
    let mut engine = alone(0);
    let said = Word::Said(Bullying::Coordinator);
    let right = datagram(4, FIRST, &said);
    let with = |place: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[place] = byte;
        bytes
    };
    for (from, bytes, why) in [
        (address(3), right.clone(), Dropped::Stranger),
        (SocketAddr::from(([127, 0, 0, 2], 7505)), right.clone(), Dropped::Stranger),
        (address(0), datagram(0, FIRST, &said), Dropped::Stranger),
        (address(4), with(6, 77), Dropped::Stranger),
        (address(4), with(5, 2), Dropped::OtherAlgorithm(Algorithm::Ring)),
        (address(4), with(8, right[8] ^ 1), Dropped::OtherList),
        (address(4), with(4, 9), Dropped::OtherVersion(9)),
        (address(4), with(7, 200), Dropped::Unreadable),
        (address(4), vec![0; DATAGRAM_BYTES_MAX + 1], Dropped::TooLong),
        (address(4), Vec::new(), Dropped::Unreadable),
    ] {
        assert_eq!(engine.take(NOW, from, &bytes), Err(why));
        assert!(engine.posts().is_empty(), "{why:?} was answered");
    }
    assert_eq!(engine.leader, None);
    assert_eq!(engine.take(NOW, address(4), &right), Ok(()));
    assert_eq!(engine.leader, Some(NodeId(4)));
}

#[test]
fn an_earlier_life_is_dropped_and_told_so() {
    let mut engine = alone(0);
    let said = Word::Said(Bullying::Coordinator);
    let life = Life { run: 3, nonce: 5 };
    assert_eq!(engine.take(NOW, address(4), &datagram(4, life, &said)), Ok(()));
    engine.posts();
    for stale in [Life { run: 2, nonce: 9 }, Life { run: 3, nonce: 6 }, Life { run: 1, nonce: 5 }] {
        let taken = engine.take(NOW, address(4), &datagram(4, stale, &said));
        assert_eq!(taken, Err(Dropped::Stale));
        let posts = engine.posts();
        let (_, kind, body) = wire::read_head(&posts[0].bytes).unwrap();
        let word = wire::read_word::<Bully>(kind, body, 5).unwrap();
        assert_eq!((posts.len(), posts[0].to, word), (1, address(4), Word::Known(life)));
    }
    let next = Life { run: 4, nonce: 1 };
    assert_eq!(engine.take(NOW, address(4), &datagram(4, next, &said)), Ok(()));
}

#[test]
fn a_life_that_is_told_of_an_equal_or_later_one_begins_above_it() {
    let mut engine = alone(0);
    let mut hear = |life: Life| {
        engine.take(NOW, address(4), &datagram(4, FIRST, &Word::Known(life))).unwrap();
        engine.life.run
    };
    // Itself, and what is below it.
    assert_eq!(hear(Life { run: 1, nonce: 7 }), 1);
    assert_eq!(hear(Life { run: 0, nonce: 1 }), 1);
    assert_eq!(hear(Life { run: 1, nonce: 8 }), 2);
    assert_eq!(hear(Life { run: 9, nonce: 8 }), 10);
    assert_eq!(hear(Life { run: 9, nonce: 8 }), 10);
    // Forged: there is nothing above it, and nothing breaks.
    assert_eq!(hear(Life { run: u32::MAX, nonce: 8 }), 10);
}

#[test]
fn a_node_that_has_too_much_under_way_drops_what_comes_on_top() {
    let mut engine = Engine::<ChangRoberts>::start(roster(0), pace::<ChangRoberts>(), 7, NOW);
    let digest = roster(0).digest(&pace::<ChangRoberts>());
    let head = Head { algorithm: Algorithm::ChangRoberts, sender: NodeId(4), digest, life: FIRST };
    let mut refused = 0;
    for number in 1..=3000_u64 {
        use regent_protocols::ring::Ringing;
        use regent_protocols::ring::chang_roberts::Single;
        // Won again and again, as no honest node says, and nobody takes the token over.
        let token = Single::Elected(NodeId(4), number);
        let word = Word::Said(Ringing::Pass { number, token });
        let bytes = wire::write::<ChangRoberts>(&head, &word).unwrap();
        match engine.take(NOW, address(4), &bytes) {
            Ok(()) => {}
            Err(why) => {
                assert_eq!(why, Dropped::Busy);
                refused += 1;
            }
        }
        engine.posts();
    }
    assert!(refused > 1000 && engine.timers.len() <= TIMERS_MAX + 1, "{}", engine.timers.len());
}

/// Any peer, any kind, any body: taken or dropped, and never more work than the sender did.
fn stands_anything<P: Spoken>(kind: u8, sender: u16, run: u32, body: &[u8], times: usize) {
    let mut engine = Engine::<P>::start(roster(2), pace::<P>(), 7, NOW);
    let digest = roster(2).digest(&pace::<P>());
    let life = Life { run, nonce: 3 };
    let head = Head { algorithm: P::ALGORITHM, sender: NodeId(sender), digest, life };
    let mut bytes = wire::write::<P>(&head, &Word::Hello).unwrap();
    bytes[7] = kind;
    bytes.extend(body);
    let mut now = NOW;
    for _ in 0..times {
        engine.posts();
        let _ = engine.take(now, address(sender), &bytes);
        // A new life greets everybody and asks everybody above; a token goes on and is acknowledged.
        assert!(engine.posts().len() <= 3 * NAMES.len());
        now = now + Duration::from_millis(50);
        engine.wake(now);
    }
    assert!(engine.timers.len() <= TIMERS_MAX);
}

proptest! {
    #[test]
    fn no_datagram_makes_an_engine_fall(
        kind in prop_oneof![0..2_u8, 16..20_u8, 32..36_u8, 48..52_u8, any::<u8>()],
        sender in 0..5_u16,
        run in prop_oneof![0..3_u32, any::<u32>()],
        body in prop::collection::vec(prop_oneof![0..6_u8, any::<u8>()], 0..DATAGRAM_BYTES_MAX),
        times in 1..20_usize,
    ) {
        stands_anything::<Bully>(kind, sender, run, &body, times);
        stands_anything::<Ring>(kind, sender, run, &body, times);
        stands_anything::<ChangRoberts>(kind, sender, run, &body, times);
    }

    #[test]
    fn no_token_makes_an_engine_of_a_ring_fall(
        kind in 32..34_u8,
        numbers in any::<[u64; 2]>(),
        leader in 0..5_u8,
        names in prop::collection::vec(0..5_u8, 1..60),
        times in 1..20_usize,
    ) {
        let mut body: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        if kind == 33 {
            body.push(leader);
        }
        body.push(names.len() as u8);
        body.extend(&names);
        stands_anything::<Ring>(kind, 1, 1, &body, times);
    }
}
