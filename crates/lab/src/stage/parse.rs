//! Scenarios as small texts: one thing a line, and an error says where it is.
//!
//! ```text
//! # The leader dies, and comes back.
//! about   the leader dies and comes back
//! nodes   5
//! lasts   30s
//! at 5s   crash leader for 10s
//! from 5s to 25s every 4s  crash highest for 2s
//! at 9s   partition A B | rest
//! at 15s  heal
//! ```
//!
//! The road not taken is TOML: a scenario is a list of things that happen in an order, and tables of tables
//! hide that.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::scenario::{Blow, Links, Scenario, Strike, Who};
use crate::protocols::{NODES_MAX, NodeId, Pace};

/// Lines of one scenario at most.
const LINES_MAX: usize = 1_000;
/// Strikes of one scenario at most, those that are repeated counted each time.
const STRIKES_MAX: usize = 10_000;
/// No scenario lasts longer: a run is kept in memory.
const LASTS_MAX: Duration = Duration::from_secs(3_600);

const SETTINGS: &[&str] = &[
    "about",
    "nodes",
    "lasts",
    "heartbeat",
    "patience",
    "answer",
    "ttl",
    "latency",
    "loss",
    "double",
    "disk",
    "work",
    "at",
    "from",
];
const BLOWS: &[&str] = &[
    "crash",
    "restart",
    "pause",
    "partition",
    "cut",
    "heal",
    "latency",
    "loss",
    "double",
    "slow",
    "clock",
    "drift",
    "disk",
    "lie",
    "witness",
];
const WHO: &[&str] =
    &["leader", "highest", "lowest", "follower", "minority", "all", "rest", "store"];

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Reads a scenario.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(name: &str, text: &str) -> Result<Scenario, ParseError> {
    let mut scenario = plain(name);
    for (number, line) in text.lines().enumerate() {
        let mut words = Words::new(number + 1, line);
        if number >= LINES_MAX {
            return Err(words.wrong(format!("more than {LINES_MAX} lines")));
        }
        if words.peek().is_some() {
            take_line(&mut words, line, &mut scenario)?;
            words.end()?;
        }
    }
    if scenario.about.is_empty() {
        let message = "a scenario says what it shows: begin with a line `about …`".to_owned();
        return Err(ParseError { line: 1, column: 1, message });
    }
    scenario.strikes.sort_by_key(|strike| strike.at);
    Ok(scenario)
}

/// What holds unless a scenario says otherwise.
fn plain(name: &str) -> Scenario {
    let ms = Duration::from_millis;
    Scenario {
        name: name.to_owned(),
        about: String::new(),
        nodes: 5,
        lasts: Duration::from_secs(30),
        pace: Pace {
            heartbeat_every: ms(100),
            patience_min: ms(400),
            patience_max: ms(800),
            answer_within: ms(100),
            ttl: ms(2_000),
        },
        links: Links { latency_us: 1_000..=10_000, loss_ppm: 0, double_ppm: 0 },
        disk_us: 500..=5_000,
        work: ms(100),
        strikes: Vec::new(),
    }
}

