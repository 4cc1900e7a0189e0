//! Layer tables in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::Deserialize;
use thiserror::Error;

use super::{Layer, Model, Tensor};

/// Sums of values and of work stay within these, so that nothing computed from them overflows.
const MOST_VALUES: u64 = 1 << 48;
const MOST_FLOPS: u64 = 1 << 60;

/// Why a layer table cannot be read.
#[derive(Debug, Error)]
pub enum ModelError {
    /// It is not JSON, or a key is missing or of the wrong type.
    #[error("the model is not readable: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The content makes no sense.
    #[error("{0}")]
    Content(String),
}

#[derive(Deserialize)]
struct Document {
    model: String,
    num_params: Option<u64>,
    total_fwd_flops: Option<u64>,
    total_bwd_flops: Option<u64>,
    parameters: Vec<Parameter>,
    #[serde(default)]
    layers: Vec<Module>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    shape: Vec<u64>,
    numel: u64,
    grad_ready_rank: usize,
    #[serde(default)]
    tied_to: Vec<String>,
}

#[derive(Deserialize)]
struct Module {
    module: String,
    fwd_flops: u64,
}

pub(super) fn parse(text: &str) -> Result<Model, ModelError> {
    let document: Document = serde_json::from_str(text)?;
    if document.parameters.is_empty() {
        let text = format!("model {} has no parameters: list at least one", document.model);
        return Err(ModelError::Content(text));
    }
    check_tensors(&document)?;
    let ready_order = ready_order(&document.parameters)?;
    let layer_names = layer_names(&document.parameters, &ready_order);
    let tensors = document.parameters.iter().map(|parameter| Tensor {
        name: parameter.name.clone(),
        values: parameter.numel,
        layer: layer_names[module_of(&parameter.name)],
    });
    let tensors = tensors.collect();
    let layers = layers(&document, &layer_names)?;
    Ok(Model::new(document.model, layers, tensors, ready_order))
}

fn check_tensors(document: &Document) -> Result<(), ModelError> {
    let mut names = BTreeSet::new();
    for parameter in &document.parameters {
        let product = parameter.shape.iter().try_fold(1u64, |size, &side| size.checked_mul(side));
        if parameter.numel == 0 || product != Some(parameter.numel) {
            let Parameter { name, numel, shape, .. } = parameter;
            return Err(ModelError::Content(format!(
                "tensor {name}: numel is {numel} and the shape {shape:?}: make them agree on at least 1"
            )));
        }
        for name in std::iter::once(&parameter.name).chain(&parameter.tied_to) {
            if !names.insert(name) {
                return Err(ModelError::Content(format!(
                    "tensor {name} is listed twice: list tensors that share their values once"
                )));
            }
        }
    }
    let values =
        total("numel", MOST_VALUES, document.parameters.iter().map(|parameter| parameter.numel))?;
    check_total("num_params", document.num_params, values)
}

fn ready_order(parameters: &[Parameter]) -> Result<Vec<usize>, ModelError> {
    let mut order = vec![usize::MAX; parameters.len()];
    for (index, parameter) in parameters.iter().enumerate() {
        let rank = parameter.grad_ready_rank;
        match order.get_mut(rank) {
            Some(place) if *place == usize::MAX => *place = index,
            _ => {
                let (tensor, last) = (&parameter.name, parameters.len() - 1);
                return Err(ModelError::Content(format!(
                    "tensor {tensor}: grad_ready_rank {rank} is taken or above {last}: \
                     give every tensor its own, from 0 to {last}"
                )));
            }
        }
    }
    Ok(order)
}

/// The modules that have tensors, each with its place in the forward pass. The backward pass takes
/// the opposite way, so the layer that it comes to first is the last.
fn layer_names<'a>(parameters: &'a [Parameter], ready_order: &[usize]) -> BTreeMap<&'a str, usize> {
    let mut seen = BTreeMap::new();
    for &index in ready_order {
        let from_behind = seen.len();
        seen.entry(module_of(&parameters[index].name)).or_insert(from_behind);
    }
    let last = seen.len() - 1;
    seen.values_mut().for_each(|place| *place = last - *place);
    seen
}

fn layers(
    document: &Document,
    layer_names: &BTreeMap<&str, usize>,
) -> Result<Vec<Layer>, ModelError> {
    let forward =
        total("fwd_flops", MOST_FLOPS, document.layers.iter().map(|layer| layer.fwd_flops))?;
    check_total("total_fwd_flops", document.total_fwd_flops, forward)?;
    let mut work = vec![0; layer_names.len()];
    let mut before = 0;
    for module in &document.layers {
        let layer = layer_of(&module.module, layer_names).unwrap_or(before);
        work[layer] += module.fwd_flops;
        before = layer;
    }
    let mut names = vec![""; layer_names.len()];
    for (name, &place) in layer_names {
        names[place] = name;
    }
    let layers = names.into_iter().zip(work).enumerate();
    let layers =
        layers.map(|(place, (name, flops))| Layer::new(name.to_string(), flops, place == 0));
    let mut layers: Vec<Layer> = layers.collect();
    if let Some(backward) = document.total_bwd_flops {
        fit_backward(&mut layers, backward)?;
    }
    Ok(layers)
}

/// The layer that a module's work counts for: itself, or the first that is part of it. A module that
/// only reuses a tensor has none.
fn layer_of(module: &str, layer_names: &BTreeMap<&str, usize>) -> Option<usize> {
    let prefix = format!("{module}.");
    let from_prefix = (Bound::Included(prefix.as_str()), Bound::Unbounded);
    let parts = layer_names.range::<str, _>(from_prefix);
    let parts = parts.take_while(|(name, _)| name.starts_with(&prefix)).map(|(_, &place)| place);
    layer_names.get(module).copied().or_else(|| parts.min())
}

/// Makes the layers' backward work add up to a stated total, in proportion.
fn fit_backward(layers: &mut [Layer], stated: u64) -> Result<(), ModelError> {
    let listed: u64 = layers.iter().map(|layer| layer.backward_flops).sum();
    if listed == 0 {
        return check_total("total_bwd_flops", Some(stated), listed);
    }
    total("total_bwd_flops", MOST_FLOPS, [stated].into_iter())?;
    let (mut done, mut given) = (0, 0);
    for layer in layers {
        done += layer.backward_flops;
        let share = (u128::from(stated) * u128::from(done) / u128::from(listed)) as u64;
        layer.backward_flops = share - given;
        given = share;
    }
    Ok(())
}

fn module_of(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or("", |(module, _)| module)
}

fn total(key: &str, most: u64, mut numbers: impl Iterator<Item = u64>) -> Result<u64, ModelError> {
    let sum = numbers.try_fold(0u64, |sum, number| sum.checked_add(number));
    sum.filter(|&sum| sum <= most).ok_or_else(|| {
        ModelError::Content(format!("{key} adds up to more than {most}: check the numbers"))
    })
}

fn check_total(key: &str, stated: Option<u64>, listed: u64) -> Result<(), ModelError> {
    match stated {
        Some(stated) if stated != listed => Err(ModelError::Content(format!(
            "{key} is {stated}, but what is listed makes {listed}: correct it or leave it out"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
