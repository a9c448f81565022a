//! What was found, for people and for programs.

use std::time::Duration;

use regent_election::tuning::{Choice, Estimate, LogTimers, Target, explain_lease, explain_log};
use serde_json::{Value, json};

use super::{NetworkConditions, RateVerdict, Rung, Setting, bars, svg};
use crate::blocks::{Block, Side, show_ms};

/// One thing that was tuned, with what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Every setting that was played, from quick to patient.
    pub rungs: Vec<Rung>,
    /// Which of them is recommended, or what is in the way.
    pub choice: Choice,
}

impl Found {
    /// Chooses among settings that were played.
    #[must_use]
    pub fn among(rungs: Vec<Rung>, target: &Target) -> Self {
        let choice = Rung::choose(&rungs, target);
        Self { rungs, choice }
    }

    fn chosen(&self) -> Option<usize> {
        match self.choice {
            Choice::Found(at) => Some(at),
            Choice::TargetsConflict { .. } => None,
        }
    }
}

/// Both things that are tuned, on one network.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Where they were played.
    pub place: NetworkConditions,
    /// What is wanted.
    pub target: Target,
    /// How many runs of every setting.
    pub seeds: u64,
    /// The ttl of sessions.
    pub lease: Found,
    /// The time-outs of the replicated log.
    pub log: Found,
}

impl Tuned {
    /// Whether both have a setting that meets both targets.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.lease.chosen().is_some() && self.log.chosen().is_some()
    }

    /// For programs.
    #[must_use]
    pub fn object(&self) -> Value {
        json!({
            "surroundings": place_json(&self.place),
            "target": target_json(&self.target),
            "seeds": self.seeds,
            "lease": found_json(&self.lease, &self.place, &self.target),
            "log": found_json(&self.log, &self.place, &self.target),
        })
    }

    /// Both curves, one below the other.
    #[must_use]
    pub fn drawing(&self) -> String {
        let pictures =
            [(&self.lease, "ttl of sessions"), (&self.log, "election time-out of the log")]
                .map(|(found, title)| svg(title, &found.rungs, &self.target, found.chosen(), name));
        let mut text = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"640\">\n",
        );
        for (number, picture) in pictures.iter().enumerate() {
            let down = 320 * number;
            text.push_str(&format!("<g transform=\"translate(0 {down})\">\n{picture}</g>\n"));
        }
        text.push_str("</svg>\n");
        text
    }

    /// For people.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let Self { place, target, seeds, lease, log } = self;
        let mut blocks = vec![Block::Text(format!(
            "surroundings  {}\ntargets       failover within {}, false failovers at most {} ({})\n",
            place_words(place),
            show_ms(target.failover_ms),
            target.false_failovers,
            per_day(target.false_failovers.per_day()),
        ))];
        let all = [
            (lease, "The ttl of sessions, played by the real participants and rules"),
            (log, "The time-outs of the replicated log, played by the real replica"),
        ];
        for (found, title) in all {
            let deaths = found.rungs.iter().map(|rung| rung.measured.failovers_ns.len()).max();
            let deaths = deaths.unwrap_or_default();
            let head = format!("\n{title}, {seeds} runs and {deaths} deaths each:\n\n");
            blocks.push(Block::Text(head));
            blocks.push(rows(found, target));
            blocks.push(Block::Text(format!(
                "\n\n{}\n{}\n",
                bars(&found.rungs, target, name),
                conclusion(found, place, target)
            )));
        }
        blocks
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A setting in a word.
fn name(setting: &Setting) -> String {
    show_ms(setting.size_ms()).replace(' ', "")
}

fn place_words(place: &NetworkConditions) -> String {
    let ms = |us: u64| {
        let part = format!("{:03}", us % 1000);
        let part = part.trim_end_matches('0');
        if part.is_empty() { format!("{}ms", us / 1000) } else { format!("{}.{part}ms", us / 1000) }
    };
    let trips =
        format!("round trips {} to {}", ms(*place.trip_us.start()), ms(*place.trip_us.end()));
    let loss = format!("{} % of messages lost", f64::from(place.loss_ppm) / 10_000.0);
    let pauses = place.pause.map_or_else(
        || "nobody stands still".to_owned(),
        |pause| {
            let (length, every) = (show_ms(pause.length_ms), show_ms(pause.every_ms));
            format!("every process stands still for {length} every {every}")
        },
    );
    format!("{trips}, {loss}, {pauses}, {} voters", place.voters)
}

