//! `regent login`, `logout` and `context`: servers and credentials under a name.

use std::io::{self, BufRead, IsTerminal, Read};

use clap::{Args, Subcommand};
use regent::remote::{
    Chosen, Context, ContextError, ContextName, Contexts, Credential, CredentialError, Remote,
    TlsFiles,
};
use regent_operate::escape::on_one_line;
use regent_operate::login::{LoginError, login};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use crate::client::chosen;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, Side, facts, or_dash, remark, table, yes};

/// Most bytes of a token that is typed or piped in.
const TOKEN_BYTES_MAX: u64 = 16 << 10;

/// Flags of `regent login`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The server is asked as whom it knows you before anything is kept. Files stay where they are: only
their paths are kept. A token that is typed or piped in is kept in a file of its own (mode 0600).

Examples:
  regent login https://a:7400,https://b:7400 --ca ca.crt --cert alice.crt --cert-key alice.key
  regent login http://127.0.0.1:7400 --name test --token-file test.token
  regent login unix:///var/lib/regent/run/regent.sock --name local
  regent auth token create user:alice | regent login https://a:7400 --token-stdin")]
pub(crate) struct LoginArgs {
    /// Address of the server, or of several with commas between
    #[arg(value_name = "URL")]
    url: String,
    /// The name to keep it under [default: host and port]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<ContextName>,
    /// Read the token from standard input; on a terminal it is asked for without this
    #[arg(long)]
    token_stdin: bool,
}

/// Flags of verbs about one context.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent context show
  regent context show prod
  regent logout prod")]
