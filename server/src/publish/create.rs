//! `pml_create`: publishes a program, with or without an earlier run.
//!
//! The gateway does not store the programs of runs, so the request always contains the program. If it also names a run,
//! the run is verified: it must belong to this principal, have been successful, and have run exactly these bytes.

use std::time::Instant;

use protocol::{
    CreateRequest, Envelope, ErrorBody, ErrorCode, ExecutedOn, Integrity, RunNote, Success,
};
use registry::{ExecutionStatus, Reader, RegistryError};
use serde_json::json;
use uuid::Uuid;

use crate::error::registry_error;
use crate::identity::requester::Requester;
use crate::publish::{self, Publish, PublishedCapability};
use crate::state::SharedGateway;

/// Publishes a program. The caller of this function checks the right to publish.
pub(crate) async fn create(
    gateway: &SharedGateway,
    requester: &Requester,
    request: CreateRequest,
) -> Envelope {
    let started = Instant::now();
    match publish_request(gateway, requester, request).await {
        Ok(entry) => {
            tracing::info!(scope = %requester.scope(), fqdn = %entry.fqdn, "Published a program");
            let run = RunNote {
                execution_id: Uuid::now_v7().to_string(),
                executed: ExecutedOn::Server,
                duration_ms: started.elapsed().as_secs_f64() * 1e3,
                console: Vec::new(),
                console_truncated: false,
                warnings: Vec::new(),
                calls: None,
                failed_calls: Vec::new(),
                meta: None,
            };
            Envelope::Success(Box::new(Success {
                result: json!(entry),
                run,
                tools_used: None,
                dag: None,
            }))
        }
        Err(error) => Envelope::error(error),
    }
}

async fn publish_request(
    gateway: &SharedGateway,
    requester: &Requester,
    request: CreateRequest,
) -> Result<PublishedCapability, ErrorBody> {
    let code = request.code.ok_or_else(|| {
        let message =
            "`code` is missing: the program to publish; the gateway does not store the programs of runs";
        ErrorBody::new(ErrorCode::InvalidRequest, message)
    })?;
    if let Some(id) = &request.execution_id {
        check_run(gateway, requester, id, &code).await?;
    }
    let body = Publish {
        name: request.name,
        code,
        version: request.version,
        visibility: request.visibility,
        description: request.description,
        input_schema: request.parameters,
    };
    publish::publish(gateway, &requester.caller, body).await
}

/// Verifies that a run of this principal succeeded with exactly this program.
async fn check_run(
    gateway: &SharedGateway,
    requester: &Requester,
    id: &str,
    code: &str,
) -> Result<(), ErrorBody> {
    // The id may be any text, and a model reads the messages that contain it.
    let shown: String = id.chars().take(64).flat_map(char::escape_debug).collect();
    let unknown = || {
        let message = format!("this gateway has no run `{shown}` of this key");
        ErrorBody::new(ErrorCode::NotFound, message)
    };
    // A delegated run is known to its caller by its `workflow_id`, which has this prefix.
    let id: Uuid = id.strip_prefix("ws_").unwrap_or(id).parse().map_err(|_| unknown())?;
    // A run of another principal gets the same answer as one of another tenant.
    let run = gateway.registry.execution(&requester.tenant(), Reader::Own, id).await;
    let run = run.map_err(|error| match error {
        RegistryError::NotFound(_) => unknown(),
        other => registry_error(&other),
    })?;
    if run.status != ExecutionStatus::Success {
        let message = match run.status {
            ExecutionStatus::Running => format!(
                "the end of the run `{shown}` is not recorded yet; if it has ended, try again in a second"
            ),
            ExecutionStatus::Delegated => format!(
                "the run `{shown}` was delegated to its caller, so this gateway does not know how it ended; omit `execution_id`"
            ),
            _ => format!("the run `{shown}` was not successful"),
        };
        return Err(ErrorBody::new(ErrorCode::Conflict, message));
    }
    if run.code_hash != Integrity::of(code.as_bytes()).to_string() {
        let message = format!("the run `{shown}` ran a different program ({})", run.code_hash);
        return Err(ErrorBody::new(ErrorCode::CodeHashMismatch, message));
    }
    Ok(())
}
