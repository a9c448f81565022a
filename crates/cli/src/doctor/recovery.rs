//! The way back to one leader: stop whoever leads, compare, reconcile, elect again, resume.
//!
//! Leaders are stopped by the means that every group has: a policy under which nobody may lead. The one who leads is
//! told, and has its ttl to stop; nobody else is elected; whoever acts on all the same is named, to be ended by hand.
//! The policy that held before is kept in a file first, so that an interrupted walk can go on: nothing else needs to
//! be remembered.
//!
//! The road not taken: a frozen state of groups. It would be one more thing that every store and every version must
//! understand, for something that a policy says already.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regent_api::{GroupResponse, PolicyBody, PutGroupRequest};
use regent_election::{Group, NodePattern};
use serde::{Deserialize, Serialize};

use super::split_brain::{Seen, Servers, Sight, SplitBrainArgs, believers};
use crate::client::once;
use crate::confirm::confirm;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen, json};
use crate::shell;

/// The only one that may lead a group that is being recovered: nobody has this name.
const NOBODY: &str = "nobody/until-the-split-brain-is-healed";
/// How often others are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the command that reconciles may take.
const RECONCILE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// What held before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    group: String,
    /// The group's own policy, or none if it had none.
    policy: Option<PolicyBody>,
}

/// One step, as it is told to programs.
#[derive(Serialize)]
struct Step<'a> {
    step: &'static str,
    group: &'a str,
    told: &'a str,
}

struct Walk<'a> {
    args: &'a SplitBrainArgs,
    servers: &'a Servers,
    group: &'a Group,
    screen: Screen,
    number: u32,
    /// Whether nobody may lead, as far as this walk knows.
    is_stopped: bool,
}

/// Walks all five steps; `before` is who acted when it began.
pub(crate) async fn walk(args: &SplitBrainArgs, servers: &Servers, before: Vec<Seen>) -> Outcome {
    let Some(group) = &args.group else {
        return Err(Failure::usage("--recover needs --group: one group at a time"));
    };
    let path = args.save.clone().unwrap_or_else(|| {
        PathBuf::from(format!("regent-recovery-{}.json", group.as_str().replace('/', "_")))
    });
    let screen = args.client.screen();
    let mut walk = Walk { args, servers, group, screen, number: 0, is_stopped: false };
    let walked = walk.steps(&path, before).await;
    walked.map_err(|failure| walk.unfinished(failure))
}

