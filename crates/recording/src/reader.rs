//! A recording read back, oldest line first. It needs no server: a cluster that is down can still be read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use regent_election::Group;

use crate::files::{DIRECTORY, LINE_BYTES_MAX, of_directory};
use crate::line::RecordedLine;
use crate::row::Row;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or directory cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// There is no file of a recording in the directory.
    #[error("{} holds no recording; name the data directory of a replica whose flight_bytes is not 0", directory.display())]
    NoRecording {
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// A line is no line of a recording.
    #[error("{}:{number}: {what}", path.display())]
    Line {
        path: PathBuf,
        /// The line, counted from 1.
        number: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// The files of one recording.
#[derive(Clone, Debug)]
pub struct Recording {
    files: Vec<PathBuf>,
}

impl Recording {
    /// The recording in the data directory of a replica, or in a directory of its own.
    ///
    /// # Errors
    /// If the directory cannot be read, or holds none.
    pub fn in_directory(directory: &Path) -> Result<Self, ReadError> {
        let below = directory.join(DIRECTORY);
        let directory = if below.is_dir() { below } else { directory.to_owned() };
        let files = of_directory(&directory)
            .map_err(|error| ReadError::Io { path: directory.clone(), error })?;
        if files.is_empty() {
            return Err(ReadError::NoRecording { directory });
        }
        Ok(Self { files })
    }

    /// The recording in a directory, or in one file.
    ///
    /// # Errors
    /// As [`Recording::in_directory`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        if path.is_dir() {
            return Self::in_directory(path);
        }
        Ok(Self { files: vec![path.to_owned()] })
    }

    /// Its files, oldest first.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Hands out the text of every line that concerns these groups, or of all if there are none, and counts
    /// the lines that are damaged. A line of no group is handed out if its session stood in one of them.
    ///
    /// # Errors
    /// If a file cannot be read, or what `take` returns.
    pub fn select<E: From<ReadError>>(
        &self,
        groups: &[Group],
        mut take: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<usize, E> {
        let wanted = Wanted::of(self, groups)?;
        let mut damaged = 0;
        self.each(|_, _, text| {
            match Row::parse(text) {
                Ok(row) if wanted.covers(&row) => take(text)?,
                Ok(_) => {}
                Err(_) => damaged += 1,
            }
            Ok::<_, E>(())
        })?;
        Ok(damaged)
    }

    /// Hands out all lines in order, each with its file and number.
    fn each<E: From<ReadError>>(
        &self,
        mut take: impl FnMut(&Path, usize, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.files
            .iter()
            .try_for_each(|path| each_line(path, |number, text| take(path, number, text)))
    }
}

/// Everything that a recording says, at most so many lines.
///
/// # Errors
/// If a file cannot be read, a line is damaged, or there are more lines.
pub fn lines(recording: &Recording, lines_max: usize) -> Result<Vec<RecordedLine>, ReadError> {
    let mut lines = Vec::new();
    recording.each(|path, number, text| {
        if text.is_empty() {
            return Ok(());
        }
        let wrong = |what| ReadError::Line { path: path.to_owned(), number, what };
        if lines.len() == lines_max {
            return Err(wrong(format!(
                "more than {lines_max} lines are too many to act; take fewer groups \
                 (regent record DIR --group GROUP), or a shorter time, from the recording"
            )));
        }
        lines.push(Row::parse(text).and_then(|row| row.line(number)).map_err(wrong)?);
        Ok(())
    })?;
    Ok(lines)
}

fn each_line<E: From<ReadError>>(
    path: &Path,
    mut take: impl FnMut(usize, &str) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error| ReadError::Io { path: path.to_owned(), error };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        let read = file.by_ref().take(LINE_BYTES_MAX).read_line(&mut text);
        let bytes = read.map_err(failed)? as u64;
        if bytes == LINE_BYTES_MAX && !text.ends_with('\n') {
            let what = "a line longer than a mebibyte is no line of a recording".to_owned();
            return Err(ReadError::Line { path: path.to_owned(), number, what }.into());
        }
        if bytes == 0 {
            break;
        }
        take(number, text.trim_end())?;
    }
    Ok(())
}

/// The lines that are asked for.
enum Wanted {
    All,
    /// What concerns these groups, or these sessions by no group in particular.
    Some {
        groups: BTreeSet<String>,
        sessions: BTreeSet<u64>,
    },
}

impl Wanted {
    fn of(recording: &Recording, groups: &[Group]) -> Result<Self, ReadError> {
        if groups.is_empty() {
            return Ok(Self::All);
        }
        let groups: BTreeSet<String> = groups.iter().map(ToString::to_string).collect();
        let mut sessions = BTreeSet::new();
        recording.each(|_, _, text| {
            if let Ok(row) = Row::parse(text)
                && row.group().is_some_and(|group| groups.contains(group))
            {
                sessions.extend(row.session());
            }
            Ok::<_, ReadError>(())
        })?;
        Ok(Self::Some { groups, sessions })
    }

    fn covers(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Some { groups, sessions } => match (row.group(), row.session()) {
                (Some(group), _) => groups.contains(group),
                (None, Some(session)) => sessions.contains(&session),
                (None, None) => true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    const DEEDS: &str = r#"{"ev":"deed","at_ms":1,"rev":1,"deed":"open","session":1,"node":"a","ttl_ms":1000}
{"ev":"deed","at_ms":1,"rev":2,"deed":"open","session":2,"node":"b","ttl_ms":1000}
{"ev":"deed","at_ms":1,"rev":3,"deed":"withdraw","group":"g","session":1,"node":"a","ttl_ms":1000}
{"ev":"deed","at_ms":1,"rev":4,"deed":"withdraw","group":"h","session":2,"node":"b","ttl_ms":1000}
damaged
{"ev":"end","at_ms":1,"rev":4}
"#;

    #[test]
    fn lines_of_one_group_bring_the_sessions_that_stood_in_it() {
        let file = write(DEEDS);
        let recording = Recording::open(file.path()).unwrap();
        let mut found = Vec::new();
        let take = |text: &str| {
            found.push(Row::parse(text).unwrap().revision());
            Ok::<_, ReadError>(())
        };
        let damaged = recording.select(&[Group::new("g").unwrap()], take).unwrap();
        assert_eq!((found, damaged), (vec![Some(1), Some(3), Some(4)], 1));
    }

    #[test]
    fn a_damaged_line_and_too_many_lines_are_refused_by_their_number() {
        let file = write(DEEDS);
        let recording = Recording::open(file.path()).unwrap();
        let refused = |max| match lines(&recording, max) {
            Err(ReadError::Line { number, .. }) => number,
            other => panic!("{other:?}"),
        };
        assert_eq!((refused(2), refused(100)), (3, 5));
        let empty = tempfile::tempdir().unwrap();
        let found = Recording::open(empty.path());
        assert!(matches!(found, Err(ReadError::NoRecording { .. })), "{found:?}");
    }
}
