//! A client that does as little as possible, so that the machine's time is the gateway's.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::mcp_client::Era;
use crate::support::server::Tenant;

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Health,
    List,
    Plan,
    Execute,
    Entry,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Refused with a code that says to come back later.
    Busy,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Health, Self::List, Self::Plan, Self::Execute, Self::Entry];

    /// Returns the complete HTTP request.
    fn request(self, tenant: &Tenant) -> Vec<u8> {
        let get =
            |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
        let mcp = |method: &str, params: Value| {
            let name = params["name"].as_str().map(|name| format!("mcp-name: {name}\r\n"));
            let body = Era::Stateless.request(1, method, params).to_string();
            format!(
                "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
                 content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
                 mcp-protocol-version: {}\r\nmcp-method: {method}\r\n{}content-length: {}\r\n\r\n{body}",
                tenant.key,
                Era::Stateless.version(),
                name.unwrap_or_default(),
                body.len()
            )
            .into_bytes()
        };
        let execute = |options| {
            let code = "return await mcp.math.eval({ expression: '6 * 7' })";
            let arguments = json!({ "code": code, "options": options });
            mcp("tools/call", json!({ "name": "pml_execute", "arguments": arguments }))
        };
        match self {
            Self::Health => get("/health"),
            Self::List => mcp("tools/list", json!({})),
            Self::Plan => execute(json!({ "dry_run": true })),
            Self::Execute => execute(json!({})),
            Self::Entry => get("/mcp/pml.mcp.math"),
        }
    }

    /// Returns what the right answer contains.
    fn proof(self) -> &'static str {
        match self {
            Self::Health => "ok",
            Self::List => "pml_execute",
            Self::Plan => "\"routing\":\"server\"",
            Self::Execute => "42",
            Self::Entry => "pml.mcp.math",
        }
    }
}

/// A connection, and the requests that it sends.
pub(super) struct Sender {
    address: String,
    requests: [Vec<u8>; 5],
    connection: Option<TcpStream>,
    answer: Vec<u8>,
}

impl Sender {
    pub(super) fn new(tenant: &Tenant) -> Self {
        let address = tenant.url.strip_prefix("http://").expect("it is plain HTTP").to_owned();
        let requests = Kind::ALL.map(|kind| kind.request(tenant));
        Self { address, requests, connection: None, answer: Vec::new() }
    }

    /// Sends one request, and checks that the answer is the right one or a typed refusal.
    pub(super) fn ask(&mut self, kind: Kind) -> Outcome {
        let answered = match self.exchange(kind) {
            // The gateway closes idle connections, as every server may.
            Err(error) if self.answer.is_empty() => {
                assert!(self.connection.take().is_some(), "{kind:?}: {error}");
                self.exchange(kind)
            }
            other => other,
        };
        let body = answered.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let (head, text) = self.answer.split_at(body);
        let (head, text) = (String::from_utf8_lossy(head), String::from_utf8_lossy(text));
        match head.split(' ').nth(1).unwrap_or_default() {
            "200" if text.contains("\"BUSY\"") => Outcome::Busy,
            "200" => {
                assert!(text.contains(kind.proof()), "{kind:?}: {text:.600}");
                Outcome::Done
            }
            "429" | "503" => {
                let problem: Value = serde_json::from_str(&text).unwrap_or_default();
                let code = problem["code"].as_str().unwrap_or_default();
                assert!(["BUSY", "RATE_LIMITED"].contains(&code), "{kind:?}: {text:.600}");
                Outcome::Busy
            }
            other => panic!("{kind:?}: {other}: {text:.600}"),
        }
    }

    /// Sends a request and reads the whole answer; returns where its body begins.
    fn exchange(&mut self, kind: Kind) -> io::Result<usize> {
        self.answer.clear();
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = TcpStream::connect(&self.address)?;
                connection.set_nodelay(true)?;
                none.insert(connection)
            }
        };
        connection.write_all(&self.requests[kind as usize])?;
        let mut chunk = [0; 16 << 10];
        loop {
            let length = connection.read(&mut chunk)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.answer.extend_from_slice(&chunk[..length]);
            if let Some((body, length)) = parts(&self.answer)
                && self.answer.len() >= body + length
            {
                return Ok(body);
            }
        }
    }
}

/// Returns where the body of an answer begins, and its length, as soon as the head is complete.
fn parts(answer: &[u8]) -> Option<(usize, usize)> {
    let text = str::from_utf8(answer).ok()?;
    let head = &text[..text.find("\r\n\r\n")? + 4];
    let (_, length) = head.split_once("content-length: ").expect("no answer is a stream");
    let length = length.lines().next()?.parse().expect("it is a number");
    Some((head.len(), length))
}
