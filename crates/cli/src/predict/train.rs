//! `thalweg predict train`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use thalweg_console::{Failure, files, interrupt};
use thalweg_prioritize::forest::SettingsError;
use thalweg_prioritize::{Model, ModelError, Options, Settings};
use thalweg_report::format::{format_bytes, format_count, format_span_us};

use super::read_flows;
use crate::progress::Bar;

/// Arguments of `thalweg predict train`.
#[derive(Args)]
pub(crate) struct TrainArguments {
    /// The flows to learn from, a table with a header
    #[arg(long, value_name = "CSV")]
    input: PathBuf,
    /// File to write the model to
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Number of trees
    #[arg(long, value_name = "N", default_value_t = 10)]
    trees: u32,
    /// Most splits from the root of a tree to a leaf
    #[arg(long, value_name = "N", default_value_t = 10)]
    depth: u32,
    /// Share of similar flows that must lie within the bounds, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    beta: f64,
    /// Also learn from start times: useful only for flows of the same trace
    #[arg(long)]
    use_start: bool,
    /// Seed of the random draws; the same seed gives the same forest, bit for bit
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON document instead of a line
    #[arg(long)]
    json: bool,
}

/// Runs it.
#[expect(clippy::disallowed_methods, reason = "the program reports how long it took")]
pub(super) fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    let (flows, unfinished) = read_flows(&arguments.input)?;
    interrupt::listen();
    let start = Instant::now();
    let model = learn(arguments, &flows)?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes = model.encode();
    files::write(&arguments.out, &bytes)?;
    let forest = model.forest();
    if arguments.json {
        let document = json!({
            "schema": "thalweg.predict-train/1",
            "input": arguments.input,
            "out": arguments.out,
            "flows": flows.len(),
            "unfinished": unfinished,
            "trees": forest.trees(),
            "nodes": forest.nodes(),
            "bytes": bytes.len(),
            "seconds": seconds,
        });
        return files::print(&format!("{document}\n"));
    }
    let left_out = match unfinished {
        0 => String::new(),
        count => format!(", {} that never ended left out", format_count(count as u64)),
    };
    files::print(&format!(
        "learned from {} flows{left_out} in {}: {} trees, {} nodes\nwrote {}, {}\n",
        format_count(flows.len() as u64),
        format_span_us(seconds * 1e6),
        forest.trees(),
        format_count(forest.nodes() as u64),
        arguments.out.display(),
        format_bytes(bytes.len() as u64),
    ))
}

fn learn(
    arguments: &TrainArguments,
    flows: &[(thalweg_prioritize::NewFlow, thalweg_core::Bytes)],
) -> Result<Model, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        trees: arguments.trees,
        depth: arguments.depth,
        seed: arguments.seed,
        threads: arguments.threads.unwrap_or(cores),
        ..Settings::default()
    };
    let options = Options { uses_start: arguments.use_start, beta: arguments.beta };
    let bar = Bar::new();
    let watch = |done: usize| {
        bar.show(done as f64 / f64::from(settings.trees), "trees");
        if interrupt::is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = Model::train(flows, &settings, options, &watch);
    bar.finish();
    result.map_err(|error| match error {
        ModelError::Training(SettingsError::Stopped(_)) => Failure::Interrupted,
        error => Failure::usage(error),
    })
}
