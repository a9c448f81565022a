//! The file of issuers: whose tokens are believed, and what they name.
//!
//! ```toml
//! [[issuer]]
//! issuer = "https://kubernetes.default.svc.cluster.local"   # equals the claim `iss`
//! audience = ["regent"]                                      # `aud` holds one of these
//! keys = "/etc/regent/kubernetes-jwks.json"                  # a file, or an https:// address
//! principal = "node"                                         # tokens name nodes or users
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regent_election::Account;
use regent_election::access::Principal;
use regent_election::name::Node;
use regent_files::{FileError, Trust};
use serde::Deserialize;

use crate::keys::TokenAlgorithm;
use crate::limits::{ISSUERS_BYTES_MAX, ISSUERS_MAX, LEEWAY_MAX};

/// Leeway if none is given.
const LEEWAY_DEFAULT: Duration = Duration::from_secs(30);

/// One issuer whose tokens are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// What the claim `iss` must be, byte by byte.
    pub issuer: String,
    /// The claim `aud` must hold one of these.
    pub audience: Vec<String>,
    pub keys: KeyPlace,
    /// What its keys may sign with.
    pub algorithms: BTreeSet<TokenAlgorithm>,
    pub names: Named,
    /// The claim that holds the name.
    pub claim: String,
    /// Put before the name, so that two issuers cannot name the same principal.
    pub prefix: String,
    /// By how much clocks may differ.
    pub leeway: Duration,
}

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    File(PathBuf),
    Https {
        url: String,
        /// The certificates of the CAs that the address is believed by; the system's if none.
        ca: Option<PathBuf>,
    },
}

/// What the tokens of an issuer name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Named {
    Node,
    User,
}

/// Why a file of issuers is not used.
#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    /// An entry that must not be believed as it stands.
    #[error("{}: issuer {issuer:?}: {why}", path.display())]
    Entry { path: PathBuf, issuer: String, why: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    issuer: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    issuer: String,
    audience: Vec<String>,
    keys: String,
    ca: Option<PathBuf>,
    #[serde(default)]
    algorithms: Vec<String>,
    principal: Named,
    claim: Option<String>,
    #[serde(default)]
    prefix: String,
    leeway: Option<String>,
}

/// Reads a file of issuers. Paths in it are relative to its own directory.
///
/// # Errors
/// If it cannot be read, others can change it, or an entry is not complete.
pub fn read(path: &Path) -> Result<Vec<Issuer>, IssuersError> {
    // Who can change this file can make anybody an administrator.
    let bytes = regent_files::read(path, ISSUERS_BYTES_MAX, Trust::Own)?;
    let malformed = |why: String| IssuersError::Malformed { path: path.to_owned(), why };
    let text = String::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8".to_owned()))?;
    of_text(path, &text)
}

/// The issuers that the text of a file lists.
fn of_text(path: &Path, text: &str) -> Result<Vec<Issuer>, IssuersError> {
    let malformed = |why: String| IssuersError::Malformed { path: path.to_owned(), why };
    let page: Page = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if page.issuer.is_empty() {
        return Err(malformed("it lists no [[issuer]]".to_owned()));
    }
    if page.issuer.len() > ISSUERS_MAX {
        let count = page.issuer.len();
        return Err(malformed(format!(
            "it lists {count} issuers, and at most {ISSUERS_MAX} are read"
        )));
    }
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let mut issuers: Vec<Issuer> = Vec::new();
    for row in page.issuer {
        let name = row.issuer.clone();
        let entry =
            |why: String| IssuersError::Entry { path: path.to_owned(), issuer: name.clone(), why };
        let issuer = issuer(row, directory).map_err(entry)?;
        if issuers.iter().any(|other| other.issuer == issuer.issuer) {
            return Err(entry("it is listed twice".to_owned()));
        }
        issuers.push(issuer);
    }
    Ok(issuers)
}

/// The same for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(text: &str) -> Option<Vec<Issuer>> {
    of_text(Path::new("issuers.toml"), text).ok()
}

