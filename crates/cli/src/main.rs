//! The `thalweg` program: thin commands over the libraries.
//!
//! Numbers for programs go to standard output, everything else to standard error. Exit codes: 0 done,
//! 1 it ran and failed, 2 bad input, 130 interrupted; `agent run` ends with that of its program.

mod agent;
mod daemon;
mod figure;
mod groups;
#[cfg(test)]
mod guides;
mod jobs;
mod lab;
mod nccl;
mod plan;
mod predict;
mod progress;
mod secret;
mod server;
mod sim;
mod switch;
mod token;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use thalweg_bench::{BenchCommand, RankArguments, StreamArguments, TrainArguments};
use thalweg_console::{files, log};
use thalweg_demo::{DaemonCommand, DemoArguments};
use thalweg_doctor::DoctorArguments;

/// Sums the gradients of many training workers inside the network and returns the sum to all of them.
///
/// The program runs on real networks (switch, server, agent), in labs of namespaces on one machine, and in a
/// deterministic packet-level simulator, which also has published baselines and reproduces published figures.
#[derive(Parser)]
#[command(name = "thalweg", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Examples of the first page of help.
const EXAMPLES: &str = "\
Examples:
  thalweg demo                                         all parts together on this machine, in less than a minute
  thalweg sim scenarios/websearch.toml                 flow completion times on a data-centre network
  thalweg sim scenarios/incast.toml --out out/incast   the same with a report page, JSON and CSV
  thalweg sim scenarios/sweep.toml --json              every combination of a sweep, for programs
  thalweg figure --list                                published figures that can be run again
  thalweg figure atp-table1                            one figure, beside the paper's numbers
  thalweg predict train --input flows.csv --out forest.bin    learn how large flows become
  thalweg lab --hosts 8 --rate 1gbit -- ./train.sh     a command on 8 hosts, all on this machine
  thalweg plan --layers resnet50 --format sonic        queue thresholds for a model, for a switch
  thalweg secret new --out secret                      the secret that switches and servers of a cluster share
  thalweg switch --metrics 127.0.0.1:9464              a switch on this machine, with metrics
  thalweg server --switch 127.0.0.1:4800               a server beside it
  thalweg agent --address 10.0.3.7 --rate 10gbit       plans when the jobs of this host send
  thalweg token new --secret-file s --job resnet --ranks 8    the token that ranks of a job show the server
  thalweg nccl run --server 10.0.0.1:4808 -- torchrun train.py    a program over NCCL, its sums through switches
  thalweg doctor 10.0.0.2                              what is wrong with the path to a host
  thalweg top                                          live view of switches, servers and jobs
  thalweg bench fabric                                 how fast the simulator is on this machine";

const COMPLETIONS: &str = "\
Examples:
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish";

#[derive(Subcommand)]
enum Command {
    /// Train two models at once over a lossy switch, all on this machine, and check the result
    #[command(long_about = thalweg_demo::ABOUT)]
    Demo(DemoArguments),
    /// Run a scenario file and print flow completion times, links and drops
    Sim(sim::SimArguments),
    /// Run a published figure again and compare it with the paper's numbers
    Figure(figure::FigureArguments),
    /// Learn how large flows become, and evaluate the predictions
    #[command(subcommand, after_long_help = predict::PREDICT_HELP)]
    Predict(predict::PredictCommand),
    /// Run a command on every host of a network that exists only on this machine
    #[command(long_about = lab::ABOUT)]
    Lab(lab::LabArguments),
    /// Plan the queues of switches for a model whose gradients may be lost in part
    #[command(long_about = plan::ABOUT)]
    Plan(plan::PlanArguments),
    /// Run a switch, which sums gradients in the network
    Switch(switch::SwitchArguments),
    /// Run a server, which completes sums and keeps the list of jobs and their ranks
    Server(server::ServerArguments),
    /// Make secrets for switches and servers
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Plan when the jobs of this host send, and make programs follow the plan
    #[command(long_about = agent::ABOUT)]
    Agent(agent::AgentArguments),
    /// Make tokens for tenants and operators, and explain them
    #[command(subcommand, long_about = token::ABOUT)]
    Token(token::TokenCommand),
    /// Run programs over NCCL with the plug-in, and check that it works on this host
    #[command(subcommand, long_about = nccl::ABOUT)]
    Nccl(nccl::NcclCommand),
    /// Find out what is wrong with this host and the network around it, and what to do
    #[command(long_about = thalweg_doctor::ABOUT)]
    Doctor(DoctorArguments),
    /// List the jobs of a server and their ranks
    Jobs(jobs::JobsArguments),
    /// Watch switches, servers and jobs
    Top(top::TopArguments),
    /// Measure speed
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print completions for a shell
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// A switch or a server of the demo
    #[command(subcommand, hide = true)]
    DemoDaemon(DaemonCommand),
    /// A worker of the demo
    #[command(hide = true)]
    DemoWorker,
    /// One rank of a check of the plug-in
    #[command(hide = true)]
    NcclRank(nccl::RankArguments),
    /// One rank of a benchmark
    #[command(hide = true)]
    BenchRank(RankArguments),
    /// One program of a benchmark
    #[command(hide = true)]
    BenchStream(StreamArguments),
    /// One rank of a benchmark of pacing
    #[command(hide = true)]
    BenchTrain(TrainArguments),
}

fn main() -> ExitCode {
    let matches = groups::arrange(Arguments::command(), EXAMPLES).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match arguments.command {
        Command::Demo(arguments) => thalweg_demo::demo(&arguments),
        Command::DemoDaemon(command) => thalweg_demo::daemon(&command),
        Command::DemoWorker => thalweg_demo::worker(),
        Command::Sim(arguments) => sim::sim(&arguments),
        Command::Figure(arguments) => figure::figure(&arguments),
        Command::Predict(command) => predict::predict(&command),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Switch(arguments) => switch::switch(&arguments),
        Command::Server(arguments) => server::server(&arguments),
        Command::Secret(command) => secret::secret(&command),
        Command::Agent(arguments) => agent::agent(&arguments),
        Command::Token(command) => token::token(&command),
        Command::Nccl(command) => nccl::nccl(&command),
        Command::NcclRank(arguments) => nccl::rank(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "thalweg", &mut script);
            files::print(&String::from_utf8_lossy(&script))
        }
        Command::Jobs(arguments) => jobs::jobs(&arguments),
        Command::Doctor(arguments) => thalweg_doctor::doctor(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Bench(command) => thalweg_bench::bench(&command),
        Command::BenchStream(arguments) => thalweg_bench::stream(&arguments),
        Command::BenchTrain(arguments) => thalweg_bench::train(&arguments),
        Command::BenchRank(arguments) => thalweg_bench::rank(&arguments),
    };
    let exit_code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            daemon::fail(&failure);
            failure.exit_code()
        }
    };
    log::finish();
    exit_code
}
