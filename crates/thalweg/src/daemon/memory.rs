//! Budgets of memory for the jobs of a server.
// spec: E-12

use std::fs;

use crate::error::Error;

/// Memory that jobs may take of a server: what the most that they can come to adds up to, whatever they use.
///
/// A job that needs more than its budget gets a smaller window, and is slower; one that does not fit beside the others is
/// refused. What a server needs for itself, about 20 MB, and the memory of its control channel come on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemoryBudget {
    /// Most bytes of one job. Default 256 MiB: nine times what a job with default settings takes.
    pub of_job_bytes: u64,
    /// Most bytes of the jobs of one token, or of one address where tokens are shared or not needed. Default a quarter of
    /// [`total_bytes`](MemoryBudget::total_bytes): the jobs of one tenant leave the others enough.
    pub of_token_bytes: Option<u64>,
    /// Most bytes of all jobs together. Default a quarter of the memory that the machine, or the control group of the
    /// process, has, and at least 1 GiB.
    pub total_bytes: u64,
}

/// The default of one job.
const OF_JOB_BYTES: u64 = 256 << 20;

/// The least default of all jobs.
const TOTAL_LEAST_BYTES: u64 = 1 << 30;

/// The default of one token is the total, divided by this.
const TOKENS: u64 = 4;

/// The least budget: a job of two ranks with the smallest window takes less.
const LEAST_BYTES: u64 = 1 << 20;

impl Default for MemoryBudget {
    fn default() -> MemoryBudget {
        let quarter = available_bytes().unwrap_or(0) / 4;
        MemoryBudget {
            of_job_bytes: OF_JOB_BYTES,
            of_token_bytes: None,
            total_bytes: quarter.max(TOTAL_LEAST_BYTES),
        }
    }
}

impl MemoryBudget {
    /// Most bytes of one job that is alone.
    pub(crate) fn job_bytes(self) -> u64 {
        self.of_job_bytes.min(self.token_bytes())
    }

    /// Most bytes of the jobs of one token.
    pub fn token_bytes(self) -> u64 {
        // A small server still has room for a job.
        let share = (self.total_bytes / TOKENS).max(LEAST_BYTES);
        self.of_token_bytes.unwrap_or(share).min(self.total_bytes)
    }

    /// Refuses budgets that no job fits.
    pub(crate) fn check(self) -> Result<(), Error> {
        let token = self.of_token_bytes.unwrap_or(LEAST_BYTES);
        let budgets = [
            ("job-memory", self.of_job_bytes),
            ("token-memory", token),
            ("memory", self.total_bytes),
        ];
        for (name, bytes) in budgets {
            if bytes < LEAST_BYTES {
                let text = format!("{name} is {bytes} bytes, and no job fits: give at least 1MiB");
                return Err(Error::config(text));
            }
        }
        Ok(())
    }
}

/// Memory that this process can have.
fn available_bytes() -> Option<u64> {
    let machine = machine_bytes(&fs::read_to_string("/proc/meminfo").ok()?)?;
    // The file of the second version of control groups; a container has its own at this place.
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|limit| limit.trim().parse().ok());
    Some(group.map_or(machine, |group: u64| group.min(machine)))
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemTotal:       16303428 kB\nMemFree:          500000 kB\n";
        assert_eq!(machine_bytes(text), Some(16_303_428 << 10));
        assert_eq!(machine_bytes("MemTotal: many kB"), None);
        assert_eq!(machine_bytes("MemFree: 5 kB"), None);
    }

    // spec: E-12 machine
    #[test]
    fn defaults_fit_each_other_and_nothing_is_refused() {
        let budget = MemoryBudget::default();
        assert!(budget.check().is_ok());
        assert_eq!(budget.job_bytes(), 256 << 20);
        assert!(budget.total_bytes >= 1 << 30);
        assert_eq!(budget.token_bytes(), budget.total_bytes / 4);
        let small = MemoryBudget { total_bytes: 64 << 20, ..budget };
        assert_eq!((small.token_bytes(), small.job_bytes()), (16 << 20, 16 << 20));
        let alone = MemoryBudget { of_token_bytes: Some(1 << 40), ..small };
        assert_eq!(alone.token_bytes(), 64 << 20, "nobody can take more than there is");
        assert_eq!(alone.job_bytes(), 64 << 20);
        let tiny = MemoryBudget { total_bytes: LEAST_BYTES, ..budget };
        assert_eq!(tiny.token_bytes(), LEAST_BYTES);
        let none = MemoryBudget { of_job_bytes: 1_000, ..budget };
        assert!(none.check().unwrap_err().to_string().contains("job-memory is 1000 bytes"));
        let none = MemoryBudget { of_token_bytes: Some(1_000), ..budget };
        assert!(none.check().unwrap_err().to_string().contains("token-memory is 1000 bytes"));
    }
}
