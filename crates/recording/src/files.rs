//! The files of a recording: which there are, and how they are bounded.
//!
//! `flight-N.jsonl`, N rising. The newest is appended to; at a quarter of the bytes that may be kept
//! the next one begins, and the oldest goes. Nothing is synced: a killed process loses what the recorder was
//! gathering, and a power cut the last seconds. What such a cut left of a last line is taken
//! away when the file is opened again; other damage is passed over. A file is of one cluster.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::row::Row;

/// Where a recording is inside a data directory.
pub const DIRECTORY: &str = "flight";
/// Files that are kept: the oldest goes when another begins.
const FILES_MAX: u64 = 4;
/// How much of the end of a file is read to find its last revision.
const TAIL_BYTES: u64 = 1 << 20;
/// The longest line that is read: the largest policy is far shorter.
pub(crate) const LINE_BYTES_MAX: u64 = 1 << 20;

/// The files of a recording, oldest first.
pub(crate) fn of_directory(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<(u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let Some(number) = number_of(&path) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("flight-")?.strip_suffix(".jsonl")?.parse().ok()
}

/// The newest file, to be appended to.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    file_bytes_max: u64,
    number: u64,
    file: BufWriter<File>,
    bytes: u64,
}

impl Files {
    /// Opens the newest file, or begins the first, and says which revision of this cluster was told last.
    ///
    /// Behind what another cluster has left, another file begins, and nothing of this one was told.
    pub(crate) fn open(
        directory: &Path,
        bytes_max: u64,
        cluster: &str,
    ) -> io::Result<(Self, Option<u64>)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut older = of_directory(directory)?;
        let number = older.pop().as_deref().and_then(number_of).unwrap_or(1);
        let mut file = open_file(directory, number)?;
        let bytes = whole_lines(&mut file)?;
        let found = Found::in_file(&mut file)?;
        file.seek(SeekFrom::End(0))?;
        let file_bytes_max = bytes_max / FILES_MAX;
        let directory = directory.to_owned();
        let file = BufWriter::new(file);
        let mut files = Self { directory, file_bytes_max, number, file, bytes };
        if found.is_of_another(cluster) {
            files.turn_over()?;
            return Ok((files, None));
        }
        let last = found.last.or_else(|| last_of(&older, cluster));
        Ok((files, last))
    }

    /// Whether nothing is in it yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether the next line belongs into another file.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes >= self.file_bytes_max
    }

    /// Begins another file and lets the oldest go; one that stays against our will keeps no other.
    pub(crate) fn turn_over(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.number += 1;
        self.file = BufWriter::new(open_file(&self.directory, self.number)?);
        self.bytes = 0;
        for path in of_directory(&self.directory)? {
            let is_old = number_of(&path).is_some_and(|number| number + FILES_MAX <= self.number);
            if is_old && let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, file = %path.display(), "an old recording cannot be removed");
            }
        }
        Ok(())
    }

    /// Appends a line.
    pub(crate) fn append(&mut self, row: &Row) -> io::Result<()> {
        let mut line = row.to_json();
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Hands everything to the system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open_file(directory: &Path, number: u64) -> io::Result<File> {
    let path = directory.join(format!("flight-{number:08}.jsonl"));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Takes away what is behind the last whole line, and says how many bytes are left.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let bytes = file.seek(SeekFrom::End(0))?;
    let from = bytes.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
    let whole = if whole == 0 && from > 0 { bytes } else { from + whole };
    if whole < bytes {
        file.set_len(whole)?;
    }
    Ok(whole)
}

/// What a file tells about the recording that it is part of.
#[derive(Debug, Default)]
struct Found {
    /// Whose it is: of the last `begin` that is seen.
    cluster: Option<String>,
    /// The last revision.
    last: Option<u64>,
}

impl Found {
    /// Looks at the first line, which says whose the file is, and at the end. A line that cannot be read is passed
    /// over: the first one of the end may be half a line, and damage to one must not keep others from being written.
    fn in_file(file: &mut File) -> io::Result<Self> {
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        BufReader::new(&mut *file).take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut text)?;
        let mut found = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            match Row::parse(&String::from_utf8_lossy(line)) {
                Ok(Row::Begin(begin)) => found.cluster = Some(begin.cluster),
                Ok(row) => found.last = row.revision().or(found.last),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn is_of_another(&self, cluster: &str) -> bool {
        self.cluster.as_deref().is_some_and(|found| found != cluster)
    }
}

/// The last revision of this cluster in files behind which the newest was only begun.
fn last_of(older: &[PathBuf], cluster: &str) -> Option<u64> {
    for path in older.iter().rev() {
        match File::open(path).and_then(|mut file| Found::in_file(&mut file)) {
            Ok(found) if found.is_of_another(cluster) => return None,
            Ok(Found { last: Some(last), .. }) => return Some(last),
            Ok(Found { last: None, .. }) => {}
            Err(error) => {
                tracing::warn!(%error, file = %path.display(), "an old recording cannot be read");
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Begin, EndRow, FORMAT, GapRow};

    const CLUSTER: &str = "c";

    fn open(directory: &Path) -> (Files, Option<u64>) {
        Files::open(directory, 1 << 20, CLUSTER).unwrap()
    }

    fn begin(cluster: &str) -> Row {
        let (cluster, version) = (cluster.to_owned(), "0".to_owned());
        Row::Begin(Begin { at_ms: 1, format: FORMAT, cluster, replica: 1, version })
    }

    fn row(rev: u64) -> Row {
        Row::End(EndRow { at_ms: 1, rev })
    }

    #[test]
    fn a_recording_goes_on_where_it_ended_without_half_a_line() {
        let room = tempfile::tempdir().unwrap();
        let (mut files, last) = open(room.path());
        assert_eq!(last, None);
        files.append(&row(7)).unwrap();
        files.flush().unwrap();
        let path = of_directory(room.path()).unwrap().pop().unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{{\"ev\":\"end\",\"at")).unwrap();
        let (mut files, last) = open(room.path());
        assert_eq!(last, Some(7));
        files.append(&row(8)).unwrap();
        files.flush().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let rows: Vec<Row> = text.lines().map(|line| Row::parse(line).unwrap()).collect();
        assert_eq!(rows, [row(7), row(8)]);
    }

    #[test]
    fn a_recording_keeps_its_newest_files_and_no_more_bytes_than_it_may() {
        const BYTES_MAX: u64 = 40_000;
        let room = tempfile::tempdir().unwrap();
        let (mut files, _) = Files::open(room.path(), BYTES_MAX, CLUSTER).unwrap();
        for rev in 0..10_000 {
            if files.is_full() {
                files.turn_over().unwrap();
            }
            files.append(&row(rev)).unwrap();
        }
        files.flush().unwrap();
        let kept = of_directory(room.path()).unwrap();
        assert_eq!(kept.len(), 4);
        let bytes: u64 = kept.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(bytes <= BYTES_MAX + 400, "{bytes}");
        let (_, last) = Files::open(room.path(), BYTES_MAX, CLUSTER).unwrap();
        assert_eq!(last, Some(9_999));
    }

    #[test]
    fn a_letter_cut_in_two_and_a_damaged_byte_stop_no_recording() {
        let room = tempfile::tempdir().unwrap();
        let (mut files, _) = open(room.path());
        let gap = Row::Gap(GapRow { at_ms: 1, to: 1, why: "ö".repeat(1000) });
        for _ in 0..600 {
            files.append(&gap).unwrap();
        }
        files.append(&row(77)).unwrap();
        files.flush().unwrap();
        let path = of_directory(room.path()).unwrap().pop().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let edge = bytes.len() - usize::try_from(TAIL_BYTES).unwrap();
        assert_eq!(bytes[edge], 0xb6, "a letter is cut in two");
        assert_eq!(open(room.path()).1, Some(77));
        let damaged = bytes.len() - 2_000;
        bytes[damaged] = 0xff;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(room.path()).1, Some(77));
    }

    #[test]
    fn a_file_that_was_only_begun_hides_nothing_of_those_before() {
        let room = tempfile::tempdir().unwrap();
        let (mut files, _) = open(room.path());
        files.append(&begin(CLUSTER)).unwrap();
        files.append(&row(7)).unwrap();
        files.turn_over().unwrap();
        files.turn_over().unwrap();
        drop(files);
        let (files, last) = open(room.path());
        assert_eq!((files.number, last), (3, Some(7)));
    }

    #[test]
    fn what_another_cluster_told_last_is_not_ours() {
        let room = tempfile::tempdir().unwrap();
        let (mut files, _) = open(room.path());
        files.append(&begin("another")).unwrap();
        files.append(&row(7)).unwrap();
        // Whose it is stands far before the end.
        let gap = Row::Gap(GapRow { at_ms: 1, to: 1, why: "x".repeat(1000) });
        for _ in 0..2 * TAIL_BYTES / 1000 {
            files.append(&gap).unwrap();
        }
        files.append(&row(9)).unwrap();
        drop(files);
        let (files, last) = open(room.path());
        assert_eq!((files.number, files.is_empty(), last), (2, true, None));
        drop(files);
        let (files, last) = open(room.path());
        assert_eq!((files.number, last), (2, None), "begun, and nothing in it yet");
    }

    #[test]
    fn a_file_that_cannot_be_removed_keeps_no_other() {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir(room.path().join("flight-00000000.jsonl")).unwrap();
        fs::write(room.path().join("flight-00000001.jsonl"), "").unwrap();
        let (mut files, _) = open(room.path());
        for _ in 0..6 {
            files.turn_over().unwrap();
        }
        let kept: Vec<_> = of_directory(room.path()).unwrap();
        let kept: Vec<_> = kept.iter().filter_map(|path| number_of(path)).collect();
        assert_eq!(kept, [0, 4, 5, 6, 7]);
    }
}