/// One entry, or what is wrong with it.
fn issuer(row: Row, directory: &Path) -> Result<Issuer, String> {
    if row.issuer.is_empty() {
        return Err("its name is empty".to_owned());
    }
    if row.audience.is_empty() || row.audience.iter().any(String::is_empty) {
        return Err(
            "`audience` is empty; without one, tokens made for other services would be believed"
                .to_owned(),
        );
    }
    let keys = place(&row, directory)?;
    let algorithms = if row.algorithms.is_empty() {
        TokenAlgorithm::DEFAULT.into_iter().collect()
    } else {
        row.algorithms.iter().map(|word| algorithm(word)).collect::<Result<_, _>>()?
    };
    let leeway = match &row.leeway {
        None => LEEWAY_DEFAULT,
        Some(text) => humantime::parse_duration(text)
            .map_err(|error| format!("`leeway` {text:?}: {error}"))?,
    };
    if leeway > LEEWAY_MAX {
        let most = LEEWAY_MAX.as_secs();
        return Err(format!("`leeway` {leeway:?} is longer than {most} s; set the clocks instead"));
    }
    let claim = row.claim.unwrap_or_else(|| "sub".to_owned());
    let found = Issuer {
        issuer: row.issuer,
        audience: row.audience,
        keys,
        algorithms,
        names: row.principal,
        claim,
        prefix: row.prefix,
        leeway,
    };
    // A prefix that fits no name would refuse every token, and only then.
    found.principal("a").map_err(|why| format!("`prefix` {:?}: {why}", found.prefix))?;
    Ok(found)
}

fn place(row: &Row, directory: &Path) -> Result<KeyPlace, String> {
    if row.keys.starts_with("http://") {
        return Err("`keys` over http:// could be anybody's; use https:// or a file".to_owned());
    }
    if row.keys.starts_with("https://") {
        let url = row.keys.clone();
        let ca = row.ca.as_ref().map(|path| directory.join(path));
        return Ok(KeyPlace::Https { url, ca });
    }
    match (&row.ca, row.keys.is_empty()) {
        (Some(_), _) => Err("`ca` is for keys behind https:// only".to_owned()),
        (None, true) => Err("`keys` is empty; name a file or an https:// address".to_owned()),
        (None, false) => Ok(KeyPlace::File(directory.join(&row.keys))),
    }
}

fn algorithm(word: &str) -> Result<TokenAlgorithm, String> {
    TokenAlgorithm::find(word).ok_or_else(|| {
        let known: Vec<_> = TokenAlgorithm::ALL.into_iter().map(TokenAlgorithm::word).collect();
        format!(
            "`algorithms` has {word:?}, which is never believed; choose from {}",
            known.join(", ")
        )
    })
}

impl Issuer {
    /// The principal of this name.
    ///
    /// # Errors
    /// If no principal can have that name.
    pub fn principal(&self, name: &str) -> Result<Principal, String> {
        let name = format!("{}{name}", self.prefix);
        let principal = match self.names {
            Named::Node => Node::new(&name).map(Principal::Node),
            Named::User => Account::new(&name).map(Principal::User),
        };
        principal.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn told(text: &str) -> Result<Vec<Issuer>, String> {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("issuers.toml");
        fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    const WHOLE: &str = "[[issuer]]\nissuer = \"https://a\"\naudience = [\"regent\"]\nkeys = \"a.json\"\nprincipal = \"node\"\n";

    #[test]
    fn an_entry_has_safe_defaults() {
        let issuers = told(WHOLE).unwrap();
        let [issuer] = &issuers[..] else { panic!("{issuers:?}") };
        assert_eq!(issuer.claim, "sub");
        assert_eq!(issuer.leeway, LEEWAY_DEFAULT);
        assert!(matches!(&issuer.keys, KeyPlace::File(path) if path.is_absolute()));
        let name = "system:serviceaccount:shop:web";
        assert_eq!(issuer.principal(name).unwrap().to_string(), format!("node:{name}"));
    }

    #[test]
    fn what_must_not_be_believed_is_refused_with_the_way_out() {
        let with = |more: &str| told(&format!("{WHOLE}{more}\n")).unwrap_err();
        assert!(with("algorithms = [\"none\"]").contains("never believed"));
        assert!(with("algorithms = [\"HS256\"]").contains("never believed"));
        assert!(with("leeway = \"2m\"").contains("longer than 60 s"));
        assert!(with("prefix = \"a b\"").contains("prefix"));
        assert!(with("ca = \"ca.pem\"").contains("https"));
        assert!(with("audiense = []").contains("audiense"));
        assert!(with(WHOLE).contains("listed twice"));
        assert!(told("").unwrap_err().contains("no [[issuer]]"));
        let empty = WHOLE.replace("[\"regent\"]", "[]");
        assert!(told(&empty).unwrap_err().contains("other services"));
        let plain = WHOLE.replace("a.json", "http://a/keys");
        assert!(told(&plain).unwrap_err().contains("https://"));
    }
}
