//! Writes the seeds of the fuzz targets into the source tree: `cargo run -p thalweg-wire --example
//! corpus`. Run it when a layout changes.

use std::{fs, io};

#[path = "../tests/corpus/inputs.rs"]
mod inputs;

fn main() -> io::Result<()> {
    for (target, inputs) in inputs::targets() {
        fs::create_dir_all(inputs::folder(target))?;
        for (name, bytes) in inputs {
            fs::write(inputs::folder(target).join(name), bytes)?;
        }
    }
    Ok(())
}
