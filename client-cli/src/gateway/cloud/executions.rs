//! The records of executions, `/api/v1/executions`.

use protocol::{ErrorBody, ErrorCode, escape_text};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use super::Cloud;

/// The largest page of the gateway.
const PAGE: usize = 200;
/// The most pages of one list. A filter that few executions match makes pages without any.
const PAGES: usize = 100;

/// An execution, as the gateway has recorded it. Every text is the gateway's: it is escaped before it is shown.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Execution {
    /// Its id.
    pub(crate) id: String,
    /// Who submitted the program.
    pub(crate) principal: String,
    /// Where it was decided to run: `server`, `client` or `refused`.
    pub(crate) decision: String,
    /// Its state now.
    pub(crate) status: String,
    /// The hash of the program.
    pub(crate) code_hash: String,
    /// The size of the program.
    pub(crate) code_bytes: i64,
    /// The size of its arguments as JSON.
    pub(crate) args_bytes: i64,
    /// Whether the analysis could not determine every tool.
    pub(crate) dynamic: bool,
    /// The declared tools, with those that it reaches through capabilities.
    pub(crate) tools: Vec<String>,
    /// When it was decided.
    pub(crate) started_at: String,
    /// When its end was recorded.
    pub(crate) finished_at: Option<String>,
    /// The name of the error's code.
    pub(crate) error_code: Option<String>,
    /// The size of its result as JSON.
    pub(crate) result_bytes: Option<i64>,
    /// The number of its tool calls.
    pub(crate) calls: Option<i64>,
    /// Its duration.
    pub(crate) duration_ms: Option<i64>,
    /// The id of its trace. Lists do not have it.
    pub(crate) trace_id: Option<String>,
}

/// Which executions are listed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ExecutionFilter {
    /// Only those in this state.
    pub(crate) status: Option<String>,
    /// Only those that declared this tool.
    pub(crate) tool: Option<String>,
    /// Only those of this principal.
    pub(crate) principal: Option<String>,
    /// Only those since this time.
    pub(crate) since: Option<String>,
    /// Only those before this time.
    pub(crate) until: Option<String>,
}

/// A list of executions.
#[derive(Debug)]
pub(crate) struct Executions {
    /// The newest first.
    pub(crate) items: Vec<Execution>,
    /// Whether the list ends before the gateway's does, so that there may be more.
    pub(crate) more: bool,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Execution>,
    #[serde(rename = "nextCursor")]
    next_cursor: Option<String>,
}

impl Cloud {
    /// Lists at most `limit` executions, the newest first, over as many pages as it takes.
    ///
    /// # Errors
    /// Returns why there is no list.
    pub(crate) async fn executions(
        &self,
        filter: &ExecutionFilter,
        limit: usize,
    ) -> Result<Executions, ErrorBody> {
        self.check_key().await?;
        let mut items: Vec<Execution> = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let wanted = limit - items.len();
            let page = self.page(filter, wanted.min(PAGE), cursor.as_deref()).await?;
            let surplus = page.items.len() > wanted;
            items.extend(page.items.into_iter().take(wanted));
            let Some(next) = page.next_cursor else {
                return Ok(Executions { items, more: surplus });
            };
            if items.len() >= limit {
                return Ok(Executions { items, more: true });
            }
            if cursor.as_ref() == Some(&next) {
                return Err(self.invalid_answer("a page that is followed by itself"));
            }
            cursor = Some(next);
        }
        Ok(Executions { items, more: true })
    }

    /// Reads one execution.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if there is none that the caller may read.
    pub(crate) async fn execution(&self, id: Uuid) -> Result<Execution, ErrorBody> {
        self.check_key().await?;
        let path = format!("api/v1/executions/{id}");
        let (status, body) = self.exchange(Method::GET, &path, None).await?;
        if status.as_u16() == 404 {
            // A gateway without the route gives the same answer.
            self.page(&ExecutionFilter::default(), 1, None).await?;
            let message = format!(
                "the gateway at {} has no execution `{id}` that you may read",
                self.gateway
            );
            return Err(ErrorBody::new(ErrorCode::NotFound, message));
        }
        let body = self.accepted(status, body)?;
        serde_json::from_slice(&body).map_err(|error| self.invalid_answer(&error.to_string()))
    }

    async fn page(
        &self,
        filter: &ExecutionFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, ErrorBody> {
        let ExecutionFilter { status, tool, principal, since, until } = filter;
        let mut query = Serializer::new(String::new());
        query.append_pair("limit", &limit.to_string());
        for (name, value) in [
            ("status", status.as_deref()),
            ("tool", tool.as_deref()),
            ("principal", principal.as_deref()),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
            ("cursor", cursor),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let path = format!("api/v1/executions?{}", query.finish());
        let (status, body) = self.exchange(Method::GET, &path, None).await?;
        if matches!(status.as_u16(), 404 | 405) {
            let message = format!("the gateway at {} does not list executions", self.gateway);
            let mut error = ErrorBody::new(ErrorCode::GatewayBadAnswer, message);
            error.hint =
                "It is older than this `pml`, or the URL is not that of a gateway; `pml doctor` shows its version."
                    .to_owned();
            return Err(error);
        }
        let body = self.accepted(status, body)?;
        serde_json::from_slice(&body).map_err(|error| self.invalid_answer(&error.to_string()))
    }

    /// Returns the error of a request that would have no API key.
    async fn check_key(&self) -> Result<(), ErrorBody> {
        if self.has_key().await { Ok(()) } else { Err(self.unauthorized()) }
    }
}

impl Execution {
    /// Escapes its texts, for the terminal.
    pub(crate) fn escape(&mut self) {
        let Self {
            id,
            principal,
            decision,
            status,
            code_hash,
            tools,
            started_at,
            finished_at,
            error_code,
            trace_id,
            ..
        } = self;
        let texts = [id, principal, decision, status, code_hash, started_at].into_iter();
        let optional = [finished_at, error_code, trace_id].into_iter().flatten();
        for text in texts.chain(optional).chain(tools) {
            *text = escape_text(text);
        }
    }
}
