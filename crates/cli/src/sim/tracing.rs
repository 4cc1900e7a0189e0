//! Packet traces in files.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use thalweg_console::{Failure, files};
use thalweg_fabric::trace::{JsonLines, PcapNg, Tracer};
use thalweg_scenario::Scenario;

/// A tracer that writes to a file, in the format that its ending says.
pub(crate) fn tracer(path: &Path, scenario: &Scenario) -> Result<Box<dyn Tracer>, Failure> {
    let unwritable = |error| files::unwritable(path, &error);
    let create = || File::create(path).map(BufWriter::new).map_err(unwritable);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("pcapng") => {
            let tracer = PcapNg::new(create()?, &link_names(scenario));
            Ok(Box::new(tracer.map_err(unwritable)?))
        }
        Some("jsonl") => Ok(Box::new(JsonLines::new(create()?))),
        _ => Err(Failure::Usage(format!(
            "{}: the ending says the format: use .pcapng or .jsonl",
            path.display()
        ))),
    }
}

fn link_names(scenario: &Scenario) -> Vec<String> {
    let links = scenario.topology().links();
    let name = |link| {
        let (from, to) = scenario.topology().link_ends(link);
        format!("{} to {}", scenario.node_name(from), scenario.node_name(to))
    };
    links.map(name).collect()
}
