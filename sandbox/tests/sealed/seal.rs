//! The seal of a child, which holds even if an attacker controls the child's code.

use std::os::fd::AsRawFd;
use std::process::Command;

use sandbox::{JobFailure, LayerState};

use crate::hosts::other_host;
use crate::probe::{FORBIDDEN, probes};
use crate::support::{pool, trials, value};

trials![
    every_mandatory_layer_holds,
    forbidden_calls_kill,
    ordinary_programs_need_only_the_listed_system_calls,
    the_self_test_holds,
    an_ordinary_user_has_the_same_seal,
    without_user_namespaces_the_rest_holds,
    without_a_mandatory_layer_nothing_runs,
    a_child_inherits_nothing_from_its_host,
    a_child_has_no_privileges_or_descriptors,
    processes_of_the_same_user_cannot_inspect_a_child,
    an_inherited_descriptor_is_closed,
];

async fn every_mandatory_layer_holds() {
    let layers = pool().layers().await.expect("a child");
    let names: Vec<&str> =
        layers.iter().filter(|layer| layer.mandatory).map(|layer| layer.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "landlock",
            "capabilities",
            "rlimits",
            "not_dumpable",
            "parent_death",
            "no_new_privs",
            "seccomp"
        ]
    );
    for layer in &layers {
        assert!(!layer.mandatory || layer.state == LayerState::Holds, "{layer:?}");
    }
    for name in ["oom_score", "namespaces"] {
        assert!(layers.iter().any(|layer| layer.name == name), "{name} is not reported");
    }
}

async fn forbidden_calls_kill() {
    let pool = probes();
    for (name, ..) in FORBIDDEN {
        let answer = pool.run(name.as_bytes().to_vec()).await;
        assert_eq!(answer, Err(JobFailure::Crashed { signal: Some(libc::SIGSYS) }), "{name}");
    }
    // An abort must be distinguishable from a forbidden call.
    assert_eq!(pool.run(b"abort".to_vec()).await, Err(JobFailure::OutOfMemory));
}

async fn a_child_inherits_nothing_from_its_host() {
    let pool = probes();
    let look = async |name: &str| {
        String::from_utf8(pool.run(name.as_bytes().to_vec()).await.expect(name)).expect("text")
    };
    assert!(std::env::vars().count() > 1);
    assert_eq!(look("environment").await, "TZ=UTC");
    assert_eq!(look("descriptors").await, "0 1 2 3");
}

/// Starts another host, which makes its own assertions and then prints `word`.
async fn expect_line_of_host(role: &'static str, word: &str) {
    let (mut host, line) =
        tokio::task::spawn_blocking(move || other_host(role)).await.expect("no panic");
    assert!(host.wait().expect("reaped").success(), "{role}: {line}");
    assert_eq!(line, word, "{role}");
}

async fn a_child_has_no_privileges_or_descriptors() {
    expect_line_of_host("with inspected children", "bare").await;
}

async fn processes_of_the_same_user_cannot_inspect_a_child() {
    expect_line_of_host("an ordinary user who inspects children", "closed").await;
}

/// Inspects a waiting child from outside.
pub(crate) fn assert_bare(pid: u32) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let status = read("status").expect("its status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
    };
    assert_eq!(field("NoNewPrivs"), "1", "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{status}");
    }
    let limits = read("limits").expect("its limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core: Vec<&str> = core.expect("named").split_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"], "{limits}");
    // Only root can read the rest, although the child runs as the same user, because it is not dumpable.
    if !rustix::process::getuid().is_root() {
        for name in ["environ", "maps"] {
            let refused = read(name).expect_err("only root may read it");
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
        }
        let refused = std::fs::read_link(format!("/proc/{pid}/cwd")).expect_err("only root may");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        return;
    }
    let environment = read("environ").expect("its environment");
    assert_eq!(environment.trim_end_matches('\0'), "GLIBC_TUNABLES=glibc.malloc.tcache_count=127");
    let link = |name: &str| {
        let link = std::fs::read_link(format!("/proc/{pid}/{name}")).expect(name);
        link.to_string_lossy().into_owned()
    };
    assert_eq!(link("cwd"), "/");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let mut open: Vec<String> =
        open.map(|fd| fd.expect("one").file_name().to_string_lossy().into_owned()).collect();
    open.sort();
    assert_eq!(open, ["0", "1", "2", "3"]);
    for standard in &open[..3] {
        assert_eq!(link(&format!("fd/{standard}")), "/dev/null");
    }
    assert!(link("fd/3").starts_with("socket:"));
}

/// Returns the number of system call filters of a process: one in a zygote, which its forks inherit, and two in them.
pub(crate) fn filters(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count.map_or(0, |count| count.trim().parse().expect("a number"))
}

