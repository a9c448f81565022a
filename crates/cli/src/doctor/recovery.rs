//! `regent doctor split-brain --recover`: the words, the questions and the exit codes of a recovery.
//!
//! What it does is in `regent_operate::recovery`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use regent_election::Group;
use regent_operate::recovery::{
    Operator, Question, Reconciled, Recovery, RecoveryError, RecoveryProgress, RecoveryStep,
    SavedPolicyError, Unfinished, recover,
};
use regent_operate::split_brain::{CombinedView, Servers};
use serde::Serialize;

use super::split_brain::{SplitBrainArgs, believers, unasked};
use crate::confirm::confirm;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, json};
use crate::shell;

/// How long the command that reconciles may take.
const RECONCILE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// One step, as programs read it.
#[derive(Serialize)]
struct StepLine<'a> {
    step: &'static str,
    group: &'a str,
    told: &'a str,
}

/// A person at a terminal, or a script that has said yes to everything.
struct Person<'a> {
    args: &'a SplitBrainArgs,
    group: &'a Group,
    screen: Screen,
    number: u32,
}

/// Recovers one group.
pub(super) async fn run(args: &SplitBrainArgs, servers: &Servers) -> CommandResult {
    let Some(group) = &args.group else {
        return Err(Failure::usage("--recover needs --group: one group at a time"));
    };
    let saved_policy = args.save.clone().unwrap_or_else(|| {
        PathBuf::from(format!("regent-recovery-{}.json", group.as_str().replace('/', "_")))
    });
    let recovery = Recovery { group: group.clone(), wait: args.wait, saved_policy };
    let mut person = Person { args, group, screen: Screen::chosen(), number: 0 };
    match recover(&recovery, servers, &mut person).await {
        Ok(()) => Ok(Exit::Done),
        Err(Unfinished { error, is_stopped: false }) => Err(error),
        // An operator who stops halfway must know what that means.
        Err(Unfinished { error, is_stopped: true }) => {
            let why = error.message.as_deref().unwrap_or("it was not finished");
            let why = format!(
                "{why}. {group} has no leader until the recovery is finished: run it again"
            );
            Err(Failure { message: Some(why), ..error })
        }
    }
}

impl Person<'_> {
    fn tell(&self, step: RecoveryStep, told: &str) -> Result<(), Failure> {
        match self.screen.output {
            Output::Json => {
                let told = StepLine { step: step.word(), group: self.group.as_str(), told };
                self.screen.line(&json(&told))
            }
            Output::Text => self.screen.line(told),
        }
    }
}

impl Operator for Person<'_> {
    type Error = Failure;

    fn report(&mut self, progress: RecoveryProgress<'_>) -> Result<(), Failure> {
        let (step, mut told) = (progress.step(), progress.told());
        if matches!(progress, RecoveryProgress::Began { .. }) {
            self.number += 1;
            return match self.screen.output {
                Output::Json => Ok(()),
                Output::Text => {
                    self.screen.line(&format!("\n{}. {}: {told}", self.number, step.word()))
                }
            };
        }
        if let RecoveryProgress::Compared(sight) = progress
            && !sight.believers.is_empty()
        {
            told = format!("{}\n{told}", believers(&[sight]));
        }
        self.tell(step, &told)
    }

    /// Asks back; a no stops here, whatever was done before.
    fn agree(&mut self, question: Question) -> Result<(), Failure> {
        let group = self.group;
        let warning = match question {
            Question::StopGroup => format!("{group} will have no leader"),
            Question::IsReconciled => {
                format!("are all conflicting writes of the leaders of {group} merged or undone?")
            }
            Question::ElectAgain => format!("candidates of {group} will be elected again"),
        };
        confirm(self.args.yes, &warning).map_err(|failure| match failure.exit {
            Exit::No => Failure::new(Exit::No, "no further step was taken"),
            _ => failure,
        })
    }

    async fn reconcile(&mut self, sight: &CombinedView) -> Result<Reconciled, Failure> {
        let Some(line) = &self.args.reconcile else { return Ok(Reconciled::ByHand) };
        let findings: Vec<String> =
            sight.findings.iter().map(|(finding, reason)| format!("{finding}: {reason}")).collect();
        let told = vec![
            ("REGENT_GROUP", OsString::from(self.group.as_str())),
            ("REGENT_FINDINGS", OsString::from(findings.join("\n"))),
            ("REGENT_SIGHT", OsString::from(json(sight))),
        ];
        shell::run(line, &told, RECONCILE_LIMIT).await.map_err(|why| {
            let why = format!(
                "the command that reconciles failed: {why}; no leader is elected until it succeeds"
            );
            Failure::new(Exit::Refused, why)
        })?;
        Ok(Reconciled::ByCommand)
    }
}

impl From<RecoveryError> for Failure {
    fn from(error: RecoveryError) -> Self {
        let message = error.to_string();
        match error {
            RecoveryError::Remote(error) => error.into(),
            RecoveryError::NotAllAsked(servers) => {
                let told = servers.iter().map(|(server, why)| unasked(server, why));
                let told: Vec<String> = told.chain([message]).collect();
                Self::new(Exit::Unavailable, told.join("\n"))
            }
            RecoveryError::NotAskedAnyMore { .. } => Self::new(Exit::Unavailable, message),
            RecoveryError::StillActing { waited, acting, leader } => {
                let mut told: Vec<String> = acting
                    .into_iter()
                    .map(|(node, term)| format!("{node} under term {term}"))
                    .collect();
                if told.is_empty() {
                    told.extend(
                        leader
                            .map(|leader| format!("{leader}, which has not said that it stopped")),
                    );
                }
                let why = format!(
                    "after {}, these still act: {}. Kill their processes and run this again; no leader is elected meanwhile",
                    duration::show(waited),
                    told.join(", ")
                );
                Self::new(Exit::TryAgain, why)
            }
            RecoveryError::ResumedByOthers | RecoveryError::NotStopped(_) => {
                Self::new(Exit::Refused, message)
            }
            RecoveryError::SavedPolicy(SavedPolicyError::Io { path, error }) => {
                Self::file(&path, &error)
            }
            RecoveryError::SavedPolicy(_) => Self::new(Exit::Files, message),
        }
    }
}
