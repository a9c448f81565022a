//! Who gets into the servers that the benchmark starts, and how its clients prove who they are.

use std::path::Path;

use regent::remote::Remote;
use regent_api::{BindingBody, CreateAuthTokenRequest, PutBindingsRequest};
use regent_election::Node;
use regent_election::access::Principal;

use crate::closed_loop::node;
use crate::error::LoadError;
use crate::wire::Shown;

/// How many principals the clients are: each of them is one of these nodes, in turn.
pub(crate) const PRINCIPALS: usize = 16;

/// What a server asks of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Nothing: plaintext, and everybody may do everything.
    Open,
    /// A bearer token, in the clear; every request is authorised by bindings and changes are audited.
    Tokens,
    /// A client certificate over TLS; every request is authorised by bindings and changes are audited.
    Certificates,
}

impl Door {
    pub(crate) const ALL: [Self; 3] = [Self::Open, Self::Tokens, Self::Certificates];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Open => "plain",
            Self::Tokens => "tokens",
            Self::Certificates => "mtls",
        }
    }

    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::Open | Self::Tokens => "http",
            Self::Certificates => "https",
        }
    }

    /// Flags of `regent serve`; the files of TLS are in this folder.
    pub(crate) fn flags(self, ca: &Path) -> Vec<String> {
        let file = |name: &str| ca.join(name).display().to_string();
        let required = ["--auth".to_owned(), "required".to_owned()];
        match self {
            Self::Open => Vec::new(),
            Self::Tokens => required.into(),
            Self::Certificates => {
                let certificate = format!("server-{HOST}.crt");
                let key = format!("server-{HOST}.key");
                let mut flags = Vec::from(required);
                flags.extend(["--tls-cert".to_owned(), file(&certificate)]);
                flags.extend(["--tls-key".to_owned(), file(&key)]);
                flags.extend(["--tls-client-auth".to_owned(), "required".to_owned()]);
                flags.extend(["--tls-client-ca".to_owned(), file("ca.crt")]);
                flags.extend(["--tls-crl".to_owned(), file("ca.crl")]);
                flags
            }
        }
    }
}

/// Where the benchmark's servers are, as their certificate says.
const HOST: &str = "127.0.0.1";

/// The node that a client with this number is.
pub(crate) fn node_of(number: usize) -> Result<Node, LoadError> {
    node(&format!("bench-{}", number % PRINCIPALS))
}

/// Makes the CA and the certificates of the server and all nodes, by `regent tls`.
pub(crate) fn issue(
    run: impl Fn(&[&str]) -> Result<(), LoadError>,
    ca: &Path,
    cluster_id: &str,
) -> Result<(), LoadError> {
    let ca = ca.display().to_string();
    run(&["tls", "init", "--dir", &ca])?;
    run(&["tls", "issue", "--dir", &ca, "--server", HOST])?;
    for number in 0..PRINCIPALS {
        let node = node_of(number)?.to_string();
        run(&["tls", "issue", "--dir", &ca, "--cluster", cluster_id, "--node", &node])?;
    }
    Ok(())
}

/// Lets the nodes in, as an administrator: each stands under its own name only.
pub(crate) async fn bind(administrator: &Remote) -> Result<(), LoadError> {
    let binding = BindingBody {
        who: "node:bench-*".to_owned(),
        role: "participant".to_owned(),
        groups: vec!["bench/*".to_owned()],
        nodes: vec!["self".to_owned()],
    };
    let request = PutBindingsRequest { expected_version: 0, bindings: vec![binding] };
    administrator.put_bindings(&request).await?;
    Ok(())
}

/// What each node shows: a token of its own.
pub(crate) async fn tokens(administrator: &Remote) -> Result<Vec<Shown>, LoadError> {
    let mut all = Vec::with_capacity(PRINCIPALS);
    for number in 0..PRINCIPALS {
        let request = CreateAuthTokenRequest {
            principal: Principal::Node(node_of(number)?),
            label: "bench".to_owned(),
            expires_in_ms: None,
        };
        let made = administrator.create_auth_token(&request).await?;
        all.push(Shown { token: Some(made.bearer_token), ..Shown::default() });
    }
    Ok(all)
}

/// What each node shows: a certificate of its own.
#[cfg(feature = "tls")]
pub(crate) fn certificates(ca: &Path) -> Result<Vec<Shown>, LoadError> {
    let file = |name: String| ca.join(name);
    let of = |number: usize| -> Result<Shown, LoadError> {
        let node = node_of(number)?;
        let pair = (file(format!("node-{node}.crt")), file(format!("node-{node}.key")));
        let files = regent_tls::ClientFiles {
            ca: Some(file("ca.crt".to_owned())),
            certificate: Some(pair),
        };
        let config = regent_tls::client_config(files, None)
            .map_err(|error| LoadError::Unavailable(error.to_string()))?;
        Ok(Shown { token: None, tls: Some(std::sync::Arc::new(config)) })
    };
    (0..PRINCIPALS).map(of).collect()
}

/// A build without TLS has no certificates.
#[cfg(not(feature = "tls"))]
pub(crate) fn certificates(_: &Path) -> Result<Vec<Shown>, LoadError> {
    let why = "this build has no TLS; build with --features tls";
    Err(LoadError::Unavailable(why.to_owned()))
}
