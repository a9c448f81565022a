//! The messages of each algorithm, as bytes.
//!
//! | algorithm | kind | message | carries |
//! |---|---|---|---|
//! | all | 0 | HELLO | nothing |
//! | all | 1 | KNOWN | a run (4 bytes) and a nonce (8 bytes) |
//! | bully | 16, 17, 18, 19 | ELECTION, ALIVE, COORDINATOR, HEARTBEAT | nothing |
//! | ring | 32 | ELECTION | the number to acknowledge (8), the token's (8), names |
//! | ring | 33 | COORDINATOR | the number to acknowledge (8), the token's (8), who leads (1), names |
//! | ring | 34 | ACK | the number (8) |
//! | ring | 35 | HEARTBEAT | nothing |
//! | chang-roberts | 48, 49 | ELECTION, ELECTED | the number to acknowledge (8), the token's (8), whose (1) |
//! | chang-roberts | 50 | ACK | the number (8) |
//! | chang-roberts | 51 | HEARTBEAT | nothing |
//!
//! Names are their count (1 byte, at least 1) and a byte for each: its place in the sorted list. No two
//! algorithms share a kind, so a message is never read as one of another algorithm.

use regent_protocols::NodeId;
use regent_protocols::bully::{Bully, Bullying};
use regent_protocols::ring::chang_roberts::{ChangRoberts, Single};
use regent_protocols::ring::{Collected, Ring, Ringing};

use super::{Reader, Spoken};
use crate::Algorithm;
use crate::limits::NAMES_MAX;

const BULLY_ELECTION: u8 = 16;
const BULLY_ALIVE: u8 = 17;
const BULLY_COORDINATOR: u8 = 18;
const BULLY_HEARTBEAT: u8 = 19;

const RING_ELECTION: u8 = 32;
const RING_COORDINATOR: u8 = 33;
const RING_ACK: u8 = 34;
const RING_HEARTBEAT: u8 = 35;

const SINGLE_ELECTION: u8 = 48;
const SINGLE_ELECTED: u8 = 49;
const SINGLE_ACK: u8 = 50;
const SINGLE_HEARTBEAT: u8 = 51;

impl Spoken for Bully {
    const ALGORITHM: Algorithm = Algorithm::Bully;

    fn write(message: &Bullying, _body: &mut Vec<u8>) -> Option<u8> {
        Some(match message {
            Bullying::Election => BULLY_ELECTION,
            Bullying::Alive => BULLY_ALIVE,
            Bullying::Coordinator => BULLY_COORDINATOR,
            Bullying::Heartbeat => BULLY_HEARTBEAT,
        })
    }

    fn read(kind: u8, _body: &mut Reader<'_>) -> Option<Bullying> {
        match kind {
            BULLY_ELECTION => Some(Bullying::Election),
            BULLY_ALIVE => Some(Bullying::Alive),
            BULLY_COORDINATOR => Some(Bullying::Coordinator),
            BULLY_HEARTBEAT => Some(Bullying::Heartbeat),
            _ => None,
        }
    }
}

impl Spoken for Ring {
    const ALGORITHM: Algorithm = Algorithm::Ring;

    fn write(message: &Ringing<Collected>, body: &mut Vec<u8>) -> Option<u8> {
        match message {
            Ringing::Pass { number, token: Collected::Election(names, own) } => {
                write_numbers(&[*number, *own], body);
                write_names(names, body)?;
                Some(RING_ELECTION)
            }
            Ringing::Pass { number, token: Collected::Coordinator(leader, told, own) } => {
                write_numbers(&[*number, *own], body);
                write_name(*leader, body)?;
                write_names(told, body)?;
                Some(RING_COORDINATOR)
            }
            Ringing::Ack { number } => {
                write_numbers(&[*number], body);
                Some(RING_ACK)
            }
            Ringing::Heartbeat => Some(RING_HEARTBEAT),
        }
    }

    fn read(kind: u8, body: &mut Reader<'_>) -> Option<Ringing<Collected>> {
        match kind {
            RING_ELECTION => {
                let (number, own) = (body.number()?, body.number()?);
                let token = Collected::Election(read_names(body)?, own);
                Some(Ringing::Pass { number, token })
            }
            RING_COORDINATOR => {
                let (number, own, leader) = (body.number()?, body.number()?, body.node()?);
                let token = Collected::Coordinator(leader, read_names(body)?, own);
                Some(Ringing::Pass { number, token })
            }
            RING_ACK => Some(Ringing::Ack { number: body.number()? }),
            RING_HEARTBEAT => Some(Ringing::Heartbeat),
            _ => None,
        }
    }
}

impl Spoken for ChangRoberts {
    const ALGORITHM: Algorithm = Algorithm::ChangRoberts;

    fn write(message: &Ringing<Single>, body: &mut Vec<u8>) -> Option<u8> {
        match message {
            Ringing::Pass { number, token } => {
                let (kind, name, own) = match token {
                    Single::Election(name, own) => (SINGLE_ELECTION, name, own),
                    Single::Elected(name, own) => (SINGLE_ELECTED, name, own),
                };
                write_numbers(&[*number, *own], body);
                write_name(*name, body)?;
                Some(kind)
            }
            Ringing::Ack { number } => {
                write_numbers(&[*number], body);
                Some(SINGLE_ACK)
            }
            Ringing::Heartbeat => Some(SINGLE_HEARTBEAT),
        }
    }

    fn read(kind: u8, body: &mut Reader<'_>) -> Option<Ringing<Single>> {
        match kind {
            SINGLE_ELECTION | SINGLE_ELECTED => {
                let (number, own, name) = (body.number()?, body.number()?, body.node()?);
                let is_over = kind == SINGLE_ELECTED;
                let token =
                    if is_over { Single::Elected(name, own) } else { Single::Election(name, own) };
                Some(Ringing::Pass { number, token })
            }
            SINGLE_ACK => Some(Ringing::Ack { number: body.number()? }),
            SINGLE_HEARTBEAT => Some(Ringing::Heartbeat),
            _ => None,
        }
    }
}

fn write_numbers(numbers: &[u64], body: &mut Vec<u8>) {
    body.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
}

fn write_name(name: NodeId, body: &mut Vec<u8>) -> Option<()> {
    body.push(u8::try_from(name.0).ok()?);
    Some(())
}

/// Whoever passes a token has put its own name on it, so there is one at least.
fn write_names(names: &[NodeId], body: &mut Vec<u8>) -> Option<()> {
    if names.is_empty() || names.len() > NAMES_MAX {
        return None;
    }
    body.push(u8::try_from(names.len()).ok()?);
    names.iter().try_for_each(|name| write_name(*name, body))
}

fn read_names(body: &mut Reader<'_>) -> Option<Vec<NodeId>> {
    let count = usize::from(body.byte()?);
    if count == 0 || count > NAMES_MAX {
        return None;
    }
    (0..count).map(|_| body.node()).collect()
}
