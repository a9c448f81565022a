//! What is said to a ZooKeeper server and what it answers, byte for byte.
//!
//! Numbers are big-endian, texts and byte strings open with their length; the shapes are those of
//! ZooKeeper's own `zookeeper.jute`. Only what this engine needs is here.

use std::fmt;

/// The node is not there.
pub(super) const NO_NODE: i32 = -101;
/// The login may not do that.
pub(super) const NO_AUTH: i32 = -102;
/// The node has another version.
pub(super) const BAD_VERSION: i32 = -103;
/// The node is there already.
pub(super) const NODE_EXISTS: i32 = -110;
/// The session has ended, or the server does not know it.
pub(super) const SESSION_EXPIRED: i32 = -112;
/// The session was gone on with through another server.
pub(super) const SESSION_MOVED: i32 = -118;
/// A server that does not know the request.
pub(super) const UNIMPLEMENTED: i32 = -6;

/// The number of an answer that tells of a change instead of answering.
pub(super) const NUMBER_OF_CHANGES: i32 = -1;
/// The number of pings and of their answers.
pub(super) const NUMBER_OF_PINGS: i32 = -2;
/// The number of a login and of its answer.
const NUMBER_OF_LOGINS: i32 = -4;

/// Any version will do.
const ANY: i32 = -1;
/// The version before the one that a server would take for "any".
const BEFORE_ANY: i32 = -2;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET: i32 = 4;
const SET: i32 = 5;
const CHILDREN: i32 = 8;
const PING: i32 = 11;
const CHECK: i32 = 13;
const TRANSACTION: i32 = 14;
const LOGIN: i32 = 100;
const ADD_WATCH: i32 = 106;
const CLOSE: i32 = -11;
/// What stands in place of the kind of a step where the steps end, or where one failed.
const NO_STEP: i32 = -1;

/// Everything to everybody, or to whoever created it.
const ALL_RIGHTS: i32 = 31;
/// A watch that stays, and hears of everything below its node.
const FOR_GOOD_AND_BELOW: i32 = 1;

/// What a session is gone on with by: the number and the word that the server gave it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) id: i64,
    word: [u8; 16],
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever knows the word can act as the session.
        write!(f, "Pass({:#x})", self.id)
    }
}

/// What a server says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// How long the session lives unheard.
    pub(super) session_ms: u64,
    pub(super) pass: Pass,
}

/// Bytes that are no answer to what was asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// A message on its way out.
#[derive(Debug, Default)]
struct Out(Vec<u8>);

impl Out {
    fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn yes_or_no(mut self, is_so: bool) -> Self {
        self.0.push(u8::from(is_so));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        // No message is longer than a server takes, which is far below this.
        let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        self = self.int(length);
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// The message with its length before it.
    fn framed(self) -> Vec<u8> {
        Self::default().bytes(&self.0).0
    }
}

/// A message that came in, read from its front.
#[derive(Debug)]
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32, Garbled> {
        let bytes = self.take(4)?.try_into().map_err(|_| Garbled)?;
        Ok(i32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> Result<i64, Garbled> {
        let bytes = self.take(8)?.try_into().map_err(|_| Garbled)?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// A byte string; a length below zero is that of none.
    fn bytes(&mut self) -> Result<&'a [u8], Garbled> {
        let length = self.int()?;
        self.take(usize::try_from(length).unwrap_or(0))
    }

    fn text(&mut self) -> Result<String, Garbled> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Garbled)
    }

    /// What a server tells of a node; of all that, its version.
    fn version(&mut self) -> Result<i32, Garbled> {
        // When it was created and changed, in transactions and in milliseconds.
        self.take(4 * 8)?;
        let version = self.int()?;
        // Versions of children and of rights, an owner, lengths, and the children's last transaction.
        self.take(4 + 4 + 8 + 4 + 4 + 8)?;
        Ok(version)
    }
}

/// Who may do what with a node that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// Everybody everything: nobody logged in.
    Everybody,
    /// Everything, and only to the login that created it.
    Creator,
}

