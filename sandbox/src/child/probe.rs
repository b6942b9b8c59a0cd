//! Makes one forbidden system call, as an attacker in a sealed child would.

use crate::child::process::exit;
use crate::wire::probe::{CallTable, EXIT_NOT_BLOCKED, PROBES, Probe};

/// Runs the probe with this number, or nothing if there is none, and exits.
pub(crate) fn run(number: u64) -> ! {
    let probe = usize::try_from(number).ok().and_then(|number| PROBES.get(number));
    // A number past the end is the control of a self-test: a child that attempts nothing must reach
    // the exit below.
    if let Some(probe) = probe {
        attempt(probe);
    }
    exit(EXIT_NOT_BLOCKED)
}

/// Makes the system call. If it returns, the call was not blocked.
fn attempt(probe: &Probe) {
    let [a, b, c, d] = probe.arguments;
    match probe.table {
        #[expect(unsafe_code, reason = "an attacker makes raw system calls")]
        CallTable::Own => {
            // SAFETY: the filter kills the process before the kernel looks at the arguments, which
            // change nothing where there is no filter.
            let _ = unsafe { libc::syscall(probe.call, a, b, c, d) };
        }
        #[cfg(target_arch = "x86_64")]
        #[expect(unsafe_code, reason = "an attacker uses the table of 32-bit programs")]
        CallTable::I386 => {
            // SAFETY: both calls take no pointer.
            unsafe {
                std::arch::asm!("int 0x80", inlateout("rax") probe.call => _, lateout("r8") _,
                        lateout("r9") _, lateout("r10") _, lateout("r11") _);
            }
        }
    }
}
