//! Server-sent events from bytes: the pure half of a watch.
//!
//! Bytes arrive in pieces that respect neither lines nor characters, so the parser keeps the
//! unfinished line and the unfinished event, both bounded. An event that was not finished by an
//! empty line is dropped with the connection, as the standard asks: half an event is none.

use crate::limits::EVENT_BYTES_MAX;

/// One finished event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its `event:` line; empty if there was none.
    pub(crate) name: String,
    /// Its `data:` lines, with line breaks between.
    pub(crate) data: String,
}

/// A line or an event that is larger than any honest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {EVENT_BYTES_MAX} bytes")]
pub(crate) struct TooLong;

/// What is known of the line and the event under way.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    message: Message,
    has_data: bool,
    /// The last byte was a carriage return: a line feed right after it belongs to it.
    after_return: bool,
    /// The byte order mark may stand only before the first line.
    past_first_line: bool,
}

impl Parser {
    /// Takes in bytes and gives out the events that they finish, in order.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, TooLong> {
        let mut finished = Vec::new();
        for byte in bytes {
            let completes_return = std::mem::take(&mut self.after_return) && *byte == b'\n';
            match byte {
                b'\n' if completes_return => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    finished.extend(self.end_line());
                }
                _ => self.line.push(*byte),
            }
            if self.line.len() + self.message.data.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(finished)
    }

    fn end_line(&mut self) -> Option<Message> {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        let line = if self.past_first_line { &line } else { line.trim_start_matches('\u{feff}') };
        self.past_first_line = true;
        if line.is_empty() {
            return self.end_message();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.message.name = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.has_data = true;
                self.message.data.push_str(value);
            }
            // The cursor stands in the data too, and `retry` is ours to choose. A line that opens
            // with a colon is a sign of life.
            _ => {}
        }
        None
    }

    fn end_message(&mut self) -> Option<Message> {
        let message = std::mem::take(&mut self.message);
        std::mem::take(&mut self.has_data).then_some(message)
    }
}

/// Reads the bytes as a stream of events, in pieces of this length, for the fuzzer: names and data.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8], piece: usize) -> Vec<(String, String)> {
    let mut parser = Parser::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let Ok(messages) = parser.push(piece) else { break };
        found.extend(messages.into_iter().map(|message| (message.name, message.data)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, data: &str) -> Message {
        Message { name: name.into(), data: data.into() }
    }

    const STREAM: &str = "\u{feff}: hello\r\n\r\nid: 5-1-0\nevent: STATE\ndata: {\"ä\":1}\n\n\
                          event:X\rdata:one\rdata: two\r\revent: unfinished\ndata: x\n";

    #[test]
    fn however_the_bytes_are_cut_the_events_are_the_same() {
        let expected = [message("STATE", "{\"ä\":1}"), message("X", "one\ntwo")];
        let bytes = STREAM.as_bytes();
        for piece in 1..=bytes.len() {
            let mut parser = Parser::default();
            let found: Vec<_> =
                bytes.chunks(piece).flat_map(|chunk| parser.push(chunk).unwrap()).collect();
            assert_eq!(found, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn an_event_without_data_is_none() {
        assert_eq!(Parser::default().push(b"event: X\n\n\n\nid: 7\n\n"), Ok(vec![]));
    }

    #[test]
    fn the_name_of_one_event_does_not_stick_to_the_next() {
        let found = Parser::default().push(b"event: A\ndata: 1\n\ndata: 2\n\n").unwrap();
        assert_eq!(found, [message("A", "1"), message("", "2")]);
    }

    #[test]
    fn endless_lines_and_endless_events_are_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..32).any(|_| parser.push(&piece) == Err(TooLong)));
        let mut parser = Parser::default();
        let line = [b"data:".as_slice(), &piece, b"\n"].concat();
        assert!((0..32).any(|_| parser.push(&line) == Err(TooLong)));
    }
}
