//! Numbers that must not repeat: names of processes, ids of jobs.

use std::fs::File;
use std::io::{self, Read};

/// Returns a number that nobody can guess, from the operating system.
pub fn draw() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(u64::from_le_bytes(bytes))
}
