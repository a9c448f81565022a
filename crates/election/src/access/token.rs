//! Bearer tokens: their text, what is stored of them, and the table of those that exist.
//!
//! A token is `rgt_ID_SECRET_CHECK`: the prefix is for programs that search repositories for leaked secrets, the id
//! finds the row, the secret is 256 random bits, and the check (CRC-32 of all before it) tells a typing error from a
//! wrong token. Only a SHA-256 digest of the secret is stored. A slow hash is for passwords: nobody guesses 256 bits.
//!
//! Left to others: making random bits and digests, which takes more than rules.

use std::fmt;
use std::str::FromStr;

use super::Principal;
use super::standing::TokenStanding;
use crate::codec::{CodecError, Input, Wire, malformed, wire_struct};
use crate::limits::TOKEN_LABEL_BYTES_MAX;
use crate::name::NameError;

/// The public name of a token: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let is_hex = text.len() == 16 && text.bytes().all(is_lower_hex);
        let id = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or(TokenError::Id)
    }
}

/// The SHA-256 digest of a token's secret. Compared in constant time only.
#[derive(Clone, Copy)]
pub struct SecretDigest(pub [u8; 32]);

impl SecretDigest {
    /// Whether both are the same. How long it takes says nothing about where they differ.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let differs =
            self.0.iter().zip(&other.0).fold(0, |all, (left, right)| all | (left ^ right));
        std::hint::black_box(differs) == 0
    }
}

impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.is(other)
    }
}

impl Eq for SecretDigest {}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// What a caller shows: the id and the secret. Its `Debug` hides the secret; [`BearerToken::reveal`] is the one way to
/// its text.
#[derive(Clone, Copy)]
pub struct BearerToken {
    pub id: TokenId,
    secret: [u8; 32],
}

/// How every token of a cluster begins.
pub const TOKEN_PREFIX: &str = "rgt_";
const HEX: &[u8; 16] = b"0123456789abcdef";

impl BearerToken {
    /// A token of this id and secret, which must be random.
    #[must_use]
    pub const fn new(id: TokenId, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// The secret's bytes, to be digested.
    #[must_use]
    pub const fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The whole text, for its owner only.
    #[must_use]
    pub fn reveal(&self) -> String {
        let mut text = format!("{TOKEN_PREFIX}{}_", self.id);
        for byte in self.secret {
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
        let check = crc32(text.as_bytes());
        format!("{text}_{check:08x}")
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TOKEN_PREFIX}{}_(hidden)", self.id)
    }
}

impl FromStr for BearerToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let rest = text.strip_prefix(TOKEN_PREFIX).ok_or(TokenError::Shape)?;
        let (body, check) = text.rsplit_once('_').ok_or(TokenError::Shape)?;
        let mut parts = rest.split('_');
        let (Some(id), Some(secret), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Shape);
        };
        let is_hex = secret.len() == 64 && secret.bytes().all(is_lower_hex);
        if !is_hex || check.len() != 8 || !check.bytes().all(is_lower_hex) {
            return Err(TokenError::Shape);
        }
        if u32::from_str_radix(check, 16) != Ok(crc32(body.as_bytes())) {
            return Err(TokenError::Check);
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(secret.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| TokenError::Shape)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| TokenError::Shape)?;
        }
        Ok(Self { id: id.parse()?, secret: bytes })
    }
}

const fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// CRC-32 as zlib has it. Bit by bit: a token is short.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

/// Why a text is no token. No message repeats what was given: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error(
        "a token is rgt_, 16 digits, _, 64 digits, _ and 8 digits, all hexadecimal in lower case"
    )]
    Shape,
    #[error("the last 8 digits of the token do not fit the rest: it was cut off or mistyped")]
    Check,
    #[error("the id of a token is 16 hexadecimal digits in lower case")]
    Id,
}

/// What people note about a token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenLabel(Box<str>);

