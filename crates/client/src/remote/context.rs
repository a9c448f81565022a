//! Contexts: where servers are and how this user is known there, under a name.
//!
//! `regent login` writes them; every command, and [`Regent::from_context`](crate::Regent::from_context), reads them. They
//! are in one file of the user, `regent/contexts.json` below `$XDG_CONFIG_HOME` or `~/.config`. It names files and holds
//! no secret: a token that was typed is kept in a file of its own beside it, `tokens/NAME-…`. All of them are refused if
//! others can read them.
//!
//! Which servers are asked, the first that is said: a flag, `REGENT_SERVER` or `REGENT_CONTEXT`, the current context,
//! loopback. The credential of a context is never shown to servers of another: whoever names servers by hand names the
//! credential by hand, too. Within a context, a token or a certificate that a flag or the environment names takes the
//! place of both of the context's, and a CA that of its CA.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use regent_files::{FileError, Trust};
use serde::{Deserialize, Serialize};

use super::address::{Address, AddressError};
use super::credential::{Credential, CredentialError};
use super::tls::TlsFiles;
use crate::limits::{CONTEXT_NAME_BYTES_MAX, CONTEXTS_BYTES_MAX};

/// The variable that names servers.
pub const SERVER_VARIABLE: &str = "REGENT_SERVER";
/// The variable that names a context.
pub const CONTEXT_VARIABLE: &str = "REGENT_CONTEXT";

/// The context whose files this process uses.
static IN_USE: OnceLock<(ContextName, Context)> = OnceLock::new();

/// The name of a context: letters, digits, `.`, `_` and `-`, at most 64 bytes; it names a file, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContextName(String);

/// Servers and how this user is known there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// One address, or several with commas between.
    pub server: String,
    /// The CAs by which the servers are believed; none: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_key: Option<PathBuf>,
    /// The file that holds the bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// All contexts of a user.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// Where they are kept; none if this user has no home.
    directory: Option<PathBuf>,
    saved: Saved,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default)]
    current: Option<ContextName>,
    contexts: BTreeMap<ContextName, Context>,
}

/// What a command was told about servers, before the environment is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// `--server`.
    pub server: Option<&'a str>,
    /// `--context`.
    pub context: Option<&'a str>,
}

/// Which servers are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// These, named by hand.
    Servers(String),
    /// Those of a context.
    Context(ContextName, Context),
    /// Nobody said.
    Nobody,
}

/// Why a context is not used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The file, or one beside it, cannot be read or must not be trusted.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file holds something else.
    #[error("{}: {why}; correct it, or remove it and log in again", .path.display())]
    Malformed { path: PathBuf, why: String },
    /// There is no context of this name.
    #[error("there is no context {name:?}{known}; `regent login URL --name {name}` makes one")]
    Unknown {
        name: String,
        /// Those there are, for people.
        known: String,
    },
    /// No name can be like this.
    #[error(
        "{given:?} is no name of a context: 1 to {CONTEXT_NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`, beginning with a letter or digit"
    )]
    Name { given: String },
    /// Servers and a context were named at once.
    #[error("{0} and {1} both say which servers are asked; leave one of them out")]
    Both(&'static str, &'static str),
    /// Another context is in use already.
    #[error("this process uses the context {0} already, and has one identity")]
    InUse(ContextName),
    /// There is no place for the file.
    #[error(
        "there is no place for contexts: set HOME or XDG_CONFIG_HOME to a directory, as a whole path"
    )]
    NoPlace,
    /// The servers of a context have no good addresses.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The token of a context cannot be used.
    #[error("context {name}: {source}")]
    Credential { name: ContextName, source: CredentialError },
}

