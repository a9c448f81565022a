//! Tells a service manager how it goes, in systemd's way: datagrams to `$NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use regent_election::Moment;

/// What the service manager put into the environment for this process and nobody else.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Whoever started this process, if it wants to know.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often a sign of life is wanted.
    alive_every: Option<Duration>,
    alive_at: Moment,
}

impl Notify {
    /// As the environment says. A socket that cannot be used is nobody.
    pub(crate) fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(name.as_bytes()));
        let to = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        if let Some((socket, _)) = &to {
            // A manager that does not read must not hold the lease up.
            let _ = socket.set_nonblocking(true);
        }
        let is_for_us =
            std::env::var("WATCHDOG_PID").map_or(true, |pid| pid.parse() == Ok(std::process::id()));
        let alive_every = std::env::var("WATCHDOG_USEC")
            .ok()
            .filter(|_| is_for_us)
            .and_then(|text| text.parse().ok())
            .map(|micros: u64| Duration::from_micros(micros) / 3);
        Self { to, alive_every, alive_at: Moment::ZERO }
    }

    /// Tells something: lines of `NAME=value`.
    pub(crate) fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.to {
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    /// A sign of life, if one is due.
    pub(crate) fn alive(&mut self, now: Moment) {
        if let Some(every) = self.alive_every
            && self.alive_at <= now
        {
            self.alive_at = now + every;
            self.tell("WATCHDOG=1");
        }
    }
}

fn address(name: &[u8]) -> Option<SocketAddr> {
    match name.split_first()? {
        (b'@', rest) => SocketAddr::from_abstract_name(rest).ok(),
        (b'/', _) => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_by_path_or_by_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let to = address(path.as_os_str().as_bytes()).unwrap();
        let notify =
            Notify { to: Some((UnixDatagram::unbound().unwrap(), to)), ..Notify::default() };
        notify.tell("READY=1\nSTATUS=stands by");
        let mut text = [0; 64];
        let count = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..count], b"READY=1\nSTATUS=stands by");
        assert!(address(b"@regent").unwrap().as_abstract_name().is_some());
        assert!(address(b"vsock:1:2").is_none());
        assert!(address(b"").is_none());
    }

    #[test]
    fn signs_of_life_are_given_no_more_often_than_wanted() {
        let mut notify = Notify { alive_every: Some(Duration::from_secs(1)), ..Notify::default() };
        notify.alive(Moment::from_millis(10));
        assert_eq!(notify.alive_at, Moment::from_millis(1010));
        notify.alive(Moment::from_millis(900));
        assert_eq!(notify.alive_at, Moment::from_millis(1010));
    }
}