impl TokenLabel {
    /// Checks and keeps a label; the empty one is fine.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let kind = "token's label";
        if text.len() > TOKEN_LABEL_BYTES_MAX {
            return Err(NameError::TooLong { kind, bytes: text.len(), max: TOKEN_LABEL_BYTES_MAX });
        }
        if text.chars().any(char::is_control) {
            return Err(NameError::Control { kind });
        }
        Ok(Self(text.into()))
    }

    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One row of the table of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub digest: SecretDigest,
    /// Whom the bearer of this token is.
    pub principal: Principal,
    pub label: TokenLabel,
    /// When it was made, by the proposer's wall clock: a note for people.
    pub created_ms: u64,
    /// From when on servers refuse it, in milliseconds since 1970 by their own wall clocks. No rule of an election
    /// compares it with anything: it ends no lease.
    pub expires_ms: Option<u64>,
    /// Kept after a revocation, so that its bearer can still give up what it holds.
    pub revoked: bool,
}

impl TokenRecord {
    /// What is wrong with it at this wall-clock time, if anything.
    #[must_use]
    pub fn flaw(&self, wall_ms: u64) -> Option<CredentialFlaw> {
        TokenStanding::of_record(self).flaw(|| wall_ms)
    }
}

/// Why a credential that was good is not any more. Its bearer may give up what it holds, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialFlaw {
    Expired,
    Revoked,
}

impl CredentialFlaw {
    /// The word for wires and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl FromStr for CredentialFlaw {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Expired, Self::Revoked];
        all.into_iter().find(|flaw| flaw.word() == word).ok_or_else(|| format!("no flaw: {word}"))
    }
}

impl fmt::Display for CredentialFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Wire for TokenId {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.0.to_le_bytes());
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let bytes = input.bytes(8, "a token's id")?;
        Ok(Self(u64::from_le_bytes(bytes.try_into().map_err(malformed("a token's id"))?)))
    }
}

impl Wire for SecretDigest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.0);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let bytes = input.bytes(32, "a digest")?;
        Ok(Self(bytes.try_into().map_err(malformed("a digest"))?))
    }
}

impl Wire for TokenLabel {
    fn put(&self, out: &mut Vec<u8>) {
        crate::codec::put_block(self.as_str().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let text = std::str::from_utf8(input.block("a label")?).map_err(malformed("a label"))?;
        Self::new(text).map_err(malformed("a label"))
    }
}

wire_struct!(TokenRecord { digest, principal, label, created_ms, expires_ms, revoked });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written_and_shows_its_secret_nowhere_else() {
        let token = BearerToken::new(TokenId(0x1f), [0xab; 32]);
        let text = token.reveal();
        assert_eq!(text.len(), 4 + 16 + 1 + 64 + 1 + 8);
        let read: BearerToken = text.parse().unwrap();
        assert_eq!((read.id, read.secret()), (token.id, token.secret()));
        assert!(!format!("{token:?}").contains("abab"));
        // The value that every implementation of CRC-32 gives for this.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_repeated() {
        let text = BearerToken::new(TokenId(7), [1; 32]).reveal();
        let swapped = text.replacen("0101", "0110", 1);
        assert_eq!(swapped.parse::<BearerToken>().unwrap_err(), TokenError::Check);
        let cut = &text[..text.len() - 1];
        for bad in [cut, "", "rgt_", "rgt_1_2_3", &text.to_uppercase(), &format!("{text}_0")] {
            let error = bad.parse::<BearerToken>().unwrap_err();
            assert_eq!(error, TokenError::Shape, "{bad}");
            assert!(!error.to_string().contains("0101"));
        }
    }

    #[test]
    fn digests_are_the_same_only_if_every_bit_is() {
        let one = SecretDigest([5; 32]);
        for at in 0..32 {
            let mut other = one;
            other.0[at] ^= 1;
            assert!(one != other, "{at}");
        }
        assert!(one == SecretDigest([5; 32]));
    }

    #[test]
    fn an_expiry_counts_from_its_very_moment() {
        let record = TokenRecord {
            digest: SecretDigest([0; 32]),
            principal: "node:a".parse().unwrap(),
            label: TokenLabel::new("").unwrap(),
            created_ms: 0,
            expires_ms: Some(10),
            revoked: false,
        };
        assert_eq!(record.flaw(9), None);
        assert_eq!(record.flaw(10), Some(CredentialFlaw::Expired));
        assert_eq!(TokenRecord { revoked: true, ..record }.flaw(0), Some(CredentialFlaw::Revoked));
    }
}
