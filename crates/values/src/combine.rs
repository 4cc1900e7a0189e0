//! Values of any type as little-endian bytes: combining those of several workers, and dividing.

use std::convert::identity;

use half::{bf16, f16};
use multiversion::multiversion;
use thalweg_core::{Combine, Element};

use crate::narrow::{Bf16, F16, Narrow};

/// Combines parts value by value, in their order, into `result`, whose old content does not count.
/// Halves are combined in single precision and rounded once.
///
/// All parts are as long as the result, a whole number of values; what is beyond the shortest is left
/// alone. Without parts nothing happens.
pub fn combine(element: Element, how: Combine, parts: &[&[u8]], result: &mut [u8]) {
    match element {
        Element::F32 => fold::<f32, 4>(how, parts, result),
        Element::F64 => fold::<f64, 8>(how, parts, result),
        Element::F16 => fold::<f16, 2>(how, parts, result),
        Element::Bf16 => fold::<bf16, 2>(how, parts, result),
        Element::I8 => fold::<i8, 1>(how, parts, result),
        Element::I16 => fold::<i16, 2>(how, parts, result),
        Element::I32 => fold::<i32, 4>(how, parts, result),
        Element::I64 => fold::<i64, 8>(how, parts, result),
        Element::U8 => fold::<u8, 1>(how, parts, result),
        Element::U16 => fold::<u16, 2>(how, parts, result),
        Element::U32 => fold::<u32, 4>(how, parts, result),
        Element::U64 => fold::<u64, 8>(how, parts, result),
        _ => unreachable!("{element:?} has no arithmetic"),
    }
}

/// Divides every value in place: what makes a mean of a sum. Integers are rounded towards zero.
pub fn divide(element: Element, values: &mut [u8], by: u32) {
    match element {
        Element::F32 => divide_wide::<f32, 4>(values, by as f32),
        Element::F64 => map(values, |value: f64| value / f64::from(by)),
        Element::F16 => divide_wide::<f16, 2>(values, by as f32),
        Element::Bf16 => divide_wide::<bf16, 2>(values, by as f32),
        Element::I8 => map(values, |value: i8| (i64::from(value) / i64::from(by)) as i8),
        Element::I16 => map(values, |value: i16| (i64::from(value) / i64::from(by)) as i16),
        Element::I32 => map(values, |value: i32| (i64::from(value) / i64::from(by)) as i32),
        Element::I64 => map(values, |value: i64| value / i64::from(by)),
        Element::U8 => map(values, |value: u8| (u32::from(value) / by) as u8),
        Element::U16 => map(values, |value: u16| (u32::from(value) / by) as u16),
        Element::U32 => map(values, |value: u32| value / by),
        Element::U64 => map(values, |value: u64| value / u64::from(by)),
        _ => unreachable!("{element:?} has no arithmetic"),
    }
}

