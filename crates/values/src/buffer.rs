//! Memory that an operation works on.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Values in memory: the operation's own, or lent to it.
///
/// Memory that is lent is read and written where it lies, and goes back when the operation has ended.
pub enum Buffer<T: 'static> {
    /// Memory of the operation.
    Own(Vec<T>),
    /// Memory that the caller lends.
    Lent(Box<dyn Lend<T>>),
}

/// Memory of the caller. Both views are of the same values, and their number never changes.
pub trait Lend<T: 'static>: Any + Send + Sync {
    /// The values.
    fn values(&self) -> &[T];

    /// The same values, for writing.
    fn values_mut(&mut self) -> &mut [T];
}

impl<T: Clone + 'static> Buffer<T> {
    /// The values, as memory of their own.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Buffer::Own(values) => values,
            Buffer::Lent(lent) => lent.values().to_vec(),
        }
    }
}

impl<T: 'static> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Buffer::Own(values) => values,
            Buffer::Lent(lent) => lent.values(),
        }
    }
}

impl<T: 'static> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Buffer::Own(values) => values,
            Buffer::Lent(lent) => lent.values_mut(),
        }
    }
}

impl<T: 'static> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Buffer<T> {
        Buffer::Own(values)
    }
}

impl<T: 'static> FromIterator<T> for Buffer<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Buffer<T> {
        Buffer::Own(values.into_iter().collect())
    }
}

/// A copy has memory of its own.
impl<T: Clone + 'static> Clone for Buffer<T> {
    fn clone(&self) -> Buffer<T> {
        Buffer::Own(self.to_vec())
    }
}

impl<T: PartialEq + 'static> PartialEq for Buffer<T> {
    fn eq(&self, other: &Buffer<T>) -> bool {
        **self == **other
    }
}

impl<T: PartialEq + 'static> PartialEq<Vec<T>> for Buffer<T> {
    fn eq(&self, other: &Vec<T>) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Loan(Box<[f32; 2]>);

    impl Lend<f32> for Loan {
        fn values(&self) -> &[f32] {
            &*self.0
        }

        fn values_mut(&mut self) -> &mut [f32] {
            &mut *self.0
        }
    }

    #[test]
    fn lent_values_are_changed_where_they_lie() {
        let memory = Box::new([1.0, 2.0]);
        let address = memory.as_ptr();
        let mut buffer = Buffer::Lent(Box::new(Loan(memory)));
        buffer[1] = 5.0;
        assert_eq!(buffer, Buffer::Own(vec![1.0, 5.0]));
        assert_eq!(buffer.as_ptr(), address);
        let copy = buffer.clone();
        assert!(copy.as_ptr() != address && copy == buffer);
        assert_eq!(format!("{buffer:?}"), "[1.0, 5.0]");
        assert_eq!(buffer.into_vec(), [1.0, 5.0]);
    }
}
