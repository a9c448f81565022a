//! Bytes of entries and states: damaged ones are refused, or read as something that can be written.

use proptest::prelude::*;
use regent_election::codec::{decode_entry, encode_entry};
use regent_election::{Command, Entry, IfLost, Metadata, State};

use super::steps::{Step, steps};
use super::world::{World, group, secret};

/// One piece of damage.
#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Cut(prop::sample::Index),
    /// Bytes from one place are repeated at another: plausible, and still wrong.
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let place = any::<prop::sample::Index>;
    let one = prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (place(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        (place(), 1usize..9).prop_map(|(at, count)| Damage::Remove(at, count)),
        place().prop_map(Damage::Cut),
        (place(), place(), 1usize..40).prop_map(|(from, to, count)| Damage::Copy(from, to, count)),
    ];
    prop::collection::vec(one, 1..4)
}

fn damaged(bytes: &[u8], damage: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for one in damage {
        if bytes.is_empty() {
            break;
        }
        let size = bytes.len();
        match one {
            Damage::Set(at, byte) => bytes[at.index(size)] = *byte,
            Damage::Flip(at, bit) => bytes[at.index(size)] ^= 1 << bit,
            Damage::Insert(at, byte) => bytes.insert(at.index(size), *byte),
            Damage::Remove(at, count) => {
                let at = at.index(size);
                bytes.drain(at..(at + count).min(size));
            }
            Damage::Cut(at) => bytes.truncate(at.index(size)),
            Damage::Copy(from, to, count) => {
                let (from, to) = (from.index(size), to.index(size));
                let piece = bytes[from..(from + count).min(size)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// A state with something of everything in it, and the entries that made it.
fn grown(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.run(step).unwrap();
    }
    world
}

proptest! {
    #![proptest_config(super::config(150))]

    #[test]
    fn damaged_states_are_refused_or_whole_and_never_a_panic(
        steps in steps(40),
        damage in prop::collection::vec(damage(), 40),
    ) {
        let bytes = grown(&steps).state.encode();
        for damage in &damage {
            let bytes = damaged(&bytes, damage);
            if let Ok(state) = State::decode(&bytes) {
                prop_assert_eq!(state.check_invariants(), Ok(()), "{:?}", damage);
                // One way to write each state, so that replicas can compare bytes (S8).
                prop_assert!(state.encode() == bytes, "{:?} was read as another state", damage);
            }
        }
    }

    #[test]
    fn damaged_entries_are_refused_or_whole_and_never_a_panic(
        steps in steps(40),
        damage in prop::collection::vec(damage(), 10),
    ) {
        for entry in grown(&steps).entries() {
            let bytes = encode_entry(entry);
            for damage in &damage {
                let bytes = damaged(&bytes, damage);
                if let Ok(entry) = decode_entry(&bytes) {
                    prop_assert!(encode_entry(&entry) == bytes, "{:?}: {:?}", damage, entry);
                }
            }
        }
    }
}

/// The same metadata in another order would be the same entry with other bytes.
#[test]
fn metadata_out_of_order_is_refused() {
    let command = |entries: &[(&str, &str)]| Command::Campaign {
        group: group(0),
        session: secret(0, 0),
        opening: None,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::new(entries.iter().copied()).unwrap(),
    };
    let bytes = encode_entry(&Entry::bare(command(&[("a", "x"), ("b", "y")])));
    assert!(decode_entry(&bytes).is_ok());
    let written = b"\x02\x01a\x01x\x01b\x01y";
    let at = bytes.windows(written.len()).position(|window| window == written).unwrap();
    for wrong in [b"\x02\x01b\x01y\x01a\x01x", b"\x02\x01a\x01x\x01a\x01x"] {
        let mut bytes = bytes.clone();
        bytes.splice(at..at + written.len(), wrong.iter().copied());
        assert!(decode_entry(&bytes).is_err(), "{wrong:?}");
    }
}
