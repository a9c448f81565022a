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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// An environment with this home, and more.
    fn with<'a>(
        home: &'a Path,
        more: &'a [(&'a str, &'a str)],
    ) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| match name {
            "HOME" => Some(home.as_os_str().to_owned()),
            _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()),
        }
    }

    fn at(server: &str) -> Context {
        let server = server.to_owned();
        Context { server, ca: None, cert: None, cert_key: None, token_file: None }
    }

    fn name(text: &str) -> ContextName {
        ContextName::new(text).unwrap()
    }

    #[test]
    fn a_context_is_kept_for_its_user_alone_and_removed_with_its_token() {
        let home = tempfile::tempdir().unwrap();
        let open = || Contexts::open(&with(home.path(), &[])).unwrap();
        let mut contexts = open();
        assert!(!contexts.put(&name("prod"), at("http://a:1"), Some("secret")).unwrap());
        assert!(!contexts.put(&name("test"), at("http://b:1"), None).unwrap());
        let folder = home.path().join(".config/regent");
        let tokens = || -> Vec<_> {
            fs::read_dir(folder.join("tokens")).unwrap().map(|file| file.unwrap().path()).collect()
        };
        let [kept] = &tokens()[..] else { panic!("{:?}", tokens()) };
        let kept = kept.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        for (file, mode) in
            [("", 0o700), ("contexts.json", 0o600), ("tokens", 0o700), (kept.as_str(), 0o600)]
        {
            let facts = fs::metadata(folder.join(file)).unwrap();
            assert_eq!(facts.permissions().mode() & 0o777, mode, "{file}");
        }
        assert!(!fs::read_to_string(folder.join("contexts.json")).unwrap().contains("secret"));
        let mut contexts = open();
        assert_eq!(contexts.current(), Some(&name("test")));
        contexts.switch("prod").unwrap();
        assert_eq!(open().current(), Some(&name("prod")));
        // Another login without a token leaves no token behind.
        assert!(contexts.put(&name("prod"), at("http://a:1"), None).unwrap());
        assert!(tokens().is_empty());
        contexts.put(&name("prod"), at("http://a:1"), Some("secret")).unwrap();
        contexts.remove("prod").unwrap();
        assert!(tokens().is_empty());
        assert_eq!((open().current(), open().iter().count()), (None, 1));
        let unknown = contexts.remove("prod").unwrap_err().to_string();
        assert!(
            unknown.contains("there are test") && unknown.contains("regent login"),
            "{unknown}"
        );
    }

    /// A process that uses a context reads its token again and again.
    #[test]
    fn a_token_of_another_login_is_never_shown_to_the_servers_of_an_earlier_one() {
        let home = tempfile::tempdir().unwrap();
        let open = || Contexts::open(&with(home.path(), &[])).unwrap();
        let (mut contexts, mut stale) = (open(), open());
        contexts.put(&name("prod"), at("http://a:1"), Some("of a")).unwrap();
        let old = open().find("prod").unwrap().1.token_file.unwrap();
        contexts.put(&name("prod"), at("http://b:1"), Some("of b")).unwrap();
        assert!(!old.exists(), "whoever used it is told so, and shows nothing else");
        // One that had read the contexts before takes back nothing of what others did since.
        stale.put(&name("test"), at("http://c:1"), None).unwrap();
        let (_, prod) = open().find("prod").unwrap();
        assert_eq!(prod.server, "http://b:1");
        assert_eq!(fs::read_to_string(prod.token_file.unwrap()).unwrap(), "of b\n");
        // One that cannot be saved leaves no token behind, and the old one as it was.
        let folder = home.path().join(".config/regent");
        fs::remove_file(folder.join("contexts.json")).unwrap();
        fs::create_dir(folder.join("contexts.json")).unwrap();
        let before = fs::read_dir(folder.join("tokens")).unwrap().count();
        assert!(stale.put(&name("prod"), at("http://a:1"), Some("of a")).is_err());
        assert_eq!(fs::read_dir(folder.join("tokens")).unwrap().count(), before);
    }

    #[test]
    fn a_flag_comes_before_the_environment_and_that_before_the_current_context() {
        let home = tempfile::tempdir().unwrap();
        let mut contexts = Contexts::open(&with(home.path(), &[])).unwrap();
        contexts.put(&name("other"), at("http://other:1"), None).unwrap();
        contexts.put(&name("current"), at("http://current:1"), None).unwrap();
        let choose = |server, context, more: &[(&str, &str)]| {
            Wanted { server, context }.choose(&with(home.path(), more))
        };
        let [server, context] = [("REGENT_SERVER", "http://env:1"), ("REGENT_CONTEXT", "other")];
        let servers = |text: &str| Chosen::Servers(text.to_owned());
        let of = |text: &str| Chosen::Context(name(text), at(&format!("http://{text}:1")));
        let flag = Some("http://flag:1");
        for more in [&[][..], &[server], &[context], &[server, context]] {
            assert_eq!(choose(flag, None, more).unwrap(), servers("http://flag:1"));
            assert_eq!(choose(None, Some("other"), more).unwrap(), of("other"));
            assert!(matches!(choose(flag, Some("other"), more), Err(ContextError::Both(..))));
        }
        assert_eq!(choose(None, None, &[server]).unwrap(), servers("http://env:1"));
        assert_eq!(choose(None, None, &[context]).unwrap(), of("other"));
        assert!(matches!(choose(None, None, &[server, context]), Err(ContextError::Both(..))));
        assert_eq!(choose(None, None, &[]).unwrap(), of("current"));
        assert_eq!(choose(None, None, &[("REGENT_CONTEXT", "")]).unwrap(), of("current"));
        let nobody = tempfile::tempdir().unwrap();
        let chosen = Wanted::default().choose(&with(nobody.path(), &[])).unwrap();
        assert_eq!(chosen, Chosen::Nobody);
        assert_eq!(Wanted::default().choose(&|_| None).unwrap(), Chosen::Nobody);
    }

    /// A file that somebody else prepared, or that means something else, is refused and never passed over.
    #[test]
    fn a_hostile_file_of_contexts_is_refused_with_the_way_out() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/regent");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("contexts.json");
        let refuse = |what: &str| {
            let error = Wanted::default().choose(&with(home.path(), &[])).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert!(!error.contains("rgt_"), "{error}");
        };
        let put = |text: &str| {
            let _ = fs::remove_file(&path);
            regent_files::create_private(&path, text.as_bytes()).unwrap();
        };
        put(r#"{"contexts":{}}"#);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        refuse("chmod 600");
        fs::remove_file(&path).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(pipe.success());
        refuse("named pipe");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        refuse("device");
        put("");
        fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        refuse("is it the right file?");
        for (text, why) in [
            ("rgt_0123", "no JSON"),
            ("{}", "contexts"),
            (r#"{"contexts":{"../x":{"server":"http://a"}}}"#, "no name of a context"),
            (r#"{"contexts":{"x":{"server":"http://a","tokn":"y"}}}"#, "tokn"),
            (r#"{"contexts":{"x":{"server":"http://u:p@a"}}}"#, "user or password"),
            (r#"{"contexts":{"x":{"server":"http://a","cert":"/c"}}}"#, "go together"),
            (r#"{"contexts":{"x":{"server":"http://a","ca":"ca.crt"}}}"#, "whole path"),
            (r#"{"contexts":{},"current":"gone"}"#, "no context \"gone\""),
        ] {
            put(text);
            refuse(why);
        }
    }

    #[test]
    fn servers_get_a_name_that_is_one() {
        for (server, expected) in [
            ("http://127.0.0.1:7400", "127.0.0.1-7400"),
            ("https://a.example:7400,https://b.example:7400", "a.example-7400"),
            ("http://[::1]:7400", "default"),
            ("unix:///run/regent.sock", "local"),
            ("http://proxy/regent/", "proxy"),
        ] {
            assert_eq!(ContextName::of_server(server).as_str(), expected, "{server}");
        }
        for bad in ["", ".", "..", "-x", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(ContextName::new(bad).is_err(), "{bad}");
        }
    }
}
