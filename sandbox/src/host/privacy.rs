//! Protects the host process from other processes of the same user.
//!
//! A process that holds keys starts untrusted processes as the same user. The kernel lets processes of one user read
//! each other, unless the target opts out.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

use crate::dumpable::forbid_dumps;

/// The first descriptor after the standard streams.
const FIRST_OTHER: libc::c_uint = 3;

/// Protects this process from other processes of the same user: they can neither trace it nor read its memory, its
/// environment or its descriptors, and it writes no core file. Inherited descriptors other than the standard streams
/// are not passed on to child processes.
///
/// # Errors
/// Returns the first property that is not in place.
pub fn keep_private() -> Result<(), String> {
    forbid_dumps()?;
    let hard = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: hard })
        .map_err(|errno| format!("setrlimit(CORE): {errno}"))?;
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: it closes nothing now; a flag that is set twice does no harm.
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER, libc::c_uint::MAX, flags) };
    match marked {
        0 => Ok(()),
        _ => Err(format!("close_range: {}", std::io::Error::last_os_error())),
    }
}

/// Drops, for this process and everything that it executes, root's right to inspect any process. Without that right,
/// [`keep_private`] protects against root too.
pub fn give_up_tracing() {
    // A process that is not root does not have the right, and may not drop it.
    let _ = remove_capability_from_bounding_set(CapabilitySet::SYS_PTRACE);
    if let Ok(mut sets) = capabilities(None) {
        for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
            set.remove(CapabilitySet::SYS_PTRACE);
        }
        let _ = set_capabilities(None, sets);
    }
}

/// Removes a variable from the environment, and overwrites it in the memory that `/proc/<pid>/environ` shows, where
/// a variable that is only unset remains readable.
///
/// Call it before any thread is started; if there are other threads, it only reads the variable.
pub fn take_variable(name: &CStr) -> Option<OsString> {
    if !has_one_thread() {
        return std::env::var_os(OsStr::from_bytes(name.to_bytes()));
    }
    let mut taken = None;
    loop {
        #[expect(unsafe_code, reason = "the standard library cannot overwrite a variable")]
        // SAFETY: this is the only thread, so nothing else reads or changes the environment. What `getenv` returns
        // is the end of the entry `NAME=value`, which is this process's own memory and may be written.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if value.is_null() {
                return taken;
            }
            let length = {
                let text = CStr::from_ptr(value).to_bytes();
                // The first entry is the value that every other reader sees.
                taken.get_or_insert_with(|| OsStr::from_bytes(text).to_owned());
                text.len()
            };
            let before = name.to_bytes().len() + 1;
            let entry = value.sub(before);
            // A name may occur twice: without its name, an entry cannot be found again.
            for at in 0..before + length {
                // The compiler may drop ordinary writes that nothing reads.
                entry.add(at).write_volatile(0);
            }
        }
    }
}

fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}
