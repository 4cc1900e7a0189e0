//! `thalweg predict`: forests that bound the sizes of flows.

mod eval;
mod page;
mod show;
mod train;

use std::path::Path;

use clap::Subcommand;
use thalweg_console::{Failure, files};
use thalweg_core::Bytes;
use thalweg_prioritize::NewFlow;
use thalweg_prioritize::records::Records;

/// Commands of `thalweg predict`.
#[derive(Subcommand)]
pub(crate) enum PredictCommand {
    /// Learn from flows that have ended, and write a forest
    #[command(after_long_help = TABLE_HELP)]
    Train(train::TrainArguments),
    /// Predict bounds of flows, and compare them with the flows' sizes
    #[command(after_long_help = TABLE_HELP)]
    Eval(eval::EvalArguments),
    /// Show what a forest was learned from: destinations, trees and settings
    Show(show::ShowArguments),
}

pub(crate) const PREDICT_HELP: &str = "\
When a flow starts, its sender knows the destination and the sizes of the last five flows. A forest of
regression trees keeps the sizes of all flows that it learned from. The flows that share leaves with the
new flow give a lower and an upper bound of its size. QCLIMB gives priorities by these bounds.

  thalweg sim scenarios/websearch.toml --out out/web
  thalweg predict train --input out/web/flows.csv --out forest.bin
  thalweg predict eval --input out/web/flows.csv --model forest.bin --out out/bounds

Learn from one part of your flows and evaluate on a later one: flows that a forest learned from are
always within its bounds. docs/prioritize.md has the rest.";

const TABLE_HELP: &str = "\
The input is a table of flows with a header. Columns may have any order, and others are ignored:

  start_us            start of the flow, in microseconds
  src, dst            IPv4 addresses, or numbers of hosts
  bytes               size of the flow
  src_port, dst_port, protocol    the rest of the 5-tuple; 0 without these columns
  end_us or fct_us    time of its end, or duration; without both, its start counts

  start_us,src,src_port,dst,dst_port,protocol,bytes,end_us
  0,10.0.0.1,40112,10.0.0.9,80,tcp,4711,350.5

  gap_us, last_1 … last_5         all or none: features as an agent recorded them

The file flows.csv of `thalweg sim --out` is such a table, and so is that of `thalweg agent --learned`.";

/// Runs it.
pub(crate) fn predict(command: &PredictCommand) -> Result<(), Failure> {
    match command {
        PredictCommand::Train(arguments) => train::train(arguments),
        PredictCommand::Eval(arguments) => eval::eval(arguments),
        PredictCommand::Show(arguments) => show::show(arguments),
    }
}

/// The flows of a file as they were known when they started, and how many never ended.
fn read_flows(path: &Path) -> Result<(Vec<(NewFlow, Bytes)>, usize), Failure> {
    let text = files::read(path)?;
    let wrong = |reason: String| Failure::Usage(format!("{}: {reason}", path.display()));
    let records = Records::from_csv(&text).map_err(|error| wrong(error.to_string()))?;
    if records.flows.is_empty() {
        return Err(wrong("no flow in it has ended: give a table with flows".to_owned()));
    }
    Ok((records.describe(), records.unfinished))
}
