//! Lists of entries, page by page: one loop for the engines that give a bounded page of names in their order.

use super::limits::LISTED_AT_ONCE_MAX;
use crate::register::{Found, Key};

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageStart {
    pub(crate) name: String,
    /// Whether an entry of this very name belongs to the page.
    pub(crate) is_included: bool,
}

/// An answer of [`crate::register::Register::list`] that is made of pages. Each is asked for so many names that open
/// with the prefix, from a start on; a shorter one is the last. A name without an entry is counted and left out.
#[derive(Debug)]
pub(crate) struct Pages {
    entries: Vec<(Key, Found)>,
    start: PageStart,
    count: usize,
    is_over: bool,
}

impl Pages {
    /// Nothing listed yet.
    pub(crate) fn new(prefix: &str, after: Option<&str>, count: usize) -> Self {
        let start = match after {
            Some(after) if after >= prefix => PageStart { name: after.into(), is_included: false },
            Some(_) | None => PageStart { name: prefix.into(), is_included: true },
        };
        Self { entries: Vec::new(), start, count, is_over: false }
    }

    /// Where the next page begins and how many names it has at most; none if the list is complete.
    pub(crate) fn next_page(&self) -> Option<(PageStart, usize)> {
        let at_once = self.count.saturating_sub(self.entries.len()).min(LISTED_AT_ONCE_MAX);
        (at_once > 0 && !self.is_over).then(|| (self.start.clone(), at_once))
    }

    /// Adds the page that was asked for.
    pub(crate) fn add(&mut self, page: Vec<(Key, Option<Found>)>) {
        let asked = self.next_page().map_or(0, |(_, at_once)| at_once);
        self.is_over = page.len() < asked;
        if let Some((last, _)) = page.last() {
            self.start = PageStart { name: last.name().into(), is_included: false };
        }
        self.entries.extend(page.into_iter().filter_map(|(key, found)| Some((key, found?))));
    }

    /// What was listed.
    pub(crate) fn into_entries(self) -> Vec<(Key, Found)> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::{KeyKind, Version};

    /// Lists these names, every second of which has no entry if `is_gappy`: what is listed, and the pages' sizes.
    fn listed(
        names: &[String],
        is_gappy: bool,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> (Vec<String>, Vec<usize>) {
        let (mut asked, mut pages) = (Vec::new(), Pages::new(prefix, after, count));
        while let Some((start, at_once)) = pages.next_page() {
            asked.push(at_once);
            let is_in = |name: &&String| {
                name.starts_with(prefix)
                    && (**name > start.name || start.is_included && **name == start.name)
            };
            let found = |(at, name): (usize, &String)| {
                let found = Found { value: Vec::new(), version: Version::from(1) };
                let is_there = !is_gappy || at.is_multiple_of(2);
                (Key::found(KeyKind::Group, name).unwrap(), is_there.then_some(found))
            };
            pages.add(names.iter().filter(is_in).take(at_once).enumerate().map(found).collect());
        }
        let listed = pages.into_entries().into_iter().map(|(key, _)| key.name().to_owned());
        (listed.collect(), asked)
    }

    #[test]
    fn pages_are_asked_for_until_one_is_short_or_there_are_enough() {
        let names: Vec<_> = (0..LISTED_AT_ONCE_MAX + 2).map(|at| format!("a/{at:08}")).collect();
        let (all, asked) = listed(&names, false, "a/", None, usize::MAX);
        assert!(all == names && asked == [LISTED_AT_ONCE_MAX; 2], "{asked:?}");
        let (some, asked) = listed(&names, false, "a/", Some("a/00000001"), 3);
        assert!(some == names[2..5] && asked == [3], "{some:?} {asked:?}");
        let (none, _) = listed(&names, false, "b", Some("a/00000001"), 3);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn a_name_without_an_entry_ends_no_list() {
        let names: Vec<_> = (0..9).map(|at| format!("a/{at}")).collect();
        let (some, asked) = listed(&names, true, "a/", None, 4);
        assert_eq!(some.len(), 4, "{some:?}");
        assert!(asked.len() > 1, "{asked:?}");
    }
}
