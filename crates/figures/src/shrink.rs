//! Models that are smaller than they are, so that a simulation of them ends.

use serde::Deserialize;
use serde_json::json;
use thalweg_scenario::Scenario;
use thalweg_workload::{Model, models};
use toml::Table;

use crate::{Context, FigureError, Point, runs};

/// A model, divided so that a run ends, and how long a worker computes.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Trained {
    pub(crate) model: String,
    /// Of sizes.
    pub(crate) divisor: f64,
    pub(crate) forward: String,
    pub(crate) backward: String,
}

impl Trained {
    /// The same with every tensor divided once more.
    pub(crate) fn compressed(&self, ratio: f64) -> Trained {
        Trained { divisor: self.divisor * ratio, ..self.clone() }
    }

    /// The scenario of a file in which this is trained, whatever it calls the model.
    pub(crate) fn scenario(
        &self,
        point: &Point<'_>,
        file: &Table,
    ) -> Result<Scenario, FigureError> {
        scenario(point, (&self.model, self.divisor), file)
    }
}

/// The scenario of a file in which one model is trained, divided, whatever it calls the model.
pub(crate) fn scenario(
    point: &Point<'_>,
    (model, divisor): (&str, f64),
    file: &Table,
) -> Result<Scenario, FigureError> {
    let model = known_model(point.context, model)?;
    runs::scenario(point, file, &|_| Ok(model_json(&model, divisor)))
}

/// The model that a plan names.
pub(crate) fn known_model(context: &Context<'_>, name: &str) -> Result<Model, FigureError> {
    models::by_name(name).ok_or_else(|| context.mistake(format!("{name} is no model")))
}

/// The layer table of a model as JSON, with every tensor divided by `divisor`. Its work stays the same:
/// an accelerator that is `divisor` times as fast keeps the ratio of computing and sending.
pub(crate) fn model_json(model: &Model, divisor: f64) -> String {
    let mut ranks = vec![0; model.tensors().len()];
    for (rank, &tensor) in model.ready_order().iter().enumerate() {
        ranks[tensor] = rank;
    }
    let parameter = |(tensor, rank): (&thalweg_workload::Tensor, usize)| {
        let values = libm::round(tensor.values as f64 / divisor).max(1.0) as u64;
        json!({
            "name": tensor.name, "shape": [values], "numel": values, "grad_ready_rank": rank,
        })
    };
    let parameters: Vec<_> = model.tensors().iter().zip(ranks).map(parameter).collect();
    let layer = |layer: &thalweg_workload::Layer| json!({ "module": layer.name, "fwd_flops": layer.forward_flops });
    let layers: Vec<_> = model.layers().iter().map(layer).collect();
    json!({ "model": model.name(), "parameters": parameters, "layers": layers }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_change() {
        let whole = models::by_name("vgg16").expect("a built-in model");
        assert_eq!(Model::from_json(&model_json(&whole, 1.0)).unwrap(), whole);
        let small = Model::from_json(&model_json(&whole, 100.0)).unwrap();
        assert_eq!(small.layers(), whole.layers());
        assert_eq!(small.ready_order(), whole.ready_order());
        assert_eq!(whole.tensors()[26].values, 102_760_448, "the first matrix");
        assert_eq!(small.tensors()[26].values, 1_027_604);
        assert_eq!(small.tensors()[1].values, 1, "64 values leave one");
    }
}
