//! Local MCP servers: one supervised process each, restarted after a crash, and stopped with `pml`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_cli::testing::{
    Environment, LocalMcpError, LocalServers, ServerSpec, Supervisor, Timing, Workspace,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[path = "../../tests/it/support/mcp_servers.rs"]
#[expect(dead_code, reason = "the black-box tests install more than these")]
mod mcp_servers;
#[path = "support/processes.rs"]
mod processes;

/// The deadline after which something counts as hung; nothing here takes nearly as long.
const DEADLINE: Duration = Duration::from_secs(30);

struct Bench {
    folder: tempfile::TempDir,
    servers: Arc<LocalServers>,
}

impl Bench {
    fn new(modes: &[&str]) -> Self {
        Self::with(modes, Timing::default(), BTreeMap::new())
    }

    fn with(modes: &[&str], timing: Timing, env: BTreeMap<String, String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        let path = std::env::var("PATH").unwrap();
        let pairs = [("PATH", path.as_str()), ("CANARY", "canary-1"), ("TOKEN", "t")];
        let environment = Environment::of(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
        let supervisor = Supervisor::new(env!("CARGO_BIN_EXE_pml"));
        let servers =
            LocalServers::new(workspace, Arc::new(environment), supervisor, timing, folder.path());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/strange_server.mjs");
        let mut args = vec![script.to_str().unwrap().to_owned(), "${workspace}/log".to_owned()];
        args.extend(modes.iter().map(|mode| (*mode).to_owned()));
        let spec = ServerSpec {
            command: "node".to_owned(),
            args,
            env,
            env_required: vec![],
            ..ServerSpec::default()
        };
        servers.add("strange", spec).unwrap();
        Self { folder, servers: Arc::new(servers) }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, LocalMcpError> {
        self.call_until(tool, arguments, &CancellationToken::new()).await
    }

    async fn call_until(
        &self,
        tool: &str,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, LocalMcpError> {
        let call = self.servers.call("strange", tool, arguments, cancel);
        tokio::time::timeout(DEADLINE, call).await.expect("the call hangs")
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await.unwrap();
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn starts(&self) -> usize {
        self.log().lines().filter(|line| line.starts_with("start ")).count()
    }

    /// Returns the marker of this test's processes: its folder, which is in their arguments.
    fn mark(&self) -> String {
        self.folder.path().canonicalize().unwrap().to_str().unwrap().to_owned()
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_calls_share_one_process() {
    let bench = Arc::new(Bench::new(&[]));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..20 {
        let bench = Arc::clone(&bench);
        calls.spawn(async move { bench.text("echo", json!({ "text": n })).await == n.to_string() });
    }
    assert!(calls.join_all().await.into_iter().all(|is_own| is_own));
    assert_eq!(bench.starts(), 1);
    // A slow call does not delay a fast one.
    let slow = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.text("slow", json!({ "ms": 500 })).await })
    };
    until("the slow call has begun", || bench.log().contains("call slow")).await;
    bench.text("echo", json!({ "text": "quick" })).await;
    assert!(!slow.is_finished());
    assert_eq!(slow.await.unwrap(), "slow");
}

/// LM-01: a server receives only variables on the allow-list and those of its entry.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_receives_only_allowed_variables() {
    let env = BTreeMap::from([("OWN".to_owned(), "<${TOKEN}>".to_owned())]);
    let bench = Bench::with(&[], Timing::default(), env);
    let seen: BTreeMap<String, String> =
        serde_json::from_str(&bench.text("env", json!({})).await).unwrap();
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ["OWN", "PATH"]);
    assert_eq!(seen["OWN"], "<t>");
    let refused = ServerSpec {
        command: "node".to_owned(),
        args: vec![],
        env: BTreeMap::from([("LD_PRELOAD".to_owned(), "x".to_owned())]),
        env_required: vec![],
        ..ServerSpec::default()
    };
    assert!(matches!(
        bench.servers.add("other", refused.clone()),
        Err(LocalMcpError::Environment { .. })
    ));
    let needs = ServerSpec {
        env: BTreeMap::new(),
        env_required: vec!["TAVILY_API_KEY".to_owned()],
        ..refused
    };
    bench.servers.add("other", needs).unwrap();
    let error =
        bench.servers.call("other", "x", json!({}), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), protocol::ErrorCode::ApiKeyRequired);
    assert!(error.to_string().contains("TAVILY_API_KEY"), "{error}");
}

