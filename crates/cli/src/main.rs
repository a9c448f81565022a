//! The command `regent`: a table of contents. Every verb is a file of the same name.

mod alarm;
mod audit;
mod auth;
mod bench;
mod campaign;
mod client;
mod cluster;
mod completions;
mod config;
mod confirm;
mod context;
mod dev;
mod doctor;
mod duration;
mod exit;
mod failure;
mod fence;
mod groups;
mod history;
mod keep;
mod lab;
mod leader;
mod logs;
mod memory;
mod migrate;
mod output;
mod peer;
mod policy;
mod record;
mod renew;
mod resign;
#[cfg(target_os = "linux")]
mod run;
mod secret;
mod serve;
mod sessions;
mod settings;
mod signals;
mod status;
mod step_down;
mod store;
mod tape;
mod tls;
mod token;
mod transfer;
mod wall;
mod watch;
mod why;
mod withdraw;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use exit::Exit;
use failure::{CommandResult, Failure};
use logs::LogArgs;
use output::{Output, OutputArgs, Screen, json, remark};
use regent::remote::{Credential, TlsFiles};
use regent_tether::shell;

/// A request is a dozen small allocations, made by one thread and freed by another: the system's
/// allocator takes a fifth of a server's time for that (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Elects exactly one leader in a group of processes, and tells everyone who it is.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "regent",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  regent serve
  regent dev
  regent campaign billing --node web-1 --session-file web-1.session
  regent leader billing
  regent watch billing
  regent run --group billing -- ./billing

`regent help VERB` says more about a verb, `regent help exit-codes` what a script may conclude."
)]
struct Cli {
    #[command(flatten)]
    log: LogArgs,
    /// The file of the bearer token shown to servers [env: REGENT_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server and output")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// The file of the CAs by which servers are believed, in place of the system's [env: REGENT_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server and output")]
    ca: Option<PathBuf>,
    /// The file of the client certificate shown to servers [env: REGENT_CERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server and output")]
    cert: Option<PathBuf>,
    /// The file of its key [env: REGENT_CERT_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server and output")]
    cert_key: Option<PathBuf>,
    /// The context whose servers are asked, instead of the current one [env: REGENT_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server and output")]
    context: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// Run the service
    Serve(Box<serve::ServeArgs>),
    /// Run a whole cluster on this machine, to try things out
    Dev(dev::DevArgs),
    /// Win the leadership of a group, or hear who has it
    Campaign(campaign::CampaignArgs),
    /// Run a program while leading, and not a moment longer
    #[cfg(target_os = "linux")]
    Run(Box<run::RunArgs>),
    /// Storeless election (bully, ring): two leaders are possible
    Peer(Box<peer::PeerArgs>),
    /// Keep a leadership alive and prove it
    Renew(renew::RenewArgs),
    /// Give a leadership up
    Resign(resign::ResignArgs),
    /// Hand a leadership to a named standby
    Transfer(transfer::TransferArgs),
    /// Leave the line, or the office
    Withdraw(withdraw::WithdrawArgs),
    /// What is wrong, and what to do
    Status(status::StatusArgs),
    /// The versions of this command and of the servers
    Version(status::VersionArgs),
    /// Say who leads
    Leader(leader::LeaderArgs),
    /// Tell every change of who leads
    Watch(watch::WatchArgs),
    /// Groups and what is allowed in them
    #[command(subcommand)]
    Group(groups::GroupVerb),
    /// End a leadership as an operator
    StepDown(step_down::StepDownArgs),
    /// Show the last changes of a group and their causes
    History(history::HistoryArgs),
    /// Explain why a group is led as it is
    Why(why::WhyArgs),
    /// Print what the flight recorder of a replica has kept
    Record(record::RecordArgs),
    /// Fencing tokens: the current one, whether one may still write, what was admitted
    #[command(subcommand)]
    Token(token::TokenVerb),
    /// Sessions by hand
    #[command(subcommand)]
    Session(sessions::SessionVerb),
    /// Create and manage a cluster of our own replicated store
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// The engines that can keep elections
    #[command(subcommand)]
    Store(store::StoreVerb),
    /// Find out whether a deployment may be trusted with elections
    Doctor(doctor::DoctorArgs),
    /// Compare terms where the write lands
    #[command(subcommand)]
    Fence(fence::FenceVerb),
    /// Move a group to another store, with its leader and above its terms
    Migrate(Box<migrate::MigrateArgs>),
    /// Keep servers and a credential under a name, and use them from now on
    Login(context::LoginArgs),
    /// Forget a context and the token that was kept for it
    Logout(context::OneArgs),
    /// The contexts of this user: servers and credentials under a name
    #[command(subcommand)]
    Context(context::ContextVerb),
    /// Who may do what, and the tokens by which callers are known
    #[command(subcommand)]
    Auth(auth::AuthVerb),
    /// Who changed what and who was denied, from a server's files, and whether they are complete
    #[command(subcommand)]
    Audit(audit::AuditVerb),
    /// Certificates for mutual TLS between replicas
    #[command(subcommand)]
    Tls(tls::TlsVerb),
    /// Show the settings of the service
    #[command(subcommand)]
    Config(settings::ConfigVerb),
    /// The simulator: whole clusters in virtual time under faults
    #[command(subcommand)]
    Lab(lab::LabVerb),
    /// Measure what elections cost a running service
    Bench(bench::BenchArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// What a script may conclude from the exit code
    #[command(after_help = exit_codes_help())]
    ExitCodes,
}

fn exit_codes_help() -> String {
    format!(
        "{}\nExamples:\n  regent leader billing || echo \"exit code $?\"\n  regent exit-codes",
        exit::table()
    )
}

fn main() -> ExitCode {
    // The guard of a program that runs: the same binary, and nothing else of it.
    #[cfg(target_os = "linux")]
    if let Some(code) = regent_supervise::guard::entry() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    cli.output.choose();
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            complain(&failure);
            failure.exit.into()
        }
    }
}

