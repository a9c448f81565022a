//! `regent peer`: bully and ring between real processes, over UDP and without a store.
//!
//! The very machines that `regent lab run` plays ([`regent_lab::protocols`]), with a socket and a clock
//! around them: [`engine`] decides, [`wire`] is what travels, and the loop here does the rest. One process
//! is one node; all are given the same list.
//!
//! It is for places where a wrong leader is harmless: there is no majority and no term, so a partition or a
//! pause makes two leaders, and nothing downstream could tell them apart. It says so whenever it starts.
//! The road not taken is making it safe: that takes a store or a majority, and is `regent serve`.
//!
//! Nothing is kept over a crash, and nothing needs to be: none of these algorithms votes, so there is
//! nothing that must not be said twice, and a node that comes back asks. What others remember of its
//! earlier life they tell it ([`wire::Life`]).

mod drops;
mod engine;
mod hook;
mod limits;
mod pace;
mod roster;
mod tell;
mod wire;

use std::io::ErrorKind;
use std::time::Duration;

use clap::{Args, ValueEnum};
use regent::fresh;
use regent_election::Node;
use regent_lab::protocols::bully::Bully;
use regent_lab::protocols::ring::Ring;
use regent_lab::protocols::ring::chang_roberts::ChangRoberts;
use regent_lab::protocols::{NodeId, Pace};
use tokio::net::UdpSocket;

use crate::duration::parse;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome, plain};
use crate::output::{Output, Screen, remark};
use crate::signals::Signals;
use drops::Drops;
use engine::Engine;
use hook::Hook;
use limits::{DATAGRAM_BYTES_MAX, SOCKET_ERRORS_MAX, TICK, TURN_DATAGRAMS_MAX};
use pace::{Patience, Wishes};
use roster::{Peer, Roster};
use tell::Standing;
use wire::{Dropped, Spoken};

const EXAMPLES: &str = "\
Examples:
  regent peer --node a --peers a=127.0.0.1:7501,b=127.0.0.1:7502,c=127.0.0.1:7503
  regent peer --algorithm ring --node b --peers a=127.0.0.1:7501,b=127.0.0.1:7502
  regent peer --node a --peers a=[::1]:7501,b=[::1]:7502 --output json
  regent peer --node a --peers a=127.0.0.1:7501,b=127.0.0.1:7502 --on-change ./changed.sh

One process for each name, all with the same --peers and paces; the highest name that is alive
leads. Whoever is cut off or paused may lead beside another leader: only for places where that
does no harm. Where it does, use `regent run`.

It prints a line for each change (`c leads`, `a follows c`, `nobody leads`). The command of
--on-change gets REGENT_NODE, REGENT_LEADER (empty if nobody leads) and REGENT_IS_LEADER (true or
false); it has 30 s, one runs at a time, and the last change wins.";

/// The algorithms that need nothing but peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// The highest name that is alive leads, and takes the office back when it returns
    #[default]
    Bully,
    /// A token collects names, and the highest wins
    Ring,
    /// A token of one name, replaced by higher ones
    ChangRoberts,
}

impl Algorithm {
    /// All of them.
    const ALL: [Self; 3] = [Self::Bully, Self::Ring, Self::ChangRoberts];

    /// Its name on a command line.
    const fn name(self) -> &'static str {
        match self {
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::ChangRoberts => "chang-roberts",
        }
    }

    /// Its number in a datagram.
    const fn code(self) -> u8 {
        match self {
            Self::Bully => 1,
            Self::Ring => 2,
            Self::ChangRoberts => 3,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.code() == code)
    }
}

/// Flags of `regent peer`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PeerArgs {
    /// How they elect
    #[arg(long, value_enum, default_value_t)]
    algorithm: Algorithm,
    /// Which of the peers this process is
    #[arg(long)]
    node: Node,
    /// Everybody, this process included; the same in every process
    #[arg(long, value_name = "NAME=IP:PORT,…", value_delimiter = ',', required = true)]
    peers: Vec<Peer>,
    /// A command that is run whenever it changes who leads
    #[arg(long, value_name = "COMMAND")]
    on_change: Option<String>,
    /// Let peers be elsewhere than on loopback, though nothing is authenticated
    #[arg(long)]
    allow_remote: bool,
    /// How often a leader shows itself [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = parse, help_heading = "Paces")]
    heartbeat: Option<Duration>,
    /// How long a silent leader is borne with, by lot [default: what fits, like 400ms..800ms]
    #[arg(long, value_name = "MIN..MAX", help_heading = "Paces")]
    patience: Option<Patience>,
    /// How long an answer is waited for: a whole round trip [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = parse, help_heading = "Paces")]
    answer: Option<Duration>,
    /// For people or for programs
    #[arg(long, short, env = "REGENT_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Takes part until it is told to end.
pub(crate) async fn run(args: PeerArgs) -> Outcome {
    let roster = Roster::new(args.peers, &args.node, args.allow_remote)
        .map_err(|error| Failure::usage(format!("--peers: {error}")))?;
    let wishes = Wishes { heartbeat: args.heartbeat, patience: args.patience, answer: args.answer };
    let pace = pace::settle(args.algorithm, roster.count(), &wishes)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let (screen, hook) = (Screen { output: args.output }, Hook::new(args.on_change));
    match args.algorithm {
        Algorithm::Bully => take_part::<Bully>(roster, pace, screen, hook).await,
        Algorithm::Ring => take_part::<Ring>(roster, pace, screen, hook).await,
        Algorithm::ChangRoberts => take_part::<ChangRoberts>(roster, pace, screen, hook).await,
    }
}

