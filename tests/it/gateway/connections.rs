//! Connections that send nothing, or slowly, as many as there are descriptors and more.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::expect::success;
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll, scaled};

/// Starts a gateway that may open so many files.
fn with_descriptors(count: usize) -> Server {
    let installation = Installation::new();
    let plain = installation.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {count} && exec \"$0\"")]).arg(plain.get_program());
    command.env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    installation.start_by(&command)
}

fn address(server: &Server) -> SocketAddr {
    server.url().strip_prefix("http://").unwrap().parse().unwrap()
}

/// Opens connections that send these bytes, and nothing after them.
fn open(server: &Server, count: usize, first: &str) -> Vec<TcpStream> {
    let address = address(server);
    let open = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // Some have been closed by then, which is what is tested.
        let _ = stream.write_all(first.as_bytes());
        stream.set_nonblocking(true).unwrap();
        stream
    };
    (0..count).map(open).collect()
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1_024]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// How long a new client waits for its answer, on a connection of its own.
fn time_to_answer(server: &Server) -> Duration {
    let asked = Instant::now();
    let mut stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    asked.elapsed()
}

/// NX-05, R-13, R-14: with twice as many silent and slow connections as descriptors, whoever sends a request is served,
/// and what was at work before goes on.
#[test]
fn silent_and_slow_connections_leave_room_for_others() {
    let server = with_descriptors(1_024);
    let tenant = server.tenant();
    // It has a connection from before, and keeps it.
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let wait = "await mcp.json.parse({ data: '1' }); return 1";
    assert_eq!(success(&client.execute(wait)), 1);
    let mut silent = open(&server, 400 + scaled(4_600), "");
    let slow_head = open(&server, 100 + scaled(900), "POST /mcp HTTP/1.1\r\nhost: x\r\nx-slow: ");
    let body = "POST /v0/auth/github-at HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{";
    let slow_body = open(&server, 100 + scaled(900), body);
    let slowest = (0..10).map(|_| time_to_answer(&server)).max().unwrap();
    eprintln!("slowest answer beside silent and slow connections: {slowest:?}");
    // A busy machine gets more than the 100 ms that are promised.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    assert_eq!(success(&client.execute(wait)), 1);
    let log = server.installation().log();
    assert!(!log.contains("Could not accept connections"), "{log}");
    assert_eq!(get(&format!("{}/ready", server.url()), &[]).status, 200);
    // What nobody needed room for goes as well, in its time.
    poll("silent connections to be closed", PATIENCE, || {
        silent.retain_mut(|stream| !is_closed(stream));
        silent.is_empty().then_some(())
    });
    drop((slow_head, slow_body));
}

/// NX-05: a request has ten seconds for its head and its body a pace; the refusal of a slow body says so.
#[test]
fn slow_requests_are_ended() {
    let server = Server::shared();
    let head = "GET /health HTTP/1.1\r\nhost: x\r\nx-slow: ";
    let mut slow = open(server, 3, head);
    slow.extend(open(server, 3, ""));
    // The second request of a connection is one like the first.
    slow.extend(open(server, 3, &format!("GET /health HTTP/1.1\r\nhost: x\r\n\r\n{head}")));
    let body = "POST /v0/auth/github-at HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9000\r\n\r\n{";
    let mut trickling = open(server, 1, body).remove(0);
    let mut answer = String::new();
    poll("slow requests to be ended", Duration::from_secs(120), || {
        for stream in &mut slow {
            // It never comes to an end, and is never silent.
            let _ = stream.write_all(b"x");
        }
        slow.retain_mut(|stream| !is_closed(stream));
        let _ = trickling.write_all(b" ");
        let mut piece = [0; 1_024];
        if let Ok(count) = trickling.read(&mut piece) {
            answer += &String::from_utf8_lossy(&piece[..count]);
        }
        (slow.is_empty() && answer.contains("did not arrive in time")).then_some(())
    });
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

/// A client that sends one request after the other keeps its connection; one that is told to stop hears the rest.
#[test]
fn connections_are_kept_between_requests() {
    let server = Installation::new().start();
    let mut stream = TcpStream::connect(address(&server)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        let mut piece = [0; 1_024];
        while !answer.contains(&json!({ "status": "ok" }).to_string()) {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "it was closed: {answer:?}");
            answer += &String::from_utf8_lossy(&piece[..count]);
        }
    }
    // It has no request under way, so it does not keep the gateway.
    let told = Instant::now();
    assert_eq!(server.stop(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(15), "{:?}", told.elapsed());
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
}

/// Reads one answer with its body; returns its head.
fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return head.to_owned();
            }
        }
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "it was closed: {text:?}");
        bytes.extend_from_slice(&piece[..count]);
    }
}

/// NX-05: a request that is refused before its body was read does not spoil the next one: the body is read after all,
/// or the answer says that the connection ends.
#[test]
fn a_refused_body_does_not_spoil_the_next_request() {
    let server = Server::shared();
    let tenant = server.tenant();
    let text = format!("authorization: Bearer {}\r\ncontent-type: text/plain", tenant.key);
    let json = text.replace("text/plain", "application/json");
    let connect = || {
        let stream = TcpStream::connect(address(server)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let small = "x".repeat(300 * 1024);
    for (path, headers, body, status) in [
        ("/nowhere", text.as_str(), "{}", 404),
        ("/health", "", "{}", 405),
        ("/api/v1/keys", "content-type: application/json", "{}", 401),
        ("/api/v1/keys", &text, "{}", 415),
        ("/v0/auth/github-at", &json, &small, 413),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .replace("\r\n\r\ncontent", "\r\ncontent");
        let refused = format!("HTTP/1.1 {status}");
        let mut stream = connect();
        for _ in 0..scaled(50) {
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            let told = answer(&mut stream);
            assert!(told.starts_with(&refused) && !told.contains("connection: close"), "{told}");
            stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            assert!(answer(&mut stream).starts_with("HTTP/1.1 200"), "{path}");
        }
        if status == 413 {
            // Here the body is read, and waited for.
            continue;
        }
        // Its rest never comes, or is too much to wait for.
        let large = head.replace(&format!("length: {}", body.len()), "length: 9000000");
        for (head, begun) in [(&head, &body[..1]), (&large, &body[..2])] {
            let mut stream = connect();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(begun.as_bytes()).unwrap();
            let told = answer(&mut stream);
            assert!(told.contains("\r\nconnection: close"), "{path}: {told}");
        }
    }
}
