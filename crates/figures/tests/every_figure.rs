//! What every figure owes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;
use thalweg_figures::{Figure, Plan, Settings, all, output, run};

const GUIDE: &str = include_str!("../../../docs/figures.md");

fn quick_json(figure: &'static dyn Figure) -> Value {
    let settings = Settings { quick: true, seed: 1, seeds: 1, threads: 2 };
    let report = run(figure, settings, &|_, _| ControlFlow::Continue(()));
    output::json(&report.unwrap_or_else(|error| panic!("{}: {error}", figure.name())))
}

#[test]
fn names_are_unique_and_typable() {
    let names: BTreeSet<&str> = all().iter().map(|figure| figure.name()).collect();
    assert_eq!(names.len(), all().len());
    let is_typable = |letter: char| letter.is_ascii_lowercase() || "-0123456789".contains(letter);
    assert!(names.iter().all(|name| name.chars().all(is_typable)), "{names:?}");
}

#[test]
fn every_figure_has_a_plan_and_every_plan_a_figure() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let plans: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected = all().iter().map(|figure| format!("{}.toml", figure.name())).collect();
    assert_eq!(plans, expected);
    for figure in all() {
        let heading = Plan::of(*figure).unwrap().heading().clone();
        for line in [&heading.title, &heading.paper, &heading.about] {
            assert!(!line.is_empty() && line.lines().count() == 1, "{}: {line:?}", figure.name());
        }
        assert!(heading.quick_run_s <= 10.0, "{} is not quick", figure.name());
        assert!(heading.quick_run_s <= heading.full_run_s);
    }
}

// spec: T-01 simulator
#[test]
fn quick_runs_keep_the_promises_of_the_json() {
    for figure in all() {
        let name = figure.name();
        let document = quick_json(*figure);
        assert_eq!(document["figure"], name);
        assert_eq!(document["seed"], 1, "{name}");
        assert_eq!(document["quick"], true, "{name}");
        let list = |key: &str| document[key].as_array().unwrap_or_else(|| panic!("{name}: {key}"));
        let (paper, ours) = (list("paper"), list("ours"));
        assert!(!paper.is_empty() && paper.len() == ours.len(), "{name}");
        for (paper, ours) in paper.iter().zip(ours) {
            assert!(paper["claim"].is_string() && paper["claim"] == ours["claim"], "{name}");
            let is_value = |value: &Value| value.is_number() || value.is_string();
            assert!(is_value(&paper["value"]) && is_value(&ours["value"]), "{name}: {ours}");
            assert!(ours["rule"].is_string(), "{name}: {ours}");
        }
        let holds = ours.iter().all(|claim| claim["holds"].as_bool().expect("yes or no"));
        assert_eq!(document["holds"], holds, "{name}");
        assert!(!list("series").is_empty(), "{name} draws nothing");
    }
}

#[test]
fn the_guide_has_a_section_for_every_figure() {
    for figure in all() {
        let heading = format!("\n## `{}`", figure.name());
        assert!(GUIDE.contains(&heading), "docs/figures.md needs a section {heading:?}");
    }
    let sections = GUIDE.lines().filter_map(|line| line.strip_prefix("## `"));
    let known: BTreeSet<&str> = all().iter().map(|figure| figure.name()).collect();
    for name in sections.filter_map(|rest| rest.split('`').next()) {
        assert!(known.contains(name), "docs/figures.md describes {name}, which is no figure");
    }
}