/// A rate with two digits that count.
fn per_day(rate: f64) -> String {
    if rate == 0.0 {
        "0 a day".to_owned()
    } else if rate >= 0.01 {
        format!("{rate:.2} a day")
    } else {
        format!("{rate:.1e} a day")
    }
}

fn rows(found: &Found, target: &Target) -> Block {
    let head = [
        ("", Side::Left),
        ("setting", Side::Right),
        ("renewed", Side::Right),
        ("p50", Side::Right),
        ("p99", Side::Right),
        ("estimated p99", Side::Right),
        ("false, estimated", Side::Right),
        ("false, seen", Side::Right),
        ("95 % sure", Side::Right),
        ("calm", Side::Left),
        ("quick", Side::Left),
    ];
    let chosen = found.chosen();
    let row = |(at, rung): (usize, &Rung)| {
        let seen = &rung.measured.false_failovers;
        let ms =
            |permille| rung.measured.failover_ms(permille).map_or_else(|| "-".to_owned(), show_ms);
        let calm = match (rung.verdict(target), rung.is_calm(target)) {
            (RateVerdict::Rarer, _) => "yes, seen",
            (RateVerdict::MoreFrequent, _) => "no, seen",
            (RateVerdict::Open, true) => "yes, estimated",
            (RateVerdict::Open, false) => "no, estimated",
        };
        vec![
            if chosen == Some(at) { "=>" } else { "" }.to_owned(),
            name(&rung.setting),
            show_ms(shown_every_ms(&rung.setting)),
            ms(500),
            ms(990),
            show_ms(rung.estimate.failover_ms_p99),
            per_day(rung.estimate.false_per_day()),
            format!("{} in {:.1} days", seen.events, seen.days()),
            format!("< {}", per_day(seen.at_most_per_day())),
            calm.to_owned(),
            if rung.is_quick(target) { "yes" } else { "no" }.to_owned(),
        ]
    };
    Block::table(&head, found.rungs.iter().enumerate().map(row).collect())
}

fn shown_every_ms(setting: &Setting) -> u64 {
    match setting {
        Setting::Lease(budget) => millis(budget.renew_every()),
        Setting::Log(timers) => timers.heartbeat_ms,
    }
}

/// What is recommended and why, or which target must give.
fn conclusion(found: &Found, place: &NetworkConditions, target: &Target) -> String {
    match found.choice {
        Choice::Found(at) => {
            let rung = &found.rungs[at];
            format!("Recommended: {}.\n{}.\n", setting_words(&rung.setting), why(rung, place))
        }
        Choice::TargetsConflict { calm, quick } => conflict(found, calm, quick, target),
    }
}

fn setting_words(setting: &Setting) -> String {
    match setting {
        Setting::Lease(budget) => format!(
            "--ttl {} (renewed every {}, answers awaited for {})",
            show_ms(budget.ttl_ms()),
            show_ms(millis(budget.renew_every())),
            show_ms(millis(budget.request_timeout())),
        ),
        Setting::Log(LogTimers { heartbeat_ms, election_ms_min, election_ms_max }) => format!(
            "election_min = \"{}\", election_max = \"{}\", heartbeat = \"{}\", peer_request = \"{}\"",
            show_ms(*election_ms_min),
            show_ms(*election_ms_max),
            show_ms(*heartbeat_ms),
            show_ms(heartbeat_ms * 4 / 5),
        ),
    }
}

fn why(rung: &Rung, place: &NetworkConditions) -> String {
    match &rung.setting {
        Setting::Lease(budget) => explain_lease(budget, &place.of_lease(), &rung.estimate),
        Setting::Log(timers) => explain_log(timers, &place.of_log(), &rung.estimate),
    }
}

