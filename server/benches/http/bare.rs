//! The baseline: an axum handler that reads the body and answers prepared bytes. It runs in a separate process, as the
//! gateway does: within the client's process, no other process would have to be woken up for an answer.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;

/// The argument with which a bench starts itself as the handler.
const WORD: &str = "bare";

/// A running handler; dropping this stops it.
pub(crate) struct Bare {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Bare {
    /// Starts the handler, which serves `posted` on `POST /mcp`, `got` on `GET /entry` and an empty 304 on `GET /same`.
    pub(crate) fn start(posted: &[u8], got: &[u8]) -> Result<Bare, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, &posted.len().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("it has no stdin")?;
        stdin.write_all(posted)?;
        stdin.write_all(got)?;
        drop(stdin);
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("it has no stdout")?).read_line(&mut line)?;
        Ok(Bare { child, address: line.trim().parse()? })
    }
}

impl Bare {
    #[allow(dead_code, reason = "not every bench needs the process id")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// If this process was started as the handler, serves until it is killed. Every bench calls this first.
pub(crate) fn serve_if_started_as_handler() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, word, length] = &words[..] else { return Ok(()) };
    if word != WORD {
        return Ok(());
    }
    let mut posted = vec![0; length.parse()?];
    std::io::stdin().read_exact(&mut posted)?;
    let mut got = Vec::new();
    std::io::stdin().read_to_end(&mut got)?;
    // With the default number of threads, as in the gateway.
    tokio::runtime::Runtime::new()?.block_on(serve(posted.into(), got.into()))
}

#[expect(clippy::print_stdout, reason = "the parent process reads the address from stdout")]
async fn serve(posted: Bytes, got: Bytes) -> Result<(), Box<dyn Error>> {
    let json = |bytes: Bytes| ([(header::CONTENT_TYPE, "application/json")], bytes);
    let router = Router::new()
        .route("/mcp", post(move |_body: Bytes| async move { json(posted) }))
        .route("/entry", get(move || async move { json(got) }))
        .route("/same", get(async || StatusCode::NOT_MODIFIED));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    // Without Nagle's algorithm, as in the gateway.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).await?)
}
