//! Every figure is complete, keeps the promises of its JSON, and has the verdicts of its record.

mod chosen;
mod record;
mod recorded;

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;
use thalweg_figures::{Figure, Plan, Report, Settings, all, output, run};

use crate::chosen::chosen;
use crate::record::{READ_FROM_A_CLOCK, Record};

#[test]
fn names_are_unique_and_typable() {
    let names: BTreeSet<&str> = all().iter().map(|figure| figure.name()).collect();
    assert_eq!(names.len(), all().len());
    let is_typable = |typed: char| typed.is_ascii_lowercase() || "-0123456789".contains(typed);
    assert!(names.iter().all(|name| name.chars().all(is_typable)), "{names:?}");
}

#[test]
fn every_figure_has_a_plan_and_every_plan_a_figure() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let plans = file_names(&folder);
    let expected = all().iter().map(|figure| format!("{}.toml", figure.name())).collect();
    assert_eq!(plans, expected);
    for figure in all() {
        let heading = Plan::of(figure).unwrap().heading().clone();
        for line in [&heading.title, &heading.paper, &heading.about] {
            assert!(!line.is_empty() && line.lines().count() == 1, "{}: {line:?}", figure.name());
        }
        assert!(heading.quick_run_s <= 10.0, "{} is not quick", figure.name());
        assert!(heading.quick_run_s <= heading.full_run_s);
    }
}

#[test]
fn quick_runs_keep_the_promises_of_the_json_and_the_verdicts_of_the_record() {
    let chosen = chosen();
    report_at_once(&format!("{chosen}; THALWEG_FIGURES=all runs all"));
    let (mut differences, mut changed) = (Vec::new(), Vec::new());
    for figure in chosen.figures {
        let report = quick_run(figure, 2);
        assert_promises(&report);
        let (recorded, present) =
            (Record::read(report.name).unwrap_or_default(), Record::of(&report));
        recorded.moved_values(report.name, &present).iter().for_each(|moved| println!("{moved}"));
        let of_figure = recorded.differences(report.name, &present);
        if is_blessed() {
            present.write(report.name);
            of_figure.iter().for_each(|difference| report_at_once(difference));
        } else if !of_figure.is_empty() {
            differences.extend(of_figure);
            changed.push(report.name);
        }
    }
    assert!(
        differences.is_empty(),
        "verdicts are not those of the record:\n  {}\nIf this is intended, run\n  {}\nand give the \
         reason in the commit.",
        differences.join("\n  "),
        blessing(&changed)
    );
}

#[test]
fn every_figure_has_a_record_and_every_record_a_figure() {
    // Records may be incomplete while they are written.
    if is_blessed() {
        return;
    }
    let figures: BTreeSet<String> =
        all().iter().map(|figure| format!("{}.toml", figure.name())).collect();
    let records = file_names(&Record::folder());
    let without: Vec<&str> =
        figures.difference(&records).filter_map(|file| file.strip_suffix(".toml")).collect();
    assert!(without.is_empty(), "figures without a record: run\n  {}", blessing(&without));
    let stray: Vec<_> = records.difference(&figures).collect();
    assert!(stray.is_empty(), "verdicts/ has records of no figure: remove {stray:?}");
    for (figure, claim) in READ_FROM_A_CLOCK {
        let record = Record::read(figure).expect("it was listed");
        let is_timed =
            record.claims.iter().any(|entry| entry.claim == claim && entry.holds.is_none());
        assert!(is_timed, "{figure} has no claim {claim:?} that is read from a clock");
    }
}

// spec: T-01 simulator
#[test]
fn the_record_has_all_sixteen_combinations_of_planes() {
    if is_blessed() {
        return;
    }
    let subset = |number: usize| -> String {
        let planes = "ADPT".chars().enumerate();
        planes.map(|(bit, plane)| if number >> bit & 1 == 1 { plane } else { '·' }).collect()
    };
    let expected: BTreeSet<String> = (0..16).map(subset).collect();
    let record = Record::read("ours-16").expect("it is committed");
    assert_eq!(record.bars.len(), 2, "iterations and small flows");
    for (chart, bars) in record.bars {
        assert_eq!(bars.keys().cloned().collect::<BTreeSet<_>>(), expected, "{chart}");
        let distinct: BTreeSet<u64> = bars.values().map(|height| height.to_bits()).collect();
        assert_eq!(distinct.len(), 16, "{chart}: every combination has a result of its own");
    }
}

#[test]
#[ignore = "runs the figures twice more: for changes to how figures are run"]
fn findings_depend_neither_on_the_run_nor_on_the_number_of_threads() {
    let chosen = chosen();
    report_at_once(&chosen.to_string());
    for figure in chosen.figures {
        let (alone, together) = (quick_run(figure, 1), quick_run(figure, 3));
        assert_eq!(Record::of(&alone), Record::of(&together), "{}", figure.name());
        if READ_FROM_A_CLOCK.iter().all(|(name, _)| *name != figure.name()) {
            assert_eq!(output::json(&alone), output::json(&together), "{}", figure.name());
        }
    }
}

fn quick_run(figure: &'static Figure, threads: usize) -> Report {
    let settings = Settings { quick: true, seed: 1, seeds: 1, threads };
    let report = run(figure, settings, &|_, _| ControlFlow::Continue(()));
    report.unwrap_or_else(|error| panic!("{}: {error}", figure.name()))
}

fn assert_promises(report: &Report) {
    let (name, document) = (report.name, output::json(report));
    assert_eq!(document["figure"], name);
    assert_eq!(document["seed"], 1, "{name}");
    assert_eq!(document["quick"], true, "{name}");
    let list = |key: &str| document[key].as_array().unwrap_or_else(|| panic!("{name}: {key}"));
    let (paper, measured) = (list("paper"), list("ours"));
    assert!(!paper.is_empty() && paper.len() == measured.len(), "{name}");
    for (paper, measured) in paper.iter().zip(measured) {
        assert!(paper["claim"].is_string() && paper["claim"] == measured["claim"], "{name}");
        let is_value = |value: &Value| value.is_number() || value.is_string();
        assert!(is_value(&paper["value"]) && is_value(&measured["value"]), "{name}: {measured}");
        assert!(measured["rule"].is_string(), "{name}: {measured}");
    }
    let texts: BTreeSet<&str> =
        measured.iter().filter_map(|claim| claim["claim"].as_str()).collect();
    assert_eq!(texts.len(), measured.len(), "{name} makes a claim twice");
    let holds = measured.iter().all(|claim| claim["holds"].as_bool().expect("yes or no"));
    assert_eq!(document["holds"], holds, "{name}");
    assert!(!list("series").is_empty(), "{name} draws nothing");
}

fn file_names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is part of the source tree");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("a readable folder").file_name().into_string().expect("a name in UTF-8")
    };
    entries.map(name).collect()
}

/// The command that writes the records of these figures.
fn blessing(figures: &[&str]) -> String {
    let test = "cargo test -p thalweg-figures --test every_figure";
    format!("THALWEG_FIGURES={} THALWEG_BLESS=1 {test}", figures.join(","))
}

/// Writes a line that is shown even when the test passes.
fn report_at_once(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("standard error is open");
}

fn is_blessed() -> bool {
    variable("THALWEG_BLESS").is_some_and(|value| value == "1")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the choice of figures and blessing come from outside"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
