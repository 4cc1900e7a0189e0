//! `thalweg demo`: the main job on one machine, with nothing to set up.

mod cluster;
mod compare;
mod daemons;
mod group;
mod learner;
mod lifeline;
mod message;
mod network;
mod outcome;
mod page;
mod plan;
mod progress;
mod reference;
mod training;
mod verdict;
mod worker;

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Instant;

use clap::Args;
use thalweg_console::{Failure, files, interrupt};
use thalweg_report::format::format_percent;

pub use self::daemons::{DaemonCommand, daemon};
pub use self::worker::worker;

use self::cluster::Cluster;
use self::group::Group;
use self::message::Way;
use self::network::Network;
use self::outcome::{Outcome, TenantOutcome};
use self::plan::Plan;
use self::progress::Progress;
use self::reference::Reference;

/// Arguments of `thalweg demo`.
#[derive(Args)]
#[command(after_long_help = DEMO_HELP)]
pub struct DemoArguments {
    /// Workers of the first tenant; the second has 3
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    workers: u32,
    /// Steps of the first tenant's training [default: what takes less than a minute in all]
    #[arg(long, value_name = "N", value_parser = steps)]
    steps: Option<usize>,
    /// The share of packets that the switch loses, 0 to 0.2
    #[arg(long, default_value_t = 0.01)]
    loss: f64,
    /// Seed of examples, networks and losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Train the first tenant on the MNIST-format files in this folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder of report.html and result.json
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,
    /// Print the verdict as one JSON document
    #[arg(long)]
    json: bool,
    /// A few steps only, which take seconds
    #[arg(long)]
    quick: bool,
}

/// Introduction of `thalweg demo --help`.
pub const ABOUT: &str = "\
Train two models at once over a lossy switch, all on this machine, and check the result

One switch, one server and seven workers start as processes of their own and talk over UDP on loopback. \
The workers of tenant A learn digits, those of tenant B stripes. Every step's gradients are summed on \
their way through the switch, which loses packets on purpose; what it lacks, the server completes. At \
the end all workers of a tenant must hold the same bits, and must have learnt what a single process \
with the same seed learns. The same all-reduce by ring and by parameter servers stands beside it: with \
root on hosts with links of 200 Mbps, without root on loopback, which has no links to save.";

const DEMO_HELP: &str = "\
Examples:
  thalweg demo                          everything, in less than a minute
  sudo thalweg demo                     the same, compared on links of a lab
  thalweg demo --quick --json           a few steps, the verdict for programs
  thalweg demo --loss 0.05 --workers 6  more of both
  thalweg demo --data mnist             on train-images-idx3-ubyte, train-labels-idx1-ubyte,
                                        t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte in mnist/

Exit code: 0 if everything is as it should be, 1 if a check or a process fails, 2 for bad input, 130
after Ctrl-C. No process is left behind, whatever happens.";

/// Runs it.
pub fn demo(arguments: &DemoArguments) -> Result<(), Failure> {
    let plan = Plan::new(arguments)?;
    files::create_folder(&arguments.out)?;
    interrupt::listen();
    let outcome = run(&plan)?;
    let json = verdict::json(&outcome);
    files::write(&arguments.out.join("result.json"), format!("{json:#}\n"))?;
    let report = arguments.out.join("report.html");
    files::write(&report, page::html(&plan, &outcome))?;
    if arguments.json {
        files::print(&format!("{json}\n"))?;
    } else {
        files::print(&text(&outcome))?;
    }
    eprintln!("wrote {}", report.display());
    if outcome.problems().is_empty() { Ok(()) } else { Err(Failure::Ran(verdict::line(&outcome))) }
}

