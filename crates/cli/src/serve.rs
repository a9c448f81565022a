//! `regent serve`: the service on a store, until it is told to end.
//!
//! The only place that chooses concrete things: which store, where it listens, what is logged.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use regent_election::Settings as StoreSettings;
use regent_election::error_text::plain;
use regent_election::store::{Description, Store};
use regent_recording::{DIRECTORY, Owner, Recorder};
use regent_replica::Tape;
use regent_replica::disk::Identity;
use regent_server::{Auth, Listener, ServerConfig};
use regent_service::{ReplicaOptions, Service, holds_replica, reachable, socket};
use regent_stores::register::RegisterError;
use regent_stores::{MemoryError, MemoryOptions, OpenError, open_register, open_url_with};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};

use crate::alarm;
use crate::client::SERVER_DEFAULT;
use crate::config::{Effective, Key, Origin, STORE_DEFAULT, Settings, misspelt};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::logs::{self, LogArgs};
use crate::memory;
use crate::output::remark;
use crate::settings::SettingsArgs;
use crate::signals::{Signals, unheard};
use crate::tape::FlightTape;

const EXAMPLES: &str = "\
Examples:
  regent serve                                        # durable, on loopback
  regent serve --store memory:                        # to try things; nothing survives
  regent serve --listen 127.0.0.1:7500 --data-dir ./data
  regent serve --config regent.toml
  REGENT_LOG_FORMAT=json regent serve

Every flag is also an environment variable (REGENT_LISTEN) and a setting in a file (listen).
A flag beats the environment, which beats the file: see `regent config show --origin`.
The first SIGINT or SIGTERM ends the server in order, a second one at once.";

/// Flags of `regent serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// End in order when standard input ends: whoever started this process is gone
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Serves until a signal.
pub(crate) async fn run(args: ServeArgs, log: &LogArgs) -> CommandResult {
    // A debug build is for tests, which build everything at once; only `lab mutants` ever switches a mistake on.
    if cfg!(all(feature = "mutants", not(debug_assertions))) {
        let why = "this binary was built with deliberate mistakes (feature mutants) and must not serve anybody; build it without";
        return Err(Failure::new(Exit::Refused, why));
    }
    let effective = args.settings.resolve(log)?;
    let settings = effective.settings()?;
    logs::start(&settings.log_level, &settings.log_format);
    tell_origins(&effective);
    let mut signals = Signals::listen()?;
    effective.check_exposure()?;
    let (listener, address) = listen(settings.listen)?;
    let [peers, clients] =
        on_hangup(settings.replica.certificates.is_some() || settings.tls.is_some())?;
    let service = open(&settings, address, peers).await?;
    let listener = match &settings.tls {
        Some(port) => service.secured(listener, port, clients)?,
        None => Listener::from(listener),
    };
    let mut listeners = vec![listener];
    // Held so that the file goes with this process.
    let _socket = match settings.socket.as_deref().map(socket::listen).transpose() {
        Ok(None) => None,
        Ok(Some((listener, file))) => {
            listeners.push(listener.into());
            Some(file)
        }
        Err(error) => return Err(Failure::new(Exit::Config, format!("socket: {error}"))),
    };
    warn(&settings, address, &service.describe());
    let is_guarded = settings.server.auth == Auth::Required;
    greet(address, settings.tls.is_some(), is_guarded, &service.describe());
    memory::give_back();

    let on_split_brain = settings.on_split_brain.map(alarm::command);
    let service = service.with_config(ServerConfig { on_split_brain, ..settings.server });
    let start = |ending| service.serve(listeners, ending);
    let ended = signals.serve(start, stdin_ends(args.until_stdin_ends)).await?;
    ended.map(|()| Exit::Done).map_err(|error| Failure::new(Exit::Config, error.to_string()))
}

/// Waits for the end of standard input, if that is to be waited for.
async fn stdin_ends(is_awaited: bool) {
    if !is_awaited {
        return std::future::pending().await;
    }
    let (tell, told) = oneshot::channel();
    // A thread of its own: nothing waits for it when the process ends.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = tell.send(());
    });
    let _ = told.await;
    tracing::info!("standard input ended");
}