impl ContextName {
    /// This name.
    pub fn new(text: &str) -> Result<Self, ContextError> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let begins = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if begins && text.len() <= CONTEXT_NAME_BYTES_MAX && text.bytes().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(ContextError::Name { given: text.chars().take(80).collect() })
    }

    /// The name that these servers get if nobody gives one: host and port of the first.
    #[must_use]
    pub fn of_server(server: &str) -> Self {
        let first = server.split(',').next().unwrap_or_default().trim();
        let rest = first.split_once("://").map_or(first, |(_, rest)| rest);
        let host = if first.starts_with("unix:") { "local" } else { rest };
        let host = host.split('/').next().unwrap_or_default().trim_start_matches('[');
        let plain: String = host
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
            .take(CONTEXT_NAME_BYTES_MAX)
            .collect();
        Self::new(&plain).unwrap_or_else(|_| Self("default".to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ContextName {
    type Error = ContextError;

    fn try_from(text: String) -> Result<Self, ContextError> {
        Self::new(&text)
    }
}

impl From<ContextName> for String {
    fn from(name: ContextName) -> Self {
        name.0
    }
}

impl fmt::Display for ContextName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Wanted<'_> {
    /// Which servers are asked. The contexts are read only if one of them counts.
    ///
    /// # Errors
    /// If two sources of the same rank disagree, or the context that counts cannot be used. A file of contexts that
    /// cannot be read is never passed over: its user means other servers than loopback.
    pub fn choose(
        self,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Chosen, ContextError> {
        let set = |name| {
            let value = environment(name).filter(|value| !value.is_empty())?;
            Some(value.to_string_lossy().into_owned())
        };
        let named = |name: &str| {
            let (name, context) = Contexts::open(environment)?.find(name)?;
            Ok(Chosen::Context(name, context))
        };
        match (self.server, self.context) {
            (Some(_), Some(_)) => return Err(ContextError::Both("--server", "--context")),
            (Some(server), None) => return Ok(Chosen::Servers(server.to_owned())),
            (None, Some(name)) => return named(name),
            (None, None) => {}
        }
        match (set(SERVER_VARIABLE), set(CONTEXT_VARIABLE)) {
            (Some(_), Some(_)) => {
                return Err(ContextError::Both("$REGENT_SERVER", "$REGENT_CONTEXT"));
            }
            (Some(server), None) => return Ok(Chosen::Servers(server)),
            (None, Some(name)) => return named(&name),
            (None, None) => {}
        }
        let contexts = Contexts::open(environment)?;
        match &contexts.saved.current {
            Some(name) => {
                let (name, context) = contexts.find(name.as_str())?;
                Ok(Chosen::Context(name, context))
            }
            None => Ok(Chosen::Nobody),
        }
    }
}

impl Contexts {
    /// The contexts of this user; none at all if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, holds something else, or others can read or change it.
    pub fn open(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, ContextError> {
        let absolute = |name: &str| {
            let value = environment(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
        let Some(directory) = base.map(|base| base.join("regent")) else {
            return Ok(Self { directory: None, saved: Saved::default() });
        };
        let saved = read(&directory)?;
        Ok(Self { directory: Some(directory), saved })
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ContextName, &Context)> {
        self.saved.contexts.iter()
    }

    /// The one that is used if nobody names another.
    #[must_use]
    pub const fn current(&self) -> Option<&ContextName> {
        self.saved.current.as_ref()
    }

    /// The context of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, name: &str) -> Result<(ContextName, Context), ContextError> {
        let known = ContextName::new(name)?;
        match self.saved.contexts.get(&known) {
            Some(context) => Ok((known, context.clone())),
            None => {
                let names: Vec<&str> =
                    self.saved.contexts.keys().map(ContextName::as_str).collect();
                let known = match names.as_slice() {
                    [] => String::new(),
                    some => format!(" (there are {})", some.join(", ")),
                };
                Err(ContextError::Unknown { name: name.to_owned(), known })
            }
        }
    }

    /// Keeps a context and makes it the current one; a token that was typed is kept beside it. Says whether one of this
    /// name was replaced.
    ///
    /// # Errors
    /// If it cannot be written. The contexts stay as they were.
    pub fn put(
        &mut self,
        name: &ContextName,
        mut context: Context,
        token: Option<&str>,
    ) -> Result<bool, ContextError> {
        let _lock = self.lock()?;
        if let Some(token) = token {
            // A name of its own each time: whoever still uses the old context reads its token again, and would show
            // this one to the old server.
            let tokens = self.tokens()?;
            let mut chance = [0; 8];
            let path = || tokens.clone();
            let io = |source| ContextError::Io { path: path(), source };
            getrandom::fill(&mut chance).map_err(|error| io(io::Error::other(error)))?;
            let own = tokens.join(format!("{name}-{:016x}", u64::from_le_bytes(chance)));
            regent_files::create_private_directory(&tokens).map_err(io)?;
            regent_files::create_private(&own, format!("{token}\n").as_bytes()).map_err(io)?;
            context.token_file = Some(own);
        }
        let kept = context.token_file.clone();
        let before = self.saved.contexts.insert(name.clone(), context);
        self.saved.current = Some(name.clone());
        if let Err(error) = self.save() {
            if token.is_some() {
                self.forget(kept.as_deref())?;
            }
            return Err(error);
        }
        let old = before.as_ref().and_then(|before| before.token_file.clone());
        self.forget(old.filter(|old| Some(old) != kept.as_ref()).as_deref())?;
        Ok(before.is_some())
    }

    /// Makes another one the current one.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot be written.
    pub fn switch(&mut self, name: &str) -> Result<(ContextName, Context), ContextError> {
        let _lock = self.lock()?;
        let (name, context) = self.find(name)?;
        self.saved.current = Some(name.clone());
        self.save()?;
        Ok((name, context))
    }

    /// Forgets a context, and the token that was kept for it. Files that it only named stay.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot be written.
    pub fn remove(&mut self, name: &str) -> Result<ContextName, ContextError> {
        let _lock = self.lock()?;
        let (name, context) = self.find(name)?;
        self.saved.contexts.remove(&name);
        self.saved.current = self.saved.current.take().filter(|current| *current != name);
        // The secret first: a context without its token is harmless.
        self.forget(context.token_file.as_deref())?;
        self.save()?;
        Ok(name)
    }

    /// Where tokens are that were typed.
    fn tokens(&self) -> Result<PathBuf, ContextError> {
        Ok(self.directory.as_ref().ok_or(ContextError::NoPlace)?.join("tokens"))
    }

    /// Removes a token that was kept here; a file that a context only named stays.
    fn forget(&self, token: Option<&Path>) -> Result<(), ContextError> {
        let tokens = self.tokens()?;
        match token.filter(|path| path.parent() == Some(&tokens)) {
            Some(path) => forget(path),
            None => Ok(()),
        }
    }

    /// Keeps others from changing the contexts, and reads them as they are now, until the file is dropped.
    fn lock(&mut self) -> Result<fs::File, ContextError> {
        let directory = self.directory.clone().ok_or(ContextError::NoPlace)?;
        let io = |source| ContextError::Io { path: directory.clone(), source };
        regent_files::create_private_directory(&directory).map_err(io)?;
        let lock = fs::File::open(&directory).map_err(io)?;
        lock.lock().map_err(io)?;
        self.saved = read(&directory)?;
        Ok(lock)
    }

    fn save(&self) -> Result<(), ContextError> {
        let directory = self.directory.as_ref().ok_or(ContextError::NoPlace)?;
        let path = directory.join("contexts.json");
        let io = |source| ContextError::Io { path: path.clone(), source };
        regent_files::create_private_directory(directory).map_err(io)?;
        let text = serde_json::to_string_pretty(&self.saved).map_err(io::Error::other);
        let written = text
            .and_then(|text| regent_files::replace_private(&path, format!("{text}\n").as_bytes()));
        written.map_err(io)
    }
}

impl Context {
    /// Refuses what would silently mean something else.
    fn check(&self) -> Result<(), String> {
        Address::list(&self.server).map_err(|error| error.to_string())?;
        if self.cert.is_some() != self.cert_key.is_some() {
            return Err("cert and cert_key go together".to_owned());
        }
        let files = [&self.ca, &self.cert, &self.cert_key, &self.token_file];
        match files.into_iter().flatten().find(|path| !path.is_absolute()) {
            Some(path) => Err(format!("{} is no whole path", path.display())),
            None => Ok(()),
        }
    }

    /// Makes its files those that this process shows and believes, behind what flags and the environment name.
    ///
    /// # Errors
    /// If its token cannot be read, or the process uses another context.
    pub fn use_for_process(&self, name: &ContextName) -> Result<(), ContextError> {
        // One that was changed since is another: its credential must not go to the servers that it had.
        let (used, as_it_was) = IN_USE.get_or_init(|| (name.clone(), self.clone()));
        if (used, as_it_was) != (name, self) {
            return Err(ContextError::InUse(used.clone()));
        }
        let wrong = |source| ContextError::Credential { name: name.clone(), source };
        let named = TlsFiles::of_process();
        let shows_other = named.certificate.is_some()
            || named.key.is_some()
            || Credential::of_process().map_err(wrong)?.is_some();
        let mut files = TlsFiles { ca: self.ca.clone(), certificate: None, key: None };
        if !shows_other {
            files.certificate = self.cert.clone();
            files.key = self.cert_key.clone();
            if let Some(path) = &self.token_file {
                Credential::file(path).map_err(wrong)?.set_fallback();
            }
        }
        files.set_fallback();
        Ok(())
    }

    /// The name of the context that commands of this user use if they are told nothing else.
    #[must_use]
    pub fn current_name() -> Option<ContextName> {
        Contexts::open(&|name| std::env::var_os(name)).ok()?.current().cloned()
    }

    /// The context that this process uses, if it uses one.
    #[must_use]
    pub fn in_use() -> Option<&'static ContextName> {
        IN_USE.get().map(|(name, _)| name)
    }
}

/// The contexts in a directory; none at all if there is no file.
fn read(directory: &Path) -> Result<Saved, ContextError> {
    let path = directory.join("contexts.json");
    let text = match regent_files::read_text(&path, CONTEXTS_BYTES_MAX, Trust::Secret) {
        Err(error) if error.is_missing() => return Ok(Saved::default()),
        text => text?,
    };
    let malformed = |why: String| ContextError::Malformed { path: path.clone(), why };
    let saved: Saved = serde_json::from_str(&text).map_err(|error| malformed(plain(&error)))?;
    for (name, context) in &saved.contexts {
        context.check().map_err(|why| malformed(format!("context {name}: {why}")))?;
    }
    Ok(saved)
}

/// Removes a file, if it is there.
fn forget(path: &Path) -> Result<(), ContextError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ContextError::Io { path: path.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What is wrong with the file, in a few words.
fn plain(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => format!("it is no list of contexts ({error})"),
        serde_json::error::Category::Io
        | serde_json::error::Category::Syntax
        | serde_json::error::Category::Eof => {
            format!("it is no JSON, at line {}, column {}", error.line(), error.column())
        }
    }
}

#[cfg(test)]
mod tests;
