//! Helpers of this crate's tests.

use thalweg_scenario::Scenario;

/// Reads a scenario that may name `flows.csv`.
pub fn scenario_with(text: &str, csv: &str) -> Scenario {
    let load = |file: &str| match file {
        "flows.csv" => Ok(csv.to_owned()),
        _ => Err(format!("there is no {file}")),
    };
    match Scenario::parse("test.toml", text, &load) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{error}\n{text}"),
    }
}