async fn take_part<P: Spoken>(roster: Roster, pace: Pace, screen: Screen, hook: Hook) -> Outcome {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let socket = listen(&roster).await?;
    for line in tell::weakness(P::ALGORITHM) {
        remark(&line);
    }
    remark(&tell::greeting(P::ALGORITHM, &roster, &pace));
    let engine = Engine::<P>::start(roster, pace, fresh::number()?, regent_clock::now());
    let mut runner = Runner { socket, engine, screen, hook, drops: Drops::default(), errors: 0 };
    loop {
        runner.turn()?;
        // A port that is flooded is always readable: signals and commands have their turn none the less.
        tokio::task::yield_now().await;
        let pause = runner.pause();
        tokio::select! {
            biased;
            name = signals.next() => {
                remark(&format!("{name}: leaves"));
                break;
            }
            () = runner.hook.ended() => {}
            ready = runner.socket.readable() => {
                ready.map_err(|error| runner.broken(&error))?;
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
    runner.leave(&mut signals).await
}

async fn listen(roster: &Roster) -> Result<UdpSocket, Failure> {
    let (name, address) = (roster.own_name(), roster.own_address());
    let unavailable = |error: &std::io::Error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => format!("; is {name} running already?"),
            ErrorKind::AddrNotAvailable => "; that is no address of this machine".to_owned(),
            _ => String::new(),
        };
        let text = format!("{name} cannot listen on {address}: {}{hint}", plain(error));
        Failure::new(Exit::Unavailable, text)
    };
    let socket = UdpSocket::bind(address).await.map_err(|error| unavailable(&error))?;
    // Nothing is sent by `try_send_to` before the runtime has seen once that it can be.
    socket.writable().await.map_err(|error| unavailable(&error))?;
    Ok(socket)
}

/// Carries datagrams, time and words between the engine and the world.
struct Runner<P: Spoken> {
    socket: UdpSocket,
    engine: Engine<P>,
    screen: Screen,
    hook: Hook,
    drops: Drops,
    /// Errors of the socket in a row.
    errors: u32,
}

impl<P: Spoken> Runner<P> {
    /// Takes what has come, then what time brings, and sends. In this order: a node that was paused hears
    /// what it has missed before it acts on a timer that is long over.
    fn turn(&mut self) -> Result<(), Failure> {
        self.receive()?;
        self.engine.wake(regent_clock::now());
        self.send()?;
        for leader in self.engine.leaders() {
            self.tell(leader)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Failure> {
        // One byte more than any of ours, so that a longer one is seen to be longer.
        let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
        for _ in 0..TURN_DATAGRAMS_MAX {
            match self.socket.try_recv_from(&mut buffer) {
                Ok((length, from)) => {
                    self.errors = 0;
                    let taken = self.engine.take(regent_clock::now(), from, &buffer[..length]);
                    if let Err(dropped) = taken {
                        self.note(from, dropped);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.endure(&error)?,
            }
        }
        Ok(())
    }

    fn note(&mut self, from: std::net::SocketAddr, dropped: Dropped) {
        tracing::debug!(%from, %dropped, "a datagram is dropped");
        if let Some(line) = self.drops.count(from, dropped) {
            remark(&line);
        }
    }

    /// What cannot be sent at once is lost, as it might be on the way; the algorithms stand that.
    fn send(&mut self) -> Result<(), Failure> {
        for post in self.engine.posts() {
            match self.socket.try_send_to(&post.bytes, post.to) {
                Ok(_) => self.errors = 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tracing::debug!(to = %post.to, "the socket is full; a datagram is lost");
                }
                Err(error) => self.endure(&error)?,
            }
        }
        Ok(())
    }

    /// A socket may fail for a while, as when a link is down; one that does nothing else is no socket.
    fn endure(&mut self, error: &std::io::Error) -> Result<(), Failure> {
        if self.errors == 0 {
            remark(&format!("{}: {}", self.engine.roster().own_address(), plain(error)));
        }
        self.errors += 1;
        if self.errors >= SOCKET_ERRORS_MAX { Err(self.broken(error)) } else { Ok(()) }
    }

    fn broken(&self, error: &std::io::Error) -> Failure {
        let address = self.engine.roster().own_address();
        Failure::new(Exit::Unavailable, format!("{address}: {}", plain(error)))
    }

    fn tell(&mut self, leader: Option<NodeId>) -> Result<(), Failure> {
        let roster = self.engine.roster();
        let leader = leader.and_then(|leader| roster.name(leader)).cloned();
        let standing = Standing { node: roster.own_name().clone(), leader };
        tracing::info!(node = %standing.node, leader = ?standing.leader, "the leader changed");
        self.screen.answer(&standing.object(), || standing.line())?;
        self.hook.tell(standing);
        Ok(())
    }

    /// How long to sleep at most.
    fn pause(&self) -> Duration {
        let now = regent_clock::now();
        self.engine.wake_at().map_or(TICK, |at| now.until(at).min(TICK))
    }

    /// The algorithms know no farewell: the others miss this node like one that has died. Its own command
    /// is told that nobody leads here, and waited for; a second signal does not wait.
    async fn leave(mut self, signals: &mut Signals) -> Outcome {
        if let Some(line) = self.drops.summary() {
            remark(&line);
        }
        let node = self.engine.roster().own_name().clone();
        // Nothing is answered any more, as if it had died.
        drop(self.socket);
        self.hook.tell(Standing { node, leader: None });
        tokio::select! {
            () = self.hook.finish() => Ok(Exit::Done),
            name = signals.next() => {
                let text = format!("{name} again: the command of --on-change is ended");
                Err(Failure::new(Exit::Interrupted, text))
            }
        }
    }
}
