//! A multi-layer perceptron: dense layers with rectifiers between them, softmax and cross-entropy
//! at the end.

use std::f64::consts::TAU;
use std::ops::Range;

use multiversion::multiversion;
use thalweg_core::Rng;

use crate::examples::{Batch, Examples};
use crate::product::{Matrix, Multiplier};

/// Part of the last step's motion that the next one keeps.
pub const MOMENTUM: f32 = 0.9;

/// Number of examples that are evaluated together.
const EVALUATION_BATCH: usize = 128;

/// A model with all its parameters in one vector.
///
/// A training step is [`gradient`](Network::gradient) on every worker, the sum of what they return
/// divided by the number of examples behind it, and [`step`](Network::step) with that mean on every
/// worker. Workers that began with the same sizes and seed then hold the same bits.
#[derive(Clone, Debug)]
pub struct Network {
    layers: Vec<Layer>,
    parameters: Vec<f32>,
    velocity: Vec<f32>,
    gradient: Vec<f32>,
    workspace: Workspace,
}

/// A dense layer: a weight for every input and output, those of one input side by side, then a bias
/// for every output.
#[derive(Clone, Debug)]
struct Layer {
    inputs: usize,
    outputs: usize,
    weights: Range<usize>,
    biases: Range<usize>,
}

/// Results of a pass through the network, kept for the next pass.
#[derive(Clone, Debug, Default)]
struct Workspace {
    multiplier: Multiplier,
    /// Output of every layer.
    outputs: Vec<Vec<f32>>,
    /// Derivative of the loss by the current layer's sums, before its rectifier.
    slope: Vec<f32>,
    /// The derivative for the layer below.
    slope_below: Vec<f32>,
}

impl Network {
    /// A network that has learnt nothing. `sizes` are the width of an example, the widths of the
    /// hidden layers and the number of classes.
    ///
    /// # Panics
    ///
    /// If there are fewer than two sizes, or one is 0.
    pub fn new(sizes: &[usize], seed: u64) -> Network {
        assert!(sizes.len() >= 2 && !sizes.contains(&0), "layer sizes {sizes:?}");
        let rng = Rng::new(seed).stream("network");
        let (mut layers, mut parameters) = (Vec::new(), Vec::new());
        for (index, pair) in sizes.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let start = parameters.len();
            let mut rng = rng.substream("layer", index as u64);
            // He: a rectifier halves the variance, so the weights double it.
            let deviation = (2.0 / inputs as f64).sqrt();
            parameters.extend((0..inputs * outputs).map(|_| (deviation * normal(&mut rng)) as f32));
            let weights = start..parameters.len();
            parameters.resize(weights.end + outputs, 0.0);
            let biases = weights.end..parameters.len();
            layers.push(Layer { inputs, outputs, weights, biases });
        }
        let zeros = vec![0.0; parameters.len()];
        let (velocity, gradient) = (zeros.clone(), zeros);
        Network { layers, parameters, velocity, gradient, workspace: Workspace::default() }
    }

    /// Weights and biases, layer by layer.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Ranges of the layers among the parameters, and in the gradient. The last is the first whose
    /// gradient a backward pass knows.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        self.layers.iter().map(|layer| layer.weights.start..layer.biases.end)
    }

    /// The loss over a batch and its gradient, both summed over the examples: sums of parts are the
    /// sum of the whole, means are not. For an empty batch they are zero.
    ///
    /// # Panics
    ///
    /// If the examples do not have the width, or their labels the classes, of this network.
    pub fn gradient(&mut self, batch: &Batch) -> (f64, &[f32]) {
        let work = &mut self.workspace;
        forward(&self.layers, &self.parameters, batch, work);
        let scores = work.outputs.last().expect("a network has a layer");
        work.slope.clone_from(scores);
        let classes = self.layers.last().expect("a network has a layer").outputs;
        let loss = cross_entropy(&mut work.slope, classes, &batch.labels);
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let below = index.checked_sub(1).map(|below| work.outputs[below].as_slice());
            let inputs = Matrix::new(below.unwrap_or(&batch.inputs), batch.len(), layer.inputs);
            let slope = Matrix::new(&work.slope, batch.len(), layer.outputs);
            let weights = &mut self.gradient[layer.weights.clone()];
            work.multiplier.multiply(inputs.transposed(), slope, weights);
            sum_rows(&work.slope, &mut self.gradient[layer.biases.clone()]);
            if let Some(outputs_below) = below {
                let weights = &self.parameters[layer.weights.clone()];
                let weights = Matrix::new(weights, layer.inputs, layer.outputs);
                work.slope_below.resize(outputs_below.len(), 0.0);
                work.multiplier.multiply(slope, weights.transposed(), &mut work.slope_below);
                // A rectifier that gave nothing lets nothing back.
                for (slope, output) in work.slope_below.iter_mut().zip(outputs_below) {
                    *slope = if *output > 0.0 { *slope } else { 0.0 };
                }
                std::mem::swap(&mut work.slope, &mut work.slope_below);
            }
        }
        (loss, &self.gradient)
    }

    /// Goes down the slope, with momentum: `gradient_mean` is the gradient per example.
    ///
    /// # Panics
    ///
    /// If there is not one value for every parameter.
    pub fn step(&mut self, gradient_mean: &[f32], rate: f32) {
        assert_eq!(gradient_mean.len(), self.parameters.len(), "one slope for every parameter");
        descend(&mut self.parameters, &mut self.velocity, gradient_mean, rate);
    }

    /// The share of the examples whose label has the highest score.
    ///
    /// # Panics
    ///
    /// If the examples do not have the width of this network.
    pub fn accuracy(&self, examples: &Examples) -> f64 {
        let classes = self.layers.last().expect("a network has a layer").outputs;
        let mut work = Workspace::default();
        let mut right = 0;
        for first in (0..examples.len()).step_by(EVALUATION_BATCH) {
            let batch = examples.batch(first..examples.len().min(first + EVALUATION_BATCH));
            forward(&self.layers, &self.parameters, &batch, &mut work);
            let scores = work.outputs.last().expect("a network has a layer");
            let scores = scores.chunks_exact(classes).zip(&batch.labels);
            right +=
                scores.filter(|(scores, label)| highest(scores) == usize::from(**label)).count();
        }
        right as f64 / examples.len() as f64
    }
}

