//! Scenario files as plans write them, and the files that these name.

use serde_json::json;
use thalweg_workload::{Model, models};
use toml::{Table, Value};

use crate::shrink::model_json;
use crate::workloads;

/// A scenario as files have it: traffic and faults are lists, and hosts are numbers.
pub(super) fn complete(mut file: Table) -> Result<Table, String> {
    if let Some(Value::Table(transport)) = file.get("transport")
        && transport.get("thresholds").and_then(Value::as_str) == Some("equal-split")
    {
        let thresholds = equal_split(sizes(&file)?);
        if let Some(Value::Table(transport)) = file.get_mut("transport") {
            transport.insert("thresholds".to_owned(), thresholds.into());
        }
    }
    for key in ["traffic", "faults"] {
        if let Some(Value::Table(named)) = file.remove(key) {
            let all: Result<Vec<Value>, String> =
                named.into_iter().map(|(_, value)| entry(value)).collect();
            file.insert(key.to_owned(), all?.into());
        }
    }
    Ok(file)
}

/// One entry of traffic or faults.
fn entry(mut entry: Value) -> Result<Value, String> {
    for (_, kind) in entry.as_table_mut().into_iter().flatten() {
        for key in ["workers", "servers"] {
            if let Some(hosts) = kind.as_table_mut().and_then(|kind| kind.get_mut(key)) {
                *hosts = self::hosts(hosts)?.into();
            }
        }
    }
    Ok(entry)
}

/// Hosts by number, from numbers and ranges.
fn hosts(value: &Value) -> Result<Vec<i64>, String> {
    let wrong = || format!("{value} is neither a host nor a range of hosts");
    match value {
        Value::Integer(host) => Ok(vec![*host]),
        Value::String(range) => {
            let (from, to) = range.split_once("..").ok_or_else(wrong)?;
            let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
            Ok((number(from)?..number(to)?).collect())
        }
        Value::Array(parts) => {
            let parts: Result<Vec<Vec<i64>>, String> = parts.iter().map(hosts).collect();
            Ok(parts?.concat())
        }
        _ => Err(wrong()),
    }
}

/// File by its name in a scenario: `vgg16/20` is a model with tensors of a twentieth of their size, `8x62500` one of
/// eight layers with 62,500 values each, and other names are those of workloads.
pub(crate) fn load(name: &str) -> Result<String, String> {
    let unknown = || format!("{name:?} is neither a model nor a workload");
    if let Some((model, divisor)) = divided(name) {
        return Ok(model_json(&model, divisor));
    }
    if let Some((layers, values)) = name.split_once('x') {
        let number = |text: &str| text.parse::<u64>().map_err(|_| unknown());
        return Ok(equal_layers(number(layers)?, number(values)?));
    }
    workloads::curve(name).map(str::to_owned).ok_or_else(unknown)
}

/// A model of a name such as `vgg16/20`, and the number by which its tensors are divided.
fn divided(name: &str) -> Option<(Model, f64)> {
    let (model, divisor) = name.split_once('/')?;
    Some((models::by_name(model)?, divisor.parse().ok()?))
}

fn equal_layers(layers: u64, values: u64) -> String {
    let layer = |number: u64| {
        let rank = layers - 1 - number;
        json!({ "name": format!("l{number}.w"), "shape": [values], "numel": values, "grad_ready_rank": rank })
    };
    let parameters: Vec<_> = (0..layers).map(layer).collect();
    json!({ "model": "equal layers", "parameters": parameters }).to_string()
}

/// Bytes of the tensors of the model that is trained.
fn sizes(file: &Table) -> Result<Vec<u64>, String> {
    let traffic = file.get("traffic").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let kinds = traffic.filter_map(Value::as_table).flat_map(Table::values);
    let mut models = kinds.filter_map(|kind| divided(kind.get("json")?.as_str()?));
    let (model, divisor) = models.next().ok_or("equal-split is of the tensors of a model")?;
    let bytes =
        |tensor: &thalweg_workload::Tensor| (4.0 * tensor.values as f64 / divisor).max(4.0) as u64;
    Ok(model.tensors().iter().map(bytes).collect())
}

/// Thresholds of PIAS that give each of eight priorities as many flows to end in: what its paper falls back
/// to where the best ones are not known. Equal ones are one.
fn equal_split(mut sizes: Vec<u64>) -> Vec<String> {
    sizes.sort_unstable();
    let mut edges: Vec<u64> = (1..8).map(|eighth| sizes[sizes.len() * eighth / 8]).collect();
    edges.dedup();
    edges.into_iter().map(|bytes| format!("{bytes}B")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_flows_end_in_every_priority() {
        let sizes: Vec<u64> = (1..=80).rev().collect();
        assert_eq!(equal_split(sizes), ["11B", "21B", "31B", "41B", "51B", "61B", "71B"]);
        assert_eq!(equal_split(vec![4, 4, 4, 4, 4, 4, 9, 9]), ["4B", "9B"]);
    }

    #[test]
    fn hosts_come_as_numbers_and_ranges() {
        let file = |text: &str| toml::from_str::<Table>(text).map(complete);
        let text = "traffic.job.training.workers = [7, '0..3']\ntraffic.flows.list.csv = 'x'";
        let complete = file(text).unwrap().unwrap();
        let traffic = complete["traffic"].as_array().unwrap();
        assert!(traffic[0].get("list").is_some(), "by name: {traffic:?}");
        let workers = traffic[1]["training"]["workers"].as_array().unwrap();
        assert_eq!(workers, &[7, 0, 1, 2].map(Value::Integer));
        assert!(file("traffic.job.training.workers = 'all'").unwrap().is_err());
    }

    #[test]
    fn files_are_models_and_workloads() {
        let model = Model::from_json(&load("2x500").unwrap()).unwrap();
        assert_eq!(
            model.tensors().iter().map(|tensor| tensor.values).collect::<Vec<_>>(),
            [500; 2]
        );
        assert_eq!(model.ready_order(), [1, 0], "the last layer is ready first");
        assert!(load("vgg16/4").is_ok() && load("K-Means").is_ok());
        assert!(load("vgg61/4").is_err());
    }
}
