//! What remains after a child, a pool or a host has ended.

use sandbox::FailureKind;

use crate::hosts::{OF_A_ZYGOTE, other_host};
use crate::liar::LIED_TO;
use crate::support::{eventually, failure, trials, value};

trials![
    no_child_outlives_a_killed_host,
    no_child_outlives_its_pool,
    many_runs_leave_nothing_behind,
    a_child_that_lies_harms_nobody,
    a_long_program_makes_way,
    many_children_may_be_wanted_at_once,
    programs_share_nothing,
];

async fn no_child_outlives_a_killed_host() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host("busy")).await.expect("no panic");
    let children: Vec<u32> =
        line.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
    assert!(children.len() >= 4 + OF_A_ZYGOTE, "{line}");
    host.kill().expect("kill -9");
    host.wait().expect("reaped");
    eventually("all children are gone", || {
        children.iter().all(|pid| {
            // If the pid is in use again, it belongs to another program.
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

async fn a_child_that_lies_harms_nobody() {
    let (mut host, line) =
        tokio::task::spawn_blocking(|| other_host(LIED_TO)).await.expect("no panic");
    assert_eq!(line, "clean");
    assert!(host.wait().expect("reaped").success());
}

/// Every requested child is a descriptor in flight, and the kernel limits how many of those a user has.
async fn many_children_may_be_wanted_at_once() {
    for role in ["crowded", "crowded, as an ordinary user"] {
        let (mut host, line) =
            tokio::task::spawn_blocking(|| other_host(role)).await.expect("no panic");
        assert_eq!(line, "all of them", "{role}");
        assert!(host.wait().expect("reaped").success());
    }
}

async fn a_long_program_makes_way() {
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
