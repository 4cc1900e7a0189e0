//! The system's allocator, which counts what each thread asks for. Tests of several crates include this file.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNTED: Cell<(u64, i64)> = const { Cell::new((0, 0)) };
}

/// Number of allocations of this thread so far, and of the bytes that it has asked for and not given back.
pub fn counted() -> (u64, i64) {
    COUNTED.get()
}

fn count(allocations: u64, bytes: i64) {
    COUNTED.with(|counted| {
        let (before, held) = counted.get();
        counted.set((before + allocations, held + bytes));
    });
}

// SAFETY: every call goes to the system's allocator as it is. Counting touches a thread-local that
// needs neither memory nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    // Memory that is zero already stays untouched, as it does without this allocator.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
