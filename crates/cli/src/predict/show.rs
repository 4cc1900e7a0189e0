//! `thalweg predict show`.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use thalweg_console::{Failure, files};
use thalweg_prioritize::Model;

/// Destinations that are listed without --json.
const LISTED: usize = 20;

/// Arguments of `thalweg predict show`.
#[derive(Args)]
pub(crate) struct ShowArguments {
    /// A forest that `thalweg predict train` or an agent has written
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Print one JSON document, with all destinations
    #[arg(long)]
    json: bool,
}

/// Runs it.
// spec: Q-13
pub(super) fn show(arguments: &ShowArguments) -> Result<(), Failure> {
    let model = Model::decode(&files::read_bytes(&arguments.model)?)
        .map_err(|error| Failure::Usage(format!("{}: {error}", arguments.model.display())))?;
    let name = |(address, port): (u32, u16)| format!("{}:{port}", Ipv4Addr::from(address));
    let destinations: Vec<String> = model.destinations().map(name).collect();
    let (forest, options) = (model.forest(), model.options());
    if arguments.json {
        let document = json!({
            "schema": "thalweg.predict-show/1",
            "trees": forest.trees(),
            "nodes": forest.nodes(),
            "samples": forest.samples(),
            "beta": options.beta,
            "uses_start": options.uses_start,
            "destinations": destinations,
        });
        return files::print(&format!("{document}\n"));
    }
    let (trees, nodes, number) = (forest.trees(), forest.nodes(), destinations.len());
    let mut text = format!(
        "{trees} trees, {nodes} nodes, beta {}\nlearned from flows to {number} destinations:\n",
        options.beta
    );
    for destination in destinations.iter().take(LISTED) {
        text += &format!("  {destination}\n");
    }
    if number > LISTED {
        text += &format!("  and {} more: --json lists all\n", number - LISTED);
    }
    files::print(&text)
}
