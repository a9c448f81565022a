//! What all verbs that ask a server share: where it is, how long to wait, for whom to write.

use std::time::Duration;

use clap::Args;
use regent::remote::{Remote, RemoteError};
use regent_api::Code;

use crate::duration;
use crate::failure::Failure;

/// Where a server is if nobody says.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:7400";

/// How long a server may take to say what it is.
const GREETING: Duration = Duration::from_secs(2);

/// Flags of every verb that asks a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    /// Address of the server, or of several with commas between
    #[arg(long, env = "REGENT_SERVER", value_name = "URL", default_value = SERVER_DEFAULT,
        help_heading = "Server and output")]
    server: String,
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
        Ok(Remote::new(&self.server)?.with_timeout(self.timeout))
    }

    /// Where the servers are, one by one.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        self.server.split(',').map(str::trim).filter(|url| !url.is_empty())
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

    /// Where the server is.
    pub(crate) fn url(&self) -> &str {
        &self.server
    }

    /// Whether nobody named a server.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_default(&self) -> bool {
        self.server == SERVER_DEFAULT
    }
}

/// Whether a caller may read nothing, but may still give up what it holds.
pub(crate) fn is_shut_out(error: &RemoteError) -> bool {
    let code = error.problem().map(|problem| problem.code);
    matches!(code, Some(Code::CredentialOver | Code::Forbidden))
}
