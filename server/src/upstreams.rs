//! MCP servers behind Streamable HTTP that the gateway calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use moka::future::Cache;
use protocol::{ErrorBody, ErrorCode, Integrity, Scope};
use registry::ResolvedTool;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

use crate::config::Secret;

/// How many connections are kept.
const CONNECTIONS: u64 = 1_024;

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(300);

/// The prefix of headers that carry a caller's own keys, `X-PML-Key-TAVILY-API-KEY`.
const KEY_HEADER_PREFIX: &str = "x-pml-key-";

/// The keys that a caller sent along for upstreams; used once, never stored.
#[derive(Debug, Clone, Default)]
pub struct CallerKeys(HashMap<String, Secret>);

impl CallerKeys {
    /// Reads the keys from a request's headers.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let keys = headers.iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(KEY_HEADER_PREFIX)?;
            let value = value.to_str().ok()?.parse().ok()?;
            Some((name.to_ascii_uppercase().replace('-', "_"), value))
        });
        Self(keys.collect())
    }

    fn get(&self, variable: &str) -> Option<&Secret> {
        self.0.get(variable)
    }
}

/// A connection belongs to one tenant, one server and one key.
type ConnectionKey = (Scope, String, Option<[u8; 32]>);
type Connection = Arc<RunningService<RoleClient, ()>>;

/// Connections to upstream MCP servers.
pub struct Upstreams {
    connections: Cache<ConnectionKey, Connection>,
}

impl Default for Upstreams {
    fn default() -> Self {
        let connections = Cache::builder().max_capacity(CONNECTIONS).time_to_idle(IDLE).build();
        Self { connections }
    }
}

impl Upstreams {
    /// Calls a tool of an `http` server and returns its raw MCP result.
    ///
    /// # Errors
    /// Returns `API_KEY_REQUIRED` naming the variable, `TOOL_UNAVAILABLE` when the
    /// server cannot be reached, `TOOL_FAILED` when it refuses the call.
    pub async fn call(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        keys: &CallerKeys,
    ) -> Result<Value, ErrorBody> {
        let unavailable = |what: String| {
            ErrorBody::new(ErrorCode::ToolUnavailable, format!("tool `{}`: {what}", tool.id))
        };
        let url = tool
            .proxy_to
            .as_deref()
            .ok_or_else(|| unavailable("its registry row names no upstream".into()))?;
        let token = match tool.env_required.first() {
            None => None,
            Some(variable) => Some(keys.get(variable).ok_or_else(|| missing_key(tool, variable))?),
        };
        let token_hash = token.map(|token| Integrity::of(token.expose().as_bytes()).into_bytes());
        let key = (scope.clone(), url.to_owned(), token_hash);
        let connection = self
            .connections
            .try_get_with(key.clone(), connect(url, token))
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        let mut params = CallToolRequestParams::new(tool.id.action().to_owned());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        match connection.call_tool(params).await {
            Ok(result) => Ok(serde_json::to_value(result).unwrap_or_else(|_| json!({}))),
            Err(ServiceError::McpError(error)) => Err(ErrorBody::new(
                ErrorCode::ToolFailed,
                format!("`{}`: {}", tool.id, error.message),
            )),
            Err(error) => {
                // The call may have had its effect: it is never repeated here.
                self.connections.invalidate(&key).await;
                tracing::warn!(tool.name = %tool.id, error = %error, "An upstream connection failed");
                Err(unavailable("the connection to its server failed".into()))
            }
        }
    }
}

fn missing_key(tool: &ResolvedTool, variable: &str) -> ErrorBody {
    let mut error = ErrorBody::new(
        ErrorCode::ApiKeyRequired,
        format!("tool `{}` needs the key `{variable}`", tool.id),
    );
    error.hint = format!(
        "Set {variable} in the environment of `pml` or in the workspace's `.env`, or send the header X-PML-Key-{}.",
        variable.replace('_', "-")
    );
    error.with_details(json!({ "variable": variable }))
}

async fn connect(url: &str, token: Option<&Secret>) -> Result<Connection, String> {
    // A redirect could carry the credential to another host: none is followed.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .build()
        .map_err(|error| error.to_string())?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    if let Some(token) = token {
        config = config.auth_header(token.expose());
    }
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    ().serve_with_lifecycle(transport, lifecycle).await.map(Arc::new).map_err(|error| {
        tracing::warn!(upstream = url, error = %error, "Could not connect to an upstream");
        "its server cannot be reached".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_their_headers_and_stay_hidden() {
        let mut headers = HeaderMap::new();
        headers.insert("x-pml-key-tavily-api-key", "canary".parse().unwrap());
        headers.insert("x-api-key", "other".parse().unwrap());
        let keys = CallerKeys::from_headers(&headers);
        assert_eq!(keys.get("TAVILY_API_KEY").unwrap().expose(), "canary");
        assert!(keys.get("API_KEY").is_none());
        assert!(!format!("{keys:?}").contains("canary"));
    }
}
