//! `docs/scenarios.md` has the keys, defaults and outputs of the code, and its examples run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use thalweg_aggregate::{JobParameters, server, switch, worker};
use thalweg_core::NodeId;
use thalweg_fabric::Buffer;
use thalweg_flow::Config;
use thalweg_scenario::sweep::{Variant, variants};
use thalweg_scenario::{Collective, Ending, Outcome, output};
use thalweg_transport::Control;
use thalweg_transport::control::{Aimd, Dctcp};

#[test]
fn complete_examples_run() {
    let document = document();
    let examples = complete_examples(&document);
    assert_eq!(examples.len(), 4);
    let runs: Vec<usize> = examples.iter().map(|text| read(text).len()).collect();
    assert_eq!(runs, [1, 1, 3, 8]);
    for variant in examples.iter().flat_map(|text| read(text)) {
        let outcome = run(&variant);
        assert_eq!(outcome.check, Ok(()), "{}", variant.label);
        assert_eq!(outcome.ending, Ending::Complete, "{}", variant.label);
    }
}

#[test]
fn every_built_in_model_is_named() {
    let document = document();
    let spans = code_spans(input_part(&document));
    for name in thalweg_workload::models::NAMES {
        assert!(spans.contains(name), "{name} is not in the document");
    }
}

#[test]
fn every_key_of_the_file_is_explained() {
    let keys = keys_of_source();
    for sample in ["stop-after", "alpha", "one-switch", "up-to", "new-reno", "out-of", "begin"] {
        assert!(keys.contains(sample), "{sample} was not found in the source");
    }
    let document = document();
    let spans = code_spans(input_part(&document));
    let missing: Vec<&String> = keys.iter().filter(|key| !spans.contains(*key)).collect();
    assert!(missing.is_empty(), "not in the document: {missing:?}");
}

#[test]
fn every_key_that_is_explained_exists() {
    let keys = keys_of_source();
    let document = document();
    let rows: Vec<(&str, &str)> = input_part(&document).lines().filter_map(row).collect();
    assert!(rows.len() > 120, "{} rows", rows.len());
    let stale: Vec<&str> =
        rows.iter().map(|(key, _)| *key).filter(|key| !keys.contains(*key)).collect();
    assert!(stale.is_empty(), "not in the code: {stale:?}");
}

#[test]
fn defaults_are_those_of_the_code() {
    let transport = Config::default();
    let Control::Dctcp(Dctcp { gain, initial_alpha }) = transport.control else {
        panic!("the default control is {:?}", transport.control)
    };
    let Buffer::PerPort { bytes } = Buffer::default() else { panic!("the default is shared") };
    let in_text = |quantity: String| format!("{:?}", quantity.replace(' ', ""));
    let expected = [
        ("port-buffer", in_text(format!("{}MB", bytes as f64 / 1e6))),
        ("control", "\"dctcp\"".to_owned()),
        ("dctcp-gain", format!("{gain:?}")),
        ("dctcp-initial-alpha", format!("{initial_alpha:?}")),
        ("segment-bytes", transport.messages.segment_bytes.to_string()),
        ("overhead-bytes", transport.messages.overhead_bytes.to_string()),
        ("ack-bytes", transport.messages.ack_wire_bytes.to_string()),
        ("ack-batch-packets", transport.messages.ack_batch_packets.to_string()),
        ("initial-window-packets", transport.initial_window_packets.to_string()),
        ("remembers-paths", transport.remembers_paths.to_string()),
        ("reordering-packets", transport.reordering_packets.to_string()),
        ("min-rto", in_text(transport.min_rto.to_string())),
        ("initial-rto", in_text(transport.initial_rto.to_string())),
    ];
    let document = document();
    for (key, value) in expected {
        let found = document.lines().filter_map(row).find(|(found, _)| *found == key);
        assert_eq!(found, Some((key, format!("`{value}`").as_str())));
    }
}

#[test]
fn defaults_of_aggregation_are_those_of_the_code() {
    let parameters = JobParameters::default();
    let worker = worker::Config::default();
    let Control::Aimd(Aimd { initial_bytes, .. }) = worker.control else {
        panic!("the default control is {:?}", worker.control)
    };
    let switch = switch::Config::new(NodeId(0));
    let in_text = |quantity: String| format!("{:?}", quantity.replace(' ', ""));
    let expected = [
        ("aggregators", parameters.aggregators.to_string()),
        ("fragment-values", parameters.fragment_values.to_string()),
        ("overhead-bytes", parameters.overhead_bytes.to_string()),
        ("initial-window", in_text(format!("{}KB", initial_bytes / 1_000))),
        ("timeout", in_text(worker.timeout_after.to_string())),
        ("reordering-packets", worker.loss_threshold.to_string()),
        ("span-fragments", parameters.span_fragments.to_string()),
        ("stale-after", in_text(switch.stale_after.to_string())),
    ];
    let document = document();
    let (_, section) = document.split_once("\n## Aggregation\n").expect("the heading");
    for (key, value) in expected {
        let found = section.lines().filter_map(row).find(|(found, _)| *found == key);
        assert_eq!(found, Some((key, format!("`{value}`").as_str())));
    }
    let gaps = format!(
        "`{:?}` in switches, `{:?}` in servers",
        switch.ask_gap.to_string().replace(' ', "").replace('µ', "u"),
        server::Config::new(NodeId(0)).ask_gap.to_string().replace(' ', "").replace('µ', "u"),
    );
    assert!(section.contains(&gaps), "{gaps}");
}

