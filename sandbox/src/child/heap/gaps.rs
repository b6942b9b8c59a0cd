//! The gaps between the blocks of a zygote's heap.
//!
//! A fork copies every page that it writes to, and that takes the kernel longer than most programs compute. The
//! construction of the globals leaves gaps on many pages, and whatever a child allocates would be strewn over them. So a
//! zygote fills them before its first fork: what a child allocates then lies together.

use rquickjs::{Ctx, qjs};

use super::Meter;

/// Space for what most programs allocate from the C library.
const ROOM: usize = 64 * 1024;
/// The number of blocks of one size that are tried. Other C libraries than glibc do not order blocks by address.
const MOST_BLOCKS: usize = 4096;

/// Fills the gaps with blocks that are never freed.
pub(crate) fn fill_gaps(ctx: &Ctx<'_>, meter: &Meter) {
    fill_engine_pages(ctx, meter);
    fill_heap();
}

/// Fills the pages into which the engine has cut its heap, so that each size of block continues on a fresh page.
fn fill_engine_pages(ctx: &Ctx<'_>, meter: &Meter) {
    for size in engine_block_sizes() {
        let before = meter.used();
        // The engine allocates a page once all blocks of this size are in use.
        while meter.used() == before {
            #[expect(unsafe_code, reason = "the allocator of a C engine")]
            // SAFETY: the context is alive, and nothing uses or frees the block.
            let block = unsafe { qjs::js_malloc(ctx.as_raw().as_ptr(), size) };
            if block.is_null() {
                return;
            }
        }
    }
}

/// Fills the C library's heap up to a free block at its end.
fn fill_heap() {
    // It fits into no gap. Once it is dropped, it is the space for what forks allocate.
    let room: Vec<u8> = Vec::with_capacity(ROOM);
    for size in heap_block_sizes() {
        for _ in 0..MOST_BLOCKS {
            let block: Vec<u8> = Vec::with_capacity(size);
            let lies_past = block.as_ptr().addr() > room.as_ptr().addr();
            std::mem::forget(block);
            if lies_past {
                break;
            }
        }
    }
}

/// The sizes of the blocks into which the engine cuts a page, without their headers of eight bytes.
fn engine_block_sizes() -> impl Iterator<Item = u64> {
    let sizes = (16..128).step_by(8).chain((128..256).step_by(16)).chain((256..=512).step_by(32));
    sizes.map(|size| size - 8)
}

/// Sizes that fill every gap: powers of two first, because what remains of a gap is a smaller gap; then each size for
/// which glibc keeps freed blocks, because it gives those to no other size.
fn heap_block_sizes() -> impl Iterator<Item = usize> {
    (11..16).rev().map(|power| 1 << power).chain((1..=64).rev().map(|size| size * 16 + 8))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use rquickjs::{Context, Runtime};

    use super::super::{Heap, PAGE};
    use super::*;

    #[test]
    fn each_size_continues_on_a_fresh_page() {
        let meter = Meter::new();
        let runtime = Runtime::new_with_alloc(Heap(Rc::clone(&meter))).unwrap();
        let context = Context::full(&runtime).unwrap();
        context.with(|ctx| {
            let page_of = |size| {
                #[expect(unsafe_code, reason = "the allocator of a C engine")]
                // SAFETY: the context is alive, and nothing uses the block.
                let block = unsafe { qjs::js_malloc(ctx.as_raw().as_ptr(), size) };
                block.addr() / PAGE
            };
            let pages = || engine_block_sizes().map(page_of).collect::<BTreeSet<_>>();
            let begun = pages();
            assert_eq!(begun.len(), engine_block_sizes().count());
            fill_gaps(&ctx, &meter);
            let fresh = pages();
            assert_eq!(fresh.len(), begun.len());
            assert!(fresh.is_disjoint(&begun), "pages that were begun are full");
            assert_eq!(pages(), fresh);
        });
        // The engine insists that all blocks are freed.
        std::mem::forget((context, runtime));
    }
}
