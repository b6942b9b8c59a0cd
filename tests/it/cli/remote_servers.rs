//! MCP servers behind HTTP that `.pml.json` names: `pml` calls them itself.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::guard::{self, Guarded};
use crate::support::http::get;
use crate::support::mcp_servers::server_script;
use crate::support::upstream::Everything;
use crate::support::{PATIENCE, poll};

/// A server that tells what it was sent: headers by the tool `headers`, a refusal by `refuse`, nothing by `wait`.
/// `/moved` sends everybody to the address that the command line names.
const TELLTALE: &str = r#"
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self): self.answer(405)
    def do_DELETE(self): self.answer(200)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(self.path, flush=True)
        if self.path == "/moved":
            return self.answer(307, Location=sys.argv[1])
        m = json.loads(body)
        if "id" not in m:
            print("@ " + m["method"], flush=True)
            return self.answer(202)
        def result(value): self.answer(200, json.dumps({"jsonrpc": "2.0", "id": m["id"], **value}).encode())
        if m["method"] == "initialize":
            result({"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}})
        elif m["method"] == "tools/list":
            result({"result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ["headers", "refuse", "wait", "flood"]]}})
        elif m["method"] != "tools/call":
            result({"error": {"code": -32601, "message": "no such method"}})
        elif m["params"]["name"] == "headers":
            told = {k.lower(): v for k, v in self.headers.items()}
            result({"result": {"content": [{"type": "text", "text": json.dumps(told)}], "structuredContent": told}})
        elif m["params"]["name"] == "flood":
            result({"result": {"content": [{"type": "text", "text": "x" * (20 << 20)}]}})
        elif m["params"]["name"] == "wait":
            threading.Event().wait(30)
        else:
            result({"error": {"code": -32000, "message": "not with " + str(self.headers["Authorization"])}})
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"#;

struct Telltale {
    program: Arc<Guarded>,
    url: String,
}

impl Telltale {
    fn start(moved_to: &str) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", TELLTALE, moved_to]);
        python.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let program = Guarded::start(&python, &guard::folder("t").join("log"));
        let url = program.line(PATIENCE, |line| line.starts_with("http://")).expect("it starts");
        Self { program, url }
    }

    fn entry(&self) -> Value {
        json!({ "type": "http", "url": format!("{}/mcp", self.url), "headers": {
            "Authorization": "Bearer ${TELL_TOKEN}", "X-Written": "a-written-secret" } })
    }
}

impl Drop for Telltale {
    fn drop(&mut self) {
        self.program.stop();
    }
}

fn with(entry: &Value) -> Project {
    let config = json!({ "mcpServers": { "docs": entry }, "permissions": { "allow": ["docs:*"] } });
    Project::offline().set("TELL_TOKEN", "tell-canary-7").configure(&config)
}

/// The reference server of the protocol's authors, and one on the Python SDK, which speaks both eras.
#[test]
fn a_real_server_behind_http_is_called() {
    // It takes no port 0; one that was free a moment ago is free still.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut node = Command::new("node");
    node.arg(server_script("server-everything")).arg("streamableHttp");
    node.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("PORT", port.to_string());
    let program = Guarded::start(&node, &guard::folder("u").join("log"));
    let url = format!("http://127.0.0.1:{port}/mcp");
    poll("the server to listen", PATIENCE, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(())
    });
    for kind in [json!("http"), json!("streamable-http"), Value::Null] {
        let mut entry = json!({ "url": url });
        if !kind.is_null() {
            entry["type"] = kind;
        }
        let project = with(&entry);
        let code = "const said = await mcp.docs.echo({ message: 'hello' });
            const sum = await mcp.docs['get-sum']({ a: 2, b: 3 });
            return [said, sum];";
        let value = success(&project.exec(code).0).clone();
        assert!(value[0].as_str().unwrap().ends_with("hello"), "{value}");
        assert!(value[1].to_string().contains('5'), "{value}");
    }
    program.stop();
    let newer = Everything::start();
    let project = with(&json!({ "type": "http", "url": newer.url }));
    let value = success(&project.exec("return await mcp.docs.test_simple_text({})").0).clone();
    assert_eq!(value, "This is a simple text response for testing.");
    assert!(get(&newer.url, &[]).status != 0, "it still runs");
}

/// Headers are filled in and sent, and their values come back in nothing: results, errors, logs.
#[test]
fn headers_are_sent_and_never_come_back() {
    let telltale = Telltale::start("http://127.0.0.1:1/");
    let project = with(&telltale.entry()).set("PML_LOG", "trace");
    let output = project.run_with(
        &["exec", "-", "--json"],
        b"const told = await mcp.docs.headers({});
          let why; try { await mcp.docs.refuse({}) } catch (error) { why = error.message }
          return { told, why, sent: told.authorization.length, other: told['x-written'] };",
    );
    let (out, log) = (text(&output.stdout), text(&output.stderr));
    let value = success(&serde_json::from_str(&out).unwrap()).clone();
    assert_eq!(
        (&value["told"]["authorization"], &value["other"]),
        (&json!("[redacted]"), &json!("[redacted]"))
    );
    assert!(value["why"].as_str().unwrap().contains("not with [redacted]"), "{value}");
    for secret in ["tell-canary-7", "a-written-secret"] {
        assert!(!out.contains(secret) && !log.contains(secret), "{out}\n{log}");
    }
    // A variable that is not set is told before anything is sent.
    let (envelope, _) = project.set("TELL_TOKEN", "").exec("return await mcp.docs.headers({})");
    assert_eq!(envelope["error_code"], "API_KEY_REQUIRED", "{envelope}");
    assert!(envelope["message"].as_str().unwrap().contains("TELL_TOKEN"), "{envelope}");
}

/// No redirect is followed, no proxy asked for this machine, no answer without end read.
#[test]
fn a_server_behind_http_has_its_bounds() {
    let target = Telltale::start("http://127.0.0.1:1/");
    let telltale = Telltale::start(&target.url);
    let mut moved = telltale.entry();
    moved["url"] = json!(format!("{}/moved", telltale.url));
    let (envelope, _) = with(&moved).exec("return await mcp.docs.headers({})");
    assert_eq!(envelope["error_code"], "TOOL_UNAVAILABLE", "{envelope}");
    assert!(telltale.program.printed().contains("/moved"));
    assert_eq!(target.program.printed().lines().count(), 1, "nobody was sent there");

    let project = with(&telltale.entry())
        .set("http_proxy", &target.url)
        .set("HTTP_PROXY", &target.url)
        .set("ALL_PROXY", &target.url);
    let value = success(&project.exec("return (await mcp.docs.headers({})).host").0).clone();
    assert!(telltale.url.ends_with(value.as_str().unwrap()), "{value}");
    assert_eq!(target.program.printed().lines().count(), 1, "the proxy was not asked");
    let (envelope, _) = project.exec("return await mcp.docs.flood({})");
    assert_eq!(envelope["status"], "error", "{}", envelope["error_code"]);

    // A call without an answer ends with its run.
    let output = project.run_with(
        &["exec", "-", "--json", "--timeout-ms", "1000"],
        b"return await mcp.docs.wait({})",
    );
    assert!(text(&output.stdout).contains("TIME_LIMIT"), "{}", text(&output.stdout));
    let (envelope, _) =
        with(&json!({ "url": "http://127.0.0.1:1/mcp" })).exec("return await mcp.docs.x({})");
    assert_eq!(envelope["error_code"], "TOOL_UNAVAILABLE", "{envelope}");
    let message = envelope["message"].as_str().unwrap();
    assert!(message.contains("http://127.0.0.1:1") && message.contains("refused"), "{message}");
}

/// The plan, the dry run and the question say that a call is sent, and where.
#[test]
fn what_is_sent_to_such_a_server_is_told() {
    let telltale = Telltale::start("http://127.0.0.1:1/");
    let config = json!({ "mcpServers": { "docs": telltale.entry() }, "permissions": { "allow": ["filesystem:*"] } });
    let project = Project::offline().set("TELL_TOKEN", "tell-canary-7").configure(&config);
    project.write("a.txt", "data");
    let code = "const text = await mcp.filesystem.read_text_file({ path: 'a.txt' });
        return await mcp.docs.headers({ text });";
    let plan = text(&project.run_with(&["plan", "-"], code.as_bytes()).stdout);
    assert!(plan.contains("Leaves this machine"), "{plan}");
    assert!(
        plan.contains("t1 filesystem:read_text_file") && plan.contains("→ t2 docs:headers"),
        "{plan}"
    );
    assert!(
        plan.contains(&format!("t2 docs:headers sends its arguments to {}", telltale.url)),
        "{plan}"
    );
    let json = project.run_with(&["plan", "-", "--json"], code.as_bytes());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["tasks"][1]["sends_to"], &json["egress"][0]["to"]),
        (&json!(telltale.url), &json!("t2"))
    );
    let mut pml = project.stdio();
    let dry = pml.execute_request(json!({ "code": code, "options": { "dry_run": true } }));
    let dry = dry.to_string();
    assert!(dry.contains(&format!("\"sends_to\":\"{}\"", telltale.url)), "{dry}");
    assert!(dry.contains(r#""egress":[{"from":"t1","to":"t2"#), "{dry}");
    assert_eq!(telltale.program.printed().lines().count(), 1, "nothing was sent");

    let (envelope, _) = project.exec(code);
    assert_eq!(envelope["status"], "approval_required", "{envelope}");
    let question = envelope["description"].as_str().unwrap();
    let first =
        format!("Send to {}/mcp, with the headers Authorization, X-Written\n", telltale.url);
    assert!(question.starts_with(&first), "{question}");
    // Not trusted, it is not even known.
    project.write(".pml.json", config.to_string() + "\n");
    let (envelope, _) = project.exec("return await mcp.docs.headers({})");
    assert_eq!(envelope["error_code"], "GATEWAY_UNREACHABLE", "{envelope}");
    assert_eq!(telltale.program.printed().lines().count(), 1, "nothing was sent");
}
