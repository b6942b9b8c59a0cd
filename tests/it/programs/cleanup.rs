//! Clean-up: however a run or a process ends, no process is left behind and everything else continues.

use std::time::Duration;

use serde_json::json;

use crate::support::cli::{Project, policy_for};
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
        "policy": policy_for(&["sleep"]),
        "mcpServers": { "memory": memory },
    }))
}

/// Starts the memory server, creates the file `busy`, then waits for a long-running child process.
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

fn wait_until_ended(tree: &[Pid], patience: Duration) {
    poll("every process of the tree to end", patience, || {
        tree.iter().all(|pid| !pid.is_alive()).then_some(())
    });
}

/// `kill -9` of `pml stdio` during a run leaves no process behind.
#[test]
fn sigkill_of_pml_leaves_no_child_process() {
    let project = with_memory_server();
    for _ in 0..scaled(10) {
        let _ = std::fs::remove_file(project.path("busy"));
        let (pml, _) = begin_busy(&project);
        let tree = pml.pid().tree();
        let shown: Vec<String> = tree.iter().map(|pid| pid.command_line()).collect();
        assert!(shown.iter().any(|line| line.contains("server-memory")), "{shown:?}");
        pml.pid().signal("KILL");
        // Three seconds are promised; a loaded machine gets more.
        wait_until_ended(&tree[1..], Duration::from_secs(10));
    }
}

/// CL-03: the end of stdin, TERM, INT and HUP end `pml stdio` and every process that it started.
#[test]
fn eof_and_signals_end_pml_and_all_its_child_processes() {
    for end in ["eof", "TERM", "INT", "HUP"] {
        let project = with_memory_server();
        let (mut pml, _) = begin_busy(&project);
        let tree = pml.pid().tree();
        match end {
            "eof" => pml.hang_up(),
            signal => pml.pid().signal(signal),
        }
        pml.wait();
        wait_until_ended(&tree, Duration::from_secs(20));
    }
}

/// Cancelling a request ends its run with the process of the pending call. `pml` continues to serve.
#[test]
fn a_cancelled_request_ends_its_run_and_processes() {
    let project = with_memory_server();
    let (mut pml, id) = begin_busy(&project);
    let sleeps: Vec<Pid> = pml
        .pid()
        .tree()
        .into_iter()
        .filter(|pid| pid.command_line().contains("sleep 280"))
        .collect();
    pml.notify("notifications/cancelled", json!({ "requestId": id, "reason": "no longer wanted" }));
    wait_until_ended(&sleeps, Duration::from_secs(20));
    assert_eq!(success(&pml.execute("return await mcp.math.eval({ expression: '1 + 1' })")), 2);
}

/// SB: a sandbox child that is killed ends its own run and no other.
#[test]
fn a_killed_sandbox_child_ends_only_its_own_run() {
    let project = with_memory_server();
    let (mut pml, id) = begin_busy(&project);
    // Descendants with the same executable and without children are sandbox or analyser processes; supervisors of MCP
    // servers have children.
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
    // The oldest is the first process of a PID namespace, whose death kills the others, so it is killed last.
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

/// After an MCP server was killed, a call fails with `TOOL_UNAVAILABLE` or starts it again.
#[test]
fn a_killed_mcp_server_is_reported_and_restarted() {
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

/// the gateway survives the death of its sandbox children and starts new ones.
#[test]
fn killed_sandbox_children_of_the_gateway_are_replaced() {
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

/// When an HTTP client disconnects during a run, the run ends and frees its place.
#[test]
fn disconnected_http_clients_free_their_places() {
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

/// TERM ends the gateway and its private Postgres with exit code 0.
#[test]
fn sigterm_ends_the_gateway_and_its_database() {
    let server = Installation::new().start();
    success(&HttpMcp::new(&server.tenant(), Era::Handshake).execute("return 1"));
    let tree = server.pid().tree();
    assert_eq!(server.stop(), Some(0));
    wait_until_ended(&tree, Duration::from_secs(20));
}
