//! MCP servers behind Streamable HTTP that the gateway calls.

pub(crate) mod addresses;
pub(crate) mod keys;

use std::sync::Arc;
use std::time::Duration;

use execution::mcp_client::{self, BudgetedClient, Slot};
use execution::mcp_version;
use moka::future::Cache;
use protocol::redaction::Redactor;
use protocol::{ErrorBody, ErrorCode, Integrity, Scope};
use registry::{Registry, ResolvedTool};
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::{ClientServiceExt as _, RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

use self::addresses::{GuardedResolver, PrivateHosts};
use crate::admission::memory::{Held, Memory, TenantMemory};
use crate::config::Secret;
use crate::http_client;

/// The maximum number of cached connections.
const CONNECTIONS: u64 = 1_024;

/// The number of concurrent calls on one connection. The limits of tenants apply first; the library's own limit is so
/// low that a few slow calls would delay all others.
const CALLS: usize = 1_024;

/// How long an unused connection is cached.
const IDLE: Duration = Duration::from_secs(300);

/// A connection belongs to one tenant, one server and one key.
type Client = BudgetedClient<TenantMemory>;
type ConnectionKey = (Scope, String, Option<[u8; 32]>);
type Connection = Arc<Connected>;

/// The largest answer, in bytes: a tool's result, and its envelope.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024 + 64 * 1024;

/// A connection, and the key that it sends: its tasks write to the log for as long as it lives.
struct Connected {
    service: RunningService<RoleClient, ()>,
    _key: Option<Secret>,
}

/// Connections to upstream MCP servers.
pub(crate) struct Upstreams {
    client: reqwest::Client,
    memory: Memory,
    private: PrivateHosts,
    connections: Cache<ConnectionKey, Connection>,
}

impl Upstreams {
    /// Prepares for upstreams at public addresses, and at the private ones that are allowed.
    ///
    /// # Errors
    /// Returns an error when the system has no certificates to check theirs with.
    pub(crate) fn new(private: PrivateHosts, memory: Memory) -> Result<Self, reqwest::Error> {
        let client = http_client::for_upstreams(GuardedResolver::new(private.clone())).build()?;
        let connections = Cache::builder().max_capacity(CONNECTIONS).time_to_idle(IDLE).build();
        Ok(Self { client, memory, private, connections })
    }

    /// Starts to evict connections that use a stored secret as soon as stored secrets change anywhere. A call in
    /// progress keeps its connection until it ends.
    pub(crate) fn follow(&self, registry: &Registry) {
        let (connections, mut changes) = (self.connections.clone(), registry.changes());
        tokio::spawn(async move {
            let mut seen = changes.borrow_and_update().secrets;
            // Ends with the registry.
            while changes.changed().await.is_ok() {
                let now = changes.borrow_and_update().secrets;
                if now == seen {
                    continue;
                }
                seen = now;
                let keyed = connections.iter().filter(|(key, _)| key.2.is_some());
                let keyed = keyed.collect::<Vec<_>>();
                for (key, _) in &keyed {
                    connections.invalidate(key.as_ref()).await;
                }
                connections.run_pending_tasks().await;
                let closed = keyed.len();
                tracing::debug!(
                    closed,
                    "Stored secrets changed: closed {closed} connections that use one"
                );
            }
        });
    }

    /// Returns what sends requests to upstreams; it follows no redirect.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.client
    }

    /// Returns the same limits for MCP messages, whose answers are charged to the tenant's memory.
    fn client(&self, scope: &Scope) -> Client {
        BudgetedClient::new(self.client.clone(), self.memory.of(scope))
    }

    /// Checks the URL of an upstream; its name is looked up and checked when it is connected to.
    ///
    /// # Errors
    /// Returns why the gateway does not connect to it.
    pub(crate) fn check(&self, url: &str) -> Result<reqwest::Url, String> {
        self.private.check(url)
    }

    /// Calls a tool of an `http` server and returns its raw MCP result, with the secret removed wherever it is
    /// echoed. The tenant's memory for it is charged to `memory`.
    ///
    /// # Errors
    /// Returns `TOOL_UNAVAILABLE` when the server cannot be reached, `TOOL_FAILED`
    /// when it refuses the call.
    pub(crate) async fn call(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        key: Option<&Secret>,
        memory: &Slot<Held>,
    ) -> Result<Value, ErrorBody> {
        let redactor = key.map(|key| Redactor::new(key.expose()));
        // Boxed: it is large, and few calls are of this kind.
        let answer =
            Box::pin(self.call_as_it_is(scope, tool, arguments, key, redactor.as_ref(), memory))
                .await;
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
        memory: &Slot<Held>,
    ) -> Result<Value, ErrorBody> {
        let unavailable = |what: String| {
            ErrorBody::new(ErrorCode::ToolUnavailable, format!("tool `{}`: {what}", tool.id))
        };
        let url = tool
            .proxy_to
            .as_deref()
            .ok_or_else(|| unavailable("its registry entry has no upstream".into()))?;
        self.check(url).map_err(unavailable)?;
        let token_hash = token.map(|token| Integrity::of(token.expose().as_bytes()).into_bytes());
        let key = (scope.clone(), url.to_owned(), token_hash);
        let connection = self
            .connections
            .try_get_with(key.clone(), connect(self.client(scope), url, token, redactor))
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        let mut params = CallToolRequestParams::new(tool.id.action().to_owned());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        let failed = |what: String| {
            Err(ErrorBody::new(ErrorCode::ToolFailed, format!("`{}`: {what}", tool.id)))
        };
        // Only once: an `input_required` response is never treated as a result, and nobody here can answer its
        // questions.
        match mcp_client::call_tool_once(&connection.service, params, memory).await {
            Ok(CallToolResponse::Complete(result)) => {
                Ok(serde_json::to_value(result).unwrap_or_else(|_| json!({})))
            }
            Err(ServiceError::McpError(error)) if error.code.0 == mcp_client::TOO_LARGE => {
                let what = format!("`{}`: its result is too large", tool.id);
                Err(ErrorBody::new(ErrorCode::ToolResultTooLarge, what))
            }
            Ok(CallToolResponse::InputRequired(_)) => failed(format!(
                "the tool asks the user for input, which a program cannot give; connect the client to `/mcp/proxy/{}`, which forwards such requests",
                tool.id.namespace()
            )),
            Ok(_) => failed("the tool answered with a task, which was not requested".to_owned()),
            Err(ServiceError::UnexpectedResponse) => {
                failed("its server's answer is not a tool result".to_owned())
            }
            Err(ServiceError::McpError(error)) => failed(error.message.into_owned()),
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
    client: Client,
    url: &str,
    token: Option<&Secret>,
    redactor: Option<&Redactor>,
) -> Result<Connection, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    config.max_concurrent_requests = CALLS;
    config.max_sse_event_size = ANSWER_LIMIT;
    if let Some(token) = token {
        config = config.auth_header(token.expose());
    }
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let service = ().serve_with_lifecycle(transport, mcp_version::lifecycle()).await;
    let connected = |service| Arc::new(Connected { service, _key: token.cloned() });
    service.map(connected).map_err(|error| {
        let error = shown(&error, redactor);
        tracing::warn!(upstream = url, error, "Could not connect to an upstream");
        "its server cannot be reached".to_owned()
    })
}