fn conflict(found: &Found, calm: Option<usize>, quick: Option<usize>, target: &Target) -> String {
    let wanted = (show_ms(target.failover_ms), target.false_failovers);
    let mut text = format!(
        "No setting meets both targets: a failover within {}, and false ones at most {}.\n",
        wanted.0, wanted.1
    );
    match calm.map(|at| &found.rungs[at]) {
        Some(rung) => {
            let takes = rung.measured.failover_ms(990).map_or_else(
                || "longer than was watched".to_owned(),
                show_ms,
            );
            text.push_str(&format!(
                "Living leaders are left alone from {} on, whose failovers take {takes}: raise --failover to that.\n",
                name(&rung.setting)
            ));
        }
        None => text.push_str(
            "No setting that was played leaves living leaders alone as much: allow more --false-failovers, or mend what loses messages and stops processes.\n",
        ),
    }
    match quick.map(|at| &found.rungs[at]) {
        Some(rung) => text.push_str(&format!(
            "Dead leaders are succeeded in time up to {}, where living ones lose their office {}: allow that many --false-failovers.\n",
            name(&rung.setting),
            per_day(rung.estimate.false_per_day().max(rung.measured.false_failovers.at_least_per_day())),
        )),
        None => text.push_str(
            "No setting that was played succeeds dead leaders in time: raise --failover.\n",
        ),
    }
    text
}

/// The surroundings, for programs.
fn place_json(place: &NetworkConditions) -> Value {
    json!({
        "round_trip_us_min": place.trip_us.start(),
        "round_trip_us_max": place.trip_us.end(),
        "loss_ppm": place.loss_ppm,
        "pause_ms": place.pause.map(|pause| pause.length_ms),
        "pause_every_ms": place.pause.map(|pause| pause.every_ms),
        "voters": place.voters,
    })
}

/// The targets, for programs.
fn target_json(target: &Target) -> Value {
    json!({
        "failover_ms": target.failover_ms,
        "false_failovers_per_day": target.false_failovers.per_day(),
    })
}

/// One thing that was tuned, for programs.
fn found_json(found: &Found, place: &NetworkConditions, target: &Target) -> Value {
    let rungs: Vec<Value> = found.rungs.iter().map(|rung| rung_json(rung, target)).collect();
    let (chosen, words) = match found.choice {
        Choice::Found(at) => (Some(at), why(&found.rungs[at], place)),
        Choice::TargetsConflict { calm, quick } => (None, conflict(found, calm, quick, target)),
    };
    json!({
        "rungs": rungs,
        "chosen": chosen.map(|at| setting_json(&found.rungs[at].setting)),
        "why": words,
    })
}

fn rung_json(rung: &Rung, target: &Target) -> Value {
    let Estimate { false_by_network, false_by_pauses, failover_ms_p50, failover_ms_p99 } =
        rung.estimate;
    let seen = &rung.measured.false_failovers;
    json!({
        "setting": setting_json(&rung.setting),
        "estimated": {
            "false_per_day_by_network": false_by_network,
            "false_per_day_by_pauses": false_by_pauses,
            "failover_ms_p50": failover_ms_p50,
            "failover_ms_p99": failover_ms_p99,
        },
        "measured": {
            "false_failovers": seen.events,
            "simulated_ms": seen.watched_ms,
            "false_per_day_at_most": seen.at_most_per_day(),
            "failovers": rung.measured.failovers_ns.len(),
            "orphaned": rung.measured.orphaned,
            "failover_ms_p50": rung.measured.failover_ms(500),
            "failover_ms_p99": rung.measured.failover_ms(990),
        },
        "calm": rung.is_calm(target),
        "calm_by": match rung.verdict(target) {
            RateVerdict::Rarer | RateVerdict::MoreFrequent => "measured",
            RateVerdict::Open => "estimated",
        },
        "quick": rung.is_quick(target),
    })
}

fn setting_json(setting: &Setting) -> Value {
    match setting {
        Setting::Lease(budget) => json!({
            "ttl_ms": budget.ttl_ms(),
            "renew_every_ms": millis(budget.renew_every()),
            "request_timeout_ms": millis(budget.request_timeout()),
        }),
        Setting::Log(LogTimers { heartbeat_ms, election_ms_min, election_ms_max }) => json!({
            "heartbeat_ms": heartbeat_ms,
            "election_ms_min": election_ms_min,
            "election_ms_max": election_ms_max,
        }),
    }
}
