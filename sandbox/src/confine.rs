//! Confines this process to some files and keeps it from the network, before it becomes another program.
//!
//! Unlike a sealed child, a confined program is one that the user knows, as a compiler or `git`: it may make nearly
//! every system call. Landlock limits the files that it can open, and a filter of system calls its sockets. Both hold
//! for everything that it starts, and nothing takes them back.

mod bounds;
mod network;

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

pub use bounds::Bounds;
pub use network::{Handover, PROXY_PORT};

/// The oldest landlock that denies enough: before Linux 6.2, a file could be truncated that may not be written.
const OLDEST: ABI = ABI::V3;

/// The newest landlock that this module knows, of Linux 6.12. Signals and abstract sockets are limited since then.
const NEWEST: ABI = ABI::V6;

/// What a system call number has in addition in the x32 call table of x86-64 kernels.
const X32: i64 = 0x4000_0000;

/// What a confined process may still reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The files that it may read and execute, and the folders with everything in them. What does not exist is skipped.
    pub read: Vec<PathBuf>,
    /// Those that it may also change.
    pub write: Vec<PathBuf>,
    /// What it may open connections to.
    pub network: Network,
    /// What it may use of the machine; `None` for what its parent may.
    pub bounds: Option<Bounds>,
}

/// What a confined process may open connections to. Sockets of other kinds than IP, as those of the session bus and of
/// Docker, let a process leave its confinement, so it can never open them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing: it cannot open a socket.
    #[default]
    None,
    /// Only a proxy, at [`PROXY_PORT`] of 127.0.0.1: the process is in a network namespace of its own. The socket of the
    /// proxy is handed over to the [`Handover`] at this path.
    Proxied(PathBuf),
    /// Everything, over IP.
    All,
}

impl Confinement {
    /// Applies it to this thread and everything that it starts, irreversibly.
    ///
    /// # Errors
    /// Returns why this system cannot confine a process. The process may then be confined in part.
    pub fn apply(&self) -> Result<(), String> {
        // First: a process without capabilities cannot set up a network.
        if let Network::Proxied(handover) = &self.network {
            network::enter(handover)?;
        }
        // Before the capabilities are dropped that raise limits.
        if let Some(bounds) = &self.bounds {
            bounds.apply().map_err(|errno| format!("setrlimit: {errno}"))?;
        }
        drop_capabilities().map_err(|errno| format!("capset: {errno}"))?;
        self.limit_files().map_err(|error| format!("landlock: {error}"))?;
        let filter = filter(&self.network).map_err(|error| format!("seccomp filter: {error}"))?;
        apply_filter(&filter).map_err(|error| format!("seccomp: {error}"))
    }

    /// Checks that this system can confine a process, without confining this one.
    ///
    /// # Errors
    /// Returns why it cannot.
    pub fn check_support() -> Result<(), String> {
        match ruleset() {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("landlock: {error}; it requires Linux 6.2")),
        }
    }

    fn limit_files(&self) -> Result<(), landlock::RulesetError> {
        let (read, all) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
        ruleset()?
            .add_rules(path_beneath_rules(&self.read, read))?
            .add_rules(path_beneath_rules(&self.write, all))?
            // No program gets more rights than this one, as by `sudo`.
            .no_new_privs(true)
            .restrict_self()?;
        Ok(())
    }
}

/// Gives up what root could leave the confinement with: devices, kernel modules, raw sockets, files by their handle.
/// What is left is about owners and modes of files. Nothing that is started gets more.
fn drop_capabilities() -> rustix::io::Result<()> {
    let kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID;
    let held = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective & kept,
            permitted: held.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Returns a ruleset that denies every file.
fn ruleset() -> Result<RulesetCreated, landlock::RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

/// Returns a filter that fails the listed calls with `EACCES`, and kills a process that uses another call table.
fn filter(network: &Network) -> Result<BpfProgram, seccompiler::BackendError> {
    let always = Vec::new;
    // `socketpair` connects only what one program starts, so it is not listed.
    let mut denied: Vec<(i64, Vec<SeccompRule>)> = vec![
        (libc::SYS_socket, if *network == Network::None { always() } else { other_than_ip()? }),
        // It opens sockets that no filter of system calls sees.
        (libc::SYS_io_uring_setup, always()),
        // The keyring of the kernel has secrets of the user.
        (libc::SYS_keyctl, always()),
        (libc::SYS_request_key, always()),
        (libc::SYS_add_key, always()),
    ];
    if cfg!(target_arch = "x86_64") {
        let by_x32 = denied.iter().map(|(call, rules)| (X32 | call, rules.clone()));
        denied.extend(by_x32.collect::<Vec<_>>());
    }
    SeccompFilter::new(
        denied.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EACCES.cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?
    .try_into()
}

/// Matches sockets of another kind than IP, and than those that list the addresses of this machine.
fn other_than_ip() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let compared = |argument: u8, operation: SeccompCmpOp, value: i32| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
    };
    let is_not = |family| compared(0, SeccompCmpOp::Ne, family);
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let other_family = families.into_iter().map(is_not).collect::<Result<_, _>>()?;
    let other_netlink = vec![
        compared(0, SeccompCmpOp::Eq, libc::AF_NETLINK)?,
        compared(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?,
    ];
    Ok(vec![SeccompRule::new(other_family)?, SeccompRule::new(other_netlink)?])
}
