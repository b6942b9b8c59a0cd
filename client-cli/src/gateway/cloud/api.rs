//! Requests to `/api/v1` of the gateway: JSON bodies, answered with JSON or an RFC 9457 problem.

use protocol::{
    ErrorBody, ErrorCode, RoutingRules, ToolSync, ToolSyncReceipt, TraceBatch, TraceReceipts,
};
use reqwest::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::{Cloud, answer};

/// The gateway's record of the calling API key.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OwnKey {
    /// The scope that it acts for.
    pub(crate) scope: String,
    /// The principal.
    pub(crate) principal: String,
    /// The rights.
    pub(crate) can: Vec<String>,
}

impl Cloud {
    /// Publishes a capability and returns the gateway's answer.
    ///
    /// # Errors
    /// Returns why it was not published, with the gateway's error code.
    pub(crate) async fn publish(&self, body: Value) -> Result<Value, ErrorBody> {
        let answer = self.api(Method::POST, "api/v1/capabilities", Some(body)).await?;
        self.clean(&answer)
    }

    /// Publishes an MCP server and returns the gateway's answer.
    ///
    /// # Errors
    /// Returns why it was not published, with the gateway's error code.
    pub(crate) async fn publish_server(&self, body: Value) -> Result<Value, ErrorBody> {
        let answer = self.api(Method::POST, "api/v1/servers", Some(body)).await?;
        self.clean(&answer)
    }

    /// Deprecates or yanks `capabilities/NAME` or `servers/NAME`.
    ///
    /// # Errors
    /// Returns why it failed, with the gateway's error code.
    pub(crate) async fn mark_entry(&self, path: &str, body: Value) -> Result<(), ErrorBody> {
        self.api(Method::POST, &format!("api/v1/{path}"), Some(body)).await.map(drop)
    }

    /// Deletes `capabilities/NAME` or `servers/NAME` permanently.
    ///
    /// # Errors
    /// Returns why it was not deleted, with the gateway's error code.
    pub(crate) async fn delete_entry(&self, path: &str) -> Result<(), ErrorBody> {
        self.api(Method::DELETE, &format!("api/v1/{path}"), None).await.map(drop)
    }

    /// Sends traces.
    ///
    /// # Errors
    /// Returns why there is no receipt, with the gateway's error code.
    pub(crate) async fn send_traces(&self, batch: &TraceBatch) -> Result<TraceReceipts, ErrorBody> {
        let body = serde_json::to_value(batch)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
        let answer = self.api(Method::POST, "api/v1/traces", Some(body)).await?;
        serde_json::from_slice(&answer).map_err(|error| self.invalid_answer(&error.to_string()))
    }

    /// Replaces what the gateway has of the tools of an own server.
    ///
    /// # Errors
    /// Returns why there is no receipt, with the gateway's error code.
    pub(crate) async fn sync_tools(&self, tools: &ToolSync) -> Result<ToolSyncReceipt, ErrorBody> {
        let body = serde_json::to_value(tools)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
        let answer = self.api(Method::POST, "api/v1/tools/sync", Some(body)).await?;
        serde_json::from_slice(&answer).map_err(|error| self.invalid_answer(&error.to_string()))
    }

