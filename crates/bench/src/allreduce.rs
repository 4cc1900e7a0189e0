//! Speed of summing tensors over real sockets.

mod gloo;
mod rank;
mod stage;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg::daemon::default_cores;
use thalweg::{Collective, Wait, Window};
use thalweg_console::{Failure, files};
use thalweg_core::Rate;

pub use self::rank::{RankArguments, rank};
use self::stage::Stage;
use crate::queues::QueueArguments;
use crate::tools::{percentile, round};

/// Arguments of `thalweg bench allreduce`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AllReduceArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Ranks: each a process, and in a lab each on a host of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    hosts: u32,
    /// Build a network on this machine, with links of --rate; needs root
    #[arg(long)]
    lab: bool,
    /// Rate of every link of the lab, in each direction
    #[arg(long, default_value = "1gbit", requires = "lab")]
    rate: Rate,
    /// Share of the packets that is lost: at every receiver of the lab, or else by the switch
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Number of hosts of the lab, from the first, whose links lose packets, in both directions
    #[arg(long, requires = "lab")]
    lossy_hosts: Option<u32>,
    /// Largest share of any rank's values that sums may lack, 0 to below 1; 0 is exact
    #[arg(long, default_value_t = 0.0)]
    bound: f64,
    /// The lab's links carry packets one by one, as a wire does; wanted with --loss
    #[arg(long, requires = "lab")]
    per_packet: bool,
    #[command(flatten)]
    queues: QueueArguments,
    /// MTU of every link of the lab, 576 to 9000 bytes
    #[arg(long, default_value_t = 1_500, requires = "lab")]
    mtu: u16,
    /// Racks that the hosts of the lab are spread over, 1 to 4, each with a switch
    ///
    /// The server is in the first one: the switches of the others send their sums to its switch.
    #[arg(long, default_value_t = 1, requires = "lab")]
    racks: u32,
    /// Jobs at once: each has a rank on every host, and all go through the same switch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    jobs: u32,
    /// Cores of the switch and of the server, and sending threads of every rank [default: a quarter of this machine's,
    /// 1 to 4; of sending threads in a lab one for every 4 Gbps of --rate and 10 Gbps of all hosts, if that is less]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16))]
    cores: Option<u16>,
    /// Threads of switch, server and ranks never sleep: each takes a whole core
    #[arg(long)]
    spin: bool,
    /// MiB of a tensor of f32. A tensor of another --dtype has as many values
    #[arg(long, default_value_t = 16.0)]
    mb: f64,
    /// Type of the values
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
    /// Only this collective; all of them without it
    #[arg(long)]
    collective: Option<Way>,
    /// Congestion control
    #[arg(long, default_value_t, value_parser = window_parser())]
    window: Window,
    /// All-reduces that are measured, after one that is not
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Ranks do not combine through shared memory, though they are on one host
    #[arg(long)]
    no_shared_memory: bool,
    /// Also measure Gloo, in the same network and in turns: the Python that has PyTorch
    ///
    /// For example that of a virtual environment: --gloo target/gloo/bin/python
    #[arg(long, value_name = "PYTHON", conflicts_with = "jobs")]
    gloo: Option<PathBuf>,
    /// Rounds, each of which runs every collective once with all its all-reduces, and Gloo
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Tell what ranks, switch and server have counted, on standard error
    #[arg(long)]
    details: bool,
}

const EXAMPLES: &str = "\
Time runs from when a rank has left a barrier until it has the sum, of the slowest rank; every sum is \
checked, those of 16-bit values within the error of their roundings. With --bound it may lack values, and is checked against those that it says are in it. \
The line rate's share is the bytes of the tensor over the time × the rate of a link. With several jobs \
the table has a row for each; a job's share is its throughput while all jobs ran, over their mean.

