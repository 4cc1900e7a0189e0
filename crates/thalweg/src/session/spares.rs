//! Memory of operations that have ended, for those that come.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_core::Element;

use crate::value::Array;

/// Gradients come in a few sizes, again and again. Beyond so many, memory is given back.
const SPARES_MAX: usize = 8;

/// Arrays that nobody uses. To the system fresh memory costs more than the copy that goes into it.
#[derive(Clone, Debug, Default)]
pub(super) struct Spares(Arc<Mutex<Vec<Array>>>);

impl Spares {
    /// An array with these bytes in it, a whole number of values.
    pub(super) fn fill(&self, element: Element, bytes: &[u8]) -> Array {
        match self.take(element, bytes.len()) {
            Some(mut array) => {
                array.as_bytes_mut().copy_from_slice(bytes);
                array
            }
            None => Array::from_bytes(element, bytes),
        }
    }

    /// Takes an array back.
    pub(super) fn put(&self, array: Array) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() == SPARES_MAX {
            // The one that nobody has wanted for longest.
            spares.remove(0);
        }
        spares.push(array);
    }

    fn take(&self, element: Element, bytes: usize) -> Option<Array> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |spare: &Array| spare.element() == element && spare.as_bytes().len() == bytes;
        let at = spares.iter().position(fits)?;
        Some(spares.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_used_again_with_new_values() {
        let spares = Spares::default();
        let first = spares.fill(Element::F32, &[1; 8]);
        let address = first.as_bytes().as_ptr();
        spares.put(first);
        assert_ne!(spares.fill(Element::I32, &[2; 8]).as_bytes().as_ptr(), address, "another type");
        assert_eq!(spares.fill(Element::F32, &[2; 12]).as_bytes(), [2; 12], "another length");
        let again = spares.fill(Element::F32, &[3; 8]);
        assert_eq!((again.as_bytes().as_ptr(), again.as_bytes()), (address, &[3; 8][..]));
        assert!(spares.take(Element::F32, 8).is_none(), "it is in use");
    }

    #[test]
    fn few_are_kept() {
        let spares = Spares::default();
        let arrays: Vec<Array> = (0..=SPARES_MAX).map(|_| spares.fill(Element::U8, &[7])).collect();
        arrays.into_iter().for_each(|array| spares.put(array));
        assert_eq!(spares.0.lock().unwrap().len(), SPARES_MAX);
    }
}
