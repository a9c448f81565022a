//! A ledger that no deposed leader can write to, however long it was paused.
//!
//! ```text
//! cargo run -p regent --features stores --example fenced_writer -- http://127.0.0.1:7400 ledger.txt
//! cargo run -p regent --features stores --example fenced_writer -- memory: ledger.txt 3
//! ```
//! Every row carries the term of its writer. The ledger remembers the highest one, where the rows
//! are, and refuses lower ones. That no row comes without a term is the compiler's business:
//! [`Ledger::append`] takes a [`Fenced`] value, and only a passed check makes one.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use regent::{Fence, FenceError, Fenced, Permit, Term};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
    let path = words.next().unwrap_or_else(|| "ledger.txt".to_owned());
    let rounds = words.next().map_or(Ok(10), |rounds| rounds.parse())?;
    let last = run(&url, Path::new(&path), rounds).await?;
    println!("the last row was written under term {last}");
    Ok(())
}

/// Rows in a file, each `term<tab>text`. The lock of the file makes reading the mark and writing the
/// row one step, whoever else has it open.
#[derive(Debug)]
pub struct Ledger {
    file: File,
}

/// Why a row was not written.
#[derive(Debug)]
pub enum LedgerError {
    /// Somebody with a higher term was here.
    Stale(FenceError),
    /// The file could not be read or written.
    File(std::io::Error),
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stale(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl Error for LedgerError {}

impl From<std::io::Error> for LedgerError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

impl Ledger {
    /// The ledger in this file.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        Ok(Self { file })
    }

    /// Writes a row, unless somebody with a higher term has written.
    pub fn append(&mut self, row: Fenced<&str>) -> Result<(), LedgerError> {
        self.file.lock()?;
        let written = self.append_locked(row);
        self.file.unlock()?;
        written
    }

    fn append_locked(&mut self, row: Fenced<&str>) -> Result<(), LedgerError> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut mark = Term::NONE;
        for line in BufReader::new(&self.file).lines() {
            let number = line?.split('\t').next().and_then(|number| number.parse().ok());
            mark = mark.max(number.and_then(Term::new).unwrap_or(Term::NONE));
        }
        Fence::at(mark).admit(row.term()).map_err(LedgerError::Stale)?;
        writeln!(self.file, "{}\t{}", row.term(), row.get())?;
        self.file.sync_data()?;
        Ok(())
    }
}

/// Writes so many rows, whenever this process leads. Says the term of the last one.
pub async fn run(url: &str, path: &Path, rounds: u64) -> Result<Term, Box<dyn Error>> {
    let regent = regent::connect(url).await?;
    let mut ledger = Ledger::open(path)?;
    let mut written = 0;
    let mut last = Term::NONE;
    while written < rounds {
        let leadership = regent.campaign("ledger").await?;
        while written < rounds
            && let Ok(permit) = leadership.check()
        {
            match post(&mut ledger, &permit, written) {
                Ok(()) => {
                    written += 1;
                    last = permit.term();
                }
                Err(LedgerError::Stale(error)) => {
                    println!("deposed without having been told: {error}");
                    leadership.fence_refused();
                    break;
                }
                Err(LedgerError::File(error)) => return Err(error.into()),
            }
        }
        leadership.resign().await?;
    }
    regent.close().await;
    Ok(last)
}

/// Cannot be called without having checked.
fn post(ledger: &mut Ledger, permit: &Permit, number: u64) -> Result<(), LedgerError> {
    ledger.append(permit.fence(format!("payment {number}").as_str()))
}
