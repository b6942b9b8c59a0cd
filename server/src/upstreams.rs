//! Calls of MCP servers: over Streamable HTTP, and of those that run on this gateway.

mod breaker;
pub(crate) mod secrets;
pub(crate) mod stdio;

use std::sync::Arc;
use std::time::{Duration, Instant};

use execution::addresses::{GuardedResolver, PrivateHosts};
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

use self::breaker::{Breaker, FAILURES};
use crate::admission::memory::{Memory, Reserved, TenantMemory};
use crate::config::Secret;
use crate::http_client;
use crate::metrics::{Calls, Metrics, UpstreamEnd, Work};

/// The maximum number of cached connections.
const CONNECTIONS: u64 = 1_024;

/// The maximum number of upstreams of tenants whose failures are counted.
const BREAKERS: u64 = 10_000;

/// The number of concurrent calls on one connection. The limits of tenants apply first; the library's own limit is so
/// low that a few slow calls would delay all others.
const CALLS: usize = 1_024;

/// How long an unused connection is cached.
const IDLE: Duration = Duration::from_secs(300);

type Client = BudgetedClient<TenantMemory>;
/// Identifies a connection: its tenant, the server's URL, and the hash of the secret that it sends. So no tenant ever
/// uses a connection that sends another tenant's secret.
type ConnectionKey = (Scope, String, Option<[u8; 32]>);
type Connection = Arc<Connected>;

/// The largest answer, in bytes: a tool's result, and its envelope.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024 + 64 * 1024;

/// A connection, and the secret that it sends. As long as the [`Secret`] exists, it is redacted from the log, to which
/// the connection's tasks write.
struct Connected {
    service: RunningService<RoleClient, ()>,
    _secret: Option<Secret>,
}

/// Connections to upstream MCP servers.
pub(crate) struct Upstreams {
    client: reqwest::Client,
    memory: Memory,
    private: PrivateHosts,
    connections: Cache<ConnectionKey, Connection>,
    /// By tenant and URL: a tenant neither notices nor causes another one's failures.
    breakers: Cache<(Scope, String), Arc<Breaker>>,
    metrics: Arc<Metrics>,
}

impl Upstreams {
    /// Prepares connections to public addresses, and to the private hosts that are allowed.
    ///
    /// # Errors
    /// Returns an error when the system has no root certificates.
    pub(crate) fn new(
        private: PrivateHosts,
        memory: Memory,
        metrics: Arc<Metrics>,
    ) -> Result<Self, reqwest::Error> {
        let client = http_client::for_upstreams(GuardedResolver::new(private.clone())).build()?;
        let connections = Cache::builder().max_capacity(CONNECTIONS).time_to_idle(IDLE).build();
        let breakers = Cache::builder().max_capacity(BREAKERS).time_to_idle(IDLE).build();
        Ok(Self { client, memory, private, connections, breakers, metrics })
    }

    /// Starts a task that evicts all connections with a secret when stored secrets change on any gateway. A call in
    /// progress keeps its connection until it ends.
    pub(crate) fn follow(&self, registry: &Registry) {
        let (connections, mut changes) = (self.connections.clone(), registry.changes());
        tokio::spawn(async move {
            let mut seen = changes.borrow_and_update().secrets;
            // Ends with the registry.
            while changes.changed().await.is_ok() {
                let now = changes.borrow_and_update().secrets;
                // The channel also reports changes of API keys.
                if now == seen {
                    continue;
                }
                seen = now;
                let with_secret = connections.iter().filter(|(key, _)| key.2.is_some());
                let with_secret = with_secret.collect::<Vec<_>>();
                // All of them: the notification does not contain which secret changed.
                for (key, _) in &with_secret {
                    connections.invalidate(key.as_ref()).await;
                }
                // `moka` keeps removed entries, and so open connections, until its tasks run.
                connections.run_pending_tasks().await;
                let closed = with_secret.len();
                tracing::debug!(
                    closed,
                    "Stored secrets changed: closed {closed} connections that use one"
                );
            }
        });
    }

