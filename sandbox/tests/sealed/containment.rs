//! What a child cannot do even when its code is the attacker's, and what stays when it is gone.

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sandbox::{
    FailureKind, Job, JobFailure, JobLimits, JobPool, LayerState, Limits, Pool, PoolConfig,
};
use tokio_util::sync::CancellationToken;

use crate::support::{Tools, children_of, eventually, failure, pool, program, trials, value};

trials![
    every_mandatory_layer_holds,
    forbidden_calls_kill,
    a_child_has_nothing_of_its_hosts,
    an_inherited_descriptor_is_closed,
    no_child_outlives_a_killed_host,
    no_child_outlives_its_pool,
    many_runs_leave_nothing_behind,
    programs_share_nothing,
];

/// Descriptor numbers at which a child looks for what it should not have.
const LOOK_AT: std::ops::Range<i32> = 0..64;

/// The job of the attacker: does what its input names.
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

/// Asks `poll` about each number; a closed one is marked invalid.
fn open_descriptors() -> String {
    let open = |fd: &i32| {
        let mut polled = libc::pollfd { fd: *fd, events: 0, revents: 0 };
        #[expect(unsafe_code, reason = "the descriptors have no owner to borrow from")]
        // SAFETY: one valid record, no waiting.
        let count = unsafe { libc::poll(&raw mut polled, 1, 0) };
        count == 0 || polled.revents & libc::POLLNVAL == 0
    };
    LOOK_AT.filter(open).map(|fd| fd.to_string()).collect::<Vec<_>>().join(" ")
}

const INET: i64 = libc::AF_INET as i64;
const UNIX: i64 = libc::AF_UNIX as i64;
const NETLINK: i64 = libc::AF_NETLINK as i64;
const STREAM: i64 = libc::SOCK_STREAM as i64;

