//! Helpers of all benchmarks, and other processes of this program.

use std::io::Read;
use std::path::PathBuf;
use std::process::Child;

use thalweg_console::Failure;
pub(crate) use thalweg_replay::tools::{now, percentile, round, sleep, thread_times};

/// Returns the file of this program.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Ran(format!("cannot find this program: {error}")))
}

/// Reads what a process prints until it ends.
pub(crate) fn output_of(child: &mut Child) -> Result<String, Failure> {
    let mut text = String::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_string(&mut text).map_err(Failure::ran)?;
    }
    Ok(text)
}
