//! `thalweg figure`: run a published figure again.

mod results;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::Value;
use thalweg_console::{Failure, files, interrupt};
use thalweg_figures::{Figure, FigureError, Report, Settings, output};

use crate::progress::Bar;

/// Arguments of `thalweg figure`.
#[derive(Args)]
#[command(after_long_help = FIGURE_HELP)]
pub(crate) struct FigureArguments {
    /// The figure; --list has their names. With --record several, or none for all
    #[arg(required_unless_present_any = ["list", "record", "page", "check"])]
    name: Vec<String>,
    /// Print every figure, what it shows and how long it takes
    #[arg(long, conflicts_with_all = ["name", "quick", "out", "seed", "seeds", "threads"])]
    list: bool,
    /// Run figures and write what they claim and measured to NAME.json in this folder of a clone of the sources, in
    /// place of the last run of that size; sources with uncommitted changes are refused
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "json", "out"])]
    record: Option<PathBuf>,
    /// Print the page of all figures, in Markdown, that the recorded results in this folder give
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "name", "list", "json", "quick", "out", "seed", "seeds", "threads", "record",
    ])]
    page: Option<PathBuf>,
    /// Exit with 1 if a recorded result in DIR does not fit its plan, or if the file PAGE is not their page
    #[arg(long, value_names = ["DIR", "PAGE"], num_args = 2, conflicts_with_all = [
        "name", "list", "json", "quick", "out", "seed", "seeds", "threads", "record", "page",
    ])]
    check: Option<Vec<PathBuf>>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Run a small version, which ends within seconds
    #[arg(long)]
    quick: bool,
    /// Write NAME.svg, NAME.json, NAME.csv and index.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of all random numbers; the same seed gives the same results, bit for bit
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of seeds to run, from --seed upwards; a claim holds only if it holds over all of them
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    seeds: u32,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

const FIGURE_HELP: &str = "\
A figure compares a paper's published results with the results of this program: for each claim the paper's
value, the measured value, the rule by which they agree, and the verdict. A figure that does not hold is a
result and not a failure: the exit code is 0, and the last line says \"does NOT hold\".

docs/figures.md is the page of the recorded results in results/; docs/notes says of every figure where its
set-up departs from the paper's.";

/// Runs it.
pub(crate) fn figure(arguments: &FigureArguments) -> Result<(), Failure> {
    if arguments.list {
        return list(arguments.json);
    }
    if let Some(folder) = &arguments.page {
        return results::page(folder);
    }
    if let Some([folder, page]) = arguments.check.as_deref() {
        return results::check(folder, page);
    }
    let figures: Result<Vec<&'static Figure>, _> =
        arguments.name.iter().map(|name| thalweg_figures::find(name)).collect();
    let figures = figures.map_err(Failure::usage)?;
    let settings = settings(arguments);
    interrupt::listen();
    match (&arguments.record, &figures[..]) {
        (Some(folder), []) => {
            results::record(folder, &thalweg_figures::all().iter().collect::<Vec<_>>(), settings)
        }
        (Some(folder), figures) => results::record(folder, figures, settings),
        (None, [figure]) => show(arguments, figure, settings),
        (None, _) => Err(Failure::usage("several figures can only be run with --record DIR")),
    }
}

fn settings(arguments: &FigureArguments) -> Settings {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Settings {
        quick: arguments.quick,
        seed: arguments.seed,
        seeds: arguments.seeds,
        threads: arguments.threads.unwrap_or(cores),
    }
}

/// Runs one figure and prints it.
fn show(
    arguments: &FigureArguments,
    figure: &'static Figure,
    settings: Settings,
) -> Result<(), Failure> {
    if let Some(out) = &arguments.out {
        files::create_folder(out)?;
    }
    let report = timed(|watch| thalweg_figures::run(figure, settings, watch))?;
    if arguments.json {
        files::print(&format!("{}\n", document(&report)))?;
    } else {
        files::print(&output::text(&report, files::table_style()))?;
    }
    if let Some(out) = &arguments.out {
        write(out, &report)?;
        eprintln!("wrote {}", out.join("index.html").display());
    }
    Ok(())
}

/// Writes drawings, JSON, CSV and a page into a folder.
fn write(folder: &Path, report: &Report) -> Result<(), Failure> {
    for (name, svg) in output::svgs(report) {
        files::write(&folder.join(name), &svg)?;
    }
    let json = folder.join(format!("{}.json", report.name));
    files::write(&json, format!("{:#}\n", document(report)))?;
    files::write(&folder.join(format!("{}.csv", report.name)), output::csv(report))?;
    files::write(&folder.join("index.html"), output::page(report))
}

fn document(report: &Report) -> Value {
    let mut document = output::json(report);
    document["schema"] = "thalweg.figure/1".into();
    document
}

fn list(json: bool) -> Result<(), Failure> {
    let figures = thalweg_figures::all();
    if json {
        let mut list = output::list_json(figures).map_err(failure)?;
        for entry in list.as_array_mut().into_iter().flatten() {
            entry["schema"] = "thalweg.figure-entry/1".into();
        }
        files::print(&format!("{list}\n"))
    } else {
        files::print(&output::list_text(figures, files::table_style()).map_err(failure)?)
    }
}

/// Runs under a progress bar that Ctrl-C stops.
#[expect(clippy::disallowed_methods, reason = "the program reports how long it took")]
fn timed(
    run: impl FnOnce(&thalweg_figures::Watch<'_>) -> Result<Report, FigureError>,
) -> Result<Report, Failure> {
    let start = Instant::now();
    let bar = Bar::new();
    let result = run(&|done, label| {
        bar.show(done, label);
        if interrupt::is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish();
    let mut report = result.map_err(failure)?;
    report.seconds = Some(start.elapsed().as_secs_f64());
    Ok(report)
}

/// Plans come with the program, so no error of a figure is the user's.
fn failure(error: FigureError) -> Failure {
    match error {
        FigureError::Stopped => Failure::Interrupted,
        error => Failure::ran(error),
    }
}
