//! Lists the tools of an HTTP MCP server, which is called directly.

use std::time::Duration;

use execution::mcp_version;
use protocol::{ErrorBody, ErrorCode, ToolDescriptor};
use rmcp::model::PaginatedRequestParams;
use rmcp::service::ClientServiceExt as _;
use rmcp::transport::StreamableHttpClientTransport;
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
    let transport = StreamableHttpClientTransport::with_client(client, config);
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