/// A draw from the normal distribution (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    // 1 − u lies in (0, 1], so the logarithm is finite.
    let radius = (-2.0 * libm::log(1.0 - rng.uniform())).sqrt();
    radius * libm::cos(TAU * rng.uniform())
}

fn forward(layers: &[Layer], parameters: &[f32], batch: &Batch, work: &mut Workspace) {
    assert_eq!(batch.width, layers[0].inputs, "the examples have the width of the network");
    work.outputs.resize_with(layers.len(), Vec::new);
    for (index, layer) in layers.iter().enumerate() {
        let (below, from_here) = work.outputs.split_at_mut(index);
        let inputs = below.last().unwrap_or(&batch.inputs);
        let inputs = Matrix::new(inputs, batch.len(), layer.inputs);
        let weights = &parameters[layer.weights.clone()];
        let outputs = &mut from_here[0];
        outputs.resize(batch.len() * layer.outputs, 0.0);
        let weights = Matrix::new(weights, layer.inputs, layer.outputs);
        work.multiplier.multiply(inputs, weights, outputs);
        // The last layer's outputs are scores: they may be negative.
        let floor = if index + 1 < layers.len() { 0.0 } else { f32::NEG_INFINITY };
        for row in outputs.chunks_exact_mut(layer.outputs) {
            for (output, bias) in row.iter_mut().zip(&parameters[layer.biases.clone()]) {
                *output = (*output + bias).max(floor);
            }
        }
    }
}

/// Sums the loss over the examples and turns their scores into its slopes.
fn cross_entropy(scores: &mut [f32], classes: usize, labels: &[u8]) -> f64 {
    let mut loss = 0.0;
    for (scores, label) in scores.chunks_exact_mut(classes).zip(labels) {
        let label = usize::from(*label);
        assert!(label < classes, "label {label} of {classes} classes");
        // With the highest score at 0 no exponential leaves the range.
        let shift = scores[highest(scores)];
        let of_label = f64::from(scores[label] - shift);
        scores.iter_mut().for_each(|score| *score = libm::expf(*score - shift));
        let total: f32 = scores.iter().sum();
        loss += libm::log(f64::from(total)) - of_label;
        scores.iter_mut().for_each(|score| *score /= total);
        scores[label] -= 1.0;
    }
    loss
}

/// Index of the highest score; the first of several.
fn highest(scores: &[f32]) -> usize {
    let higher = |best: usize, at: usize| if scores[at] > scores[best] { at } else { best };
    (0..scores.len()).fold(0, higher)
}

/// Adds up the rows of a matrix, from the first to the last.
fn sum_rows(values: &[f32], sums: &mut [f32]) {
    sums.fill(0.0);
    for row in values.chunks_exact(sums.len()) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn descend(parameters: &mut [f32], velocity: &mut [f32], slopes: &[f32], rate: f32) {
    for ((parameter, velocity), slope) in parameters.iter_mut().zip(velocity).zip(slopes) {
        *velocity = MOMENTUM * *velocity + slope;
        *parameter -= rate * *velocity;
    }
}

#[cfg(test)]
mod tests;
