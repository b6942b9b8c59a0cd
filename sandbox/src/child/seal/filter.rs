//! The last layer: the seccomp filter, a list of permitted system calls.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use super::Broken;

/// A placeholder for the pid of the process that will apply the filter. A zygote builds the filter before it forks,
/// so that no fork has to.
const OWN_PID: u32 = 0x7eed_c0de;

/// The list of permitted system calls, built once and applied by many processes.
pub(crate) struct Filter(BpfProgram);

impl Filter {
    pub(crate) fn new() -> Result<Filter, Broken> {
        system_call_filter().map(Filter).map_err(|e| format!("seccomp filter: {e}"))
    }

    /// Installs the filter on all threads of this process, irreversibly.
    pub(crate) fn apply(&self) -> Result<(), Broken> {
        let mut program = self.0.clone();
        let mut own = 0;
        for instruction in program.iter_mut().filter(|one| one.k == OWN_PID) {
            // The number by which this process knows itself, which differs from the host's in a
            // process namespace. `abort` uses the same one.
            instruction.k = std::process::id();
            own += 1;
        }
        // Any other count means that the placeholder is lost or equals another constant.
        if own != 1 {
            return Err("seccomp filter: it does not name its process".to_owned());
        }
        apply_filter_all_threads(&program).map_err(|e| format!("seccomp: {e}"))
    }
}

/// Returns the filter: the listed calls are allowed; every other call, and every call by another call table, kills the
/// process.
fn system_call_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: Vec<(i64, Vec<SeccompRule>)> = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_ppoll,
        // Newer architectures have only `ppoll`.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_exit,
        libc::SYS_exit_group,
        // The kernel resumes an interrupted `poll` by this call.
        libc::SYS_restart_syscall,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_getrandom,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_gettid,
        libc::SYS_getpid,
        // The C library calls it when a thread queries the bounds of its own stack.
        libc::SYS_sched_getaffinity,
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        // The third argument of both calls is the protection.
        let not_executable = SeccompCondition::new(
            2,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64),
            0,
        )?;
        rules.push((call, vec![SeccompRule::new(vec![not_executable])?]));
    }
    // `abort` sends a signal to its own process. Without this rule, an abort would look like a forbidden call.
    let own = u64::from(OWN_PID);
    let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?;
    rules.push((libc::SYS_tgkill, vec![SeccompRule::new(vec![to_itself])?]));
    SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?
    .try_into()
}
