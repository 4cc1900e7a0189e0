//! The layer table of a neural network: which tensors it has, how much work its layers are, and in
//! which order a backward pass finishes the gradients.

mod json;

pub use json::ModelError;

/// A network as its communication sees it. All work is for one sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    name: String,
    layers: Vec<Layer>,
    tensors: Vec<Tensor>,
    ready_order: Vec<usize>,
}

/// Tensors that are used together, and the work that is done with them.
///
/// Work that needs no tensors of its own, like the inner products of attention, counts for the layer
/// whose output it works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// The module it stands for.
    pub name: String,
    /// Floating-point operations of the forward pass, a multiply-add counting as two.
    pub forward_flops: u64,
    /// The same for the backward pass.
    pub backward_flops: u64,
}

/// Values that are trained together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Name in the framework.
    pub name: String,
    /// Number of values, at least one.
    pub values: u64,
    /// The index of its layer. A tensor that several layers use belongs to the first of them, which
    /// needs it first and completes its gradient last.
    pub layer: usize,
}

impl Model {
    /// Reads a table in JSON: `model`, `parameters` (each with `name`, `shape`, `numel` and
    /// `grad_ready_rank`) and `layers` (each with `module` and `fwd_flops`). Totals are checked where
    /// they are given, other keys are ignored.
    pub fn from_json(text: &str) -> Result<Model, ModelError> {
        json::parse(text)
    }

    /// Name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The layers in the order in which the forward pass needs them.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The tensors in the order in which the framework lists them.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Indices of the tensors in the order in which the backward pass finishes their gradients.
    pub fn ready_order(&self) -> &[usize] {
        &self.ready_order
    }

    /// Number of values of all tensors together.
    pub fn values(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.values).sum()
    }

    /// Work of the forward pass.
    pub fn forward_flops(&self) -> u64 {
        self.layers.iter().map(|layer| layer.forward_flops).sum()
    }

    /// Work of the backward pass.
    pub fn backward_flops(&self) -> u64 {
        self.layers.iter().map(|layer| layer.backward_flops).sum()
    }

    /// Callers have checked the model: names differ, every layer has a tensor, the ready order
    /// is a permutation, and sums fit.
    pub(crate) fn new(
        name: String,
        layers: Vec<Layer>,
        tensors: Vec<Tensor>,
        ready_order: Vec<usize>,
    ) -> Model {
        Model { name, layers, tensors, ready_order }
    }
}

impl Layer {
    /// A layer whose backward pass follows from its forward pass: gradients of its values cost as
    /// much as the forward pass, and those of its input as much again. The first layer's input is
    /// the data, whose gradient nobody needs.
    pub(crate) fn new(name: String, forward_flops: u64, is_first: bool) -> Layer {
        let passes = if is_first { 1 } else { 2 };
        Layer { name, forward_flops, backward_flops: forward_flops * passes }
    }
}
