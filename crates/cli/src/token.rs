//! `regent token`: the fencing token of a group, and what resources have admitted.

use clap::{Args, Subcommand};
use regent_api::{
    DeleteFenceQuery, FencesQuery, FencesResponse, TokenResponse, ValidateTokenRequest,
};
use regent_election::limits::FENCES_PER_GROUP_MAX;
use regent_election::{Group, Resource, Term};
use regent_operate::unknown_group::{explained, must_exist};

use crate::client::ClientArgs;
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Screen, Side, facts, or_dash, table};
use crate::secret::{Holder, SessionArgs};
use regent_election::term::parse_term;

/// Verbs of `regent token`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
The term of a leader is its fencing token: whatever it writes to compares it and refuses lower
ones. What can keep a number beside its data needs no service for that (see `regent fence`); what
cannot asks here.

Examples:
  regent token show billing
  regent token validate billing --term 41
  regent token validate billing --term 41 --resource db/orders
  regent token fences billing
  regent token forget billing --resource db/orders --yes")]
pub(crate) enum TokenVerb {
    /// Show the current term of a group and who holds it
    Show(ShowArgs),
    /// Say whether a term may still write; with a resource, shut lower ones out there
    Validate(ValidateArgs),
    /// List what the resources of a group have admitted
    Fences(FencesArgs),
    /// Forget a resource; what it refused stays refused
    Forget(ForgetArgs),
}

/// Flags of `regent token show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Who holds the office and names its session is given the term signed by the service, if that has
keys (`regent serve --signing-keys`). A resource believes it without asking anybody.

Examples:
  regent token show billing
  regent token show billing --session-file web-1.session
  regent token show billing --output json")]
pub(crate) struct ShowArgs {
    /// The group
    group: Group,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `regent token validate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Without --resource it asks whether somebody holds this very term now. With one it asks whether the
term is at least the highest that was admitted there, and raises the mark in the same step: no
lower term is admitted there any more. Exit code 0 means that it may write; a refusal tells both
numbers.

Examples:
  regent token validate billing --term 41
  regent token validate billing --term 41 --resource db/orders")]
pub(crate) struct ValidateArgs {
    /// The group
    group: Group,
    /// The term to be judged
    #[arg(long, value_parser = parse_term)]
    term: Term,
    /// Where it is to be admitted
    #[arg(long, value_name = "NAME")]
    resource: Option<Resource>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `regent token fences`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent token fences billing
  regent token fences billing --prefix db/ --output json")]
pub(crate) struct FencesArgs {
    /// The group
    group: Group,
    /// Only resources whose names open with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `regent token forget`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The mark is kept as the least that any resource of the group admits from now on, known or not.

Examples:
  regent token forget billing --resource db/orders --yes")]
pub(crate) struct ForgetArgs {
    /// The group
    group: Group,
    /// What the fence protects
    #[arg(long, value_name = "NAME")]
    resource: Resource,
    /// Do not ask back
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of the verbs.
pub(crate) async fn run(verb: TokenVerb) -> CommandResult {
    match verb {
        TokenVerb::Show(args) => show(args).await,
        TokenVerb::Validate(args) => validate(args).await,
        TokenVerb::Fences(args) => fences(args).await,
        TokenVerb::Forget(args) => forget(args).await,
    }
}

async fn show(args: ShowArgs) -> CommandResult {
    let session = match args.session.holder()? {
        Holder::Nobody => None,
        Holder::Given(_) | Holder::File(_) => Some(args.session.require()?.session),
    };
    let remote = args.client.remote()?;
    let token = remote.token(&args.group, session).await?;
    if token.leader.is_none() && token.term == Term::NONE {
        must_exist(&remote, &args.group).await?;
    }
    Screen::chosen().answer(&token, || {
        let TokenResponse { group, term, leader, state, token, .. } = &token;
        facts(vec![
            ("group", group.to_string()),
            ("term", term.to_string()),
            ("leader", or_dash(leader.as_ref())),
            ("state", state.word().to_owned()),
            ("token", or_dash(token.as_ref())),
        ])
    })?;
    Ok(Exit::Done)
}

async fn validate(args: ValidateArgs) -> CommandResult {
    let request = ValidateTokenRequest { term: args.term, resource: args.resource.clone() };
    let remote = args.client.remote()?;
    let answer = remote.validate_token(&args.group, &request).await;
    let answer = explained(&remote, &args.group, answer).await?;
    Screen::chosen().answer(&answer, || match &args.resource {
        None => format!("term {} of {} is the current one", args.term, args.group),
        Some(resource) => {
            format!("term {} of {} may write to {resource}", args.term, args.group)
        }
    })?;
    Ok(Exit::Done)
}

async fn fences(args: FencesArgs) -> CommandResult {
    // All that a group can have fit one page.
    let count = u32::try_from(FENCES_PER_GROUP_MAX).ok();
    let query = FencesQuery { prefix: args.prefix.clone(), after: None, count };
    let remote = args.client.remote()?;
    let page =
        explained(&remote, &args.group, remote.list_fences(&args.group, &query).await).await?;
    if page.current_term == Term::NONE {
        must_exist(&remote, &args.group).await?;
    }
    Screen::chosen().answer(&page, || {
        let FencesResponse { fences, floor, current_term, .. } = &page;
        if fences.is_empty() {
            return format!("no resource of {} has a fence (floor: term {floor})", args.group);
        }
        let rows = fences.iter().map(|fence| {
            let (resource, term) = (fence.resource.to_string(), fence.term.to_string());
            vec![resource, term, current_term.to_string()]
        });
        let head = [("resource", Side::Left), ("admitted", Side::Right), ("current", Side::Right)];
        table(&head, rows.collect())
    })?;
    Ok(Exit::Done)
}

async fn forget(args: ForgetArgs) -> CommandResult {
    let (resource, group) = (&args.resource, &args.group);
    confirm(args.yes, &format!("this forgets the fence of {resource} in {group}"))?;
    let query = DeleteFenceQuery { resource: args.resource.clone() };
    let remote = args.client.remote()?;
    let done =
        explained(&remote, &args.group, remote.delete_fence(&args.group, &query).await).await?;
    Screen::chosen().answer(&done, || {
        format!("forgotten; what {} refused stays refused in {}", args.resource, args.group)
    })?;
    Ok(Exit::Done)
}
