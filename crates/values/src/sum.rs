//! Adding one fragment to another, in the little-endian bytes of bodies.

use multiversion::multiversion;

/// Adds fixed-point values with saturation, in place. Says whether any sum left the range.
// spec
pub fn add_fixed(sum: &mut [u8], body: &[u8]) -> bool {
    let (sum, body) = (sum.as_chunks_mut().0, body.as_chunks().0);
    let left = add_wrapping(sum, body);
    if left {
        saturate(sum, body);
    }
    left
}

/// Adds floats, in place.
// spec: T-09
pub fn add_float(sum: &mut [u8], body: &[u8]) {
    add_floats(sum.as_chunks_mut().0, body.as_chunks().0);
}

// Compiled for wider vectors as well; the widest that the machine has is chosen at run time. The
// arithmetic is the same in all of them, and so are the bits.

/// Saturation would cost more than the rest, and is seldom needed. So sums wrap, and the caller that finds
/// one that left the range goes back.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn add_wrapping(sum: &mut [[u8; 4]], body: &[[u8; 4]]) -> bool {
    let mut signs = 0;
    for (sum, body) in sum.iter_mut().zip(body) {
        let (a, b) = (i32::from_le_bytes(*sum), i32::from_le_bytes(*body));
        let total = a.wrapping_add(b);
        // Negative where both had one sign and the total has the other.
        signs |= (a ^ total) & (b ^ total);
        *sum = total.to_le_bytes();
    }
    signs < 0
}

/// Makes the sums of [`add_wrapping`] saturated ones: what was there before follows from them.
#[cold]
fn saturate(sum: &mut [[u8; 4]], body: &[[u8; 4]]) {
    for (sum, body) in sum.iter_mut().zip(body) {
        let (total, b) = (i32::from_le_bytes(*sum), i32::from_le_bytes(*body));
        *sum = total.wrapping_sub(b).saturating_add(b).to_le_bytes();
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn add_floats(sum: &mut [[u8; 4]], body: &[[u8; 4]]) {
    for (sum, body) in sum.iter_mut().zip(body) {
        *sum = (f32::from_le_bytes(*sum) + f32::from_le_bytes(*body)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(values: &[i32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    // spec: A-11 machine
    #[test]
    fn what_leaves_the_range_stays_at_its_end() {
        let mut sum = bytes(&[i32::MAX, i32::MIN, 5, i32::MAX, -1]);
        assert!(add_fixed(&mut sum, &bytes(&[1, -1, -7, i32::MIN, i32::MIN])));
        assert_eq!(sum, bytes(&[i32::MAX, i32::MIN, -2, -1, i32::MIN]));
        let mut sum = bytes(&[i32::MAX - 1, i32::MIN + 1]);
        assert!(!add_fixed(&mut sum, &bytes(&[1, -1])), "the ends belong to the range");
        assert_eq!(sum, bytes(&[i32::MAX, i32::MIN]));
    }

    // spec: T-09 machine
    #[test]
    fn floats_keep_nan_and_infinity() {
        let write = |values: [f32; 4]| values.map(f32::to_le_bytes).concat();
        let mut sum = write([1.5, f32::INFINITY, f32::INFINITY, f32::MAX]);
        add_float(&mut sum, &write([0.25, 1.0, f32::NEG_INFINITY, f32::MAX]));
        let sums: Vec<f32> =
            sum.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)).collect();
        assert_eq!((sums[0], sums[1], sums[3]), (1.75, f32::INFINITY, f32::INFINITY));
        assert!(sums[2].is_nan());
    }

    fn any_value() -> impl Strategy<Value = i32> {
        prop_oneof![any::<i32>(), -100..100, Just(i32::MAX), Just(i32::MIN)]
    }

    proptest! {
        #[test]
        fn fixed_point_agrees_with_wide_integers(
            pairs in prop::collection::vec((any_value(), any_value()), 0..200)
        ) {
            let (a, b): (Vec<i32>, Vec<i32>) = pairs.into_iter().unzip();
            let exact: Vec<i64> =
                a.iter().zip(&b).map(|(&a, &b)| i64::from(a) + i64::from(b)).collect();
            let limits = (i64::from(i32::MIN), i64::from(i32::MAX));
            let clamped: Vec<i32> =
                exact.iter().map(|&sum| sum.clamp(limits.0, limits.1) as i32).collect();
            let mut sum = bytes(&a);
            let left = add_fixed(&mut sum, &bytes(&b));
            prop_assert_eq!(left, exact.iter().any(|&sum| sum < limits.0 || sum > limits.1));
            prop_assert_eq!(sum, bytes(&clamped));
        }
    }
}
