//! One execution: analyse, resolve, route, then run or delegate.
//!
//! There are no HTTP types here: every outcome is an [`Envelope`].

mod dry_run;
mod named;
mod plan;
mod run;

use std::time::Duration;

use protocol::{
    ContinueRequest, Delegation, Envelope, ErrorBody, ErrorCode, ExecuteRequest, Integrity, Routing,
};
use registry::{Decision, NewExecution, RegistryError};
use sandbox::Limits;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::dry_run::dry_run;
use self::plan::{Plan, lacking_secret, mark_missing_secrets, plan};
use self::run::{busy, run};
use crate::error::registry_error;
use crate::execution::refusal;
use crate::identity::requester::{ClientKind, Requester};
use crate::metrics::{Decision as Decided, ProgramCount};
use crate::state::SharedGateway;

/// Executes a program, or delegates it.
pub(crate) async fn execute(
    gateway: &SharedGateway,
    requester: &Requester,
    request: ExecuteRequest,
    cancel: CancellationToken,
) -> Envelope {
    if let Some(decision) = &request.continue_workflow {
        return continue_workflow(decision);
    }
    let mut count = gateway.metrics.programs.begin();
    let envelope = decide(gateway, requester, request, cancel, &mut count).await;
    count.answered(&envelope);
    envelope
}

async fn decide(
    gateway: &SharedGateway,
    requester: &Requester,
    request: ExecuteRequest,
    cancel: CancellationToken,
    count: &mut ProgramCount<'_>,
) -> Envelope {
    let options = request.options.clone().unwrap_or_default();
    if request.within.is_some() && !options.dry_run {
        let message = "`within` is only for dry runs: a program always runs in the caller's scope";
        return Envelope::error(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    // Its programs run here or nowhere. Analysing those that cannot run would take the processors from those that do. What
    // `pml` sends may run on its machine.
    let runs_here = requester.client == ClientKind::Plain && !options.dry_run;
    if runs_here && gateway.queue.is_full(requester.scope()) {
        return busy(gateway);
    }
    let mut plan = match plan(gateway, requester, request).await {
        Ok(plan) => plan,
        Err(error) => {
            tracing::info!(
                scope = %requester.scope(),
                error.code = error.error_code.name(),
                "Refused a program"
            );
            return Envelope::error(error);
        }
    };
    // The marks are only for `pml`, and only if it may run the program: each can cost a query.
    let may_run_on_client = plan.routing == Routing::Client || options.dry_run;
    if requester.client == ClientKind::Package && may_run_on_client {
        mark_missing_secrets(gateway, requester, &mut plan).await;
    }
    let envelope = match (plan.routing, requester.client) {
        // A dry run shows the routing also to a caller that could not run the program.
        _ if options.dry_run => {
            count.decided(Decided::DryRun);
            dry_run(plan)
        }
        (Routing::Server, _) => match lacking_secret(gateway, requester, &plan).await {
            Some(error) => Envelope::error(error),
            None => run(gateway, requester, plan, &options, cancel, count).await,
        },
        (Routing::Client, ClientKind::Package) => delegate(gateway, requester, plan, count).await,
        (Routing::Client, ClientKind::Plain) => Envelope::error(needs_package(&plan)),
    };
    envelope.with_only(&options.include)
}

/// Answers `pml_continue`. Runs on the gateway never wait for a human, so there is no workflow to continue.
pub(crate) fn continue_workflow(request: &ContinueRequest) -> Envelope {
    // The answer is read by a model, and the id may be any text.
    let shown: String = request.workflow_id.chars().take(64).flat_map(char::escape_debug).collect();
    Envelope::error(ErrorBody::new(
        ErrorCode::WorkflowNotFound,
        format!("this key has no paused run `{shown}`"),
    ))
}

fn needs_package(plan: &Plan) -> ErrorBody {
    let tools = plan.client_tools();
    let why = if tools.is_empty() {
        "the program chooses its tools as it runs (dynamic)".to_owned()
    } else {
        format!("the program uses tools of the user's machine: {}", tools.join(", "))
    };
    refusal::needs_package(why, tools)
}

async fn delegate(
    gateway: &SharedGateway,
    requester: &Requester,
    plan: Plan,
    count: &mut ProgramCount<'_>,
) -> Envelope {
    let execution_id = Uuid::now_v7();
    // After this time, the outcome of the delegated run counts as indeterminate.
    let limit = Limits::client().wall;
    let decided = record(gateway, requester, &plan, execution_id, Decision::Client, limit).await;
    if let Err(error) = decided {
        return Envelope::error(registry_error(&error));
    }
    count.decided(Decided::Client);
    tracing::info!(
        execution.id = %execution_id,
        scope = %requester.scope(),
        tools = plan.tools_used.len(),
        "Delegated a program to the caller's machine"
    );
    Envelope::ExecuteLocally(Box::new(Delegation {
        code_hash: Integrity::of(plan.code.as_bytes()),
        client_tools: plan.client_tools(),
        dag: plan.dag(),
        warnings: plan.warnings,
        static_structure: serde_json::to_value(&plan.analysis.structure).unwrap_or_default(),
        tools_used: plan.tools_used,
        code: plan.code,
        workflow_id: format!("ws_{}", execution_id.simple()),
    }))
}

async fn record(
    gateway: &SharedGateway,
    requester: &Requester,
    plan: &Plan,
    id: Uuid,
    decision: Decision,
    limit: Duration,
) -> Result<(), RegistryError> {
    let new = NewExecution {
        id,
        decision,
        code_hash: Integrity::of(plan.code.as_bytes()),
        code_bytes: plan.code.len(),
        // Only sizes and a hash: records contain neither code nor arguments.
        args_bytes: plan.args.to_string().len(),
        dynamic: plan.analysis.dynamic,
        tools: plan.recorded_tools(),
        limit,
        error_code: None,
    };
    gateway.registry.begin_execution(&requester.tenant(), new).await
}
