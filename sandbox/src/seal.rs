//! The layers that the operating system puts around a child, one function each.
//!
//! The engine is C and will have memory errors, so these are the boundary. A child applies them to itself
//! before it reads anything. A mandatory layer that fails ends the child; the others are reported.

use std::time::Duration;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, dumpable_behavior, getppid, getrlimit,
    parent_process_death_signal, set_dumpable_behavior, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, no_new_privs, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::layer::{LayerReport, LayerState};
use crate::limits::THREAD_STACK;

/// Why a mandatory layer does not hold.
pub(crate) type Broken = String;

/// Applies every layer but the last two, which would forbid to start a thread.
pub(crate) fn apply_outer(
    host: Pid,
    address_space: u64,
    cpu: Duration,
) -> Result<Vec<LayerReport>, Broken> {
    end_with_host(host)?;
    let mut layers = vec![volunteer_for_the_oom_killer(), namespaces(), landlock()];
    drop_capabilities()?;
    layers.push(LayerReport::mandatory("capabilities"));
    resource_limits(address_space, cpu)?;
    layers.push(LayerReport::mandatory("rlimits"));
    forbid_dumps()?;
    layers.push(LayerReport::mandatory("not_dumpable"));
    // A change of credentials above has cleared the signal, so it is asked for once more, at the end.
    end_with_host(host)?;
    layers.push(LayerReport::mandatory("parent_death"));
    Ok(layers)
}

/// Applies the last two layers to all threads. After this only the short list of calls is left.
pub(crate) fn apply_inner() -> Result<Vec<LayerReport>, Broken> {
    limit(Resource::Nproc, 0)?;
    restore_fatal_signals();
    forbid_new_privileges()?;
    filter_system_calls()?;
    Ok(vec![LayerReport::mandatory("no_new_privs"), LayerReport::mandatory("seccomp")])
}

/// Asks the kernel to kill us with our host, and looks whether it has died already.
fn end_with_host(host: Pid) -> Result<(), Broken> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| format!("prctl(PDEATHSIG): {e}"))?;
    if parent_process_death_signal() != Ok(Some(Signal::KILL)) {
        return Err("the parent-death signal did not stay".to_owned());
    }
    if getppid() != Some(host) {
        return Err("the host has died".to_owned());
    }
    Ok(())
}

/// When memory ends, the kernel takes us first and not the host.
fn volunteer_for_the_oom_killer() -> LayerReport {
    let state = match std::fs::write("/proc/self/oom_score_adj", "1000") {
        Ok(()) => LayerState::Holds,
        Err(error) => LayerState::Absent(format!("`/proc/self/oom_score_adj`: {error}")),
    };
    LayerReport::best_effort("oom_score", state)
}

/// Leaves the host's network, mounts, message queues and host name behind.
fn namespaces() -> LayerReport {
    const PARTS: [(UnshareFlags, &str); 4] = [
        (UnshareFlags::NEWNET, "network"),
        (UnshareFlags::NEWNS, "mount"),
        (UnshareFlags::NEWIPC, "ipc"),
        (UnshareFlags::NEWUTS, "uts"),
    ];
    let all = PARTS.iter().fold(UnshareFlags::NEWUSER, |all, part| all | part.0);
    if unshare(all).is_ok() {
        return LayerReport::best_effort("namespaces", LayerState::Holds);
    }
    // Some kernels give a user namespace but no rights in it; a root without user namespaces can do without.
    let mut missing = Vec::new();
    if let Err(error) = unshare(UnshareFlags::NEWUSER) {
        missing.push(format!("user: {error}"));
    }
    for (flag, name) in PARTS {
        if let Err(error) = unshare(flag) {
            missing.push(format!("{name}: {error}"));
        }
    }
    let count = missing.len();
    let text = missing.join(", ");
    LayerReport::best_effort(
        "namespaces",
        match count {
            0 => LayerState::Holds,
            5 => LayerState::Absent(text),
            _ => LayerState::Partial(text),
        },
    )
}

fn unshare(flags: UnshareFlags) -> Result<(), rustix::io::Errno> {
    #[expect(unsafe_code, reason = "the only form that is not deprecated")]
    // SAFETY: no flag shares or splits the descriptor table, which is what the call can break.
    unsafe {
        rustix::thread::unshare_unsafe(flags)
    }
}

/// Denies every file, every port and every signal and socket outside of this process.
fn landlock() -> LayerReport {
    let newest = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(landlock::CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(newest)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(newest)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    let state = match ruleset {
        Ok(status) => match status.ruleset {
            RulesetStatus::FullyEnforced => LayerState::Holds,
            RulesetStatus::PartiallyEnforced => {
                LayerState::Partial("the kernel knows an older landlock".to_owned())
            }
            RulesetStatus::NotEnforced => {
                LayerState::Absent("the kernel has no landlock".to_owned())
            }
        },
        Err(error) => LayerState::Absent(error.to_string()),
    };
    LayerReport::best_effort("landlock", state)
}

fn drop_capabilities() -> Result<(), Broken> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|e| format!("capset: {e}"))
}

fn resource_limits(address_space: u64, cpu: Duration) -> Result<(), Broken> {
    limit(Resource::As, address_space)?;
    limit(Resource::Cpu, cpu.as_secs())?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Memlock, 0)?;
    limit(Resource::Stack, THREAD_STACK)?;
    // Descriptors 0 to 3 are all there will ever be.
    limit(Resource::Nofile, 4)
}

fn limit(resource: Resource, most: u64) -> Result<(), Broken> {
    // A limit that is already lower stays.
    let hard = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
    setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
        .map_err(|e| format!("setrlimit({resource:?}): {e}"))
}

/// No core file, and no other process of this user may look into us.
fn forbid_dumps() -> Result<(), Broken> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| format!("prctl(DUMPABLE): {e}"))?;
    match dumpable_behavior() {
        Ok(DumpableBehavior::NotDumpable) => Ok(()),
        _ => Err("the process stayed dumpable".to_owned()),
    }
}

fn forbid_new_privileges() -> Result<(), Broken> {
    set_no_new_privs(true).map_err(|e| format!("prctl(NO_NEW_PRIVS): {e}"))?;
    match no_new_privs() {
        Ok(true) => Ok(()),
        _ => Err("no_new_privs did not stay".to_owned()),
    }
}

/// Lets a memory fault kill us as what it is. The standard library's handler would first make calls that the
/// filter forbids.
fn restore_fatal_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        #[expect(unsafe_code, reason = "the standard library has no way to give a signal back")]
        // SAFETY: the default action is valid for every signal and runs no code of ours.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

fn filter_system_calls() -> Result<(), Broken> {
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: the call takes no pointers. Without it an inherited flag could make readable pages executable.
    unsafe {
        libc::personality(0);
    }
    let program = system_call_filter().map_err(|e| format!("seccomp filter: {e}"))?;
    apply_filter_all_threads(&program).map_err(|e| format!("seccomp: {e}"))
}

/// Everything a sealed child may ask of the kernel. All else kills it, foreign call tables included.
fn system_call_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: Vec<(i64, Vec<SeccompRule>)> = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_ppoll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_exit,
        libc::SYS_exit_group,
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
        // A thread asks it to learn where its own stack ends.
        libc::SYS_sched_getaffinity,
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let not_executable = SeccompCondition::new(
            2,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64),
            0,
        )?;
        rules.push((call, vec![SeccompRule::new(vec![not_executable])?]));
    }
    // `abort` signals its own process; without it an abort would look like a forbidden call.
    let own = u64::from(std::process::id());
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
