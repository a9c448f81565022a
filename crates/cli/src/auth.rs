//! `regent auth`: who may do what, and bearer tokens.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use regent_api::{AuthTokenBody, CreateAuthTokenRequest, RevokeAuthTokenRequest};
use regent_election::access::{Principal, TokenId};
use regent_election::{Group, Node};
use regent_operate::access::{self, AccessFileError};

use crate::client::ClientArgs;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, Side, or_dash, table, yes};

/// Verbs of `regent auth`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent auth token create node:web-1 --server unix:///var/lib/regent/run/regent.sock
  regent auth apply -f bindings.toml --dry-run
  regent auth can node:web-1 campaign billing --node web-1")]
pub(crate) enum AuthVerb {
    /// Replace all bindings by those of a file
    Apply(ApplyArgs),
    /// Show all bindings
    Show(ShowArgs),
    /// Show which principals take most of the state
    Usage(ShowArgs),
    /// Whether a principal may do something, and why
    Can(CanArgs),
    /// Bearer tokens
    #[command(subcommand)]
    Token(TokenVerb),
}

/// Flags of `regent auth apply`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent auth apply -f bindings.toml --dry-run
  regent auth apply -f bindings.toml")]
pub(crate) struct ApplyArgs {
    /// The file of bindings (TOML)
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `regent auth show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent auth show
  regent auth show --output json")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `regent auth can`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent auth can node:web-1 campaign billing --node web-1
  regent auth can user:alice operate billing")]
pub(crate) struct CanArgs {
    /// The principal
    who: Principal,
    /// A right (observe, stand, operate, administer) or a verb
    verb: String,
    /// The group
    group: Group,
    /// The node in whose name it acts
    #[arg(long)]
    node: Option<Node>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Verbs of `regent auth token`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent auth token create node:web-1 --expires-in 720h > web-1.token
  regent auth token list
  regent auth token revoke 1f0c9a3b5d7e2468")]
pub(crate) enum TokenVerb {
    /// Make a token and print it; it cannot be shown again
    Create(CreateArgs),
    /// List all tokens, without their secrets
    List(ShowArgs),
    /// Make a token useless
    Revoke(RevokeArgs),
}

/// Flags of `regent auth token create`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  (umask 077; regent auth token create node:web-1 > web-1.token)
  regent auth token create user:alice --label laptop --expires-in 720h")]
pub(crate) struct CreateArgs {
    /// Whom its bearer is: node:NAME or user:NAME
    principal: Principal,
    /// A note for people
    #[arg(long, default_value = "")]
    label: String,
    /// For how long servers take it [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    expires_in: Option<Duration>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `regent auth token revoke`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent auth token revoke 1f0c9a3b5d7e2468")]
pub(crate) struct RevokeArgs {
    /// Its id, as `regent auth token list` shows it
    id: TokenId,
    #[command(flatten)]
    client: ClientArgs,
}

impl AuthVerb {
    /// Where to ask, and for whom to write.
    pub(crate) const fn client(&self) -> &ClientArgs {
        match self {
            Self::Apply(args) => &args.client,
            Self::Show(args) | Self::Usage(args) | Self::Token(TokenVerb::List(args)) => {
                &args.client
            }
            Self::Can(args) => &args.client,
            Self::Token(TokenVerb::Create(args)) => &args.client,
            Self::Token(TokenVerb::Revoke(args)) => &args.client,
        }
    }
}

/// Runs one of them.
pub(crate) async fn run(verb: AuthVerb) -> CommandResult {
    let (remote, screen) = (verb.client().remote()?, Screen::chosen());
    match verb {
        AuthVerb::Apply(args) => {
            let text = std::fs::read_to_string(&args.file)
                .map_err(|error| Failure::file(&args.file, &error))?;
            let wanted = access::read_bindings(&text)?;
            let (version, changed) = access::apply(&remote, wanted, args.dry_run).await?;
            let told = serde_json::json!({
                "version": version, "removed": changed.removed, "added": changed.added,
            });
            screen.answer(&told, || format!("{changed}\nversion {version}"))?;
        }
        AuthVerb::Show(_) => {
            let all = remote.bindings().await?;
            screen.answer(&all, || {
                let rows = all.bindings.iter().enumerate().map(|(index, it)| {
                    let number = (index + 1).to_string();
                    vec![
                        number,
                        it.who.clone(),
                        it.role.clone(),
                        it.groups.join(", "),
                        it.nodes.join(", "),
                    ]
                });
                let head = [
                    ("no", Side::Right),
                    ("who", Side::Left),
                    ("role", Side::Left),
                    ("groups", Side::Left),
                    ("nodes", Side::Left),
                ];
                format!("{}\nversion {}", table(&head, rows.collect()), all.version)
            })?;
        }
        AuthVerb::Usage(_) => {
            let all = remote.usage().await?;
            screen.answer(&all, || access::usage_text(&all))?;
        }
        AuthVerb::Can(CanArgs { who, verb, group, node, .. }) => {
            let right = access::right_of(&verb).ok_or_else(|| {
                Failure::usage(format!(
                    "{verb:?} is no right and no verb; say observe, stand, operate or administer"
                ))
            })?;
            let bindings = remote.bindings().await?;
            let told = access::explain(bindings, &who, right, &group, node.as_ref())?;
            let answer = serde_json::json!({ "allowed": told.is_allowed, "why": told.why });
            screen.answer(&answer, || format!("{}: {}", yes(told.is_allowed), told.why))?;
            return Ok(if told.is_allowed { Exit::Done } else { Exit::No });
        }
        AuthVerb::Token(TokenVerb::Create(CreateArgs { principal, label, expires_in, .. })) => {
            let expires_in_ms =
                expires_in.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
            let request = CreateAuthTokenRequest { principal, label, expires_in_ms };
            let made = remote.create_auth_token(&request).await?;
            screen.answer(&made, || made.bearer_token.clone())?;
        }
        AuthVerb::Token(TokenVerb::List(_)) => {
            let all = remote.auth_tokens().await?;
            screen.answer(&all, || listed(&all.tokens))?;
        }
        AuthVerb::Token(TokenVerb::Revoke(RevokeArgs { id, .. })) => {
            let done = remote.revoke_auth_token(&RevokeAuthTokenRequest { id }).await?;
            screen.answer(&done, || format!("revoked {id}"))?;
        }
    }
    Ok(Exit::Done)
}

fn listed(tokens: &[AuthTokenBody]) -> String {
    let rows = tokens.iter().map(|token| {
        vec![
            token.id.clone(),
            token.principal.clone(),
            or_dash(Some(&token.label).filter(|label| !label.is_empty())),
            or_dash(token.created_at.as_ref()),
            or_dash(token.expires_at.as_ref()),
            yes(token.revoked),
        ]
    });
    let head = ["id", "principal", "label", "created", "expires", "revoked"];
    table(&head.map(|name| (name, Side::Left)), rows.collect())
}

impl From<AccessFileError> for Failure {
    fn from(error: AccessFileError) -> Self {
        match error {
            AccessFileError::Remote(error) => error.into(),
            AccessFileError::Malformed(_) | AccessFileError::Refused(_) => {
                Self::new(Exit::Config, error.to_string())
            }
        }
    }
}
