//! Values of all types.

use half::{bf16, f16};
use thalweg_core::Element;
use thalweg_values::{Tensor, divide};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type of value that collectives work on: integers of 8 to 64 bits, `f32`, `f64`,
/// [`f16`](struct@f16) and [`bf16`].
///
/// No other type can be one: what ranks add, they name to each other.
pub trait Value:
    Sealed + FromBytes + IntoBytes + Immutable + Copy + Send + Sync + Sized + 'static
{
    /// The type, by name.
    const ELEMENT: Element;

    /// Values whose type is known at run time.
    #[doc(hidden)]
    fn into_array(values: Vec<Self>) -> Array;

    /// The values, if they are of this type.
    #[doc(hidden)]
    fn from_array(array: Array) -> Option<Vec<Self>>;
}

mod sealed {
    /// A type that this crate knows.
    pub trait Sealed {}
}

use sealed::Sealed;

macro_rules! values {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// Values whose type is known at run time.
        #[doc(hidden)]
        #[derive(Clone, PartialEq, Debug)]
        pub enum Array {
            $(#[doc = concat!("`", stringify!($type), "`")] $variant(Vec<$type>),)*
        }

        $(impl Sealed for $type {}

        impl Value for $type {
            const ELEMENT: Element = Element::$variant;

            fn into_array(values: Vec<$type>) -> Array {
                Array::$variant(values)
            }

            fn from_array(array: Array) -> Option<Vec<$type>> {
                match array {
                    Array::$variant(values) => Some(values),
                    _ => None,
                }
            }
        })*

        impl Array {
            /// The type of the values.
            pub fn element(&self) -> Element {
                match self {
                    $(Array::$variant(_) => Element::$variant,)*
                }
            }

            /// Number of values.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(values) => values.len(),)*
                }
            }

            /// The values as little-endian bytes.
            pub fn as_bytes(&self) -> &[u8] {
                match self {
                    $(Array::$variant(values) => values.as_bytes(),)*
                }
            }

            /// The values as little-endian bytes.
            pub fn as_bytes_mut(&mut self) -> &mut [u8] {
                match self {
                    $(Array::$variant(values) => values.as_mut_slice().as_mut_bytes(),)*
                }
            }

            /// The values that little-endian bytes stand for. A value that is cut short is left out.
            pub fn from_bytes(element: Element, bytes: &[u8]) -> Array {
                match element {
                    $(Element::$variant => {
                        let size = size_of::<$type>();
                        let read = |bytes: &[u8]| <$type>::read_from_bytes(bytes).unwrap_or_default();
                        Array::$variant(bytes.chunks_exact(size).map(read).collect())
                    })*
                    _ => unreachable!("{element:?} has no type of values"),
                }
            }
        }
    };
}

values!(
    F32(f32),
    F64(f64),
    F16(f16),
    Bf16(bf16),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
);

impl Array {
    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Divides every value; integers are rounded towards zero.
    pub(crate) fn divide(&mut self, by: u32) {
        let element = self.element();
        divide(element, self.as_bytes_mut(), by);
    }

    /// The tensor that aggregation sums, if it can sum this type.
    pub(crate) fn into_tensor(self) -> Result<Tensor, Array> {
        match self {
            Array::F32(values) => Ok(values.into()),
            Array::F16(values) => Ok(Tensor::F16(values.into())),
            Array::Bf16(values) => Ok(Tensor::Bf16(values.into())),
            other => Err(other),
        }
    }

    /// The values of a sum.
    pub(crate) fn from_tensor(tensor: Tensor) -> Array {
        match tensor {
            Tensor::Values(values) => Array::F32(values.into_vec()),
            Tensor::F16(values) => Array::F16(values.into_vec()),
            Tensor::Bf16(values) => Array::Bf16(values.into_vec()),
            // Sessions hand over values only.
            Tensor::Length(_) => Array::F32(Vec::new()),
        }
    }
}

impl AsRef<[u8]> for Array {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsMut<[u8]> for Array {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_bytes_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for element in Element::ALL {
            let bytes: Vec<u8> = (1..=48).collect();
            let array = Array::from_bytes(element, &bytes);
            assert_eq!((array.element(), array.len()), (element, 48 / element.bytes()));
            assert_eq!(array.as_bytes(), bytes);
        }
        assert_eq!(Array::from_bytes(Element::I16, &[1, 2, 3]), Array::I16(vec![0x0201]));
    }

    #[test]
    fn halves_keep_their_bits_on_the_way() {
        let values = vec![f16::from_f32(1.5), f16::NAN, f16::NEG_INFINITY];
        let tensor = Array::F16(values.clone()).into_tensor().unwrap();
        let Array::F16(back) = Array::from_tensor(tensor) else { panic!("another type") };
        let bits = |values: &[f16]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&values));
        assert!(Array::F64(vec![1.0]).into_tensor().is_err());
    }
}
