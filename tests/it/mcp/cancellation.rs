//! Cancellation over HTTP ends the program, its sandbox and its pending calls, and does not affect other clients.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::gateway_stub::{GatewayStub, Silence, handshaking};
use crate::support::http::{Reply, send};
use crate::support::server::{Server, Tenant};
use crate::support::upstream::{Entry, scope_of};
use crate::support::{PATIENCE, poll};

/// A tenant whose server never answers a call.
struct Slow {
    tenant: Tenant,
    upstream: GatewayStub,
}

impl Slow {
    fn new() -> Self {
        let upstream = handshaking("slow", |method| match method {
            "tools/call" => Err(Silence),
            _ => Ok(None),
        });
        let server = Server::shared();
        let tenant = server.tenant();
        let scope = scope_of(&tenant);
        let mut entry = Entry::http(&scope, "slow", &upstream.url);
        entry.tools = vec![
            json!({ "name": "wait", "description": "x", "inputSchema": { "type": "object" } }),
        ];
        entry.publish(server.installation());
        Self { tenant, upstream }
    }

    /// Returns how many requests or notifications of a method the server has received.
    fn received(&self, method: &str) -> usize {
        let method = format!("\"{method}\"");
        self.upstream.received().iter().filter(|request| request.contains(&method)).count()
    }

    /// Waits until this number of calls has reached the server.
    #[track_caller]
    fn wait_for_calls(&self, calls: usize) {
        poll("the call to reach its server", PATIENCE, || {
            (self.received("tools/call") == calls).then_some(())
        });
    }
}

/// A client of the 2025 versions, with its session if it uses one.
#[derive(Clone)]
struct Client {
    url: String,
    bearer: String,
    session: Option<String>,
}

impl Client {
    /// Initializes a session, like the SDKs.
    fn new(tenant: &Tenant) -> Self {
        let mut client = Self::without_session(tenant);
        let hello = client.post(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" },
        } }));
        let session = hello.header("mcp-session-id").to_owned();
        assert!(session.len() >= 32, "{:?}", hello.headers);
        client.session = Some(session);
        client
    }

    /// Starts without a handshake, like simple scripts.
    fn without_session(tenant: &Tenant) -> Self {
        let bearer = format!("Bearer {}", tenant.key);
        Self { url: format!("{}/mcp", tenant.url), bearer, session: None }
    }

    fn post(&self, message: &Value) -> Reply {
        let mut headers = vec![
            ("authorization", self.bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        headers.extend(self.session.as_deref().map(|session| ("mcp-session-id", session)));
        send("POST", &self.url, &headers, Some(message.to_string().into_bytes()))
    }

    /// Begins a call that ends only by its time limit; the answer arrives on the channel.
    fn begin(&self, id: u64, tool: &str, arguments: &Value) -> Receiver<Value> {
        let (sender, answer) = channel();
        let client = self.clone();
        let params = json!({ "name": tool, "arguments": arguments });
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        std::thread::spawn(move || sender.send(client.post(&message).json()));
        answer
    }

    fn cancel(&self, id: u64) {
        let params = json!({ "requestId": id, "reason": "no longer wanted" });
        let reply = self.post(
            &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
        );
        assert_eq!(reply.status, 202);
    }
}

const WAITS: &str = "return await mcp.slow.wait({})";

/// Asserts that a call ends as cancelled, before its time limit of 30 seconds.
#[track_caller]
fn assert_cancelled(answer: &Receiver<Value>) {
    let answer = answer.recv_timeout(Duration::from_secs(20)).expect("it ends before its limit");
    let envelope = &answer["result"]["structuredContent"];
    assert_eq!(envelope["error_code"], "CANCELLED", "{answer}");
}

#[test]
fn a_notification_cancels_the_run_and_its_upstream_calls() {
    let slow = Slow::new();
    let client = Client::new(&slow.tenant);
    // A program, and a direct tool call: the cancellation is forwarded to the upstream in both cases.
    for (n, (tool, arguments)) in
        [("pml_execute", json!({ "code": WAITS })), ("slow:wait", json!({}))]
            .into_iter()
            .enumerate()
    {
        let answer = client.begin(7, tool, &arguments);
        slow.wait_for_calls(n + 1);
        client.cancel(7);
        assert_cancelled(&answer);
        poll("the upstream to be notified", PATIENCE, || {
            (slow.received("notifications/cancelled") == n + 1).then_some(())
        });
    }
    // A program that only sleeps.
    let sleeps = json!({ "code": "await new Promise((go) => setTimeout(go, 25_000)); return 1" });
    let answer = client.begin(8, "pml_execute", &sleeps);
    // The test cannot see when the program has started, so it repeats the cancellation.
    let cancelled = poll("it to be cancelled", Duration::from_secs(20), || {
        client.cancel(8);
        answer.try_recv().ok()
    });
    assert_eq!(cancelled["result"]["structuredContent"]["error_code"], "CANCELLED", "{cancelled}");
}

/// Request ids are unique per client only: neither another key nor another client of the same key can cancel a request.
#[test]
fn a_client_cannot_cancel_the_requests_of_others() {
    let slow = Slow::new();
    let client = Client::new(&slow.tenant);
    let answer = client.begin(7, "slow:wait", &json!({}));
    slow.wait_for_calls(1);
    let stranger = Client::new(&Server::shared().tenant());
    let stranger = Client { session: client.session.clone(), ..stranger };
    for other in [stranger, Client::new(&slow.tenant), Client::without_session(&slow.tenant)] {
        other.cancel(7);
    }
    // Once a later cancellation has taken effect, the earlier ones would have as well.
    let later = client.begin(9, "slow:wait", &json!({}));
    slow.wait_for_calls(2);
    client.cancel(9);
    assert_cancelled(&later);
    assert!(answer.try_recv().is_err());
    client.cancel(7);
    assert_cancelled(&answer);
}

/// Without a session, a cancellation takes effect only if its request id is unambiguous.
#[test]
fn an_ambiguous_cancellation_without_a_session_is_ignored() {
    let slow = Slow::new();
    let client = Client::without_session(&slow.tenant);
    let (one, other) =
        (client.begin(1, "slow:wait", &json!({})), client.begin(1, "slow:wait", &json!({})));
    let third = client.begin(2, "slow:wait", &json!({}));
    slow.wait_for_calls(3);
    client.cancel(1);
    client.cancel(2);
    assert_cancelled(&third);
    assert!(one.try_recv().is_err() && other.try_recv().is_err());
}

/// Closing the connection cancels the request. In 2026-07-28 this is the specified way.
#[test]
fn a_dropped_connection_cancels_the_request() {
    for version in ["2025-11-25", "2026-07-28"] {
        let slow = Slow::new();
        let mut params = json!({ "name": "pml_execute", "arguments": { "code": WAITS } });
        let mut more = String::new();
        if version == "2026-07-28" {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
            });
            more += "mcp-method: tools/call\r\nmcp-name: pml_execute\r\n";
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
            .to_string();
        let address = slow.tenant.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: {version}\r\n{more}\
             content-length: {}\r\n\r\n",
            slow.tenant.key,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        slow.wait_for_calls(1);
        drop(stream);
        poll("the upstream to be notified", Duration::from_secs(20), || {
            (slow.received("notifications/cancelled") == 1).then_some(())
        });
    }
}
