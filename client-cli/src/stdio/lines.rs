//! Transports the lines of stdin and stdout between the agent and the MCP service.
//!
//! A line that the service cannot parse is answered here, with the id of the request if it has one, because a client
//! would wait forever for an answer. A single writer writes to stdout, so answers never interleave.

mod message;

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    DuplexStream,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use message::{Gate, Verdict, parse_error};

/// The maximum length of a line in bytes: enough for a program and its arguments.
const LINE_LIMIT: usize = 8 * 1024 * 1024;

/// The buffer size between this module and the service, in bytes.
const BUFFER: usize = 64 * 1024;

/// The number of bytes queued for stdout above which stdin is not read any further.
const UNREAD_LIMIT: usize = 16 * 1024 * 1024;

/// The queue of lines for stdout.
#[derive(Clone)]
struct Outbox {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    unwritten: watch::Sender<usize>,
}

impl Outbox {
    /// Queues a line; `false` if stdout is closed.
    fn put(&self, line: Vec<u8>) -> bool {
        // Counted before it is sent: the writer could subtract the line first, and the count would
        // underflow.
        self.unwritten.send_modify(|bytes| *bytes += line.len());
        self.lines.send(line).is_ok()
    }

    /// Waits until the reader of stdout has caught up.
    async fn has_room(&self) -> bool {
        let mut unwritten = self.unwritten.subscribe();
        tokio::select! {
            room = unwritten.wait_for(|bytes| *bytes < UNREAD_LIMIT) => room.is_ok(),
            () = self.lines.closed() => false,
        }
    }
}

/// Connects stdin and stdout with the two ends that the MCP service reads and writes.
///
/// The returned task ends when stdin has ended, the service has dropped its ends and everything is written, or when
/// stdout is closed.
pub(super) fn connect(
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
) -> ((DuplexStream, DuplexStream), JoinHandle<()>) {
    let (to_service, service_reads) = tokio::io::duplex(BUFFER);
    let (service_writes, from_service) = tokio::io::duplex(BUFFER);
    // Unbounded, so that the service never blocks on an answer. `UNREAD_LIMIT` holds back requests
    // instead.
    let (lines, waiting) = mpsc::unbounded_channel();
    let (unwritten, _) = watch::channel(0);
    let outbox = Outbox { lines, unwritten: unwritten.clone() };
    tokio::spawn(read_stdin(stdin, to_service, outbox.clone()));
    tokio::spawn(collect(from_service, outbox));
    // Only this task is returned: the reader may block in a read of stdin, which cannot be
    // cancelled.
    let written = tokio::spawn(write_stdout(stdout, waiting, unwritten));
    ((service_reads, service_writes), written)
}

async fn read_stdin(stdin: impl AsyncRead + Unpin, mut service: DuplexStream, outbox: Outbox) {
    let mut stdin = BufReader::new(stdin);
    let mut line = Vec::new();
    let mut gate = Gate::default();
    // Back-pressure: while a client does not read its answers, its requests are not read either.
    while outbox.has_room().await {
        line.clear();
        // `read_until` itself has no limit: an endless line would fill the memory.
        let read = (&mut stdin).take(LINE_LIMIT as u64 + 1).read_until(b'\n', &mut line).await;
        match read {
            // Dropping `service` ends its input, so that the service answers what it has and ends.
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let verdict = if line.len() > LINE_LIMIT {
            // If the limit fell exactly on the line end, skipping would discard the next line.
            if !line.ends_with(b"\n") && skip_line(&mut stdin).await.is_err() {
                return;
            }
            // The line is not parsed, so its id is unknown; JSON-RPC prescribes `null` for this
            // case.
            let problem = format!("a message has more than {LINE_LIMIT} bytes");
            Verdict::Answered(parse_error(&serde_json::Value::Null, &problem))
        } else if line.trim_ascii().is_empty() {
            continue;
        } else {
            gate.decide(&line)
        };
        let sent = match verdict {
            Verdict::Answered(answer) => outbox.put(answer),
            Verdict::Ignored(reason) => {
                tracing::debug!(reason, "Ignored a message");
                true
            }
            Verdict::Passed => {
                // The last line may lack its end, and the service ignores a line without one.
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

/// Reads up to the next line end and discards it.
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

async fn collect(service: DuplexStream, outbox: Outbox) {
    let mut service = BufReader::new(service);
    loop {
        let mut line = Vec::new();
        match service.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !outbox.put(line) {
            return;
        }
    }
}

async fn write_stdout(
    mut stdout: impl AsyncWrite + Unpin,
    mut lines: mpsc::UnboundedReceiver<Vec<u8>>,
    unwritten: watch::Sender<usize>,
) {
    while let Some(line) = lines.recv().await {
        if stdout.write_all(&line).await.is_err() || stdout.flush().await.is_err() {
            tracing::debug!("Stdout is closed");
            return;
        }
        unwritten.send_modify(|bytes| *bytes -= line.len());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;

    const FIRST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
    const SECOND: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;

    /// CL-02: a line that is not JSON is answered, and the next line is still read.
    #[tokio::test]
    async fn lines_that_are_not_json_are_answered() {
        let (mut agent, stdin) = tokio::io::duplex(64 * 1024);
        let (stdout, answers) = tokio::io::duplex(64 * 1024);
        let ((mut service_reads, mut service_writes), written) = connect(stdin, stdout);
        let huge = "x".repeat(LINE_LIMIT + 10);
        tokio::spawn(async move {
            for text in ["{\"a\":\n", "\n", FIRST, "\r\n", "\u{fffd}\n", &huge, "\n", SECOND] {
                agent.write_all(text.as_bytes()).await.unwrap();
            }
        });
        let mut seen = String::new();
        service_reads.read_to_string(&mut seen).await.unwrap();
        assert_eq!(seen, format!("{FIRST}\r\n{SECOND}\n"));
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

    /// CL-02: reading stops while the client does not read its answers.
    #[tokio::test]
    async fn unread_answers_are_bounded() {
        let (mut agent, stdin) = tokio::io::duplex(1024);
        let (stdout, answers) = tokio::io::duplex(1024);
        let ((service_reads, mut service_writes), _written) = connect(stdin, stdout);
        let answer = format!("{}\n", "x".repeat(1024 * 1024 - 1));
        let mut taken = 0;
        let mut service_reads = BufReader::new(service_reads);
        loop {
            let question = tokio::time::timeout(Duration::from_millis(500), async {
                agent
                    .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n")
                    .await?;
                service_reads.read_line(&mut String::new()).await
            });
            if question.await.is_err() {
                break;
            }
            taken += 1;
            assert!(taken < 64, "requests are read although answers are not");
            service_writes.write_all(answer.as_bytes()).await.unwrap();
        }
        let mut read = BufReader::new(answers).lines();
        for _ in 0..taken {
            assert_eq!(read.next_line().await.unwrap().unwrap().len(), answer.len() - 1);
        }
        // The delayed request is read now.
        service_reads.read_line(&mut String::new()).await.unwrap();
    }

    /// The connection ends when stdout is closed: the client could not learn the result of further calls.
    #[tokio::test]
    async fn a_closed_stdout_ends_the_connection() {
        let (_agent, stdin) = tokio::io::duplex(1024);
        let (stdout, answers) = tokio::io::duplex(1024);
        let ((_service_reads, mut service_writes), written) = connect(stdin, stdout);
        drop(answers);
        service_writes.write_all(b"{}\n").await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), written).await.unwrap().unwrap();
    }
}
