//! Values of any type as little-endian bytes: combining those of several workers, and dividing.

use std::convert::identity;

use half::{bf16, f16};
use multiversion::multiversion;
use thalweg_core::{Combine, Element};

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
        Element::F32 => map(values, |value: f32| value / by as f32),
        Element::F64 => map(values, |value: f64| value / f64::from(by)),
        Element::F16 => map(values, |value: f16| f16::from_f32(value.to_f32() / by as f32)),
        Element::Bf16 => map(values, |value: bf16| bf16::from_f32(value.to_f32() / by as f32)),
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
    let Some((first, rest)) = parts.split_first() else { return };
    let mut wide = [V::Wide::default(); BLOCK_VALUES];
    let result = result.as_chunks_mut::<N>().0;
    let shortest = parts.iter().map(|part| part.len() / N).min().unwrap_or(0).min(result.len());
    for start in (0..shortest).step_by(BLOCK_VALUES) {
        let range = start..shortest.min(start + BLOCK_VALUES);
        let wide = &mut wide[..range.len()];
        widen::<V, N>(&first.as_chunks::<N>().0[range.clone()], wide);
        for part in rest {
            accumulate::<V, N>(how, &part.as_chunks::<N>().0[range.clone()], wide);
        }
        narrow::<V, N>(wide, &mut result[range]);
    }
}

// Compiled for wider vectors as well, like the sums of fragments.

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2+f16c"))]
fn widen<V: Value<N>, const N: usize>(part: &[[u8; N]], wide: &mut [V::Wide]) {
    for (wide, value) in wide.iter_mut().zip(part) {
        *wide = V::read(*value).widen();
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2+f16c"))]
fn accumulate<V: Value<N>, const N: usize>(how: Combine, part: &[[u8; N]], wide: &mut [V::Wide]) {
    // One loop for each, so that none has a choice inside.
    match how {
        Combine::Sum => each::<V, N>(part, wide, |a, b| V::apply(Combine::Sum, a, b)),
        Combine::Product => each::<V, N>(part, wide, |a, b| V::apply(Combine::Product, a, b)),
        Combine::Min => each::<V, N>(part, wide, |a, b| V::apply(Combine::Min, a, b)),
        Combine::Max => each::<V, N>(part, wide, |a, b| V::apply(Combine::Max, a, b)),
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2+f16c"))]
fn narrow<V: Value<N>, const N: usize>(wide: &[V::Wide], result: &mut [[u8; N]]) {
    for (value, wide) in result.iter_mut().zip(wide) {
        *value = V::narrow(*wide).write();
    }
}

#[inline(always)]
fn each<V: Value<N>, const N: usize>(
    part: &[[u8; N]],
    wide: &mut [V::Wide],
    apply: impl Fn(V::Wide, V::Wide) -> V::Wide,
) {
    for (wide, value) in wide.iter_mut().zip(part) {
        *wide = apply(*wide, V::read(*value).widen());
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
    f16 as f32, f16::to_f32, f16::from_f32;
    bf16 as f32, bf16::to_f32, bf16::from_f32;
}

#[cfg(test)]
mod tests {
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
