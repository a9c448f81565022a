//! The algorithms that need nothing but peers, and what each cannot promise.

/// One of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The highest name that is alive leads, and takes the office back when it returns.
    #[default]
    Bully,
    /// A token collects names, and the highest wins.
    Ring,
    /// A token of one name, replaced by higher ones.
    ChangRoberts,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bully, Self::Ring, Self::ChangRoberts];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::ChangRoberts => "chang-roberts",
        }
    }

    /// Its number in a datagram.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Bully => 1,
            Self::Ring => 2,
            Self::ChangRoberts => 3,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.code() == code)
    }

    /// What it cannot promise, one clause a line, for whoever starts a member.
    #[must_use]
    pub fn weaknesses(self) -> [String; 3] {
        let own = match self {
            Self::Bully => {
                "the highest name takes the office back whenever it returns, so a node that comes and goes \
                 takes the office along"
            }
            Self::Ring | Self::ChangRoberts => {
                "a node that dies while a token is on its way costs the election, which is held again"
            }
        };
        [
            format!(
                "{} elects without a store: whoever is cut off, paused or slow may lead beside another \
                 leader, and neither knows",
                self.name()
            ),
            own.to_owned(),
            "there is no term and nothing to fence by: use it only where a wrong leader is harmless, and \
             `regent run` or `regent campaign` everywhere else"
                .to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_says_that_two_may_lead_and_where_to_go_instead() {
        for algorithm in Algorithm::ALL {
            let text = algorithm.weaknesses().join("\n");
            for part in ["lead beside another", "no term", "harmless", "regent run"] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
