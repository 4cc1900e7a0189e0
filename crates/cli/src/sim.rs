//! `thalweg sim`: run a scenario file.

mod progress;
mod tracing;
mod write;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use thalweg_console::{Failure, files, interrupt};
use thalweg_scenario::output;
use thalweg_scenario::sweep::{self, Variant};
use thalweg_scenario::{Ending, Outcome};

use progress::Bar;

/// Events between two looks at the clock and at Ctrl-C.
const EVENTS_PER_LOOK: u64 = 100_000;

/// Name and version of the JSON document of one run, and of that of a sweep.
pub(crate) const SCHEMA: &str = "thalweg.sim/1";
const SWEEP_SCHEMA: &str = "thalweg.sim-sweep/1";

/// Arguments of `thalweg sim`.
#[derive(Args)]
#[command(after_long_help = SIM_HELP)]
pub(crate) struct SimArguments {
    /// The scenario, a TOML file
    file: PathBuf,
    /// Seed of all random numbers; the same seed gives the same run, bit for bit [default: 1, or the
    /// file's sweep]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON document instead of tables: `thalweg.sim/1` of one run, `thalweg.sim-sweep/1` of a sweep
    #[arg(long)]
    json: bool,
    /// Write report.html, result.json, flows.csv and jobs.csv into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write every packet's arrivals to FILE: .pcapng for Wireshark, .jsonl for JSON lines
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Threads for the runs of a sweep [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

const SIM_HELP: &str = "\
A scenario has a title, a [topology] and [[traffic]], and may have a [switch], a [transport], an
[aggregation], [[faults]] and a [sweep]. The files in scenarios/ are commented examples of each.

The completion time of a flow is the time from its start until its last acknowledgement is back. Slowdown
is this time, divided by the computed time of the same flow alone on an idle network.

Ctrl-C stops the run and reports the results so far; a second Ctrl-C ends the program at once.";

/// Runs it.
pub(crate) fn sim(arguments: &SimArguments) -> Result<(), Failure> {
    let text = files::read(&arguments.file)?;
    let file = arguments.file.display().to_string();
    let folder = arguments.file.parent().unwrap_or(Path::new("")).to_owned();
    let load = |name: &str| files::read(&folder.join(name)).map_err(|failure| failure.to_string());
    let variants = sweep::variants(&file, &text, arguments.seed, &load).map_err(Failure::usage)?;
    if let Some(out) = &arguments.out {
        files::create_folder(out)?;
    }
    interrupt::listen();
    match &variants[..] {
        [only] => sim_one(arguments, only, &text),
        many => sim_many(arguments, many, &text),
    }
}

fn sim_one(arguments: &SimArguments, variant: &Variant, text: &str) -> Result<(), Failure> {
    let bar = Bar::new();
    let (outcome, wall) = run(variant, arguments.trace.as_deref(), |progress, wall| {
        bar.show(progress, wall);
    })?;
    bar.finish();
    let Variant { scenario, .. } = variant;
    if arguments.json {
        let mut json = with_speed(output::json::outcome(scenario, &outcome), &outcome, wall);
        json["schema"] = SCHEMA.into();
        files::print(&format!("{json}\n"))?;
    } else {
        let table = output::text::outcome(scenario, &outcome, files::table_style());
        files::print(&format!("{table}{}\n", speed(&outcome, wall)))?;
    }
    if let Some(out) = &arguments.out {
        write::run(out, variant, &outcome, text)?;
        eprintln!("wrote {}", out.join("report.html").display());
    }
    verdict(&outcome)
}

fn sim_many(arguments: &SimArguments, variants: &[Variant], text: &str) -> Result<(), Failure> {
    if arguments.trace.is_some() {
        let message = "--trace is for a single run: give --seed, and take [sweep.vary] out";
        return Err(Failure::Usage(message.to_owned()));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or(cores);
    let bar = Bar::of_runs(variants.len() as u64);
    let results = sweep::on_all_cores(variants, threads, |variant| {
        let result = run(variant, None, |_, _| {});
        bar.run_ended();
        result
    });
    bar.finish();
    let mut outcomes = Vec::new();
    for result in results {
        outcomes.push(result?);
    }
    if arguments.json {
        let runs = variants.iter().zip(&outcomes).map(|(variant, (outcome, wall))| {
            let mut run = output::json::outcome(&variant.scenario, outcome);
            run["variant"] = variant.label.clone().into();
            with_speed(run, outcome, *wall)
        });
        let json = json!({ "schema": SWEEP_SCHEMA, "runs": runs.collect::<Vec<_>>() });
        files::print(&format!("{json}\n"))?;
    } else {
        let title = variants[0].scenario.title();
        files::print(&format!("{title}\n\n{}", write::sweep_table(variants, &outcomes)))?;
    }
    if let Some(out) = &arguments.out {
        for (number, (variant, (outcome, _))) in variants.iter().zip(&outcomes).enumerate() {
            let folder = out.join(format!("run-{number:03}"));
            files::create_folder(&folder)?;
            write::run(&folder, variant, outcome, text)?;
        }
        eprintln!("wrote {} runs to {}", outcomes.len(), out.display());
    }
    outcomes.iter().try_for_each(|(outcome, _)| verdict(outcome))
}

/// Runs one variant, telling `watch` how far it is.
#[expect(clippy::disallowed_methods, reason = "the program reports how fast it is")]
fn run(
    variant: &Variant,
    trace: Option<&Path>,
    watch: impl Fn(&thalweg_scenario::Progress, Duration),
) -> Result<(Outcome, Duration), Failure> {
    let start = Instant::now();
    let mut run = variant.scenario.run(variant.seed);
    if let Some(path) = trace {
        run.trace(tracing::tracer(path, &variant.scenario)?);
    }
    loop {
        let progress = run.advance(EVENTS_PER_LOOK);
        watch(&progress, start.elapsed());
        if progress.ended.is_some() || interrupt::is_asked() {
            break;
        }
    }
    if let Some(path) = trace {
        run.finish_trace().map_err(|error| files::unwritable(path, &error))?;
    }
    Ok((run.outcome(), start.elapsed()))
}

/// Checks that the results of a run are valid.
fn verdict(outcome: &Outcome) -> Result<(), Failure> {
    if let Err(violation) = &outcome.check {
        return Err(Failure::Ran(format!("the simulator broke its own laws: {violation}")));
    }
    match outcome.ending {
        Ending::Interrupted => Err(Failure::Interrupted),
        Ending::Stuck => Err(Failure::Ran(format!(
            "{} flows never ended: is a node down for good? Set stop-after to end such a run",
            outcome.unfinished()
        ))),
        Ending::Complete | Ending::TimeUp => Ok(()),
    }
}

fn with_speed(mut run: Value, outcome: &Outcome, wall: Duration) -> Value {
    run["wall_s"] = wall.as_secs_f64().into();
    run["packet_hops_per_s"] = (outcome.stats.packet_hops as f64 / wall.as_secs_f64()).into();
    run
}

fn speed(outcome: &Outcome, wall: Duration) -> String {
    let hops_per_s = outcome.stats.packet_hops as f64 / wall.as_secs_f64();
    let seconds = wall.as_secs_f64();
    format!("speed: {seconds:.2} s, {:.2} M packet-hops/s", hops_per_s / 1e6)
}
