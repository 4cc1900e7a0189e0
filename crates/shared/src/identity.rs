//! Identity of a host: processes with the same one can share memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::file::DIRECTORY;

/// A text that is the same for processes that can share memory, and another for others: the running
/// system, its network namespace, and its `/dev/shm`.
///
/// The network namespace keeps apart what is meant to be separate hosts on one machine. A process
/// that cannot find out where it runs gets a text that no other has.
pub fn host_identity() -> String {
    known().unwrap_or_else(alone)
}

fn known() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = fs::metadata("/proc/self/ns/net").ok()?.ino();
    let shared = fs::metadata(DIRECTORY).ok()?;
    Some(format!("{}.{network}.{}.{}", boot.trim(), shared.dev(), shared.ino()))
}

/// Stays the same for the life of the process.
fn alone() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| format!("alone.{}.{}", std::process::id(), nanoseconds())).clone()
}

#[expect(clippy::disallowed_methods, reason = "tells processes of different hosts apart")]
fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_the_same_and_fits_a_file_name() {
        let identity = host_identity();
        assert_eq!(identity, host_identity());
        assert!(crate::file::is_name(&identity), "{identity}");
        assert_eq!(alone(), alone());
    }

    #[test]
    fn it_holds_the_running_system() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(host_identity().starts_with(boot.trim()));
    }
}
