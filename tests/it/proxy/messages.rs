//! `/mcp/proxy/{server}`: which messages are forwarded to a server, and which are refused.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::cli::text;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{Reply, get, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, Everything, host_of, scope_of};

/// A client of one server behind the gateway.
#[derive(Clone)]
pub(crate) struct ProxyClient {
    /// Where its requests go.
    pub(crate) url: String,
    /// Its key.
    pub(crate) key: String,
}

impl ProxyClient {
    /// Creates a client.
    pub(crate) fn new(tenant: &Tenant, server: &str) -> Self {
        Self { url: format!("{}/mcp/proxy/{server}", tenant.url), key: tenant.key.clone() }
    }

    /// Sends a request with additional headers.
    #[track_caller]
    pub(crate) fn send(&self, method: &str, more: &[(&str, &str)], body: Option<&str>) -> Reply {
        let bearer = format!("Bearer {}", self.key);
        let mut headers = vec![
            ("authorization", bearer.as_str()),
            ("accept", "application/json, text/event-stream"),
        ];
        headers.extend(body.map(|_| ("content-type", "application/json")));
        headers.extend(more);
        send(method, &self.url, &headers, body.map(|body| body.as_bytes().to_vec()))
    }

    /// Posts a message of a 2025 version.
    #[track_caller]
    pub(crate) fn post(&self, more: &[(&str, &str)], message: &Value) -> Reply {
        self.send("POST", more, Some(&message.to_string()))
    }

    /// Opens a session and returns its handle.
    #[track_caller]
    pub(crate) fn initialize(&self, version: &str) -> String {
        let client = json!({ "name": "pml-it", "version": "1" });
        let params =
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let hello = self.post(&[], &request("initialize", params));
        assert_eq!(hello.status, 200, "{}", text(&hello.body));
        assert_eq!(answer(&hello)["result"]["protocolVersion"], version);
        let session = hello.header("mcp-session-id").to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let noted = self
            .post(&[("mcp-session-id", &session), ("mcp-protocol-version", version)], &initialized);
        assert_eq!((noted.status, noted.body.len()), (202, 0));
        session
    }

    /// Calls a tool within a session.
    #[track_caller]
    pub(crate) fn call(&self, session: &str, tool: &str, arguments: Value) -> Reply {
        let call = request("tools/call", json!({ "name": tool, "arguments": arguments }));
        self.post(&[("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")], &call)
    }

    /// Calls a tool by 2026-07-28, without a session.
    #[track_caller]
    pub(crate) fn call_stateless(&self, tool: &str, arguments: Value) -> Reply {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = Era::Stateless.request(1, "tools/call", params).to_string();
        self.send("POST", &stateless("tools/call", tool), Some(&body))
    }
}

pub(crate) fn stateless<'a>(method: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", name));
    }
    headers
}

pub(super) fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// Returns the last message of an answer, be it JSON or a stream.
#[track_caller]
pub(crate) fn answer(reply: &Reply) -> Value {
    let body = text(&reply.body);
    if reply.header("content-type") != "text/event-stream" {
        return reply.json();
    }
    let mut data =
        body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| !data.is_empty());
    let last = data.next_back().unwrap_or_else(|| panic!("no message: {body}"));
    serde_json::from_str(last).unwrap()
}

/// A server that answers every request with JSON.
pub(super) fn plain_upstream() -> GatewayStub {
    GatewayStub::start(|message| match message["id"].is_null() {
        true => Answer::Raw(202, "text/plain", Vec::new()),
        false => Answer::Json(
            json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "content": [] } }),
        ),
    })
}

pub(super) fn publish(tenant: &Tenant, namespace: &str, url: &str) {
    Entry::http(&scope_of(tenant), namespace, url).publish(Server::shared().installation());
}

