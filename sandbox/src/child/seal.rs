//! The layers that the operating system puts around a child, one function each.
//!
//! The engine is written in C and will have memory errors, so these layers are the boundary. A child applies them to
//! itself before it reads anything. A mandatory layer that fails ends the child; the others are reported.
//!
//! The order of the steps matters:
//! 1. The parent-death signal comes first, so that a child whose host dies while it seals itself does not survive.
//! 2. The OOM score is a file, and landlock denies files from then on.
//! 3. Namespaces are left before capabilities are dropped: without user namespaces that needs root's capabilities, and
//!    a new user namespace grants new ones, which must go too.
//! 4. Landlock opens descriptors, so the limit of descriptors comes later.
//! 5. A change of credentials resets the dumpable flag and the parent-death signal, so both are set after the last one.
//! 6. The limit of processes and the filter of system calls come last: a job must still start its thread, and a zygote
//!    must fork, before they hold. A zygote has a filter of its own, which its forks tighten.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, dumpable_behavior, getpid, getppid, getrlimit,
    parent_process_death_signal, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, SecureComputingMode, UnshareFlags, no_new_privs,
    secure_computing_mode, set_capabilities, set_no_new_privs,
};

use crate::child::descriptors::take_forked_socket;
use crate::child::process::{EXIT_PANIC, exit, sleep_forever};
use crate::dumpable::forbid_dumps;
use crate::layer::{LayerReport, LayerState};
use crate::limits::{CPU_BACKSTOP, PROGRAM_ADDRESS_SPACE, THREAD_STACK};

mod filter;

pub(crate) use filter::Filter;

/// Three standard streams and one socket.
const DESCRIPTORS: u64 = 4;
/// A zygote also needs the socket of a child while it forks it, and a socket pair for its first fork.
const ZYGOTE_DESCRIPTORS: u64 = 16;

/// Why a mandatory layer does not hold.
pub(crate) type Broken = String;

/// Applies every layer to a job's child except the last two, under which no thread can start.
pub(crate) fn apply_outer(
    host: Pid,
    address_space: u64,
    cpu: Duration,
) -> Result<Vec<LayerReport>, Broken> {
    die_with_host(host)?;
    let mut layers = vec![prefer_for_oom_kill(), namespaces(&NAMESPACES), landlock()?];
    layers.extend(apply_limits(host, address_space, cpu, DESCRIPTORS)?);
    Ok(layers)
}

/// Applies the layers that a zygote and its children share. The filter still permits what a zygote does, to fork and to
/// receive descriptors; [`after_fork`] forbids that, too.
pub(crate) fn apply_to_zygote(host: Pid) -> Result<Vec<LayerReport>, Broken> {
    die_with_host(host)?;
    let namespaces = namespaces(&[&NAMESPACES[..], &[PID_NAMESPACE]].concat());
    let mut layers = vec![prefer_for_oom_kill(), namespaces, landlock()?];
    // A forked child inherits these limits; its CPU time counts from zero.
    let (memory, cpu) = (PROGRAM_ADDRESS_SPACE, CPU_BACKSTOP);
    layers.extend(apply_limits(host, memory, cpu, ZYGOTE_DESCRIPTORS)?);
    restore_fatal_signals();
    reset_personality();
    // Every fork inherits it. Without it, only a privileged process may install a filter.
    forbid_new_privileges()?;
    // Before the filter, which permits no new socket.
    let sockets = UnixStream::pair().map_err(|e| format!("socketpair: {e}"))?;
    filter::apply_to_zygote()?;
    start_namespace_init(sockets)?;
    Ok(layers)
}

/// Drops capabilities, sets the limits, and closes the process to others of its user.
fn apply_limits(
    host: Pid,
    address_space: u64,
    cpu: Duration,
    descriptors: u64,
) -> Result<Vec<LayerReport>, Broken> {
    drop_capabilities()?;
    resource_limits(address_space, cpu, descriptors)?;
    forbid_dumps()?;
    // Entering a user namespace changed the credentials, and that cleared the signal.
    die_with_host(host)?;
    Ok(["capabilities", "rlimits", "not_dumpable", "parent_death"]
        .map(LayerReport::mandatory)
        .to_vec())
}

/// Applies the last two layers to all threads. After this, only the listed system calls are left.
pub(crate) fn apply_inner() -> Result<Vec<LayerReport>, Broken> {
    // All of this before the filter, which permits none of these calls.
    limit(Resource::Nproc, 0)?;
    restore_fatal_signals();
    reset_personality();
    forbid_new_privileges()?;
    Filter::new()?.apply()?;
    Ok(inner_layers())
}

