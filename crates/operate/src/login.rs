//! A credential is tried on a server before it is kept, and what it is good for is told.

use regent::remote::{
    Context, ContextError, ContextName, Contexts, Credential, CredentialError, Remote, RemoteError,
    RemoteResult, TlsFiles,
};
use regent_api::{BindingBody, Code, GroupsQuery};
use regent_election::access::Principal;
use serde::Serialize;

use crate::escape::on_one_line;

/// Most bindings that are told: a server could send any number.
const TOLD_MAX: usize = 32;

/// How a server knows this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// As whom; none if the server does not ask, or does not say.
    pub principal: Option<String>,
    /// Whether the server asks its callers who they are: `off` or `required`; none if it does not say.
    pub auth: Option<String>,
    /// The bindings that give it rights, at most 32 of them.
    pub bindings: Vec<BindingBody>,
    /// What an operator should know about it.
    pub notes: Vec<String>,
}

/// What was kept.
#[derive(Clone, Debug, Serialize)]
pub struct LoggedIn {
    /// The name of the context, which is the current one from now on.
    pub context: ContextName,
    pub server: String,
    #[serde(flatten)]
    pub identity: Identity,
    /// Whether a context of this name was there before.
    pub replaced: bool,
}

/// Why nobody is logged in. Nothing was kept.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server refused the credential, or could not be asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The context cannot be kept.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The credential that was named cannot be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

impl LoggedIn {
    /// The same in words, fact by fact. A server's words stay on their line.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let who = match (&self.identity.principal, self.identity.auth.as_deref()) {
            (Some(who), _) => who.clone(),
            (None, Some("off")) => "nobody: the server does not ask (auth is off)".to_owned(),
            (None, Some(_) | None) => "-".to_owned(),
        };
        let mut told = vec![
            ("context", self.context.to_string()),
            ("server", self.server.clone()),
            ("known as", who),
        ];
        let rights = self.identity.bindings.iter();
        told.extend(rights.map(|binding| {
            let right = format!("{} in {}", binding.role, binding.groups.join(", "));
            ("rights", on_one_line(&right).into_owned())
        }));
        told
    }
}

/// Asks a server as whom it knows this process.
///
/// # Errors
/// If it does not take the credential, or cannot be asked. A good credential without any right is no error.
pub async fn who_am_i(remote: &Remote) -> RemoteResult<Identity> {
    let mut identity =
        Identity { principal: None, auth: None, bindings: Vec::new(), notes: Vec::new() };
    match remote.cluster().await {
        Ok(answer) => {
            identity.auth = answer.auth;
            if let Some(caller) = answer.caller {
                // A server's words: what is no principal is not repeated as one.
                identity.principal =
                    caller.principal.parse::<Principal>().ok().map(|who| who.to_string());
                let more = caller.bindings.len().saturating_sub(TOLD_MAX);
                identity.bindings = caller.bindings.into_iter().take(TOLD_MAX).collect();
                if more > 0 {
                    identity.notes.push(format!("{more} more bindings give it rights"));
                }
            }
        }
        // A store without replicas: a read shows at least whether the credential is taken.
        Err(RemoteError::Refused(problem)) if problem.code == Code::Unsupported => {
            let query = GroupsQuery { count: Some(1), ..GroupsQuery::default() };
            match remote.list_groups(&query).await {
                Ok(_) => identity.notes.push("the server does not say as whom".to_owned()),
                Err(error) => identity.without_right(error)?,
            }
        }
        Err(error) => identity.without_right(error)?,
    }
    Ok(identity)
}

/// Tries the credential of this process on these servers and keeps both under a name, as the current context.
///
/// # Errors
/// If the servers do not take it, or it cannot be kept.
pub async fn login(
    mut contexts: Contexts,
    name: Option<ContextName>,
    remote: &Remote,
) -> Result<LoggedIn, LoginError> {
    let server: Vec<String> = remote.addresses().iter().map(ToString::to_string).collect();
    let server = server.join(",");
    let mut identity = who_am_i(remote).await?;
    let whole = |path: &std::path::PathBuf| std::path::absolute(path).ok();
    let TlsFiles { ca, certificate, key } = TlsFiles::of_process();
    let credential = Credential::of_process()?;
    let token_file = credential.as_ref().and_then(Credential::path).map(ToOwned::to_owned);
    let token = credential.filter(|_| token_file.is_none()).map(|credential| credential.reveal());
    if (token.is_some() || token_file.is_some()) && is_in_the_clear(&server) {
        let note = "the token crosses the network in the clear: use https://";
        identity.notes.push(note.to_owned());
    }
    let context = Context {
        server: server.clone(),
        ca: ca.as_ref().and_then(whole),
        cert: certificate.as_ref().and_then(whole),
        cert_key: key.as_ref().and_then(whole),
        token_file: token_file.as_ref().and_then(whole),
    };
    let name = name.unwrap_or_else(|| ContextName::of_server(&server));
    let replaced = contexts.put(&name, context, token.as_deref())?;
    Ok(LoggedIn { context: name, server, identity, replaced })
}

/// Whether a server is reached in plaintext through a network.
fn is_in_the_clear(server: &str) -> bool {
    server.split(',').any(|url| {
        let Some(host) = url.strip_prefix("http://") else { return false };
        let host = host.split('/').next().unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        let is_here = host == "localhost"
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        !is_here
    })
}

impl Identity {
    /// Notes that a good credential has no right; everything else stays an error.
    fn without_right(&mut self, error: RemoteError) -> RemoteResult<()> {
        match error {
            RemoteError::Refused(problem) if problem.code == Code::Forbidden => {
                self.auth = Some("required".to_owned());
                let why = &problem.detail;
                self.notes.push(format!("the credential is good, but has no right yet: {why}"));
                Ok(())
            }
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_beyond_this_machine_needs_tls() {
        for near in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "unix:///x"] {
            assert!(!is_in_the_clear(near), "{near}");
        }
        assert!(!is_in_the_clear("https://a:1,https://b:1"));
        assert!(is_in_the_clear("http://127.0.0.1:1,http://b:1"));
        assert!(is_in_the_clear("http://10.0.0.1/x"));
    }
}
