//! Scenarios with jobs.

use thalweg_scenario::{Outcome, Scenario};

/// One tensor of 3,750 values: 15,000 B.
const MODEL: &str = r#"{
    "model": "ten packets",
    "parameters": [{"name": "w", "shape": [3750], "numel": 3750, "grad_ready_rank": 0}]
}"#;

/// Reads a scenario that may name `model.json`.
pub fn scenario(text: &str) -> Scenario {
    let load = |file: &str| match file {
        "model.json" => Ok(MODEL.to_owned()),
        _ => Err(format!("there is no {file}")),
    };
    Scenario::parse("test.toml", text, &load).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs it with seed 1.
pub fn run(text: &str) -> Outcome {
    scenario(text).run(1).finish()
}