/// Applies the layers that a forked child does not inherit from its zygote.
pub(crate) fn after_fork(zygote: Pid, filter: &Filter) -> Result<(), Broken> {
    // The kernel clears the signal at every fork.
    die_with_parent()?;
    // In a process namespace of its own, a child whose parent is outside of it sees no parent's pid. An orphan is
    // adopted by the namespace's first process, whose pid is not the zygote's.
    if getppid().is_some_and(|parent| parent != zygote) {
        return Err("the zygote has died".to_owned());
    }
    // A fork inherits these, so they are checked and not set again. The zygote's filter is a part of the fork's own.
    match (dumpable_behavior(), no_new_privs(), secure_computing_mode()) {
        (Ok(DumpableBehavior::NotDumpable), Ok(true), Ok(SecureComputingMode::Filter)) => {}
        _ => return Err("a fork lacks a layer".to_owned()),
    }
    // Lower than in the zygote: a child never opens or receives a descriptor.
    limit(Resource::Nofile, DESCRIPTORS)?;
    limit(Resource::Nproc, 0)?;
    filter.apply()
}

/// Returns the layers that hold once [`apply_inner`] or [`after_fork`] has succeeded.
pub(crate) fn inner_layers() -> Vec<LayerReport> {
    vec![LayerReport::mandatory("no_new_privs"), LayerReport::mandatory("seccomp")]
}

/// Asks the kernel to kill this process together with its host, and checks whether the host has already died.
fn die_with_host(host: Pid) -> Result<(), Broken> {
    // In this order, a host that dies at any time is noticed: before the first step, the parent
    // differs; after it, the kernel sends the signal.
    die_with_parent()?;
    if getppid() != Some(host) {
        return Err("the host has died".to_owned());
    }
    Ok(())
}

fn die_with_parent() -> Result<(), Broken> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| format!("prctl(PDEATHSIG): {e}"))?;
    if parent_process_death_signal() != Ok(Some(Signal::KILL)) {
        return Err("the parent-death signal did not stay".to_owned());
    }
    Ok(())
}

/// Makes the kernel kill this process before the host when memory runs out.
fn prefer_for_oom_kill() -> LayerReport {
    // The highest value that the kernel accepts.
    let state = match std::fs::write("/proc/self/oom_score_adj", "1000") {
        Ok(()) => LayerState::Holds,
        Err(error) => LayerState::Absent(format!("`/proc/self/oom_score_adj`: {error}")),
    };
    LayerReport::best_effort("oom_score", state)
}

/// The parts of the host that no child needs.
const NAMESPACES: [(UnshareFlags, &str); 4] = [
    (UnshareFlags::NEWNET, "network"),
    (UnshareFlags::NEWNS, "mount"),
    (UnshareFlags::NEWIPC, "ipc"),
    (UnshareFlags::NEWUTS, "uts"),
];
/// Takes effect for the children of the process that unshares it, not for that process itself.
const PID_NAMESPACE: (UnshareFlags, &str) = (UnshareFlags::NEWPID, "pid");

/// Enters new namespaces for these parts of the host, and a new user namespace.
fn namespaces(parts: &[(UnshareFlags, &str)]) -> LayerReport {
    let all = parts.iter().fold(UnshareFlags::NEWUSER, |all, part| all | part.0);
    if unshare(all).is_ok() {
        return LayerReport::best_effort("namespaces", LayerState::Holds);
    }
    // One by one: some kernels allow a user namespace but grant no rights in it, and root needs none.
    let mut missing = Vec::new();
    if let Err(error) = unshare(UnshareFlags::NEWUSER) {
        missing.push(format!("user: {error}"));
    }
    for (flag, name) in parts {
        if let Err(error) = unshare(*flag) {
            missing.push(format!("{name}: {error}"));
        }
    }
    let count = missing.len();
    let text = missing.join(", ");
    let state = match count {
        0 => LayerState::Holds,
        // The user namespace counts as well, so this means all of them.
        _ if count > parts.len() => LayerState::Absent(text),
        _ => LayerState::Partial(text),
    };
    LayerReport::best_effort("namespaces", state)
}

