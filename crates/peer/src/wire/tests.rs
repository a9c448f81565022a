//! What can be written can be read, what can be read was written so, and nothing makes the reader fall.

use std::fmt::Debug;

use proptest::prelude::*;
use regent_protocols::bully::{Bully, Bullying};
use regent_protocols::ring::chang_roberts::{ChangRoberts, Single};
use regent_protocols::ring::{Collected, Ring, Ringing};

use super::*;
use crate::limits::{NAMES_MAX, PEERS_MAX};

const NODES: u16 = PEERS_MAX as u16;

fn node() -> impl Strategy<Value = NodeId> {
    (0..NODES).prop_map(NodeId)
}

fn names() -> impl Strategy<Value = Vec<NodeId>> {
    prop::collection::vec(node(), 1..=NAMES_MAX)
}

fn life() -> impl Strategy<Value = Life> {
    (any::<u32>(), any::<u64>()).prop_map(|(run, nonce)| Life { run, nonce })
}

fn ringing<T: Clone + Debug + 'static>(
    token: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Ringing<T>> {
    prop_oneof![
        (any::<u64>(), token).prop_map(|(number, token)| Ringing::Pass { number, token }),
        any::<u64>().prop_map(|number| Ringing::Ack { number }),
        Just(Ringing::Heartbeat),
    ]
}

fn bullying() -> impl Strategy<Value = Bullying> {
    prop_oneof![
        Just(Bullying::Election),
        Just(Bullying::Alive),
        Just(Bullying::Coordinator),
        Just(Bullying::Heartbeat),
    ]
}

fn collected() -> impl Strategy<Value = Collected> {
    prop_oneof![
        (names(), any::<u64>()).prop_map(|(names, own)| Collected::Election(names, own)),
        (node(), names(), any::<u64>())
            .prop_map(|(leader, told, own)| Collected::Coordinator(leader, told, own)),
    ]
}

fn single() -> impl Strategy<Value = Single> {
    prop_oneof![
        (node(), any::<u64>()).prop_map(|(name, own)| Single::Election(name, own)),
        (node(), any::<u64>()).prop_map(|(name, own)| Single::Elected(name, own)),
    ]
}

fn word<M: Clone + Debug + 'static>(
    message: impl Strategy<Value = M> + 'static,
) -> impl Strategy<Value = Word<M>> {
    prop_oneof![
        1 => Just(Word::Hello),
        1 => life().prop_map(Word::Known),
        6 => message.prop_map(Word::Said),
    ]
}

fn read<P: Spoken>(bytes: &[u8], nodes: u16) -> Result<(Head, Word<P::Message>), Dropped> {
    let (head, kind, body) = read_head(bytes)?;
    Ok((head, read_word::<P>(kind, body, nodes)?))
}