fn take_line(words: &mut Words<'_>, line: &str, scenario: &mut Scenario) -> Result<(), ParseError> {
    let verb = words.next("a setting or `at`")?;
    match verb {
        "about" => {
            let rest = line.trim_start().trim_start_matches("about");
            rest.trim().clone_into(&mut scenario.about);
            words.skip_all();
        }
        "nodes" => scenario.nodes = words.count(2..=NODES_MAX)?,
        "lasts" => {
            scenario.lasts = words.time()?;
            if scenario.lasts > LASTS_MAX || scenario.lasts.is_zero() {
                return Err(words.wrong_last("a scenario lasts more than nothing and at most 1h"));
            }
        }
        "heartbeat" => scenario.pace.heartbeat_every = words.some_time()?,
        "patience" => {
            let range = words.range()?;
            let of = |us: &u64| Duration::from_micros(*us);
            scenario.pace.patience_min = of(range.start());
            scenario.pace.patience_max = of(range.end());
        }
        "answer" => scenario.pace.answer_within = words.some_time()?,
        "ttl" => scenario.pace.ttl = words.some_time()?,
        "work" => scenario.work = words.some_time()?,
        "latency" => scenario.links.latency_us = words.range()?,
        "loss" => scenario.links.loss_ppm = words.share()?,
        "double" => scenario.links.double_ppm = words.share()?,
        "disk"
            if words.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) =>
        {
            scenario.disk_us = words.range()?;
        }
        "at" => {
            let at = words.time()?;
            let blow = take_blow(words)?;
            push(words, scenario, Strike { at, blow })?;
        }
        "from" => {
            let from = words.time()?;
            words.expect("to")?;
            let to = words.time()?;
            words.expect("every")?;
            let every = words.some_time()?;
            let blow = take_blow(words)?;
            let mut at = from;
            while at <= to {
                push(words, scenario, Strike { at, blow: blow.clone() })?;
                at += every;
            }
        }
        _ if BLOWS.contains(&verb) => {
            words.back();
            let blow = take_blow(words)?;
            push(words, scenario, Strike { at: Duration::ZERO, blow })?;
        }
        _ => {
            let known: Vec<&str> = SETTINGS.iter().chain(BLOWS).copied().collect();
            return Err(words.unknown("a setting", verb, &known));
        }
    }
    Ok(())
}

fn push(words: &Words<'_>, scenario: &mut Scenario, strike: Strike) -> Result<(), ParseError> {
    if scenario.strikes.len() >= STRIKES_MAX {
        return Err(words.wrong(format!("more than {STRIKES_MAX} things happen")));
    }
    scenario.strikes.push(strike);
    Ok(())
}

fn take_blow(words: &mut Words<'_>) -> Result<Blow, ParseError> {
    let verb = words.next("what happens")?;
    Ok(match verb {
        "crash" => {
            let who = words.who()?;
            let is_back = words.take_if("for");
            Blow::Crash(who, if is_back { Some(words.some_time()?) } else { None })
        }
        "restart" => Blow::Restart(words.who()?),
        "pause" => {
            let who = words.who()?;
            words.expect("for")?;
            Blow::Pause(who, words.some_time()?)
        }
        "partition" => Blow::Partition(take_parts(words)?),
        "cut" => {
            let from = words.who()?;
            let both = match words.next("`->` or `<->`")? {
                "->" => false,
                "<->" => true,
                _ => return Err(words.wrong_last("`->` cuts one way, `<->` both")),
            };
            Blow::Cut(from, words.who()?, both)
        }
        "heal" => Blow::Heal,
        "latency" => Blow::Latency(words.range()?),
        "loss" => Blow::Loss(words.share()?),
        "double" => Blow::Double(words.share()?),
        "slow" => Blow::Slow(words.who()?, words.time()?),
        "clock" => Blow::Clock(words.who()?, words.time()?),
        "drift" => Blow::Drift(words.who()?, words.signed_share()?),
        "disk" => Blow::Disk(words.who()?, words.range()?),
        "lie" => Blow::Lie(words.who()?),
        "witness" => Blow::Witness(words.who()?),
        _ => return Err(words.unknown("a thing that can happen", verb, BLOWS)),
    })
}

fn take_parts(words: &mut Words<'_>) -> Result<Vec<Vec<Who>>, ParseError> {
    let mut parts = vec![vec![words.who()?]];
    while words.peek().is_some() {
        if words.take_if("|") {
            parts.push(vec![words.who()?]);
        } else if let Some(part) = parts.last_mut() {
            part.push(words.who()?);
        }
    }
    if parts.len() < 2 {
        return Err(words.wrong("a partition has at least two parts, with `|` between them"));
    }
    Ok(parts)
}

/// The words of one line.
struct Words<'a> {
    line: usize,
    /// With their columns.
    words: Vec<(usize, &'a str)>,
    place: usize,
    /// The column after the last word.
    end: usize,
}

