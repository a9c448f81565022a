//! Cases about one entry: what is read, what a version is for.

use std::time::Duration;

use regent_election::{Node, Term};

use super::bench::{Bench, conflicts, done, key};
use super::{Fault, ensure};
use crate::register::{HumanSummary, KeyKind, Record, Swapped, VALUE_BYTES_MAX, Version};

pub(super) async fn a_key_nobody_wrote_is_not_there(bench: Bench) -> Result<(), Fault> {
    for kind in [KeyKind::Group, KeyKind::Session, KeyKind::Setting] {
        let key = key(kind, &bench.name())?;
        let found = bench.register().load(&key).await?;
        ensure!(found.is_none(), "{key}: {found:?}");
    }
    Ok(())
}

pub(super) async fn what_was_written_is_read_back_byte_for_byte(bench: Bench) -> Result<(), Fault> {
    let all: Vec<u8> = (0..=u8::MAX).chain((0..=u8::MAX).rev()).collect();
    // Bytes that a text, a line, a path or a script would stumble over, at both ends.
    for value in [all, vec![0], vec![0xff; 3], b"\r\n \0'\"\\%{}".to_vec(), b" x ".to_vec()] {
        let key = bench.key()?;
        let made = bench.register().swap(&key, None, Record::bare(value.clone())).await;
        let version = done("creating", made)?;
        for register in [bench.register(), bench.other()] {
            let found = register.load(&key).await?;
            let is_same =
                found.as_ref().is_some_and(|it| it.value == value && it.version == version);
            ensure!(is_same, "wrote {value:?} as {version:?}, read {found:?}");
        }
    }
    Ok(())
}

pub(super) async fn an_entry_is_created_once(bench: Bench) -> Result<(), Fault> {
    let (key, version) = bench.entry().await?;
    let before = bench.load(&key).await?;
    ensure!(before.version == version, "created as {version:?}, found {before:?}");
    for register in [bench.register(), bench.other()] {
        conflicts("creating again", register.swap(&key, None, bench.record()).await)?;
    }
    let after = bench.load(&key).await?;
    ensure!(after == before, "a refused creation changed {before:?} to {after:?}");
    Ok(())
}

pub(super) async fn a_swap_from_an_old_version_conflicts_and_changes_nothing(
    bench: Bench,
) -> Result<(), Fault> {
    let (key, first) = bench.entry().await?;
    let swapped = bench.other().swap(&key, Some(&first), bench.record()).await;
    let second = done("swapping", swapped)?;
    let before = bench.load(&key).await?;
    ensure!(before.version == second, "swapped to {second:?}, found {before:?}");
    for register in [bench.register(), bench.other()] {
        let late = register.swap(&key, Some(&first), bench.record()).await;
        conflicts("swapping from the old version", late)?;
    }
    let after = bench.load(&key).await?;
    ensure!(after == before, "a refused swap changed {before:?} to {after:?}");
    Ok(())
}

pub(super) async fn a_swap_of_an_entry_that_is_not_there_conflicts(
    bench: Bench,
) -> Result<(), Fault> {
    let (_, version) = bench.entry().await?;
    let absent = bench.key()?;
    let swapped = bench.register().swap(&absent, Some(&version), bench.record()).await;
    conflicts("swapping what is not there", swapped)?;
    let found = bench.register().load(&absent).await?;
    ensure!(found.is_none(), "a refused swap made {found:?}");
    Ok(())
}

pub(super) async fn versions_never_repeat(bench: Bench) -> Result<(), Fault> {
    let (key, mut last) = bench.entry().await?;
    let mut seen: Vec<Version> = vec![last.clone()];
    for _ in 0..12 {
        let swapped = bench.register().swap(&key, Some(&last), bench.record()).await;
        last = done("swapping", swapped)?;
        ensure!(!seen.contains(&last), "version {last:?} again, after {seen:?}");
        seen.push(last.clone());
    }
    Ok(())
}

