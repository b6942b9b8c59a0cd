//! The lines of stdin and stdout, between the agent and the MCP service.
//!
//! A line that is not JSON gets the answer that JSON-RPC 2.0 asks for, `-32700`,
//! and the conversation goes on. Every line to stdout passes through one writer,
//! so answers never mix.

use serde::de::IgnoredAny;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    DuplexStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The longest line that is read, in bytes: a program, its arguments and room to spare.
const LINE_LIMIT: usize = 8 * 1024 * 1024;

/// How much may wait between us and the service, in bytes.
const BUFFER: usize = 64 * 1024;

/// How many lines may wait for a slow reader of stdout.
const WAITING_LINES: usize = 64;

/// Connects stdin and stdout with the two ends that the MCP service reads and writes.
///
/// The task ends when stdin has ended, the service has dropped its ends, and all is written.
pub(super) fn connect(
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
) -> ((DuplexStream, DuplexStream), JoinHandle<()>) {
    let (to_service, service_reads) = tokio::io::duplex(BUFFER);
    let (service_writes, from_service) = tokio::io::duplex(BUFFER);
    let (lines, waiting) = mpsc::channel(WAITING_LINES);
    tokio::spawn(read_stdin(stdin, to_service, lines.clone()));
    tokio::spawn(collect(from_service, lines));
    let written = tokio::spawn(write_stdout(stdout, waiting));
    ((service_reads, service_writes), written)
}

async fn read_stdin(
    stdin: impl AsyncRead + Unpin,
    mut service: DuplexStream,
    lines: mpsc::Sender<Vec<u8>>,
) {
    let mut stdin = BufReader::new(stdin);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut stdin).take(LINE_LIMIT as u64 + 1).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let problem = if line.len() > LINE_LIMIT {
            if !line.ends_with(b"\n") && skip_line(&mut stdin).await.is_err() {
                return;
            }
            Some(format!("a message has more than {LINE_LIMIT} bytes"))
        } else if line.trim_ascii().is_empty() {
            continue;
        } else {
            serde_json::from_slice::<IgnoredAny>(&line).err().map(|error| error.to_string())
        };
        let sent = match problem {
            Some(problem) => lines.send(parse_error(&problem)).await.is_ok(),
            None => {
                if !line.ends_with(b"\n") {
                    line.push(b'\n');
                }
                service.write_all(&line).await.is_ok()
            }
        };
        if !sent {
            return;
        }
    }
}

/// Reads up to the next line end and keeps nothing of it.
async fn skip_line(stdin: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> std::io::Result<()> {
    loop {
        let buffer = stdin.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(());
        }
        match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                stdin.consume(at + 1);
                return Ok(());
            }
            None => {
                let read = buffer.len();
                stdin.consume(read);
            }
        }
    }
}

/// Returns the answer to what is not JSON (JSON-RPC 2.0, section 5.1).
fn parse_error(problem: &str) -> Vec<u8> {
    let answer = serde_json::json!({
        "jsonrpc": "2.0",
        "id": null,
        "error": { "code": -32700, "message": format!("Parse error: {problem}") },
    });
    format!("{answer}\n").into_bytes()
}

async fn collect(service: DuplexStream, lines: mpsc::Sender<Vec<u8>>) {
    let mut service = BufReader::new(service);
    loop {
        let mut line = Vec::new();
        match service.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

async fn write_stdout(mut stdout: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if stdout.write_all(&line).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// CL-02: what is not JSON is answered, and the next line is read all the same.
    #[tokio::test]
    async fn lines_that_are_not_json_are_answered() {
        let (mut agent, stdin) = tokio::io::duplex(64 * 1024);
        let (stdout, answers) = tokio::io::duplex(64 * 1024);
        let ((mut service_reads, mut service_writes), written) = connect(stdin, stdout);
        let huge = "x".repeat(LINE_LIMIT + 10);
        tokio::spawn(async move {
            for text in
                ["{\"a\":\n", "\n", "{\"id\":1}\r\n", "\u{fffd}\n", &huge, "\n", "{\"id\":2}"]
            {
                agent.write_all(text.as_bytes()).await.unwrap();
            }
        });
        let mut seen = String::new();
        service_reads.read_to_string(&mut seen).await.unwrap();
        assert_eq!(seen, "{\"id\":1}\r\n{\"id\":2}\n");
        service_writes.write_all(b"{\"ok\":true}\n").await.unwrap();
        drop(service_writes);
        written.await.unwrap();
        let mut lines = BufReader::new(answers).lines();
        let mut codes = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            let answer: Value = serde_json::from_str(&line).unwrap();
            codes.push(answer.pointer("/error/code").and_then(Value::as_i64));
        }
        assert_eq!(codes, [Some(-32700), Some(-32700), Some(-32700), None]);
    }
}