/// A value, its bytes, and what it is combined as.
trait Value<const N: usize>: Copy {
    /// Type that it is combined as: wider than the value where rounding would add up.
    type Wide: Copy + Default;
    fn read(bytes: [u8; N]) -> Self;
    fn write(self) -> [u8; N];
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn apply(how: Combine, a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

/// Values that are combined at a time: their wide forms stay in the first-level cache.
const BLOCK_VALUES: usize = 1_024;

fn fold<V: Value<N>, const N: usize>(how: Combine, parts: &[&[u8]], result: &mut [u8]) {
    let result = result.as_chunks_mut::<N>().0;
    let shortest = parts.iter().map(|part| part.len() / N).min().unwrap_or(0).min(result.len());
    let values = |part| &values::<N>(part)[..shortest];
    let result = &mut result[..shortest];
    match parts {
        [] => {}
        [only] => result.copy_from_slice(values(only)),
        [first, last] => pair::<V, N>(how, values(first), values(last), result),
        _ => fold_many::<V, N>(how, parts, result),
    }
}

/// Combines three or more parts. None is shorter than the result.
fn fold_many<V: Value<N>, const N: usize>(how: Combine, parts: &[&[u8]], result: &mut [[u8; N]]) {
    let [first, second, between @ .., last] = parts else { return };
    let mut wide = [V::Wide::default(); BLOCK_VALUES];
    for start in (0..result.len()).step_by(BLOCK_VALUES) {
        let range = start..result.len().min(start + BLOCK_VALUES);
        let block = |part| &values::<N>(part)[range.clone()];
        let wide = &mut wide[..range.len()];
        begin::<V, N>(how, block(first), block(second), wide);
        for part in between {
            add::<V, N>(how, block(part), wide);
        }
        finish::<V, N>(how, wide, block(last), &mut result[range.clone()]);
    }
}

fn values<const N: usize>(part: &[u8]) -> &[[u8; N]] {
    part.as_chunks().0
}

/// Calls a function with the operation of each way to combine. So every loop is compiled for each of them, and none
/// has a choice inside.
macro_rules! with_operation {
    ($how:expr, $value:ty, |$operation:ident| $body:expr) => {
        match $how {
            Combine::Sum => with_operation!(@ Sum, $value, $operation, $body),
            Combine::Product => with_operation!(@ Product, $value, $operation, $body),
            Combine::Min => with_operation!(@ Min, $value, $operation, $body),
            Combine::Max => with_operation!(@ Max, $value, $operation, $body),
        }
    };
    (@ $how:ident, $value:ty, $operation:ident, $body:expr) => {{
        let $operation = |a, b: [u8; N]| <$value>::apply(Combine::$how, a, <$value>::read(b).widen());
        $body
    }};
}

// Compiled for wider vectors as well, like the sums of fragments. Every value is read and written as rarely as possible:
// the first two parts begin a sum, and the last one ends it.

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx+avx2"))]
fn pair<V: Value<N>, const N: usize>(
    how: Combine,
    a: &[[u8; N]],
    b: &[[u8; N]],
    result: &mut [[u8; N]],
) {
    with_operation!(how, V, |operation| for ((result, a), b) in result.iter_mut().zip(a).zip(b) {
        *result = V::narrow(operation(V::read(*a).widen(), *b)).write();
    });
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx+avx2"))]
fn begin<V: Value<N>, const N: usize>(
    how: Combine,
    a: &[[u8; N]],
    b: &[[u8; N]],
    wide: &mut [V::Wide],
) {
    with_operation!(how, V, |operation| for ((wide, a), b) in wide.iter_mut().zip(a).zip(b) {
        *wide = operation(V::read(*a).widen(), *b);
    });
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx+avx2"))]
fn add<V: Value<N>, const N: usize>(how: Combine, part: &[[u8; N]], wide: &mut [V::Wide]) {
    with_operation!(how, V, |operation| for (wide, part) in wide.iter_mut().zip(part) {
        *wide = operation(*wide, *part);
    });
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx+avx2"))]
fn finish<V: Value<N>, const N: usize>(
    how: Combine,
    wide: &[V::Wide],
    last: &[[u8; N]],
    result: &mut [[u8; N]],
) {
    with_operation!(how, V, |operation| for ((result, wide), last) in
        result.iter_mut().zip(wide).zip(last)
    {
        *result = V::narrow(operation(*wide, *last)).write();
    });
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx+avx2"))]
fn divide_wide<V: Value<N, Wide = f32>, const N: usize>(values: &mut [u8], by: f32) {
    for value in values.as_chunks_mut::<N>().0 {
        *value = V::narrow(V::read(*value).widen() / by).write();
    }
}

fn map<V: Value<N>, const N: usize>(values: &mut [u8], change: impl Fn(V) -> V) {
    for value in values.as_chunks_mut::<N>().0 {
        *value = change(V::read(*value)).write();
    }
}

/// Values of these types, each combined as another one, all of them in the same way.
macro_rules! values {
    (
        |$how:ident, $a:ident, $b:ident| $apply:expr;
        $($type:ty as $wide:ty, $widen:expr, $narrow:expr;)*
    ) => {$(
        impl Value<{ size_of::<$type>() }> for $type {
            type Wide = $wide;
            #[inline(always)]
            fn read(bytes: [u8; size_of::<$type>()]) -> $type {
                <$type>::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn write(self) -> [u8; size_of::<$type>()] {
                self.to_le_bytes()
            }
            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> $type {
                $narrow(wide)
            }
            #[inline(always)]
            fn apply($how: Combine, $a: $wide, $b: $wide) -> $wide {
                $apply
            }
        }
    )*};
}

values! {
    |how, a, b| match how {
        Combine::Sum => a.wrapping_add(b),
        Combine::Product => a.wrapping_mul(b),
        Combine::Min => a.min(b),
        Combine::Max => a.max(b),
    };
    i8 as i8, identity, identity;
    i16 as i16, identity, identity;
    i32 as i32, identity, identity;
    i64 as i64, identity, identity;
    u8 as u8, identity, identity;
    u16 as u16, identity, identity;
    u32 as u32, identity, identity;
    u64 as u64, identity, identity;
}

values! {
    |how, a, b| match how {
        Combine::Sum => a + b,
        Combine::Product => a * b,
        // A comparison with NaN is false: the other one must not hide it.
        Combine::Min => if a < b || a.is_nan() { a } else { b },
        Combine::Max => if a > b || a.is_nan() { a } else { b },
    };
    f32 as f32, identity, identity;
    f64 as f64, identity, identity;
    f16 as f32, |value: f16| F16::widen(value.to_bits()), |wide| f16::from_bits(F16::round(wide));
    bf16 as f32, |value: bf16| Bf16::widen(value.to_bits()), |wide| bf16::from_bits(Bf16::round(wide));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes<const N: usize>(values: &[[u8; N]]) -> Vec<u8> {
        values.concat()
    }

    fn f32s(values: &[f32]) -> Vec<u8> {
        bytes(&values.iter().map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn combined(element: Element, how: Combine, parts: &[Vec<u8>]) -> Vec<u8> {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut result = vec![0xee; parts[0].len()];
        combine(element, how, &parts, &mut result);
        result
    }

    #[test]
    fn every_way_of_combining_floats() {
        let parts = [f32s(&[1.0, -2.0, 8.0]), f32s(&[3.0, 5.0, 0.5]), f32s(&[-4.0, 1.0, 2.0])];
        let of = |how| combined(Element::F32, how, &parts);
        assert_eq!(of(Combine::Sum), f32s(&[0.0, 4.0, 10.5]));
        assert_eq!(of(Combine::Product), f32s(&[-12.0, -10.0, 8.0]));
        assert_eq!(of(Combine::Min), f32s(&[-4.0, -2.0, 0.5]));
        assert_eq!(of(Combine::Max), f32s(&[3.0, 5.0, 8.0]));
    }

    #[test]
    fn nan_is_carried_from_either_side() {
        for parts in [[f32s(&[f32::NAN]), f32s(&[1.0])], [f32s(&[1.0]), f32s(&[f32::NAN])]] {
            for how in [Combine::Sum, Combine::Product, Combine::Min, Combine::Max] {
                let result = combined(Element::F32, how, &parts);
                assert!(f32::from_le_bytes(result.try_into().unwrap()).is_nan(), "{how:?}");
            }
        }
    }

    #[test]
    fn integers_wrap_and_keep_their_sign() {
        let parts = [vec![200u8, 3], vec![100, 255]];
        assert_eq!(combined(Element::U8, Combine::Sum, &parts), [44, 2]);
        assert_eq!(combined(Element::I8, Combine::Min, &parts), [200, 255], "-56 and -1");
        assert_eq!(combined(Element::U8, Combine::Min, &parts), [100, 3]);
        let wide = [bytes(&[i64::MAX.to_le_bytes()]), bytes(&[1i64.to_le_bytes()])];
        assert_eq!(combined(Element::I64, Combine::Sum, &wide), i64::MIN.to_le_bytes());
    }

    #[test]
    fn halves_are_rounded_once() {
        // 2048 + 1 rounds back to 2048 in half precision, but 2048 + 1 + 1 is 2050.
        let half = |value: f32| bytes(&[f16::from_f32(value).to_le_bytes()]);
        let parts = [half(2_048.0), half(1.0), half(1.0)];
        assert_eq!(combined(Element::F16, Combine::Sum, &parts), half(2_050.0));
        let brain = |value: f32| bytes(&[bf16::from_f32(value).to_le_bytes()]);
        let parts = [brain(256.0), brain(1.0), brain(1.0)];
        assert_eq!(combined(Element::Bf16, Combine::Sum, &parts), brain(258.0));
    }

    const WAYS: [Combine; 4] = [Combine::Sum, Combine::Product, Combine::Min, Combine::Max];

    /// One value of every part, combined one after the other in the wide type and rounded once.
    fn one_by_one<V: Value<N>, const N: usize>(how: Combine, values: &[[u8; N]]) -> [u8; N] {
        let mut wide = values.iter().map(|value| V::read(*value).widen());
        let first = wide.next().expect("a part");
        V::narrow(wide.fold(first, |a, b| V::apply(how, a, b))).write()
    }

    /// Combines parts, and panics where a value is not what all values of its place give one by one.
    fn check<V: Value<N>, const N: usize>(
        element: Element,
        how: Combine,
        parts: &[Vec<u8>],
        is_nan: impl Fn([u8; N]) -> bool,
    ) {
        let views: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut result = vec![0xee; parts[0].len()];
        combine(element, how, &views, &mut result);
        let shortest = parts.iter().map(|part| part.len() / N).min().expect("a part");
        for (place, value) in result.as_chunks::<N>().0.iter().enumerate() {
            if place >= shortest {
                assert_eq!(*value, [0xee; N], "{place} is beyond the shortest");
                continue;
            }
            let values: Vec<_> = parts.iter().map(|part| part.as_chunks::<N>().0[place]).collect();
            let expected = one_by_one::<V, N>(how, &values);
            let is_same = *value == expected || (is_nan(*value) && is_nan(expected));
            assert!(is_same, "{element:?} {how:?} at {place}: {values:x?} gave {value:x?}");
        }
    }

    /// Bytes of any value, and often those of the largest numbers, infinities and NaN.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => any::<u8>(),
            1 => prop::sample::select(vec![0x00, 0x7f, 0x80, 0xff, 0x7c, 0xfc]),
        ];
        (0..6_000usize, prop::collection::vec(byte, 64..512))
            .prop_map(|(bytes, pattern)| pattern.into_iter().cycle().take(bytes).collect())
    }

    proptest! {
        #[test]
        fn any_number_of_parts_gives_the_bits_of_one_value_after_the_other(
            parts in prop::collection::vec(part(), 1..10),
        ) {
            for how in WAYS {
                check::<f32, 4>(Element::F32, how, &parts, |v| f32::from_le_bytes(v).is_nan());
                check::<f64, 8>(Element::F64, how, &parts, |v| f64::from_le_bytes(v).is_nan());
                check::<f16, 2>(Element::F16, how, &parts, |v| f16::from_le_bytes(v).is_nan());
                check::<bf16, 2>(Element::Bf16, how, &parts, |v| bf16::from_le_bytes(v).is_nan());
                check::<i8, 1>(Element::I8, how, &parts, |_| false);
                check::<u16, 2>(Element::U16, how, &parts, |_| false);
                check::<i64, 8>(Element::I64, how, &parts, |_| false);
            }
        }
    }

    #[test]
    fn long_parts_are_combined_to_the_end() {
        let values: Vec<f32> = (0..5_000).map(|value| value as f32).collect();
        let doubled: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
        let parts = [f32s(&values), f32s(&values)];
        assert_eq!(combined(Element::F32, Combine::Sum, &parts), f32s(&doubled));
    }

    #[test]
    fn what_does_not_fit_is_left_alone() {
        let mut result = vec![7; 9];
        combine(Element::F32, Combine::Sum, &[&[0; 6], &[0; 12]], &mut result);
        assert_eq!(result, [0, 0, 0, 0, 7, 7, 7, 7, 7]);
        combine(Element::F32, Combine::Sum, &[], &mut result);
        assert_eq!(result[4], 7);
    }

    #[test]
    fn means_divide() {
        let mut values = f32s(&[9.0, -3.0]);
        divide(Element::F32, &mut values, 2);
        assert_eq!(values, f32s(&[4.5, -1.5]));
        for by in [1, 3, 7, 1_000] {
            for bits in 0..=u16::MAX {
                let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
                let mut values = [half.to_le_bytes(), brain.to_le_bytes()];
                divide(Element::F16, &mut values[0], by);
                divide(Element::Bf16, &mut values[1], by);
                let (a, b) = (f16::from_le_bytes(values[0]), bf16::from_le_bytes(values[1]));
                let expected = f16::from_f32(half.to_f32() / by as f32);
                assert!(a.to_bits() == expected.to_bits() || half.is_nan() && a.is_nan());
                let expected = bf16::from_f32(brain.to_f32() / by as f32);
                assert!(b.to_bits() == expected.to_bits() || brain.is_nan() && b.is_nan());
            }
        }
        let mut values = vec![249u8, 9];
        divide(Element::I8, &mut values, 2);
        assert_eq!(values, [253, 4], "-7 / 2 and 9 / 2, towards zero");
    }

    #[test]
    fn sizes_agree_with_names() {
        for element in Element::ALL {
            let digits: String = element.name().chars().filter(char::is_ascii_digit).collect();
            assert_eq!(element.bytes() * 8, digits.parse::<usize>().unwrap());
        }
    }
}