type Forbidden = (&'static str, libc::c_long, [i64; 4]);

const FORBIDDEN: [Forbidden; 40] = [
    ("openat", libc::SYS_openat, [-100, 0, 0, 0]),
    ("openat2", libc::SYS_openat2, [-100, 0, 0, 0]),
    ("statx", libc::SYS_statx, [-100, 0, 0, 0]),
    ("unlinkat", libc::SYS_unlinkat, [-100, 0, 0, 0]),
    ("linkat", libc::SYS_linkat, [-100, 0, -100, 0]),
    ("symlinkat", libc::SYS_symlinkat, [0, -100, 0, 0]),
    ("mkdirat", libc::SYS_mkdirat, [-100, 0, 0, 0]),
    ("chdir", libc::SYS_chdir, [0, 0, 0, 0]),
    ("socket inet", libc::SYS_socket, [INET, STREAM, 0, 0]),
    ("socket unix", libc::SYS_socket, [UNIX, STREAM, 0, 0]),
    ("socket netlink", libc::SYS_socket, [NETLINK, STREAM, 0, 0]),
    ("socketpair", libc::SYS_socketpair, [UNIX, STREAM, 0, 0]),
    ("connect", libc::SYS_connect, [3, 0, 0, 0]),
    ("sendmsg", libc::SYS_sendmsg, [3, 0, 0, 0]),
    ("recvmsg", libc::SYS_recvmsg, [3, 0, 0, 0]),
    ("clone", libc::SYS_clone, [17, 0, 0, 0]),
    ("clone3", libc::SYS_clone3, [0, 0, 0, 0]),
    ("execve", libc::SYS_execve, [0, 0, 0, 0]),
    ("execveat", libc::SYS_execveat, [3, 0, 0, 0]),
    ("ptrace", libc::SYS_ptrace, [16, 1, 0, 0]),
    ("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0]),
    ("kill", libc::SYS_kill, [1, 0, 0, 0]),
    ("tgkill of another", libc::SYS_tgkill, [1, 1, 0, 0]),
    ("pidfd_open", libc::SYS_pidfd_open, [1, 0, 0, 0]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [3, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
    ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0]),
    ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [0, 0, 0, 0]),
    ("keyctl", libc::SYS_keyctl, [0, 0, 0, 0]),
    ("mount", libc::SYS_mount, [0, 0, 0, 0]),
    ("unshare", libc::SYS_unshare, [0, 0, 0, 0]),
    ("setns", libc::SYS_setns, [3, 0, 0, 0]),
    ("prctl", libc::SYS_prctl, [38, 1, 0, 0]),
    ("seccomp", libc::SYS_seccomp, [0, 0, 0, 0]),
    ("inotify_init1", libc::SYS_inotify_init1, [0, 0, 0, 0]),
    ("prlimit64", libc::SYS_prlimit64, [0, 0, 0, 0]),
    ("dup", libc::SYS_dup, [3, 0, 0, 0]),
    ("mmap executable", libc::SYS_mmap, [0, 4096, 7, 34]),
    ("mprotect executable", libc::SYS_mprotect, [4096, 4096, 5, 0]),
];

fn probes() -> JobPool {
    let job = Job { name: "probe", run: probe };
    JobPool::new(job, JobLimits::default(), 1).expect("a pool")
}

async fn every_mandatory_layer_holds() {
    let layers = pool().layers().await.expect("a child");
    let names: Vec<&str> =
        layers.iter().filter(|layer| layer.mandatory).map(|layer| layer.name.as_str()).collect();
    assert_eq!(
        names,
        ["capabilities", "rlimits", "not_dumpable", "parent_death", "no_new_privs", "seccomp"]
    );
    for layer in &layers {
        assert!(!layer.mandatory || layer.state == LayerState::Holds, "{layer:?}");
    }
    for name in ["oom_score", "namespaces", "landlock"] {
        assert!(layers.iter().any(|layer| layer.name == name), "{name} is not reported");
    }
}

async fn forbidden_calls_kill() {
    let pool = probes();
    for (name, ..) in FORBIDDEN {
        let answer = pool.run(name.as_bytes().to_vec()).await;
        assert_eq!(answer, Err(JobFailure::Crashed { signal: Some(libc::SIGSYS) }), "{name}");
    }
    // An abort is no forbidden call: it must be told apart.
    assert_eq!(pool.run(b"abort".to_vec()).await, Err(JobFailure::OutOfMemory));
}

async fn a_child_has_nothing_of_its_hosts() {
    let pool = probes();
    let look = async |name: &str| {
        String::from_utf8(pool.run(name.as_bytes().to_vec()).await.expect(name)).expect("text")
    };
    assert!(std::env::vars().count() > 1);
    assert_eq!(look("environment").await, "TZ=UTC");
    assert_eq!(look("descriptors").await, "0 1 2 3");
}

async fn an_inherited_descriptor_is_closed() {
    // Every program that is started now inherits this one.
    let (canary, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    #[expect(
        unsafe_code,
        reason = "the standard library has no way to make a descriptor inheritable"
    )]
    // SAFETY: both numbers are descriptors of this process.
    unsafe {
        assert_eq!(libc::fcntl(canary.as_raw_fd(), libc::F_SETFD, 0), 0);
        assert!(libc::dup2(canary.as_raw_fd(), 61) == 61);
    }
    let inherited = Command::new("ls").arg("/proc/self/fd").output().expect("ls");
    let listed = String::from_utf8_lossy(&inherited.stdout).into_owned();
    assert!(
        listed.split_whitespace().any(|fd| fd == "61"),
        "the canary is not inherited: {listed}"
    );
    let seen = probes().run(b"descriptors".to_vec()).await.expect("an answer");
    assert_eq!(String::from_utf8(seen).expect("text"), "0 1 2 3");
}