impl<'a> Words<'a> {
    fn new(line: usize, text: &'a str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        let mut words = Vec::new();
        let mut start = None;
        for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
            match (letter.is_whitespace(), start) {
                (false, None) => start = Some(at),
                (true, Some(from)) => {
                    words.push((text[..from].chars().count() + 1, &text[from..at]));
                    start = None;
                }
                (true, None) | (false, Some(_)) => {}
            }
        }
        let end = text.trim_end().chars().count() + 1;
        Self { line, words, place: 0, end }
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.place).map(|(_, word)| *word)
    }

    fn next(&mut self, wanted: &str) -> Result<&'a str, ParseError> {
        let Some(word) = self.peek() else {
            return Err(self.wrong(format!("the line ends where {wanted} is wanted")));
        };
        self.place += 1;
        Ok(word)
    }

    const fn back(&mut self) {
        self.place -= 1;
    }

    const fn skip_all(&mut self) {
        self.place = self.words.len();
    }

    fn take_if(&mut self, word: &str) -> bool {
        let is_there = self.peek() == Some(word);
        self.place += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, word: &str) -> Result<(), ParseError> {
        if self.take_if(word) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "the end".to_owned(), |word| format!("{word:?}"));
        Err(self.wrong(format!("`{word}` is wanted here, and {found} is there")))
    }

    fn end(&self) -> Result<(), ParseError> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(self.wrong(format!("{word:?} is one word too many"))),
        }
    }

    /// Something is wrong with the word that comes, or with the end.
    fn wrong(&self, message: impl Into<String>) -> ParseError {
        let column = self.words.get(self.place).map_or(self.end, |(column, _)| *column);
        ParseError { line: self.line, column, message: message.into() }
    }

    /// Something is wrong with the word that was just taken.
    fn wrong_last(&self, message: impl Into<String>) -> ParseError {
        let taken = self.place.checked_sub(1).and_then(|place| self.words.get(place));
        let column = taken.map_or(self.end, |(column, _)| *column);
        ParseError { line: self.line, column, message: message.into() }
    }

    fn unknown(&self, what: &str, word: &str, known: &[&str]) -> ParseError {
        let near = known
            .iter()
            .map(|name| (strsim::damerau_levenshtein(word, name), *name))
            .filter(|(distance, name)| *distance <= 2.min(name.len() / 2))
            .min();
        let hint = match near {
            Some((_, name)) => format!("did you mean {name}?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.wrong_last(format!("{word:?} is not {what}; {hint}"))
    }

    fn who(&mut self) -> Result<Who, ParseError> {
        let word = self.next("a node")?;
        let mut letters = word.chars();
        if let (Some(letter @ 'A'..='Z'), None) = (letters.next(), letters.next()) {
            return Ok(Who::Node(NodeId(letter as u16 - 'A' as u16)));
        }
        Ok(match word {
            "leader" => Who::Leader,
            "highest" => Who::Highest,
            "lowest" => Who::Lowest,
            "follower" => Who::Follower,
            "minority" => Who::Minority,
            "all" => Who::All,
            "rest" => Who::Rest,
            "store" => Who::Store,
            _ => return Err(self.unknown("a node: a letter, or a word", word, WHO)),
        })
    }

    fn count(&mut self, range: RangeInclusive<u16>) -> Result<u16, ParseError> {
        let word = self.next("a number")?;
        match word.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            Ok(_) | Err(_) => {
                let (low, high) = range.into_inner();
                Err(self.wrong_last(format!("{word:?} is not a number from {low} to {high}")))
            }
        }
    }

    fn time(&mut self) -> Result<Duration, ParseError> {
        let word = self.next("a time such as 500ms")?;
        time(word).ok_or_else(|| {
            self.wrong_last(format!("{word:?} is not a time; write 500us, 20ms, 1.5s or 2m"))
        })
    }

    /// A time above zero.
    fn some_time(&mut self) -> Result<Duration, ParseError> {
        let found = self.time()?;
        if found.is_zero() {
            return Err(self.wrong_last("this time must be above zero"));
        }
        Ok(found)
    }

    /// Two times, or one, in microseconds.
    fn range(&mut self) -> Result<RangeInclusive<u64>, ParseError> {
        let word = self.next("a time such as 20ms, or two such as 1ms..20ms")?;
        let (low, high) = word.split_once("..").unwrap_or((word, word));
        let micros = |word: &str| time(word).and_then(|time| u64::try_from(time.as_micros()).ok());
        match (micros(low), micros(high)) {
            (Some(low), Some(high)) if low <= high => Ok(low..=high),
            (Some(_), Some(_)) => {
                Err(self.wrong_last(format!("{word:?} falls; write the smaller time first")))
            }
            (_, _) => Err(self
                .wrong_last(format!("{word:?} is not a time, nor two; write 20ms or 1ms..20ms"))),
        }
    }

    fn share(&mut self) -> Result<u32, ParseError> {
        let ppm = self.signed_share()?;
        u32::try_from(ppm)
            .ok()
            .filter(|ppm| *ppm <= 1_000_000)
            .ok_or_else(|| self.wrong_last("a share lies between 0% and 100%"))
    }

    /// Per cent, in parts per million.
    fn signed_share(&mut self) -> Result<i64, ParseError> {
        let word = self.next("a share such as 5%")?;
        let number = word.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        match number.filter(|number| number.abs() <= 100.0) {
            // Drift of a whole -100 % would be a clock that stands still.
            Some(number) if number > -100.0 => Ok((number * 10_000.0).round() as i64),
            Some(_) | None => {
                Err(self.wrong_last(format!("{word:?} is not a share; write 5%, or +0.5%")))
            }
        }
    }
}