pub(crate) struct OneArgs {
    /// Which context [default: the one in use]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Flags of verbs about a context that must be named.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent context use prod
  regent context remove prod")]
pub(crate) struct NamedArgs {
    /// Which context
    #[arg(value_name = "NAME", value_parser = name)]
    name: ContextName,
}

/// Flags of `regent context list`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  regent context list")]
pub(crate) struct ListArgs {}

/// Verbs of `regent context`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Which servers are asked, the first that is said: --server or --context, REGENT_SERVER or
REGENT_CONTEXT, the current context, http://127.0.0.1:7400.

Examples:
  regent context list
  regent context use prod
  regent leader billing --context prod")]
pub(crate) enum ContextVerb {
    /// List the contexts of this user
    List(ListArgs),
    /// Make a context the current one
    Use(NamedArgs),
    /// Show a context, or which servers are asked and why
    Show(OneArgs),
    /// Forget a context and the token that was kept for it
    Remove(NamedArgs),
}

fn name(text: &str) -> Result<ContextName, String> {
    ContextName::new(text).map_err(|error| error.to_string())
}

fn contexts() -> Result<Contexts, Failure> {
    Ok(Contexts::open(&|name| std::env::var_os(name))?)
}

/// Tries a credential and keeps it.
pub(crate) async fn log_in(args: LoginArgs) -> CommandResult {
    let contexts = contexts()?;
    let named = Credential::of_process()?;
    let has_certificate = TlsFiles::of_process().certificate.is_some();
    match (args.token_stdin, named) {
        (true, Some(_)) => {
            let why = "--token-stdin: a token is named already, by --token-file or the environment";
            return Err(Failure::usage(why));
        }
        (false, Some(_)) => {}
        (true, None) => Credential::token(&typed()?, "standard input")?.set_default(),
        (false, None) if !has_certificate && io::stdin().is_terminal() => {
            let token = typed()?;
            if !token.trim().is_empty() {
                Credential::token(&token, "the token")?.set_default();
            }
        }
        (false, None) => {}
    }
    let remote = Remote::new(&args.url)?;
    let done = login(contexts, args.name, &remote).await?;
    for note in &done.identity.notes {
        remark(&on_one_line(note));
    }
    Screen::chosen().answer(&done, || facts(done.facts()))?;
    Ok(Exit::Done)
}

/// A token from standard input; on a terminal it is not shown.
fn typed() -> Result<String, Failure> {
    let stdin = io::stdin();
    let unread = |error: io::Error| Failure::new(Exit::Files, format!("standard input: {error}"));
    let mut before = None;
    if stdin.is_terminal() {
        remark("token (it is not shown; empty for none):");
        let shown = tcgetattr(&stdin).map_err(|error| unread(error.into()))?;
        let mut hidden = shown.clone();
        // Ctrl-C is a letter meanwhile, which no token has: the terminal is never left without echo.
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(|error| unread(error.into()))?;
        before = Some(shown);
    }
    let mut text = String::new();
    let read = stdin.lock().take(TOKEN_BYTES_MAX).read_line(&mut text);
    if let Some(shown) = before {
        tcsetattr(&stdin, OptionalActions::Flush, &shown).map_err(|error| unread(error.into()))?;
    }
    read.map_err(unread)?;
    Ok(text)
}

/// Forgets a context: the named one, or the current one.
pub(crate) fn log_out(args: OneArgs) -> CommandResult {
    let contexts = contexts()?;
    let current = contexts.current().map(ToString::to_string);
    let name = args.name.or(current);
    remove(contexts, &name.ok_or_else(|| Failure::usage("there is no current context"))?)
}

fn remove(mut contexts: Contexts, name: &str) -> CommandResult {
    let name = contexts.remove(name)?;
    Screen::chosen().answer(&json!({ "removed": name }), || {
        format!("forgot {name}; its token, if it had one, is good until it is revoked (`regent auth token revoke`)")
    })?;
    Ok(Exit::Done)
}

/// Runs one of the verbs.
pub(crate) fn run(verb: ContextVerb) -> CommandResult {
    let mut contexts = contexts()?;
    let screen = Screen::chosen();
    match verb {
        ContextVerb::List(ListArgs {}) => {
            let is_current = |name: &ContextName| contexts.current() == Some(name);
            let all: Vec<_> = contexts
                .iter()
                .map(|(name, it)| json!({ "name": name, "current": is_current(name), "context": it }))
                .collect();
            screen.answer(&all, || {
                let rows = contexts.iter().map(|(name, it)| {
                    vec![name.to_string(), yes(is_current(name)), it.server.clone()]
                });
                let head = [("name", Side::Left), ("current", Side::Left), ("server", Side::Left)];
                table(&head, rows.collect())
            })?;
        }
        ContextVerb::Use(NamedArgs { name }) => {
            let (name, it) = contexts.switch(name.as_str())?;
            let told = json!({ "name": name, "context": it });
            screen.answer(&told, || format!("commands ask {} from now on ({name})", it.server))?;
        }
        ContextVerb::Show(OneArgs { name: Some(name) }) => {
            let (name, it) = contexts.find(&name)?;
            show(&name, &it)?;
        }
        ContextVerb::Show(OneArgs { name: None }) => match chosen(None)? {
            Chosen::Context(name, it) => show(&name, &it)?,
            Chosen::Servers(url) => {
                let told = json!({ "server": url });
                screen
                    .answer(&told, || format!("$REGENT_SERVER names {url}; no context is used"))?;
            }
            Chosen::Nobody => {
                let server = crate::client::SERVER_DEFAULT;
                let told = json!({ "server": server });
                screen.answer(&told, || format!("no context is in use; commands ask {server}"))?;
            }
        },
        ContextVerb::Remove(NamedArgs { name }) => return remove(contexts, name.as_str()),
    }
    Ok(Exit::Done)
}

fn show(name: &ContextName, it: &Context) -> Result<(), Failure> {
    let path = |path: &Option<std::path::PathBuf>| or_dash(path.as_ref().map(|it| it.display()));
    Screen::chosen().answer(&json!({ "name": name, "context": it }), || {
        facts(vec![
            ("context", name.to_string()),
            ("server", it.server.clone()),
            ("ca", path(&it.ca)),
            ("certificate", path(&it.cert)),
            ("its key", path(&it.cert_key)),
            ("token file", path(&it.token_file)),
        ])
    })
}

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Self {
        let exit = match &error {
            ContextError::File(_) | ContextError::Io { .. } | ContextError::Malformed { .. } => {
                Exit::Files
            }
            ContextError::Unknown { .. } | ContextError::Name { .. } | ContextError::Both(..) => {
                Exit::Usage
            }
            ContextError::InUse(_)
            | ContextError::NoPlace
            | ContextError::Address(_)
            | ContextError::Credential { .. } => Exit::Config,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        Self::new(Exit::Config, error.to_string())
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Remote(error) => error.into(),
            LoginError::Context(error) => error.into(),
            LoginError::Credential(error) => error.into(),
        }
    }
}
