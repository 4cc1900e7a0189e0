//! Tensors in parts that several threads work on at once, where the values lie.
//!
//! The parts of a tensor do not overlap, so each of them is written without regard to the others. The borrow
//! checker can show that for slices that live shorter than the memory, and not for parts that travel to other threads
//! and come back: this is the one module of the crate with unsafe code.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::buffer::{Buffer, Lend};
use crate::tensor::Tensor;

/// Memory that is in parts. Nothing reads or writes it but its parts, until the last of them is gone.
struct Whole<T: 'static>(UnsafeCell<Buffer<T>>);

// SAFETY: a shared `Whole` gives access to nothing; its memory may be owned by any thread, since a `Buffer` may.
unsafe impl<T: Send + Sync> Sync for Whole<T> {}

/// Consecutive values of memory that is in parts.
struct SplitPart<T: 'static> {
    /// Keeps the memory.
    whole: Arc<Whole<T>>,
    first: NonNull<T>,
    values: usize,
}

// SAFETY: a part is the only one that reaches its values, like a slice that is borrowed for writing.
unsafe impl<T: Send> Send for SplitPart<T> {}
// SAFETY: a shared part reads its values only.
unsafe impl<T: Sync> Sync for SplitPart<T> {}

impl<T: Send + Sync + 'static> Lend<T> for SplitPart<T> {
    fn values(&self) -> &[T] {
        // SAFETY: `split` made the part of initialised values that no other part has, and `whole` keeps them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.values) }
    }

    fn values_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; this part is borrowed for writing, so that its values are.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.values) }
    }
}

/// Splits a tensor into consecutive parts of the same memory, which end at these values. The last end is the length of
/// the tensor.
pub fn split(tensor: Tensor, ends: &[u64]) -> Vec<Tensor> {
    assert_eq!(ends.last(), Some(&tensor.len()), "the parts are the whole tensor");
    assert!(ends.is_sorted(), "parts are in order and do not overlap: {ends:?}");
    match tensor {
        Tensor::Length(_) => ranges(ends).map(|part| Tensor::Length(part.len() as u64)).collect(),
        Tensor::Values(values) => parts(values, ends).map(Tensor::Values).collect(),
        Tensor::F16(values) => parts(values, ends).map(Tensor::F16).collect(),
        Tensor::Bf16(values) => parts(values, ends).map(Tensor::Bf16).collect(),
    }
}

/// Makes a tensor of all parts that it was [split](split()) into, in any order. `None` if some are missing, or are
/// not parts of it.
pub fn unsplit(parts: Vec<Tensor>) -> Option<Tensor> {
    match parts.first()? {
        Tensor::Length(_) => Some(Tensor::Length(parts.iter().map(Tensor::len).sum())),
        Tensor::Values(_) => whole(parts, |part| match part {
            Tensor::Values(values) => Some(values),
            _ => None,
        })
        .map(Tensor::Values),
        Tensor::F16(_) => whole(parts, |part| match part {
            Tensor::F16(values) => Some(values),
            _ => None,
        })
        .map(Tensor::F16),
        Tensor::Bf16(_) => whole(parts, |part| match part {
            Tensor::Bf16(values) => Some(values),
            _ => None,
        })
        .map(Tensor::Bf16),
    }
}

fn ranges(ends: &[u64]) -> impl Iterator<Item = Range<usize>> + '_ {
    let starts = std::iter::once(&0).chain(ends);
    // Values that are in memory have indices.
    starts.zip(ends).map(|(start, end)| *start as usize..*end as usize)
}

fn parts<T: Send + Sync + 'static>(
    values: Buffer<T>,
    ends: &[u64],
) -> impl Iterator<Item = Buffer<T>> + '_ {
    // The pointer is taken where the memory stays: what moved afterwards might be gone.
    let whole = Arc::new(Whole(UnsafeCell::new(values)));
    // SAFETY: nobody else has the memory yet.
    let slice: &mut [T] = unsafe { &mut *whole.0.get() };
    let first = NonNull::from(slice).cast::<T>();
    ranges(ends).map(move |part| {
        let whole = Arc::clone(&whole);
        // SAFETY: the part begins within the slice, or at its end where the part is empty.
        let first = unsafe { first.add(part.start) };
        Buffer::Lent(Box::new(SplitPart { whole, first, values: part.len() }))
    })
}

fn whole<T: Send + Sync + 'static>(
    parts: Vec<Tensor>,
    buffer_of: impl Fn(Tensor) -> Option<Buffer<T>>,
) -> Option<Buffer<T>> {
    let mut whole: Option<Arc<Whole<T>>> = None;
    for part in parts {
        let Buffer::Lent(lent) = buffer_of(part)? else { return None };
        let part: Box<dyn Any> = lent;
        let part = part.downcast::<SplitPart<T>>().ok()?;
        match &whole {
            Some(whole) if !Arc::ptr_eq(whole, &part.whole) => return None,
            Some(_) => {}
            None => whole = Some(Arc::clone(&part.whole)),
        }
    }
    // One that is still out keeps the memory.
    Arc::try_unwrap(whole?).ok().map(|whole| whole.0.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: F-04 machine
    #[test]
    fn threads_write_parts_where_the_values_lie() {
        let values: Vec<f32> = (0..1_000_u16).map(f32::from).collect();
        let address = values.as_ptr();
        let parts = split(Tensor::from(values), &[400, 400, 1_000]);
        assert_eq!(parts.iter().map(Tensor::len).collect::<Vec<_>>(), [400, 0, 600]);
        let threads = parts.into_iter().map(|part| {
            std::thread::spawn(move || {
                let Tensor::Values(mut values) = part else { panic!("it was another type") };
                values.iter_mut().for_each(|value| *value += 1.0);
                Tensor::Values(values)
            })
        });
        let threads: Vec<_> = threads.collect();
        let parts = threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect();
        let Some(Tensor::Values(Buffer::Own(values))) = unsplit(parts) else { panic!("not whole") };
        assert_eq!(values.as_ptr(), address);
        assert!((1..=1_000_u16).map(f32::from).eq(values));
    }

    #[test]
    fn parts_of_anything_else_are_not_put_together() {
        let halves = |value: f32| split(Tensor::from(vec![value; 4]), &[2, 4]);
        let [mut one, mut other] = [halves(1.0), halves(2.0)];
        std::mem::swap(&mut one[0], &mut other[0]);
        assert!(unsplit(one).is_none() && unsplit(other).is_none(), "parts of two tensors");
        let mut parts = halves(3.0);
        let out = parts.pop();
        assert!(unsplit(parts).is_none(), "a part is out");
        assert_eq!(out.unwrap(), Tensor::from(vec![3.0, 3.0]));
        assert!(unsplit(vec![Tensor::from(vec![1.0])]).is_none(), "it was never split");
        assert!(unsplit(Vec::new()).is_none());
    }

    #[test]
    fn lengths_are_split_as_well() {
        let parts = split(Tensor::Length(10), &[3, 10]);
        assert_eq!(parts, [Tensor::Length(3), Tensor::Length(7)]);
        assert_eq!(unsplit(parts), Some(Tensor::Length(10)));
    }

    #[test]
    #[should_panic(expected = "the parts are the whole tensor")]
    fn parts_that_lack_something_are_refused() {
        split(Tensor::from(vec![1.0; 4]), &[2, 3]);
    }
}
