//! Memory that belongs to Python.
//!
//! Addresses come from tensors, as `Tensor.data_ptr()` gives them. The layer above keeps a tensor until
//! the operation that works on it has ended, and does not touch it meanwhile, as `torch.distributed`
//! asks of its users as well.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Bytes at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    address: usize,
    bytes: usize,
}

impl Memory {
    /// Memory from an address and a length.
    pub(crate) fn new((address, bytes): (usize, usize)) -> PyResult<Memory> {
        if bytes > 0 && address == 0 || address.checked_add(bytes).is_none() {
            return Err(PyValueError::new_err(format!(
                "no memory of {bytes} bytes at {address:#x}"
            )));
        }
        Ok(Memory { address, bytes })
    }

    /// Length in bytes.
    pub(crate) fn len(self) -> u64 {
        self.bytes as u64
    }

    /// A copy of what is there.
    pub(crate) fn read(self) -> Vec<u8> {
        self.as_ref().to_vec()
    }

    /// Puts a result there. An error if it is of another length.
    pub(crate) fn write(mut self, result: &[u8]) -> Result<(), String> {
        if result.len() != self.bytes {
            let (found, room) = (result.len(), self.bytes);
            return Err(format!("a result of {found} bytes came where {room} were expected"));
        }
        self.as_mut().copy_from_slice(result);
        Ok(())
    }
}

impl AsRef<[u8]> for Memory {
    /// The bytes.
    fn as_ref(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        #[expect(unsafe_code, reason = "the caller lends the memory until the operation has ended")]
        // SAFETY: `new` has checked that it is an address; that `bytes` bytes are there, and that nobody
        // writes to them, is what callers of this private module have to see to.
        unsafe {
            std::slice::from_raw_parts(self.address as *const u8, self.bytes)
        }
    }
}

impl AsMut<[u8]> for Memory {
    /// The bytes, to be changed in place.
    fn as_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        #[expect(unsafe_code, reason = "the caller lends the memory until the operation has ended")]
        // SAFETY: as for `as_ref`, and nobody else reads or writes it.
        unsafe {
            std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes)
        }
    }
}

/// Several of them.
pub(crate) fn all(pairs: Vec<(usize, usize)>) -> PyResult<Vec<Memory>> {
    pairs.into_iter().map(Memory::new).collect()
}
