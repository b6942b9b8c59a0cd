//! Relays the stream of an answer to the client, for as long as the caller is authorized.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use chrono::Utc;
use execution::{Budget as _, UNBUDGETED};
use futures::stream::{self, Stream};
use registry::{Caller, Changes, Right};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ANSWER_LIMIT;
use super::events::StreamRedactor;
use crate::admission::exchanges::ExchangeSlot;
use crate::identity::requester::Requester;
use crate::state::SharedGateway;
use crate::upstreams::secrets::StoredSecret;

/// The time limit of a stream. A client resumes it with `Last-Event-ID`, or sends a new request.
const STREAM_LIMIT: Duration = Duration::from_secs(3_600);
/// The maximum time between two pieces of a stream. Servers send comments to keep a stream alive.
const SILENCE: Duration = Duration::from_secs(300);

/// Logs a proxied message when its answer ends.
pub(super) struct Trace {
    pub(super) slot: ExchangeSlot,
    pub(super) server: String,
    pub(super) tool: Option<String>,
    pub(super) started: Instant,
    pub(super) status: u16,
    pub(super) bytes: usize,
}

impl Drop for Trace {
    fn drop(&mut self) {
        // In `drop`, because a stream also ends when the client disconnects.
        let (scope, status, bytes) = (&self.slot.scope, self.status, self.bytes);
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

/// An open stream: its caller, and the conditions under which it stays open.
pub(super) struct Relay {
    gateway: SharedGateway,
    caller: Arc<Caller>,
    credential: HeaderMap,
    /// The stored secret that was sent with the request.
    stored_secret: Option<StoredSecret>,
    changes: watch::Receiver<Changes>,
    seen: Changes,
    until: tokio::time::Instant,
    /// Ends the stream when it is cancelled.
    ended: CancellationToken,
    trace: Trace,
}

impl Relay {
    /// Prepares a stream. `seen` is the state of changes from before the caller's credential was checked. `waits` is
    /// whether it waits for messages of the server, rather than for the answer to a request.
    pub(super) fn new(
        gateway: &SharedGateway,
        requester: &Requester,
        headers: &HeaderMap,
        seen: Changes,
        stored_secret: Option<StoredSecret>,
        waits: bool,
        trace: Trace,
    ) -> Self {
        let mut changes = gateway.registry.changes();
        // So that the first check covers changes that happened while the server was called.
        changes.mark_changed();
        // Kept for repeated checks: the credential may be revoked while the stream is open.
        let mut credential = HeaderMap::new();
        for name in [header::AUTHORIZATION, header::HeaderName::from_static("x-api-key")] {
            for value in headers.get_all(&name) {
                credential.append(&name, value.clone());
            }
        }
        let caller = Arc::clone(&requester.caller);
        // A time in the past becomes zero: the stream of an expired credential ends at once.
        let left = caller.expires_at.map(|at| (at - Utc::now()).to_std().unwrap_or_default());
        let until = tokio::time::Instant::now() + left.unwrap_or(STREAM_LIMIT).min(STREAM_LIMIT);
        // A request may end while the gateway stops; what waits would only delay the stop. The client resumes the
        // stream on another gateway.
        let stopping = &gateway.stopping;
        let ended = if waits { stopping.closing.clone() } else { stopping.abandoned.clone() };
        let gateway = Arc::clone(gateway);
        Self { gateway, caller, credential, stored_secret, changes, seen, until, ended, trace }
    }

    /// Returns an answer as it arrives, without the secret that was sent to the server.
    ///
    /// The stream ends with the server's stream, after the time limit, when the gateway stops, and as soon as the caller's
    /// credential or the stored secret is no longer valid. If the client disconnects, the stream is dropped, and with it the connection
    /// to the server.
    pub(super) fn stream(
        self,
        answer: reqwest::Response,
        cleaner: Option<StreamRedactor>,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
        let state = (self, answer, cleaner, None);
        stream::unfold(state, |(mut relay, mut answer, mut cleaner, mut reserved)| async move {
            loop {
                // Memory is reserved only while an incomplete message of some size is buffered.
                let buffered = cleaner.as_ref().map_or(0, StreamRedactor::buffered);
                if buffered <= UNBUDGETED {
                    reserved = None;
                } else if reserved.is_none() {
                    let memory = relay.gateway.memory.of(&relay.caller.scope);
                    // If no memory becomes free, the stream ends, and the client can resume it.
                    reserved = Some(memory.arriving(ANSWER_LIMIT).await.ok()?);
                }
                let chunk = relay.chunk(&mut answer).await?;
                let chunk = match (&mut cleaner, chunk) {
                    (None, chunk) => chunk,
                    (Some(cleaner), Ok(chunk)) => match cleaner.push(&chunk) {
                        Ok(clean) if clean.is_empty() => continue,
                        Ok(clean) => Ok(clean.into()),
                        Err(_) => {
                            Err(std::io::Error::other("a message is invalid or over the limit"))
                        }
                    },
                    (Some(_), Err(error)) => Err(error),
                };
                relay.trace.bytes += chunk.as_ref().map_or(0, Bytes::len);
                return Some((chunk, (relay, answer, cleaner, reserved)));
            }
        })
    }

    async fn chunk(&mut self, answer: &mut reqwest::Response) -> Option<std::io::Result<Bytes>> {
        loop {
            tokio::select! {
                // No bytes are lost when another branch wins. The limit then starts again, but
                // `until` does not move.
                chunk = tokio::time::timeout(SILENCE, answer.chunk()) => return match chunk {
                    Ok(Ok(chunk)) => chunk.map(Ok),
                    // Without the error's text, which could contain parts of the request.
                    Ok(Err(_)) => Some(Err(std::io::Error::other("the connection to the server broke"))),
                    // Ended without an error, like a stream that the server has closed: the client
                    // resumes it.
                    Err(_) => None,
                },
                () = tokio::time::sleep_until(self.until) => return None,
                () = self.ended.cancelled() => return None,
                changed = self.changes.changed() => {
                    // An error would mean that no change is reported any more, so that a
                    // revocation could be missed.
                    if changed.is_err() || !self.is_still_authorized().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Checks, after a change, whether the credential and the stored secret are still valid. If the database does not
    /// answer, they are treated as invalid.
    async fn is_still_authorized(&mut self) -> bool {
        let now = *self.changes.borrow_and_update();
        let seen = std::mem::replace(&mut self.seen, now);
        // The notification does not contain which secret changed, so this one may be unaffected.
        if let Some(secret) = self.stored_secret.as_ref().filter(|_| now.secrets != seen.secrets) {
            let is_current = secret.is_current(&self.gateway.registry, &self.caller.tenant()).await;
            if !is_current.unwrap_or(false) {
                return false;
            }
        }
        if now.keys == seen.keys {
            return true;
        }
        let caller = self.gateway.credentials.check(&self.gateway.registry, &self.credential).await;
        // The role of the principal may have been reduced.
        caller.is_ok_and(|caller| {
            caller.tenant() == self.caller.tenant() && caller.rights.contains(Right::Execute)
        })
    }
}
