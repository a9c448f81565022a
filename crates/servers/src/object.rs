//! Servers that keep objects: a SeaweedFS, which is a real store that speaks S3; an Azurite, which is Azure's
//! own emulator; and an `s3rver`, which speaks S3 and ignores every condition. For Google there is none: what
//! emulates it does not speak the interface that conditions are sent over.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Process, Server, Skip, folder, free_port, need, starting, words};

/// What is fetched, for people.
const SEAWEEDFS: &str = "SeaweedFS 4.48";

/// The account that every Azurite has, and its key, which is public.
pub mod azurite {
    pub const ACCOUNT: &str = "devstoreaccount1";
    pub const KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
}

/// Starts a SeaweedFS, or takes the bucket of `REGENT_TEST_S3_URL`.
pub fn s3() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_S3_URL").map_or_else(|| starting(own), Ok)
}

/// The bucket of `REGENT_TEST_GS_URL`.
pub fn gs() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_GS_URL").ok_or_else(|| {
        "no emulator of Google's objects speaks the interface that conditions are sent over; name a bucket \
         with REGENT_TEST_GS_URL"
            .into()
    })
}

/// Starts an Azurite, or takes the container of `REGENT_TEST_AZ_URL`.
pub fn az() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_AZ_URL").map_or_else(|| starting(own_azurite), Ok)
}

/// Starts a SeaweedFS of our own, with a bucket.
pub fn own() -> Result<Server, Skip> {
    let (folder, port) = (folder(), free_port());
    let process = seaweedfs(folder, port, Vec::new())?;
    Ok(Server {
        url: format!("s3://test:test@test?region=us-east-1&endpoint=http://127.0.0.1:{port}"),
        version: SEAWEEDFS.into(),
        processes: vec![process],
    })
}

/// The same, spoken to over TLS with a certificate that only its own authority vouches for.
pub fn own_over_tls() -> Result<Server, Skip> {
    let openssl = need("openssl")?;
    let (folder, port, tls_port) = (folder(), free_port(), free_port());
    let make = |words: &str| {
        let mut command = Command::new(&openssl);
        let made = command.args(words.split(' ')).current_dir(folder.path()).output();
        match made {
            Ok(made) if made.status.success() => Ok(()),
            Ok(made) => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    std::fs::write(folder.path().join("names"), "subjectAltName=IP:127.0.0.1\n")
        .map_err(|error| error.to_string())?;
    make(
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
    )?;
    make("req -newkey rsa:2048 -nodes -keyout s3.key -out s3.csr -subj /CN=server")?;
    make(
        "x509 -req -in s3.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out s3.pem -days 2 -extfile names",
    )?;
    let ca = folder.path().join("ca.pem");
    let over_tls = vec![
        format!("-s3.port.https={tls_port}").into(),
        "-s3.cert.file=s3.pem".into(),
        "-s3.key.file=s3.key".into(),
    ];
    let process = seaweedfs(folder, port, over_tls)?;
    Ok(Server {
        url: format!(
            "s3://test:test@test?region=us-east-1&endpoint=https://127.0.0.1:{tls_port}&ca={}",
            ca.display()
        ),
        version: SEAWEEDFS.into(),
        processes: vec![process],
    })
}

fn seaweedfs(folder: TempDir, port: u16, more: Vec<OsString>) -> Result<Process, Skip> {
    let mut command =
        words(&need("weed")?, ["server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
    command
        .extend(["-filer", "-s3", "-volume.max=5", "-master.volumeSizeLimitMB=64"].map(Into::into));
    // What else it would listen on, where every other one does.
    let unused = ["-s3.port.iceberg=0", "-s3.port.lance=0"];
    let sockets = ["-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock"];
    command.extend(unused.into_iter().chain(sockets).map(OsString::from));
    command.push(format!("-s3.port={port}").into());
    command.push(format!("-s3.port.grpc={}", free_port()).into());
    for part in ["master", "volume", "filer"] {
        command.push(format!("-{part}.port={}", free_port()).into());
        command.push(format!("-{part}.port.grpc={}", free_port()).into());
    }
    command.extend(more);
    let log = folder.path().join("log");
    // Ready is what takes a bucket, and has it, and has settled.
    Process::start(folder, command, move || {
        has_settled(&log) && says(port, "PUT /test", &["200", "409"])
    })
}

/// Whether the gateway of a SeaweedFS knows, since its last start, which filer decides about an object.
///
/// It serves a moment before that. Until then it decides by itself, under a lock that the filer knows nothing
/// of: a conditional write that begins before this moment and one that begins after it do not exclude each
/// other, and both may be told that they are done. This was seen by plain HTTP requests, about once in seven
/// starts, with both writes under way within some milliseconds of the line that is looked for here.
fn has_settled(log: &Path) -> bool {
    let log = std::fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    // The log goes on where the killed server left it.
    let last_life = log.rsplit("Start Seaweed Master").next().unwrap_or_default();
    last_life.contains("LockRing: s3@")
}

/// Starts an Azurite, whose container the tests make.
pub fn own_azurite() -> Result<Server, Skip> {
    let program = need("azurite-blob")?;
    let (folder, port) = (folder(), free_port());
    let mut command = words(&program, ["--silent", "--location", ".", "--blobHost", "127.0.0.1"]);
    command.extend(["--skipApiVersionCheck", "--disableTelemetry"].map(OsString::from));
    command.extend(["--blobPort".into(), port.to_string().into()]);
    let process = Process::start(folder, command, move || says(port, "GET /", &["400", "403"]))?;
    let (account, key) = (azurite::ACCOUNT, azurite::KEY.replace('/', "%2F"));
    let endpoint = format!("http://127.0.0.1:{port}/{account}");
    Ok(Server {
        url: format!("az://{account}:{key}@test?endpoint={endpoint}"),
        version: "Azurite 3.35.0".into(),
        processes: vec![process],
    })
}

/// Starts a server that is known to be bad.
pub fn bad() -> Result<Server, Skip> {
    let program = need("s3rver")?;
    let (folder, port) = (folder(), free_port());
    let mut command = words(&program, ["-d", ".", "-a", "127.0.0.1", "--configure-bucket", "test"]);
    command.extend(["-p".into(), port.to_string().into()]);
    let process = Process::start(folder, command, move || says(port, "GET /", &["200", "403"]))?;
    Ok(Server {
        url: format!("s3://S3RVER:S3RVER@test?region=us-east-1&endpoint=http://127.0.0.1:{port}"),
        version: "s3rver 3.7.1".into(),
        processes: vec![process],
    })
}

/// Whether it answers this with one of these.
fn says(port: u16, request: &str, expected: &[&str]) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = "HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        write!(stream, "{request} {head}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(expected.iter().any(|it| answer.get(9..12) == Some(*it)))
    };
    ask().unwrap_or(false)
}