/// Listens, and says where: port 0 stands for any that is free.
pub(crate) fn bind(wanted: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = regent_server::bind(wanted)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    bind(wanted).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Exit::Unavailable,
            format!("{wanted} is in use; stop what listens there, or choose another with --listen"),
        ),
        io::ErrorKind::PermissionDenied => Failure::new(
            Exit::Config,
            format!(
                "{wanted} may not be used by this user; choose a port above 1023 with --listen"
            ),
        ),
        io::ErrorKind::AddrNotAvailable => Failure::new(
            Exit::Config,
            format!("{wanted} is no address of this machine; choose another with --listen"),
        ),
        _ => Failure::new(Exit::Unavailable, format!("{wanted}: {}", plain(&error))),
    })
}

/// Opens the store. Only here is decided which.
async fn open(
    settings: &Settings,
    address: SocketAddr,
    reload: Arc<Notify>,
) -> Result<Service, Failure> {
    if let Some(directory) = settings.store.strip_prefix(STORE_DEFAULT) {
        let directory =
            if directory.is_empty() { settings.data_dir.clone() } else { directory.into() };
        let flight_bytes = settings.flight_bytes;
        let options = ReplicaOptions {
            replica: settings.replica.clone(),
            store: settings.store_settings.clone(),
            tape: Some(Box::new(move |directory, identity| {
                tape(directory, flight_bytes, identity)
            })),
            reload,
            ..ReplicaOptions::new(directory, address)
        };
        return Ok(Service::on_replica(options).await?);
    }
    Ok(Service::on_store(open_other(settings, &settings.store).await?))
}

/// Both are told whenever `SIGHUP` says that certificates are to be read again. Without any, the signal ends the
/// process as it always does.
pub(crate) fn on_hangup(has_certificates: bool) -> Result<[Arc<Notify>; 2], Failure> {
    let told = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    if !has_certificates {
        return Ok(told);
    }
    let mut hangups = signal(SignalKind::hangup()).map_err(|error| unheard(&error))?;
    let tell = told.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            tell.iter().for_each(|one| one.notify_one());
        }
    });
    Ok(told)
}

/// Starts the flight recorder, if one is wanted. A replica without one serves all the same.
fn tape(directory: &Path, bytes_max: u64, identity: Identity) -> Option<Arc<dyn Tape>> {
    if bytes_max == 0 {
        return None;
    }
    let owner = Owner { cluster: identity.cluster, replica: identity.replica.get() };
    match Recorder::start(&directory.join(DIRECTORY), bytes_max, owner) {
        Ok(recorder) => Some(Arc::new(FlightTape(recorder))),
        Err(error) => {
            tracing::warn!(%error, "the flight recorder cannot start; nothing is recorded");
            None
        }
    }
}

/// A store of this process alone, or of others.
async fn open_other(settings: &Settings, url: &str) -> Result<Arc<dyn Store>, Failure> {
    if let Some(directory) = url.strip_prefix("file://") {
        refuse_replica(Path::new(directory))?;
    }
    let options = MemoryOptions {
        settings: Some(settings.store_settings.clone()),
        state_budget: settings.replica.state_budget,
        ..MemoryOptions::default()
    };
    let store = open_url_with(url, options).map_err(unopened)?;
    // A store of this process has nothing to examine.
    if let Ok(register) = open_register(url) {
        match register.examine().await {
            Ok(warnings) => warnings.iter().for_each(|warning| {
                remark(&format!(
                    "WARNING: {} is weaker than it looks: {warning}",
                    register.describe().name
                ));
            }),
            Err(error @ RegisterError::Unfit { .. }) => return Err(unfit(&error)),
            // It may come later: the service says itself that it is not ready.
            Err(error) => remark(&format!("WARNING: the store cannot be examined: {error}")),
        }
        register.shut_down().await;
        if settings.store_settings != StoreSettings::default() {
            remark(
                "WARNING: auto_create, groups_max, ttl_min and ttl_max hold for our own stores only",
            );
        }
    }
    Ok(store)
}

/// A register of files must not begin beside a replica.
fn refuse_replica(directory: &Path) -> Result<(), Failure> {
    if !holds_replica(directory)? {
        return Ok(());
    }
    let shown = directory.display();
    let why = format!(
        "{shown} holds a replica; serve it with --store replica:{shown}, or choose another directory"
    );
    Err(Failure::new(Exit::Config, why))
}