/// Runs this binary as another host and returns its first line.
fn other_host(role: &str) -> (std::process::Child, String) {
    let mut host = Command::new("/proc/self/exe")
        .args(["__host", role])
        .stdout(Stdio::piped())
        .spawn()
        .expect("another host");
    let mut line = String::new();
    let stdout = host.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    (host, line.trim().to_owned())
}

/// What this binary does when it is started as another host.
pub(crate) fn be_another_host(role: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let own = || children_of(std::process::id());
        match role {
            "busy" => {
                let pool = Pool::new(PoolConfig { warm: 2, max_running: 4 }).expect("a pool");
                let limits = Limits { cpu: Duration::from_secs(60), ..Limits::client() };
                let tools = Arc::new(Tools::default());
                let run = |source: &str| {
                    pool.run(
                        program(source),
                        &limits,
                        Arc::clone(&tools) as _,
                        CancellationToken::new(),
                    )
                };
                let busy = run("mcp.test.echo({}); for (;;) {}");
                let waiting = run("await mcp.test.never({})");
                let told = async {
                    eventually("four children live and two programs run", || {
                        own().len() >= 4
                            && tools.most_running.load(std::sync::atomic::Ordering::SeqCst) >= 1
                    })
                    .await;
                    let list: Vec<String> = own().iter().map(u32::to_string).collect();
                    print_line(&list.join(" "));
                    std::future::pending::<()>().await;
                };
                tokio::join!(busy, waiting, told);
            }
            "drop" => {
                let pool = Pool::new(PoolConfig { warm: 3, max_running: 1 }).expect("a pool");
                eventually("three children live", || own().len() == 3).await;
                drop(pool);
                eventually("no child lives", || own().is_empty()).await;
                print_line("gone");
            }
            "many" => {
                let pool = Pool::new(PoolConfig { warm: 2, max_running: 8 }).expect("a pool");
                let limits = Limits::server();
                let run = |source: &str| {
                    pool.run(
                        program(source),
                        &limits,
                        Arc::new(Tools::default()) as _,
                        CancellationToken::new(),
                    )
                };
                let descriptors =
                    || std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
                for round in 0..5 {
                    let runs = (0..20).map(|_| run("return (await mcp.test.echo({ a: 1 })).a"));
                    for outcome in futures::future::join_all(runs).await {
                        assert_eq!(outcome.result, Ok(serde_json::json!(1)), "{round}");
                    }
                }
                // Two that wait, and nothing else: no zombie, no descriptor of an old run.
                eventually("two children are left", || own().len() == 2).await;
                eventually("few descriptors are left", || descriptors() < 24).await;
                print_line("clean");
            }
            other => panic!("no role {other}"),
        }
    });
}

#[expect(clippy::print_stdout, reason = "the other host's one answer")]
fn print_line(text: &str) {
    println!("{text}");
}

async fn no_child_outlives_a_killed_host() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host("busy")).await.expect("no panic");
    let children: Vec<u32> =
        line.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
    assert!(children.len() >= 4, "{line}");
    host.kill().expect("kill -9");
    host.wait().expect("reaped");
    eventually("all children are gone", || {
        children.iter().all(|pid| {
            // A pid that lives again belongs to another program by now.
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_or(true, |stat| !stat.contains("(pml-sandbox)") || stat.contains(") Z "))
        })
    })
    .await;
}

async fn no_child_outlives_its_pool() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host("drop")).await.expect("no panic");
    assert_eq!(line, "gone");
    assert!(host.wait().expect("reaped").success());
}

async fn many_runs_leave_nothing_behind() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host("many")).await.expect("no panic");
    assert_eq!(line, "clean");
    assert!(host.wait().expect("reaped").success());
}

async fn programs_share_nothing() {
    value("globalThis.left = 1; Array.prototype.left = 1; return 1").await;
    for _ in 0..4 {
        let seen = value("return [typeof left, typeof [].left]").await;
        assert_eq!(seen, serde_json::json!(["undefined", "undefined"]));
    }
    assert_eq!(failure("left").await.kind, FailureKind::Exception);
}
