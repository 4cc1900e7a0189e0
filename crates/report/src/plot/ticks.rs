//! Positions of ticks: on 1, 2 or 5 times a power of ten.

use crate::format::power_of_ten;

/// The distance between ticks: `mantissa` (1, 2 or 5) times ten to the `exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    mantissa: f64,
    pub(super) exponent: i32,
}

impl Step {
    /// The smallest such step that is not below `distance`.
    pub(super) fn at_least(distance: f64) -> Self {
        let exponent = libm::log10(distance).floor() as i32;
        let scaled = distance / power_of_ten(exponent) * (1.0 - SLACK);
        match [1.0, 2.0, 5.0].into_iter().find(|mantissa| scaled <= *mantissa) {
            Some(mantissa) => Self { mantissa, exponent },
            None => Self { mantissa: 1.0, exponent: exponent + 1 },
        }
    }

    /// A multiple of the step. It is divided by a power of ten rather than multiplied by a negative
    /// one, so that the third tenth is 0.3 and not 0.30000000000000004.
    fn multiple(self, index: f64) -> f64 {
        let units = index * self.mantissa;
        if self.exponent < 0 {
            units / power_of_ten(-self.exponent)
        } else {
            units * power_of_ten(self.exponent)
        }
    }

    fn size(self) -> f64 {
        self.multiple(1.0)
    }
}

/// Part of a step by which a value may miss a tick and still stand on it.
const SLACK: f64 = 1e-9;

/// Ticks that cover `min..=max` with about `max_steps` steps: the first is not above `min`, the last
/// not below `max`, up to the slack. Needs `min < max`.
pub(super) fn linear(min: f64, max: f64, max_steps: usize) -> (Step, Vec<f64>) {
    let step = Step::at_least((max - min) / max_steps as f64);
    let first = snap(min / step.size(), f64::floor);
    let last = snap(max / step.size(), f64::ceil);
    let count = (last - first).max(1.0) as usize;
    (step, (0..=count).map(|index| step.multiple(first + index as f64)).collect())
}

fn snap(quotient: f64, round_outwards: fn(f64) -> f64) -> f64 {
    let nearest = quotient.round();
    if (quotient - nearest).abs() < SLACK { nearest } else { round_outwards(quotient) }
}

/// Ticks inside a logarithmic range given by the logarithms of its ends: 1, 2 and 5 of every decade
/// where that is not too dense, else whole decades, else every second, fifth, tenth decade.
pub(super) fn log10(min_log: f64, max_log: f64, max_steps: usize) -> Vec<f64> {
    const STRIDES: [i32; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    let mut best = decades(min_log, max_log, 1, &[1.0, 2.0, 5.0]);
    for stride in STRIDES {
        if best.len() <= max_steps + 1 {
            break;
        }
        let sparser = decades(min_log, max_log, stride, &[1.0]);
        // One tick alone does not show a scale.
        if sparser.len() < 2 {
            break;
        }
        best = sparser;
    }
    best
}

fn decades(min_log: f64, max_log: f64, stride: i32, mantissas: &[f64]) -> Vec<f64> {
    let first = (min_log.floor() as i32).div_euclid(stride);
    let last = (max_log.ceil() as i32).div_euclid(stride);
    let inside = |value: &f64| {
        let log = libm::log10(*value);
        log >= min_log - SLACK && log <= max_log + SLACK
    };
    (first..=last)
        .flat_map(|index| {
            mantissas.iter().map(move |mantissa| mantissa * power_of_ten(index * stride))
        })
        .filter(inside)
        .collect()
}

/// The logarithm of the largest 1, 2 or 5 times a power of ten that is not above the value whose
/// logarithm is given.
pub(super) fn floor_log(log: f64) -> f64 {
    let decade = log.floor();
    let parts = [libm::log10(5.0), libm::log10(2.0), 0.0];
    decade + parts.into_iter().find(|part| decade + part <= log + SLACK).unwrap_or(0.0)
}

/// The same upwards.
pub(super) fn ceil_log(log: f64) -> f64 {
    let decade = log.floor();
    let parts = [0.0, libm::log10(2.0), libm::log10(5.0)];
    decade + parts.into_iter().find(|part| decade + part >= log - SLACK).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn linear_ticks_of_known_ranges() {
        assert_eq!(linear(0.0, 10.0, 5).1, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear(0.0, 1.0, 5).1, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(linear(0.1, 0.3, 2).1, [0.1, 0.2, 0.3]);
        assert_eq!(linear(-3.0, 7.0, 4).1, [-5.0, 0.0, 5.0, 10.0]);
        assert_eq!(linear(1_234.0, 1_236.5, 5).1, [1234.0, 1234.5, 1235.0, 1235.5, 1236.0, 1236.5]);
        assert_eq!(linear(-0.4, 0.4, 2).1, [-0.5, 0.0, 0.5]);
        assert!(linear(-0.4, 0.4, 2).1[1].is_sign_positive());
    }

    #[test]
    fn logarithmic_ticks_get_sparser_with_the_range() {
        assert_eq!(log10(0.0, 1.0, 5), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(log10(0.0, 3.0, 5), [1.0, 10.0, 100.0, 1_000.0]);
        assert_eq!(log10(-6.0, 6.0, 4), [1e-5, 1.0, 1e5]);
        assert_eq!(log10(0.5, 1.2, 5), [5.0, 10.0]);
    }

    #[test]
    fn logarithmic_ends_snap_outwards() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(floor_log(libm::log10(300.0)), libm::log10(200.0)));
        assert!(near(ceil_log(libm::log10(300.0)), libm::log10(500.0)));
        assert!(near(ceil_log(libm::log10(600.0)), 3.0));
        assert!(near(floor_log(2.0), 2.0) && near(ceil_log(2.0), 2.0));
    }

    proptest! {
        #[test]
        fn linear_ticks_cover_the_range(
            start in -1e9_f64..1e9,
            span_exponent in -3_i32..12,
            factor in 1.0_f64..10.0,
            max_steps in 1_usize..12,
        ) {
            let (min, max) = (start, start + factor * power_of_ten(span_exponent));
            let (step, ticks) = linear(min, max, max_steps);
            let slack = step.size() * 1e-6;
            prop_assert!(ticks[0] <= min + slack);
            prop_assert!(ticks[ticks.len() - 1] >= max - slack);
            prop_assert!(ticks.len() <= max_steps + 2);
            prop_assert!(ticks.is_sorted_by(|a, b| a < b));
            // No tick at either end could be left out.
            prop_assert!(ticks[1] > min && ticks[ticks.len() - 2] < max);
        }

        #[test]
        fn logarithmic_ticks_lie_inside_and_ascend(
            min_log in -200.0_f64..199.0,
            decades in 0.7_f64..200.0,
            max_steps in 1_usize..12,
        ) {
            let max_log = (min_log + decades).min(200.0);
            prop_assume!(max_log - min_log > 0.7);
            let ticks = log10(min_log, max_log, max_steps);
            prop_assert!(ticks.len() >= 2);
            prop_assert!(ticks.is_sorted_by(|a, b| a < b));
            for tick in ticks {
                prop_assert!(libm::log10(tick) >= min_log - 1e-6 && libm::log10(tick) <= max_log + 1e-6);
            }
        }
    }
}
