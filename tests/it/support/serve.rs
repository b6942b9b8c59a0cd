//! A running `pml serve`, and MCP over its HTTP without an SDK.

use std::ops::Deref;
use std::process::ExitStatus;

use serde_json::{Value, json};

use super::PATIENCE;
use super::cli::Project;
use super::http::{Reply, send};
use super::mcp_client::{Era, StdioClient, envelope};

/// A `pml serve` of a project, on a free port. It ends when this is dropped.
pub(crate) struct Serving {
    process: StdioClient,
    client: Client,
}

/// A client of it.
pub(crate) struct Client {
    /// The address of the MCP endpoint.
    pub(crate) url: String,
    /// The token.
    pub(crate) token: String,
}

impl Deref for Serving {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Serving {
    /// Starts it, and waits until it serves.
    #[track_caller]
    pub(crate) fn start(project: &Project) -> Self {
        let command = project.command(&["serve", "--port", "0", "--json"]);
        // Only its output is used here.
        let mut process = StdioClient::spawn(command, Era::Handshake, &project.log());
        let started = process.next_message(PATIENCE).expect("it prints its address");
        let url = started["url"].as_str().expect("the address is a text").to_owned();
        let file = started["token_file"].as_str().expect("the path is a text");
        assert_eq!(file, project.path(".pml/serve-token").to_str().unwrap());
        let token = project.read(".pml/serve-token").trim().to_owned();
        Self { process, client: Client { url, token } }
    }

    /// Ends it by a signal.
    pub(crate) fn end(mut self, signal: &str) -> ExitStatus {
        self.process.pid().signal(signal);
        self.process.wait()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The process is waited for when it is dropped, and does not end when its stdin is closed.
        self.process.pid().try_signal("TERM");
    }
}

impl Client {
    /// Returns it as the target of a client's script.
    pub(crate) fn target(&self) -> Value {
        json!({ "url": self.url, "headers": { "Authorization": format!("Bearer {}", self.token) } })
    }

    /// Posts a message with these headers next to those of every client.
    #[track_caller]
    pub(crate) fn post(&self, message: &Value, headers: &[(&str, &str)]) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        all.extend(headers);
        send("POST", &self.url, &all, Some(message.to_string().into_bytes()))
    }

    /// Begins a session of the 2025 versions; returns its id.
    #[track_caller]
    pub(crate) fn begin(&self) -> String {
        let hello = self.post(
            &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" },
            } }),
            &[],
        );
        assert_eq!(event(&hello)["result"]["serverInfo"]["name"], "pml");
        let session = hello.header("mcp-session-id").to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&initialized, &[("mcp-session-id", &session)]).status, 202);
        session
    }

    /// Runs a program, as a client of 2026-07-28; returns its envelope.
    #[track_caller]
    pub(crate) fn execute(&self, code: &str) -> Value {
        self.call("pml_execute", json!({ "code": code }))
    }

    /// Calls a tool, as a client of 2026-07-28; returns its envelope.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        let message = call(tool, arguments);
        let reply = self.post(
            &message,
            &[
                ("mcp-protocol-version", Era::Stateless.version()),
                ("mcp-method", "tools/call"),
                ("mcp-name", tool),
            ],
        );
        envelope(&event(&reply)["result"])
    }
}

/// Returns a request of 2026-07-28 that calls a tool.
pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    Era::Stateless.request(1, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

/// Returns the last message in a reply, which is a stream of events.
#[track_caller]
pub(crate) fn event(reply: &Reply) -> Value {
    let body = String::from_utf8_lossy(&reply.body);
    let data = body.lines().filter_map(|line| line.strip_prefix("data: {")).next_back();
    let data = data.unwrap_or_else(|| panic!("{}: {body}", reply.status));
    serde_json::from_str(&format!("{{{data}")).unwrap_or_else(|error| panic!("{error}: {body}"))
}
