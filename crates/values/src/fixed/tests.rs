// spec: A-31, T-09 machine

use proptest::prelude::*;

use super::*;

const CLIPPED: Fit = Fit { is_clipped: true, underflowed: 0 };

/// Everything was in range, and this number of values became zero.
fn underflowed(values: u64) -> Fit {
    Fit { is_clipped: false, underflowed: values }
}

fn at(scale: f32) -> Fixed {
    Fixed::new(scale).expect("finite and above zero")
}

fn encoded(scale: f32, values: &[f32]) -> (Vec<i32>, Fit) {
    let mut out = vec![-1; values.len()];
    let fit = at(scale).encode(values, &mut out);
    (out, fit)
}

fn decoded(scale: f32, integers: &[i32]) -> Vec<f32> {
    let mut out = vec![-1.0; integers.len()];
    at(scale).decode(integers, &mut out);
    out
}

/// An `f32` as an integer and a power of two.
fn parts(value: f32) -> (i128, i32) {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32;
    let fraction = i128::from(bits & 0x7f_ffff);
    let magnitude = if exponent == 0 { fraction } else { fraction | 1 << 23 };
    (if value.is_sign_negative() { -magnitude } else { magnitude }, exponent.max(1) - 150)
}

/// Encoding by its definition, in integers only.
fn oracle(value: f32, scale: f32) -> (i32, Fit) {
    if !value.is_finite() {
        let end = if value > 0.0 { i32::MAX } else { i32::MIN };
        return (if value.is_nan() { 0 } else { end }, CLIPPED);
    }
    let ((value_parts, value_power), (scale_parts, scale_power)) = (parts(value), parts(scale));
    let (product, power) = (value_parts * scale_parts, value_power + scale_power);
    let nearest = if power >= 0 {
        product << power.min(64)
    } else {
        let divisor = 1_i128 << (-power).min(100);
        let (floor, rest) = (product.div_euclid(divisor), product.rem_euclid(divisor));
        floor + i128::from(2 * rest > divisor || 2 * rest == divisor && floor % 2 != 0)
    };
    match i32::try_from(nearest) {
        Ok(nearest) => (nearest, underflowed(u64::from(nearest == 0 && value_parts != 0))),
        Err(_) if nearest < 0 => (i32::MIN, CLIPPED),
        Err(_) => (i32::MAX, CLIPPED),
    }
}

#[test]
fn the_default_scale_is_the_papers() {
    let mut out = [0; 3];
    assert_eq!(Fixed::default().encode(&[1.0, -0.25, 20.0], &mut out), Fit::WHOLE);
    assert_eq!(out, [100_000_000, -25_000_000, 2_000_000_000]);
    assert_eq!(Fixed::default(), at(1e8));
    assert_eq!(Fixed::default().scale(), 1e8);
}

#[test]
fn a_scale_is_finite_and_above_zero() {
    for bad in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(Fixed::new(bad), None, "{bad}");
    }
    for good in [f32::from_bits(1), f32::MIN_POSITIVE, 1.0, f32::MAX] {
        assert_eq!(at(good).scale(), good);
    }
}

#[test]
fn ties_go_to_even() {
    let values = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.499_999_97, 0.500_000_06, -0.0];
    assert_eq!(encoded(1.0, &values), (vec![0, 2, 2, 0, -2, -2, 0, 1, 0], underflowed(3)));
    assert_eq!(encoded(2.0, &[0.25, 0.75, 1.25, -0.25]), (vec![0, 2, 2, 0], underflowed(2)));
}

#[test]
fn the_ends_of_the_range_saturate_exactly() {
    assert_eq!(encoded(1.0, &[2_147_483_520.0]), (vec![2_147_483_520], Fit::WHOLE));
    assert_eq!(encoded(1.0, &[2_147_483_648.0]), (vec![i32::MAX], CLIPPED));
    assert_eq!(encoded(1.0, &[-2_147_483_648.0]), (vec![i32::MIN], Fit::WHOLE));
    assert_eq!(encoded(1.0, &[-2_147_483_904.0]), (vec![i32::MIN], CLIPPED));
    assert_eq!(encoded(1.0, &[f32::MAX, f32::MIN]), (vec![i32::MAX, i32::MIN], CLIPPED));
}