Examples:
  thalweg bench allreduce --hosts 4 --mb 64                 4 processes of one host
  thalweg bench allreduce --hosts 4 --no-shared-memory      the same over sockets
  thalweg bench allreduce --no-shared-memory --collective aggregate --loss 0.01
      the same through a switch that loses every hundredth packet
  sudo thalweg bench allreduce --lab --hosts 8 --rate 1gbit --mb 16
      8 hosts, a switch of their rack that sums, and a server
  sudo thalweg bench allreduce --lab --hosts 8 --rate 1gbit --mb 16 --dtype bf16
      the same number of values, of 16 bits each
  sudo thalweg bench allreduce --lab --hosts 8 --racks 2 --rate 1gbit --mb 16
      the same in two racks, whose switches sum at two levels
  sudo thalweg bench allreduce --lab --hosts 8 --rate 100mbit --per-packet --mb 4 --loss 0.01
      the same on slow links that lose every hundredth packet
  sudo thalweg bench allreduce --lab --hosts 8 --rate 100mbit --per-packet --mb 4 --jobs 2
      two jobs that share hosts, links and switch
  sudo thalweg bench allreduce --lab --hosts 4 --rate 100mbit --per-packet --mb 4 --queues 8
      through ports with eight queues, which packets choose by their DSCP
  sudo thalweg bench allreduce --lab --hosts 8 --rate 100mbit --per-packet --mb 97.5 --loss 0.01 \\
      --lossy-hosts 1 --collective aggregate --bound 0.1
      a model as large as ResNet50, one host with a bad link, and gradients that may lack a tenth
  sudo thalweg bench allreduce --lab --hosts 4 --rate 10gbit --mb 64 --collective aggregate \\
      --gloo target/gloo/bin/python --rounds 5
      beside Gloo, five times in turns";

/// Reads the name of a congestion control.
fn window_parser() -> impl TypedValueParser<Value = Window> {
    PossibleValuesParser::new(Window::ALL.map(Window::name)).try_map(|name| name.parse::<Window>())
}

/// Type of the values of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Dtype {
    /// Single precision
    #[default]
    F32,
    /// The upper half of single precision: 2 bytes a value on every hop
    Bf16,
    /// Half precision: 2 bytes a value on every hop
    F16,
}

/// Hosts that sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Way {
    /// The switch of the rack, and the server
    Aggregate,
    /// The hosts, each a parameter server for its share
    Server,
    /// The hosts, in a ring
    Ring,
    /// The hosts, by the algorithm for the length of the tensor: what sessions do without a switch
    Direct,
}

/// Results of one job with one collective.
struct Outcome {
    /// Name of the collective.
    name: &'static str,
    /// Counted from 0.
    job: u32,
    /// Work while all jobs ran, over the mean of all.
    share: f64,
    /// From when to when each of its all-reduces took.
    spans_ms: Vec<[f64; 2]>,
    /// Of the slowest rank, by all-reduce.
    times_ms: Vec<f64>,
    /// True if the sums that are in them are right.
    exact: bool,
    /// The largest share of a rank's values that was missing over all sums. `None` where that is
    /// unreported.
    missing: Option<f64>,
    /// Processor time in seconds of every thread of the first rank, by name.
    rank_threads: Value,
    /// The same of the threads of switches and server.
    daemon_threads: Value,
}

pub(super) fn allreduce(arguments: &AllReduceArguments) -> Result<(), Failure> {
    check(arguments)?;
    let ways = match arguments.collective {
        Some(way) => vec![way],
        None => vec![Way::Aggregate, Way::Server, Way::Ring],
    };
    let stage = Stage::build(arguments)?;
    let mut outcomes = Vec::new();
    for round in 1..=arguments.rounds {
        for way in &ways {
            tell_progress(arguments, way.name(), round);
            add_round(&mut outcomes, with_shares(stage.run(arguments, *way)?));
        }
        if let Some(python) = &arguments.gloo {
            tell_progress(arguments, "gloo", round);
            add_round(&mut outcomes, vec![stage.run_gloo(arguments, python)?]);
        }
    }
    if arguments.json {
        let list: Vec<Value> = outcomes.iter().map(|outcome| outcome.json(arguments)).collect();
        files::print(&format!("{}\n", Value::from(list)))?;
    } else {
        files::print(&table(arguments, &outcomes))?;
    }
    match outcomes.iter().find(|outcome| !outcome.exact) {
        Some(wrong) => Err(Failure::Ran(format!("the sums of {} are wrong", wrong.name))),
        None => Ok(()),
    }
}