/// A store that must not keep elections: no waiting helps, only another store.
pub(crate) fn unfit(error: &RegisterError) -> Failure {
    Failure::new(Exit::Config, format!("store: {error}; choose another store"))
}

/// Why a store cannot be opened, by what an operator may do.
pub(crate) fn unopened(error: OpenError) -> Failure {
    let message = error.to_string();
    match error {
        OpenError::Unknown { .. } => Failure::new(
            Exit::Config,
            format!("store: {message}, and replica: (our own, the default)"),
        ),
        OpenError::NotBuiltIn { .. }
        | OpenError::Url { .. }
        | OpenError::NoRegister { .. }
        | OpenError::Removed => Failure::new(Exit::Config, format!("store: {message}")),
        OpenError::Memory(MemoryError::Settings(_)) => Failure::new(Exit::Config, message),
        OpenError::Memory(MemoryError::System { .. }) => Failure::new(Exit::Unavailable, message),
    }
}

fn tell_origins(effective: &Effective) {
    if let Some(file) = &effective.file {
        tracing::info!(file = %file.display(), "settings read");
    }
    for (key, value, origin) in effective.iter() {
        if *origin != Origin::Default {
            tracing::debug!(%key, %value, %origin, "set");
        }
    }
    let names: Vec<String> =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    for (name, meant) in misspelt(names.iter().map(String::as_str)) {
        remark(&format!("warning: ${name} is no setting; did you mean ${meant}?"));
    }
    let is_elsewhere = effective.text(Key::Store).as_str() != STORE_DEFAULT;
    if is_elsewhere && *effective.origin(Key::DataDir) != Origin::Default {
        remark("warning: data_dir is not used, because store names another place");
    }
}

/// What an operator must not overlook.
fn warn(settings: &Settings, address: SocketAddr, store: &Description) {
    if !address.ip().is_loopback() && settings.server.auth == Auth::Off {
        remark(&format!(
            "WARNING: {address} can be reached from other machines, and auth is off: \
             whoever can connect can end any leadership; keep it on a network you trust"
        ));
        tracing::warn!(%address, "INSECURE: clients of other machines are not authenticated");
    }
    if !address.ip().is_loopback() && settings.tls.is_none() {
        remark(&format!(
            "WARNING: {address} can be reached from other machines without encryption: tokens and sessions can be read on the way; set tls_cert and tls_key, or put a TLS proxy in front"
        ));
    }
    if settings.server.auth == Auth::Required
        && let Some(socket) = &settings.socket
    {
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
        remark(&format!(
            "callers need a credential; administer on this machine with --server unix://{}",
            socket.display()
        ));
    }
    if store.name == "memory" {
        remark(&format!(
            "WARNING: store {} keeps everything in this process: nothing survives its end, not even terms",
            settings.store
        ));
    }
}

/// A few lines for whoever started it. Nothing depends on their being read.
fn greet(address: SocketAddr, is_tls: bool, is_guarded: bool, store: &Description) {
    let scheme = if is_tls { "https" } else { "http" };
    let url = format!("{scheme}://{}", reachable(address));
    // Who has logged in elsewhere would try it there.
    let is_default = url == SERVER_DEFAULT && regent::remote::Context::current_name().is_none();
    let server = if is_default { String::new() } else { format!(" --server {url}") };
    let version = env!("CARGO_PKG_VERSION");
    let place = match store.name {
        "memory" => "data is in memory".to_owned(),
        _ => format!("data is in {}", store.place),
    };
    let caveat = store.caveat.as_ref().map(|caveat| format!("\n{caveat}")).unwrap_or_default();
    let verbs = ["campaign billing --node a", "leader billing", "watch"];
    let tries = verbs.map(|verb| format!("  regent {verb}{server}\n")).concat();
    // They would need a credential, or a CA.
    let tries =
        if is_tls || is_guarded { "" } else { &format!("try in another terminal:\n{tries}") };
    let (name, level) = (store.name, &store.level);
    let lines =
        format!("regent {version} listens on {url}\n{place} ({name}, {level}){caveat}\n{tries}");
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
}
