//! A PostgreSQL with its own cluster of databases, syncing as it should.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::certificates::Certificates;
use crate::{Process, Server, Skip, find, folder, free_port, need, starting, version, words};

/// Starts one, or takes the one of `REGENT_TEST_POSTGRES_URL`; of one that many tests share, a database of
/// its own for each: fences are tables and functions, and would meet each other.
pub fn postgres() -> Result<Server, Skip> {
    let Some(mut server) = Server::given("REGENT_TEST_POSTGRES_URL") else {
        return starting(own);
    };
    if crate::is_shared() {
        let database = format!("test_{}", std::process::id());
        let make = format!("CREATE DATABASE {database}");
        let made = Command::new(program("psql")?).args(["-qc", &make, &server.url]).output();
        let made = made.map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let host = server.url.rsplit_once('/').map_or("", |(host, _)| host).to_owned();
        server.url = format!("{host}/{database}");
    }
    Ok(server)
}

/// A program of the server, which distributions keep off the PATH, one folder for each version.
fn program(name: &str) -> Result<PathBuf, Skip> {
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name)))
        .filter(|file| file.is_file())
        .collect();
    versions.sort();
    versions.pop().map_or_else(|| need(name), Ok)
}

/// The words before a command that must not run as root.
fn as_nobody_special() -> Result<Vec<std::ffi::OsString>, Skip> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let setpriv =
        find("setpriv").ok_or("PostgreSQL refuses to run as root, and there is no setpriv")?;
    // Last of all, the kernel's promise to end the server with the test: a change of user takes it back.
    let drop =
        ["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig", "KILL", "--"];
    Ok(words(&setpriv, drop))
}

fn give_to_postgres(folder: &Path) -> Result<(), Skip> {
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").arg("-R").arg("postgres").arg(folder).status();
        if !given.is_ok_and(|status| status.success()) {
            return Err("there is no user postgres to run it as".into());
        }
    }
    Ok(())
}

/// Starts one of our own.
pub fn own() -> Result<Server, Skip> {
    start(None)
}

/// Starts one of our own that lets nobody in without TLS and a certificate of its CA. Its URL says nothing of TLS.
pub fn with_tls(certificates: &Certificates) -> Result<Server, Skip> {
    start(Some(certificates))
}

fn start(tls: Option<&Certificates>) -> Result<Server, Skip> {
    let (initdb, postgres) = (program("initdb")?, program("postgres")?);
    let (folder, port) = (folder(), free_port());
    give_to_postgres(folder.path())?;
    let data = folder.path().join("data").display().to_string();
    let mut init = as_nobody_special()?;
    init.extend(words(&initdb, ["-D", &data, "-A", "trust", "-U", "postgres", "-N"]));
    let made =
        Command::new(&init[0]).args(&init[1..]).output().map_err(|error| error.to_string())?;
    if !made.status.success() {
        return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr)));
    }
    let mut settings = Vec::new();
    if let Some(certificates) = tls {
        certificates.put_into(folder.path())?;
        let rules = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n";
        std::fs::write(folder.path().join("data/pg_hba.conf"), rules)
            .map_err(|error| error.to_string())?;
        let file = |name: &str| folder.path().join(name).display().to_string();
        for (setting, file) in [
            ("ssl_cert_file", file("server.crt")),
            ("ssl_key_file", file("server.key")),
            ("ssl_ca_file", file("ca.crt")),
        ] {
            settings.push(format!("{setting}={file}"));
        }
        settings.push("ssl=on".to_owned());
        give_to_postgres(folder.path())?;
    }
    let listen = port.to_string();
    let sockets = format!("unix_socket_directories={}", folder.path().display());
    let mut command = as_nobody_special()?;
    command.extend(words(
        &postgres,
        ["-D", &data, "-p", &listen, "-c", "listen_addresses=127.0.0.1", "-c", &sockets],
    ));
    command.extend(settings.into_iter().flat_map(|setting| ["-c".into(), setting.into()]));
    let is_ready = program("pg_isready")?;
    let process = Process::start(folder, command, move || {
        let asked = Command::new(&is_ready).args(["-q", "-h", "127.0.0.1", "-p", &listen]).status();
        asked.is_ok_and(|status| status.success())
    })?;
    let version = version(&postgres, "--version");
    let number = version.split_whitespace().find(|word| word.starts_with(char::is_numeric));
    Ok(Server {
        url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        version: format!("PostgreSQL {}", number.unwrap_or("?")),
        processes: vec![process],
    })
}
