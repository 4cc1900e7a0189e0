//! Writes the seeds of the fuzz target `agent` into the source tree: `cargo run -p thalweg --example agent_corpus`. Run
//! it when a word changes.

use std::{fs, io};

#[path = "../../../fuzz/agent.rs"]
mod checks;
#[path = "../tests/lines/inputs.rs"]
mod inputs;

fn main() -> io::Result<()> {
    fs::create_dir_all(inputs::folder())?;
    for (name, bytes) in inputs::inputs() {
        assert!(checks::agent(&bytes), "{name} is taken in");
        fs::write(inputs::folder().join(name), bytes)?;
    }
    Ok(())
}
