//! `thalweg bench`: measure speed.

mod fabric;
mod hold;
mod memory;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// The simulator: 144 hosts, DCTCP, web-search flows at load 0.6, one thread
    Fabric(FabricArguments),
}

/// What `thalweg bench fabric` takes.
#[derive(Args)]
pub(crate) struct FabricArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Runs; the fastest counts, since other work on the machine can only slow one down
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Runs it.
pub(crate) fn bench(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Fabric(arguments) => fabric::fabric(arguments),
    }
}