/// The proxy forwards every protocol version, with and without sessions, and does not change the names of tools.
#[test]
fn every_protocol_version_is_forwarded() {
    let upstream = Everything::start();
    let tenant = Server::shared().tenant();
    publish(&tenant, "whole", &upstream.url);
    let fqdn = format!("{}.whole", scope_of(&tenant));
    for name in ["whole", &fqdn] {
        let client = ProxyClient::new(&tenant, name);
        for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            let session = client.initialize(version);
            let reply = client.call(&session, "echo", json!({ "message": "hello" }));
            assert_eq!(answer(&reply)["result"]["content"][0]["text"], "hello", "{version}");
            assert_eq!(reply.header("content-type"), "text/event-stream");
            let within = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", version)];
            let listed = answer(&client.post(&within, &request("tools/list", json!({}))));
            let names =
                listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]);
            assert!(names.clone().any(|name| name == "test_simple_text"), "{listed}");
            assert_eq!(client.send("DELETE", &within, None).status, 200);
            assert_eq!(client.post(&within, &request("tools/list", json!({}))).status, 404);
        }
        let reply = client.call_stateless("echo", json!({ "message": "hello" }));
        assert_eq!(
            answer(&reply)["result"]["content"][0]["text"],
            "hello",
            "{}",
            text(&reply.body)
        );
    }
    // A stream can be resumed by `Last-Event-ID`.
    let client = ProxyClient::new(&tenant, "whole");
    let session = client.initialize("2025-11-25");
    let reply = text(&client.call(&session, "echo", json!({ "message": "again" })).body);
    let first = reply.lines().find_map(|line| line.strip_prefix("id: ")).expect("events have ids");
    let within = [("mcp-session-id", session.as_str()), ("last-event-id", first)];
    let mut stream = Raw::open(&client, "GET", &within, None);
    stream.until("again");
}

/// GW-24: a session is valid only for its principal, scope and server, but on every gateway.
#[test]
fn a_proxy_session_is_bound_to_its_principal_scope_and_server() {
    let home = Installation::new();
    let server = home.start();
    let replica = home.replica().start();
    let upstream = Everything::start();
    let key = |principal: &str, scope: &str| {
        let made = ["keys", "create", "--scope", scope, "--principal", principal];
        home.run_ok(&made).trim().to_owned()
    };
    for scope in ["it.one", "it.two"] {
        home.run_ok(&["scope", "create", scope]);
        for namespace in ["first", "second"] {
            Entry::http(scope, namespace, &upstream.url).publish(&home);
        }
    }
    let client = |key: String, server: &Server, namespace: &str| {
        ProxyClient::new(&Tenant { key, url: server.url().to_owned() }, namespace)
    };
    let ours = client(key("alice", "it.one"), &server, "first");
    let session = ours.initialize("2025-11-25");
    assert!(session.len() >= 80, "{session}");
    let echo = |client: &ProxyClient, session: &str| {
        client.call(session, "echo", json!({ "message": "x" }))
    };
    assert_eq!(echo(&ours, &session).status, 200);
    let elsewhere = client(ours.key.clone(), &replica, "first");
    assert_eq!(
        echo(&elsewhere, &session).status,
        200,
        "another gateway, another key of the principal"
    );
    assert_eq!(echo(&client(key("alice", "it.one"), &replica, "first"), &session).status, 200);
    let unknown = echo(&ours, "nobodys");
    assert_eq!(unknown.status, 404);
    let mut other = session.clone().into_bytes();
    other[40] ^= 1;
    let foreign = [
        echo(&client(key("bob", "it.one"), &server, "first"), &session),
        echo(&client(key("alice", "it.two"), &server, "first"), &session),
        echo(&client(ours.key.clone(), &server, "second"), &session),
        echo(&ours, std::str::from_utf8(&other).unwrap()),
        echo(&ours, &"A".repeat(5_000)),
    ];
    for reply in foreign {
        assert_eq!((reply.status, text(&reply.body)), (404, text(&unknown.body)));
    }
    let bob = client(key("bob", "it.one"), &server, "first");
    let within = [("mcp-session-id", session.as_str())];
    assert_eq!(bob.send("GET", &within, None).status, 404);
    assert_eq!(bob.send("DELETE", &within, None).status, 404);
    // A response needs the session of its request.
    let response = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    assert_eq!(ours.post(&[], &response).status, 400);
    assert_eq!(bob.post(&within, &response).status, 404);
    assert_eq!(ours.post(&within, &response).status, 202);
    assert_eq!(echo(&ours, &session).status, 200, "the session was ended");
}