    /// Returns the HTTP client for upstreams; it follows no redirects.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.client
    }

    /// Returns the number of upstreams that are not called at present, each counted once per tenant.
    pub(crate) fn open_breakers(&self) -> usize {
        let now = Instant::now();
        self.breakers.iter().filter(|(_, breaker)| breaker.is_open(now)).count()
    }

    /// Returns an MCP client that charges answers to the tenant's memory.
    fn client(&self, scope: &Scope) -> Client {
        BudgetedClient::new(self.client.clone(), self.memory.of(scope))
    }

    /// Checks the URL of an upstream. Its host is resolved and checked again at each connection.
    ///
    /// # Errors
    /// Returns why the gateway does not connect to it.
    pub(crate) fn check(&self, url: &str) -> Result<reqwest::Url, String> {
        self.private.check(url)
    }

    /// Calls a tool of an `http` server and returns its raw MCP result, from which the secret is redacted if the server
    /// echoes it. The tenant's memory for the result is reserved in `memory`.
    ///
    /// # Errors
    /// Returns `TOOL_UNAVAILABLE` when the server cannot be reached, and `TOOL_FAILED` when it refuses the call.
    pub(crate) async fn call(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        secret: Option<&Secret>,
        memory: &Slot<Reserved>,
    ) -> Result<Value, ErrorBody> {
        let redactor = secret.map(|secret| Redactor::new(secret.expose()));
        let mut counted = CallCount::begin(&self.metrics.upstreams, &self.metrics.operations.http);
        // Boxed, because the future is large and most calls do not need it.
        let answer = Box::pin(self.call_unredacted(
            scope,
            tool,
            arguments,
            secret.zip(redactor.as_ref()),
            memory,
            &mut counted.end,
        ))
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

    async fn call_unredacted(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        sent: Option<(&Secret, &Redactor)>,
        memory: &Slot<Reserved>,
        end: &mut UpstreamEnd,
    ) -> Result<Value, ErrorBody> {
        let (secret, redactor) = sent.unzip();
        let unavailable = |what: String| {
            ErrorBody::new(ErrorCode::ToolUnavailable, format!("tool `{}`: {what}", tool.id))
        };
        let url = tool
            .proxy_to
            .as_deref()
            .ok_or_else(|| unavailable("its registry entry has no upstream".into()))?;
        // At each call: the operator may have changed the permitted hosts since publication.
        self.check(url).map_err(unavailable)?;
        let breaker =
            self.breakers.get_with((scope.clone(), url.to_owned()), async { Arc::default() });
        let attempt = breaker.await.admit(Instant::now()).map_err(|left| {
            *end = UpstreamEnd::Paused;
            let seconds = left.as_millis().div_ceil(1_000);
            unavailable(format!(
                "its server failed {FAILURES} times in a row, so it is not called for {seconds} s"
            ))
        })?;
        // Until it has ended in another way: this future may be dropped.
        *end = UpstreamEnd::Cancelled;
        // Hashed, so that the keys of the cache contain no copies of secrets.
        let hash = secret.map(|secret| Integrity::of(secret.expose().as_bytes()).into_bytes());
        let key = (scope.clone(), url.to_owned(), hash);
        // Concurrent calls share one attempt to connect.
        let connection = self
            .connections
            .try_get_with(key.clone(), connect(self.client(scope), url, secret, redactor))
            .await;
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                attempt.failed();
                *end = UpstreamEnd::Unavailable;
                return Err(unavailable(error.to_string()));
            }
        };
        let mut params = CallToolRequestParams::new(tool.id.action().to_owned());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        let failed = |what: String| {
            Err(ErrorBody::new(ErrorCode::ToolFailed, format!("`{}`: {what}", tool.id)))
        };
        // The call is sent only once: a program cannot answer the questions of an `input_required` response.
        let answer = mcp_client::call_tool_once(&connection.service, params, memory).await;
        *end = match &answer {
            Ok(CallToolResponse::Complete(result)) if result.is_error != Some(true) => {
                UpstreamEnd::Success
            }
            Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse) => {
                UpstreamEnd::Error
            }
            Err(_) => UpstreamEnd::Unavailable,
        };
        match *end {
            UpstreamEnd::Unavailable => attempt.failed(),
            _ => attempt.answered(),
        }
        match answer {
            Ok(CallToolResponse::Complete(result)) => {
                Ok(serde_json::to_value(result).unwrap_or_else(|_| json!({})))
            }
            // `BudgetedClient` replaces an answer over the budget by this error.
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
                // The call may have taken effect, so it is not repeated.
                self.connections.invalidate(&key).await;
                let error = shown(&error, redactor);
                tracing::warn!(tool.name = %tool.id, error, "An upstream connection failed");
                Err(unavailable("the connection to its server failed".into()))
            }
        }
    }
}

/// A call in progress, which is counted when it is dropped.
struct CallCount<'a> {
    work: &'a Work<UpstreamEnd>,
    calls: &'a Calls,
    began: Instant,
    end: UpstreamEnd,
}

impl<'a> CallCount<'a> {
    fn begin(work: &'a Work<UpstreamEnd>, calls: &'a Calls) -> Self {
        // A call that is refused before it has begun, because of its URL.
        Self { work, calls, began: Instant::now(), end: UpstreamEnd::Unavailable }
    }
}

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        match self.end {
            UpstreamEnd::Paused => self.work.skipped(self.end),
            end => {
                let duration = self.began.elapsed();
                self.work.done(end, duration);
                self.calls.done(end.into(), duration);
            }
        }
    }
}

/// Returns an error's text for the log, without the secret.
fn shown(error: &impl std::fmt::Display, redactor: Option<&Redactor>) -> String {
    let text = error.to_string();
    redactor.map(|redactor| redactor.text(&text).into_owned()).unwrap_or(text)
}

async fn connect(
    client: Client,
    url: &str,
    secret: Option<&Secret>,
    redactor: Option<&Redactor>,
) -> Result<Connection, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    config.max_concurrent_requests = CALLS;
    config.max_sse_event_size = ANSWER_LIMIT;
    if let Some(secret) = secret {
        config = config.auth_header(secret.expose());
    }
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let service = ().serve_with_lifecycle(transport, mcp_version::lifecycle()).await;
    let connected = |service| Arc::new(Connected { service, _secret: secret.cloned() });
    service.map(connected).map_err(|error| {
        let error = shown(&error, redactor);
        tracing::warn!(upstream = url, error, "Could not connect to an upstream");
        "its server cannot be reached".to_owned()
    })
}
