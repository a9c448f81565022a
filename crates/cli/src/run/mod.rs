//! `regent run`: a program that runs while this process leads, and not a moment longer.
//!
//! The supervisor is `regent-supervise`. This is its command line: arguments, signals, lines on standard
//! error and the exit code.

mod args;
mod place;
mod signals;

use std::io::Write;
use std::pin::pin;
use std::sync::Arc;

use regent_election::Group;
use regent_supervise::{Ended, Observer, SuperviseError, Supervisor};

pub(crate) use args::RunArgs;
use signals::Signals;

use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, remark};
use regent_operate::escape::json_shown;

/// Runs the program whenever it may.
pub(crate) async fn run(args: RunArgs) -> CommandResult {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let plan = args.plan()?;
    let mut at = place::find(&args).await?.follow(!args.no_follow);
    at = args.follow_to.iter().fold(at, |at, place| at.follow_to(place));
    if let Some(node) = &args.node {
        at = at.node(node.as_str());
    }
    let supervisor = Supervisor::new(plan).observer(Arc::new(Lines(Output::chosen())));
    let handle = supervisor.handle();
    let group = args.group.clone();
    let mut running = pin!(supervisor.run(at, args.program));
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => signal.pass(&handle),
            ended = &mut running => return outcome(&group, ended),
        }
    }
}

fn outcome(group: &Group, ended: Result<Ended, SuperviseError>) -> CommandResult {
    match ended {
        Ok(Ended::Program(code)) => Ok(Exit::Program(code)),
        Ok(Ended::Asked) => Ok(Exit::Done),
        Ok(Ended::NotElected(why)) => Err(Failure::not_elected(group, &why)),
        Ok(Ended::Lost) => Ok(Exit::Lost),
        Err(SuperviseError::Budget(error)) => {
            Err(Failure::usage(format!("--ttl, --grace: {error}")))
        }
        Err(SuperviseError::Contain(why)) => {
            Err(Failure::new(Exit::Unavailable, format!("--contain: {why}")))
        }
        Err(SuperviseError::File { path, error }) => Err(Failure::file(&path, &error)),
        Err(error @ SuperviseError::Listen { .. }) => {
            Err(Failure::new(Exit::Unavailable, format!("--status-listen {error}")))
        }
        Err(error @ SuperviseError::StatusExposed { .. }) => Err(Failure::usage(error.to_string())),
        Err(SuperviseError::Randomness(error)) => Err(error.into()),
        Err(SuperviseError::Connect(error)) => Err(error.into()),
        Err(SuperviseError::Refused(error)) => Err(error.into()),
    }
}

/// What happens, on standard error: for people as lines, for programs as objects.
struct Lines(Output);

impl Observer for Lines {
    fn changed(&self, line: &str, object: &str) {
        match self.0 {
            Output::Text => remark(line),
            Output::Json => {
                let _ = writeln!(std::io::stderr().lock(), "{}", json_shown(object));
            }
        }
    }

    fn remark(&self, text: &str) {
        remark(text);
    }
}