fn time(word: &str) -> Option<Duration> {
    let word = word.strip_prefix('+').unwrap_or(word);
    let split = word.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = word.split_at(split);
    let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite())?;
    let seconds = match unit {
        "us" => number / 1_000_000.0,
        "ms" => number / 1_000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return None,
    };
    // Rounded to microseconds, so that 0.1 is what it says.
    let micros = (seconds * 1_000_000.0).round();
    (0.0..=1e13).contains(&micros).then(|| Duration::from_micros(micros as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse("x", text).unwrap_err().to_string()
    }

    #[test]
    fn a_scenario_is_read_as_it_is_written() {
        let text = "about two parts  # a remark\nnodes 4\nlasts 1.5s\nlatency 1ms..2ms\nwitness D\n\
                    at 1s partition A leader | rest\nfrom 2s to 4s every 1s crash highest for 500ms";
        let scenario = parse("x", text).unwrap();
        assert_eq!(scenario.about, "two parts  # a remark");
        assert_eq!((scenario.nodes, scenario.lasts), (4, Duration::from_millis(1_500)));
        assert_eq!(scenario.links.latency_us, 1_000..=2_000);
        assert_eq!(scenario.strikes[0].blow, Blow::Witness(Who::Node(NodeId(3))));
        let parts = vec![vec![Who::Node(NodeId(0)), Who::Leader], vec![Who::Rest]];
        assert_eq!(scenario.strikes[1].blow, Blow::Partition(parts));
        assert_eq!(scenario.strikes.len(), 5);
    }

    #[test]
    fn errors_say_where_and_what_to_write_instead() {
        assert_eq!(
            error("about x\nat 5s crsh leader"),
            "2:7: \"crsh\" is not a thing that can happen; did you mean crash?"
        );
        assert_eq!(error("about x\nnode 5"), "2:1: \"node\" is not a setting; did you mean nodes?");
        assert!(error("about x\nnodes 99").starts_with("2:7: \"99\" is not a number from 2 to 26"));
        assert!(error("about x\n at 5 crash A").starts_with("2:5: \"5\" is not a time"));
        assert_eq!(
            error("about x\nat 5s pause leader"),
            "2:19: `for` is wanted here, and the end is there"
        );
        assert_eq!(error("about x\nheal now"), "2:6: \"now\" is one word too many");
        assert!(error("about x\nat 1s partition A B").contains("at least two parts"));
        assert!(error("about x\nlatency 5ms..1ms").contains("falls"));
        assert!(error("about x\nat 1s crash ladder").contains("did you mean leader?"));
        assert!(error("about x\nloss 101%").starts_with("2:6:"));
        assert!(error("nodes 3").contains("about"));
        assert!(error("about x\nfrom 1s to 30m every 1us heal").contains("10000"));
    }
}
