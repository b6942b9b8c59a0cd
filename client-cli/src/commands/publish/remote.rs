//! Lists the tools of an HTTP MCP server, which is called directly.

use std::time::Duration;

use execution::mcp_version;
use protocol::{ErrorBody, ErrorCode, ToolDescriptor};
use rmcp::model::PaginatedRequestParams;
use rmcp::service::ClientServiceExt as _;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::http_client::{self, Credential};

/// The total time limit.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of tools of a server.
const TOOLS_LIMIT: usize = 2_000;
/// The maximum number of pages of tools that are read.
const PAGES_LIMIT: usize = 100;

/// Lists the tools of a server. The key, if any, is sent as a bearer token.
///
/// # Errors
/// Returns `TOOL_UNAVAILABLE` when it is unreachable or its answer is invalid, and `INVALID_REQUEST` for an address
/// that no secret may be sent to.
pub(super) async fn tools(
    address: &str,
    key: Option<&str>,
    cancel: &CancellationToken,
) -> Result<Vec<ToolDescriptor>, ErrorBody> {
    let invalid =
        |what: &str| ErrorBody::new(ErrorCode::InvalidRequest, format!("`proxy_to` {what}"));
    let url = Url::parse(address).map_err(|error| invalid(&format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(invalid("is neither `http` nor `https`"));
    }
    // `http_client` refuses this too, but its message is about the API key of the gateway.
    if key.is_some() && url.scheme() == "http" && !http_client::is_this_machine(&url) {
        return Err(invalid("is not encrypted: a secret is sent only over `https`"));
    }
    let asked = tokio::time::timeout(TIMEOUT, ask(&url, key));
    let asked = tokio::select! {
        asked = asked => asked,
        () = cancel.cancelled() => {
            return Err(ErrorBody::new(ErrorCode::Cancelled, "interrupted by a signal"));
        }
    };
    let listed =
        asked.unwrap_or_else(|_| Err(format!("did not answer within {} s", TIMEOUT.as_secs())));
    listed.map_err(|what| {
        // The message may quote the request.
        let what = match key {
            // An empty key would match between all letters; `App::variable` treats it as unset.
            Some(key) => what.replace(key, "[redacted]"),
            None => what,
        };
        // Shortened after the redaction, which would not find half a key.
        let what = protocol::escape_text(&what.chars().take(500).collect::<String>());
        ErrorBody::new(ErrorCode::ToolUnavailable, format!("the server at `{url}` {what}"))
    })
}

async fn ask(url: &Url, key: Option<&str>) -> Result<Vec<ToolDescriptor>, String> {
    let credential = if key.is_some() { Credential::Sent } else { Credential::None };
    let client = http_client::builder(url, credential)
        .map_err(|error| format!("cannot be used: {error}"))?
        .build()
        .map_err(|error| format!("cannot be used: {error}"))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.to_string());
    if let Some(key) = key {
        config = config.auth_header(key);
    }
    let transport = http_client::mcp_transport(client, config);
    let service = ().serve_with_lifecycle(transport, mcp_version::lifecycle()).await;
    let service = service.map_err(|error| format!("cannot be reached: {error}"))?;
    let mut tools: Vec<ToolDescriptor> = Vec::new();
    let mut page = PaginatedRequestParams::default();
    // A server may return cursors without end.
    for _ in 0..PAGES_LIMIT {
        let listed = service.peer().list_tools(Some(page.clone())).await;
        let listed = listed.map_err(|error| format!("does not list its tools: {error}"))?;
        for tool in listed.tools {
            // By way of JSON, because both types have the form of the protocol.
            let tool = serde_json::to_value(tool).and_then(serde_json::from_value);
            tools.push(tool.map_err(|error| format!("lists an invalid tool: {error}"))?);
        }
        match listed.next_cursor {
            Some(cursor) if tools.len() <= TOOLS_LIMIT => page.cursor = Some(cursor),
            None if tools.len() <= TOOLS_LIMIT => return Ok(tools),
            _ => break,
        }
    }
    Err(format!("lists more than {TOOLS_LIMIT} tools, or more than {PAGES_LIMIT} pages of them"))
}

#[cfg(test)]
mod tests {
    use protocol::json::MESSAGE_VALUES;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Starts a server whose list of tools has this number of further values; returns its address.
    async fn server(values: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let padding = format!("[{}0]", "0,".repeat(values));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read(&mut stream).await;
                let (status, result) = match request["method"].as_str() {
                    Some("initialize") => {
                        let info = r#"{"name":"a","version":"1"}"#;
                        let hello = format!(
                            r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{info}}}"#
                        );
                        ("200 OK", hello)
                    }
                    Some("tools/list") => ("200 OK", format!(r#"{{"tools":[],"x":{padding}}}"#)),
                    Some("notifications/initialized") => ("202 Accepted", String::new()),
                    _ => ("400 Bad Request", String::new()),
                };
                let body =
                    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request["id"]);
                let body = if result.is_empty() { String::new() } else { body };
                let head = "content-type: application/json\r\nconnection: close\r\ncontent-length";
                let answer = format!("HTTP/1.1 {status}\r\n{head}: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    /// Reads the message in a request; null if it has none.
    async fn read(stream: &mut TcpStream) -> Value {
        let mut request = String::new();
        let mut chunk = [0; 4096];
        while let Ok(size @ 1..) = stream.read(&mut chunk).await {
            request += str::from_utf8(&chunk[..size]).unwrap();
            match request.split_once("\r\n\r\n") {
                // The body may follow in pieces.
                Some((head, body)) if head.starts_with("POST") => {
                    if let Ok(message) = serde_json::from_str(body) {
                        return message;
                    }
                }
                Some(_) => break,
                None => {}
            }
        }
        Value::Null
    }

    #[tokio::test]
    async fn an_answer_is_checked_before_it_is_parsed() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listed = tools(&server(1).await, None, &CancellationToken::new()).await.unwrap();
        assert!(listed.is_empty(), "{} tools", listed.len());
        let address = server(MESSAGE_VALUES).await;
        let error = tools(&address, None, &CancellationToken::new()).await.unwrap_err();
        assert!(error.message.contains("too large"), "{error:?}");
    }
}
