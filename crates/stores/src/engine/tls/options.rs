//! What a URL and the environment ask for: with or without TLS, which files, what is verified.
//!
//! Each ecosystem has its own names for the same few things, and people bring URLs and variables that they have
//! already. One rule for all of them: **what is asked for is never taken back in silence.** A parameter of TLS in a
//! URL asks for TLS; a variable that names a file does not, because people set those once for all their programs.

use std::path::PathBuf;

use crate::engine::UrlError;
use crate::register::Encryption;

/// What the certificate of a server must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// That a CA which is trusted issued it for the name that was dialled.
    Name,
    /// That a CA which is trusted issued it, for whatever name.
    Chain,
    /// Nothing: who can redirect the connection can be the server.
    Nothing,
}

impl Verify {
    /// How a connection is protected that proves this.
    pub(crate) const fn encryption(self) -> Encryption {
        match self {
            Self::Name => Encryption::Verified,
            Self::Chain => Encryption::VerifiedIssuer,
            Self::Nothing => Encryption::Unverified,
        }
    }
}

/// Which CAs are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ca {
    /// Those of this system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    System,
    /// Those in this file.
    File(PathBuf),
}

/// The certificate that we show, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// How TLS is spoken to one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    pub(crate) verify: Verify,
    pub(crate) ca: Ca,
    pub(crate) identity: Option<Identity>,
    /// The name that the certificate must have, if not the host of the URL.
    pub(crate) server_name: Option<String>,
}

/// A variable of the environment by its name; an empty one counts as none.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of this process.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What one thing is called in a URL, and by which variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called {
    pub(crate) parameter: &'static str,
    pub(crate) variable: Option<&'static str>,
}

/// Called so in a URL, and by no variable.
pub(crate) const fn parameter(parameter: &'static str) -> Called {
    Called { parameter, variable: None }
}

/// Called so in a URL, and by this variable.
pub(crate) const fn or_variable(parameter: &'static str, variable: &'static str) -> Called {
    Called { parameter, variable: Some(variable) }
}

/// What an ecosystem calls the files, and the name of the server if it has a word for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) ca: Called,
    pub(crate) certificate: Called,
    pub(crate) key: Called,
    pub(crate) server_name: Option<Called>,
}

/// What a URL says behind its question mark.
type Options = [(String, String)];

impl Called {
    fn in_url(self, options: &Options) -> Result<Option<String>, UrlError> {
        match value(options, self.parameter) {
            Some("") => Err(UrlError::new(format_args!("{} is empty", self.parameter))),
            given => Ok(given.map(str::to_owned)),
        }
    }

    fn anywhere(
        self,
        options: &Options,
        environment: Environment<'_>,
    ) -> Result<Option<String>, UrlError> {
        let given = self.in_url(options)?;
        Ok(given.or_else(|| environment(self.variable?)))
    }
}

impl Words {
    /// The parameters of a URL that are read here.
    pub(crate) fn parameters(&self) -> Vec<&'static str> {
        let all = [Some(self.ca), Some(self.certificate), Some(self.key), self.server_name];
        all.into_iter().flatten().map(|called| called.parameter).collect()
    }

    /// Whether a URL has one of them, and so asks for TLS.
    pub(crate) fn are_in(&self, options: &Options) -> bool {
        self.parameters().iter().any(|name| value(options, name).is_some())
    }

    /// How TLS is spoken, with everything else as verified as `verify` says.
    pub(crate) fn read(
        &self,
        verify: Verify,
        options: &Options,
        environment: Environment<'_>,
    ) -> Result<TlsOptions, UrlError> {
        let ca = self.ca.anywhere(options, environment)?;
        let certificate = self.certificate.anywhere(options, environment)?;
        let key = self.key.anywhere(options, environment)?;
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.into(), key: key.into() })
            }
            (Some(_), None) => {
                let why = format!("a certificate without its key; give {}", self.key.parameter);
                return Err(UrlError::new(why));
            }
            (None, Some(_)) => {
                let give = self.certificate.parameter;
                return Err(UrlError::new(format_args!(
                    "a key without its certificate; give {give}"
                )));
            }
        };
        let server_name = match self.server_name {
            Some(called) => called.anywhere(options, environment)?,
            None => None,
        };
        let ca = ca.map_or(Ca::System, |file| Ca::File(file.into()));
        Ok(TlsOptions { verify, ca, identity, server_name })
    }

    /// What a URL of an engine asks for that knows `tls=true` and no half measures: all of it verified, or no TLS.
    /// `is_asked` if its scheme asks, or a variable does.
    pub(crate) fn wanted(
        &self,
        is_asked: bool,
        options: &Options,
        environment: Environment<'_>,
    ) -> Result<Option<TlsOptions>, UrlError> {
        let is_wanted = match value(options, TLS) {
            Some("true") => true,
            Some("false") if self.are_in(options) => {
                return Err(UrlError::new(format_args!(
                    "tls=false beside {}, which are for TLS; leave out one or the other",
                    self.parameters().join(", ")
                )));
            }
            Some("false") if is_asked => {
                return Err(UrlError::new(
                    "tls=false, and the scheme or the environment asks for TLS",
                ));
            }
            Some("false") => false,
            Some(_) => return Err(UrlError::new("tls is true or false")),
            None => is_asked || self.are_in(options),
        };
        if !is_wanted {
            return Ok(None);
        }
        self.read(Verify::Name, options, environment).map(Some)
    }
}

