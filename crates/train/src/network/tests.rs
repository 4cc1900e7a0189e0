use super::*;

/// Ten examples of six values and three classes.
fn examples() -> Examples {
    let mut rng = Rng::new(8);
    let values = (0..60).map(|_| rng.below(256) as u8).collect();
    Examples::new(6, 3, values, vec![0, 1, 2, 2, 1, 0, 0, 1, 2, 1])
}

/// The loss in double precision, by the definition: an oracle that shares no code with the network.
fn loss(sizes: &[usize], parameters: &[f64], batch: &Batch) -> f64 {
    let mut total = 0.0;
    for (inputs, label) in batch.inputs.chunks(sizes[0]).zip(&batch.labels) {
        let mut values: Vec<f64> = inputs.iter().map(|&input| f64::from(input)).collect();
        let mut rest = parameters;
        for (layer, pair) in sizes.windows(2).enumerate() {
            let (weights, after) = rest.split_at(pair[0] * pair[1]);
            let (biases, after) = after.split_at(pair[1]);
            rest = after;
            let weighted = |output: usize| -> f64 {
                let weights = weights.iter().skip(output).step_by(pair[1]);
                biases[output] + values.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>()
            };
            let sums: Vec<f64> = (0..pair[1]).map(weighted).collect();
            let is_last = layer + 2 == sizes.len();
            values = sums.into_iter().map(|sum| if is_last { sum } else { sum.max(0.0) }).collect();
        }
        let exponentials: f64 = values.iter().map(|&score| libm::exp(score)).sum();
        total += libm::log(exponentials) - values[usize::from(*label)];
    }
    total
}

#[test]
fn the_gradient_is_that_of_finite_differences() {
    let sizes = [6, 5, 4, 3];
    let mut network = Network::new(&sizes, 3);
    // Biases begin at 0; here they have to matter.
    let mut rng = Rng::new(4);
    let biases: Vec<_> = network.layers.iter().map(|layer| layer.biases.clone()).collect();
    for at in biases.into_iter().flatten() {
        network.parameters[at] = rng.uniform() as f32 * 0.4;
    }
    let batch = examples().batch(0..10);
    let parameters: Vec<f64> = network.parameters.iter().map(|&value| f64::from(value)).collect();
    let (total, gradient) = network.gradient(&batch);
    assert!((total - loss(&sizes, &parameters, &batch)).abs() < 1e-5, "{total}");
    assert_eq!(gradient.len(), 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3);
    let mut moving = 0;
    for (at, &slope) in gradient.iter().enumerate() {
        let moved = |by: f64| {
            let mut parameters = parameters.clone();
            parameters[at] += by;
            loss(&sizes, &parameters, &batch)
        };
        let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((f64::from(slope) - difference).abs() < 1e-4, "{at}: {slope} and {difference}");
        moving += usize::from(slope != 0.0);
    }
    assert!(moving > 60, "only {moving} of 74 parameters matter: the check is weak");
}

#[test]
fn parts_add_up_to_the_whole() {
    let examples = examples();
    let mut network = Network::new(&[6, 5, 3], 3);
    let (whole_loss, whole) = network.gradient(&examples.batch(0..10));
    let whole = whole.to_vec();
    let mut sum = vec![0.0; whole.len()];
    let mut sum_loss = 0.0;
    for part in [0..3, 3..3, 3..10] {
        let (loss, gradient) = network.gradient(&examples.batch(part));
        sum_loss += loss;
        sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
    }
    assert!((whole_loss - sum_loss).abs() < 1e-9);
    for (whole, sum) in whole.iter().zip(sum) {
        assert!((whole - sum).abs() < 1e-5, "{whole} and {sum}");
    }
}

#[test]
fn an_empty_batch_has_no_gradient() {
    let mut network = Network::new(&[6, 5, 3], 3);
    let examples = examples();
    network.gradient(&examples.batch(0..10));
    let (loss, gradient) = network.gradient(&examples.batch([]));
    assert_eq!(loss, 0.0);
    assert!(gradient.iter().all(|&value| value == 0.0));
}

#[test]
fn a_step_keeps_its_momentum() {
    let mut network = Network::new(&[1, 1], 1);
    network.parameters = vec![1.0, 2.0];
    network.step(&[1.0, -2.0], 0.5);
    assert_eq!(network.parameters(), [0.5, 3.0]);
    network.step(&[0.0, 0.0], 0.5);
    assert_eq!(network.parameters(), [0.5 - 0.5 * MOMENTUM, 3.0 + MOMENTUM]);
}

#[test]
fn layers_are_ranges_of_the_parameters() {
    let network = Network::new(&[784, 256, 128, 10], 1);
    let layers: Vec<_> = network.layers().collect();
    assert_eq!(layers, [0..200_960, 200_960..233_856, 233_856..235_146]);
    assert_eq!(network.parameters().len(), 235_146);
}

#[test]
fn weights_begin_with_the_deviation_of_their_layer() {
    let network = Network::new(&[200, 100, 10], 1);
    let layer = &network.layers[0];
    let weights = &network.parameters[layer.weights.clone()];
    let mean = weights.iter().sum::<f32>() / weights.len() as f32;
    let squares: f32 = weights.iter().map(|weight| weight * weight).sum();
    let deviation = (squares / weights.len() as f32).sqrt();
    assert!(mean.abs() < 0.003 && (deviation - 0.1).abs() < 0.003, "{mean}, {deviation}");
    assert!(network.parameters[layer.biases.clone()].iter().all(|&bias| bias == 0.0));
}

#[test]
fn large_scores_do_not_leave_the_range() {
    let mut scores = [1_000.0, 0.0, -1_000.0, 1_000.0];
    let loss = cross_entropy(&mut scores, 2, &[0, 0]);
    assert_eq!(loss, 2_000.0);
    assert_eq!(scores, [0.0, 0.0, -1.0, 1.0]);
}

#[test]
#[should_panic(expected = "label 2 of 2 classes")]
fn a_label_without_a_class_is_refused() {
    Network::new(&[6, 2], 1).gradient(&examples().batch(0..10));
}
