//! HTTP servers whose answers a test determines: hostile gateways and MCP servers.
//!
//! A stub never replaces a part of PML. It can also forward requests to the real gateway, changed or with a key added
//! for clients that cannot send one.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// What the stub does with a request.
pub(crate) enum Answer {
    /// Answers with JSON and 200.
    Json(Value),
    /// Answers with this status, type and body.
    Raw(u16, &'static str, Vec<u8>),
    /// Answers 307 with this location.
    Redirect(String),
    /// Sends nothing and keeps the connection open.
    Never,
    /// Closes the connection at once.
    Close,
}

/// A server with scripted answers.
pub(crate) struct GatewayStub {
    /// Its URL.
    pub(crate) url: String,
    requests: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<String>>>,
}

impl GatewayStub {
    /// Starts it; `answer` gets the JSON body of each POST.
    pub(crate) fn start(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_with_head(move |_, body| answer(body))
    }

    /// Starts it; `answer` gets the request line with the headers, and the JSON body.
    pub(crate) fn start_with_head(
        answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (count, record) = (Arc::clone(&requests), Arc::clone(&received));
        let answer = Arc::new(answer);
        let url = listen(move |mut stream| {
            let Some(request) = Request::read(&mut stream) else { return };
            let text = format!("{}\n{}", request.head, String::from_utf8_lossy(&request.body));
            record.lock().unwrap().push(text);
            count.fetch_add(1, Ordering::SeqCst);
            let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
            let mut more = String::new();
            let (status, kind, bytes) = match answer(&request.head, &body) {
                Answer::Redirect(place) => {
                    more = format!("location: {place}\r\n");
                    (307, "text/plain", Vec::new())
                }
                Answer::Json(value) => (200, "application/json", value.to_string().into_bytes()),
                Answer::Raw(status, kind, bytes) => (status, kind, bytes),
                Answer::Close => return,
                Answer::Never => {
                    // Ends when the client gives up and closes its side.
                    let _ = stream.read(&mut [0]);
                    return;
                }
            };
            let head = format!(
                "HTTP/1.1 {status} Stub\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{more}connection: close\r\n\r\n",
                bytes.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
        });
        Self { url, requests, received }
    }

    /// Returns each request that it has received, head and body.
    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// Returns how many requests it has received.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Forwards a request that a stub has received to a gateway; returns the body of the answer.
pub(crate) fn forward_request(url: &str, head: &str, body: &Value) -> String {
    let address = url.strip_prefix("http://").expect("a plain URL");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let ours = ["connection:", "content-length:", "host:", "accept-encoding:"];
    let mut request = String::new();
    for line in head.lines() {
        if !ours.iter().any(|name| line.to_ascii_lowercase().starts_with(name)) {
            request += line;
            request += "\r\n";
        }
    }
    let length = body.len();
    request += &format!("host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    let mut upstream = TcpStream::connect(address).expect("the gateway is there");
    upstream.write_all((request + &body).as_bytes()).expect("it takes requests");
    let mut answer = String::new();
    upstream.read_to_string(&mut answer).expect("it answers with text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(!head.to_ascii_lowercase().contains("chunked"), "{head}");
    body.to_owned()
}

/// Starts a proxy to the gateway at `url` that adds a key to every request; returns its URL.
pub(crate) fn with_key(url: &str, key: &str) -> String {
    with_key_and(url, key, |_, _| {})
}

/// The same, with a function that may change the header lines and the body.
pub(crate) fn with_key_and(
    url: &str,
    key: &str,
    edit: impl Fn(&mut Vec<String>, &mut Vec<u8>) + Send + Sync + 'static,
) -> String {
    let address = url.strip_prefix("http://").expect("a plain URL").to_owned();
    let key = key.to_owned();
    listen(move |mut stream| {
        let Some(mut request) = Request::read(&mut stream) else { return };
        let Ok(mut upstream) = TcpStream::connect(&address) else { return };
        let mut lines = request.head.lines();
        let first = lines.next().unwrap_or_default();
        let kept = |line: &&str| !line.to_ascii_lowercase().starts_with("connection:");
        let mut lines: Vec<String> = lines.filter(kept).map(str::to_owned).collect();
        edit(&mut lines, &mut request.body);
        lines.push(format!("authorization: Bearer {key}"));
        lines.push("connection: close".to_owned());
        let head = format!("{first}\r\n{}\r\n\r\n", lines.join("\r\n"));
        if upstream
            .write_all(head.as_bytes())
            .and_then(|()| upstream.write_all(&request.body))
            .is_err()
        {
            return;
        }
        let _ = std::io::copy(&mut upstream, &mut stream);
    })
}

/// Serves each connection in a separate thread; the threads end with the test process.
pub(super) fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                let closing = stream.try_clone();
                serve(stream);
                if let Ok(closing) = closing {
                    let _ = closing.shutdown(Shutdown::Both);
                }
            });
        }
    });
    url
}

pub(super) struct Request {
    /// The request line and the headers, without the empty line.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn read(stream: &mut TcpStream) -> Option<Self> {
        stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            bytes.push(byte[0]);
        }
        let head = String::from_utf8(bytes).ok()?.trim_end().to_owned();
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let length = header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            body = read_chunks(stream)?;
        }
        // From here on the stream is only written to, or waited for.
        stream.set_read_timeout(None).ok()?;
        Some(Self { head, body })
    }
}

/// Reads a chunked body; returns it with its framing, so that it can be forwarded.
fn read_chunks(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"0\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    Some(bytes)
}

/// Starts an MCP server of the 2025 versions. `answer` returns the result of a method, `None` for "method not found", or
/// `Silence` for no answer at all.
pub(crate) fn handshaking(
    name: &'static str,
    answer: impl Fn(&str) -> Result<Option<Value>, Silence> + Send + Sync + 'static,
) -> GatewayStub {
    GatewayStub::start(move |message| {
        let id = &message["id"];
        if id.is_null() {
            return Answer::Raw(202, "text/plain", Vec::new());
        }
        let method = message["method"].as_str().unwrap_or_default();
        let result = match method {
            "initialize" => Ok(Some(json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": name, "version": "1" },
            }))),
            method => answer(method),
        };
        match result {
            Ok(Some(result)) => {
                Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            }
            Ok(None) => {
                let error = json!({ "code": -32601, "message": method });
                Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
            Err(Silence) => Answer::Never,
        }
    })
}

/// A call that is never answered.
pub(crate) struct Silence;
