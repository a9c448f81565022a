//! Trials on whatever a program writes to: other people's own storage, in any language.
//!
//! Several copies of the program run beside each other. Each reads one question per line and answers with one
//! line, both JSON:
//!
//! | question | answer |
//! |---|---|
//! | `{"write":"resource","term":5,"value":"…"}` | `{"done":true}` |
//! | | `{"stale":{"given":5,"current":6}}`: refused, nothing written |
//! | | `{"uncertain":"why"}`: it may have been written |
//! | | `{"failed":"why"}`: nothing was written |
//! | `{"read":"resource"}` | `{"value":"…"}`, or `{"value":null}` if there is none |
//!
//! Without a fence (`--unfenced`) a question to write has no `term`. What the program says on its standard
//! error is for people. It is killed when the trials are over.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use regent::fencing::{Proof as _, WriteResult};
use regent_election::{FenceError, Term};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, MutexGuard};

use crate::{Target, Write, failed, refuse, uncertain};

/// How long a program may take for one answer.
const ANSWER_FOR: Duration = Duration::from_secs(30);

/// Copies of a program.
#[derive(Debug)]
pub struct ExecTarget {
    copies: Vec<Mutex<Copy>>,
}

#[derive(Debug)]
struct Copy {
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Killed when dropped.
    _child: Child,
    /// Whether an answer is owed that nobody waits for any more: what comes next would be taken for it.
    is_lost: bool,
}

impl ExecTarget {
    /// Starts so many copies of a program.
    pub fn start(program: &str, copies: usize) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let start = || -> Result<_, Box<dyn Error + Send + Sync>> {
            let mut child = Command::new(program)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let (questions, answers) = (child.stdin.take(), child.stdout.take());
            let questions = questions.ok_or("no standard input")?;
            let answers = BufReader::new(answers.ok_or("no standard output")?).lines();
            Ok(Mutex::new(Copy { questions, answers, _child: child, is_lost: false }))
        };
        Ok(Self { copies: (0..copies.max(1)).map(|_| start()).collect::<Result<_, _>>()? })
    }

    /// A copy that is free, or else the one that this falls on.
    async fn copy(&self, hint: &str) -> MutexGuard<'_, Copy> {
        for copy in &self.copies {
            if let Ok(copy) = copy.try_lock() {
                return copy;
            }
        }
        let place = hint.bytes().fold(0, |sum, byte| sum + usize::from(byte));
        self.copies[place % self.copies.len()].lock().await
    }
}

impl Copy {
    async fn ask(&mut self, question: &Value) -> Result<Value, String> {
        if self.is_lost {
            return Err("the program has not answered before".into());
        }
        self.is_lost = true;
        let asked = async {
            let line = format!("{question}\n");
            self.questions.write_all(line.as_bytes()).await.map_err(|error| error.to_string())?;
            let answer = self.answers.next_line().await.map_err(|error| error.to_string())?;
            let answer = answer.ok_or("the program has ended")?;
            serde_json::from_str(&answer)
                .map_err(|error| format!("{answer:?} is no answer: {error}"))
        };
        match tokio::time::timeout(ANSWER_FOR, asked).await {
            Ok(answer) => {
                self.is_lost = false;
                answer
            }
            Err(_) => Err(format!("no answer within {} s", ANSWER_FOR.as_secs())),
        }
    }
}

#[async_trait]
impl Target for ExecTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        write.pause.over().await;
        let mut question = json!({"write": write.resource, "value": write.value});
        if write.is_fenced {
            question["term"] = json!(write.leader.term().get());
        }
        let mut copy = self.copy(&write.value).await;
        let answer = copy.ask(&question).await.map_err(uncertain)?;
        if answer.get("done") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        let term = |name: &str| Term::new(answer.get("stale")?.get(name)?.as_u64()?);
        if let (Some(given), Some(current)) = (term("given"), term("current")) {
            return Err(refuse(&write.leader, FenceError::Stale { given, current }));
        }
        match answer.get("failed") {
            Some(why) => Err(failed(why.to_string())),
            None => Err(uncertain(answer.to_string())),
        }
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let answer = self.copy(resource).await.ask(&json!({"read": resource})).await?;
        match answer.get("value") {
            Some(Value::String(value)) => Ok(Some(value.clone())),
            Some(Value::Null) => Ok(None),
            _ => Err(format!("{answer} is no answer to a read").into()),
        }
    }
}
