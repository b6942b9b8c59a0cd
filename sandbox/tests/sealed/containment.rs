//! Nothing remains after a child, a pool or a host has ended, and programs do not affect each other.

use sandbox::FailureKind;

use crate::hosts::{ZYGOTE_PROCESSES, other_host};
use crate::malicious_zygote::WITH_MALICIOUS_ZYGOTE;
use crate::support::{eventually, failure, trials, value};

trials![
    children_die_with_a_killed_host,
    children_die_with_their_pool,
    many_runs_leave_nothing_behind,
    a_malicious_child_cannot_harm_the_host,
    a_long_program_is_deprioritized,
    many_children_can_start_at_once,
    programs_share_nothing,
];

async fn children_die_with_a_killed_host() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host("busy")).await.expect("no panic");
    let children: Vec<u32> =
        line.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
    assert!(children.len() >= 4 + ZYGOTE_PROCESSES, "{line}");
    host.kill().expect("kill -9");
    host.wait().expect("reaped");
    eventually("all children are gone", || {
        children.iter().all(|pid| {
            // A reused pid belongs to another program.
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_or(true, |stat| !stat.contains("(pml-sandbox)") || stat.contains(") Z "))
        })
    })
    .await;
}

async fn children_die_with_their_pool() {
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

async fn a_malicious_child_cannot_harm_the_host() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host(WITH_MALICIOUS_ZYGOTE)).await.expect("no panic");
    assert_eq!(line, "clean");
    assert!(host.wait().expect("reaped").success());
}

/// Every requested child is a descriptor in flight, and the kernel limits their number per user.
async fn many_children_can_start_at_once() {
    for role in ["crowded", "crowded, as an ordinary user"] {
        let (mut host, line) =
            tokio::task::spawn_blocking(|| other_host(role)).await.expect("no panic");
        assert_eq!(line, "all of them", "{role}");
        assert!(host.wait().expect("reaped").success());
    }
}

async fn a_long_program_is_deprioritized() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host("long")).await.expect("no panic");
    assert_eq!(line, "deprioritized");
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
