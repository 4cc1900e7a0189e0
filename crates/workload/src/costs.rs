//! Costs of lost gradients, layer by layer, as text: rounds that training takes longer for each percent that is lost of
//! a layer's small and large gradients.

use std::collections::BTreeMap;

use crate::csv::{self, TableError};
use crate::model::{Layer, Model};

const HEADER: &str = "layer,small,large";

/// Cost of the losses of one layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossCost {
    /// Rounds for each percent of its small gradients.
    pub small: f64,
    /// Rounds for each percent of its large gradients.
    pub large: f64,
}

impl LossCost {
    /// Assumed cost where nothing was measured, for layer `layer` of `layers`: large gradients cost four times as much
    /// as small ones, and the last layer twice as much as the first. Only the ratios matter.
    pub fn assumed(layer: usize, layers: usize) -> LossCost {
        let depth = layer as f64 / layers.saturating_sub(1).max(1) as f64;
        LossCost { small: 1.0 + depth, large: 4.0 * (1.0 + depth) }
    }

    /// The costs of a model's layers, in its order, from a table that lists each by name.
    pub fn from_csv(text: &str, model: &Model) -> Result<Vec<LossCost>, TableError> {
        let names = model.layers().iter().map(|layer| layer.name.as_str());
        let places: BTreeMap<&str, usize> = names.zip(0..).collect();
        let mut costs = vec![None; model.layers().len()];
        let mut last_line = 1;
        for row in csv::rows::<3>(text, HEADER)? {
            let (layer, model) = (row.text(0), model.name());
            let unknown = || format!("{layer} is no layer of {model}, or is listed twice");
            let place = places.get(layer).filter(|&&place| costs[place].is_none());
            let place = *place.ok_or_else(|| row.wrong(unknown()))?;
            costs[place] = Some(LossCost { small: row.number(1)?, large: row.number(2)? });
            last_line = row.line;
        }
        let missing = |layer: &Layer| TableError {
            line: last_line,
            message: format!("layer {} is missing: list every layer of the model", layer.name),
        };
        let costs = costs.into_iter().zip(model.layers());
        costs.map(|(cost, layer)| cost.ok_or_else(|| missing(layer))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;

    #[test]
    fn every_layer_is_listed_once() {
        let model = models::by_name("alexnet").expect("a built-in model");
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
