//! The last layer: the seccomp filter, a list of permitted system calls.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use super::Broken;

/// A placeholder for the pid of the process that will apply the filter. A zygote builds the filter before it forks,
/// so that no fork has to.
const OWN_PID: u32 = 0x7eed_c0de;

/// What only a zygote calls: to fork and to reap children, and what a fork calls until its seal is complete.
const ZYGOTE_CALLS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_waitid,
    libc::SYS_getppid,
    libc::SYS_close,
    libc::SYS_close_range,
    // A debug build looks at a descriptor before it closes it.
    libc::SYS_fcntl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_ioctl,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_seccomp,
    // The C library registers them again in each fork.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
];

/// The list of permitted system calls, built once and applied by many processes.
///
/// A zygote applies a filter that permits a child's calls and its own; every fork inherits it and adds one that takes
/// the zygote's away. The kernel permits what all filters of a process permit, so this is the same as one filter with a
/// child's calls. But it costs a fork half as much: the kernel translates a short filter, and looks only at the calls
/// that the first one permits.
pub(crate) struct Filter(BpfProgram);

impl Filter {
    /// Returns the filter of a process that inherits none.
    pub(crate) fn new() -> Result<Filter, Broken> {
        permit(child_rules).map(Filter).map_err(broken)
    }

    /// Returns the filter of a fork, for a process that has the one of its zygote.
    pub(crate) fn of_fork() -> Result<Filter, Broken> {
        forbid_zygote_calls().map(Filter).map_err(broken)
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
        install(&program)
    }
}

/// Installs the filter of a zygote.
pub(super) fn apply_to_zygote() -> Result<(), Broken> {
    install(&permit(zygote_rules).map_err(broken)?)
}

fn install(program: &BpfProgram) -> Result<(), Broken> {
    apply_filter_all_threads(program).map_err(|e| format!("seccomp: {e}"))
}

fn broken(error: BackendError) -> Broken {
    format!("seccomp filter: {error}")
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the filter that permits these calls; every other call, and every call by another call table, kills the
/// process.
fn permit(rules: fn() -> Result<Rules, BackendError>) -> Result<BpfProgram, BackendError> {
    build(rules()?, SeccompAction::KillProcess, SeccompAction::Allow)
}

/// Returns the filter that forbids a fork the calls of its zygote, and signals to other processes.
fn forbid_zygote_calls() -> Result<BpfProgram, BackendError> {
    let mut rules: Rules = ZYGOTE_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![pid(SeccompCmpOp::Ne)?])?]);
    build(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

fn build(
    rules: Rules,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, listed, architecture)?.try_into()
}

/// Compares the process that a signal is sent to with this one.
fn pid(compare: SeccompCmpOp) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, compare, u64::from(OWN_PID))
}

/// The calls of a child.
fn child_rules() -> Result<Rules, BackendError> {
    let mut rules = unconditional_rules();
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        // The third argument of both calls is the protection.
        let not_executable = without_bits(2, libc::PROT_EXEC as u64)?;
        rules.insert(call, vec![SeccompRule::new(vec![not_executable])?]);
    }
    // `abort` sends a signal to its own process. Without this rule, an abort would look like a forbidden call.
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![pid(SeccompCmpOp::Eq)?])?]);
    Ok(rules)
}

/// The calls of a zygote and of its forks.
fn zygote_rules() -> Result<Rules, BackendError> {
    let mut rules = child_rules()?;
    rules.extend(ZYGOTE_CALLS.iter().map(|call| (*call, Vec::new())));
    // Processes only, and none in new namespaces: the other bits are the signal of a child's exit, and the C library's
    // two requests to learn a fork's number.
    let allowed = 0xff | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    let is_fork = without_bits(0, u64::from(!allowed.cast_unsigned()))?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_fork])?]);
    // Each fork has its own number, and its own filter compares it.
    rules.insert(libc::SYS_tgkill, Vec::new());
    Ok(rules)
}

/// The condition that an argument has none of these bits.
fn without_bits(argument: u8, bits: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
}

/// The calls of a child that need no condition.
fn unconditional_rules() -> Rules {
    [
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
    .collect()
}

#[cfg(test)]
mod tests;