/// LM-02: arguments are passed unchanged, without a shell.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_literal() {
    let strange =
        ["; touch sentinel", "$(touch sentinel)", "`touch sentinel`", "a\nb", "*", "--", "~"];
    let bench = Bench::new(&strange);
    assert_eq!(bench.text("argv", json!({})).await, json!(strange).to_string());
    assert_eq!(bench.text("cwd", json!({})).await, bench.mark());
    assert!(!bench.folder.path().join("sentinel").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_its_call_at_once_and_the_next_call_restarts() {
    let bench = Bench::new(&[]);
    bench.text("echo", json!({ "text": 1 })).await;
    let started = Instant::now();
    let error = bench.call("crash", json!({})).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(10), "the crash was noticed only by a timeout");
    let message = error.to_string();
    assert!(message.contains("exit code 7") && message.contains("segmentation"), "{message}");
    assert_eq!(bench.text("echo", json!({ "text": 2 })).await, "2");
    assert_eq!(bench.starts(), 2);
    // The call that crashed it was not repeated.
    assert_eq!(bench.log().matches("call crash").count(), 1);
}

/// LM-11: a server that crashes at each start is restarted with growing delays.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_is_slowed_down() {
    let bench = Bench::new(&["die-at-once"]);
    let mut messages = Vec::new();
    for _ in 0..20 {
        messages.push(bench.call("echo", json!({})).await.unwrap_err().to_string());
    }
    assert!(
        messages[0].contains("exit code 3") && messages[0].contains("the disk is on fire"),
        "{}",
        messages[0]
    );
    assert!(
        messages[19].contains("failed") && messages[19].contains("next start"),
        "{}",
        messages[19]
    );
    assert!((2..10).contains(&bench.starts()), "{} starts", bench.starts());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_is_stopped_but_never_during_a_call() {
    let timing = Timing { idle: Duration::from_millis(300), ..Timing::default() };
    let bench = Bench::with(&[], timing, BTreeMap::new());
    assert_eq!(bench.text("slow", json!({ "ms": 1500 })).await, "slow");
    assert_eq!(bench.starts(), 1);
    let mark = bench.mark();
    until("the idle server is stopped", || processes::marked(&mark).is_empty()).await;
    assert_eq!(bench.text("echo", json!({ "text": "again" })).await, "again");
    assert_eq!(bench.starts(), 2);
}

/// LM-13: the server is notified of a cancelled call, and a hung server is stopped after the grace time.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_notified_of_a_cancelled_call_and_stopped_if_hung() {
    let timing = Timing { cancel_grace: Duration::from_millis(500), ..Timing::default() };
    let bench = Arc::new(Bench::with(&["stays"], timing, BTreeMap::new()));
    for (tool, arguments) in
        [("never", json!({})), ("slow", json!({ "ms": 300 })), ("hang", json!({}))]
    {
        let cancel = CancellationToken::new();
        let call = {
            let (bench, cancel) = (Arc::clone(&bench), cancel.clone());
            let (tool, arguments) = (tool.to_owned(), arguments.clone());
            tokio::spawn(async move { bench.call_until(&tool, arguments, &cancel).await })
        };
        until("the call has arrived", || bench.log().contains(&format!("call {tool}"))).await;
        cancel.cancel();
        assert!(matches!(call.await.unwrap(), Err(LocalMcpError::Cancelled { .. })));
        if tool != "hang" {
            let notices = if tool == "never" { 1 } else { 2 };
            until("the server was notified", || {
                bench.log().matches("cancelled ").count() == notices
            })
            .await;
            assert_eq!(bench.text("echo", json!({ "text": tool })).await, tool);
            assert_eq!(bench.starts(), 1, "a server that answers is not restarted");
        }
    }
    let mark = bench.mark();
    until("the hung server is ended", || processes::marked(&mark).is_empty()).await;
    assert_eq!(bench.text("echo", json!({ "text": "back" })).await, "back");
}

