//! A minimal HTTP/1.1 client on one kept connection. It does as little as possible, because it shares the machine with
//! the server that it measures.

use std::error::Error;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    #[allow(dead_code, reason = "not every bench looks at headers")]
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(
        address: SocketAddr,
    ) -> Result<Client, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, bytes: Vec::with_capacity(64 * 1024) })
    }

    /// Sends a request and reads the complete answer.
    pub(crate) async fn send(
        &mut self,
        request: &[u8],
    ) -> Result<Reply, Box<dyn Error + Send + Sync>> {
        self.stream.write_all(request).await?;
        self.bytes.clear();
        let head = loop {
            if let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let text = String::from_utf8_lossy(&self.bytes[..head]).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or("the answer has no status")?;
        let length = match header(&text, "content-length") {
            Some(length) => length.parse()?,
            None if status == 304 => 0,
            None => return Err(format!("the answer has no length: {text}").into()),
        };
        while self.bytes.len() < head + length {
            self.more().await?;
        }
        Ok(Reply { status, head: text, body: self.bytes[head..head + length].to_vec() })
    }

    async fn more(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err("the server has closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// Returns the value of a header.
pub(crate) fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then_some(value.trim())
    })
}

/// Returns the bytes of a request.
pub(crate) fn request(
    method: &str,
    path: &str,
    host: SocketAddr,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}
