//! `thalweg bench flows` alone.

use std::process::ExitCode;

use clap::Parser;
use thalweg_replay::{FlowsArguments, flows};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    flows: FlowsArguments,
}

fn main() -> ExitCode {
    match flows(&Arguments::parse().flows) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("flows: {failure}");
            failure.exit_code()
        }
    }
}