/// Whoever keeps secrets of others, or keeps a program in check, cannot be traced by it.
#[cfg(target_os = "linux")]
fn keep_private(verb: &Verb) -> Result<(), Failure> {
    let is_private = matches!(verb, Verb::Serve(_) | Verb::Run(_))
        || matches!(verb, Verb::Fence(verb) if verb.serves_many());
    if is_private && let Err(error) = regent_tether::keep_private() {
        let why = format!("this process cannot be kept from being traced: {error}");
        return Err(Failure::new(Exit::Unavailable, why));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
const fn keep_private(_: &Verb) -> Result<(), Failure> {
    Ok(())
}

fn run(cli: Cli) -> CommandResult {
    if let Some(path) = &cli.token_file {
        let credential = Credential::file(path)
            .map_err(|error| Failure::usage(format!("--token-file: {error}")))?;
        credential.set_default();
    }
    TlsFiles { ca: cli.ca.clone(), certificate: cli.cert.clone(), key: cli.cert_key.clone() }
        .set_default();
    client::choose_context(cli.context.clone());
    let is_service = matches!(cli.verb, Verb::Serve(_));
    keep_private(&cli.verb)?;
    if !is_service {
        cli.log.start()?;
    }
    let serves_many = is_service || matches!(&cli.verb, Verb::Fence(verb) if verb.serves_many());
    let mut builder = if serves_many {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("no runtime: {error}")))?;
    let outcome = runtime.block_on(cli.verb.run(&cli.log));
    runtime.shutdown_background();
    outcome
}

impl Verb {
    async fn run(self, log: &LogArgs) -> CommandResult {
        match self {
            Self::Serve(args) => serve::run(*args, log).await,
            Self::Dev(args) => dev::run(args).await,
            Self::Campaign(args) => campaign::run(args).await,
            #[cfg(target_os = "linux")]
            Self::Run(args) => run::run(*args).await,
            Self::Peer(args) => peer::run(*args).await,
            Self::Renew(args) => renew::run(args).await,
            Self::Resign(args) => resign::run(args).await,
            Self::Transfer(args) => transfer::run(args).await,
            Self::Withdraw(args) => withdraw::run(args).await,
            Self::Status(args) => status::run(args).await,
            Self::Version(args) => status::version(args).await,
            Self::Leader(args) => leader::run(args).await,
            Self::Watch(args) => watch::run(args).await,
            Self::Group(verb) => groups::run(verb).await,
            Self::StepDown(args) => step_down::run(args).await,
            Self::History(args) => history::run(args).await,
            Self::Why(args) => why::run(args).await,
            Self::Record(args) => record::run(&args),
            Self::Token(verb) => token::run(verb).await,
            Self::Session(verb) => sessions::run(verb).await,
            Self::Cluster(verb) => cluster::run(verb, log).await,
            Self::Store(verb) => store::run(&verb),
            Self::Doctor(args) => doctor::run(args).await,
            Self::Fence(verb) => fence::run(verb).await,
            Self::Migrate(args) => migrate::run(*args).await,
            Self::Login(args) => context::log_in(args).await,
            Self::Logout(args) => context::log_out(args),
            Self::Context(verb) => context::run(verb),
            Self::Auth(verb) => auth::run(verb).await,
            Self::Audit(verb) => audit::run(&verb),
            Self::Tls(verb) => tls::run(&verb),
            Self::Config(verb) => settings::run(&verb, log),
            Self::Lab(verb) => lab::run(verb).await,
            Self::Bench(args) => bench::run(args).await,
            Self::Completions(args) => completions::run(&args),
            Self::ExitCodes => {
                Screen { output: Output::Text }.line(&exit::table())?;
                Ok(Exit::Done)
            }
        }
    }
}

/// One sentence for a person and, if asked for, the same as an object for a program.
fn complain(failure: &Failure) {
    let Some(message) = &failure.message else { return };
    remark(message);
    if Output::chosen() == Output::Json {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr().lock(),
            format!("{}\n", json(&failure.to_json())).as_bytes(),
        );
    }
}

/// The command as clap knows it, for completions and tests.
fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests;
