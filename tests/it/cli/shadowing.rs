//! LM-08: names that could mean two things.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};

/// A server that lists the tool `put` twice.
const TWICE: &str = r#"
import json, sys
tool = {"name": "put", "description": "First.", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, answer = request["method"], {"error": {"code": -32601, "message": "unknown"}}
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        answer = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}}
    elif method == "tools/list":
        answer = {"result": {"tools": [tool, {**tool, "description": "\x1b[31mSecond."}]}}
    elif method == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": "called"}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"#;

/// A search says why it does not have the tools of a server, instead of taking the last of two equal names.
#[test]
fn a_server_with_two_tools_of_one_name_is_not_listed() {
    let project = Project::offline();
    project.write("twice.py", TWICE);
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": {
            "twice": { "command": "python3", "args": ["twice.py"] },
            "gone": { "command": "python3", "args": ["nowhere.py"] },
        },
    }));
    let reason = "it has two tools named `put`";
    let found = text(&project.run(&["search", "twice:*"]).stdout);
    assert!(found.contains("Not searched: `twice`: ") && found.contains(reason), "{found}");
    assert!(
        found.contains("Not searched: `gone`: ") && !found.contains("have not run yet"),
        "{found}"
    );
    let found = project.run(&["search", "twice:*", "--json"]);
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["not_listed"].as_array().unwrap().len(), 2, "{found:#}");
    let types = project.run(&["types"]);
    assert!(text(&types.stderr).contains("missing: the tools of `twice`: "), "{types:?}");
    assert!(!project.read("mcp.d.ts").contains("\"put\""));
}
