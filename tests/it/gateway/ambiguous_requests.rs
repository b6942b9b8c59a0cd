//! NX-14: ambiguous requests, which two parsers could read differently, are refused on every route.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::server::{Installation, Server};

/// The headers that may occur only once, each with a valid value.
const ONCE: [(&str, &str); 14] = [
    ("host", "localhost"),
    ("authorization", "Bearer pml_key_none"),
    ("x-api-key", "pml_key_none"),
    ("content-type", "application/json"),
    ("idempotency-key", "8e03978e"),
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/list"),
    ("mcp-name", "json:parse"),
    ("mcp-session-id", "8e03978e"),
    ("mcp-param-region", "eu"),
    ("last-event-id", "7"),
    ("origin", "http://localhost"),
    ("x-pml-client", "package"),
    ("x-pml-key-tavily-api-key", "tvly"),
];

/// Returns every route of the gateway, and in addition its aliases and unknown paths.
fn routes(server: &Server) -> Vec<(String, String)> {
    let printed = server.installation().run_ok(&["routes", "--json"]);
    let routes: Value = serde_json::from_str(&printed).unwrap();
    let text = |route: &Value, name: &str| route[name].as_str().unwrap().to_owned();
    let mut all: Vec<(String, String)> = routes
        .as_array()
        .unwrap()
        .iter()
        .map(|route| {
            let mut path = text(route, "path");
            while let (Some(open), Some(close)) = (path.find('{'), path.find('}')) {
                path.replace_range(open..=close, "nobodys");
            }
            (text(route, "method"), path)
        })
        .collect();
    for (method, path) in [
        ("POST", "/v0/publish"),
        ("POST", "/v0/auth/github-at"),
        ("GET", "/v0/servers"),
        ("OPTIONS", "/v0.1/servers"),
        ("GET", "/no/such/path"),
        ("DELETE", "/health"),
    ] {
        all.push((method.to_owned(), path.to_owned()));
    }
    all
}

/// A raw connection that sends one request after the other.
struct Raw(TcpStream);