fn tell_progress(arguments: &AllReduceArguments, name: &str, round: u32) {
    let AllReduceArguments { hosts, mb, rounds, .. } = arguments;
    let round = if *rounds > 1 { format!(", round {round} of {rounds}") } else { String::new() };
    eprintln!("{name}: {hosts} ranks, {mb} MiB{round} …");
}

/// Adds what a further round measured to the outcomes of the same jobs.
fn add_round(outcomes: &mut Vec<Outcome>, round: Vec<Outcome>) {
    for new in round {
        let is_same = |one: &&mut Outcome| one.name == new.name && one.job == new.job;
        match outcomes.iter_mut().find(is_same) {
            Some(outcome) => outcome.add(new),
            None => outcomes.push(new),
        }
    }
}

/// Compares jobs by what they did while all of them ran.
fn with_shares(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let begins = outcomes.iter().filter_map(|outcome| Some(outcome.spans_ms.first()?[0]));
    let ends = outcomes.iter().filter_map(|outcome| Some(outcome.spans_ms.last()?[1]));
    let (from, to) = (begins.fold(0.0, f64::max), ends.fold(f64::INFINITY, f64::min));
    let works: Vec<f64> = outcomes.iter().map(|outcome| outcome.work_within(from, to)).collect();
    let mean = works.iter().sum::<f64>() / works.len() as f64;
    for (outcome, work) in outcomes.iter_mut().zip(works) {
        outcome.share = work / mean;
    }
    outcomes
}

fn check(arguments: &AllReduceArguments) -> Result<(), Failure> {
    let wrong = |text: String| Err(Failure::Usage(text));
    if !(arguments.mb > 0.0 && arguments.mb <= 4_096.0) {
        return wrong(format!("--mb is {}: choose more than 0 and at most 4096", arguments.mb));
    }
    if !(0.0..1.0).contains(&arguments.loss) {
        return wrong(format!("--loss is {}: choose 0 to below 1", arguments.loss));
    }
    if !(0.0..1.0).contains(&arguments.bound) {
        return wrong(format!("--bound is {}: choose 0 to below 1", arguments.bound));
    }
    let through_switch = arguments.collective == Some(Way::Aggregate) && arguments.no_shared_memory;
    if arguments.loss > 0.0 && !arguments.lab && !through_switch {
        return wrong(
            "without --lab only the switch loses packets: add --collective aggregate and \
             --no-shared-memory, or --lab"
                .to_owned(),
        );
    }
    match &arguments.gloo {
        Some(_) if arguments.loss > 0.0 && !arguments.lab => {
            wrong("Gloo does not pass the switch that loses packets: add --lab".to_owned())
        }
        Some(python) => gloo::check(python),
        None => Ok(()),
    }
}

impl Dtype {
    fn bits(self) -> f64 {
        if self == Dtype::F32 { 32.0 } else { 16.0 }
    }

    fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
        }
    }
}

impl Way {
    fn collective(self) -> Collective {
        match self {
            Way::Aggregate => Collective::Aggregate,
            Way::Server => Collective::Server,
            Way::Ring => Collective::Ring,
            Way::Direct => Collective::Direct,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Aggregate => "aggregate",
            Way::Server => "server",
            Way::Ring => "ring",
            Way::Direct => "direct",
        }
    }
}

impl Outcome {
    /// Adds what a further round of the same job measured.
    fn add(&mut self, round: Outcome) {
        self.share = (self.share + round.share) / 2.0;
        self.spans_ms.extend(round.spans_ms);
        self.times_ms.extend(round.times_ms);
        self.exact &= round.exact;
        self.missing = self.missing.zip(round.missing).map(|(one, other)| one.max(other));
        (self.rank_threads, self.daemon_threads) = (round.rank_threads, round.daemon_threads);
    }

