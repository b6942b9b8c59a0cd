//! However a run or a process ends, nothing is left behind and the rest lives on.

use std::time::Duration;

use serde_json::json;

use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::processes::Pid;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll, scaled};

/// A project with the memory server and every tool allowed.
fn with_memory_server() -> Project {
    let project = Project::new();
    let memory = project.node_server("server-memory", &[]);
    project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": { "memory": memory },
    }))
}

/// Starts the memory server, tells by a file that it runs, then waits in a child for ever.
const BUSY: &str = "
    await mcp.memory.create_entities({ entities: [{ name: 'a', entityType: 'b', observations: [] }] });
    await mcp.filesystem.write_file({ path: 'busy', content: '' });
    await mcp.shell.exec({ command: ['sleep', '280'], timeout_ms: 290000 });";

fn begin_busy(project: &Project) -> (StdioClient, u64) {
    let mut pml = project.stdio();
    let id = pml.begin(BUSY);
    poll("the program to reach its last call", PATIENCE, || {
        project.path("busy").exists().then_some(())
    });
    poll("the last call's process to run", PATIENCE, || {
        pml.pid().tree().iter().any(|pid| pid.command_line().contains("sleep 280")).then_some(())
    });
    (pml, id)
}

fn gone(tree: &[Pid], patience: Duration) {
    poll("every process of the tree to be gone", patience, || {
        tree.iter().all(|pid| !pid.is_alive()).then_some(())
    });
}

/// `kill -9` of `pml stdio` in the middle of a run leaves no process behind.
#[test]
fn kill_nine_of_pml_leaves_no_child() {
    let project = with_memory_server();
    for _ in 0..scaled(10) {
        let _ = std::fs::remove_file(project.path("busy"));
        let (pml, _) = begin_busy(&project);
        let tree = pml.pid().tree();
        let shown: Vec<String> = tree.iter().map(|pid| pid.command_line()).collect();
        assert!(shown.iter().any(|line| line.contains("server-memory")), "{shown:?}");
        pml.pid().signal("KILL");
        // Three seconds are the promise; a loaded machine gets some more to prove it.
        gone(&tree[1..], Duration::from_secs(10));
    }
}

/// CL-03: the end of stdin, TERM, INT and HUP end `pml stdio` and all that it started.
#[test]
fn a_client_that_leaves_takes_everything_along() {
    for end in ["eof", "TERM", "INT", "HUP"] {
        let project = with_memory_server();
        let (mut pml, _) = begin_busy(&project);
        let tree = pml.pid().tree();
        match end {
            "eof" => pml.hang_up(),
            signal => pml.pid().signal(signal),
        }
        pml.wait();
        gone(&tree, Duration::from_secs(20));
    }
}

/// A cancelled request ends its run: the sandbox, the call and its process; `pml` lives on.
#[test]
fn a_cancelled_request_ends_its_run() {
    let project = with_memory_server();
    let (mut pml, id) = begin_busy(&project);
    let sleeps: Vec<Pid> = pml
        .pid()
        .tree()
        .into_iter()
        .filter(|pid| pid.command_line().contains("sleep 280"))
        .collect();
    pml.notify("notifications/cancelled", json!({ "requestId": id, "reason": "no longer wanted" }));
    gone(&sleeps, Duration::from_secs(20));
    assert_eq!(success(&pml.execute("return await mcp.math.eval({ expression: '1 + 1' })")), 2);
}

/// SB: a sandbox child that is killed ends its own run and no other.
#[test]
fn a_killed_sandbox_ends_one_run() {
    let project = with_memory_server();
    let (mut pml, id) = begin_busy(&project);
    // What descends from `pml`, is its own program and is no supervisor, is a sandbox or analyser.
    let own = std::fs::read_link(format!("/proc/{}/exe", pml.pid().number)).unwrap();
    let children: Vec<Pid> = pml.pid().tree()[1..]
        .iter()
        .copied()
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{}/exe", pid.number)).is_ok_and(|exe| exe == own)
        })
        .filter(|pid| pid.tree().len() == 1)
        .collect();
    assert!(!children.is_empty());
    // The first process of a namespace is the oldest, and takes the others along.
    for child in children.iter().rev() {
        child.signal("KILL");
    }
    let answer = pml.answer(id);
    failure(&answer["result"]["structuredContent"], "SANDBOX_CRASHED");
    poll("`pml` to run programs again", PATIENCE, || {
        let envelope =
            pml.execute("return typeof await mcp.filesystem.list_directory({ path: '.' })");
        (envelope["status"] == "success").then_some(())
    });
}

/// A killed MCP server is told at once, and the next call starts a new one.
#[test]
fn a_killed_mcp_server_is_told_and_restarted() {
    let project = with_memory_server();
    let mut pml = project.stdio();
    let graph = "return await mcp.memory.read_graph({})";
    success(&pml.execute(graph));
    for pid in pml.pid().tree() {
        if pid.command_line().starts_with("node ") || pid.command_line().contains("/node ") {
            pid.signal("KILL");
        }
    }
    poll("the server to be started again", PATIENCE, || {
        let envelope = pml.execute(graph);
        assert!(
            envelope["status"] == "success" || envelope["error_code"] == "TOOL_UNAVAILABLE",
            "{envelope:#}"
        );
        (envelope["status"] == "success").then_some(())
    });
}

/// killed sandbox children of the gateway end their runs; the gateway lives on.
#[test]
fn killed_children_of_the_gateway_are_replaced() {
    let server = Installation::new().start();
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    success(&client.execute("return 1"));
    let own = std::fs::read_link(format!("/proc/{}/exe", server.pid().number)).unwrap();
    for pid in &server.pid().tree()[1..] {
        if std::fs::read_link(format!("/proc/{}/exe", pid.number)).is_ok_and(|exe| exe == own) {
            let _ = std::process::Command::new("kill")
                .args(["-KILL", &pid.number.to_string()])
                .status();
        }
    }
    poll("the gateway to run programs again", PATIENCE, || {
        let envelope = client.execute("return await mcp.math.eval({ expression: '2' })");
        (envelope["status"] == "success").then_some(())
    });
    assert!(server.pid().is_alive());
    assert_eq!(server.stop(), Some(0));
}

/// An HTTP client that goes away in the middle of a run frees its place.
#[test]
fn an_http_client_that_disconnects_costs_nothing() {
    use std::io::Write as _;
    let server = Server::shared();
    let tenant = server.tenant();
    let address = server.url().strip_prefix("http://").unwrap();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    for _ in 0..scaled(100) {
        let arguments = json!({ "name": "pml_execute", "arguments": { "code": "for (;;) {}" } });
        let body = Era::Stateless.request(1, "tools/call", arguments).to_string();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: pml_execute\r\ncontent-length: {}\r\n\r\n{body}",
            tenant.key,
            body.len()
        )
        .unwrap();
        drop(stream);
    }
    assert_eq!(success(&client.execute("return await mcp.math.eval({ expression: '3' })")), 3);
}

/// TERM lets the gateway end in order, with its database.
#[test]
fn the_gateway_ends_in_order() {
    let server = Installation::new().start();
    success(&HttpMcp::new(&server.tenant(), Era::Handshake).execute("return 1"));
    let tree = server.pid().tree();
    assert_eq!(server.stop(), Some(0));
    gone(&tree, Duration::from_secs(20));
}
