//! A MariaDB with a data folder of its own.

use std::process::Command;

use crate::certificates::Certificates;
use crate::{Process, Server, Skip, folder, free_port, need, starting, version, words};

/// Starts one, or takes the one of `REGENT_TEST_MYSQL_URL`.
pub fn mysql() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_MYSQL_URL").map_or_else(|| starting(own), Ok)
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
    let (install, program) = (need("mariadb-install-db")?, need("mariadbd")?);
    let admin = need("mariadb")?;
    let (folder, port) = (folder(), free_port());
    let data = format!("--datadir={}", folder.path().join("data").display());
    let socket = folder.path().join("socket").display().to_string();
    let who = Command::new("id").arg("-un").output().map_err(|error| error.to_string())?;
    let user = format!("--user={}", String::from_utf8_lossy(&who.stdout).trim());
    let made = Command::new(&install)
        .args(["--no-defaults", &data, &user, "--skip-test-db"])
        .arg("--auth-root-authentication-method=normal")
        .output()
        .map_err(|error| error.to_string())?;
    if !made.status.success() {
        return Err(format!("no database: {}", String::from_utf8_lossy(&made.stderr)));
    }
    let (listen, at) = (format!("--port={port}"), format!("--socket={socket}"));
    let mut command = words(
        &program,
        ["--no-defaults", &user, &data, "--bind-address=127.0.0.1", &listen, &at, "--skip-log-bin"],
    );
    let mut needs = "";
    if let Some(certificates) = tls {
        certificates.put_into(folder.path())?;
        needs = " REQUIRE X509";
        command.push("--require-secure-transport=ON".into());
        for (flag, file) in [("cert", "server.crt"), ("key", "server.key"), ("ca", "ca.crt")] {
            command.push(format!("--ssl-{flag}={}", folder.path().join(file).display()).into());
        }
    }
    let asked = admin.clone();
    let process = Process::start(folder, command, move || {
        let make = format!(
            "CREATE DATABASE IF NOT EXISTS regent; \
             CREATE USER IF NOT EXISTS regent@'%' IDENTIFIED BY 'se:cr@t'{needs}; \
             GRANT ALL ON regent.* TO regent@'%'; GRANT PROCESS ON *.* TO regent@'%';"
        );
        let mut command = Command::new(&asked);
        command.args(["--no-defaults", "-uroot", "-S", &socket, "-e", &make]);
        command.output().is_ok_and(|output| output.status.success())
    })?;
    let version = version(&program, "--version");
    let number = version.split_whitespace().find(|word| word.starts_with(char::is_numeric));
    let number = number.unwrap_or("?").split('-').next().unwrap_or("?");
    Ok(Server {
        url: format!("mysql://regent:se%3Acr%40t@127.0.0.1:{port}/regent"),
        version: format!("MariaDB {number}"),
        processes: vec![process],
    })
}
