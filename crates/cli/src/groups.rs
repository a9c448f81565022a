//! `regent group`: groups and what is allowed in them.

use clap::{Args, Subcommand};
use regent::remote::Remote;
use regent_api::{
    Code, DeleteGroupQuery, DoorBody, GroupResponse, GroupsQuery, GroupsResponse, PolicyBody,
    PutGroupRequest, SteppedDown,
};
use regent_election::Group;
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_operate::retry::exactly_once;
use regent_operate::unknown_group::explained;

use crate::client::ClientArgs;
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, Side, facts, json, table, yes};
use crate::policy::PolicyArgs;
use regent_operate::show::{office_facts, office_table, policy_facts, stepped_down};

const EXAMPLES: &str = "\
Examples:
  regent group create billing --ttl-min 5s --ttl-max 30s
  regent group list --prefix team-a/
  regent group show billing
  regent group set billing --allow 'web-*' --lock-delay 2s
  regent group delete billing --yes";

/// Verbs of `regent group`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum GroupVerb {
    /// Create a group, with a policy if you like
    Create(CreateArgs),
    /// List groups and who leads them
    List(ListArgs),
    /// Show a group: leader, line and policy
    Show(ShowArgs),
    /// Change the policy of a group
    Set(SetArgs),
    /// Delete a group; its terms never come back
    Delete(DeleteArgs),
}

/// Flags of `regent group create`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent group create billing
  regent group create billing --allow 'web-*' --priority 'web-1=10' --minimum-tenure 30s")]
pub(crate) struct CreateArgs {
    /// The group
    group: Group,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent group list`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent group list
  regent group list --prefix team-a/ --output json")]
pub(crate) struct ListArgs {
    /// Only groups whose names open with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent group show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent group show billing")]
pub(crate) struct ShowArgs {
    /// The group
    group: Group,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent group set`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent group set billing --ttl-max 30s
  regent group set billing --allow 'web-*' --allow 'batch-1'
  regent group set billing --default

What you do not name stays as it is. A leader that the changed policy does not allow is told to
stop and has one ttl to do so.")]
pub(crate) struct SetArgs {
    /// The group
    group: Group,
    /// Return to the default policy of the store
    #[arg(long, conflicts_with = "policy")]
    default: bool,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent group delete`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent group delete billing --yes")]
pub(crate) struct DeleteArgs {
    /// The group
    group: Group,
    /// Do not ask back
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Runs one of the verbs.
pub(crate) async fn run(verb: GroupVerb) -> CommandResult {
    match verb {
        GroupVerb::Create(args) => create(args).await,
        GroupVerb::List(args) => list(args).await,
        GroupVerb::Show(args) => show(args).await,
        GroupVerb::Set(args) => set(args).await,
        GroupVerb::Delete(args) => delete(args).await,
    }
}

async fn create(args: CreateArgs) -> CommandResult {
    let remote = args.client.remote()?;
    match remote.show_group(&args.group).await {
        Ok(_) => {
            let group = &args.group;
            let way_out = format!("change it with `regent group set {group}`");
            return Err(Failure::new(Exit::Refused, format!("{group} exists already; {way_out}")));
        }
        Err(error) if error.code() == Some(Code::GroupUnknown) => {}
        Err(error) => return Err(error.into()),
    }
    let policy = args.policy.is_given().then(|| args.policy.over(PolicyBody::default()));
    let answer = put(&remote, &args.group, policy).await?;
    Screen::chosen().answer(&answer, || shown(&answer))?;
    Ok(Exit::Done)
}

async fn set(args: SetArgs) -> CommandResult {
    if !args.default && !args.policy.is_given() {
        return Err(Failure::usage("what shall change? name a part of the policy, or --default"));
    }
    let remote = args.client.remote()?;
    let present = remote.show_group(&args.group).await;
    let present = explained(&remote, &args.group, present).await?;
    let policy = (!args.default).then(|| args.policy.over(present.policy));
    let answer = put(&remote, &args.group, policy).await?;
    Screen::chosen().answer(&answer, || shown(&answer))?;
    Ok(Exit::Done)
}

async fn put(
    remote: &Remote,
    group: &Group,
    policy: Option<PolicyBody>,
) -> Result<GroupResponse, Failure> {
    let put = exactly_once(remote, group, async |request| {
        let request = PutGroupRequest { policy: policy.clone(), request_id: Some(request) };
        remote.put_group(group, &request).await
    });
    Ok(put.await?)
}

async fn show(args: ShowArgs) -> CommandResult {
    let remote = args.client.remote()?;
    let answer = explained(&remote, &args.group, remote.show_group(&args.group).await).await?;
    Screen::chosen().answer(&answer, || shown(&answer))?;
    Ok(Exit::Done)
}

async fn delete(args: DeleteArgs) -> CommandResult {
    let warning = format!("{} ends for everybody who stands in it", args.group);
    confirm(args.yes, &warning)?;
    let remote = args.client.remote()?;
    let ended = exactly_once(&remote, &args.group, async |request| {
        let query = DeleteGroupQuery { request_id: Some(request) };
        remote.delete_group(&args.group, &query).await
    })
    .await?;
    Screen::chosen().answer(&ended, || match ended {
        SteppedDown::Over => format!("{} is deleted", args.group),
        SteppedDown::Ending { .. } | SteppedDown::Forced { .. } => {
            let ended = stepped_down(args.group.as_str(), ended);
            format!("{ended}; the group is deleted when it has stopped")
        }
    })?;
    Ok(Exit::Done)
}

/// Lists page by page: as text when all is known, as JSON one page per line.
async fn list(args: ListArgs) -> CommandResult {
    let (remote, screen) = (args.client.remote()?, Screen::chosen());
    let mut query = GroupsQuery {
        prefix: args.prefix,
        after: None,
        count: u32::try_from(GROUPS_PAGE_MAX).ok(),
    };
    let mut offices = Vec::new();
    loop {
        let page: GroupsResponse = remote.list_groups(&query).await?;
        query.after.clone_from(&page.next);
        match screen.output {
            Output::Json => screen.line(&json(&page))?,
            Output::Text => offices.extend(page.groups),
        }
        if query.after.is_none() {
            break;
        }
    }
    if screen.output == Output::Text {
        screen.line(&if offices.is_empty() {
            "there are no groups; the first campaign in one creates it".to_owned()
        } else {
            office_table(offices.iter())
        })?;
    }
    Ok(Exit::Done)
}

fn shown(group: &GroupResponse) -> String {
    let mut about = office_facts(&group.office);
    if let Some(cause) = group.ending {
        about.push(("ending", cause.to_string()));
    }
    match &group.door {
        // Where it moved to is told with its office.
        DoorBody::Open | DoorBody::Moved { .. } => {}
        DoorBody::Expected { from, .. } => about.push(("expected from", from.to_string())),
        DoorBody::Stopped { since } => {
            about.push(("stopped", format!("for recovery, since revision {since}")));
        }
    }
    about.extend(policy_facts(&group.policy, group.own_policy));
    about.push(("in line", group.standbys_count.to_string()));
    let mut text = facts(about);
    if !group.standbys.is_empty() {
        let rows = group.standbys.iter().enumerate().map(|(place, standby)| {
            vec![
                (place + 1).to_string(),
                standby.node_id.to_string(),
                standby.priority.to_string(),
                yes(standby.silent),
            ]
        });
        let head = [
            ("place", Side::Right),
            ("standby", Side::Left),
            ("priority", Side::Right),
            ("silent", Side::Left),
        ];
        text.push_str("\n\n");
        text.push_str(&table(&head, rows.collect()));
    }
    text
}
