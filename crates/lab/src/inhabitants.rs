//! Processes in the networks of a lab.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::sys;

/// A process that forks while the others are killed leaves one that was not seen: it is found the next time.
const ROUNDS: u32 = 10;

/// Kills all other processes whose network is one of these, by the kernel's numbers: also those that have left the
/// group of the program that started them. The networks must be held open, so that the numbers stay theirs.
pub(crate) fn kill_all(networks: &BTreeSet<u64>) {
    for _ in 0..ROUNDS {
        let found = found(networks);
        if found.is_empty() {
            return;
        }
        found.into_iter().for_each(sys::kill);
    }
}

fn found(networks: &BTreeSet<u64>) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = numbers.filter(|number| *number != std::process::id());
    others.filter(|number| is_in(*number, networks) && !is_dead(*number)).collect()
}

/// A process that has ended, or is somebody else's, has no network that can be seen.
fn is_in(number: u32, networks: &BTreeSet<u64>) -> bool {
    let network = fs::metadata(format!("/proc/{number}/ns/net"));
    network.is_ok_and(|network| networks.contains(&network.ino()))
}

/// A process that was killed and not waited for is still listed.
fn is_dead(number: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    // The name stands in brackets, and may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X') | None)
}
