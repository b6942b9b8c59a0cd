//! A job that behaves like an attacker's code: it reports what it can access, and tries forbidden system calls.

use sandbox::{Job, JobLimits, JobPool};

/// The descriptor numbers that a child tests.
const DESCRIPTORS: std::ops::Range<i32> = 0..64;

/// The attacker's job. Its input selects the attack.
pub(crate) fn probe(input: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(input).into_owned();
    if name == "environment" {
        let all: Vec<String> =
            std::env::vars().map(|(key, value)| format!("{key}={value}")).collect();
        return all.join("\n").into_bytes();
    }
    if name == "descriptors" {
        return open_descriptors().into_bytes();
    }
    if name == "abort" {
        std::process::abort();
    }
    let Some((_, call, arguments)) = FORBIDDEN.iter().find(|forbidden| forbidden.0 == name) else {
        return b"unknown".to_vec();
    };
    let [a, b, c, d] = *arguments;
    #[expect(unsafe_code, reason = "an attacker makes raw system calls")]
    // SAFETY: the filter kills the process before the kernel looks at the arguments.
    let answer = unsafe { libc::syscall(*call, a, b, c, d) };
    format!("returned {answer}").into_bytes()
}

/// Polls each number; `poll` marks a closed one as invalid.
fn open_descriptors() -> String {
    let open = |fd: &i32| {
        let mut polled = libc::pollfd { fd: *fd, events: 0, revents: 0 };
        #[expect(unsafe_code, reason = "the descriptors have no owner to borrow from")]
        // SAFETY: one valid record, no waiting.
        let count = unsafe { libc::poll(&raw mut polled, 1, 0) };
        count == 0 || polled.revents & libc::POLLNVAL == 0
    };
    DESCRIPTORS.filter(open).map(|fd| fd.to_string()).collect::<Vec<_>>().join(" ")
}

type Forbidden = (&'static str, libc::c_long, [i64; 4]);

/// Some of the self-test's forbidden system calls, for the children of jobs.
pub(crate) const FORBIDDEN: [Forbidden; 7] = [
    ("openat", libc::SYS_openat, [-100, 0, 0, 0]),
    ("socket", libc::SYS_socket, [libc::AF_INET as i64, libc::SOCK_STREAM as i64, 0, 0]),
    ("clone", libc::SYS_clone, [17, 0, 0, 0]),
    ("execve", libc::SYS_execve, [0, 0, 0, 0]),
    ("ptrace", libc::SYS_ptrace, [16, 1, 0, 0]),
    ("tgkill of another", libc::SYS_tgkill, [1, 1, 0, 0]),
    ("mmap executable", libc::SYS_mmap, [0, 4096, 7, 34]),
];

pub(crate) fn probes() -> JobPool {
    let job = Job { name: "probe", run: probe };
    JobPool::new(job, JobLimits::default(), 1).expect("a pool")
}
