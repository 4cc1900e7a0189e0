//! Writes the seeds of the fuzz target `board` into the source tree: `cargo run -p thalweg-control --example
//! board_corpus`. Run it when a message changes.

use std::{fs, io};

#[path = "../../../fuzz/board.rs"]
mod checks;
#[path = "../tests/board/inputs.rs"]
mod inputs;

fn main() -> io::Result<()> {
    fs::create_dir_all(inputs::folder())?;
    for (name, bytes) in inputs::inputs() {
        assert!(checks::board(&bytes), "{name} is taken in");
        fs::write(inputs::folder().join(name), bytes)?;
    }
    Ok(())
}
