//! `thalweg bench`: measure speed.

mod aggregate;
pub(crate) mod allreduce;
mod fabric;
mod hold;
mod memory;
mod switch;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// The simulator: 144 hosts, DCTCP, web-search flows at load 0.6, one thread
    Fabric(FabricArguments),
    /// One step of an aggregating switch: a gradient of 62, 256 or 352 values, and copying as much
    ///
    /// A steady stream of fixed-point gradients of 8 workers goes through a switch with 512
    /// aggregators. Every eighth gradient completes its sum and takes it along, and every sum is freed
    /// by its parameter packet. The time of all that is divided by the number of gradients. Beside it
    /// stands the time of copying the same bodies in the same order to memory of the same size.
    Aggregate(AggregateArguments),
    /// All-reduce over real sockets, between processes of this host or on the hosts of a lab
    Allreduce(allreduce::AllReduceArguments),
    /// An aggregating switch over real sockets: packets for a second of one core
    ///
    /// Real workers and a real server keep a switch on a thread of its own busy, over loopback. The
    /// packets that the switch received, gradients and results, are divided by the processor time of its
    /// thread, the kernel's work for it included. Headers are sealed and checked, as in a daemon.
    Switch(switch::SwitchArguments),
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

/// What `thalweg bench aggregate` takes.
#[derive(Args)]
pub(crate) struct AggregateArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Rounds; the fastest counts, since other work on the machine can only slow one down
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Runs it.
pub(crate) fn bench(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Fabric(arguments) => fabric::fabric(arguments),
        BenchCommand::Aggregate(arguments) => aggregate::aggregate(arguments),
        BenchCommand::Allreduce(arguments) => allreduce::allreduce(arguments),
        BenchCommand::Switch(arguments) => switch::switch(arguments),
    }
}