/// GW-08, SE-02: the caller's credential is not forwarded to the server, and the server's secret is not returned to the
/// caller.
#[test]
fn the_proxy_separates_the_callers_credential_from_the_servers_secret() {
    let upstream = Everything::start();
    let tenant = Server::shared().tenant_with_rights("execute,read,admin");
    publish(&tenant, "bare", &upstream.url);
    Entry::http(&scope_of(&tenant), "keyed", &upstream.url)
        .needs("KEYED_TOKEN")
        .publish(Server::shared().installation());
    let (bare, keyed) = (ProxyClient::new(&tenant, "bare"), ProxyClient::new(&tenant, "keyed"));
    let session = bare.initialize("2025-11-25");
    let seen = text(&bare.call(&session, "seen", json!({})).body);
    assert!(seen.contains("mcp-protocol-version"), "{seen}");
    for canary in [&tenant.key[8..], "authorization", "x-pml-key", "x-api-key", &session] {
        assert!(!seen.contains(canary), "{canary}: {seen}");
    }
    let missing = keyed.post(&[], &request("tools/list", json!({})));
    assert_eq!((missing.status, &missing.json()["code"]), (403, &json!("API_KEY_REQUIRED")));
    let called = keyed.call_stateless("seen", json!({})).json();
    let result = &called["result"];
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["error_code"]),
        (&json!(true), &json!("API_KEY_REQUIRED"))
    );
    assert_eq!(result["resultType"], "complete");
    let hosts = [host_of(&upstream.url)];
    let body = json!({ "value": "canary-5e/1f+00", "for": "project", "hosts": hosts }).to_string();
    let stored = ProxyClient { url: format!("{}/api/v1/secrets/KEYED_TOKEN", tenant.url), ..bare };
    assert_eq!(stored.send("PUT", &[], Some(&body)).status, 201);
    let session = keyed.initialize("2025-11-25");
    for reply in [keyed.call(&session, "seen", json!({})), keyed.call_stateless("seen", json!({}))]
    {
        let seen = text(&reply.body);
        assert!(seen.contains("authorization") && seen.contains("[redacted]"), "{seen}");
        assert!(!seen.contains("canary-5e") && !seen.contains(&tenant.key[8..]), "{seen}");
    }
    let log = get(&format!("{}/api/v1/audit?limit=50", tenant.url), &[("x-api-key", &tenant.key)]);
    let log = log.json();
    let events = log["events"].as_array().unwrap();
    let uses = events.iter().filter(|event| event["action"] == "secret.use");
    assert_eq!(uses.clone().count(), 4, "one for each message: {log:#}");
    assert_eq!(uses.clone().filter(|event| event["detail"]["tool"] == "keyed:seen").count(), 2);
}

/// GW-13, GW-14: ambiguous messages are refused, and a checked message is forwarded byte for byte.
#[test]
fn checked_messages_are_forwarded_unchanged_and_ambiguous_ones_refused() {
    let upstream = plain_upstream();
    let tenant = Server::shared().tenant();
    publish(&tenant, "exact", &upstream.url);
    let client = ProxyClient::new(&tenant, "exact");
    for (body, code) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            -32600,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
            -32600,
        ),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","Params":{}}"#, -32600),
        (r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":7.5,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":7,"#, -32700),
    ] {
        let reply = client.send("POST", &[], Some(body));
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(code)), "{body}");
    }
    let call = Era::Stateless
        .request(1, "tools/call", json!({ "name": "a", "arguments": {} }))
        .to_string();
    for wrong in [
        &stateless("tools/call", "b")[..],
        &stateless("tools/list", "a"),
        &stateless("tools/call", ""),
        &[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/call"), ("mcp-name", "a")],
        &[],
    ] {
        let reply = client.send("POST", wrong, Some(&call));
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (400, &json!(-32020)),
            "{wrong:?}"
        );
    }
    // An invalid tool name, an unknown method, unsupported content types.
    let odd = client.call_stateless("a.b/../c", json!({})).json();
    assert_eq!(odd["result"]["structuredContent"]["error_code"], "TOOL_NOT_FOUND", "{odd}");
    let unknown = client.post(&[], &request("tasks/list", json!({})));
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (200, &json!(-32601)));
    for kind in [
        [("content-type", "text/plain")].as_slice(),
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
    ] {
        let mut headers = vec![("x-api-key", tenant.key.as_str())];
        headers.extend(kind);
        let refused = send("POST", &client.url, &headers, Some(call.clone().into()));
        assert_eq!(refused.status, 415, "{kind:?}");
    }
    for (headers, what) in [
        (&[("origin", "http://evil.test")][..], "a foreign origin"),
        (&[("host", "evil.test")], "a foreign host"),
    ] {
        assert_eq!(client.send("POST", headers, Some(&call)).status, 403, "{what}");
    }
    assert_eq!(upstream.requests(), 0);
    // Positive controls.
    let body = "{ \"id\":1.0e0 , \"jsonrpc\":\"2.0\",\"method\":\"tools/call\" ,\"params\":{\"name\":\"a\",\"arguments\":{\"big\":123456789012345678901234567890,\"f\":1.10}}}";
    let body = body.replace("1.0e0", "1");
    assert_eq!(
        client.send("POST", &[("origin", "http://localhost:6274")], Some(&body)).status,
        200
    );
    assert_eq!(client.send("POST", &stateless("tools/call", "a"), Some(&call)).status, 200);
    let received = upstream.received();
    assert!(received.len() == 2 && received[0].ends_with(&body), "{received:?}");
}

