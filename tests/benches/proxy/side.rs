//! A gateway that forwards calls, ours or another one, from its client's point of view.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::spent::{cpu_of_process, cpu_of_tree};
use crate::support::guard::{self, Guarded};
use crate::support::http::{Reply, send};
use crate::support::{PATIENCE, poll};

/// The number of open sessions of each side.
pub(crate) const SESSIONS: usize = 32;

/// A gateway, one way to call a tool through it, and the number of calls per sample. It must be large enough for the
/// CPU clock, which has ticks of 10 ms.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) key: Option<String>,
    pub(crate) pid: u32,
    /// If the CPU time of its descendants and reaped children counts, too: the name of the row for the process alone.
    /// `None` for the other gateways, whose only child is the upstream server, which does not count.
    pub(crate) alone: Option<&'static str>,
    /// The name of the tool on this gateway.
    pub(crate) tool: String,
    pub(crate) calls: usize,
    pub(crate) sessions: Vec<String>,
    pub(crate) streams: Vec<TcpStream>,
}

impl Side {
    /// Opens the sessions, each with its stream for messages of the server.
    pub(crate) fn open(mut self) -> Self {
        let client = json!({ "name": "bench", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        for _ in 0..SESSIONS {
            let reply = self.post(None, &hello);
            let body = String::from_utf8_lossy(&reply.body);
            assert_eq!(reply.status, 200, "{}: {body}", self.name);
            let session = reply.header("mcp-session-id").to_owned();
            assert!(!session.is_empty(), "{} opens no session", self.name);
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            assert_eq!(self.post(Some(&session), &initialized).status, 202, "{}", self.name);
            self.streams.push(self.stream(&session));
            self.sessions.push(session);
        }
        self
    }

    /// Opens the stream of a session and leaves it open.
    fn stream(&self, session: &str) -> TcpStream {
        let rest = self.url.trim_start_matches("http://");
        let (host, path) = rest.split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let key = self.key.as_ref().map(|key| format!("authorization: Bearer {key}\r\n"));
        let request = format!(
            "GET /{path} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\n\
             mcp-session-id: {session}\r\n{}\r\n",
            key.unwrap_or_default()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        assert!(head.starts_with("HTTP/1.1 200"), "{}: {head}", self.name);
        stream
    }

    fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        send("POST", &self.url, &headers, Some(message.to_string().into_bytes()))
    }

    fn call(&self, number: usize) {
        let params = json!({ "name": self.tool, "arguments": { "message": "hello" } });
        let call =
            json!({ "jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params });
        let session = self.sessions.get(number % SESSIONS).map(String::as_str);
        let reply = self.post(session, &call);
        let body = String::from_utf8_lossy(&reply.body);
        let right =
            reply.status == 200 && body.contains("hello") && !body.contains("\"isError\":true");
        assert!(right, "{}: {} {body}", self.name, reply.status);
    }

    /// Makes the calls with `in_flight` at a time; returns the CPU time of one call, in total and of the process alone.
    pub(crate) fn cost(&self, calls: usize, in_flight: usize) -> [Duration; 2] {
        let before = self.cpu();
        let next = AtomicUsize::new(0);
        let worker = || {
            while let Some(number) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < calls)
            {
                self.call(number);
            }
        };
        thread::scope(|scope| (0..in_flight).for_each(|_| drop(scope.spawn(worker))));
        let after = self.cpu();
        [0, 1].map(|at| after[at].saturating_sub(before[at]) / u32::try_from(calls).unwrap())
    }

    fn cpu(&self) -> [Duration; 2] {
        let own = cpu_of_process(self.pid);
        [self.alone.map_or(own, |_| cpu_of_tree(self.pid)), own]
    }
}

/// A running gateway of another project.
pub(crate) struct Peer {
    program: Arc<Guarded>,
    url: String,
}

impl Peer {
    /// Starts it on a free port, which replaces `{port}` in the arguments.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        let home = guard::folder("b");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home);
        command.args(arguments.iter().map(|word| word.replace("{port}", &free.to_string())));
        let program = Guarded::start(&command, &home.join("log"));
        poll("a gateway to listen", PATIENCE, || {
            TcpStream::connect(("127.0.0.1", free)).ok().map(drop)
        });
        Self { program, url: format!("http://127.0.0.1:{free}/mcp") }
    }

    /// Returns its client's view.
    pub(crate) fn side(&self, name: &'static str, calls: usize) -> Side {
        Side {
            name,
            url: self.url.clone(),
            key: None,
            pid: self.program.pid().number,
            alone: None,
            tool: "echo".to_owned(),
            calls,
            sessions: Vec::new(),
            streams: Vec::new(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.program.stop();
    }
}
