//! Looks after the files of certificates that a server uses: reads them again, and warns before they end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use regent_election::Moment;
use rustls::pki_types::UnixTime;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::kept::{Reload, Reloaded};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const DAY_S: u64 = 24 * 3600;
/// From how many days before its end on a certificate is warned about.
const WARN_DAYS: u64 = 30;
/// From how many days before its end on that is done every day, though nothing changes.
const URGENT_DAYS: u64 = 14;
const URGE_EVERY: Duration = Duration::from_secs(DAY_S);

/// Tells how long the certificate is good, and looks at its files for as long as somebody uses it. `what` says who is
/// at the other end of its connections, `reload` that it is to look now.
pub fn keep_fresh(
    certificates: &Arc<impl Reload + 'static>,
    reload: Arc<Notify>,
    what: &'static str,
) {
    tell_expiry(certificates.expires_at_s(), what, "TLS is in use");
    tokio::spawn(look_after(Arc::downgrade(certificates), reload, what));
}

/// Looks at the files now and then, and when told to. What is wrong with them is told once.
async fn look_after(
    certificates: Weak<impl Reload + 'static>,
    reload: Arc<Notify>,
    what: &'static str,
) {
    let mut told = None;
    // The start has told of it.
    let mut urged_at = Some(regent_clock::now());
    loop {
        let _ = timeout(LOOK_EVERY, reload.notified()).await;
        let Some(certificates) = certificates.upgrade() else { return };
        let (now, left_s) =
            (regent_clock::now(), certificates.expires_at_s().saturating_sub(wall_s()));
        if is_to_be_told(urged_at, now, left_s) {
            urged_at = Some(now);
            tracing::warn!(
                what,
                expires_in_days = left_s / DAY_S,
                "the certificate ends soon, and will be refused then; renew it (regent tls renew)"
            );
        }
        let reloaded = tokio::task::spawn_blocking(move || certificates.reload()).await;
        match reloaded {
            Ok(Ok(Reloaded::Same)) => {
                told = None;
            }
            Ok(Ok(Reloaded::Changed { expires_at_s })) => {
                told = None;
                tell_expiry(expires_at_s, what, "certificates were reloaded");
            }
            Ok(Err(error)) => {
                let why = error.to_string();
                if told.as_ref() != Some(&why) {
                    tracing::warn!(what, %why, "certificates were not reloaded; the old ones stay in use");
                    told = Some(why);
                }
            }
            Err(error) => tracing::error!(what, %error, "certificates cannot be looked at"),
        }
    }
}

fn wall_s() -> u64 {
    UnixTime::now().as_secs()
}

/// Whether the log is to be told again of a certificate that has so many seconds left.
fn is_to_be_told(told_at: Option<Moment>, now: Moment, left_s: u64) -> bool {
    let is_early = told_at.is_some_and(|at| now.since(at) < URGE_EVERY);
    left_s < URGENT_DAYS * DAY_S && !is_early
}

fn tell_expiry(expires_at_s: u64, what: &str, happened: &str) {
    let days = expires_at_s.saturating_sub(wall_s()) / DAY_S;
    if days < WARN_DAYS {
        tracing::warn!(
            what,
            expires_in_days = days,
            "{happened}; renew the certificate soon (regent tls renew)"
        );
    } else {
        tracing::info!(what, expires_in_days = days, "{happened}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_is_warned_of_once_a_day() {
        let at = |hours: u64| Moment::ZERO + Duration::from_secs(3600 * hours);
        let soon = URGENT_DAYS * DAY_S - 1;
        assert!(is_to_be_told(None, at(0), soon) && is_to_be_told(None, at(0), 0));
        assert!(!is_to_be_told(None, at(0), URGENT_DAYS * DAY_S));
        assert!(!is_to_be_told(Some(at(0)), at(23), soon));
        assert!(is_to_be_told(Some(at(0)), at(24), soon));
    }
}
