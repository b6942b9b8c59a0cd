//! A caller, with the parts of its request that affect how the request is executed.

use std::sync::Arc;

use axum::http::HeaderMap;
use protocol::Scope;
use registry::{Caller, Tenant};

use super::progress::Progress;
use super::sent_secrets::SentSecrets;

/// The header by which a caller declares that it handles `execute_locally` answers.
const CLIENT_HEADER: &str = "x-pml-client";

/// Whether a caller can run a program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// `pml`, which runs delegated programs.
    Package,
    /// Any other MCP client.
    Plain,
}

/// The caller of a request, and the secrets that it sent.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    /// The principal, its scope and rights.
    pub caller: Arc<Caller>,
    /// Whether the caller can run a program itself.
    pub client: ClientKind,
    /// The caller's secrets for upstreams.
    pub secrets: SentSecrets,
    /// The sink for the request's progress.
    pub progress: Progress,
}

impl Requester {
    /// Creates the requester from an authenticated caller and the request's headers.
    pub(crate) fn new(caller: Arc<Caller>, headers: &HeaderMap) -> Self {
        // Not verified: a wrong declaration only gets the caller a program instead of a result.
        let client = match headers.get(CLIENT_HEADER).map(|value| value.as_bytes()) {
            Some(b"package") => ClientKind::Package,
            _ => ClientKind::Plain,
        };
        let secrets = SentSecrets::from_headers(headers);
        Self { caller, client, secrets, progress: Progress::default() }
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
