//! Memory that operations work on in place.

use zerocopy::IntoBytes;

use crate::value::Value;

/// Memory of the caller's, lent to an operation, which works on it in place and gives it back with its
/// result.
///
/// Vectors and boxed slices are such memory. A type of the caller's, such as pinned memory, may be as well: both
/// methods return the same values at the same address, always. After an error the contents are unspecified.
pub trait Memory: Send + Sync + 'static {
    /// Type of the values.
    type Value: Value;

    /// The values.
    fn values(&self) -> &[Self::Value];

    /// The values, to change.
    fn values_mut(&mut self) -> &mut [Self::Value];
}

impl<T: Value> Memory for Vec<T> {
    type Value = T;

    fn values(&self) -> &[T] {
        self
    }

    fn values_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Value> Memory for Box<[T]> {
    type Value = T;

    fn values(&self) -> &[T] {
        self
    }

    fn values_mut(&mut self) -> &mut [T] {
        self
    }
}

/// Bytes of the caller's. Both views are of the same bytes, always.
#[doc(hidden)]
pub trait ByteMemory: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static> ByteMemory for B {}

/// Typed memory as bytes.
pub(super) struct Bytes<M>(pub M);

impl<M: Memory> AsRef<[u8]> for Bytes<M> {
    fn as_ref(&self) -> &[u8] {
        self.0.values().as_bytes()
    }
}

impl<M: Memory> AsMut<[u8]> for Bytes<M> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.values_mut().as_mut_bytes()
    }
}
