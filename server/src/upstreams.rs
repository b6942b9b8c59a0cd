//! MCP servers behind Streamable HTTP that the gateway calls.

pub mod keys;
pub mod redact;

use std::sync::Arc;
use std::time::Duration;

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

use self::redact::Redactor;
use crate::config::Secret;

/// How many connections are kept.
const CONNECTIONS: u64 = 1_024;

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(300);

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
    /// Calls a tool of an `http` server and returns its raw MCP result, without the
    /// key wherever that comes back.
    ///
    /// # Errors
    /// Returns `TOOL_UNAVAILABLE` when the server cannot be reached, `TOOL_FAILED`
    /// when it refuses the call.
    pub async fn call(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        key: Option<&Secret>,
    ) -> Result<Value, ErrorBody> {
        let redactor = key.map(|key| Redactor::new(key.expose()));
        let answer = self.call_as_it_is(scope, tool, arguments, key, redactor.as_ref()).await;
        let Some(redactor) = redactor else { return answer };
        match answer {
            Ok(mut result) => {
                redactor.value(&mut result);
                Ok(result)
            }
            Err(error) => Err(redactor.error(error)),
        }
    }

    async fn call_as_it_is(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        token: Option<&Secret>,
        redactor: Option<&Redactor>,
    ) -> Result<Value, ErrorBody> {
        let unavailable = |what: String| {
            ErrorBody::new(ErrorCode::ToolUnavailable, format!("tool `{}`: {what}", tool.id))
        };
        let url = tool
            .proxy_to
            .as_deref()
            .ok_or_else(|| unavailable("its registry row names no upstream".into()))?;
        let token_hash = token.map(|token| Integrity::of(token.expose().as_bytes()).into_bytes());
        let key = (scope.clone(), url.to_owned(), token_hash);
        let connection = self
            .connections
            .try_get_with(key.clone(), connect(url, token, redactor))
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
                let error = shown(&error, redactor);
                tracing::warn!(tool.name = %tool.id, error, "An upstream connection failed");
                Err(unavailable("the connection to its server failed".into()))
            }
        }
    }
}

/// Returns an error's text for the log.
fn shown(error: &impl std::fmt::Display, redactor: Option<&Redactor>) -> String {
    let text = error.to_string();
    redactor.map(|redactor| redactor.text(&text).into_owned()).unwrap_or(text)
}

async fn connect(
    url: &str,
    token: Option<&Secret>,
    redactor: Option<&Redactor>,
) -> Result<Connection, String> {
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
        let error = shown(&error, redactor);
        tracing::warn!(upstream = url, error, "Could not connect to an upstream");
        "its server cannot be reached".to_owned()
    })
}