/// How long a node stays that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Until somebody deletes it.
    ForGood,
    /// For as long as the session that creates it.
    WithSession,
    /// The same, and behind its name stands a number that rises below its parent.
    WithSessionInOrder,
}

impl Stay {
    const fn flags(self) -> i32 {
        match self {
            Self::ForGood => 0,
            Self::WithSession => 1,
            Self::WithSessionInOrder => 3,
        }
    }
}

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// The node is there, at whichever version.
    Check { path: &'a str },
    /// The node has this version.
    CheckVersion { path: &'a str, version: i32 },
    /// Creates a node that is not there.
    Create { path: &'a str, data: &'a [u8], rights: Rights, stay: Stay },
    /// Writes a node that has this version.
    Set { path: &'a str, data: &'a [u8], version: i32 },
    /// Writes a node that is there, at whichever version.
    SetAny { path: &'a str, data: &'a [u8] },
    /// Deletes a node that is there, at whichever version.
    Delete { path: &'a str },
    /// Deletes a node that has this version.
    DeleteVersion { path: &'a str, version: i32 },
}

impl Step<'_> {
    fn kind(self) -> i32 {
        match self {
            Self::Check { .. } | Self::CheckVersion { .. } => CHECK,
            Self::Create { .. } => CREATE,
            Self::Set { .. } | Self::SetAny { .. } => SET,
            Self::Delete { .. } | Self::DeleteVersion { .. } => DELETE,
        }
    }

    fn put(self, out: Out) -> Out {
        match self {
            Self::Check { path } | Self::Delete { path } => out.text(path).int(ANY),
            Self::CheckVersion { path, version } | Self::DeleteVersion { path, version } => {
                out.text(path).int(version)
            }
            Self::Create { path, data, rights, stay } => {
                let (scheme, id) = match rights {
                    Rights::Everybody => ("world", "anyone"),
                    Rights::Creator => ("auth", ""),
                };
                let out = out.text(path).bytes(data).int(1).int(ALL_RIGHTS).text(scheme).text(id);
                out.int(stay.flags())
            }
            Self::Set { path, data, version } => out.text(path).bytes(data).int(version),
            Self::SetAny { path, data } => out.text(path).bytes(data).int(ANY),
        }
    }
}

/// The steps that write a node of this version, and the version it has then. Versions are of 32 bits and
/// go round; a write over -1 would be a write over anything, so that one is passed by in the same
/// transaction.
pub(super) fn write<'a>(path: &'a str, data: &'a [u8], version: i32) -> (Vec<Step<'a>>, i32) {
    let mut steps = vec![Step::Set { path, data, version }];
    let mut next = version.wrapping_add(1);
    if version == BEFORE_ANY {
        steps.push(Step::Set { path, data, version: next });
        next = next.wrapping_add(1);
    }
    (steps, next)
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask<'a> {
    /// Reads a node.
    Get { path: &'a str },
    /// Reads the names below a node.
    Children { path: &'a str },
    /// All of these steps, or none.
    Transaction { steps: &'a [Step<'a>] },
    /// To be told from now on of every change at a node and below it.
    Watch { path: &'a str },
    /// Whether a node is there, and to be told once of its next change, be it that it comes or goes.
    WatchChange { path: &'a str },
    /// Whether a node is there, and to be told once when it goes. Asks for what is below it, which may be
    /// nothing: what is written to the node itself is then told to nobody.
    WatchEnd { path: &'a str },
    /// Ends the session, and with it all nodes that stay no longer.
    End,
}

impl Ask<'_> {
    /// The message, still without its number.
    pub(super) fn framed(self) -> Vec<u8> {
        let out = Out::default().int(0);
        let out = match self {
            Self::Get { path } => out.int(GET).text(path).yes_or_no(false),
            Self::Children { path } => out.int(CHILDREN).text(path).yes_or_no(false),
            Self::Watch { path } => out.int(ADD_WATCH).text(path).int(FOR_GOOD_AND_BELOW),
            Self::WatchChange { path } => out.int(EXISTS).text(path).yes_or_no(true),
            Self::WatchEnd { path } => out.int(CHILDREN).text(path).yes_or_no(true),
            Self::End => out.int(CLOSE),
            Self::Transaction { steps } => {
                let out = steps.iter().fold(out.int(TRANSACTION), |out, step| {
                    step.put(out.int(step.kind()).yes_or_no(false).int(-1))
                });
                out.int(NO_STEP).yes_or_no(true).int(-1)
            }
        };
        out.framed()
    }
}

/// The first message: a session of its own, or that of a pass, which ends after so many milliseconds unheard.
pub(super) fn hello(session_ms: i32, pass: Option<Pass>) -> Vec<u8> {
    let Pass { id, word } = pass.unwrap_or(Pass { id: 0, word: [0; 16] });
    // Protocol 0, no transaction seen, and no read-only server.
    let out = Out::default().int(0).long(0).int(session_ms).long(id).bytes(&word);
    out.yes_or_no(false).framed()
}

/// What the server grants; none if it grants no session, or knows the one of the pass no more.
pub(super) fn welcome(frame: &[u8]) -> Result<Option<Welcome>, Garbled> {
    let mut welcome = In(frame);
    let _protocol = welcome.int()?;
    let granted_ms = welcome.int()?;
    let Some(session_ms) = u64::try_from(granted_ms).ok().filter(|granted| *granted > 0) else {
        return Ok(None);
    };
    let id = welcome.long()?;
    let word = welcome.bytes()?.try_into().map_err(|_| Garbled)?;
    Ok(Some(Welcome { session_ms, pass: Pass { id, word } }))
}

/// A login by name and password.
pub(super) fn login(name: &str, password: &str) -> Vec<u8> {
    let out = Out::default().int(NUMBER_OF_LOGINS).int(LOGIN).int(0);
    out.text("digest").text(&format!("{name}:{password}")).framed()
}

/// A sign of life.
pub(super) fn ping() -> Vec<u8> {
    Out::default().int(NUMBER_OF_PINGS).int(PING).framed()
}

/// Gives a message its number, which stands behind the length.
pub(super) fn give_number(frame: &mut [u8], number: i32) {
    if let Some(place) = frame.get_mut(4..8) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// The number, the code and the rest of an answer.
pub(super) fn answer(frame: &[u8]) -> Result<(i32, i32, &[u8]), Garbled> {
    let mut answer = In(frame);
    let number = answer.int()?;
    let _last_transaction = answer.long()?;
    let code = answer.int()?;
    Ok((number, code, answer.0))
}

/// The node that changed.
pub(super) fn changed(body: &[u8]) -> Result<String, Garbled> {
    let mut body = In(body);
    let (_what, _state) = (body.int()?, body.int()?);
    body.text()
}

/// The bytes of a node and its version.
pub(super) fn found(body: &[u8]) -> Result<(Vec<u8>, i32), Garbled> {
    let mut body = In(body);
    let data = body.bytes()?.to_vec();
    Ok((data, body.version()?))
}

/// The names below a node.
pub(super) fn children(body: &[u8]) -> Result<Vec<String>, Garbled> {
    let mut body = In(body);
    let count = body.int()?;
    (0..count).map(|_| body.text()).collect()
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionOutcome {
    Done,
    /// Nothing of it happened: this step, counted from zero, failed with this code.
    Failed {
        step: usize,
        code: i32,
    },
}

/// What became of a transaction.
pub(super) fn outcome(body: &[u8]) -> Result<TransactionOutcome, Garbled> {
    let mut body = In(body);
    for step in 0.. {
        let (kind, is_end, _code) = (body.int()?, body.take(1)? != [0], body.int()?);
        if is_end {
            break;
        }
        match kind {
            // Steps before the one that failed say zero here.
            NO_STEP => match body.int()? {
                0 => {}
                code => return Ok(TransactionOutcome::Failed { step, code }),
            },
            CHECK | DELETE => {}
            CREATE => {
                body.bytes()?;
            }
            SET => {
                body.version()?;
            }
            _ => return Err(Garbled),
        }
    }
    Ok(TransactionOutcome::Done)
}

/// Reads the bytes as everything that a server may say, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let _ = welcome(bytes);
    let body = answer(bytes).map_or(bytes, |(_, _, body)| body);
    let _ = changed(body);
    let _ = found(body);
    let _ = children(body);
    let _ = outcome(body);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stat(version: i32) -> Out {
        let out = Out::default().long(1).long(2).long(3).long(4).int(version);
        out.int(0).int(0).long(0).int(0).int(0).long(9)
    }

    #[test]
    fn a_message_opens_with_its_length_and_its_number() {
        let mut sent = Ask::Get { path: "/a" }.framed();
        give_number(&mut sent, 7);
        assert_eq!(sent, b"\0\0\0\x0f\0\0\0\x07\0\0\0\x04\0\0\0\x02/a\0");
        assert_eq!(hello(10_000, None).len(), 4 + 45);
    }

    #[test]
    fn a_write_passes_by_the_version_that_would_mean_any() {
        for (version, next) in [(0, 1), (i32::MAX, i32::MIN), (-3, -2), (-2, 0)] {
            let (steps, then) = write("/a", b"x", version);
            assert_eq!(then, next);
            let Step::Set { version: first, .. } = steps[0] else { panic!("{steps:?}") };
            assert_eq!(first, version);
            assert_eq!(steps.len(), if version == -2 { 2 } else { 1 });
        }
    }

    #[test]
    fn a_transaction_is_done_or_tells_what_failed() {
        let end = |out: Out| out.int(NO_STEP).yes_or_no(true).int(-1).0;
        let checked = Out::default().int(CHECK).yes_or_no(false).int(0);
        let mut written = checked.int(SET).yes_or_no(false).int(0);
        written.0.extend(stat(5).0);
        written = written.int(DELETE).yes_or_no(false).int(0);
        assert_eq!(outcome(&end(written)), Ok(TransactionOutcome::Done));
        let failed = |code: i32| Out::default().int(NO_STEP).yes_or_no(false).int(code).int(code);
        let mut refused = failed(0);
        refused.0.extend(failed(BAD_VERSION).0);
        refused.0.extend(failed(-2).0);
        assert_eq!(
            outcome(&end(refused)),
            Ok(TransactionOutcome::Failed { step: 1, code: BAD_VERSION })
        );
    }

    #[test]
    fn a_session_is_gone_on_with_by_what_its_server_gave() {
        let said = Out::default().int(0).int(4000).long(77).bytes(&[3; 16]).yes_or_no(false);
        let welcome = welcome(&said.0).unwrap().expect("it is granted");
        assert_eq!((welcome.session_ms, welcome.pass.id), (4000, 77));
        let again = hello(4000, Some(welcome.pass));
        assert_eq!((&again[20..28], &again[32..48]), (&77i64.to_be_bytes()[..], &[3; 16][..]));
        assert!(!format!("{welcome:?}").contains("3, 3"), "the word is shown to nobody");
    }

    #[test]
    fn a_session_that_is_not_granted_has_no_pass() {
        let said = Out::default().int(0).int(0).long(0).bytes(&[0; 16]);
        assert_eq!(welcome(&said.0), Ok(None));
    }

    #[test]
    fn a_node_is_its_bytes_and_its_version() {
        let mut body = Out::default().bytes(b"abc");
        body.0.extend(stat(-7).0);
        assert_eq!(found(&body.0), Ok((b"abc".to_vec(), -7)));
        assert_eq!(found(&body.0[..body.0.len() - 1]), Err(Garbled));
    }

    proptest! {
        /// Whatever a server says, nothing panics and nothing is read beyond the end.
        #[test]
        fn any_bytes_are_an_answer_or_garbled(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (answer(&bytes).is_ok(), changed(&bytes), found(&bytes), outcome(&bytes));
            let _ = welcome(&bytes);
            // A count of names is no promise of memory.
            let _ = children(&bytes);
        }
    }
}
