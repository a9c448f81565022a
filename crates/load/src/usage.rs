//! CPU and memory of the service's processes, as the system counts them.

use crate::error::LoadError;

/// The processes of a service. None means that nobody said which they are.
#[derive(Clone, Debug)]
pub(crate) struct Processes(Vec<u32>);

impl Processes {
    pub(crate) const fn of(pids: Vec<u32>) -> Self {
        Self(pids)
    }

    pub(crate) const fn are_unknown(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }

    /// CPU that all of them have used, in microseconds.
    pub(crate) fn cpu_us(&self) -> Result<u64, LoadError> {
        let mut total = 0;
        for pid in &self.0 {
            let (path, text) = read(*pid, "stat")?;
            // The name may hold anything, so count from the parenthesis that ends it.
            let after = text.rsplit(')').next().unwrap_or_default();
            let fields: Vec<&str> = after.split_whitespace().collect();
            let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
            let used = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
            let used = used.ok_or_else(|| strange(&path))?;
            // A hundred ticks a second on every Linux there is.
            total += used * 10_000;
        }
        Ok(total)
    }

    /// Bytes of memory that all of them hold.
    pub(crate) fn memory_bytes(&self) -> Result<u64, LoadError> {
        let mut total = 0;
        for pid in &self.0 {
            let (path, text) = read(*pid, "status")?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line
                .and_then(|line| line.split_whitespace().next())
                .and_then(|kib| kib.parse::<u64>().ok())
                .ok_or_else(|| strange(&path))?;
            total += kib * 1024;
        }
        Ok(total)
    }
}

fn read(pid: u32, file: &str) -> Result<(String, String), LoadError> {
    let path = format!("/proc/{pid}/{file}");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(source) => Err(LoadError::io(format!("process {pid} of the service: {path}"), source)),
    }
}

fn strange(path: &str) -> LoadError {
    LoadError::Unavailable(format!("{path} is not as expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_works_is_seen_to_use_cpu_and_memory() {
        let own = Processes::of(vec![std::process::id()]);
        assert!(own.memory_bytes().unwrap() > 100_000);
        let before = own.cpu_us().unwrap();
        while own.cpu_us().unwrap() == before {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let gone = Processes::of(vec![u32::MAX]);
        assert!(gone.cpu_us().unwrap_err().to_string().contains("4294967295"));
    }
}
