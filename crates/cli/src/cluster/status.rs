//! `regent cluster status`: who is there, who leads the log, how far everybody is.

use clap::Args;
use regent_api::{ClusterMember, ClusterResponse, ClusterTuning, ReplicaTimers};

use crate::client::ClientArgs;
use crate::duration::show_ms;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Screen, Side, facts, or_dash, remark, table};

/// False elections a year that time-outs which suit a network may have: one a week.
const PER_YEAR_MAX: u64 = 53;

/// Flags of `regent cluster status`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster status
  regent cluster status --server http://10.0.0.1:7400,http://10.0.0.2:7400 --output json

How far the others are only the leading replica knows, so it is asked if it can be reached. A
replica is `late` if it answers pings and not the log's messages, and `silent` if it answers
nothing.
Exit code 1 says that the cluster has no quorum, or that the replica that answers was removed.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Prints the cluster.
pub(crate) async fn run(args: StatusArgs) -> CommandResult {
    let answer = args.client.remote()?.cluster_by_leader().await?;
    for warning in &answer.warnings {
        remark(&format!("warning: {warning}"));
    }
    Screen::chosen().answer(&answer, || shown(&answer))?;
    Ok(if answer.can_decide() { Exit::Done } else { Exit::No })
}

/// The cluster for people.
pub(super) fn shown(cluster: &ClusterResponse) -> String {
    let leader = match (cluster.leader, &cluster.leader_address) {
        (Some(leader), Some(address)) => format!("replica {leader} at {address}"),
        (Some(leader), None) => format!("replica {leader}"),
        (None, _) => "-".to_owned(),
    };
    let mut about = vec![
        ("cluster", cluster.cluster_id.clone()),
        ("leader", leader),
        ("quorum", format!("{} of {}", cluster.quorum, cluster.voters)),
        ("health", cluster.health()),
        ("applied", format!("{} of {}", cluster.applied_index, cluster.committed_index)),
    ];
    if let Some(left_ms) = cluster.grants_paused_for_ms {
        let left = show_ms(left_ms.next_multiple_of(1000));
        about.push(("restored", format!("grants nothing for another {left}")));
    }
    if cluster.changing {
        about.push(("members", "a change is under way".into()));
    }
    about.extend(cluster.tuning.iter().flat_map(tuning));
    let mut text = facts(about);
    text.push_str("\n\n");
    text.push_str(&members(&cluster.members));
    text
}

/// How the time-outs of the answering replica suit what it measured.
fn tuning(tuning: &ClusterTuning) -> Vec<(&'static str, String)> {
    let patience = |timers: &ReplicaTimers| {
        let (min, max) = (show_ms(timers.election_ms_min), show_ms(timers.election_ms_max));
        format!("elections after {min} to {max}, heartbeats every {}", show_ms(timers.heartbeat_ms))
    };
    let trips = format!(
        "{} measured; half within {}, 99 of 100 within {}",
        tuning.round_trips,
        tenths(tuning.round_trip_us_p50),
        tenths(tuning.round_trip_us_p99),
    );
    let pauses = match tuning.pauses {
        0 => "none".to_owned(),
        pauses => format!("{pauses}, up to {}", show_ms(tuning.pause_ms_max)),
    };
    let present = format!(
        "{}; {} false elections a year",
        patience(&tuning.present),
        tuning.false_elections_per_year
    );
    let better = match &tuning.better {
        None if tuning.false_elections_per_year > PER_YEAR_MAX => {
            "nothing more patient is looked at; mend what was measured".to_owned()
        }
        None => "these suit what was measured".to_owned(),
        Some(better) => {
            format!("{} ({} % of what is configured)", patience(better), better.patience_percent)
        }
    };
    vec![
        ("round trips", trips),
        ("pauses", pauses),
        ("time-outs", present),
        ("better", format!("{better}; tune = \"{}\"", tuning.mode.word())),
        ("why", tuning.why.clone()),
    ]
}

/// Microseconds as milliseconds with one decimal.
fn tenths(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

fn members(members: &[ClusterMember]) -> String {
    let rows = members.iter().map(|member| {
        let role = if member.leads { "leader" } else { member.kind.word() };
        let trip = member.round_trip_us.map(tenths);
        vec![
            member.id.to_string(),
            role.to_owned(),
            or_dash(member.state()),
            or_dash(member.matched_index),
            or_dash(trip),
            member.peer_address.clone(),
            member.client_address.clone(),
        ]
    });
    let head = [
        ("replica", Side::Right),
        ("role", Side::Left),
        ("state", Side::Left),
        ("matched", Side::Right),
        ("round trip", Side::Right),
        ("peers", Side::Left),
        ("clients", Side::Left),
    ];
    table(&head, rows.collect())
}