#[expect(clippy::disallowed_methods, reason = "the demo says how long it took")]
fn run(plan: &Plan) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let mut progress = Progress::new(plan);
    // Ends after the processes in it.
    let network = Network::build(plan.tenants[0].workers);
    let mut group = Group::new();
    let cluster = Cluster::start(&mut group, None, plan.loss, plan.seed)?;
    progress.say(&format!(
        "switch at {}, loses {} of its packets; server at {}; workers: {}",
        cluster.switch,
        format_percent(plan.loss),
        cluster.server,
        plan.tenants
            .each_ref()
            .map(|tenant| format!("{} of {}", tenant.workers, tenant.name))
            .join(", "),
    ));
    let references = plan.tenants.each_ref().map(|tenant| {
        let tenant = tenant.clone();
        std::thread::spawn(move || reference::run(&tenant))
    });
    let (trainings, switch) = training::train(&mut group, &cluster, plan, &mut progress)?;
    let mut tenants = Vec::new();
    for ((tenant, training), reference) in plan.tenants.iter().zip(trainings).zip(references) {
        let (tenant, reference) = (tenant.clone(), finished(reference)?);
        tenants.push(TenantOutcome { tenant, training, reference });
    }
    let comparison = compare_all(&mut group, (&cluster, &network), plan, &mut progress)?;
    progress.finish();
    let links = network.links();
    Ok(Outcome { tenants, comparison, links, switch, took: start.elapsed() })
}

fn compare_all(
    processes: &mut Group,
    (loopback, network): (&Cluster<'_>, &Network),
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Vec<outcome::Measured>, Failure> {
    const ALL: [Way; 3] = [Way::Aggregate, Way::Ring, Way::Server];
    let mut comparison = Vec::new();
    let is_lossy = plan.loss > 0.0;
    progress.compare(plan.rounds * (ALL.len() + usize::from(is_lossy)));
    if is_lossy {
        let ways = [Way::Aggregate];
        let in_lab = match network.lab() {
            lab @ Some(_) => Some(Cluster::start(processes, lab, plan.loss, plan.seed)?),
            None => None,
        };
        let lossy = in_lab.as_ref().unwrap_or(loopback);
        comparison = compare::compare(processes, lossy, &ways, plan.loss, plan, progress)?;
    }
    let clean = Cluster::start(processes, network.lab(), 0.0, plan.seed)?;
    comparison.extend(compare::compare(processes, &clean, &ALL, 0.0, plan, progress)?);
    Ok(comparison)
}

fn finished(reference: JoinHandle<Result<Reference, Failure>>) -> Result<Reference, Failure> {
    let panicked = || Failure::Ran("the run in one process panicked".to_owned());
    reference.join().map_err(|_| panicked())?
}

fn text(outcome: &Outcome) -> String {
    let style = files::table_style();
    let about_tenants = format!("{} {}", verdict::switch(outcome), verdict::bounds());
    let about_ways = format!("{} {}", outcome.links.explanation(), verdict::GOODPUT);
    format!(
        "{}\n{}\n{}\n{}\n{}\n",
        verdict::tenants(outcome).to_text(style),
        wrapped(&about_tenants),
        verdict::comparison(outcome).to_text(style),
        wrapped(&about_ways),
        verdict::line(outcome),
    )
}

/// Text in lines that are easy to read.
fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 96;
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let gap = match column {
            0 => "",
            _ if column + 1 + width > COLUMNS => "\n",
            _ => " ",
        };
        column = if gap == " " { column + 1 + width } else { width };
        lines.push_str(gap);
        lines.push_str(word);
    }
    lines.push('\n');
    lines
}

fn steps(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(steps @ 1..=100_000) => Ok(steps),
        _ => Err("give 1 to 100000 steps".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn text_breaks_between_words() {
        let word = "x".repeat(47);
        assert_eq!(wrapped(&format!("{word} {word} y")), format!("{word} {word}\ny\n"));
        assert_eq!(wrapped(&"z".repeat(200)), format!("{}\n", "z".repeat(200)));
        assert_eq!(wrapped(""), "\n");
    }
}
