//! SB-17: a compromised sandbox process that sends its own frames to the host.

use std::fs::File;
use std::io::Write as _;
use std::thread;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::Value;

use crate::skipped::skipped;
use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::processes::Pid;
use crate::support::server::Installation;
use crate::support::{PATIENCE, poll};

/// The size by which the test recognises the process of the program.
const BYTES: u64 = 40_000_000;
/// A program that waits while the test writes to the socket of its process.
const PROGRAM: &str = "
    await mcp.math.eval({ expression: '1' });
    const large = new Uint8Array(40_000_000).fill(1);
    await new Promise((done) => setTimeout(done, 2_000));
    return large.length";

/// Returns the child's end of the socket between the host and the process with the large array.
pub(crate) fn socket_of_the_program(host: Pid) -> File {
    let child = poll("the program's process", PATIENCE, || {
        let tree = host.tree();
        tree.into_iter().find(|pid| {
            // Forks keep the command line of the zygote.
            pid.command_line().ends_with("zygote")
                && pid.tree().len() == 1
                && pid.tree_memory() > BYTES
        })
    });
    let number = i32::try_from(child.number).expect("a number");
    let number = rustix::process::Pid::from_raw(number).expect("a number");
    let pidfd = pidfd_open(number, PidfdFlags::empty()).expect("it lives");
    // The socket is descriptor 3, the only one that the child has.
    pidfd_getfd(pidfd, 3, PidfdGetfdFlags::empty()).expect("root may take it").into()
}

fn frame(id: u64, namespace: &str, action: &str) -> Vec<u8> {
    let args = serde_json::json!({ "expression": "2" });
    frame_with(id, namespace, action, &args)
}

/// Encodes a call as a sandbox child does: a length prefix and JSON.
pub(crate) fn frame_with(id: u64, namespace: &str, action: &str, args: &Value) -> Vec<u8> {
    let body = serde_json::json!({
        "type": "rpc_call", "id": id, "namespace": namespace, "action": action, "args": args,
    });
    let body = body.to_string();
    [&u32::try_from(body.len()).expect("short").to_le_bytes()[..], body.as_bytes()].concat()
}

/// The host refuses and records calls that the analysis did not declare, whatever the child sends.
#[test]
fn undeclared_calls_of_a_compromised_sandbox_are_refused() {
    if !rustix::process::geteuid().is_root() {
        skipped!("only root may speak for another process");
    }
    let server = Installation::new().start();
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    let envelope = thread::scope(|scope| {
        let run = scope.spawn(|| client.execute(PROGRAM));
        let mut socket = socket_of_the_program(server.pid());
        let foreign = [("json", "parse"), ("pml.mcp.math", "eval"), ("filesystem", "read_file")];
        for (id, (namespace, action)) in (2..).zip(foreign) {
            socket.write_all(&frame(id, namespace, action)).expect("the host listens");
        }
        socket.write_all(&frame(5, "math", "eval")).expect("the host still listens");
        run.join().expect("no panic")
    });
    assert_eq!(success(&envelope), 40_000_000);
    let calls: Vec<(&str, bool, &str)> = envelope["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| {
            let text = |key: &str| call[key].as_str().unwrap_or_default();
            (text("tool"), call["ok"] == Value::Bool(true), text("error_code"))
        })
        .collect();
    let expected = [
        ("math:eval", true),
        ("json:parse", false),
        ("pml.mcp.math:eval", false),
        ("filesystem:read_file", false),
        ("math:eval", true),
    ];
    let made: Vec<(&str, bool)> = calls.iter().map(|call| (call.0, call.1)).collect();
    assert_eq!(made, expected, "{envelope:#}");
    let refusals = |log: String| log.matches("did not declare").count();
    assert_eq!(refusals(server.installation().log()), 3);
}
