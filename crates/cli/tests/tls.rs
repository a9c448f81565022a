//! `regent tls` and a server with its certificates, as an operator meets them.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::cluster::{Cluster, free_port, own_host};
use process::{Room, Running, json, until};

const CLUSTER: &str = "2f6e63b8d1a04c57a3f4b0c9d8e7f601";

#[test]
fn a_ca_issues_and_renews_certificates_and_writes_nothing_over() {
    let room = Room::new();
    let ca = room.text("ca");
    let run = |arguments: &[&str]| room.run(&[&["tls"], arguments].concat());
    let made = run(&["init", "--dir", &ca]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stdout.contains("good for 3650 days"), "{made:?}");
    assert_eq!(run(&["init", "--dir", &ca]).code, 77);

    let issue = ["issue", "--dir", &ca, "--replica", "1", "--cluster", CLUSTER];
    let made = run(&[&issue[..], &["--output", "json"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let name = format!("regent://{CLUSTER}/replica/1");
    assert_eq!(json(&made.stdout)["name"].as_str(), Some(name.as_str()));
    let again = run(&issue);
    assert_eq!(again.code, 77, "{again:?}");
    assert!(again.stderr.contains("nothing was written"), "{again:?}");

    let key = std::fs::read(room.path("ca").join("replica-1.key")).unwrap();
    let renewed = run(&["renew", "--dir", &ca, "--replica", "1", "--days", "90"]);
    assert!(renewed.stdout.contains("good for 90 days"), "{renewed:?}");
    assert_eq!(std::fs::read(room.path("ca").join("replica-1.key")).unwrap(), key);
    let too_long = run(&["renew", "--dir", &ca, "--replica", "1", "--days", "4000"]);
    assert_eq!(too_long.code, 77, "{too_long:?}");
    assert!(too_long.stderr.contains("make another CA"), "{too_long:?}");
}

#[test]
fn a_server_whose_peers_are_elsewhere_does_not_start_without_certificates() {
    let room = Room::new();
    let data = room.text("data");
    room.serve("127.0.0.1:0", &["--data-dir", &data]).kill();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let ended = room.run(&[&serve[..], &["--peer-listen", "0.0.0.0:0"]].concat());
    assert_eq!(ended.code, 78, "{ended:?}");
    for way_out in ["--peer-cert", "regent tls", "--insecure"] {
        assert!(ended.stderr.contains(way_out), "{ended:?}");
    }
    let ended = room.run(&[&serve[..], &["--peer-cert", "x.crt"]].concat());
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains("go together"), "{ended:?}");
    let insecure = ["--data-dir", &data, "--peer-listen", "0.0.0.0:0", "--insecure"];
    let server = room.serve("127.0.0.1:0", &insecure);
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    assert!(server.log().contains("INSECURE"), "{}", server.log());
}

/// A CA in the room of a cluster, with a certificate for each of its replicas.
fn certify(cluster: &Cluster) {
    let yes = |arguments: &[&str]| {
        let ended = cluster.room.run(arguments);
        assert_eq!(ended.code, 0, "{ended:?}");
    };
    yes(&["tls", "init", "--dir", "ca"]);
    for id in cluster.replicas.keys().map(ToString::to_string) {
        yes(&["tls", "issue", "--dir", "ca", "--replica", &id, "--cluster", &cluster.id]);
    }
}

/// Starts a replica with its certificate.
fn run_certified(cluster: &mut Cluster, id: u64, peer_tls: &str) {
    let (certificate, key) = (format!("ca/replica-{id}.crt"), format!("ca/replica-{id}.key"));
    let files = ["--peer-cert", &certificate, "--peer-key", &key, "--peer-ca", "ca/ca.crt"];
    cluster.run_with(id, &[&files[..], &["--peer-tls", peer_tls]].concat());
}

/// Plaintext replicas become TLS ones, each restarted twice; the leader of a group stays in office all the time. Then no
/// replica can go back.
#[test]
fn a_running_cluster_changes_to_tls_replica_by_replica_with_its_leader_in_office() {
    let mut cluster = Cluster::start(3);
    certify(&cluster);
    let keep = ["campaign", "billing", "--node", "a", "--keep", "--ttl", "60s"];
    let mut command = cluster.room.command(&keep);
    command.env("REGENT_SERVER", cluster.urls());
    let kept = Running::start(&cluster.room, command);
    kept.line_with("a leads, term 1");
    for peer_tls in ["accept", "required"] {
        for id in 1..=3 {
            cluster.stop(id);
            run_certified(&mut cluster, id, peer_tls);
            // All of them, whatever each speaks.
            cluster.leader();
            let is_told = cluster.status_of(id).to_string().contains("peer links without TLS");
            assert_eq!(is_told, peer_tls == "accept");
            assert_eq!(cluster.server(id).log().contains("peer_tls is"), peer_tls == "accept");
        }
    }
    let led = json(&cluster.yes_soon(&["leader", "billing", "--json"]));
    assert_eq!((led["leader"].as_str(), led["term"].as_u64()), (Some("a"), Some(1)));
    let told = kept.so_far().join(" ");
    assert!(!told.contains("stop") && !told.contains("lost") && !told.contains("term 2"), "{told}");

    // One without TLS is not heard any more, whoever dials.
    cluster.stop(3);
    cluster.run_with(3, &[]);
    until("the refusal", || {
        [1, 2].iter().any(|id| cluster.server(*id).log().contains("a peer was not let in"))
    });
    assert_eq!(cluster.status_of(3)["leader"].as_u64(), None);
    cluster.leader_among(&[1, 2]);
}

#[test]
fn a_machine_joins_a_cluster_with_tls_by_one_file() {
    let mut cluster = Cluster::found(3, &[], &[]);
    certify(&cluster);
    for id in 1..=3 {
        run_certified(&mut cluster, id, "required");
    }
    cluster.leader();
    let host = own_host();
    let [peer, client] = [(); 2].map(|()| format!("{host}:{}", free_port(&host)));
    let invite = |id: &str, to: &str| {
        let place = ["--peer", &peer, "--client", &client, "--dir", "ca", "--to", to];
        cluster.ask(&[&["cluster", "invite", "--id", id], &place[..]].concat())
    };
    let taken = invite("3", "3.invitation");
    assert_eq!(taken.code, 77, "{taken:?}");
    let made = invite("4", "4.invitation");
    assert_eq!(made.code, 0, "{made:?}");
    let file = cluster.room.path("4.invitation");
    assert_eq!(process::mode(&file), 0o600);
    let again = invite("4", "other.invitation");
    assert_eq!(again.code, 77, "{again:?}");

    let join = |file: &str, data: &str| {
        let place = ["--data-dir", data, "--segment-bytes", "4194304"];
        cluster.room.run(&[&["cluster", "join", file], &place[..]].concat())
    };
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let copy = cluster.room.path("changed.invitation");
    std::fs::write(&copy, &bytes).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&copy, private).unwrap();
    let changed = join("changed.invitation", "replica-4");
    assert_eq!(changed.code, 74, "{changed:?}");
    assert!(changed.stderr.contains("changed or cut off"), "{changed:?}");
    let occupied = join("4.invitation", "replica-1");
    assert_eq!(occupied.code, 78, "{occupied:?}");
    let joined = join("4.invitation", "replica-4");
    assert_eq!(joined.code, 0, "{joined:?}");
    assert!(!joined.stdout.contains("PRIVATE"), "{joined:?}");
    let config = cluster.room.text("replica-4/joined/regent.toml");
    let server = cluster.room.serve_as(cluster.room.command(&["serve", "--config", &config]));
    cluster.adopt(4, &peer, &client, server);
    cluster.yes(&["cluster", "promote", "4", "--timeout", "60s"]);
    cluster.leader();
    let status = cluster.status_of(4);
    assert_eq!((status["voters"].as_u64(), status["replica"].as_u64()), (Some(4), Some(4)));
}