/// Forks the init process of a new process namespace. It only keeps the namespace alive: the kernel kills all processes
/// of a namespace when its init exits, so it must outlive every program, and it dies with this process. Where there is
/// no such namespace, it is an idle process like any other.
///
/// It is sealed like later forks, so that a seal that fails is noticed before the first program arrives.
fn start_namespace_init((ours, theirs): (UnixStream, UnixStream)) -> Result<(), Broken> {
    let zygote = getpid();
    let filter = Filter::of_fork()?;
    #[expect(unsafe_code, reason = "no safe wrapper: the child may do what one thread may")]
    // SAFETY: this process has one thread, so the child finds every lock free.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => run_namespace_init(zygote, &filter, theirs),
        // Otherwise the read below would wait forever if the child died without an answer.
        1.. => drop(theirs),
        _ => return Err("no process can be forked".to_owned()),
    }
    let mut reply = [0; 512];
    let length = rustix::io::read(&ours, &mut reply)
        .map_err(|e| format!("cannot read from the first fork: {e}"))?;
    match &reply[..length] {
        b"" => Err("the first fork died while it was sealed".to_owned()),
        reply if reply == SEALED.as_bytes() => Ok(()),
        reply => Err(String::from_utf8_lossy(reply).into_owned()),
    }
}

/// What the init process sends when its seal holds.
const SEALED: &str = "sealed";

/// The main function of the init process: it seals itself, reports that, and sleeps.
fn run_namespace_init(zygote: Pid, filter: &Filter, host: UnixStream) -> ! {
    let Ok(host) = take_forked_socket(host.into()) else { exit(EXIT_PANIC) };
    let sealed = after_fork(zygote, filter);
    let reply = sealed.as_ref().map_or_else(String::as_str, |()| SEALED);
    let _ = rustix::io::write(&host, reply.as_bytes());
    if sealed.is_err() {
        exit(EXIT_PANIC)
    }
    sleep_forever()
}

fn unshare(flags: UnshareFlags) -> Result<(), rustix::io::Errno> {
    #[expect(unsafe_code, reason = "the only form that is not deprecated")]
    // SAFETY: no flag shares or splits the descriptor table, which is what the call can break.
    unsafe {
        rustix::thread::unshare_unsafe(flags)
    }
}

/// Denies every file and every port, signals to other processes, and their abstract sockets.
fn landlock() -> Result<LayerReport, Broken> {
    // The version of Linux 6.12, which added the scopes. `BestEffort` omits what an older kernel
    // does not know.
    let newest = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(landlock::CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(newest)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(newest)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    let status = ruleset.map_err(|error| format!("landlock: {error}"))?;
    let layer = LayerReport::mandatory("landlock");
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(layer),
        RulesetStatus::PartiallyEnforced => {
            let state = LayerState::Partial("the kernel knows an older landlock".to_owned());
            Ok(LayerReport { state, ..layer })
        }
        RulesetStatus::NotEnforced => Err("landlock: the kernel does not support it, or it is disabled; it requires Linux 5.13 and must be listed in /sys/kernel/security/lsm"
            .to_owned()),
    }
}

fn drop_capabilities() -> Result<(), Broken> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|e| format!("capset: {e}"))
}

fn resource_limits(address_space: u64, cpu: Duration, descriptors: u64) -> Result<(), Broken> {
    limit(Resource::As, address_space)?;
    limit(Resource::Cpu, cpu.as_secs())?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Memlock, 0)?;
    limit(Resource::Stack, THREAD_STACK)?;
    limit(Resource::Nofile, descriptors)
}

fn limit(resource: Resource, most: u64) -> Result<(), Broken> {
    // A limit that is already lower stays.
    let hard = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
    // The hard limit as well, because a process may raise its soft limit up to it.
    setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
        .map_err(|e| format!("setrlimit({resource:?}): {e}"))
}

fn forbid_new_privileges() -> Result<(), Broken> {
    set_no_new_privs(true).map_err(|e| format!("prctl(NO_NEW_PRIVS): {e}"))?;
    match no_new_privs() {
        Ok(true) => Ok(()),
        _ => Err("no_new_privs did not stay".to_owned()),
    }
}

/// Makes a memory fault kill this process with its own signal. The standard library's handler would first make system
/// calls that the filter forbids, and the death would look like an attack.
fn restore_fatal_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        #[expect(unsafe_code, reason = "the standard library has no way to give a signal back")]
        // SAFETY: the default action is valid for every signal and runs no code of ours.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Clears the inherited personality: its `READ_IMPLIES_EXEC` would make readable pages executable.
fn reset_personality() {
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: the call takes no pointers.
    unsafe {
        libc::personality(0);
    }
}
