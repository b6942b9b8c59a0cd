//! The running calls, so that a notification can cancel one of them.
//!
//! Every message is a separate HTTP request, and request ids are unique only within a client; clients that share a key
//! may use the same ids. So each client gets a session id with its handshake. The id serves no other purpose and is not
//! stored, so any replica accepts it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName};
use registry::{Caller, Tenant};
use rmcp::model::RequestId;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The header with the id that a client got with its handshake.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Identifies a request: its caller, its client's session, and the id that the client chose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    tenant: Tenant,
    // Several API keys may act as one principal; one of them must not cancel the calls of another.
    key_id: Option<Uuid>,
    session: Option<String>,
    request: RequestId,
}

impl Name {
    /// Returns the name of a caller's request.
    pub(super) fn new(caller: &Caller, headers: &HeaderMap, request: RequestId) -> Self {
        let session = headers.get(SESSION).and_then(|value| value.to_str().ok());
        Self {
            tenant: caller.tenant(),
            key_id: caller.key_id,
            session: session.map(str::to_owned),
            request,
        }
    }
}

/// The calls that run on this gateway.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<HashMap<Name, Vec<(Uuid, CancellationToken)>>>);

impl Running {
    /// Registers a call that is cancelled with `outer`, or by its name.
    pub(super) fn enter(self: &Arc<Self>, name: Name, outer: &CancellationToken) -> Entry {
        // Names are not unique: clients without a session id may use the same request ids at the same time.
        // The child token ends with `outer`, which rmcp cancels when the client disconnects.
        let (id, cancel) = (Uuid::new_v4(), outer.child_token());
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.entry(name.clone()).or_default().push((id, cancel.clone()));
        drop(calls);
        Entry { running: Arc::clone(self), name, id, cancel }
    }

    /// Cancels the call of that name, if there is exactly one. Of several, it is unknown which one is meant.
    pub(super) fn cancel(&self, name: &Name) {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match calls.get(name).map(Vec::as_slice) {
            Some([(_, cancel)]) => cancel.cancel(),
            Some(several) => {
                tracing::info!(
                    calls = several.len(),
                    "Did not cancel any of several requests with the same id, because their clients send no session id"
                );
            }
            None => tracing::debug!("The request to cancel is not running on this gateway"),
        }
    }
}

/// A running call; dropping this removes it.
pub(super) struct Entry {
    running: Arc<Running>,
    name: Name,
    id: Uuid,
    /// Ends the call.
    pub(super) cancel: CancellationToken,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut calls = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = calls.get_mut(&self.name) {
            // Only this call; another one of the same name may still be running.
            same.retain(|(id, _)| *id != self.id);
            if same.is_empty() {
                calls.remove(&self.name);
            }
        }
    }
}

/// Returns the request that a message cancels, if it is a cancellation.
pub(super) fn cancelled(body: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Message {
        method: String,
        params: Params,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: RequestId,
    }
    // rmcp has already accepted the body as a message; one that does not have this shape is another notification.
    let message: Message = serde_json::from_slice(body).ok()?;
    (message.method == "notifications/cancelled").then_some(message.params.request_id)
}
