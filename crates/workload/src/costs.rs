//! What lost gradients cost, layer by layer, as text: rounds that training takes longer for each percent
//! that is lost of a layer's small and large gradients.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::csv::{self, CsvError, Row};
use crate::model::Model;

const HEADER: &str = "layer,small,large";

/// What the losses of one layer cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossCost {
    /// Rounds for each percent of its small gradients.
    pub small: f64,
    /// Rounds for each percent of its large gradients.
    pub large: f64,
}

/// Why costs cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CostError {
    /// The text is not a table of a name and two numbers.
    #[error(transparent)]
    Table(#[from] CsvError),
    /// A layer that the model does not have, or that came before.
    #[error("line {line}: {layer} is no layer of {model}, or is listed twice")]
    Layer {
        /// Counted from 1.
        line: usize,
        /// What it names.
        layer: String,
        /// The model.
        model: String,
    },
    /// A layer of which nothing is said.
    #[error("layer {0} is missing: list every layer of the model")]
    Missing(String),
}

impl LossCost {
    /// What is assumed where nothing was measured, for layer `layer` of `layers`: large gradients cost four
    /// times as much as small ones, and the last layer twice as much as the first. Only the ratios matter.
    pub fn assumed(layer: usize, layers: usize) -> LossCost {
        let depth = layer as f64 / layers.saturating_sub(1).max(1) as f64;
        LossCost { small: 1.0 + depth, large: 4.0 * (1.0 + depth) }
    }

    /// The costs of a model's layers, in its order, from a table that lists each by name.
    pub fn from_csv(text: &str, model: &Model) -> Result<Vec<LossCost>, CostError> {
        let places: BTreeMap<&str, usize> = model
            .layers()
            .iter()
            .enumerate()
            .map(|(at, layer)| (layer.name.as_str(), at))
            .collect();
        let mut costs = vec![None; model.layers().len()];
        for row in csv::rows::<3>(text, HEADER)? {
            let place = places.get(row.text(0)).filter(|&&place| costs[place].is_none());
            let place = *place.ok_or_else(|| unknown(&row, model))?;
            costs[place] = Some(LossCost { small: row.number(1)?, large: row.number(2)? });
        }
        let missing = |at: usize| CostError::Missing(model.layers()[at].name.clone());
        costs.into_iter().enumerate().map(|(at, cost)| cost.ok_or_else(|| missing(at))).collect()
    }
}

fn unknown(row: &Row<'_, 3>, model: &Model) -> CostError {
    let (layer, model) = (row.text(0).to_string(), model.name().to_string());
    CostError::Layer { line: row.line, layer, model }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;

    #[test]
    fn every_layer_is_listed_once() {
        let model = models::alexnet();
        let rows: Vec<String> = (0..model.layers().len())
            .rev()
            .map(|at| format!("{},{at},{}.5", model.layers()[at].name, at))
            .collect();
        let table = |rows: &[String]| format!("layer,small,large\n{}\n", rows.join("\n"));
        let costs = LossCost::from_csv(&table(&rows), &model).unwrap();
        assert_eq!(costs.len(), model.layers().len());
        assert_eq!(costs[2], LossCost { small: 2.0, large: 2.5 });

        let missing = LossCost::from_csv(&table(&rows[1..]), &model).unwrap_err();
        assert!(missing.to_string().contains("missing"), "{missing}");
        let twice = [rows[0].clone(), rows[0].clone()];
        let twice = LossCost::from_csv(&table(&twice), &model).unwrap_err();
        assert!(twice.to_string().starts_with("line 3"), "{twice}");
        assert!(LossCost::from_csv("x,y", &model).is_err());
    }

    #[test]
    fn back_layers_and_large_gradients_cost_more() {
        assert_eq!(LossCost::assumed(0, 11), LossCost { small: 1.0, large: 4.0 });
        assert_eq!(LossCost::assumed(10, 11), LossCost { small: 2.0, large: 8.0 });
        assert_eq!(LossCost::assumed(0, 1), LossCost { small: 1.0, large: 4.0 });
    }
}
