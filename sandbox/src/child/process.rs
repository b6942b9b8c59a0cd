//! A child as a process: preparation, clocks, and exit.

use std::ffi::CString;
use std::time::Duration;

/// The exit code of a process that was not started as a child should be.
pub(crate) const EXIT_NOT_A_CHILD: i32 = 2;
/// The exit code of a child that panicked, or whose host broke the protocol.
pub(crate) const EXIT_PANIC: i32 = 101;

/// Does nothing until it is killed.
pub(crate) fn sleep_forever() -> ! {
    loop {
        let _ = rustix::event::poll(&mut [], None);
    }
}

/// Initializes the process-wide state that libraries use later, while files can still be opened.
pub(crate) fn prepare_process() -> Result<(), String> {
    std::env::set_current_dir("/").map_err(|e| format!("chdir: {e}"))?;
    // For readers of a process list.
    rustix::thread::set_name(c"pml-sandbox").map_err(|e| format!("prctl(NAME): {e}"))?;
    // The C library looks for the kernel's fast clock at the first use, with system calls that the filter forbids.
    let _ = (monotonic(), cpu_time());
    let (name, zone) = (CString::from(c"TZ"), CString::from(c"UTC"));
    #[expect(unsafe_code, reason = "the C library reads its time zone once, from the environment")]
    // SAFETY: this process has one thread, and both strings live across the call.
    unsafe {
        libc::clearenv();
        libc::setenv(name.as_ptr(), zone.as_ptr(), 1);
        tzset();
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the libc crate does not bind it on Linux")]
// SAFETY: POSIX declares `void tzset(void)`.
unsafe extern "C" {
    fn tzset();
}

/// Keeps the C library from reserving 128 MiB of the limited address space for a heap of the second thread.
pub(crate) fn limit_malloc_arenas() {
    #[cfg(target_env = "gnu")]
    {
        #[expect(unsafe_code, reason = "no safe wrapper")]
        // SAFETY: the call changes a number inside the allocator; this process has one thread.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Exits at once, without destructors and exit handlers: a program may have corrupted what they would use.
pub(crate) fn exit(code: i32) -> ! {
    #[expect(unsafe_code, reason = "the standard library's exit runs handlers")]
    // SAFETY: `_exit` has no preconditions.
    unsafe {
        libc::_exit(code)
    }
}

/// Time since an arbitrary start, for timers.
pub(crate) fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
