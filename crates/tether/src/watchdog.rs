//! The machine's own watchdog (`/dev/watchdog`): if nobody gives it a sign of life in time, the machine is
//! reset. For those to whom a reset is better than a doubt.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// `_IOWR('W', 6, int)`: sets the time-out in seconds and gives back what was set.
const WDIOC_SETTIMEOUT: libc::Ioctl = 0xC004_5706_u32 as libc::Ioctl;

/// An open watchdog: from here on it wants signs of life. Dropped without [`Watchdog::disarm`], it
/// resets the machine.
#[derive(Debug)]
pub struct Watchdog {
    device: File,
    timeout: Duration,
}

impl Watchdog {
    /// Opens the device and asks it to wait this long, in whole seconds, rounded up.
    pub fn open(path: &Path, timeout: Duration) -> io::Result<Self> {
        let mut device = OpenOptions::new().write(true).open(path)?;
        match set_timeout(&device, timeout) {
            Ok(timeout) => Ok(Self { device, timeout }),
            Err(error) => {
                // It may be armed by being opened; it must not bite because of this.
                let _ = device.write_all(b"V");
                Err(error)
            }
        }
    }

    /// How long it waits.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A sign of life.
    pub fn pet(&mut self) -> io::Result<()> {
        self.device.write_all(b"\0")
    }

    /// Tells it not to wait any more. A driver that was told never to stop waits on all the same.
    pub fn disarm(mut self) -> io::Result<()> {
        self.device.write_all(b"V")
    }
}

#[allow(unsafe_code, reason = "a device is told its time-out by ioctl and in no other way")]
fn set_timeout(device: &File, timeout: Duration) -> io::Result<Duration> {
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let mut seconds = libc::c_int::try_from(seconds.max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the request reads and writes one int, which `seconds` is for the length of the call.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), WDIOC_SETTIMEOUT, &raw mut seconds) };
    if status == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_watchdog_is_refused_and_told_not_to_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("watchdog");
        std::fs::write(&path, "").unwrap();
        assert!(Watchdog::open(&path, Duration::from_secs(10)).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"V");
        assert!(Watchdog::open(&directory.path().join("missing"), Duration::from_secs(1)).is_err());
    }

    #[test]
    fn signs_of_life_and_the_farewell_are_what_drivers_expect() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("watchdog");
        let device = File::create(&path).unwrap();
        let mut watchdog = Watchdog { device, timeout: Duration::from_secs(10) };
        watchdog.pet().unwrap();
        watchdog.pet().unwrap();
        watchdog.disarm().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0V");
    }
}
