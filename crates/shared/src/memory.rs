//! Memory that other processes write to at any time.
//!
//! # Safety
//!
//! All access to it goes through [`Memory`], and the argument is made here, once:
//!
//! - *No references to plain data.* Nobody holds a `&[u8]` or `&mut [u8]` into the mapping, not even
//!   for a moment. Words are reached through references to atomic integers, which allow for others
//!   that write at the same time. Data is copied between the mapping and private memory by relaxed
//!   atomic loads and stores, word by word, or by one instruction in inline assembly, which does the
//!   same byte by byte: the compiler can assume nothing about what such an instruction finds in
//!   memory. So a race with a misbehaving process gives some mixture of values, which are then private
//!   and stay as they are, and never undefined behaviour.
//! - *Every bit pattern is valid* for the integers that are read.
//! - *In bounds and aligned.* Every access checks its place against the length of the mapping and
//!   against the alignment of the integer. The length is private, fixed when the mapping is made, and
//!   places are computed from private values.
//! - *Alive.* The mapping belongs to the [`Memory`], which unmaps it when it is dropped; references
//!   into it are bound to the borrow of the [`Memory`].
//! - *Backed.* The maker of the file reserves its pages before anybody can open it, and every member that maps
//!   it checks its length first. If a process of the same user cuts the file short later, an access
//!   raises a signal that ends this process.
//!
//! Well-behaved members never race for data: they order their copies by the counters of
//! [`crate::gate`], which are written with release and read with acquire ordering or stronger. So the
//! copies themselves need no ordering.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::layout::LINE_BYTES;

const WORD_BYTES: usize = size_of::<u64>();

/// A mapping of a file that other processes have mapped too.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is reached by atomic access only.
unsafe impl Send for Memory {}
// SAFETY: as above: whatever can be done through a shared reference is atomic.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the first `bytes` of a file. They are brought in at once, so that no page fault is left
    /// for the first tensor.
    pub(crate) fn map(file: &File, bytes: usize) -> io::Result<Memory> {
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: with a null address the kernel chooses a free place, so no other memory of this
        // process changes. What the arguments say wrong, the kernel refuses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Memory { base, bytes })
    }

    /// A word of 32 bits.
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        let place = self.place(at, size_of::<u32>(), align_of::<AtomicU32>());
        // SAFETY: in bounds, aligned and alive; see the top of this file.
        unsafe { AtomicU32::from_ptr(place.as_ptr().cast()) }
    }

    /// A word of 64 bits.
    pub(crate) fn long(&self, at: usize) -> &AtomicU64 {
        let place = self.place(at, WORD_BYTES, align_of::<AtomicU64>());
        // SAFETY: in bounds, aligned and alive; see the top of this file.
        unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) }
    }

    /// Copies private memory to a place at the beginning of a line.
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        let to = self.place(at, from.len(), LINE_BYTES);
        // SAFETY: private memory of this length, and as much of the mapping.
        if unsafe { copy_at_once(from.as_ptr(), to.as_ptr(), from.len()) } {
            return;
        }
        let (words, bytes) = self.split(at, from.len());
        let (from, last) = from.as_chunks::<WORD_BYTES>();
        for (from, word) in from.iter().zip(words) {
            word.store(u64::from_ne_bytes(*from), Relaxed);
        }
        for (from, byte) in last.iter().zip(bytes) {
            byte.store(*from, Relaxed);
        }
    }

    /// Copies from a place at the beginning of a line to private memory.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.place(at, to.len(), LINE_BYTES);
        // SAFETY: private memory of this length, and as much of the mapping.
        if unsafe { copy_at_once(from.as_ptr(), to.as_mut_ptr(), to.len()) } {
            return;
        }
        let (words, bytes) = self.split(at, to.len());
        let (to, last) = to.as_chunks_mut::<WORD_BYTES>();
        for (to, word) in to.iter_mut().zip(words) {
            *to = word.load(Relaxed).to_ne_bytes();
        }
        for (to, byte) in last.iter_mut().zip(bytes) {
            *to = byte.load(Relaxed);
        }
    }

    /// A range as whole words and the bytes after them.
    fn split(&self, at: usize, bytes: usize) -> (&[AtomicU64], &[AtomicU8]) {
        let place = self.place(at, bytes, LINE_BYTES);
        let words = bytes / WORD_BYTES;
        // SAFETY: in bounds, aligned and alive; see the top of this file. Both kinds of atomic
        // integers have the size of the plain ones, and the two ranges do not overlap.
        unsafe {
            let tail = place.as_ptr().add(words * WORD_BYTES);
            (
                std::slice::from_raw_parts(place.as_ptr().cast(), words),
                std::slice::from_raw_parts(tail.cast(), bytes % WORD_BYTES),
            )
        }
    }

    /// The checked place of an access.
    fn place(&self, at: usize, bytes: usize, align: usize) -> NonNull<u8> {
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        // The mapping itself begins at a page.
        assert!(is_inside && at.is_multiple_of(align), "{bytes} bytes at {at} of {}", self.bytes);
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and references into it have ended with their borrow.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Shorter copies are as fast word by word.
#[cfg(target_arch = "x86_64")]
const AT_ONCE_BYTES: usize = 256;

/// Copies by the one instruction for it, if the processor is fast at that and it is worth it, and says
/// whether it did. For large tensors this is half as fast again as word by word.
///
/// # Safety
///
/// Both ranges are valid for `bytes` bytes and do not overlap, and one of them may be written to by
/// other processes at the same time.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_at_once(from: *const u8, to: *mut u8, bytes: usize) -> bool {
    if bytes < AT_ONCE_BYTES || !std::arch::is_x86_feature_detected!("ermsb") {
        return false;
    }
    // SAFETY: it reads and writes the two ranges and nothing else, upwards, as the calling convention
    // keeps the direction flag clear. Each byte is loaded and stored once, as by relaxed atomics.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
    true
}