/// A raw connection to the gateway, to disconnect at any time and to read a stream piece by piece.
pub(crate) struct Raw {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    /// Sends a request.
    pub(crate) fn open(
        client: &ProxyClient,
        method: &str,
        more: &[(&str, &str)],
        body: Option<&str>,
    ) -> Self {
        let rest = client.url.strip_prefix("http://").unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        let mut head = format!(
            "{method} /{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\naccept: application/json, text/event-stream\r\n",
            client.key
        );
        for (name, value) in more {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = body {
            head +=
                &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        socket.write_all((head + "\r\n" + body.unwrap_or_default()).as_bytes()).unwrap();
        Self { socket, read: Vec::new() }
    }

    /// Reads until a text has arrived.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &str) {
        while !text(&self.read).contains(wanted) {
            self.more(wanted);
        }
    }

    /// Reads until a line with this text has arrived completely, and returns it.
    #[track_caller]
    pub(crate) fn line(&mut self, wanted: &str) -> String {
        self.until(wanted);
        let from = text(&self.read).find(wanted).expect("it has arrived");
        while !text(&self.read)[from..].contains('\n') {
            self.more(wanted);
        }
        let read = text(&self.read);
        let line = read.lines().find(|line| line.contains(wanted));
        line.expect("it has arrived").to_owned()
    }

    #[track_caller]
    fn more(&mut self, wanted: &str) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut piece = [0; 4_096];
        let count = self.socket.read(&mut piece).unwrap_or(0);
        assert!(count > 0, "`{wanted}` does not arrive: {}", text(&self.read));
        self.read.extend_from_slice(&piece[..count]);
    }

    /// Returns whether the stream has ended, without waiting for it.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut piece = [0; 4_096];
        match self.socket.read(&mut piece) {
            Ok(0) => true,
            Ok(count) => {
                self.read.extend_from_slice(&piece[..count]);
                text(&self.read).ends_with("0\r\n\r\n")
            }
            Err(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
        }
    }
}

/// Starts a server that answers a request with `head` and nothing more. The channel reports when the request arrives
/// and when the client disconnects.
fn silent(head: &'static str) -> (String, std::sync::mpsc::Receiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (report, events) = channel();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut read, mut piece) = (Vec::new(), [0; 4_096]);
        while !text(&read).contains("\"tools/call\"") {
            let count = socket.read(&mut piece).unwrap();
            read.extend_from_slice(&piece[..count]);
        }
        socket.write_all(head.as_bytes()).unwrap();
        report.send("asked").unwrap();
        while matches!(socket.read(&mut piece), Ok(count) if count > 0) {}
        report.send("hung up").unwrap();
    });
    (url, events)
}

/// When a client disconnects, the proxy disconnects from the server, before and during its answer.
#[test]
fn a_client_disconnect_is_propagated_to_the_server() {
    let tenant = Server::shared().tenant();
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\n: hi\n\r\n";
    for (namespace, head) in [("unanswered", ""), ("streaming", events)] {
        let (url, events) = silent(head);
        publish(&tenant, namespace, &url);
        let call = request("tools/call", json!({ "name": "a", "arguments": {} })).to_string();
        let mut client = Raw::open(&ProxyClient::new(&tenant, namespace), "POST", &[], Some(&call));
        assert_eq!(events.recv_timeout(PATIENCE), Ok("asked"));
        if !head.is_empty() {
            // The stream is forwarded piece by piece, not at its end.
            client.until(": hi");
        }
        drop(client);
        assert_eq!(events.recv_timeout(PATIENCE), Ok("hung up"), "{namespace}");
    }
}
