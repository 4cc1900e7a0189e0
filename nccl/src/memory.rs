//! Memory that belongs to NCCL.
//!
//! NCCL lends memory to a request until `test` has reported its end, or until the communicator or connection is closed,
//! and does not touch it meanwhile. What works on the memory of a request has ended when closing returns.
#![expect(unsafe_code, reason = "NCCL hands out memory by its address")]

use std::ffi::c_void;

use crate::abi::BYTES_MAX;
use crate::failure::Failure;

/// Bytes at an address.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    address: usize,
    bytes: usize,
}

impl Memory {
    /// Memory that NCCL lends.
    pub fn new(address: *mut c_void, bytes: usize) -> Result<Memory, Failure> {
        let address = address as usize;
        let is_there = address != 0 && address.checked_add(bytes).is_some();
        if bytes > BYTES_MAX || bytes > 0 && !is_there {
            return Err(Failure::argument(format!("no memory of {bytes} bytes at {address:#x}")));
        }
        Ok(Memory { address, bytes })
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        self.bytes
    }

    /// The bytes behind the first ones.
    pub fn skip(self, bytes: usize) -> Memory {
        let bytes = bytes.min(self.bytes);
        Memory { address: self.address + bytes, bytes: self.bytes - bytes }
    }

    /// The first bytes.
    pub fn first(self, bytes: usize) -> Memory {
        Memory { bytes: self.bytes.min(bytes), ..self }
    }

    /// Copies other memory of the same length here. They may overlap.
    pub fn copy_from(self, other: Memory) {
        let bytes = self.bytes.min(other.bytes);
        if bytes == 0 || self.address == other.address {
            return;
        }
        // SAFETY: `new` has checked both addresses; NCCL lends this many bytes at each, for a request that begins with this.
        unsafe { std::ptr::copy(other.address as *const u8, self.address as *mut u8, bytes) };
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: `new` has checked the address; NCCL lends the bytes until the request has ended.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: as for `as_ref`, and nothing else of the plug-in uses the memory of a request meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_an_address_and_is_not_longer_than_any_request() {
        assert!(Memory::new(std::ptr::null_mut(), 1).is_err());
        assert!(
            Memory::new(std::ptr::null_mut(), 0).is_ok_and(|memory| memory.as_ref().is_empty())
        );
        assert!(Memory::new(64 as *mut c_void, usize::MAX).is_err());
        let mut bytes = *b"abcdef";
        let memory = Memory::new(bytes.as_mut_ptr().cast(), 6).unwrap();
        memory.skip(2).first(3).copy_from(memory.first(3));
        assert_eq!(&bytes, b"ababcf");
    }
}
