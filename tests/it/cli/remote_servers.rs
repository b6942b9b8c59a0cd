//! HTTP MCP servers from `.pml.json`: `pml` calls them itself.

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

/// An MCP server that returns the request headers it received (tool `headers`), an error that contains one of them
/// (`refuse`), too much (`flood`) or nothing (`wait`). `/moved` redirects to the address on the command line.
const HEADER_ECHO: &str = r#"
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
            received = {k.lower(): v for k, v in self.headers.items()}
            result({"result": {"content": [{"type": "text", "text": json.dumps(received)}], "structuredContent": received}})
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

struct HeaderEcho {
    program: Arc<Guarded>,
    url: String,
}

impl HeaderEcho {
    fn start(moved_to: &str) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", HEADER_ECHO, moved_to]);
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

impl Drop for HeaderEcho {
    fn drop(&mut self) {
        self.program.stop();
    }
}

fn with(entry: &Value) -> Project {
    let config = json!({ "mcpServers": { "docs": entry }, "permissions": { "allow": ["docs:*"] } });
    Project::offline().set("TELL_TOKEN", "tell-canary-7").configure(&config)
}

/// The reference server of the MCP project, and one on the Python SDK, which supports both protocol generations.
#[test]
fn real_http_servers_are_called() {
    // The server does not accept port 0, so a port that was free a moment ago is used.
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

/// Variables in headers are expanded and sent. Their values appear in no result, error or log.
#[test]
fn configured_headers_are_sent_and_redacted_everywhere_else() {
    let upstream = HeaderEcho::start("http://127.0.0.1:1/");
    let project = with(&upstream.entry()).set("PML_LOG", "trace");
    let output = project.run_with(
        &["exec", "-", "--json"],
        b"const received = await mcp.docs.headers({});
          let why; try { await mcp.docs.refuse({}) } catch (error) { why = error.message }
          return { received, why, sent: received.authorization.length, other: received['x-written'] };",
    );
    let (out, log) = (text(&output.stdout), text(&output.stderr));
    let value = success(&serde_json::from_str(&out).unwrap()).clone();
    assert_eq!(
        (&value["received"]["authorization"], &value["other"]),
        (&json!("[redacted]"), &json!("[redacted]"))
    );
    assert!(value["why"].as_str().unwrap().contains("not with [redacted]"), "{value}");
    for secret in ["tell-canary-7", "a-written-secret"] {
        assert!(!out.contains(secret) && !log.contains(secret), "{out}\n{log}");
    }
    // An unset variable is reported before anything is sent.
    let (envelope, _) = project.set("TELL_TOKEN", "").exec("return await mcp.docs.headers({})");
    assert_eq!(envelope["error_code"], "API_KEY_REQUIRED", "{envelope}");
    assert!(envelope["message"].as_str().unwrap().contains("TELL_TOKEN"), "{envelope}");
}

/// `pml` follows no redirect, uses no proxy for this machine, and stops reading an answer at the limit.
#[test]
fn redirects_proxies_and_oversized_answers_are_refused() {
    let target = HeaderEcho::start("http://127.0.0.1:1/");
    let upstream = HeaderEcho::start(&target.url);
    let mut moved = upstream.entry();
    moved["url"] = json!(format!("{}/moved", upstream.url));
    let (envelope, _) = with(&moved).exec("return await mcp.docs.headers({})");
    assert_eq!(envelope["error_code"], "TOOL_UNAVAILABLE", "{envelope}");
    assert!(upstream.program.printed().contains("/moved"));
    assert_eq!(target.program.printed().lines().count(), 1, "the redirect was followed");

    let project = with(&upstream.entry())
        .set("http_proxy", &target.url)
        .set("HTTP_PROXY", &target.url)
        .set("ALL_PROXY", &target.url);
    let value = success(&project.exec("return (await mcp.docs.headers({})).host").0).clone();
    assert!(upstream.url.ends_with(value.as_str().unwrap()), "{value}");
    assert_eq!(target.program.printed().lines().count(), 1, "the proxy was used");
    let (envelope, _) = project.exec("return await mcp.docs.flood({})");
    assert_eq!(envelope["status"], "error", "{}", envelope["error_code"]);

    // A call that gets no answer ends with the time limit of its run.
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

/// The plan, the dry run and the question state that a call sends its arguments, and where.
#[test]
fn plans_and_questions_state_where_data_is_sent() {
    let upstream = HeaderEcho::start("http://127.0.0.1:1/");
    let config = json!({ "mcpServers": { "docs": upstream.entry() }, "permissions": { "allow": ["filesystem:*"] } });
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
        plan.contains(&format!("t2 docs:headers sends its arguments to {}", upstream.url)),
        "{plan}"
    );
    let json = project.run_with(&["plan", "-", "--json"], code.as_bytes());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["tasks"][1]["sends_to"], &json["egress"][0]["to"]),
        (&json!(upstream.url), &json!("t2"))
    );
    let mut pml = project.stdio();
    let dry = pml.execute_request(json!({ "code": code, "options": { "dry_run": true } }));
    let dry = dry.to_string();
    assert!(dry.contains(&format!("\"sends_to\":\"{}\"", upstream.url)), "{dry}");
    assert!(dry.contains(r#""egress":[{"from":"t1","to":"t2"#), "{dry}");
    assert_eq!(upstream.program.printed().lines().count(), 1, "nothing was sent");

    let (envelope, _) = project.exec(code);
    assert_eq!(envelope["status"], "approval_required", "{envelope}");
    let question = envelope["description"].as_str().unwrap();
    let first =
        format!("Send to {}/mcp, with the headers Authorization, X-Written\n", upstream.url);
    assert!(question.starts_with(&first), "{question}");
    // The entry of an untrusted file is ignored.
    project.write(".pml.json", config.to_string() + "\n");
    let (envelope, _) = project.exec("return await mcp.docs.headers({})");
    assert_eq!(envelope["error_code"], "GATEWAY_UNREACHABLE", "{envelope}");
    assert_eq!(upstream.program.printed().lines().count(), 1, "nothing was sent");
}
