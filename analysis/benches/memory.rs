//! Measures the memory of the analysis: the peak of the heap, by program length.
//!
//! It is separate from the other benchmark, because counting allocations costs time.

#[path = "analyze/program.rs"]
mod program;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use analysis::{Limits, analyze};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(held, Relaxed);
    COUNT.fetch_add(1, Relaxed);
}

#[expect(
    unsafe_code,
    reason = "`GlobalAlloc` is an unsafe trait; this one forwards to the system's allocator"
)]
// SAFETY: every call is forwarded to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() {
    let limits = Limits {
        source_bytes: usize::MAX,
        tasks: usize::MAX,
        edges: usize::MAX,
        ..Limits::default()
    };
    let run = move || {
        println!("| lines | peak of the heap | a line | allocations, a line | result, a line |");
        println!("|---:|---:|---:|---:|---:|");
        for lines in [20, 100, 1_000, 10_000] {
            let source = program::program(lines);
            drop(analyze(&source, &limits));
            let (before, count) = (HELD.load(Relaxed), COUNT.load(Relaxed));
            PEAK.store(before, Relaxed);
            let analysis = analyze(&source, &limits);
            let peak = PEAK.load(Relaxed) - before;
            let kept = HELD.load(Relaxed) - before;
            let count = COUNT.load(Relaxed) - count;
            assert!(analysis.can_run(), "{:?}", analysis.first_error());
            println!(
                "| {lines} | {:.1} KiB | {:.2} KiB | {:.0} | {:.2} KiB |",
                peak as f64 / 1024.0,
                peak as f64 / 1024.0 / lines as f64,
                count as f64 / lines as f64,
                kept as f64 / 1024.0 / lines as f64,
            );
        }
        println!();
    };
    // On a thread with a large stack, so that none is allocated for the analysis.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(run);
    thread.expect("a thread can be started").join().expect("the bench does not panic");
}
