//! The file that a backup is kept in.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes a new file, readable by its owner only: a power cut leaves all of it or nothing, and a file
/// that is there already stays.
pub fn write_backup(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // A link and not a rename: whatever came to that name meanwhile stays.
        fs::hard_link(&beside, path)
    })();
    let _ = fs::remove_file(&beside);
    written?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_written_whole_and_never_over_another_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("b");
        write_backup(&path, b"one").unwrap();
        assert_eq!(write_backup(&path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
