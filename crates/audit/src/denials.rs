//! Repeated denials become one line with a count: whoever knocks all day must not roll the log over.
//!
//! The first denial of a kind (principal, source, verb, group, code) is a line at once. Those that follow within a
//! minute are counted, and the minute ends with one line that says how many. Kinds beyond what one principal may have, or
//! all strangers together, share a line of theirs, and kinds beyond a bound for all share one.

use std::collections::BTreeMap;

use regent_election::Moment;

use crate::limits::{DENIAL_KINDS_MAX, DENIAL_KINDS_OF_ONE_MAX, DENIALS_PER};
use crate::line::Act;

/// What makes two denials the same.
type Kind = (Option<String>, String, String, Option<String>, String);

fn kind(act: &Act) -> Kind {
    let Act { who, from, verb, group, code, .. } = act.clone();
    (who, from, verb, group, code)
}

#[derive(Debug)]
struct Window {
    since: Moment,
    since_ms: u64,
    /// What the line says, but for the count.
    act: Act,
    count: u64,
}

impl Window {
    fn line(self) -> Option<Act> {
        let Self { act, count, since_ms, .. } = self;
        (count > 0).then_some(Act { count: Some(count), since_ms: Some(since_ms), ..act })
    }
}

/// Denials that are being counted.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    windows: BTreeMap<Kind, Window>,
}

impl Denials {
    /// Whether this denial is a line of its own. If not, it is counted.
    pub(crate) fn on(&mut self, now: Moment, at_ms: u64, act: Act) -> Option<Act> {
        if self.count(&act) {
            return None;
        }
        let of_one = self.windows.keys().filter(|(who, ..)| *who == act.who).count();
        let is_told = of_one < DENIAL_KINDS_OF_ONE_MAX && self.windows.len() < DENIAL_KINDS_MAX;
        let mut counted = Act { request: None, ..act.clone() };
        if !is_told {
            counted = Act {
                who: act.who.clone().filter(|_| self.windows.len() < DENIAL_KINDS_MAX),
                from: "several".to_owned(),
                verb: "several".to_owned(),
                code: "DENIED".to_owned(),
                ..Act::default()
            };
            if self.count(&counted) {
                return None;
            }
        }
        let count = u64::from(!is_told);
        let window = Window { since: now, since_ms: at_ms, act: counted.clone(), count };
        self.windows.insert(kind(&counted), window);
        is_told.then_some(act)
    }

    /// Counts a denial of a kind that is being counted, if it is.
    fn count(&mut self, act: &Act) -> bool {
        let window = self.windows.get_mut(&kind(act));
        window.map(|window| window.count += 1).is_some()
    }

    /// The lines of windows that are over.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Act> {
        let is_over = |window: &Window| now.since(window.since) >= DENIALS_PER;
        let over = self.windows.extract_if(.., |_, window| is_over(window));
        over.filter_map(|(_, window)| window.line()).collect()
    }

    /// The lines of all windows.
    pub(crate) fn all(&mut self) -> Vec<Act> {
        std::mem::take(&mut self.windows).into_values().filter_map(Window::line).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn denial(who: &str, verb: &str) -> Act {
        let (who, code) = (Some(who.to_owned()), "FORBIDDEN".to_owned());
        Act { who, verb: verb.to_owned(), code, from: "10.0.0.1".to_owned(), ..Act::default() }
    }

    #[test]
    fn repeated_denials_are_one_line_and_a_count() {
        let mut denials = Denials::default();
        let began_at = Moment::ZERO;
        assert!(denials.on(began_at, 5, denial("user:eve", "step_down")).is_some());
        for _ in 0..1000 {
            assert_eq!(denials.on(began_at, 6, denial("user:eve", "step_down")), None);
        }
        assert!(denials.on(began_at, 6, denial("user:mallory", "step_down")).is_some());
        assert!(denials.due(began_at + Duration::from_secs(59)).is_empty());
        let lines = denials.due(began_at + DENIALS_PER);
        assert_eq!(lines.len(), 1, "one that came once is told already: {lines:?}");
        assert_eq!((lines[0].count, lines[0].since_ms), (Some(1000), Some(5)));
        assert!(denials.on(began_at + DENIALS_PER, 7, denial("user:eve", "step_down")).is_some());
    }

    #[test]
    fn kinds_beyond_the_bound_share_one_line_and_none_is_lost() {
        let mut denials = Denials::default();
        let told = (0..1000)
            .filter(|number| {
                denials.on(Moment::ZERO, 1, denial(&format!("user:{number}"), "x")).is_some()
            })
            .count();
        assert_eq!(told, DENIAL_KINDS_MAX);
        let lines = denials.all();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].count, Some((1000 - DENIAL_KINDS_MAX) as u64));
        assert_eq!(denials.all(), []);
    }

    #[test]
    fn strangers_and_one_principal_hide_nobody_elses_denials() {
        let mut denials = Denials::default();
        let stranger = |number: u32| Act { who: None, ..denial("", &format!("verb{number}")) };
        for number in 0..1000 {
            denials.on(Moment::ZERO, 1, stranger(number));
            denials.on(Moment::ZERO, 1, denial("user:eve", &format!("verb{number}")));
        }
        assert!(denials.on(Moment::ZERO, 1, denial("user:mallory", "step_down")).is_some());
        let lines = denials.all();
        let rest = Some((1000 - DENIAL_KINDS_OF_ONE_MAX) as u64);
        let counts: Vec<_> = lines.iter().map(|line| (line.who.as_deref(), line.count)).collect();
        assert_eq!(counts, [(None, rest), (Some("user:eve"), rest)]);
    }
}
