//! Copies of an application that prove to each other who they are, by mutual TLS.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regent::{ConnectError, Embedded, Replica};
use regent_election::store::Store;
use regent_replica::Timing;
use regent_tls::ReplicaName;
use regent_tls::authority::{self, Subject};

use crate::bench::{soon, until};

const CLUSTER: u128 = 0x656d_6265;

/// One copy, which listens at its own of these sockets.
fn copy(place: &Path, number: u64, peers: &[(u64, std::net::TcpListener)]) -> Embedded {
    let mut embedded = Embedded::new(number, place.join(format!("data-{number}")))
        .timing(Timing::new(400, 800, 80, 60).unwrap())
        .founding(CLUSTER);
    for (other, socket) in peers {
        embedded = embedded.member(*other, socket.local_addr().unwrap().to_string());
        if *other == number {
            embedded = embedded.listener(socket.try_clone().unwrap());
        }
    }
    embedded
}

/// The same with the certificate of a replica.
fn certified(embedded: Embedded, ca: &Path, replica: u64) -> Embedded {
    let path = |name: String| -> PathBuf { ca.join(name) };
    let (certificate, key) = (format!("replica-{replica}.crt"), format!("replica-{replica}.key"));
    embedded.tls(path(certificate), path(key), path("ca.crt".to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copies_with_certificates_elect_and_one_without_is_not_heard() {
    let place = tempfile::tempdir().unwrap();
    let ca = place.path().join("ca");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    authority::init(&ca, 30, now_s).unwrap();
    for replica in 1..=3 {
        let name = ReplicaName { cluster: CLUSTER, replica };
        authority::issue(&ca, &Subject::Replica(name), 7, now_s).unwrap();
    }
    let peers: Vec<_> = (1..=3)
        .map(|number| (number, std::net::TcpListener::bind("127.0.0.1:0").unwrap()))
        .collect();
    // The certificate of another copy is refused before anything runs.
    let other = certified(copy(place.path(), 1, &peers), &ca, 2).start().await.unwrap_err();
    let ConnectError::Store(why) = other else { panic!("{other}") };
    assert!(why.contains("is the certificate of"), "{why}");

    let mut replicas: Vec<Replica> = Vec::new();
    for number in 1..=2 {
        let embedded = certified(copy(place.path(), number, &peers), &ca, number);
        replicas.push(embedded.start().await.unwrap());
    }
    // The third speaks no TLS: two of three decide without it.
    let plain = copy(place.path(), 3, &peers).start().await.unwrap();
    let session = replicas[0].session().node("a").ttl(Duration::from_secs(20));
    let regent = session.connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    assert_eq!(leadership.term().get(), 1);
    assert!(plain.store().ready().await.is_err(), "nobody speaks to it");
    soon("it ends", plain.stop()).await;
    let third = certified(copy(place.path(), 3, &peers), &ca, 3).start().await.unwrap();
    until("the third is heard", async || third.store().ready().await.is_ok()).await;
    soon("resigned", leadership.resign()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_whose_certificate_was_revoked_is_not_heard() {
    let place = tempfile::tempdir().unwrap();
    let ca = place.path().join("ca");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    authority::init(&ca, 30, now_s).unwrap();
    for replica in 1..=3 {
        let name = ReplicaName { cluster: CLUSTER, replica };
        authority::issue(&ca, &Subject::Replica(name), 7, now_s).unwrap();
    }
    // Its owner has the files, though the authority puts them away.
    let own = place.path().join("own");
    std::fs::create_dir(&own).unwrap();
    for file in ["ca.crt", "replica-3.crt", "replica-3.key"] {
        std::fs::copy(ca.join(file), own.join(file)).unwrap();
    }
    authority::revoke(&ca, &authority::Owner::Replica(3), now_s).unwrap();
    let peers: Vec<_> = (1..=3)
        .map(|number| (number, std::net::TcpListener::bind("127.0.0.1:0").unwrap()))
        .collect();
    let mut replicas: Vec<Replica> = Vec::new();
    for number in 1..=2 {
        let embedded = certified(copy(place.path(), number, &peers), &ca, number);
        replicas.push(embedded.revocation_lists(ca.join("ca.crl")).start().await.unwrap());
    }
    // It believes the others, and they do not believe it.
    let revoked = certified(copy(place.path(), 3, &peers), &own, 3).start().await.unwrap();
    let session = replicas[0].session().node("a").ttl(Duration::from_secs(20));
    let regent = session.connect().await.unwrap();
    for round in 1..=3 {
        let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
        assert_eq!(leadership.term().get(), round);
        soon("resigned", leadership.resign()).await.unwrap();
    }
    assert!(revoked.store().ready().await.is_err(), "nobody speaks to it");
    soon("it ends", revoked.stop()).await;
}
