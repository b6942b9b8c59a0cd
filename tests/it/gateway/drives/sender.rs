//! A client that does as little as possible, so that the machine's time is the gateway's: one thread, prepared requests,
//! plain sockets.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde_json::{Value, json};

use crate::support::PATIENCE;
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

/// When requests are sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// So many per second, whether or not earlier ones are answered, as far as the connections are enough.
    PerSecond(f64),
    /// The next one on a connection when the last one is answered.
    Answered,
}

/// A request that has been answered.
pub(super) struct Taken {
    pub(super) kind: Kind,
    pub(super) outcome: Outcome,
    /// Of what was done, since it was due, so that a late client does not hide a slow gateway; otherwise since it was sent.
    pub(super) took: Duration,
}

/// Some connections to a gateway.
pub(super) struct Sender {
    address: String,
    requests: [Vec<u8>; 5],
    connections: Vec<Connection>,
    idle: Vec<usize>,
    epoll: OwnedFd,
}

#[derive(Default)]
struct Connection {
    stream: Option<TcpStream>,
    answer: Vec<u8>,
    pending: Option<Pending>,
}

#[derive(Clone, Copy)]
struct Pending {
    kind: Kind,
    due: Instant,
    sent: Instant,
    /// Whether the connection was used before, and may have been closed in the meantime, as every server may.
    is_repeatable: bool,
}

impl Sender {
    pub(super) fn new(tenant: &Tenant, connections: usize) -> Self {
        let address = tenant.url.strip_prefix("http://").expect("it is plain HTTP").to_owned();
        Self {
            address,
            requests: Kind::ALL.map(|kind| kind.request(tenant)),
            connections: (0..connections).map(|_| Connection::default()).collect(),
            idle: (0..connections).rev().collect(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
        }
    }

    /// Sends each of these kinds in turn, and waits for all answers.
    pub(super) fn run(&mut self, kinds: &[Kind], pace: Pace, length: Duration) -> Vec<Taken> {
        let (began, mut number) = (Instant::now(), 0);
        let mut taken = Vec::new();
        let mut events = Vec::with_capacity(64);
        loop {
            let now = Instant::now();
            let next = || match pace {
                Pace::PerSecond(rate) => {
                    let after = Duration::from_secs_f64(number as f64 / rate);
                    (after < length).then_some(began + after)
                }
                Pace::Answered => (now < began + length).then_some(now),
            };
            let next = next();
            if let Some(due) = next.filter(|due| *due <= now)
                && let Some(slot) = self.idle.pop()
            {
                self.send(slot, kinds[number % kinds.len()], due);
                number += 1;
                continue;
            }
            if next.is_none() && self.idle.len() == self.connections.len() {
                return taken;
            }
            let until = next.filter(|_| !self.idle.is_empty()).map_or(PATIENCE, |due| due - now);
            let until = Timespec::try_from(until).expect("it is short");
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&until)) {
                Err(rustix::io::Errno::INTR) => continue,
                found => found.unwrap(),
            };
            assert!(until.tv_sec < 60 || !events.is_empty(), "no answer within a minute");
            for event in &events {
                let slot = usize::try_from(event.data.u64()).expect("it is a slot");
                taken.extend(self.receive(slot));
            }
        }
    }

    /// Sends one request and waits for its answer.
    pub(super) fn ask(&mut self, kind: Kind) -> Outcome {
        // A moment, in which one request is due.
        let taken = self.run(&[kind], Pace::PerSecond(1.0), Duration::from_nanos(1));
        taken[0].outcome
    }

    fn send(&mut self, slot: usize, kind: Kind, due: Instant) {
        let is_repeatable = self.connections[slot].stream.is_some();
        let pending = Pending { kind, due, sent: Instant::now(), is_repeatable };
        let connection = &mut self.connections[slot];
        connection.pending = Some(pending);
        connection.answer.clear();
        if connection.stream.is_none() {
            let stream = TcpStream::connect(&self.address).expect("the gateway accepts");
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let data = epoll::EventData::new_u64(slot as u64);
            epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).unwrap();
            connection.stream = Some(stream);
        }
        let stream = connection.stream.as_mut().expect("it was just made");
        let written = stream.write_all(&self.requests[kind as usize]);
        // Whether it arrived, the answer tells.
        assert!(written.is_ok() || is_repeatable, "{kind:?}: {written:?}");
    }

    /// Reads what has arrived on a connection; returns its request if that is answered now.
    fn receive(&mut self, slot: usize) -> Option<Taken> {
        let connection = &mut self.connections[slot];
        let mut chunk = [0; 16 << 10];
        let read = match connection.stream.as_mut()?.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            read => read,
        };
        match (read, connection.pending) {
            (Ok(length @ 1..), Some(pending)) => {
                connection.answer.extend_from_slice(&chunk[..length]);
                let (body, length) = parts(&connection.answer)?;
                (connection.answer.len() >= body + length).then(|| {
                    let (kind, outcome) =
                        (pending.kind, outcome(pending.kind, &connection.answer, body));
                    connection.pending = None;
                    self.idle.push(slot);
                    let since = if outcome == Outcome::Done { pending.due } else { pending.sent };
                    Taken { kind, outcome, took: since.elapsed() }
                })
            }
            (Ok(1..), None) => panic!("an answer without a request"),
            (end, pending) => {
                connection.stream = None;
                if let Some(pending) = pending {
                    let is_new = connection.answer.is_empty() && pending.is_repeatable;
                    assert!(is_new, "{:?}: {end:?}", pending.kind);
                    self.send(slot, pending.kind, pending.due);
                }
                None
            }
        }
    }
}

/// Checks that an answer is the right one or a typed refusal.
fn outcome(kind: Kind, answer: &[u8], body: usize) -> Outcome {
    let (head, text) = answer.split_at(body);
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

/// Returns where the body of an answer begins, and its length, as soon as the head is complete.
fn parts(answer: &[u8]) -> Option<(usize, usize)> {
    let text = str::from_utf8(answer).ok()?;
    let head = &text[..text.find("\r\n\r\n")? + 4];
    let (_, length) = head.split_once("content-length: ").expect("no answer is a stream");
    let length = length.lines().next()?.parse().expect("it is a number");
    Some((head.len(), length))
}