/// The parameter that asks for TLS where the scheme does not say it.
pub(crate) const TLS: &str = "tls";

/// The value of a parameter.
pub(crate) fn value<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    options.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
}

/// Cuts the parameters of TLS out of a URL that another parser reads next; it knows none of them.
pub(crate) fn cut_out(url: &str, names: &[&str]) -> (String, Vec<(String, String)>) {
    let Some((head, tail)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let (mut kept, mut cut) = (Vec::new(), Vec::new());
    for option in tail.split('&').filter(|option| !option.is_empty()) {
        let parsed = crate::engine::address::options(option);
        if parsed.iter().any(|(name, _)| names.contains(&name.as_str())) {
            cut.extend(parsed);
        } else {
            kept.push(option);
        }
    }
    let mut url = head.to_owned();
    if !kept.is_empty() {
        url = format!("{url}?{}", kept.join("&"));
    }
    (url, cut)
}

/// Refuses a parameter that is named twice: two parsers may not agree on which of them counts.
pub(crate) fn once_each(options: &Options) -> Result<(), UrlError> {
    let is_again = |(at, (name, _)): (usize, &(String, String))| {
        options[..at].iter().any(|(before, _)| before == name)
    };
    match options.iter().enumerate().find(|found| is_again(*found)) {
        Some((_, (name, _))) => Err(UrlError::new(format_args!("{name} is given twice"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words = Words {
        ca: or_variable("cacert", "X_CA"),
        certificate: or_variable("cert", "X_CERT"),
        key: or_variable("key", "X_KEY"),
        server_name: Some(parameter("name")),
    };

    fn given(options: &str) -> Vec<(String, String)> {
        crate::engine::address::options(options)
    }

    #[test]
    fn a_parameter_asks_for_tls_and_a_variable_only_names_files() {
        let surroundings = |name: &str| (name == "X_CA").then(|| "/env/ca".to_owned());
        let wanted = |options: &str| WORDS.wanted(false, &given(options), &surroundings).unwrap();
        assert_eq!(wanted(""), None);
        assert_eq!(wanted("tls=false"), None);
        assert_eq!(wanted("tls=true").unwrap().ca, Ca::File("/env/ca".into()));
        // The URL is nearer than the environment.
        let tls = wanted("cacert=/url/ca&name=db").unwrap();
        assert_eq!((tls.ca, tls.verify), (Ca::File("/url/ca".into()), Verify::Name));
        assert_eq!(tls.server_name.as_deref(), Some("db"));
        let nothing = |_: &str| None;
        let tls = WORDS.wanted(true, &[], &nothing).unwrap().unwrap();
        assert_eq!((tls.ca, tls.identity), (Ca::System, None));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refusal = |is_asked, options: &str| {
            WORDS.wanted(is_asked, &given(options), &|_| None).unwrap_err().to_string()
        };
        assert!(refusal(false, "tls=maybe").contains("true or false"));
        assert!(refusal(true, "tls=false").contains("asks for TLS"));
        assert!(refusal(false, "tls=false&cacert=/a").contains("for TLS"));
        assert!(refusal(false, "cert=/a").contains("give key"));
        assert!(refusal(false, "key=/a").contains("give cert"));
        assert!(refusal(false, "cacert=").contains("cacert is empty"));
        assert!(
            once_each(&given("a=1&b=2&a=3")).unwrap_err().to_string().contains("a is given twice")
        );
        once_each(&given("a=1&b=2")).unwrap();
    }

    #[test]
    fn parameters_of_tls_are_cut_out_and_the_rest_is_left_as_it_was() {
        let (url, cut) = cut_out("x://u:p@h/d?a=b%20c&cacert=%2Fa%20b&z", &["cacert", "cert"]);
        assert_eq!(url, "x://u:p@h/d?a=b%20c&z");
        assert_eq!(cut, [("cacert".to_owned(), "/a b".to_owned())]);
        assert_eq!(cut_out("x://h?cert=a", &["cert"]).0, "x://h");
        assert_eq!(cut_out("x://h", &["cert"]), ("x://h".to_owned(), Vec::new()));
    }
}