    fn median_ms(&self) -> f64 {
        percentile(&self.times_ms, 50.0)
    }

    /// Number of all-reduces that it did between two moments, parts of them included.
    fn work_within(&self, from: f64, to: f64) -> f64 {
        let part = |&[start, end]: &[f64; 2]| {
            ((end.min(to) - start.max(from)) / (end - start)).clamp(0.0, 1.0)
        };
        self.spans_ms.iter().map(part).sum()
    }

    /// The share of a link's rate, where links have one.
    fn line_rate_fraction(&self, arguments: &AllReduceArguments) -> Option<f64> {
        let bits = values(arguments.mb) as f64 * arguments.dtype.bits();
        let seconds = self.median_ms() / 1e3;
        arguments.lab.then(|| bits / (seconds * arguments.rate.as_bps() as f64))
    }

    fn json(&self, arguments: &AllReduceArguments) -> Value {
        json!({
            "schema": "thalweg.bench-allreduce/1",
            "collective": self.name,
            "hosts": arguments.hosts,
            "racks": arguments.racks,
            "mb": arguments.mb,
            "rate_bps": arguments.lab.then(|| arguments.rate.as_bps()),
            "per_packet": arguments.per_packet,
            "mtu": arguments.lab.then_some(arguments.mtu),
            "dtype": arguments.dtype.name(),
            "loss": arguments.loss,
            "job": self.job,
            "jobs": arguments.jobs,
            "share": round(self.share, 4),
            "median_ms": round(self.median_ms(), 2),
            "line_rate_fraction": self.line_rate_fraction(arguments).map(|share| round(share, 4)),
            "exact": self.exact,
            "bound": arguments.bound,
            "window": arguments.window.name(),
            "lossy_hosts": arguments.lossy_hosts,
            "queues": arguments.queues.number(),
            "missing": self.missing.map(|share| round(share, 4)),
            "shared_memory": !arguments.lab && !arguments.no_shared_memory,
            "cores": arguments.cores.unwrap_or_else(default_cores),
            "spin": arguments.spin,
            "rounds": arguments.rounds,
            "rank_threads_s": self.rank_threads,
            "daemon_threads_s": self.daemon_threads,
            "times_ms": self.times_ms.iter().map(|&time| round(time, 2)).collect::<Vec<_>>(),
        })
    }
}

/// Behaviour of threads while there is nothing to do.
fn wait_by(spin: bool) -> Wait {
    if spin { Wait::Spin } else { Wait::Sleep }
}

/// Number of values of a tensor of this size in MiB.
fn values(mb: f64) -> usize {
    (mb * 262_144.0).round().max(1.0) as usize
}

fn table(arguments: &AllReduceArguments, outcomes: &[Outcome]) -> String {
    let shares = arguments.jobs > 1;
    let mut text = String::from("collective  median       of the line rate  exact");
    if arguments.bound > 0.0 {
        text += "     missing";
    }
    text += if shares { "  job  share\n" } else { "\n" };
    for outcome in outcomes {
        let share = outcome.line_rate_fraction(arguments);
        let share = share.map_or("–".to_owned(), |share| format!("{share:.3}"));
        let exact = if outcome.exact { "yes" } else { "no" };
        let (name, median) = (outcome.name, outcome.median_ms());
        text += &format!("{name:<10}  {median:>8.1} ms  {share:>16}  {exact:>5}");
        if arguments.bound > 0.0 {
            let missing = outcome.missing.map(|share| format!("{:.2}%", 100.0 * share));
            text += &format!("  {:>10}", missing.as_deref().unwrap_or("unreported"));
        }
        text += &if shares {
            format!("  {:>3}  {:>5.3}\n", outcome.job, outcome.share)
        } else {
            "\n".to_owned()
        };
    }
    text
}
