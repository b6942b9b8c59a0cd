//! An MCP server that answers immediately. A proxy in front of it is never idle, so the measurement does not include the
//! cost of waking up. The server has one tool and answers with events, like the servers of the SDKs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

/// Starts the server in this process and returns its URL. It ends with the bench.
pub(crate) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A disconnect ends the thread.
            thread::spawn(move || serve(stream).ok());
        }
    });
    format!("http://{address}/mcp")
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let is_stream = line.starts_with("GET");
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or_default();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let answer = if is_stream { events("") } else { answer(&body) };
        stream.write_all(answer.as_bytes())?;
    }
}

/// Returns the complete HTTP response to a message.
fn answer(body: &[u8]) -> String {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(id) = message.get("id") else {
        return "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned();
    };
    let payload = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({ "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "quick", "version": "1" },
        } }),
        "ping" => json!({ "result": {} }),
        "tools/list" => json!({ "result": { "tools": [
            { "name": "echo", "description": "Echoes", "inputSchema": { "type": "object" } },
        ] } }),
        "tools/call" => {
            let text = &message["params"]["arguments"]["message"];
            json!({ "result": { "content": [{ "type": "text", "text": text }] } })
        }
        _ => json!({ "error": { "code": -32601, "message": "Method not found" } }),
    };
    let mut whole = json!({ "jsonrpc": "2.0", "id": id });
    whole.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
    let event = format!("event: message\r\ndata: {whole}\r\n\r\n");
    format!("{}{:x}\r\n{event}\r\n0\r\n\r\n", events("mcp-session-id: quick\r\n"), event.len())
}

/// Returns the head of an event stream response.
fn events(more: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n{more}\r\n"
    )
}
