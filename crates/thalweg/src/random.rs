//! What must not repeat itself: names of processes, ids of jobs.

use std::fs::File;
use std::io::Read;

use crate::error::Error;

/// A number that nobody can guess, from the operating system.
pub(crate) fn draw() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::system("the system gives no random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}
