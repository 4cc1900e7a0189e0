//! Layers with their tensors and their work.

use crate::model::{Layer, Model, Tensor};

/// Collects layers in the order in which the framework lists them.
pub(super) struct Builder {
    name: &'static str,
    listed: Vec<Listed>,
    /// Indices of `listed` in the order in which the forward pass needs them.
    forward: Vec<usize>,
}

struct Listed {
    name: String,
    tensors: Vec<(&'static str, u64)>,
    forward_flops: u64,
    /// True if the backward pass finishes the last listed tensor first, as that of a matrix product does with its bias.
    last_ready_first: bool,
}

impl Builder {
    pub(super) fn new(name: &'static str) -> Builder {
        Builder { name, listed: Vec::new(), forward: Vec::new() }
    }

    /// A square convolution without bias whose output is a square of `side` pixels.
    pub(super) fn conv(&mut self, name: &str, io: (u64, u64), kernel: u64, side: u64) {
        let weights = io.0 * io.1 * kernel * kernel;
        self.push(name, &[("weight", weights)], 2 * weights * side * side, false);
    }

    /// The same with a bias.
    pub(super) fn conv_with_bias(&mut self, name: &str, io: (u64, u64), kernel: u64, side: u64) {
        let weights = io.0 * io.1 * kernel * kernel;
        let tensors = [("weight", weights), ("bias", io.1)];
        self.push(name, &tensors, 2 * weights * side * side, false);
    }

    /// A matrix product with bias, for `rows` inputs, and work that follows it without tensors of its
    /// own.
    pub(super) fn linear(&mut self, name: &str, io: (u64, u64), rows: u64, follow_up_flops: u64) {
        let tensors = [("weight", io.0 * io.1), ("bias", io.1)];
        self.push(name, &tensors, 2 * io.0 * io.1 * rows + follow_up_flops, true);
    }

    /// The same for the packed projections of attention, whose tensors have names of their own.
    pub(super) fn packed(&mut self, name: &str, io: (u64, u64), rows: u64, follow_up_flops: u64) {
        let tensors = [("in_proj_weight", io.0 * io.1), ("in_proj_bias", io.1)];
        self.push(name, &tensors, 2 * io.0 * io.1 * rows + follow_up_flops, true);
    }

    /// A batch or layer normalisation, and work that follows it.
    pub(super) fn norm(&mut self, name: &str, width: u64, follow_up_flops: u64) {
        self.push(name, &[("weight", width), ("bias", width)], follow_up_flops, false);
    }

    /// A table of vectors.
    pub(super) fn embedding(&mut self, name: &str, entries: u64, width: u64) {
        self.push(name, &[("weight", entries * width)], 0, false);
    }

    /// A bias added to a product with a tensor of an earlier layer.
    pub(super) fn tied_head(&mut self, bias: &'static str, io: (u64, u64), rows: u64) {
        self.push("", &[(bias, io.1)], 2 * io.0 * io.1 * rows, false);
    }

    /// Says that the forward pass needs the layers listed last in another order.
    pub(super) fn reorder_last<const N: usize>(&mut self, order: [usize; N]) {
        let start = self.forward.len() - N;
        let listed: Vec<usize> = self.forward[start..].to_vec();
        for (place, from) in order.into_iter().enumerate() {
            self.forward[start + place] = listed[from];
        }
    }

    /// Says that the forward pass needs the layer listed first after all others.
    pub(super) fn first_is_last(&mut self) {
        self.forward.rotate_left(1);
    }

    pub(super) fn finish(self) -> Model {
        let mut places = vec![0; self.listed.len()];
        for (place, &index) in self.forward.iter().enumerate() {
            places[index] = place;
        }
        let mut tensors = Vec::new();
        let mut tensors_of_layer = vec![0..0; self.listed.len()];
        for (listed, &layer) in self.listed.iter().zip(&places) {
            let start = tensors.len();
            tensors.extend(listed.tensors.iter().map(|&(part, values)| Tensor {
                name: if listed.name.is_empty() {
                    part.into()
                } else {
                    format!("{}.{part}", listed.name)
                },
                values,
                layer,
            }));
            tensors_of_layer[layer] = start..tensors.len();
        }
        let mut ready_order = Vec::with_capacity(tensors.len());
        for (place, &index) in self.forward.iter().enumerate().rev() {
            let range = tensors_of_layer[place].clone();
            match self.listed[index].last_ready_first {
                true => ready_order.extend(range.rev()),
                false => ready_order.extend(range),
            }
        }
        let layers = self.forward.iter().enumerate().map(|(place, &index)| {
            let listed = &self.listed[index];
            Layer::new(listed.name.clone(), listed.forward_flops, place == 0)
        });
        Model::new(self.name.to_string(), layers.collect(), tensors, ready_order)
    }

    fn push(
        &mut self,
        name: &str,
        tensors: &[(&'static str, u64)],
        forward_flops: u64,
        last_ready_first: bool,
    ) {
        self.forward.push(self.listed.len());
        self.listed.push(Listed {
            name: name.to_string(),
            tensors: tensors.to_vec(),
            forward_flops,
            last_ready_first,
        });
    }
}