#[test]
fn columns_and_json_keys_are_explained() {
    let document = document();
    let (_, output_part) = document.split_once(OUTPUT_HEADING).expect("the heading");
    let spans = code_spans(output_part);
    let examples = complete_examples(&document);
    let mut names = Vec::new();
    let small_job = examples.iter().find(|text| text.contains("server = 2")).expect("a job");
    let in_one_switch = small_job.replace("server = 2", "collective = \"switchml\"");
    let all = examples.iter().copied().chain([in_one_switch.as_str()]);
    for variant in all.flat_map(read) {
        let outcome = run(&variant);
        for csv in [output::csv::flows(&outcome), output::csv::jobs(&outcome)] {
            let header = csv.lines().next().expect("a header");
            names.extend(header.split(',').map(str::to_owned));
        }
        add_keys(&output::json::outcome(&variant.scenario, &outcome), &mut names);
    }
    let samples = ["fct_us", "digest", "p99_slowdown", "max_use", "queue full", "iterations_us"];
    let of_jobs = ["collective", "gradient_bytes", "collisions", "repeated", "mark_halvings"];
    for sample in samples.into_iter().chain(of_jobs) {
        assert!(names.iter().any(|name| name == sample), "{sample} does not come out");
    }
    let missing: Vec<&String> = names.iter().filter(|name| !spans.contains(*name)).collect();
    assert!(missing.is_empty(), "not in the document: {missing:?}");
}

const OUTPUT_HEADING: &str = "\n## What comes out\n";
const EXAMPLE_FENCE: &str = "```toml complete\n";

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    fs::read_to_string(path).expect("the document is committed")
}

/// Part of the page about the file, without the part about its output.
fn input_part(document: &str) -> &str {
    document.split_once(OUTPUT_HEADING).expect("the heading").0
}

fn complete_examples(document: &str) -> Vec<&str> {
    let blocks = document.split(EXAMPLE_FENCE).skip(1);
    blocks.map(|block| block.split_once("```").expect("the block ends").0).collect()
}

fn read(text: &str) -> Vec<Variant> {
    let no_files = |file: &str| Err(format!("{file}: examples are to stand alone"));
    variants("example", text, None, &no_files).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(variant: &Variant) -> Outcome {
    variant.scenario.run(variant.seed).finish()
}

/// Texts between backticks in prose and tables, without the quotes of words.
fn code_spans(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2);
    let spans = prose.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.map(|span| span.trim_matches('"').to_owned()).collect()
}

/// The key in the first cell of a table's row, and what is in the second.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `")?.split('|');
    let key = cells.next()?.trim().strip_suffix('`')?;
    Some((key, cells.next()?.trim()))
}

/// The fields of structs and the variants of enums, as a file writes them.
fn keys_of_source() -> BTreeSet<String> {
    let code =
        |source: &'static str| source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let file = include_str!("../src/file.rs");
    let words = code(file).flat_map(str::split_whitespace);
    let shapes = code(include_str!("../../fabric/src/topology/shapes.rs"));
    let of_shapes = shapes.filter_map(|line| line.strip_prefix("pub ")?.split_whitespace().next());
    let mut keys: BTreeSet<String> = words.chain(of_shapes).filter_map(field).collect();
    for (source, head) in [
        (file, "pub(crate) enum "),
        (include_str!("../../fabric/src/routing.rs"), "pub enum Spread "),
        (include_str!("../src/job.rs"), "pub enum Collective "),
    ] {
        let mut in_enum = false;
        for line in code(source) {
            in_enum = line.starts_with(head) || (in_enum && line != "}");
            if in_enum {
                keys.extend(variant_name(line));
            }
        }
    }
    // Controls have their names in a table of their own, and so have published thresholds.
    keys.remove("windows");
    keys.remove("named");
    keys.extend(Control::NAMES.iter().map(|name| (*name).to_owned()));
    keys.remove("switch-ml");
    keys.insert(Collective::SwitchMl.name().to_owned());
    keys
}

fn field(word: &str) -> Option<String> {
    let name = word.strip_suffix(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_name.then(|| name.replace('_', "-"))
}

fn variant_name(line: &str) -> Option<String> {
    let name = line.split(['(', ',']).next()?;
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let mut key = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !key.is_empty() {
            key.push('-');
        }
        key.push(c.to_ascii_lowercase());
    }
    Some(key)
}

fn add_keys(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                names.push(key.clone());
                add_keys(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_keys(value, names)),
        _ => {}
    }
}
