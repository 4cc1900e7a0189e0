//! Generated gradients of many workers, drawn only where they can matter.

use serde::Deserialize;
use thalweg_core::Rng;

/// The generator's parameters; the plan says what they mean.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Gradients {
    pub(super) tail: f64,
    pub(super) body: f64,
    pub(super) unit: f64,
    pub(super) layer_spread: f64,
    pub(super) correlation: f64,
}

/// A normal number is further out than this once in five hundred million draws. What would need a
/// larger one is not drawn.
const MOST_DEVIATIONS: f64 = 6.0;

impl Gradients {
    /// Calls `visit` with the index and all workers' values of every value of a tensor of which a
    /// worker's may be larger than `bound`, in order.
    pub(super) fn large_values(
        &self,
        tensor_values: u64,
        bound: f64,
        draws: &mut Draws,
        of_workers: &mut [f64],
        mut visit: impl FnMut(u64, &[f64]),
    ) {
        let unit = self.layer_unit(draws);
        let chance = self.chance_above(bound / MOST_DEVIATIONS, unit);
        let mut index = draws.failures_before_success(chance);
        while index < tensor_values {
            let amplitude = self.amplitude(chance * draws.above_zero(), unit);
            self.fill(amplitude, draws, of_workers);
            visit(index, of_workers);
            index = index.saturating_add(1).saturating_add(draws.failures_before_success(chance));
        }
    }

    /// The unit of one tensor in one iteration.
    fn layer_unit(&self, draws: &mut Draws) -> f64 {
        self.unit * libm::exp(self.layer_spread * draws.normal())
    }

    fn chance_above(&self, amplitude: f64, unit: f64) -> f64 {
        libm::pow(1.0 + libm::pow(amplitude / unit, self.body), -self.tail / self.body)
    }

    /// The amplitude that is exceeded with the given chance.
    fn amplitude(&self, chance: f64, unit: f64) -> f64 {
        unit * libm::pow(libm::pow(chance, -self.body / self.tail) - 1.0, 1.0 / self.body)
    }

    fn fill(&self, amplitude: f64, draws: &mut Draws, of_workers: &mut [f64]) {
        let shared = amplitude * self.correlation.sqrt() * draws.normal();
        let own = amplitude * (1.0 - self.correlation).sqrt();
        for value in of_workers {
            *value = shared + own * draws.normal();
        }
    }
}

/// Random numbers in the shapes that the generator needs.
pub(super) struct Draws {
    rng: Rng,
    /// The polar method makes two at a time.
    spare: Option<f64>,
}

impl Draws {
    pub(super) fn new(rng: Rng) -> Draws {
        Draws { rng, spare: None }
    }

    /// Uniform in (0, 1].
    fn above_zero(&mut self) -> f64 {
        1.0 - self.rng.uniform()
    }

    /// Standard normal, by the polar method.
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.rng.uniform() - 1.0, 2.0 * self.rng.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// Number of trials that fail before the first that succeeds.
    fn failures_before_success(&mut self, chance: f64) -> u64 {
        // The cast cuts off what lies beyond the range.
        (libm::log(self.above_zero()) / libm::log1p(-chance)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRADIENTS: Gradients =
        Gradients { tail: 3.0, body: 0.6, unit: 0.005_416, layer_spread: 0.5, correlation: 0.1 };

    /// One value of one worker, drawn without skipping.
    fn any_value(draws: &mut Draws) -> f64 {
        let unit = GRADIENTS.layer_unit(draws);
        let chance = draws.above_zero();
        let mut value = [0.0];
        GRADIENTS.fill(GRADIENTS.amplitude(chance, unit), draws, &mut value);
        value[0]
    }

    #[test]
    fn eighteen_percent_of_the_values_are_tiny() {
        let mut draws = Draws::new(Rng::new(1));
        let tiny = (0..400_000).filter(|_| any_value(&mut draws).abs() < 1e-5).count();
        let share = tiny as f64 / 400_000.0;
        assert!((share - 0.18).abs() < 0.003, "{share}");
    }

    #[test]
    fn skipping_loses_nothing() {
        // Without a layer's own factor both ways see one distribution.
        let gradients = Gradients { layer_spread: 0.0, ..GRADIENTS };
        let (bound, values) = (0.05, 3_000_000);
        let mut draws = Draws::new(Rng::new(2));
        let mut skipped = 0_u32;
        let mut last = None;
        gradients.large_values(values, bound, &mut draws, &mut [0.0; 2], |index, of_workers| {
            assert!(index < values && last.is_none_or(|last| last < index));
            last = Some(index);
            skipped += of_workers.iter().filter(|value| value.abs() > bound).count() as u32;
        });
        let mut dense = 0_u32;
        let mut of_workers = [0.0; 2];
        for _ in 0..values {
            let amplitude = gradients.amplitude(draws.above_zero(), gradients.unit);
            gradients.fill(amplitude, &mut draws, &mut of_workers);
            dense += of_workers.iter().filter(|value| value.abs() > bound).count() as u32;
        }
        // About 5,000 each, of which two workers' are not independent: five deviations.
        let deviation = (2.0 * f64::from(dense + skipped)).sqrt();
        let difference = (f64::from(dense) - f64::from(skipped)).abs();
        assert!(dense > 2_000 && difference < 5.0 * deviation, "{dense} and {skipped}");
    }

    #[test]
    fn the_amplitude_inverts_its_chance() {
        for amplitude in [1e-6, 0.01, 3.0, 1e4] {
            let chance = GRADIENTS.chance_above(amplitude, 0.02);
            let back = GRADIENTS.amplitude(chance, 0.02);
            assert!((back / amplitude - 1.0).abs() < 1e-6, "{back} for {amplitude}");
        }
    }

    #[test]
    fn workers_are_correlated_as_the_plan_says() {
        let mut draws = Draws::new(Rng::new(3));
        let mut products = 0.0;
        let mut of_workers = [0.0; 2];
        for _ in 0..200_000 {
            GRADIENTS.fill(1.0, &mut draws, &mut of_workers);
            products += of_workers[0] * of_workers[1];
        }
        let correlation = products / 200_000.0;
        assert!((correlation - 0.1).abs() < 0.01, "{correlation}");
    }
}
