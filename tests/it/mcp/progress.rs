//! Progress notifications for a `progressToken`, in both protocol generations and on both transports.

use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::cli::Project;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Server;

const TWO_CALLS: &str = "const a = await mcp.math.eval({ expression: '1 + 1' });
    await new Promise((go) => setTimeout(go, 200));
    return await mcp.math.eval({ expression: `${a} * 21` });";

fn params(code: &str) -> Value {
    json!({ "name": "pml_execute", "arguments": { "code": code }, "_meta": { "progressToken": "t-1" } })
}

/// Returns the messages of an event stream.
fn messages(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
}

/// Asserts that the progress increases, has the token, and precedes the answer.
#[track_caller]
fn assert_progress(messages: &[Value], least: usize) {
    let (answer, before) = messages.split_last().unwrap_or_else(|| panic!("no messages"));
    assert!(answer["result"].is_object(), "{messages:?}");
    assert!(before.len() >= least, "{messages:?}");
    let mut last = -1.0;
    for message in before {
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(message["params"]["progressToken"], "t-1", "{message}");
        let progress =
            message["params"]["progress"].as_f64().unwrap_or_else(|| panic!("{message}"));
        assert!(progress > last, "{messages:?}");
        last = progress;
    }
}

#[test]
fn progress_is_reported_after_each_call_over_http() {
    let tenant = Server::shared().tenant();
    for era in [Era::Handshake, Era::Stateless] {
        let http = HttpMcp::new(&tenant, era);
        let body = era.request(1, "tools/call", params(TWO_CALLS)).to_string();
        let reply = http.post(body.as_bytes(), "tools/call", Some("pml_execute"));
        assert_eq!(reply.header("content-type"), "text/event-stream", "{era:?}");
        let messages = messages(&reply.body);
        assert_progress(&messages, 2);
        let message = messages[1]["params"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("2 tool calls"), "{messages:?}");
        assert_eq!(messages.last().unwrap()["result"]["structuredContent"]["result"], 42);
    }
    // Without a token, the answer is one JSON document.
    let http = HttpMcp::new(&tenant, Era::Handshake);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "pml_execute", "arguments": { "code": TWO_CALLS } } });
    let reply = http.post(body.to_string().as_bytes(), "tools/call", Some("pml_execute"));
    assert_eq!(reply.header("content-type"), "application/json");
}

/// A run on the user's machine reports progress after each call, and periodically if no call ends.
#[test]
fn progress_is_reported_on_stdio_even_without_calls() {
    let project = Project::new().allow(&["filesystem:*"]);
    let calls = "await mcp.filesystem.list_directory({ path: '.' });
        await new Promise((go) => setTimeout(go, 200));
        await mcp.filesystem.list_directory({ path: '.' }); return 1;";
    let quiet = "await mcp.filesystem.list_directory; await new Promise((go) => setTimeout(go, 6_000)); return 1;";
    for mut pml in [project.stdio(), project.stdio_stateless()] {
        for (code, least) in [(calls, 2), (quiet, 1)] {
            let id = pml.send("tools/call", params(code));
            let mut messages = Vec::new();
            while messages.last().is_none_or(|message: &Value| message["id"] != id) {
                messages.push(pml.next_message(PATIENCE).expect("an answer"));
            }
            assert_progress(&messages, least);
        }
    }
}
