//! Names, addresses and the files of operators and users.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use regent::remote::Address;
use regent_audit::Head;
use regent_election::access::{NodeRule, Pattern, Principal, Right, Role, TokenId};
use regent_election::term::parse_term;
use regent_election::{
    Account, Cursor, Group, Home, Node, NodePattern, Reason, RequestId, Resource, SessionId,
};
use regent_operate::access::{difference, read_bindings};
use regent_peer::Peer;
use regent_service::{duration, members, settings};
use regent_supervise::Probe;
use regent_tls::ReplicaName;

use crate::with_text;

/// Reads a word. What is shown of it is the same word, read again.
fn word<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        let shown = read.to_string();
        assert_eq!(shown.parse::<T>().ok(), Some(read), "{shown:?} of {text:?}");
    }
}

/// All words there are.
pub(crate) fn words(bytes: &[u8]) {
    with_text(bytes, |text| {
        word::<Group>(text);
        word::<Node>(text);
        word::<Account>(text);
        word::<Resource>(text);
        word::<RequestId>(text);
        word::<Home>(text);
        word::<Cursor>(text);
        word::<NodePattern>(text);
        word::<Pattern>(text);
        word::<NodeRule>(text);
        word::<Principal>(text);
        word::<Right>(text);
        word::<Role>(text);
        word::<TokenId>(text);
        word::<Head>(text);
        word::<ReplicaName>(text);
        word::<Address>(text);
        let _ = (text.parse::<SessionId>(), Reason::new(text));
        let _ = text.parse::<Peer>();
        let _ = Probe::parse(text);
        let _ = parse_term(text);
        let _ = (duration::parse(text), duration::parse_ms(text));
        let _ = members::parse(text, &[]);
        let _ = Address::list(text);
        if let (Ok(pattern), Some((_, name))) = (text.parse::<Pattern>(), text.split_once(' ')) {
            let _ = pattern.matches(name);
        }
    });
}

/// URLs of stores of several servers. Stores are not opened: that would make directories.
pub(crate) fn store_url(bytes: &[u8]) {
    with_text(bytes, regent_stores::engine::fuzz);
}

/// A file of settings, of bindings, of issuers.
pub(crate) fn files(bytes: &[u8]) {
    with_text(bytes, |text| {
        let _ = settings::File::of("regent.toml", text).settings();
        if let Ok(bindings) = read_bindings(text) {
            assert_eq!(difference(&bindings, &bindings).to_string(), "nothing changes");
        }
        let _ = regent_jwt::issuers::fuzz(text);
    });
}

/// A scenario of the lab.
pub(crate) fn scenario(bytes: &[u8]) {
    with_text(bytes, |text| {
        let _ = regent_lab::stage::parse("fuzzed", text);
    });
}

/// A session file.
pub(crate) fn session_file(bytes: &[u8]) {
    with_text(bytes, regent::remote::fuzz_session_file);
}
