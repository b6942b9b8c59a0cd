//! A minimal proxy as the baseline: it reads a request, forwards it with the same HTTP client library as the gateway,
//! and streams the answer back. It has no authentication, rules, records or timeouts.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The argument that makes the bench binary run the proxy.
pub(crate) const WORD: &str = "bare";
/// The headers that are forwarded in both directions.
const HEADERS: [&str; 4] = ["content-type", "accept", "mcp-protocol-version", "mcp-session-id"];

/// Serves until the process is killed.
pub(crate) fn serve(upstream: &str, port: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    #[expect(clippy::disallowed_methods, reason = "it is a separate program")]
    let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().unwrap();
    // The same number of threads as the gateway.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (client, upstream) = (client.clone(), upstream.to_owned());
            // A disconnect ends the task.
            tokio::spawn(async move { converse(stream, client, &upstream).await.ok() });
        }
    });
}

async fn converse(stream: TcpStream, client: reqwest::Client, upstream: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let method =
            line.split(' ').next().unwrap_or_default().parse().map_err(io::Error::other)?;
        let mut request = client.request(method, upstream);
        let mut length = 0;
        loop {
            line.clear();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            let name = name.to_ascii_lowercase();
            if name == "content-length" {
                length = value.trim().parse().map_err(io::Error::other)?;
            } else if HEADERS.contains(&name.as_str()) {
                request = request.header(name, value.trim());
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let mut answer = request.body(body).send().await.map_err(io::Error::other)?;
        let mut head = format!("HTTP/1.1 {}\r\n", answer.status());
        for name in HEADERS {
            if let Some(value) = answer.headers().get(name).and_then(|value| value.to_str().ok()) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        head += "transfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        while let Some(chunk) = answer.chunk().await.map_err(io::Error::other)? {
            let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), &chunk, b"\r\n"].concat();
            stream.write_all(&framed).await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}