    /// Queries the gateway's version.
    ///
    /// # Errors
    /// Returns why there is no answer.
    pub(crate) async fn version(&self) -> Result<String, ErrorBody> {
        let answer = self.api(Method::GET, "version", None).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| self.invalid_answer(&error.to_string()))?;
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        match (text("name"), text("version")) {
            (Some("pml-server"), Some(version)) => Ok(protocol::escape_text(version)),
            _ => Err(self.invalid_answer("not an answer of `pml-server`")),
        }
    }

    /// Queries the API key's own record.
    ///
    /// # Errors
    /// Returns `UNAUTHORIZED` for a key that the gateway rejects.
    pub(crate) async fn own_key(&self) -> Result<OwnKey, ErrorBody> {
        let answer = self.api(Method::GET, "api/v1/keys/self", None).await;
        let answer = answer.map_err(|mut error| {
            if error.error_code == protocol::ErrorCode::Unauthorized {
                error.hint =
                    "Check that the API key belongs to this gateway and is still valid.".into();
            }
            error
        })?;
        serde_json::from_value(self.clean(&answer)?)
            .map_err(|error| self.invalid_answer(&error.to_string()))
    }

    /// Checks that the gateway accepts the access token. It has no record of one, as it has of a key.
    ///
    /// # Errors
    /// Returns `UNAUTHORIZED` for a token that the gateway rejects, and `FORBIDDEN` for one without a scope.
    pub(crate) async fn accepts_token(&self) -> Result<(), ErrorBody> {
        self.api(Method::GET, "api/v1/routing", None).await.map(drop)
    }

    /// Parses an answer as JSON and escapes its texts for display.
    fn clean(&self, answer: &[u8]) -> Result<Value, ErrorBody> {
        let mut read = serde_json::from_slice(answer)
            .map_err(|error| self.invalid_answer(&error.to_string()))?;
        answer::clean(&mut read);
        Ok(read)
    }

    /// Reads the routing rules with their `ETag`; `None` if they still have the ETag `known`.
    ///
    /// # Errors
    /// Returns why there is no valid answer.
    pub(crate) async fn routing(
        &self,
        known: Option<&str>,
    ) -> Result<Option<(String, RoutingRules)>, ErrorBody> {
        #[derive(Deserialize)]
        struct Body {
            rules: RoutingRules,
        }
        // Not through `api`, which has no headers for the request and treats 304 as a failure.
        let url = self.gateway.join("api/v1/routing");
        let mut request = self.http.get(url).header(ACCEPT, "application/json");
        if let Some(etag) = known {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let response = self.send(request).await?;
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.unwrap_or_default().to_owned();
        match response.status().as_u16() {
            // After a request without `If-None-Match`, there are no earlier rules that could stay.
            304 if known.is_some() => Ok(None),
            200 => {
                let body: Body = serde_json::from_slice(&self.read(response).await?)
                    .map_err(|error| self.invalid_answer(&error.to_string()))?;
                Ok(Some((etag, body.rules)))
            }
            other => Err(self.invalid_answer(&format!("HTTP status {other}"))),
        }
    }

    /// Sends a request with the API key. `path` may contain a query.
    ///
    /// # Errors
    /// Returns why there is no valid answer, with the gateway's error code if it sent one.
    pub(super) async fn api(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Vec<u8>, ErrorBody> {
        let (status, answer) = self.exchange(method, path, body).await?;
        self.accepted(status, answer)
    }

    /// Sends a request with the API key, and returns the answer whatever its status is.
    ///
    /// # Errors
    /// Returns why there is no answer.
    pub(super) async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Vec<u8>), ErrorBody> {
        // `join` would encode the `?` as a part of the path.
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.gateway.join(path);
        url.set_query((!query.is_empty()).then_some(query));
        let mut request = self.http.request(method, url).header(ACCEPT, "application/json");
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = self.send(request).await?;
        let status = response.status();
        Ok((status, self.read(response).await?))
    }

    /// Returns the body of an answer that is no refusal.
    ///
    /// # Errors
    /// Returns why the gateway refused the request, with its error code if it sent one.
    pub(super) fn accepted(
        &self,
        status: StatusCode,
        answer: Vec<u8>,
    ) -> Result<Vec<u8>, ErrorBody> {
        if status.is_success() {
            return Ok(answer);
        }
        if status.as_u16() == 401 {
            return Err(self.unauthorized());
        }
        let problem = serde_json::from_slice(&answer).ok();
        let problem = problem.and_then(|answer| self.problem(&answer));
        Err(problem.unwrap_or_else(|| self.invalid_answer(&format!("HTTP status {status}"))))
    }
}
