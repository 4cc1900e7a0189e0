//! Reading and writing with errors that name the file.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use thalweg_report::table::Style;

use crate::failure::Failure;

/// Reads a text file.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

/// Reads a file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| unreadable(path, &error))
}

/// Writes a file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    fs::write(path, content).map_err(|error| unwritable(path, &error))
}

/// Writes a new file that nobody but its owner can read.
pub fn write_private(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(content.as_ref()));
    written.map_err(|error| unwritable(path, &error))
}

/// Writes a result to standard output. Its reader may stop early: that is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(unwritable(Path::new("standard output"), &error))
        }
        _ => Ok(()),
    }
}

/// Returns how tables are written to standard output.
pub fn table_style() -> Style {
    if io::stdout().is_terminal() { Style::Ansi } else { Style::Plain }
}

/// Creates a folder and its parents.
pub fn create_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| unwritable(path, &error))
}

/// Returns the failure to read a file.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::Unreadable { path: path.display().to_string(), reason: error.to_string() }
}

/// Returns the failure to write a file.
pub fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Unwritable { path: path.display().to_string(), reason: error.to_string() }
}