/// Tries all ways in which a process may inspect another one of the same user.
pub(crate) fn assert_closed(pid: u32) {
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: no pointer is passed.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid.cast_signed(), 0, 0) };
    let why = std::io::Error::last_os_error();
    assert!(seized == -1 && why.raw_os_error() == Some(libc::EPERM), "{pid}: {why}");
    for name in ["mem", "environ", "maps", "fd", "cwd", "exe"] {
        let path = format!("/proc/{pid}/{name}");
        let refused = match name {
            "fd" => std::fs::read_dir(path).err(),
            "cwd" | "exe" => std::fs::read_link(path).err(),
            _ => std::fs::File::open(path).err(),
        };
        let kind = refused.map(|error| error.kind());
        assert_eq!(kind, Some(std::io::ErrorKind::PermissionDenied), "{pid}: {name}");
    }
}

async fn an_inherited_descriptor_is_closed() {
    // Every process that starts now inherits this descriptor.
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

/// Runs the self-test as another host, and returns its report.
async fn self_test_of(role: &'static str) -> serde_json::Value {
    let (mut host, line) =
        tokio::task::spawn_blocking(move || other_host(role)).await.expect("no panic");
    assert!(host.wait().expect("reaped").success(), "{role}: {line}");
    serde_json::from_str(&line).expect(role)
}

fn assert_holds(seen: &serde_json::Value) {
    assert_eq!(seen["holds"], true, "{seen:#}");
    let calls = seen["calls"].as_array().expect("calls");
    let refused: Vec<&str> = calls
        .iter()
        .filter(|call| call["refused"] == true)
        .filter_map(|call| call["name"].as_str())
        .collect();
    assert!(refused.len() >= 40 && refused.len() == calls.len(), "{seen:#}");
    for table in cfg!(target_arch = "x86_64").then_some(["x32", "i386"]).iter().flatten() {
        assert!(refused.iter().any(|name| name.contains(table)), "{table}");
    }
}

/// Ordinary programs, chosen for the variety of their system calls.
const ORDINARY: [&str; 15] = [
    "[3, 1, 2].sort((a, b) => a - b).map(String).join()",
    "JSON.parse(JSON.stringify({ a: [1, { b: 'c' }], d: null })).a[1].b",
    "'2026-11-21'.replace(/([0-9]+)-([0-9]+)/u, '$2/$1').split('/').reverse().join()",
    "[...new Map([[1, 2]]).entries(), ...new Set('abc')].flat().length",
    "(2n ** 400n % 1_000_007n).toString() + new Date(0).toISOString() + Date.now()",
    "(await Promise.all([1, 2, 3].map((n) => mcp.test.echo({ n })))).length",
    "await new Promise((done) => setTimeout(done, 1, 'late'))",
    "[...(function* () { for (let n = 0; n < 100; n++) yield n; })()].length",
    "new (class { #a = 1; get a() { return this.#a } })().a",
    "new Float64Array(400_000).fill(1).reduce((a, b) => a + b)",
    "new URL('https://a.example/b?c=d').searchParams.get('c') + new TextEncoder().encode('é').length",
    "crypto.randomUUID().length + Math.random() + btoa('abc')",
    "structuredClone({ a: new Date(0), b: [1, 2, 3] }).b.length",
    "(() => { try { const f = () => f() + 1; return f(); } catch (e) { return e.name } })()",
    "(console.log('a line', { a: 1 }), 'x'.repeat(3_000_000).length)",
];

/// SB-02: the kernel itself checks this: a system call that `seal/filter.rs` does not list kills the process.
async fn ordinary_programs_need_only_the_listed_system_calls() {
    for (place, first) in ORDINARY.iter().enumerate() {
        let rest = ORDINARY.iter().enumerate().filter(|(other, _)| *other != place);
        let runs = rest
            .map(|(_, second)| async move { value(&format!("return [{first}, {second}]")).await });
        for seen in futures::future::join_all(runs).await {
            assert_eq!(seen.as_array().map(Vec::len), Some(2), "{first}: {seen}");
        }
    }
}

async fn the_self_test_holds() {
    assert_holds(&self_test_of("self-test").await);
}

async fn an_ordinary_user_has_the_same_seal() {
    assert_holds(&self_test_of("self-test as an ordinary user").await);
}

async fn without_user_namespaces_the_rest_holds() {
    let seen = self_test_of("self-test without namespaces").await;
    assert_holds(&seen);
    let layers = seen["layers"].as_array().expect("layers");
    let namespaces = layers.iter().find(|layer| layer["name"] == "namespaces").expect("named");
    assert_ne!(namespaces["state"], "holds", "{seen:#}");
}

async fn without_a_mandatory_layer_nothing_runs() {
    for layer in ["landlock", "seccomp"] {
        let role: &str = if layer == "landlock" { "no landlock" } else { "no seccomp" };
        let (mut host, line) =
            tokio::task::spawn_blocking(move || other_host(role)).await.expect("no panic");
        assert!(host.wait().expect("reaped").success(), "{role}: {line}");
        assert!(line.starts_with("unavailable") && line.contains(layer), "{role}: {line}");
    }
}
