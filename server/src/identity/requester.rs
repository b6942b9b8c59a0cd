//! A caller with everything of its request that decides what is done for it.

use std::sync::Arc;

use axum::http::HeaderMap;
use protocol::Scope;
use registry::{Caller, Tenant};

use super::caller_keys::CallerKeys;
use super::progress::Progress;

/// The header of a caller that can run `execute_locally` answers.
const CLIENT_HEADER: &str = "x-pml-client";

/// Whether a caller can run a program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// `pml`, which handles `execute_locally`.
    Package,
    /// Any other MCP client.
    Plain,
}

/// The caller, its address, and the secrets that it sent along.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    /// The principal, its scope and rights.
    pub caller: Arc<Caller>,
    /// Whether the caller can run a program itself.
    pub client: ClientKind,
    /// The caller's keys for upstreams.
    pub keys: CallerKeys,
    /// The sink for the request's progress.
    pub progress: Progress,
}

impl Requester {
    /// Builds the caller from a request with a valid key.
    pub(crate) fn new(caller: Arc<Caller>, headers: &HeaderMap) -> Self {
        let client = match headers.get(CLIENT_HEADER).map(|value| value.as_bytes()) {
            Some(b"package") => ClientKind::Package,
            _ => ClientKind::Plain,
        };
        let keys = CallerKeys::from_headers(headers);
        Self { caller, client, keys, progress: Progress::default() }
    }

    /// Returns the tenant's scope.
    pub(crate) fn scope(&self) -> &Scope {
        &self.caller.scope
    }

    /// Returns the tenant of the caller's registry queries.
    pub(crate) fn tenant(&self) -> Tenant {
        self.caller.tenant()
    }
}
