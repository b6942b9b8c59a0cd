//! The system calls that a self-test tries in a sealed child, and that only an attacker would make. The host selects
//! one by its position in the list.

/// The exit code of a child whose system call returned.
pub(crate) const EXIT_NOT_BLOCKED: i32 = 92;

/// A system call that the seal must block.
pub(crate) struct Probe {
    /// The name of the call, with the argument or table that makes it forbidden.
    pub(crate) name: &'static str,
    pub(crate) table: CallTable,
    pub(crate) call: libc::c_long,
    pub(crate) arguments: [i64; 4],
}

/// The system call table to use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallTable {
    Own,
    /// The table of 32-bit programs.
    #[cfg(target_arch = "x86_64")]
    I386,
}

const INET: i64 = libc::AF_INET as i64;
const UNIX: i64 = libc::AF_UNIX as i64;
const NETLINK: i64 = libc::AF_NETLINK as i64;
const STREAM: i64 = libc::SOCK_STREAM as i64;
/// Marks a call of the x32 table: 32-bit pointers, 64-bit registers.
#[cfg(target_arch = "x86_64")]
const X32: libc::c_long = 0x4000_0000;

const fn own(name: &'static str, call: libc::c_long, arguments: [i64; 4]) -> Probe {
    Probe { name, table: CallTable::Own, call, arguments }
}

/// All probes. Without a filter, the kernel would refuse these arguments or do nothing, so a failing self-test does not
/// change the machine.
pub(crate) const PROBES: &[Probe] = &[
    own("openat", libc::SYS_openat, [-100, 0, 0, 0]),
    own("openat2", libc::SYS_openat2, [-100, 0, 0, 0]),
    own("statx", libc::SYS_statx, [-100, 0, 0, 0]),
    own("getdents64", libc::SYS_getdents64, [3, 0, 0, 0]),
    own("unlinkat", libc::SYS_unlinkat, [-100, 0, 0, 0]),
    own("linkat", libc::SYS_linkat, [-100, 0, -100, 0]),
    own("symlinkat", libc::SYS_symlinkat, [0, -100, 0, 0]),
    own("mkdirat", libc::SYS_mkdirat, [-100, 0, 0, 0]),
    own("chdir", libc::SYS_chdir, [0, 0, 0, 0]),
    own("ftruncate", libc::SYS_ftruncate, [99, 0, 0, 0]),
    own("socket inet", libc::SYS_socket, [INET, STREAM, 0, 0]),
    own("socket unix", libc::SYS_socket, [UNIX, STREAM, 0, 0]),
    own("socket netlink", libc::SYS_socket, [NETLINK, STREAM, 0, 0]),
    own("socketpair", libc::SYS_socketpair, [UNIX, STREAM, 0, 0]),
    own("connect", libc::SYS_connect, [3, 0, 0, 0]),
    own("sendmsg", libc::SYS_sendmsg, [3, 0, 0, 0]),
    own("recvmsg", libc::SYS_recvmsg, [3, 0, 0, 0]),
    own("clone", libc::SYS_clone, [17, 0, 0, 0]),
    own("set_robust_list", libc::SYS_set_robust_list, [0, 0, 0, 0]),
    own("rseq", libc::SYS_rseq, [0, 0, 0, 0]),
    own("getppid", libc::SYS_getppid, [0, 0, 0, 0]),
    own("waitid", libc::SYS_waitid, [99, 0, 0, 0]),
    own("clone3", libc::SYS_clone3, [0, 0, 0, 0]),
    own("execve", libc::SYS_execve, [0, 0, 0, 0]),
    own("execveat", libc::SYS_execveat, [3, 0, 0, 0]),
    own("ptrace", libc::SYS_ptrace, [16, 1, 0, 0]),
    own("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0]),
    own("kill", libc::SYS_kill, [1, 0, 0, 0]),
    own("tgkill of another", libc::SYS_tgkill, [1, 1, 0, 0]),
    own("pidfd_open", libc::SYS_pidfd_open, [1, 0, 0, 0]),
    own("pidfd_getfd", libc::SYS_pidfd_getfd, [3, 0, 0, 0]),
    own("pidfd_send_signal", libc::SYS_pidfd_send_signal, [3, 0, 0, 0]),
    own("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
    own("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0]),
    own("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0, 0]),
    own("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1]),
    own("bpf", libc::SYS_bpf, [0, 0, 0, 0]),
    own("add_key", libc::SYS_add_key, [0, 0, 0, 0]),
    own("keyctl", libc::SYS_keyctl, [0, 0, 0, 0]),
    own("shmget", libc::SYS_shmget, [0, 0, 0, 0]),
    own("mount", libc::SYS_mount, [0, 0, 0, 0]),
    own("pivot_root", libc::SYS_pivot_root, [0, 0, 0, 0]),
    own("unshare", libc::SYS_unshare, [0, 0, 0, 0]),
    own("setns", libc::SYS_setns, [3, 0, 0, 0]),
    own("setuid", libc::SYS_setuid, [-1, 0, 0, 0]),
    own("prctl", libc::SYS_prctl, [38, 1, 0, 0]),
    own("personality", libc::SYS_personality, [0xffff_ffff, 0, 0, 0]),
    own("seccomp", libc::SYS_seccomp, [0, 0, 0, 0]),
    own("init_module", libc::SYS_init_module, [0, 0, 0, 0]),
    own("reboot", libc::SYS_reboot, [0, 0, 0, 0]),
    own("inotify_init1", libc::SYS_inotify_init1, [0, 0, 0, 0]),
    own("setrlimit", libc::SYS_setrlimit, [-1, 0, 0, 0]),
    own("prlimit64", libc::SYS_prlimit64, [0, 0, 0, 0]),
    own("ioctl", libc::SYS_ioctl, [99, 0, 0, 0]),
    own("dup", libc::SYS_dup, [99, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    own("dup2", libc::SYS_dup2, [99, 98, 0, 0]),
    own("dup3", libc::SYS_dup3, [99, 98, 0, 0]),
    own("fcntl", libc::SYS_fcntl, [99, 1, 0, 0]),
    own("close", libc::SYS_close, [99, 0, 0, 0]),
    own("close_range", libc::SYS_close_range, [98, 99, 0, 0]),
    own("mmap executable", libc::SYS_mmap, [0, 4096, 7, 34]),
    own("mprotect executable", libc::SYS_mprotect, [4096, 4096, 5, 0]),
    #[cfg(target_arch = "x86_64")]
    own("getpid by the x32 table", X32 | libc::SYS_getpid, [0, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    own("execve by the x32 table", X32 | 520, [0, 0, 0, 0]),
    // Number 20 is `getpid` in the i386 table, and `writev` in the 64-bit one.
    #[cfg(target_arch = "x86_64")]
    Probe { name: "getpid by the i386 table", table: CallTable::I386, call: 20, arguments: [0; 4] },
    // Number 1 is `exit` in the i386 table, and `write`, which is allowed, in the 64-bit one.
    #[cfg(target_arch = "x86_64")]
    Probe { name: "exit by the i386 table", table: CallTable::I386, call: 1, arguments: [0; 4] },
];
