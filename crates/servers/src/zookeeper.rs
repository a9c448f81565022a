//! A ZooKeeper, of one server or of three.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::certificates::{Certificates, NAME};
use crate::{Process, Server, Skip, folder, free_port, need, starting, words};

/// Where Debian's package puts it.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// With what its TLS needs and its manifest does not name.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:\
                       /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";

/// Starts one that is alone, or takes the one of `REGENT_TEST_ZOOKEEPER_URL`.
pub fn zookeeper() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_ZOOKEEPER_URL").map_or_else(|| starting(|| own(1)), Ok)
}

/// Starts an ensemble of our own with so many servers.
pub fn own(count: usize) -> Result<Server, Skip> {
    start(count, "", None)
}

/// Starts one that keeps sessions as short and as long as those of tests; by itself it keeps 2 to 20 ticks.
pub fn with_any_sessions(count: usize) -> Result<Server, Skip> {
    start(count, "minSessionTimeout=50\nmaxSessionTimeout=120000\n", None)
}

/// Starts one with a port for TLS, which asks for a certificate of its CA; its URL names that port and says nothing of
/// TLS. Beside it is a port in the clear, on which it is asked whether it is ready.
pub fn with_tls(certificates: &Certificates) -> Result<Server, Skip> {
    let port = free_port();
    let more = format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth=need\n\
         ssl.keyStore.type=PEM\nssl.keyStore.location=server.pem\n\
         ssl.trustStore.type=PEM\nssl.trustStore.location=ca.crt\n"
    );
    let mut server = start(1, &more, Some(certificates))?;
    server.url = format!("zookeeper://127.0.0.1:{port}");
    // The first handshake of a JVM takes seconds, more than a client waits for.
    for _ in 0..HANDSHAKES_MAX {
        if shakes_hands(port, certificates) {
            return Ok(server);
        }
    }
    Err("it speaks no TLS".to_owned())
}

/// Handshakes that are tried before a server counts as one that speaks no TLS.
const HANDSHAKES_MAX: usize = 5;

/// Whether it ends a handshake. What is said after it is no request to ZooKeeper.
fn shakes_hands(port: u16, certificates: &Certificates) -> bool {
    let mut asking = Command::new("curl");
    asking.args(["-s", "-m", "30", "-o", "/dev/null", "-w", "%{time_appconnect}"]);
    for (flag, file) in [("--cacert", "ca.crt"), ("--cert", "client.crt"), ("--key", "client.key")]
    {
        asking.arg(flag).arg(certificates.path(file));
    }
    let said = asking.arg(format!("https://{NAME}:{port}/")).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    said.is_ok_and(|seconds| seconds.parse().is_ok_and(|seconds: f64| seconds > 0.0))
}

fn start(count: usize, more: &str, tls: Option<&Certificates>) -> Result<Server, Skip> {
    let java = need("java")?;
    if !Path::new(JAR).is_file() {
        // The reason that was noted when it was looked for.
        need("zookeeper")?;
    }
    let ports: Vec<_> = (0..count).map(|_| (free_port(), free_port(), free_port())).collect();
    // Ticks of servers that are near to each other, on a machine that may be slow.
    let mut settings = "tickTime=500\ninitLimit=40\nsyncLimit=10\nadmin.enableServer=false\n\
                        clientPortAddress=127.0.0.1\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr,mntr,wchp\n"
        .to_owned();
    settings += more;
    if count > 1 {
        for (number, (_, peer, election)) in ports.iter().enumerate() {
            let _ = writeln!(settings, "server.{number}=127.0.0.1:{peer}:{election}");
        }
    }
    let mut processes = Vec::new();
    for (number, (port, ..)) in ports.iter().enumerate() {
        let (folder, port) = (folder(), *port);
        let data = folder.path().join("data");
        let written = std::fs::create_dir(&data)
            .and_then(|()| std::fs::write(data.join("myid"), number.to_string()))
            .and_then(|()| {
                let own = format!("{settings}clientPort={port}\ndataDir={}\n", data.display());
                std::fs::write(folder.path().join("zoo.cfg"), own)
            });
        written.map_err(|error| error.to_string())?;
        if let Some(certificates) = tls {
            certificates.put_into(folder.path())?;
            let read = |name: &str| std::fs::read_to_string(certificates.path(name));
            // Key and certificate in one file, as it wants them.
            let both = read("server.key").and_then(|key| Ok(key + &read("server.crt")?));
            both.and_then(|both| std::fs::write(folder.path().join("server.pem"), both))
                .map_err(|error| error.to_string())?;
        }
        let command = words(
            &java,
            [
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                CLASSES,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                "zoo.cfg",
            ],
        );
        processes.push(Process::begin(folder, command, move || said(port, "Mode: ").is_some())?);
    }
    for process in &mut processes {
        process.wait_until_ready()?;
    }
    let servers: Vec<_> = ports.iter().map(|(port, ..)| format!("127.0.0.1:{port}")).collect();
    let version = said(ports[0].0, "Zookeeper version: ").unwrap_or_default();
    let number = version.split(['-', ',']).next().unwrap_or("?");
    let many = if count == 1 { String::new() } else { format!("{count} x ") };
    Ok(Server {
        url: format!("zookeeper://{}", servers.join(",")),
        version: format!("{many}ZooKeeper {number}"),
        processes,
    })
}

/// What a server says of itself behind these words; none while it does not serve.
fn said(port: u16, words: &str) -> Option<String> {
    let said = told(port, "srvr")?;
    let line = said.lines().find_map(|line| line.strip_prefix(words))?;
    Some(line.to_owned())
}

/// What a server answers to one of its words of four letters; none while it cannot be reached.
pub fn told(port: u16, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

/// The ports that the servers of a URL listen on.
pub fn ports(url: &str) -> Vec<u16> {
    let hosts = url.trim_start_matches("zookeeper://").split(',');
    hosts.map(|host| host.rsplit(':').next().unwrap().parse().unwrap()).collect()
}

/// Which of the processes leads, as they say themselves; they may be choosing.
pub fn leader(server: &Server) -> usize {
    let ports = ports(&server.url);
    loop {
        let leads = |port: &u16| said(*port, "Mode: ").is_some_and(|mode| mode == "leader");
        if let Some(number) = ports.iter().position(leads) {
            return number;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
