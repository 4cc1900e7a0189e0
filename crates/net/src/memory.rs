//! Memory that the kernel copies from and to.

use std::ops::{Deref, DerefMut};

/// The kernel copies whole pages fastest, and machines read values in place.
const ALIGNMENT_BYTES: usize = 4_096;

/// Bytes that start at a page boundary.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Memory {
    /// `length` zero bytes.
    pub(crate) fn new(length: usize) -> Memory {
        let bytes = vec![0; length + ALIGNMENT_BYTES];
        let start = bytes.as_ptr().align_offset(ALIGNMENT_BYTES).min(ALIGNMENT_BYTES);
        Memory { bytes, start, length }
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page() {
        for length in [1, 65_536, 1 << 20] {
            let memory = Memory::new(length);
            assert_eq!(memory.len(), length);
            assert_eq!(memory.as_ptr() as usize % 4_096, 0);
        }
    }
}
