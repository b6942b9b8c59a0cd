//! Changes this process into another kind of host, before it has a second thread.

use std::fs;

use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{UnshareFlags, set_thread_gid, set_thread_uid, unshare_unsafe};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// The user id of `nobody`, which every Linux has.
const NOBODY: u32 = 65_534;

/// Becomes the user `nobody`, if this process is root's.
pub(crate) fn become_an_ordinary_user() {
    if !getuid().is_root() {
        return;
    }
    rustix::thread::set_thread_groups(&[]).expect("no other groups");
    set_thread_gid(Gid::from_raw(NOBODY)).expect("the group of nobody");
    set_thread_uid(Uid::from_raw(NOBODY)).expect("nobody");
}

/// Enters a user namespace in which no other can be created. Does nothing if user namespaces are unavailable.
pub(crate) fn disable_user_namespaces() {
    let (user, group) = (getuid(), getgid());
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: this process has one thread, and its descriptors stay as they are.
    let entered = unsafe { unshare_unsafe(UnshareFlags::NEWUSER) };
    if entered.is_err() {
        return;
    }
    fs::write("/proc/self/setgroups", "deny").expect("setgroups");
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw())).expect("uid_map");
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw())).expect("gid_map");
    fs::write("/proc/sys/user/max_user_namespaces", "0").expect("no more user namespaces");
}

/// Makes the kernel refuse these system calls to this process and its children; with a number, only calls with that
/// first argument.
pub(crate) fn deny_system_calls(calls: &[(libc::c_long, Option<u64>)]) {
    let rules = calls.iter().map(|(call, first)| {
        let rule = first.map(|first| {
            let is = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, first);
            SeccompRule::new(vec![is.expect("a condition")]).expect("a rule")
        });
        (*call, rule.into_iter().collect())
    });
    let filter = SeccompFilter::new(
        rules.collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        TargetArch::try_from(std::env::consts::ARCH).expect("a known machine"),
    );
    let filter: seccompiler::BpfProgram =
        filter.expect("a filter").try_into().expect("a filter's program");
    apply_filter(&filter).expect("the filter is accepted");
}
