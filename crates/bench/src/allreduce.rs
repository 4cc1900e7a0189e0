//! How fast tensors are summed over real sockets.

mod rank;
mod stage;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg::{Collective, Window};
use thalweg_console::{Failure, files};
use thalweg_core::Rate;

pub use self::rank::{RankArguments, rank};
use self::stage::Stage;
use crate::tools::{percentile, round};

/// What `thalweg bench allreduce` takes.
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
    /// Only the links of the first so many hosts of the lab lose packets, in both directions
    #[arg(long, requires = "lab")]
    lossy_hosts: Option<u32>,
    /// Largest share of any rank's values that sums may lack, 0 to below 1; 0 is exact
    #[arg(long, default_value_t = 0.0)]
    bound: f64,
    /// The lab's links carry packets one by one, as a wire does; wanted with --loss
    #[arg(long, requires = "lab")]
    per_packet: bool,
    /// Racks that the hosts of the lab are spread over, 1 to 4, each with a switch
    ///
    /// The server is in the first one: the switches of the others send their sums to its switch.
    #[arg(long, default_value_t = 1, requires = "lab")]
    racks: u32,
    /// Jobs at once: each has a rank on every host, and all go through the same switch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    jobs: u32,
    /// MiB of a tensor of f32
    #[arg(long, default_value_t = 16.0)]
    mb: f64,
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
    /// Tell what ranks, switch and server have counted, on standard error
    #[arg(long)]
    details: bool,
}

const EXAMPLES: &str = "\
Time runs from when a rank has left a barrier until it has the sum, of the slowest rank; every sum is \
checked. With --bound it may lack values, and is checked against those that it says are in it. \
The line rate's share is the bytes of the tensor over the time × the rate of a link. With several jobs \
the table has a row for each; a job's share is its throughput while all jobs ran, over their mean.

Examples:
  thalweg bench allreduce --hosts 4 --mb 64                 4 processes of one host
  thalweg bench allreduce --hosts 4 --no-shared-memory      the same over sockets
  thalweg bench allreduce --no-shared-memory --collective aggregate --loss 0.01
      the same through a switch that loses every hundredth packet
  sudo thalweg bench allreduce --lab --hosts 8 --rate 1gbit --mb 16
      8 hosts, a switch of their rack that sums, and a server
  sudo thalweg bench allreduce --lab --hosts 8 --racks 2 --rate 1gbit --mb 16
      the same in two racks, whose switches sum at two levels
  sudo thalweg bench allreduce --lab --hosts 8 --rate 100mbit --per-packet --mb 4 --loss 0.01
      the same on slow links that lose every hundredth packet
  sudo thalweg bench allreduce --lab --hosts 8 --rate 100mbit --per-packet --mb 4 --jobs 2
      two jobs that share hosts, links and switch
  sudo thalweg bench allreduce --lab --hosts 8 --rate 100mbit --per-packet --mb 97.5 --loss 0.01 \\
      --lossy-hosts 1 --collective aggregate --bound 0.1
      a model as large as ResNet50, one host with a bad link, and gradients that may lack a tenth";

/// Reads the name of a congestion control.
fn window_parser() -> impl TypedValueParser<Value = Window> {
    PossibleValuesParser::new(Window::ALL.map(Window::name)).try_map(|name| name.parse::<Window>())
}

/// Who adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Way {
    /// The switch of the rack, and the server
    Aggregate,
    /// The hosts, each a parameter server for its share
    Server,
    /// The hosts, in a ring
    Ring,
}

/// What came out for one job with one collective.
struct Outcome {
    way: Way,
    /// Counted from 0.
    job: u32,
    /// Its work while all jobs ran, over the mean of all.
    share: f64,
    /// From when to when each of its all-reduces took.
    spans_ms: Vec<[f64; 2]>,
    /// Of the slowest rank, by all-reduce.
    times_ms: Vec<f64>,
    /// Whether sums are what they have to be, of those that are in them.
    exact: bool,
    /// The largest share of a rank's values that was missing over all sums. `None` where that is
    /// unreported.
    missing: Option<f64>,
}

pub(super) fn allreduce(arguments: &AllReduceArguments) -> Result<(), Failure> {
    check(arguments)?;
    let ways = match arguments.collective {
        Some(way) => vec![way],
        None => vec![Way::Aggregate, Way::Server, Way::Ring],
    };
    let stage = Stage::build(arguments)?;
    let mut outcomes = Vec::new();
    for way in ways {
        eprintln!("{way:?}: {} ranks, {} MiB …", arguments.hosts, arguments.mb);
        outcomes.extend(with_shares(stage.run(arguments, way)?));
    }
    if arguments.json {
        let list: Vec<Value> = outcomes.iter().map(|outcome| outcome.json(arguments)).collect();
        files::print(&format!("{}\n", Value::from(list)))?;
    } else {
        files::print(&table(arguments, &outcomes))?;
    }
    match outcomes.iter().find(|outcome| !outcome.exact) {
        Some(wrong) => Err(Failure::Ran(format!("the sums of {:?} are wrong", wrong.way))),
        None => Ok(()),
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
    Ok(())
}

impl Way {
    fn collective(self) -> Collective {
        match self {
            Way::Aggregate => Collective::Aggregate,
            Way::Server => Collective::Server,
            Way::Ring => Collective::Ring,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Aggregate => "aggregate",
            Way::Server => "server",
            Way::Ring => "ring",
        }
    }
}

impl Outcome {
    fn median_ms(&self) -> f64 {
        percentile(&self.times_ms, 50.0)
    }

    /// How many all-reduces it did between two moments, parts of them included.
    fn work_within(&self, from: f64, to: f64) -> f64 {
        let part = |&[start, end]: &[f64; 2]| {
            ((end.min(to) - start.max(from)) / (end - start)).clamp(0.0, 1.0)
        };
        self.spans_ms.iter().map(part).sum()
    }

    /// The share of a link's rate, where links have one.
    fn line_rate_fraction(&self, arguments: &AllReduceArguments) -> Option<f64> {
        let bits = values(arguments.mb) as f64 * 32.0;
        let seconds = self.median_ms() / 1e3;
        arguments.lab.then(|| bits / (seconds * arguments.rate.as_bps() as f64))
    }

    fn json(&self, arguments: &AllReduceArguments) -> Value {
        json!({
            "collective": self.way.name(),
            "hosts": arguments.hosts,
            "racks": arguments.racks,
            "mb": arguments.mb,
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
            "missing": self.missing.map(|share| round(share, 4)),
            "shared_memory": !arguments.lab && !arguments.no_shared_memory,
            "times_ms": self.times_ms.iter().map(|&time| round(time, 2)).collect::<Vec<_>>(),
        })
    }
}

/// Values of a tensor of so many MiB.
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
        let (name, median) = (outcome.way.name(), outcome.median_ms());
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
