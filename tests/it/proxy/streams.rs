//! Streaming answers pass through the proxy piece by piece, whatever their content type.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};

use serde_json::json;

use crate::proxy::messages::{ProxyClient, Raw};
use crate::support::cli::text;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Server;
use crate::support::upstream::{Entry, host_of, scope_of};

/// Starts a server that answers its first request with a stream of JSON; returns its URL and a sender for the pieces.
fn streaming() -> (String, Sender<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (send_piece, pieces) = channel::<String>();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut read, mut piece) = (Vec::new(), [0; 4_096]);
        while !text(&read).contains("\"subscriptions/listen\"") {
            let count = socket.read(&mut piece).unwrap();
            read.extend_from_slice(&piece[..count]);
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        while let Ok(text) = pieces.recv() {
            socket.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).unwrap();
        }
    });
    (url, send_piece)
}

/// A subscription does not end: each message must arrive while the stream is open, with the secret redacted.
#[test]
fn messages_of_a_json_subscription_arrive_one_by_one() {
    let server = Server::shared();
    for needs_a_key in [false, true] {
        let tenant = server.tenant();
        let scope = scope_of(&tenant);
        let (url, send_piece) = streaming();
        let entry = Entry::http(&scope, "streaming", &url);
        let entry = if needs_a_key { entry.needs("STREAM_TOKEN") } else { entry };
        entry.publish(server.installation());
        let client = ProxyClient::new(&tenant, "streaming");
        let params = json!({ "notifications": { "toolsListChanged": true } });
        let body = Era::Stateless.request(1, "subscriptions/listen", params).to_string();
        let mut headers =
            vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
        let host = host_of(&url);
        if needs_a_key {
            headers.push(("x-pml-key-stream-token", "canary-7f3a91"));
            headers.push(("x-pml-host-stream-token", &host));
        }
        send_piece
            .send("{\"jsonrpc\":\"2.0\",\"method\":\"first\",\"params\":{}}\n".to_owned())
            .unwrap();
        let mut stream = Raw::open(&client, "POST", &headers, Some(&body));
        stream.until("\"first\"");
        send_piece.send("{\"method\":\"second\",\"params\":{\"key\":\"canary-".to_owned()).unwrap();
        send_piece.send("7f3a91\"}}\n".to_owned()).unwrap();
        stream.until("\"second\"");
        let expected = if needs_a_key { "[redacted]" } else { "canary-" };
        stream.until(expected);
    }
}

/// Task methods are neither forwarded nor supported: `/mcp` and the proxy answer "method not found".
#[test]
fn task_methods_are_not_found() {
    let server = Server::shared();
    let tenant = server.tenant();
    let scope = scope_of(&tenant);
    Entry::http(&scope, "streaming", "http://127.0.0.1:9/mcp").publish(server.installation());
    let client = ProxyClient::new(&tenant, "streaming");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let body = Era::Stateless.request(1, method, json!({ "taskId": "t-1" })).to_string();
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", "t-1")];
        let passed = client.send("POST", &headers, Some(&body));
        let direct =
            HttpMcp::new(&tenant, Era::Stateless).post(body.as_bytes(), method, Some("t-1"));
        for (place, reply) in [("proxy", passed), ("mcp", direct)] {
            assert_eq!(reply.status, 404, "{place} {method}: {}", text(&reply.body));
            assert_eq!(reply.json()["error"]["code"], -32601, "{place} {method}");
        }
        // A header that contradicts the body is refused as for other methods.
        let other =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", "t-2")];
        assert_eq!(client.send("POST", &other, Some(&body)).json()["error"]["code"], -32020);
    }
}