/// LM-09: invalid output of a server causes a typed error, and is limited.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_output_is_limited() {
    let noisy = Bench::new(&["noise"]);
    assert_eq!(noisy.text("echo", json!({ "text": "ok" })).await, "ok");
    assert_eq!(noisy.text("ask", json!({})).await, "asked");
    assert_eq!(noisy.call("fails", json!({})).await.unwrap()["isError"], true);
    let odd = noisy.call("odd", json!({})).await.unwrap_err();
    assert!(matches!(odd, LocalMcpError::Answer { .. }), "{odd}");
    let unknown = noisy.call("unknown", json!({})).await.unwrap_err();
    assert!(matches!(unknown, LocalMcpError::Refused { code: -32602, .. }), "{unknown}");
    let array = noisy.call("echo", json!([1])).await.unwrap_err();
    assert!(matches!(array, LocalMcpError::Arguments { .. }), "{array}");
    assert_eq!(noisy.starts(), 1);
    let large = "x".repeat(8 * 1024 * 1024);
    assert_eq!(noisy.text("echo", json!({ "text": large })).await.len(), large.len());
    let error = noisy.call("huge", json!({ "size": 64 * 1024 * 1024 })).await.unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
    assert_eq!(noisy.text("echo", json!({ "text": "alive" })).await, "alive");

    let babbler = Bench::new(&["not-mcp"]);
    let error = babbler.call("echo", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("not MCP messages"), "{error}");
    for mode in ["twins", "endless"] {
        let bench = Bench::new(&[mode]);
        let error = bench
            .servers
            .tools("strange", &|| Ok(()), &CancellationToken::new())
            .await
            .unwrap_err();
        assert!(matches!(error, LocalMcpError::Answer { .. }), "{mode}: {error}");
    }
    let plain = Bench::new(&[]);
    let tools =
        plain.servers.tools("strange", &|| Ok(()), &CancellationToken::new()).await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "echo"));
}

/// LM-09: an invalid answer fails the call at once, not after a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_answer_fails_the_call() {
    for how in ["cut", "deep", "surrogate", "number"] {
        let bench = Bench::new(&[]);
        let error = bench.call("garbled", json!({ "how": how })).await.unwrap_err();
        assert!(error.to_string().contains("an invalid message"), "{how}: {error}");
        assert_eq!(bench.text("echo", json!({ "text": "alive" })).await, "alive");
    }
}

