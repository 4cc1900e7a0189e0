use thalweg_report::format::Unit;
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Style;

use super::*;
use crate::{Claim, Findings, Heading, Plot, Rule};

fn findings(speed_up: f64) -> Findings {
    let bars = Chart::new("Speed-up, by model")
        .x(Axis::categories("model", ["VGG, \"16\"", "ResNet"]))
        .y(Axis::linear("speed-up").unit(Unit::Ratio))
        .series(Series::bars("thalweg", [speed_up, 1.25]));
    let line = Chart::new("Goodput").series(Series::line("paper", vec![(1.0, 9.5)]));
    Findings {
        claims: vec![
            Claim::measured("VGG gains", 1.5, speed_up, Unit::Ratio, Rule::AtLeast(1.4)),
            Claim::judged("nothing stalls", "never", "never", "never", true),
        ],
        plots: [bars, line].map(|chart| Plot { chart, caption: String::new() }).into(),
        tables: Vec::new(),
    }
}

fn report(speed_ups: &[f64]) -> Report {
    let runs = speed_ups.iter().enumerate();
    Report {
        name: "sample",
        heading: Heading {
            title: "A sample".to_owned(),
            paper: "Nobody, Figure 1".to_owned(),
            about: "shows nothing".to_owned(),
            full_run_s: 1.0,
            quick_run_s: 1.0,
            not_measured: vec!["the testbed".to_owned()],
            notes: vec!["this is a simulation".to_owned()],
        },
        plan: "",
        quick: false,
        runs: runs.map(|(index, value)| (7 + index as u64, findings(*value))).collect(),
        seconds: None,
    }
}

#[test]
fn json_keeps_its_promises() {
    let document = json(&report(&[1.6]));
    assert_eq!(document["figure"], "sample");
    assert_eq!(document["holds"], true);
    assert_eq!(document["seed"], 7);
    assert_eq!(document["paper"][0], serde_json::json!({ "claim": "VGG gains", "value": 1.5 }));
    assert_eq!(document["paper"][1]["value"], "never");
    assert_eq!(document["ours"][0]["value"], 1.6);
    assert_eq!(document["ours"][0]["unit"], "ratio");
    assert_eq!(document["ours"][0]["rule"], "at least 1.4×");
    assert_eq!(document["ours"][0]["holds"], true);
    assert_eq!(document["ours"][0].get("values"), None);
    assert_eq!(
        document["series"][0]["points"],
        serde_json::json!([["VGG, \"16\"", 1.6], ["ResNet", 1.25]])
    );
    assert_eq!(document["series"][1]["points"], serde_json::json!([[1.0, 9.5]]));
    assert_eq!(document.get("seconds"), None);
}

#[test]
fn several_seeds_are_counted_and_one_failure_is_loud() {
    let report = report(&[1.6, 1.3, 1.5]);
    let document = json(&report);
    assert_eq!(document["holds"], false);
    assert_eq!(document["seeds"], serde_json::json!([7, 8, 9]));
    assert_eq!(document["ours"][0]["value"], 1.5);
    assert_eq!(document["ours"][0]["values"], serde_json::json!([1.6, 1.3, 1.5]));
    assert_eq!(document["ours"][0]["seeds_held"], 2);
    let printed = text(&report, Style::Plain);
    let loud = "sample: does NOT hold: 1 of 2 claims over 3 seeds: VGG gains\n";
    assert!(printed.ends_with(loud), "{printed}");
    assert!(printed.contains("NO, 2 of 3 seeds") && printed.contains("yes, 3 of 3 seeds"));
    assert!(page(&report).contains("does NOT hold"));
}

#[test]
fn text_has_claims_series_gaps_and_the_verdict() {
    let printed = text(&report(&[1.6]), Style::Plain);
    for line in [
        "Nobody, Figure 1, seed 7, full size",
        "VGG gains        1.5×   1.6×  at least 1.4×  yes",
        "  - Speed-up, by model: thalweg (2 points)",
        "  - Goodput: paper (1 point)",
        "not measured:\n  - the testbed",
        "notes:\n  - this is a simulation",
        "sample: holds: all 2 claims\n",
    ] {
        assert!(printed.contains(line), "{line:?} is missing in:\n{printed}");
    }
}

#[test]
fn csv_has_a_line_for_every_point() {
    let expected = "chart,series,x,y\n\
                    \"Speed-up, by model\",thalweg,\"VGG, \"\"16\"\"\",1.6\n\
                    \"Speed-up, by model\",thalweg,ResNet,1.25\n\
                    Goodput,paper,1,9.5\n";
    assert_eq!(csv(&report(&[1.6])), expected);
}

#[test]
fn the_first_drawing_has_the_name() {
    let names: Vec<String> = svgs(&report(&[1.6])).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["sample.svg", "sample-2.svg"]);
}

#[test]
fn durations_are_rough() {
    let cases = [(0.2, "under 1 s"), (12.4, "12 s"), (150.0, "2 min"), (9_000.0, "2.5 h")];
    for (seconds, words) in cases {
        assert_eq!(roughly(seconds), words);
    }
    assert_eq!(roughly(f64::NAN), MISSING);
}