/// An HTTP response.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    fn is_refusal_of(&self, what: &str) -> bool {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let is_problem = self.head.contains("content-type: application/problem+json")
            && problem["code"] == json!("INVALID_REQUEST")
            && problem["status"] == json!(400);
        self.status == 400
            && is_problem
            && problem["detail"].as_str().is_some_and(|detail| detail.contains(what))
    }

    fn shown(&self) -> String {
        format!("{}\n{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

impl Raw {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends a request without a body and reads the answer, which has a length.
    #[track_caller]
    fn ask(&mut self, line: &str, headers: &[(&str, &str)]) -> Answer {
        let mut sent = format!("{line}\r\n");
        for (name, value) in headers {
            sent += &format!("{name}: {value}\r\n");
        }
        sent += "\r\n";
        self.send(&sent)
    }

    #[track_caller]
    fn send(&mut self, sent: &str) -> Answer {
        self.0.write_all(sent.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap_or_else(|error| {
                panic!("{error}: {sent}\n{}", String::from_utf8_lossy(&head))
            });
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let length = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        if field("transfer-encoding").is_some() {
            // Only the head of a chunked response is read; the connection is not used again.
            self.0.shutdown(std::net::Shutdown::Both).unwrap();
        }
        Answer { status, head, body }
    }

    /// Returns whether the gateway closes the connection without sending anything more.
    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(self.0.read_to_end(&mut rest), Ok(0))
    }
}

fn gateway() -> Server {
    // All requests come from one address, and there is one for each pair of route and header.
    Installation::new().start_with(&[("PML_RATE_PER_ADDRESS", "off")])
}

/// NX-14: a security-relevant header that occurs twice is refused on every route, even with equal values.
#[test]
fn duplicate_security_headers_are_refused_on_every_route() {
    let server = gateway();
    let mut connection = Raw::new(&server);
    let host = ("host", "localhost");
    let mut routes = routes(&server);
    assert!(routes.len() > 40, "{routes:?}");
    // The positive control has its own connection, because the gateway may close it.
    for (method, path) in routes.drain(..) {
        let line = format!("{method} {path} HTTP/1.1");
        for (name, value) in ONCE {
            for second in [value, "other"] {
                let mut headers = vec![(name, value), ("content-length", "0"), (name, second)];
                if name != "host" {
                    headers.push(host);
                }
                let answer = connection.ask(&line, &headers);
                let refused = answer.is_refusal_of(&format!("more than one header `{name}`"));
                assert!(refused, "{line}, {name}: {}", answer.shown());
                // The refusal comes before authentication, so it has no challenge.
                assert!(!answer.head.contains("www-authenticate"), "{}", answer.shown());
            }
        }
        // Header names are case-insensitive.
        let twice = [host, ("Content-Type", "a/b"), ("content-TYPE", "a/b")];
        assert!(
            connection.ask(&line, &twice).is_refusal_of("more than one header `content-type`"),
            "{line}"
        );

        let once: Vec<(&str, &str)> = ONCE
            .into_iter()
            .filter(|(name, _)| !matches!(*name, "x-api-key"))
            .chain([("content-length", "0"), ("accept", "a/b"), ("accept", "c/d")])
            .collect();
        let control = Raw::new(&server).ask(&line, &once);
        assert!(
            !control.is_refusal_of("more than one header") && control.status != 500,
            "{line}: {}",
            control.shown()
        );
    }
}

/// NX-14: a request must name exactly one host; a host in the target must equal the one in `Host`.
#[test]
fn a_request_must_name_exactly_one_host() {
    let server = gateway();
    let mut connection = Raw::new(&server);
    let none = ("content-length", "0");
    for (method, path) in routes(&server) {
        let line = format!("{method} {path} HTTP/1.1");
        let answer = connection.ask(&line, &[none]);
        assert!(answer.is_refusal_of("has no `Host`"), "{line}: {}", answer.shown());
        let absolute = format!("{method} http://localhost{path} HTTP/1.1");
        for host in ["evil.test", "localhost:81", "localhost.evil.test"] {
            let answer = connection.ask(&absolute, &[("host", host), none]);
            assert!(answer.is_refusal_of("different hosts"), "{absolute}: {}", answer.shown());
        }
        for host in ["localhost, evil.test", "evil.test@localhost", "localhost/x", ""] {
            let answer = connection.ask(&line, &[("host", host), none]);
            assert!(answer.is_refusal_of("is not a host"), "{line} {host}: {}", answer.shown());
        }
        let control = Raw::new(&server).ask(&absolute, &[("host", "LOCALHOST:80"), none]);
        assert!(!control.is_refusal_of("host"), "{absolute}: {}", control.shown());
    }
    // HTTP/1.0 does not require `Host`: `/health` works without it, and `/mcp` refuses.
    assert_eq!(Raw::new(&server).ask("GET /health HTTP/1.0", &[]).status, 200);
    let authorization = format!("Bearer {}", server.tenant().key);
    let call = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("content-length", "0"),
    ];
    assert_eq!(Raw::new(&server).ask("POST /mcp HTTP/1.0", &call).status, 400);
    let two = Raw::new(&server).ask("GET /health HTTP/1.0", &[("host", "a"), ("host", "a")]);
    assert!(two.is_refusal_of("more than one header `host`"), "{}", two.shown());
}

/// NX-14: a request with conflicting lengths cannot smuggle a second request in its body.
#[test]
fn conflicting_lengths_cannot_smuggle_a_request() {
    let server = gateway();
    let hidden = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let length = format!("content-length: {}", hidden.len() + 5);
    let chunked = "transfer-encoding: chunked";
    let line = "POST /api/v1/keys HTTP/1.1\r\nhost: localhost";
    for (lengths, status) in [
        // The HTTP parser refuses conflicting or malformed lengths, in any order.
        (format!("content-length: 5\r\n{length}"), 400),
        (format!("{length}\r\ncontent-length: 5"), 400),
        ("content-length: 5, 5".to_owned(), 400),
        ("content-length: +5".to_owned(), 400),
        (format!("{chunked}\r\n{chunked}"), 400),
        ("transfer-encoding: chunked, identity".to_owned(), 400),
        // RFC 9112, section 6.3: `Transfer-Encoding` overrides `Content-Length`, and the connection is closed.
        (format!("{length}\r\n{chunked}"), 401),
        (format!("{chunked}\r\n{length}"), 401),
    ] {
        let mut connection = Raw::new(&server);
        let answer = connection.send(&format!("{line}\r\n{lengths}\r\n\r\n0\r\n\r\n{hidden}"));
        assert_eq!(answer.status, status, "{lengths}: {}", answer.shown());
        assert!(connection.is_closed(), "{lengths}: the hidden request was answered");
    }
    // The control: two well-formed requests on one connection.
    let mut connection = Raw::new(&server);
    let answer = connection.send(&format!("{line}\r\ncontent-length: 0\r\n\r\n"));
    assert_eq!(answer.status, 401, "{}", answer.shown());
    assert_eq!(connection.send(hidden).status, 200);
}
