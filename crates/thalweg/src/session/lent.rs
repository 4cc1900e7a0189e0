//! Memory of the caller's as a tensor.

use std::any::Any;

use thalweg_core::Element;
use thalweg_values::{Buffer, Lend, Tensor};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::memory::ByteMemory;

/// Holder of the memory while it is lent.
struct Loan<B>(B);

const ALIGNED: &str = "memory stays where it was when it was lent";

impl<B: ByteMemory, T> Lend<T> for Loan<B>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + 'static,
{
    fn values(&self) -> &[T] {
        <[T]>::ref_from_bytes(self.0.as_ref()).expect(ALIGNED)
    }

    fn values_mut(&mut self) -> &mut [T] {
        <[T]>::mut_from_bytes(self.0.as_mut()).expect(ALIGNED)
    }
}

/// The values that memory holds, to be summed where they lie. Gives it back if aggregation does not sum
/// that type, or if it does not lie as such values do.
pub(super) fn lend<B: ByteMemory>(element: Element, memory: B) -> Result<Tensor, B> {
    let bytes = memory.as_ref();
    let is_aligned = match element.bytes() {
        2 => <[u16]>::ref_from_bytes(bytes).is_ok(),
        _ => <[f32]>::ref_from_bytes(bytes).is_ok(),
    };
    match element {
        Element::F32 if is_aligned => Ok(Tensor::Values(loan(memory))),
        Element::F16 if is_aligned => Ok(Tensor::F16(loan(memory))),
        Element::Bf16 if is_aligned => Ok(Tensor::Bf16(loan(memory))),
        _ => Err(memory),
    }
}

fn loan<B: ByteMemory, T>(memory: B) -> Buffer<T>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + 'static,
{
    Buffer::Lent(Box::new(Loan(memory)))
}

/// The memory that was lent.
pub(super) fn give_back<B: ByteMemory>(tensor: Tensor) -> Option<B> {
    let lent: Box<dyn Any> = match tensor {
        Tensor::Values(Buffer::Lent(lent)) => lent,
        Tensor::F16(Buffer::Lent(lent)) => lent,
        Tensor::Bf16(Buffer::Lent(lent)) => lent,
        _ => return None,
    };
    lent.downcast().ok().map(|loan: Box<Loan<B>>| loan.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_changed() {
        let memory = vec![1.0_f32, 2.0];
        let address = memory.as_ptr();
        let bytes: Box<[u8]> = memory.as_bytes().into();
        let Ok(Tensor::Values(mut lent)) = lend(Element::F32, bytes) else { panic!("not lent") };
        assert_eq!(lent, vec![1.0, 2.0]);
        lent[0] = 7.0;
        let back: Box<[u8]> = give_back(Tensor::Values(lent)).expect("it was lent");
        assert_eq!(back, [7.0_f32, 2.0].as_bytes().into());
        assert!(give_back::<Vec<u8>>(memory.into()).is_none(), "{address:?} was not lent");
    }

    #[test]
    fn what_cannot_be_summed_in_place_is_not_lent() {
        assert_eq!(lend(Element::F64, vec![0; 8]).unwrap_err(), [0; 8]);
        struct Odd([u64; 2]);
        impl AsRef<[u8]> for Odd {
            fn as_ref(&self) -> &[u8] {
                &self.0.as_bytes()[1..5]
            }
        }
        impl AsMut<[u8]> for Odd {
            fn as_mut(&mut self) -> &mut [u8] {
                &mut self.0.as_mut_bytes()[1..5]
            }
        }
        assert!(lend(Element::F32, Odd([0; 2])).is_err());
        assert!(lend(Element::F16, Odd([0; 2])).is_err());
    }
}
