//! The JavaScript heap: the C library's allocator with a limit and a record of whether it was reached.
//!
//! The engine's own limit is not enough: when the engine cannot allocate the error object, it throws `null`, which a
//! program can catch. The record distinguishes that from a program that throws `null` itself.

use std::cell::Cell;
use std::rc::Rc;

use rquickjs::allocator::Allocator;

mod gaps;

pub(crate) use gaps::fill_gaps;

/// The size of a page on most processors.
const PAGE: usize = 4096;

/// The size and limit of the heap.
#[derive(Debug)]
pub(crate) struct Meter {
    used: Cell<usize>,
    limit: Cell<usize>,
    ran_out: Cell<bool>,
}

impl Meter {
    /// Returns a meter without a limit.
    pub(crate) fn new() -> Rc<Meter> {
        Rc::new(Meter {
            used: Cell::new(0),
            limit: Cell::new(usize::MAX),
            ran_out: Cell::new(false),
        })
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.set(limit);
    }

    /// Returns whether an allocation was ever refused.
    pub(crate) fn ran_out(&self) -> bool {
        self.ran_out.get()
    }

    /// Returns the size of all blocks in use.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Returns whether this much more memory is within the limit; records a refusal.
    fn admits(&self, more: usize) -> bool {
        let fits = self.used.get().checked_add(more).is_some_and(|all| all <= self.limit.get());
        if !fits {
            self.ran_out.set(true);
        }
        fits
    }
}

/// The engine's allocator.
///
/// The engine keeps small values in blocks of almost a page, one list of blocks for each size. Such a block starts at
/// the start of a page: a fork copies every page that it writes to, and elsewhere a block would lie in two.
pub(crate) struct Heap(pub(crate) Rc<Meter>);

impl Heap {
    fn count(&self, memory: *mut u8) -> *mut u8 {
        if memory.is_null() {
            self.0.ran_out.set(true);
        } else {
            // The usable size, which may exceed the requested one, because `dealloc` can find out
            // no other.
            self.0.used.set(self.0.used.get() + size_of(memory));
        }
        memory
    }
}

fn size_of(memory: *mut u8) -> usize {
    #[expect(unsafe_code, reason = "the allocator of a C engine")]
    // SAFETY: `memory` came from this allocator, that is from `malloc`, and has not been freed.
    unsafe {
        libc::malloc_usable_size(memory.cast())
    }
}

#[expect(unsafe_code, reason = "the allocator of a C engine")]
// SAFETY: every pointer comes from the C library's allocator, whose alignment and sizes meet the trait's requirements.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if !self.0.admits(size) {
            return std::ptr::null_mut();
        }
        if (PAGE / 2..=PAGE).contains(&size) {
            // SAFETY: the alignment is a power of two.
            return self.count(unsafe { libc::aligned_alloc(PAGE, size) }.cast());
        }
        // SAFETY: `malloc` accepts any size.
        self.count(unsafe { libc::malloc(size) }.cast())
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        if !count.checked_mul(size).is_some_and(|all| self.0.admits(all)) {
            return std::ptr::null_mut();
        }
        // SAFETY: `calloc` accepts any size, and the product does not overflow.
        self.count(unsafe { libc::calloc(count, size) }.cast())
    }

    unsafe fn dealloc(&mut self, memory: *mut u8) {
        if !memory.is_null() {
            self.0.used.set(self.0.used.get().saturating_sub(size_of(memory)));
            // SAFETY: by the trait's contract, this allocator returned the pointer.
            unsafe { libc::free(memory.cast()) }
        }
    }

    unsafe fn realloc(&mut self, memory: *mut u8, new_size: usize) -> *mut u8 {
        if memory.is_null() {
            return self.alloc(new_size);
        }
        // Read before the call, after which the old block may be gone.
        let old_size = size_of(memory);
        if !self.0.admits(new_size.saturating_sub(old_size)) {
            return std::ptr::null_mut();
        }
        // SAFETY: by the trait's contract, this allocator returned the pointer.
        let moved: *mut u8 = unsafe { libc::realloc(memory.cast(), new_size) }.cast();
        // A failed `realloc` leaves the old block as it is, so it still counts.
        if !moved.is_null() {
            self.0.used.set(self.0.used.get().saturating_sub(old_size));
        }
        self.count(moved)
    }

    unsafe fn usable_size(memory: *mut u8) -> usize {
        if memory.is_null() { 0 } else { size_of(memory) }
    }
}
