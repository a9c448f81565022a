//! An etcd, of one member or of three.

use std::process::Command;

use crate::certificates::Certificates;
use crate::{Process, Server, Skip, folder, free_port, need, starting, version, words};

/// Starts one of one member, or takes the one of `REGENT_TEST_ETCD_URL`.
pub fn etcd() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_ETCD_URL").map_or_else(|| starting(|| own(1)), Ok)
}

/// Starts a cluster of our own with so many members.
pub fn own(members: usize) -> Result<Server, Skip> {
    let program = need("etcd")?;
    let ports: Vec<_> = (0..members).map(|_| (free_port(), free_port())).collect();
    let cluster: Vec<_> = ports
        .iter()
        .enumerate()
        .map(|(number, (_, peer))| format!("m{number}=http://127.0.0.1:{peer}"))
        .collect();
    let cluster = cluster.join(",");
    let mut processes = Vec::new();
    for (number, (port, peer)) in ports.iter().enumerate() {
        let folder = folder();
        let (name, data) = (format!("m{number}"), folder.path().join("data").display().to_string());
        let (client, peer) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let mut command =
            words(&program, ["--name", &name, "--data-dir", &data, "--log-level", "error"]);
        for (flag, value) in [
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &cluster),
        ] {
            command.extend([flag.into(), value.into()]);
        }
        let health = format!("{client}/health");
        processes.push(Process::begin(folder, command, move || {
            let asked = Command::new("curl").args(["-fsS", "-m", "2", &health]).output();
            asked.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("true"))
        })?);
    }
    for process in &mut processes {
        process.wait_until_ready()?;
    }
    let servers: Vec<_> = ports.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
    let said = version(&program, "--version");
    let number = said.split_whitespace().last().unwrap_or("?");
    let count = if members == 1 { String::new() } else { format!("{members} x ") };
    Ok(Server {
        url: format!("etcd://{}", servers.join(",")),
        version: format!("{count}etcd {number}"),
        processes,
    })
}

/// Starts one of one member that speaks TLS alone and asks for a certificate of its CA. Its URL says nothing of TLS.
pub fn with_tls(certificates: &Certificates) -> Result<Server, Skip> {
    let program = need("etcd")?;
    let (folder, port, health) = (folder(), free_port(), free_port());
    certificates.put_into(folder.path())?;
    let mut command =
        words(&program, ["--data-dir", "data", "--log-level", "error", "--client-cert-auth"]);
    let (client, peer) =
        (format!("https://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()));
    let metrics = format!("http://127.0.0.1:{health}");
    for (flag, value) in [
        ("--cert-file", "server.crt"),
        ("--key-file", "server.key"),
        ("--trusted-ca-file", "ca.crt"),
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &format!("default={peer}")),
        ("--listen-metrics-urls", &metrics),
    ] {
        command.extend([flag.into(), value.into()]);
    }
    let process = Process::start(folder, command, move || {
        let health = format!("{metrics}/health");
        let asked = Command::new("curl").args(["-fsS", "-m", "2", &health]).output();
        asked.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("true"))
    })?;
    let said = version(&program, "--version");
    Ok(Server {
        url: format!("etcd://127.0.0.1:{port}"),
        version: format!("etcd {}", said.split_whitespace().last().unwrap_or("?")),
        processes: vec![process],
    })
}

/// How many requests of clients a server of one member has received, by the server's own count: every call of the
/// services for keys and for leases. A stream counts once, which is what a single keep-alive is. Watches are not
/// counted: one lasts as long as its connection.
///
/// # Panics
/// If the server does not show its metrics.
pub fn requests(server: &Server) -> u64 {
    let place = server.url.strip_prefix("etcd://").expect("the URL of an etcd");
    let url = format!("http://{place}/metrics");
    let asked = Command::new("curl").args(["-fsS", "-m", "10", &url]).output();
    let shown = asked.expect("curl runs").stdout;
    let shown = String::from_utf8_lossy(&shown);
    let counts: Vec<u64> = shown
        .lines()
        .filter(|line| line.starts_with("grpc_server_started_total{"))
        .filter(|line| {
            ["etcdserverpb.KV", "etcdserverpb.Lease"]
                .iter()
                .any(|service| line.contains(&format!("grpc_service=\"{service}\"")))
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert!(!counts.is_empty(), "no counts of requests at {url}");
    counts.into_iter().sum()
}
