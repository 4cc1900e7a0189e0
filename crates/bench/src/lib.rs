//! `thalweg bench`: measure speed.

mod aggregate;
mod allreduce;
pub mod embedded;
mod fabric;
mod hold;
mod pacing;
pub mod queues;
mod schedule;
mod switch;
mod tools;

pub use allreduce::{RankArguments, rank};
pub use pacing::{StreamArguments, TrainArguments, stream, train};

use clap::{Args, Subcommand};
use thalweg_console::Failure;

/// Benchmarks.
#[derive(Subcommand)]
pub enum BenchCommand {
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
    /// Load tables over gRPC: how many agents one switch serves
    ///
    /// Every agent fetches feedback and updates its schedule in every slot of 60 ms, at a moment of its
    /// own; agents and tables share this machine. 100 agents make 3,333 calls a second.
    Schedule(schedule::ScheduleArguments),
    /// Flows over TCP with priorities that agents learn, in a lab with eight queues a port; needs root
    ///
    /// The same flows pass four times: without priorities, with PIAS, with QCLIMB by what an agent on every host
    /// observes while they pass, and with precise sizes.
    Flows(thalweg_replay::FlowsArguments),
    /// Rates that are kept, jobs that take turns, others that are left their share; needs root
    ///
    /// In a lab: two TCP programs and a Thalweg flow follow rates that change every 60 ms, and means over
    /// ten slots are compared with what was asked; two jobs whose bytes meet on a link run without
    /// agents and with them; a paced job runs beside a TCP connection that nobody paces.
    Pacing(pacing::PacingArguments),
}

/// Arguments of `thalweg bench fabric`.
#[derive(Args)]
pub struct FabricArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Runs; the fastest counts, since other work on the machine can only slow one down
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Arguments of `thalweg bench aggregate`.
#[derive(Args)]
pub struct AggregateArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Rounds; the fastest counts, since other work on the machine can only slow one down
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Runs it.
pub fn bench(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Fabric(arguments) => fabric::fabric(arguments),
        BenchCommand::Aggregate(arguments) => aggregate::aggregate(arguments),
        BenchCommand::Allreduce(arguments) => allreduce::allreduce(arguments),
        BenchCommand::Switch(arguments) => switch::switch(arguments),
        BenchCommand::Schedule(arguments) => schedule::schedule(arguments),
        BenchCommand::Flows(arguments) => thalweg_replay::flows(arguments),
        BenchCommand::Pacing(arguments) => pacing::pacing(arguments),
    }
}