/// Other processors copy word by word.
///
/// # Safety
///
/// None is needed: it does nothing.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_at_once(_from: *const u8, _to: *mut u8, _bytes: usize) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    fn memory() -> Memory {
        let file = file::unnamed(file::DIRECTORY.as_ref(), 8_192).unwrap();
        Memory::map(&file, 8_192).unwrap()
    }

    #[test]
    fn copies_keep_every_byte_and_touch_no_other() {
        let memory = memory();
        for bytes in [0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 999] {
            let from: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
            memory.write(128, &[0xee; 1_000]);
            memory.write(128, &from);
            let mut to = vec![0; bytes];
            memory.read(128, &mut to);
            assert_eq!(to, from);
            let mut around = vec![0; 1_000];
            memory.read(128, &mut around);
            assert!(around[bytes..].iter().all(|byte| *byte == 0xee), "{bytes}");
        }
    }

    #[test]
    fn words_and_copies_see_the_same_memory() {
        let memory = memory();
        memory.long(64).store(u64::from_le_bytes(*b"thalwegs"), Relaxed);
        let mut to = [0; 8];
        memory.read(64, &mut to);
        assert_eq!(&to, b"thalwegs");
        assert_eq!(memory.word(68).load(Relaxed).to_le_bytes(), *b"wegs");
    }

    #[test]
    #[should_panic = "64 bytes at 8192 of 8192"]
    fn nothing_is_read_beyond_the_end() {
        memory().read(8_192, &mut [0; 64]);
    }

    #[test]
    #[should_panic = "8 bytes at 4 of 8192"]
    fn words_are_aligned() {
        memory().long(4);
    }

    #[test]
    fn a_file_that_is_too_short_is_not_mapped() {
        let file = file::unnamed(file::DIRECTORY.as_ref(), 4_096).unwrap();
        assert_eq!(Memory::map(&file, 8_192).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
