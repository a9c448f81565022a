//! What the verifier found, in words for people.

use crate::chain::Report;

impl Report {
    /// The verdict and what it rests on, fact by fact.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
        let signed = match (self.has_keys, self.signed_to) {
            (false, _) => {
                "not checked: without --keys, whoever can write the files can make the chain anew"
                    .to_owned()
            }
            (true, Some(to)) => format!(
                "up to line {to} by key {} ({} checkpoints, {} by unknown keys)",
                self.signed_by.as_deref().unwrap_or("-"),
                self.checkpoints_good,
                self.checkpoints_unknown,
            ),
            (true, None) => "no: there is no checkpoint by these keys".to_owned(),
        };
        let first = match self.first {
            1 => "1, the beginning of the chain".to_owned(),
            first => format!("{first}; files before it were removed"),
        };
        vec![
            ("intact", yes(self.is_intact())),
            ("complete", yes(self.is_complete())),
            ("lines", self.lines.to_string()),
            ("first", first),
            ("head", self.head.to_string()),
            ("signed", signed),
        ]
    }

    /// What is missing and what is wrong, a line each.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        let missing = self.found.iter().map(|found| format!("missing  {found}"));
        let torn = (self.torn_bytes > 0).then(|| {
            format!("missing  half a line of {} bytes stands at the end", self.torn_bytes)
        });
        let defects = self.defects.iter().map(|defect| format!("DEFECT  {defect}"));
        let unlisted = self.defects_count - self.defects.len() as u64;
        let more = (unlisted > 0).then(|| format!("DEFECT  and {unlisted} more"));
        missing.chain(torn).chain(defects).chain(more).collect()
    }
}