#[test]
fn what_lies_around_the_ends_is_rounded_before_it_is_judged() {
    // The products are 2^31 and the fraction that the name says, exactly.
    let less_half = (65_537.0, 32_767.5);
    let less_nine_sixteenths = (10_783.0, 3_186_473.0 / 16.0);
    let more_quarter = (20_857.0, 102_962.25);
    let more_half = (641.0, 3_350_208.5);
    let more_three_quarters = (2_237.0, 959_983.75);
    for (scale, value) in [less_half, more_quarter, more_half, more_three_quarters] {
        assert_eq!(encoded(scale, &[value]), (vec![i32::MAX], CLIPPED), "{scale}");
    }
    for (scale, value) in [less_half, more_quarter, more_half] {
        assert_eq!(encoded(scale, &[-value]), (vec![i32::MIN], Fit::WHOLE), "{scale}");
    }
    let (scale, value) = more_three_quarters;
    assert_eq!(encoded(scale, &[-value]), (vec![i32::MIN], CLIPPED));
    let (scale, value) = less_nine_sixteenths;
    assert_eq!(encoded(scale, &[value, -value]), (vec![i32::MAX, -i32::MAX], Fit::WHOLE));
}

#[test]
fn what_is_not_a_number_is_nothing_and_infinity_is_the_end() {
    assert_eq!(encoded(1e8, &[f32::NAN]), (vec![0], CLIPPED));
    assert_eq!(encoded(1e8, &[-f32::NAN]), (vec![0], CLIPPED));
    let infinite = [f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(encoded(1e8, &infinite), (vec![i32::MAX, i32::MIN], CLIPPED));
}

#[test]
fn subnormals_are_values_like_others() {
    let tiny = f32::from_bits(1);
    assert_eq!(encoded(1e8, &[tiny, -tiny]), (vec![0, 0], underflowed(2)));
    assert_eq!(encoded(f32::MAX, &[2e-39, -2e-39]), (vec![1, -1], Fit::WHOLE));
    assert_eq!(decoded(f32::MAX, &[1, -1]), [2.938_736e-39, -2.938_736e-39]);
    assert_eq!(decoded(tiny, &[1, 0]), [f32::INFINITY, 0.0]);
}

/// Wherever it stands in a block, and beside a value that is clipped as well.
#[test]
fn a_value_of_at_most_half_a_step_is_counted() {
    for length in [1, 7, 352, 1_024, 1_025, 2_051] {
        for at in [0, length / 2, length - 1] {
            let mut values = vec![1.0; length];
            values[at] = -0.5;
            assert_eq!(encoded(1.0, &values).1, underflowed(1), "{at} of {length}");
            values[at] = -0.500_000_06;
            assert_eq!(encoded(1.0, &values).1, Fit::WHOLE, "{at} of {length}");
            values[at] = -0.0;
            assert_eq!(encoded(1.0, &values).1, Fit::WHOLE, "{at} of {length}");
        }
    }
    let flawed = [1e-12, f32::INFINITY, f32::NAN, 0.0, -1e-12];
    let fit = Fit { is_clipped: true, underflowed: 2 };
    assert_eq!(encoded(1e8, &flawed), (vec![0, i32::MAX, 0, 0, 0], fit));
}

#[test]
fn a_flaw_is_found_wherever_it_is_and_spoils_nothing_else() {
    for length in [1, 2, 3, 7, 62, 352, 1_023, 1_024, 1_025, 2_051] {
        let mut values: Vec<f32> = (0..length).map(|index| index as f32 - 30.5).collect();
        let (clean, fit) = encoded(4.0, &values);
        assert_eq!(fit, Fit::WHOLE);
        for flaw in [0, length / 2, length - 1] {
            let value = std::mem::replace(&mut values[flaw], f32::INFINITY);
            let (mut flawed, fit) = encoded(4.0, &values);
            assert_eq!((flawed[flaw], fit), (i32::MAX, CLIPPED));
            flawed[flaw] = clean[flaw];
            assert_eq!(flawed, clean);
            values[flaw] = value;
        }
    }
}

#[test]
fn nothing_becomes_nothing() {
    assert_eq!(encoded(1.0, &[]), (vec![], Fit::WHOLE));
    assert_eq!(Fixed::default().encode_le(&[], &mut []), Fit::WHOLE);
    assert!(decoded(1.0, &[]).is_empty());
    Fixed::default().decode_le(&[], &mut []);
}

#[test]
fn packets_are_little_endian() {
    let mut body = [0; 8];
    assert_eq!(at(1.0).encode_le(&[258.0, -2.0], &mut body), Fit::WHOLE);
    assert_eq!(body, [2, 1, 0, 0, 254, 255, 255, 255]);
    let mut back = [0.0; 2];
    at(1.0).decode_le(&body, &mut back);
    assert_eq!(back, [258.0, -2.0]);
}

#[test]
#[should_panic(expected = "one integer for each value")]
fn lengths_that_differ_are_the_callers_fault() {
    let _ = Fixed::default().encode(&[1.0, 2.0], &mut [0]);
}

#[test]
#[should_panic(expected = "the last integer is cut off")]
fn a_body_of_whole_integers_is_the_callers_duty() {
    Fixed::default().decode_le(&[0; 7], &mut [0.0]);
}

/// Any scale, often one for which quotients fall in the middle between two floats.
fn scales() -> impl Strategy<Value = f32> {
    prop_oneof![
        Just(1e8),
        (1..128_u8).prop_map(f32::from),
        (1..0x7f80_0000_u32).prop_map(f32::from_bits),
    ]
}

/// A scale and values: any bits, or close to a multiple of half a step, in range or just beyond.
fn scaled_values() -> impl Strategy<Value = (f32, Vec<f32>)> {
    scales().prop_flat_map(|scale| {
        let near = move |halves: i64| (halves as f64 / 2.0 / f64::from(scale)) as f32;
        let value = prop_oneof![
            1 => any::<u32>().prop_map(f32::from_bits),
            40 => (-1_i64 << 32..=1 << 32).prop_map(near),
            40 => (-1_000_i64..1_000).prop_map(near),
        ];
        (Just(scale), prop::collection::vec(value, 0..70))
    })
}

proptest! {
    #[test]
    fn encoding_agrees_with_integer_arithmetic((scale, values) in scaled_values()) {
        let (integers, fit) = encoded(scale, &values);
        let expected: Vec<(i32, Fit)> = values.iter().map(|value| oracle(*value, scale)).collect();
        let together = expected.iter().fold(Fit::WHOLE, |fit, (_, own)| fit.and(*own));
        prop_assert_eq!(fit, together);
        for (integer, (nearest, _)) in integers.iter().zip(expected) {
            prop_assert_eq!(*integer, nearest);
        }

        let mut body = vec![0; 4 * values.len()];
        prop_assert_eq!(at(scale).encode_le(&values, &mut body), fit);
        let bytes: Vec<u8> = integers.iter().flat_map(|integer| integer.to_le_bytes()).collect();
        prop_assert_eq!(body, bytes);
    }

    #[test]
    fn decoding_is_division(scale in scales(), integers in prop::collection::vec(any::<i32>(), 0..70)) {
        // Two roundings equal one here: no quotient is close enough to a tie of the second.
        let expected: Vec<f32> =
            integers.iter().map(|integer| (f64::from(*integer) / f64::from(scale)) as f32).collect();
        prop_assert_eq!(&decoded(scale, &integers), &expected);

        let bytes: Vec<u8> = integers.iter().flat_map(|integer| integer.to_le_bytes()).collect();
        let mut out = vec![0.0; integers.len()];
        at(scale).decode_le(&bytes, &mut out);
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn ties_of_the_quotient_go_to_even(odd in 1..64_i32, halves in 1 << 23..1_i32 << 24) {
        // The middle between `halves` and `halves + 1`, both of them floats.
        let quotient = 2 * halves + 1;
        let even = 2 * (halves + halves % 2);
        prop_assert_eq!(decoded(odd as f32, &[quotient * odd, -quotient * odd]),
            vec![even as f32, -even as f32]);
    }

    #[test]
    fn a_round_trip_costs_half_a_step((scale, values) in scaled_values()) {
        let fitting: Vec<f32> =
            values.into_iter().filter(|value| !oracle(*value, scale).1.is_clipped).collect();
        let (integers, fit) = encoded(scale, &fitting);
        prop_assert!(!fit.is_clipped);
        let back = decoded(scale, &integers);
        let vanished = fitting.iter().zip(&integers).filter(|(value, integer)| **value != 0.0 && **integer == 0);
        prop_assert_eq!(fit.underflowed, vanished.count() as u64);
        for (value, back) in fitting.into_iter().zip(back) {
            let (value, back) = (f64::from(value), f64::from(back));
            let half_step = 0.5 / f64::from(scale);
            let float_rounding = (value.abs() + half_step) * f64::from(f32::EPSILON);
            let limit = half_step + float_rounding + f64::from(f32::from_bits(1));
            prop_assert!((back - value).abs() <= limit, "{value} came back as {back}");
        }
    }

    #[test]
    fn integers_that_a_float_holds_come_back(scale in 1e-20_f32..1e20, integer in -1 << 23..1 << 23) {
        prop_assert_eq!(encoded(scale, &decoded(scale, &[integer])), (vec![integer], Fit::WHOLE));
    }
}