/// CL-03: a server that does not answer its first request does not delay the shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn a_pending_start_does_not_delay_the_shutdown() {
    let bench = Arc::new(Bench::new(&["mute"]));
    let call = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.call("echo", json!({ "text": "x" })).await })
    };
    until("the server has been asked", || bench.log().contains("mute ")).await;
    let begun = Instant::now();
    bench.servers.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    call.await.unwrap().unwrap_err();
    until("its process is gone", || processes::marked(&bench.mark()).is_empty()).await;
    // No server starts after the shutdown.
    let starts = bench.starts();
    bench.call("echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(bench.starts(), starts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_of_the_new_protocol_gets_the_old_handshake() {
    let bench = Bench::new(&["dies-of-discover"]);
    assert_eq!(bench.text("echo", json!({ "text": "old" })).await, "old");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_what_is_missing() {
    let bench = Bench::new(&[]);
    let none = CancellationToken::new();
    let error = bench.servers.call("unknown", "x", json!({}), &none).await.unwrap_err();
    assert_eq!(error.code(), protocol::ErrorCode::ToolNotFound);
    let spec = |command: &str| ServerSpec {
        command: command.to_owned(),
        args: vec![],
        env: BTreeMap::new(),
        env_required: vec![],
        ..ServerSpec::default()
    };
    bench.servers.add("absent", spec("no-such-program-here")).unwrap();
    let error = bench.servers.call("absent", "x", json!({}), &none).await.unwrap_err();
    assert!(error.to_string().contains("no-such-program-here"), "{error}");
    bench.servers.add("absent", spec("no-such-program-here")).unwrap();
    let twice = bench.servers.add("absent", spec("other")).unwrap_err();
    assert!(matches!(twice, LocalMcpError::Duplicate { .. }));
    bench
        .servers
        .add("silent", ServerSpec { args: vec!["1000".to_owned()], ..spec("sleep") })
        .unwrap();
    bench.servers.add("short", spec("true")).unwrap();
    let error = bench.servers.call("short", "x", json!({}), &none).await.unwrap_err();
    assert!(error.to_string().contains("ended before it answered"), "{error}");
}

/// LM-12: descendants in other sessions, and orphans, are killed too.
#[tokio::test(flavor = "multi_thread")]
async fn no_process_is_left_after_the_shutdown() {
    for by_drop in [true, false] {
        let bench = Bench::new(&["stays"]);
        let mark = bench.mark();
        bench.text("orphan", json!({ "mark": mark })).await;
        let before = processes::marked(&mark);
        assert!(before.len() >= 4, "supervisor, server and two orphans: {before:?}");
        if by_drop {
            drop(bench);
        } else {
            bench.servers.shutdown().await;
        }
        until("all are gone", || processes::marked(&mark).is_empty()).await;
    }
}

/// LM-12: no process is left after `kill -9` in the middle of a call, neither of a server with orphans nor of `npx`
/// that starts `node`.
#[tokio::test(flavor = "multi_thread")]
async fn no_process_is_left_after_kill_9() {
    // Installed here, so that it does not count against the deadline of the driver.
    mcp_servers::npm(mcp_servers::SERVERS);
    for kind in ["strange", "npx"] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mark = root.to_str().unwrap().to_owned();
        let mut driver = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "driver_of_the_kill_9_test", "--nocapture"])
            .env("PML_TEST_DRIVER", kind)
            .env("PML_TEST_DRIVER_FOLDER", &root)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let ready = root.join("ready");
        until("the driver is in a call", || ready.exists()).await;
        let before = processes::marked(&mark);
        assert!(before.len() >= 3, "{kind}: {before:?}");
        driver.kill().unwrap();
        driver.wait().unwrap();
        until("all are gone", || processes::marked(&mark).is_empty()).await;
    }
}

/// Not a separate test: the process that the test above kills.
#[tokio::test(flavor = "multi_thread")]
async fn driver_of_the_kill_9_test() {
    let Ok(kind) = std::env::var("PML_TEST_DRIVER") else { return };
    let root = PathBuf::from(std::env::var("PML_TEST_DRIVER_FOLDER").unwrap());
    let workspace = Arc::new(Workspace::open(&root).unwrap());
    let environment = Arc::new(Environment::load(&workspace));
    let supervisor = Supervisor::new(env!("CARGO_BIN_EXE_pml"));
    let servers = LocalServers::new(workspace, environment, supervisor, Timing::default(), &root);
    let none = CancellationToken::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/strange_server.mjs");
    let (command, args, first, long) = if kind == "npx" {
        let packages = mcp_servers::npm(mcp_servers::SERVERS);
        let args = vec![
            "--offline".to_owned(),
            "--prefix".to_owned(),
            packages.to_str().unwrap().to_owned(),
            "mcp-server-filesystem".to_owned(),
            "${workspace}".to_owned(),
        ];
        ("npx", args, ("list_directory", json!({ "path": root })), None)
    } else {
        let args = vec![
            script.to_str().unwrap().to_owned(),
            "${workspace}/log".to_owned(),
            "stays".to_owned(),
        ];
        ("node", args, ("orphan", json!({ "mark": root })), Some(("never", json!({}))))
    };
    let spec = ServerSpec {
        command: command.to_owned(),
        args,
        env: BTreeMap::new(),
        env_required: vec![],
        ..ServerSpec::default()
    };
    servers.add("driven", spec).unwrap();
    let started = servers.call("driven", first.0, first.1, &none).await;
    assert!(started.is_ok(), "{started:?}");
    std::fs::write(root.join("ready"), "").unwrap();
    match long {
        Some((tool, arguments)) => drop(servers.call("driven", tool, arguments, &none).await),
        None => std::future::pending().await,
    }
}