pub(super) async fn an_answered_swap_is_seen_by_every_later_load(
    bench: Bench,
) -> Result<(), Fault> {
    let (key, mut version) = bench.entry().await?;
    for round in 0..20 {
        let record = bench.record();
        let (writer, reader) = match round % 2 {
            0 => (bench.register(), bench.other()),
            _ => (bench.other(), bench.register()),
        };
        let swapped = writer.swap(&key, Some(&version), record.clone()).await;
        version = done("swapping", swapped)?;
        let found = reader.load(&key).await?;
        let is_new = found.as_ref().is_some_and(|it| it.version == version);
        ensure!(is_new, "round {round}: wrote {record:?} as {version:?}, then read {found:?}");
    }
    Ok(())
}

pub(super) async fn an_entry_may_be_as_large_as_the_bound(bench: Bench) -> Result<(), Fault> {
    let key = bench.key()?;
    // Not to be compressed, so that the bound is really met.
    let value: Vec<u8> = (0..VALUE_BYTES_MAX.div_ceil(16))
        .flat_map(|_| bench.unique().to_be_bytes())
        .take(VALUE_BYTES_MAX)
        .collect();
    let made = bench.register().swap(&key, None, Record::bare(value.clone())).await;
    let version = done("creating a large entry", made)?;
    let found = bench.load(&key).await?;
    ensure!(found.value == value, "{} bytes came back as {}", value.len(), found.value.len());
    done("swapping it", bench.register().swap(&key, Some(&version), bench.record()).await)?;
    Ok(())
}

pub(super) async fn odd_names_are_kept_apart(bench: Bench) -> Result<(), Fault> {
    let base = bench.name();
    let long = format!("{base}/{}", "x".repeat(200 - base.len() - 1));
    // One name opens with another, differs only in case, looks like an encoding of another, or like
    // something that a file system or a URL would read in its own way.
    let mut names = vec![base.clone(), long];
    for ending in [
        "/a", "/A", "/a/b", "/a.b", "/a-b", "/a_b", "/a:b", "/a@b", "/a..b", "/.a", "/-", "/_",
        "/2e", "/a/2fb", "/a.lock", "/a.tmp", "/CON", "/nul", "-a", ".a", ":a", "@a",
    ] {
        names.push(format!("{base}{ending}"));
    }
    let mut written = Vec::new();
    for name in names {
        let (key, record) = (key(KeyKind::Group, &name)?, bench.record());
        let made = bench.register().swap(&key, None, record.clone()).await;
        done(&format!("creating {key}"), made)?;
        written.push((key, record));
    }
    for (key, record) in written {
        let found = bench.load(&key).await?;
        ensure!(found.value == record.value, "{key} holds what was written elsewhere");
    }
    Ok(())
}

pub(super) async fn kinds_are_kept_apart(bench: Bench) -> Result<(), Fault> {
    let name = bench.name();
    let mut written = Vec::new();
    for kind in [KeyKind::Group, KeyKind::Session, KeyKind::Setting] {
        let (key, record) = (key(kind, &name)?, bench.record());
        done("creating", bench.register().swap(&key, None, record.clone()).await)?;
        written.push((key, record));
    }
    for (key, record) in written {
        let found = bench.load(&key).await?;
        ensure!(found.value == record.value, "{key} holds what was written elsewhere");
        let listed = bench.register().list(key.kind(), &name, None, 8).await?;
        let names: Vec<String> = listed.iter().map(|(key, _)| key.to_string()).collect();
        ensure!(names == [key.to_string()], "listing {key}: {names:?}");
    }
    Ok(())
}

pub(super) async fn what_people_see_changes_nothing(bench: Bench) -> Result<(), Fault> {
    let (key, mut version) = bench.entry().await?;
    let node = Node::new("contract.node:1@x").ok();
    let full =
        HumanSummary { leader: node, term: Term::new(7), ttl: Some(Duration::from_millis(2500)) };
    for summary in [full, HumanSummary::default()] {
        let record = Record { summary, ..bench.record() };
        match bench.register().swap(&key, Some(&version), record.clone()).await? {
            Swapped::Done(next) => version = next,
            Swapped::Conflict => return Err(Fault::Broken("the entry changed by itself".into())),
        }
        let found = bench.load(&key).await?;
        let is_same = found.value == record.value && found.version == version;
        ensure!(is_same, "wrote {record:?} as {version:?}, read {found:?}");
    }
    Ok(())
}
