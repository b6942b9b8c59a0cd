//! The way back: a whole answer, or events as they arrive, for as long as the caller is authorized.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use chrono::Utc;
use execution::{Budget as _, UNBUDGETED};
use futures::stream::{self, Stream};
use registry::{Caller, Changes, Right};
use tokio::sync::watch;

use super::ANSWER_LIMIT;
use super::events::Cleaner;
use crate::admission::exchanges::Place;
use crate::identity::requester::Requester;
use crate::state::SharedGateway;
use crate::upstreams::keys::StoredKey;

/// How long a stream may be open. A client resumes it with `Last-Event-ID`, or sends a new request.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How long a stream may be silent; servers send a comment from time to time.
const SILENCE: Duration = Duration::from_secs(300);

/// Records that a message was passed on, when its answer ends.
pub(super) struct Trace {
    pub(super) place: Place,
    pub(super) server: String,
    pub(super) tool: Option<String>,
    pub(super) started: Instant,
    pub(super) status: u16,
    pub(super) bytes: usize,
}

impl Drop for Trace {
    fn drop(&mut self) {
        let (scope, status, bytes) = (&self.place.scope, self.status, self.bytes);
        let duration_ms = self.started.elapsed().as_secs_f64() * 1e3;
        match &self.tool {
            Some(tool) => tracing::info!(
                %scope, server = %self.server, tool.name = %tool, status, bytes, duration_ms,
                "Proxied a call of tool `{tool}`"
            ),
            None => tracing::debug!(
                %scope, server = %self.server, status, bytes, duration_ms, "Proxied a message"
            ),
        }
    }
}

/// For whom a stream is open, and until when.
pub(super) struct Relay {
    gateway: SharedGateway,
    caller: Arc<Caller>,
    credential: HeaderMap,
    /// The secrets that were sent with the request.
    stored_key: Option<StoredKey>,
    changes: watch::Receiver<Changes>,
    seen: Changes,
    until: tokio::time::Instant,
    trace: Trace,
}

impl Relay {
    /// Prepares a stream for the caller; `seen` is the state of changes from before the credential was checked.
    pub(super) fn new(
        gateway: &SharedGateway,
        requester: &Requester,
        headers: &HeaderMap,
        seen: Changes,
        stored_key: Option<StoredKey>,
        trace: Trace,
    ) -> Self {
        let mut changes = gateway.registry.changes();
        // The first check covers changes that happened while the server was called.
        changes.mark_changed();
        let mut credential = HeaderMap::new();
        for name in [header::AUTHORIZATION, header::HeaderName::from_static("x-api-key")] {
            for value in headers.get_all(&name) {
                credential.append(&name, value.clone());
            }
        }
        let caller = Arc::clone(&requester.caller);
        let left = caller.expires_at.map(|at| (at - Utc::now()).to_std().unwrap_or_default());
        let until = tokio::time::Instant::now() + left.unwrap_or(LONGEST).min(LONGEST);
        let gateway = Arc::clone(gateway);
        Self { gateway, caller, credential, stored_key, changes, seen, until, trace }
    }

    /// Returns an answer as it arrives, without the key that was used.
    ///
    /// The stream ends with the server's stream, after the time limit, and as soon as the caller's credential or the
    /// stored secret is no longer valid. If the client disconnects, the proxy disconnects from the server.
    pub(super) fn stream(
        self,
        answer: reqwest::Response,
        cleaner: Option<Cleaner>,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
        let state = (self, answer, cleaner, None);
        stream::unfold(state, |(mut relay, mut answer, mut cleaner, mut room)| async move {
            loop {
                // A message that does not fit into one piece waits here for the rest of it.
                let waiting = cleaner.as_ref().map_or(0, Cleaner::waiting);
                if waiting <= UNBUDGETED {
                    room = None;
                } else if room.is_none() {
                    let memory = relay.gateway.memory.of(&relay.caller.scope);
                    room = Some(memory.arriving(ANSWER_LIMIT).await.ok()?);
                }
                let chunk = relay.chunk(&mut answer).await?;
                let chunk = match (&mut cleaner, chunk) {
                    (None, chunk) => chunk,
                    (Some(cleaner), Ok(chunk)) => match cleaner.push(&chunk) {
                        Ok(clean) if clean.is_empty() => continue,
                        Ok(clean) => Ok(clean.into()),
                        Err(_) => Err(std::io::Error::other("an event is over the limit")),
                    },
                    (Some(_), Err(error)) => Err(error),
                };
                relay.trace.bytes += chunk.as_ref().map_or(0, Bytes::len);
                return Some((chunk, (relay, answer, cleaner, room)));
            }
        })
    }

    async fn chunk(&mut self, answer: &mut reqwest::Response) -> Option<std::io::Result<Bytes>> {
        loop {
            tokio::select! {
                chunk = tokio::time::timeout(SILENCE, answer.chunk()) => return match chunk {
                    Ok(Ok(chunk)) => chunk.map(Ok),
                    // Only the kind of the error is reported: its text could contain what was sent.
                    Ok(Err(_)) => Some(Err(std::io::Error::other("the server broke off its stream"))),
                    Err(_) => None,
                },
                () = tokio::time::sleep_until(self.until) => return None,
                changed = self.changes.changed() => {
                    if changed.is_err() || !self.may_go_on().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Checks again, after a change, whether the credential and the stored secret are valid. If the check fails, they
    /// are treated as invalid.
    async fn may_go_on(&mut self) -> bool {
        let now = *self.changes.borrow_and_update();
        let seen = std::mem::replace(&mut self.seen, now);
        // The notification does not say whose secrets changed, so this one may be unaffected.
        if let Some(key) = self.stored_key.as_ref().filter(|_| now.secrets != seen.secrets) {
            let counts = key.counts(&self.gateway.registry, &self.caller.tenant()).await;
            if !counts.unwrap_or(false) {
                return false;
            }
        }
        if now.keys == seen.keys {
            return true;
        }
        let caller = self.gateway.credentials.check(&self.gateway.registry, &self.credential).await;
        caller.is_ok_and(|caller| {
            caller.tenant() == self.caller.tenant() && caller.rights.contains(Right::Execute)
        })
    }
}
