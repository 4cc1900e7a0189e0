//! Divisions without a divide instruction, or with one for many: a decision does dozens for every flow.

/// Divides by the same number again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    by: u64,
    /// As many times as it fits into what a number can hold.
    inverse: u64,
}

impl Divisor {
    /// Divides by a number, and by 1 in place of 0.
    pub(crate) fn new(by: u64) -> Divisor {
        let by = by.max(1);
        Divisor { by, inverse: u64::MAX / by }
    }

    /// Quotient of a value by the divisor, rounded down.
    #[inline]
    pub(crate) fn quotient(self, value: u64) -> u64 {
        let near = ((u128::from(value) * u128::from(self.inverse)) >> 64) as u64;
        // The inverse is at most one too small, and a value less than 2^64: `near` is at most one too small.
        near + u64::from(value - near * self.by >= self.by)
    }

    /// The largest multiple of the divisor that is not above a value.
    #[inline]
    pub(crate) fn multiple(self, value: u64) -> u64 {
        self.quotient(value) * self.by
    }
}

/// A fraction of values, rounded down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction {
    by: u64,
    divisor: Divisor,
    /// About as much, for values of which a product is too large.
    near: f64,
}

/// Below this, and five roundings of a 53-bit number away from it, a quotient is off by less than one.
const NEAR_MAX: f64 = (1_u64 << 49) as f64;
/// Below this, what is left of a division by it fits a signed number, be it twice the divisor or less than 0.
const DIVISOR_MAX: u64 = 1 << 61;

impl Fraction {
    /// `by` ÷ `of`, and ÷ 1 in place of 0.
    pub(crate) fn new(by: u64, of: u64) -> Fraction {
        let of = of.max(1);
        let common = common_divisor(by, of);
        let (by, of) = (by / common, of / common);
        let near = if of < DIVISOR_MAX { by as f64 / of as f64 } else { f64::INFINITY };
        Fraction { by, divisor: Divisor::new(of), near }
    }

    /// The fraction's part of a value; [`u64::MAX`] where it is more than that.
    #[inline]
    pub(crate) fn of(&self, value: u64) -> u64 {
        match value.checked_mul(self.by) {
            Some(product) => self.divisor.quotient(product),
            None => self.of_large(value),
        }
    }

    fn of_large(&self, value: u64) -> u64 {
        let near = value as f64 * self.near;
        if near < NEAR_MAX { self.corrected(value, near as u64) } else { self.of_huge(value) }
    }

    /// The quotient, from one that is at most one off.
    fn corrected(&self, value: u64, near: u64) -> u64 {
        // Both products are too large, but they lose the same.
        let rest =
            value.wrapping_mul(self.by).wrapping_sub(near.wrapping_mul(self.divisor.by)) as i64;
        near.wrapping_add_signed(i64::from(rest >= self.divisor.by as i64) - i64::from(rest < 0))
    }

    #[cold]
    fn of_huge(&self, value: u64) -> u64 {
        let quotient = u128::from(value) * u128::from(self.by) / u128::from(self.divisor.by);
        u64::try_from(quotient).unwrap_or(u64::MAX)
    }
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of all lengths, and those beside powers of two.
    fn number() -> impl Strategy<Value = u64> {
        let beside =
            (0..64_u32, 0..3_u64).prop_map(|(bits, by)| (1 << bits) - 1 + by.min(1 << bits));
        prop_oneof![(any::<u64>(), 0..64_u32).prop_map(|(bits, by)| bits >> by), beside]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_divisor_divides(value in number(), by in number()) {
            let by = by.max(1);
            prop_assert_eq!(Divisor::new(by).quotient(value), value / by);
            prop_assert_eq!(Divisor::new(by).multiple(value), value - value % by);
        }

        #[test]
        fn a_fraction_is_exact(value in number(), by in number(), of in number(), times in number()) {
            let of = of.max(1);
            let exact = |value| u128::from(value) * u128::from(by) / u128::from(of);
            // Multiples, and their neighbours, are where a wrong rounding shows.
            let multiple = u64::try_from(u128::from(times) * u128::from(of) / u128::from(by.max(1)));
            let multiple = multiple.unwrap_or(value);
            for value in [value, multiple.saturating_sub(1), multiple, multiple.saturating_add(1)] {
                let expected = u64::try_from(exact(value)).unwrap_or(u64::MAX);
                prop_assert_eq!(Fraction::new(by, of).of(value), expected, "{} × {} ÷ {}", value, by, of);
            }
        }
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(Divisor::new(0).quotient(7), 7);
        assert_eq!(Fraction::new(2, 0).of(7), 14);
    }
}
