//! From values to places: transforms, and the part of an axis that is shown.

use super::axis::Scale;
use crate::format::power_of_ten;

/// Values beyond are not drawn: a range divided by another one must stay finite.
const LARGEST: f64 = 1e100;
const SMALLEST: f64 = 1e-100;

/// The place of a value along a scale of its own unit, `None` when the scale cannot show it.
pub(super) fn transform(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        Scale::Linear => (value.abs() <= LARGEST).then_some(value),
        Scale::Log10 => (SMALLEST..=LARGEST).contains(&value).then(|| libm::log10(value)),
    }
}

/// Visible range of an axis, in transformed values: `low < high`, both finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Domain {
    pub(super) scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Domain {
    /// A domain around `low..=high`, made wider where it has hardly any width.
    pub(super) fn new(scale: Scale, low: f64, high: f64) -> Self {
        let magnitude = low.abs().max(high.abs());
        let too_narrow = high - low < (magnitude * 1e-9).max(SMALLEST);
        let (low, high) = match scale {
            _ if !too_narrow => (low, high),
            Scale::Log10 => (low - 0.5, high + 0.5),
            Scale::Linear if magnitude < SMALLEST => (0.0, 1.0),
            Scale::Linear => (low - magnitude / 2.0, high + magnitude / 2.0),
        };
        Self { scale, low, high }
    }

    /// Position of a value: 0 at the low end, 1 at the high end, outside of that where it is not shown. `None` when the
    /// scale cannot show it.
    pub(super) fn fraction(&self, value: f64) -> Option<f64> {
        transform(self.scale, value).map(|place| (place - self.low) / (self.high - self.low))
    }

    /// True if a tick at this value belongs on the axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        self.fraction(value).is_some_and(|part| (-1e-6..=1.0 + 1e-6).contains(&part))
    }

    /// The same domain with a margin on both sides, in transformed values.
    pub(super) fn padded(self, margin: f64) -> Self {
        Self { low: self.low - margin, high: self.high + margin, ..self }
    }

    /// The ends as values.
    pub(super) fn values(&self) -> (f64, f64) {
        match self.scale {
            Scale::Linear => (self.low, self.high),
            Scale::Log10 => (ten_to(self.low), ten_to(self.high)),
        }
    }
}

/// Ten to a power that need not be whole; exact where it is.
fn ten_to(log: f64) -> f64 {
    let whole = log.floor();
    power_of_ten(whole as i32) * libm::pow(10.0, log - whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_on_both_scales() {
        let linear = Domain::new(Scale::Linear, -10.0, 10.0);
        assert_eq!(linear.fraction(5.0), Some(0.75));
        assert_eq!(linear.fraction(f64::NAN), None);
        assert_eq!(linear.fraction(f64::INFINITY), None);
        let log = Domain::new(Scale::Log10, 0.0, 4.0);
        assert_eq!(log.fraction(100.0), Some(0.5));
        assert_eq!(log.fraction(0.0), None);
        assert_eq!(log.fraction(-1.0), None);
    }

    #[test]
    fn a_domain_always_has_width() {
        let ends = |scale, low, high| {
            let domain = Domain::new(scale, low, high);
            (domain.low, domain.high)
        };
        assert_eq!(ends(Scale::Linear, 0.0, 0.0), (0.0, 1.0));
        assert_eq!(ends(Scale::Linear, 4.0, 4.0), (2.0, 6.0));
        assert_eq!(ends(Scale::Linear, 1e9, 1e9 + 0.5), (499_999_999.75, 1_500_000_000.75));
        assert_eq!(ends(Scale::Log10, 2.0, 2.0), (1.5, 2.5));
        assert_eq!(ends(Scale::Linear, 1.0, 2.0), (1.0, 2.0));
    }
}
