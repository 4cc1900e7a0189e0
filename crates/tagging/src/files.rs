//! Files with what was learned, that `thalweg predict` reads.

use std::fs;
use std::io;
use std::path::Path;

use thalweg_core::Bytes;
use thalweg_prioritize::{Model, NewFlow, records};
use tracing::warn;

use crate::TARGET;

/// The latest forest.
const FOREST: &str = "forest.bin";
/// The flows that it was learned from.
const FLOWS: &str = "flows.csv";

/// Writes both files. A reader finds the old file or the new one, never half of it.
pub(crate) fn write(folder: &Path, model: &Model, flows: &[(NewFlow, Bytes)]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let replace = |name: &str, bytes: &[u8]| {
        let new = folder.join(format!("new-{name}"));
        fs::write(&new, bytes)?;
        fs::rename(new, folder.join(name))
    };
    replace(FLOWS, records::to_csv(flows).as_bytes())?;
    replace(FOREST, &model.encode())
}

/// Reads the forest. One that is damaged is reported and not used.
pub(crate) fn read(folder: &Path) -> Option<Model> {
    let path = folder.join(FOREST);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(target: TARGET, event = "unread", "{}: {error}", path.display());
            return None;
        }
    };
    match Model::decode(&bytes) {
        Ok(model) => Some(model),
        Err(error) => {
            let path = path.display();
            warn!(target: TARGET, event = "unread", "{path}: {error}; learning starts without it");
            None
        }
    }
}