/// Round trip, and every shorter or longer form refused.
fn comes_back<P: Spoken>(head: Head, word: &Word<P::Message>) -> Result<(), TestCaseError>
where
    P::Message: PartialEq,
{
    let bytes = write::<P>(&head, word).expect("it fits");
    prop_assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
    let (head_again, word_again) = read::<P>(&bytes, NODES).expect("it was written by us");
    prop_assert!(head_again == head && word_again == *word);
    for end in 0..bytes.len() {
        prop_assert!(read::<P>(&bytes[..end], NODES).is_err(), "{end} of {}", bytes.len());
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    prop_assert!(read::<P>(&longer, NODES).is_err());
    Ok(())
}

/// Whatever can be read is written again as the same bytes.
fn is_canonical<P: Spoken>(bytes: &[u8]) -> Result<bool, TestCaseError> {
    let Ok((head, word)) = read::<P>(bytes, NODES) else { return Ok(false) };
    let again = write::<P>(&head, &word);
    prop_assert_eq!(again.as_deref(), Some(bytes));
    Ok(true)
}

fn head_of(algorithm: Algorithm, sender: u16, digest: u64, life: Life) -> Head {
    Head { algorithm, sender: NodeId(sender), digest, life }
}

proptest! {
    #[test]
    fn every_word_of_the_bully_comes_back(
        word in word(bullying()), sender in 0..NODES, digest in any::<u64>(), life in life(),
    ) {
        comes_back::<Bully>(head_of(Algorithm::Bully, sender, digest, life), &word)?;
    }

    #[test]
    fn every_word_of_the_ring_comes_back(
        word in word(ringing(collected())), sender in 0..NODES, digest in any::<u64>(), life in life(),
    ) {
        comes_back::<Ring>(head_of(Algorithm::Ring, sender, digest, life), &word)?;
    }

    #[test]
    fn every_word_of_chang_and_roberts_comes_back(
        word in word(ringing(single())), sender in 0..NODES, digest in any::<u64>(), life in life(),
    ) {
        let head = head_of(Algorithm::ChangRoberts, sender, digest, life);
        comes_back::<ChangRoberts>(head, &word)?;
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_are_what_we_would_have_written(
        bytes in prop::collection::vec(any::<u8>(), 0..2 * DATAGRAM_BYTES_MAX),
    ) {
        is_canonical::<Bully>(&bytes)?;
        is_canonical::<Ring>(&bytes)?;
        is_canonical::<ChangRoberts>(&bytes)?;
    }

    #[test]
    fn a_right_head_with_arbitrary_bytes_behind_it_is_the_same(
        algorithm in 1..=3_u8,
        kind in prop_oneof![0..2_u8, 16..20_u8, 32..36_u8, 48..52_u8, any::<u8>()],
        mut rest in prop::collection::vec(prop_oneof![0..30_u8, any::<u8>()], 0..DATAGRAM_BYTES_MAX),
    ) {
        let mut bytes = MARK.to_vec();
        bytes.extend([VERSION, algorithm, 0, kind]);
        bytes.append(&mut rest);
        is_canonical::<Bully>(&bytes)?;
        is_canonical::<Ring>(&bytes)?;
        is_canonical::<ChangRoberts>(&bytes)?;
    }
}

const LIFE: Life = Life { run: 0x0102_0304, nonce: 0x1112_1314_1516_1718 };

/// The documented bytes, so that a change of the format is seen, and comes with another version.
#[test]
fn the_bytes_are_those_that_are_documented() {
    let head = head_of(Algorithm::Ring, 2, 0x2122_2324_2526_2728, LIFE);
    let head_bytes = |algorithm: u8, kind: u8| {
        let mut bytes = b"rgpr".to_vec();
        bytes.extend([1, algorithm, 2, kind]);
        bytes.extend([0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
        bytes.extend([1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        bytes
    };
    let told = Collected::Coordinator(NodeId(4), vec![NodeId(1), NodeId(2)], 9);
    let word = Word::Said(Ringing::Pass { number: 7, token: told });
    let body = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 4, 2, 1, 2];
    let whole = [head_bytes(2, 33), body.to_vec()].concat();
    assert_eq!(write::<Ring>(&head, &word), Some(whole));

    let head = head_of(Algorithm::Bully, 2, 0x2122_2324_2526_2728, LIFE);
    let word = Word::Said(Bullying::Heartbeat);
    assert_eq!(write::<Bully>(&head, &word), Some(head_bytes(1, 19)));
}

#[test]
fn a_head_that_is_not_ours_says_what_is_wrong_with_it() {
    let head = head_of(Algorithm::Bully, 0, 1, LIFE);
    let right = write::<Bully>(&head, &Word::Hello).unwrap();
    let with = |place: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[place] = byte;
        read_head(&bytes).map(|(head, ..)| head)
    };
    assert_eq!(read_head(&right).map(|(head, ..)| head), Ok(head));
    assert_eq!(with(0, b'x'), Err(Dropped::Unreadable));
    assert_eq!(with(4, 2), Err(Dropped::OtherVersion(2)));
    assert_eq!(with(5, 0), Err(Dropped::Unreadable));
    assert_eq!(read_head(&[0; DATAGRAM_BYTES_MAX + 1]).map(|_| ()), Err(Dropped::TooLong));
}

#[test]
fn a_name_that_is_not_in_the_list_is_refused() {
    let head = head_of(Algorithm::ChangRoberts, 0, 1, LIFE);
    let token = Single::Elected(NodeId(3), 1);
    let word = Word::Said(Ringing::Pass { number: 1, token });
    let bytes = write::<ChangRoberts>(&head, &word).unwrap();
    assert!(read::<ChangRoberts>(&bytes, 4).is_ok());
    assert_eq!(read::<ChangRoberts>(&bytes, 3), Err(Dropped::Unreadable));
}

#[test]
fn a_token_of_no_names_or_of_too_many_is_not_sent() {
    let head = head_of(Algorithm::Ring, 0, 1, LIFE);
    for names in [vec![], vec![NodeId(0); NAMES_MAX + 1]] {
        let token = Collected::Election(names, 1);
        let word = Word::Said(Ringing::Pass { number: 1, token });
        assert_eq!(write::<Ring>(&head, &word), None);
    }
}
