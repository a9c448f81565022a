//! What all verbs that ask a server share: where it is, how long to wait, for whom to write.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use regent::remote::{Chosen, Context, Remote, RemoteError, Wanted};
use regent_api::Code;

use crate::duration;
use crate::failure::Failure;

/// Where a server is if nobody says.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:7400";

/// How long a server may take to say what it is.
const GREETING: Duration = Duration::from_secs(2);

/// `--context`, chosen once, before a verb runs.
static CONTEXT: OnceLock<String> = OnceLock::new();

/// Flags of every verb that asks a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    /// Address of the server, or of several with commas between [env: REGENT_SERVER] [default: that of the current
    /// context, or http://127.0.0.1:7400]
    #[arg(long, value_name = "URL", help_heading = "Server and output")]
    server: Option<String>,
    /// How long to wait for an answer
    #[arg(long, env = "REGENT_TIMEOUT", value_name = "DURATION", default_value = "5s",
        value_parser = duration::parse, help_heading = "Server and output")]
    pub(crate) timeout: Duration,
}

impl ClientArgs {
    /// The server.
    pub(crate) fn remote(&self) -> Result<Remote, Failure> {
        if self.timeout.is_zero() {
            return Err(Failure::usage("--timeout 0s would wait for no answer; give it some time"));
        }
        Ok(Remote::new(&self.url()?)?.with_timeout(self.timeout))
    }

    /// Refuses what is there and is no Regent: waiting would never help. A server that cannot be reached,
    /// or does not say, is waited for.
    pub(crate) async fn is_regent(&self) -> Result<(), Failure> {
        let remote = self.remote()?;
        match tokio::time::timeout(GREETING, remote.health()).await {
            Ok(Err(error @ RemoteError::Protocol { .. })) => {
                let addresses: Vec<_> =
                    remote.addresses().iter().map(ToString::to_string).collect();
                Err(Failure::usage(format!("--server {}: {error}", addresses.join(","))))
            }
            Ok(Ok(_) | Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Where the server is. If a context says so, its credential is that of this process from here on.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match chosen(self.server.as_deref())? {
            Chosen::Servers(url) => Ok(url),
            Chosen::Context(name, context) => {
                context.use_for_process(&name)?;
                Ok(context.server)
            }
            Chosen::Nobody => Ok(SERVER_DEFAULT.to_owned()),
        }
    }

    /// Whether a flag names a server.
    #[cfg(target_os = "linux")]
    pub(crate) const fn is_named(&self) -> bool {
        self.server.is_some()
    }
}

/// Lets `--context` hold for this process.
pub(crate) fn choose_context(name: Option<String>) {
    if let Some(name) = name {
        let _ = CONTEXT.set(name);
    }
}

/// Which servers are asked, by the flags, the environment and the contexts of this user.
pub(crate) fn chosen(server: Option<&str>) -> Result<Chosen, Failure> {
    let wanted = Wanted { server, context: CONTEXT.get().map(String::as_str) };
    Ok(wanted.choose(&|name| std::env::var_os(name))?)
}

/// For verbs whose servers are named otherwise: the credential of the context that `--context` names, if it does.
pub(crate) fn credential_of_context() -> Result<(), Failure> {
    match CONTEXT.get().map(|_| chosen(None)).transpose()? {
        Some(Chosen::Context(name, context)) => Ok(context.use_for_process(&name)?),
        Some(Chosen::Servers(_) | Chosen::Nobody) | None => Ok(()),
    }
}

/// What a refused caller should know: by which context it was known.
pub(crate) fn asked_by(code: Code) -> String {
    let is_about_caller =
        matches!(code, Code::Unauthenticated | Code::CredentialOver | Code::Forbidden);
    match Context::in_use().filter(|_| is_about_caller) {
        Some(name) => format!("; asked with the context {name} (see `regent context show {name}`)"),
        None => String::new(),
    }
}
