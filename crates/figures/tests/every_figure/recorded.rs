//! The recorded results fit their plans and the records of verdicts, and give the page; notes have a section a figure.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use thalweg_figures::all;
use thalweg_figures::results::ResultSet;

use crate::record::Record;
use crate::{file_names, is_blessed};

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(tree(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn recorded() -> ResultSet {
    let names = file_names(&tree("results")).into_iter();
    let names = names.filter_map(|file| file.strip_suffix(".json").map(str::to_owned));
    let texts: BTreeMap<String, String> =
        names.map(|name| (name.clone(), read(&format!("results/{name}.json")))).collect();
    let set = ResultSet::parse(&read("results/introduction.md"), &texts);
    set.unwrap_or_else(|problems| panic!("results/:\n  {}", problems.join("\n  ")))
}

#[test]
fn the_page_is_what_the_results_give() {
    let difference = recorded().difference(&read("docs/figures.md")).unwrap();
    let advice = "write it with: thalweg figure --page results > docs/figures.md";
    assert_eq!(difference, None, "docs/figures.md: {advice}");
}

#[test]
fn results_at_the_quick_size_have_the_verdicts_of_the_record() {
    // Records that are being written come before the results that name their commit.
    if is_blessed() {
        return;
    }
    let recorded = recorded();
    let mut compared = 0;
    for figure in all() {
        let name = figure.name();
        let quick = recorded.size(name, true);
        let quick = quick.unwrap_or_else(|| panic!("results/{name}.json has no quick size"));
        if quick.seeds != [1] {
            continue;
        }
        compared += 1;
        let record = Record::read(name).unwrap_or_default();
        let advice = format!("thalweg figure --record results --quick {name}");
        assert_eq!(record.claims.len(), quick.claims.len(), "{name}: {advice}");
        for (entry, claim) in record.claims.iter().zip(&quick.claims) {
            let holds = entry.holds.unwrap_or(claim.holds);
            let expected = (&entry.claim, &entry.rule, holds);
            assert_eq!((&claim.claim, &claim.rule, claim.holds), expected, "{name}: {advice}");
        }
    }
    assert!(compared >= all().len() / 2, "{compared}");
}

#[test]
fn notes_have_a_section_for_every_figure() {
    let (mut sections, mut linked) = (BTreeSet::new(), BTreeSet::new());
    for file in file_names(&tree("docs/notes")) {
        let text = read(&format!("docs/notes/{file}"));
        let headings = text.lines().filter_map(|line| line.strip_prefix("## `"));
        let names = headings.filter_map(|rest| rest.split('`').next());
        sections.extend(names.map(|name| format!("notes/{file}#{name}")));
    }
    for rest in read("docs/figures.md").split("[Notes](").skip(1) {
        linked.extend(rest.split(')').next().map(str::to_owned));
    }
    assert_eq!(linked.len(), all().len());
    assert_eq!(sections, linked, "sections of docs/notes, and links to them from docs/figures.md");
}
