//! Cases about listings.

use std::collections::BTreeSet;

use super::bench::{Bench, done, key};
use super::{Fault, ensure};
use crate::register::{Found, Key, KeyKind};

/// Names below `base`, in an order that is not theirs.
async fn fill(bench: &Bench, base: &str, endings: &[&str]) -> Result<BTreeSet<String>, Fault> {
    let mut names = BTreeSet::new();
    for ending in endings {
        let name = format!("{base}{ending}");
        let made = bench.register().swap(&key(KeyKind::Group, &name)?, None, bench.record()).await;
        done("creating", made)?;
        names.insert(name);
    }
    Ok(names)
}

fn names(listed: &[(Key, Found)]) -> Vec<String> {
    listed.iter().map(|(key, _)| key.name().to_owned()).collect()
}

pub(super) async fn a_list_holds_what_opens_with_its_prefix_in_the_order_of_names(
    bench: Bench,
) -> Result<(), Fault> {
    let base = bench.name();
    // The order is that of bytes, whatever an engine does with slashes, case or punctuation.
    let endings =
        ["/b", "/a/z", "/a", "/a-b", "/a.b", "/a:b", "/a@b", "/a_b", "/B", "/aa", "/10", "/9"];
    let all = fill(&bench, &base, &endings).await?;
    for prefix in ["/", "/a", "/a/", "/a.", "/B", "/1", "/nothing", ""] {
        let prefix = format!("{base}{prefix}");
        let expected: Vec<_> =
            all.iter().filter(|name| name.starts_with(&prefix)).cloned().collect();
        let listed = bench.other().list(KeyKind::Group, &prefix, None, 100).await?;
        let found = names(&listed);
        ensure!(found == expected, "listing {prefix}: {found:?}, not {expected:?}");
    }
    Ok(())
}

pub(super) async fn a_list_goes_on_page_by_page(bench: Bench) -> Result<(), Fault> {
    let base = bench.name();
    let endings = ["/b", "/a", "/c/d", "/c", "/c.d", "/e", "/A"];
    let all: Vec<String> = fill(&bench, &base, &endings).await?.into_iter().collect();
    for count in [1, 3, 7, 50] {
        let mut found: Vec<String> = Vec::new();
        for _ in 0..=all.len() {
            let after = found.last().map(String::as_str);
            let page = bench.register().list(KeyKind::Group, &base, after, count).await?;
            ensure!(page.len() <= count, "{} on a page of {count}", page.len());
            if page.is_empty() {
                break;
            }
            found.extend(names(&page));
        }
        ensure!(found == all, "pages of {count}: {found:?}, not {all:?}");
    }
    // A page may begin after a name that is not there.
    let page = bench.register().list(KeyKind::Group, &base, Some(&format!("{base}/bb")), 1).await?;
    ensure!(names(&page) == [format!("{base}/c")], "after a name between: {page:?}");
    Ok(())
}

pub(super) async fn a_listed_entry_is_what_a_load_would_show(bench: Bench) -> Result<(), Fault> {
    let base = bench.name();
    fill(&bench, &base, &["/a", "/b"]).await?;
    let listed = bench.register().list(KeyKind::Group, &base, None, 10).await?;
    ensure!(listed.len() == 2, "{listed:?}");
    for (key, found) in listed {
        let loaded = bench.load(&key).await?;
        ensure!(loaded == found, "{key}: listed {found:?}, loaded {loaded:?}");
        let swapped = bench.register().swap(&key, Some(&found.version), bench.record()).await;
        done("swapping from a listed version", swapped)?;
    }
    Ok(())
}

pub(super) async fn a_list_shows_every_answered_swap(bench: Bench) -> Result<(), Fault> {
    let (key, mut version) = bench.entry().await?;
    for _ in 0..5 {
        let record = bench.record();
        let swapped = bench.register().swap(&key, Some(&version), record.clone()).await;
        version = done("swapping", swapped)?;
        let listed = bench.other().list(KeyKind::Group, key.name(), None, 2).await?;
        let is_new = matches!(listed.as_slice(),
            [(listed, found)] if *listed == key && found.value == record.value && found.version == version);
        ensure!(is_new, "wrote {record:?} as {version:?}, listed {listed:?}");
    }
    Ok(())
}