impl Walk<'_> {
    async fn steps(&mut self, path: &Path, before: Vec<Seen>) -> Outcome {
        let saved = self.stop(path).await?;
        let sight = self.compare(before).await?;
        self.reconcile(&sight).await?;
        self.elect(&saved).await?;
        // From here on the file would bring an old policy back.
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::file(path, &error)),
        }
        self.resume().await
    }

    /// Whoever stops halfway must know what that means.
    fn unfinished(&self, failure: Failure) -> Failure {
        if !self.is_stopped {
            return failure;
        }
        let group = self.group;
        let why = failure.message.as_deref().unwrap_or("it was not finished");
        let why = format!(
            "{why}. Nobody may lead {group} until this is finished: run it again, or set the group's policy by hand"
        );
        Failure { message: Some(why), ..failure }
    }

    /// Asks back; whoever says no stops here, whatever was done before.
    fn agree(&self, warning: &str) -> Result<(), Failure> {
        confirm(self.args.yes, warning).map_err(|failure| match failure.exit {
            Exit::No => Failure::new(Exit::No, "no further step was taken"),
            _ => failure,
        })
    }

    /// Whether nobody may lead the group still: another operator may have finished, or changed the policy.
    async fn must_be_stopped(&mut self) -> Result<(), Failure> {
        if is_frozen(&self.servers.any.show_group(self.group).await?.policy) {
            return Ok(());
        }
        self.is_stopped = false;
        let why = "somebody else has changed the group's policy meanwhile; nothing more was done";
        Err(Failure::new(Exit::Refused, why))
    }

    fn tell(&mut self, step: &'static str, told: &str) -> Result<(), Failure> {
        match self.screen.output {
            Output::Json => {
                self.screen.line(&json(&Step { step, group: self.group.as_str(), told }))
            }
            Output::Text => self.screen.line(told),
        }
    }

    fn begin(&mut self, step: &'static str, told: &str) -> Result<(), Failure> {
        self.number += 1;
        match self.screen.output {
            Output::Json => Ok(()),
            Output::Text => self.screen.line(&format!("\n{}. {step}: {told}", self.number)),
        }
    }

    async fn look(&self) -> Result<Vec<Seen>, Failure> {
        let (mut found, unasked) = self.servers.believers(Some(self.group)).await;
        if let Some((server, why)) = unasked.first() {
            let why = format!("{server} cannot be asked any more: {why}; run this again later");
            return Err(Failure::new(Exit::Unavailable, why));
        }
        Ok(found.remove(self.group).unwrap_or_default())
    }

    async fn put(&self, policy: Option<PolicyBody>) -> Result<GroupResponse, Failure> {
        once(&self.servers.any, self.group, async |request| {
            let request = PutGroupRequest { policy: policy.clone(), request_id: Some(request) };
            self.servers.any.put_group(self.group, &request).await
        })
        .await
    }

    /// Nobody may lead any more, and nobody acts.
    async fn stop(&mut self, path: &Path) -> Result<Saved, Failure> {
        let group = self.servers.any.show_group(self.group).await?;
        let saved = match read(path, self.group)? {
            Some(saved) if is_frozen(&group.policy) => {
                let told = format!("it goes on; what held before is in {}", path.display());
                self.begin("stop", &told)?;
                saved
            }
            None if is_frozen(&group.policy) => {
                let why = format!(
                    "nobody may lead {} already, but {} is not here; give it with --save, or set the policy by hand (regent group set)",
                    self.group,
                    path.display()
                );
                return Err(Failure::new(Exit::Files, why));
            }
            // What an earlier walk has left behind is not what holds now.
            Some(_) | None => {
                let told = "nobody may lead until this is healed; whoever leads is told to stop";
                self.begin("stop", told)?;
                self.agree(&format!("{} will have no leader", self.group))?;
                let policy = group.own_policy.then(|| group.policy.clone());
                let saved = Saved { group: self.group.to_string(), policy };
                write(path, &saved)?;
                saved
            }
        };
        if !is_frozen(&group.policy) {
            let nobody = NodePattern::new(NOBODY)
                .map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
            self.is_stopped = true;
            self.put(Some(PolicyBody { allow: vec![nobody], ..group.policy })).await?;
        }
        self.is_stopped = true;
        let until = regent_clock::now() + self.args.wait;
        loop {
            let office = self.servers.any.show_group(self.group).await?.office;
            let acting = self.look().await?;
            if office.leader.is_none() && !acting.iter().any(Seen::is_fresh) {
                break;
            }
            if regent_clock::now() >= until {
                return Err(self.still_acting(office.leader.map(|it| it.to_string()), &acting));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.tell("stop", "nobody leads, and nobody acts as far as any server has heard")?;
        Ok(saved)
    }

    fn still_acting(&self, leader: Option<String>, acting: &[Seen]) -> Failure {
        let mut told: Vec<String> = acting
            .iter()
            .filter(|seen| seen.is_fresh())
            .map(|seen| format!("{} under term {}", seen.believer.node_id, seen.believer.term))
            .collect();
        told.sort();
        told.dedup();
        if told.is_empty() {
            told.extend(
                leader.map(|leader| format!("{leader}, which has not said that it stopped")),
            );
        }
        let wait = duration::show(self.args.wait);
        let why = format!(
            "after {wait} there still acts: {}. End it where it runs (kill its process), and run this again; nobody is elected meanwhile",
            told.join(", ")
        );
        Failure::new(Exit::TryAgain, why)
    }

    /// What was done, as far as anybody told.
    async fn compare(&mut self, before: Vec<Seen>) -> Result<Sight, Failure> {
        self.begin("compare", "what the terms did, as far as is known")?;
        // Who stopped is not heard any more; what it told about its state is what counts here.
        let sight = self.servers.sight(self.group.clone(), before).await;
        let mut told = sight.told();
        if !sight.believers.is_empty() {
            told = format!("{}\n{told}", believers(&[&sight]));
        }
        for (resource, term) in &sight.fences {
            told.push_str(&format!(
                "\n  resource {resource} has admitted term {term}, and no lower one since"
            ));
        }
        for (finding, reason) in &sight.findings {
            told.push_str(&format!("\n  history: {finding}: {reason}"));
        }
        if sight.fences.is_empty() {
            told.push_str(
                "\n  no resource is fenced by this service: look at what was written where",
            );
        }
        self.tell("compare", &told)?;
        Ok(sight)
    }

    /// What was done twice or differently is put in order: by a command, or by people.
    async fn reconcile(&mut self, sight: &Sight) -> Result<(), Failure> {
        self.begin("reconcile", "what was done twice, or differently, is put in order")?;
        self.must_be_stopped().await?;
        let Some(line) = &self.args.reconcile else {
            self.agree(&format!(
                "has everything that the leaders of {} wrote been put in order?",
                self.group
            ))?;
            return self.tell("reconcile", "taken as done");
        };
        let findings: Vec<String> =
            sight.findings.iter().map(|(finding, reason)| format!("{finding}: {reason}")).collect();
        let told = vec![
            ("REGENT_GROUP", OsString::from(self.group.as_str())),
            ("REGENT_FINDINGS", OsString::from(findings.join("\n"))),
            ("REGENT_SIGHT", OsString::from(json(sight))),
        ];
        shell::run(line, &told, RECONCILE_LIMIT).await.map_err(|why| {
            let why = format!(
                "the command that reconciles failed: {why}; nobody is elected until it succeeds"
            );
            Failure::new(Exit::Refused, why)
        })?;
        self.tell("reconcile", "the command succeeded")
    }

    /// The policy that held before holds again.
    async fn elect(&mut self, saved: &Saved) -> Result<(), Failure> {
        self.begin("elect", "the policy that held before holds again")?;
        self.must_be_stopped().await?;
        self.agree(&format!("candidates of {} will be elected again", self.group))?;
        self.put(saved.policy.clone()).await?;
        self.is_stopped = false;
        self.tell("elect", "candidates may lead again")
    }

    /// One leads, and nobody else acts.
    async fn resume(&mut self) -> Outcome {
        self.begin("resume", "one leads, and nobody else acts")?;
        let until = regent_clock::now() + self.args.wait;
        loop {
            let office = self.servers.any.show_group(self.group).await?.office;
            let acting = self.look().await?;
            let is_wrong = |seen: &&Seen| seen.is_fresh() && seen.believer.fault.is_some();
            let wrong = acting.iter().find(is_wrong);
            if let (Some(leader), None) = (&office.leader, wrong) {
                let told =
                    format!("{leader} leads under term {}, and nobody else acts", office.term);
                self.tell("resume", &told)?;
                return Ok(Exit::Done);
            }
            if regent_clock::now() >= until {
                return match wrong {
                    Some(_) => Err(self.still_acting(None, &acting)),
                    None => {
                        let told =
                            "nobody has been elected yet: no candidate came; they may come later";
                        self.tell("resume", told)?;
                        Ok(Exit::Done)
                    }
                };
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn is_frozen(policy: &PolicyBody) -> bool {
    policy.allow.iter().any(|pattern| pattern.as_str() == NOBODY)
}

/// What an interrupted walk has kept.
fn read(path: &Path, group: &Group) -> Result<Option<Saved>, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(path, &error)),
    };
    let wrong = |why: String| Failure::new(Exit::Files, format!("{}: {why}", path.display()));
    let saved: Saved = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if saved.group != group.as_str() {
        return Err(wrong(format!("it is about {}, not {group}", saved.group)));
    }
    Ok(Some(saved))
}

/// Keeps what held before, on the disk, before anything is changed.
fn write(path: &Path, saved: &Saved) -> Result<(), Failure> {
    let failed = |error| Failure::file(path, &error);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(failed)?;
    file.write_all(json(saved).as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)
}
