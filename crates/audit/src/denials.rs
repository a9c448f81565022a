//! Repeated denials become one line with a count: whoever knocks all day must not roll the log over.
//!
//! The first denial of a kind (principal, source, verb, group, code) is a line at once. Those that follow within a
//! minute are counted, and the minute ends with one line that says how many. Kinds beyond a bound share one.

use std::collections::BTreeMap;

use regent_election::Moment;

use crate::limits::{DENIAL_KINDS_MAX, DENIALS_PER};
use crate::line::Act;

/// What makes two denials the same.
type Kind = (Option<String>, String, String, Option<String>, String);

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
    /// Those that found no window of their own.
    others: Option<Window>,
}

impl Denials {
    /// Whether this denial is a line of its own. If not, it is counted.
    pub(crate) fn on(&mut self, now: Moment, at_ms: u64, act: Act) -> Option<Act> {
        let Act { who, from, verb, group, code, .. } = act.clone();
        let kind = (who, from, verb, group, code);
        if let Some(window) = self.windows.get_mut(&kind) {
            window.count += 1;
            return None;
        }
        if self.windows.len() >= DENIAL_KINDS_MAX {
            let others = self.others.get_or_insert_with(|| {
                let act = Act {
                    from: "several".to_owned(),
                    verb: "several".to_owned(),
                    code: "DENIED".to_owned(),
                    ..Act::default()
                };
                Window { since: now, since_ms: at_ms, act, count: 0 }
            });
            others.count += 1;
            return None;
        }
        let counted = Act { request: None, ..act.clone() };
        self.windows.insert(kind, Window { since: now, since_ms: at_ms, act: counted, count: 0 });
        Some(act)
    }

    /// The lines of windows that are over.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Act> {
        let is_over = |window: &Window| now.since(window.since) >= DENIALS_PER;
        let mut lines: Vec<Act> = self
            .windows
            .extract_if(.., |_, window| is_over(window))
            .filter_map(|(_, window)| window.line())
            .collect();
        lines.extend(self.others.take_if(|window| is_over(window)).and_then(Window::line));
        lines
    }

    /// The lines of all windows.
    pub(crate) fn all(&mut self) -> Vec<Act> {
        let windows = std::mem::take(&mut self.windows).into_values();
        windows.chain(self.others.take()).filter_map(Window::line).collect()
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
}
