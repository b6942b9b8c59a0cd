//! Runs the program of a capability within the run that calls it.

use std::sync::Arc;

use execution::{failure, trace_context};
use futures::future::BoxFuture;
use protocol::{CAPABILITY_DEPTH, ErrorBody, ErrorCode};
use registry::{ResolvedCapability, ResolvedTool};
use sandbox::{Limits, Program};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::{ProgramCalls, RunContext};
use crate::execution::capabilities;

/// The nesting depth of a run, and the slot for its capability calls: only one of them executes at a time.
#[derive(Debug, Clone)]
pub(super) struct Nesting {
    depth: usize,
    slot: Arc<Semaphore>,
}

impl Nesting {
    /// Returns the nesting of a program that no other program called.
    pub(super) fn outermost() -> Self {
        Self { depth: 0, slot: Arc::new(Semaphore::new(1)) }
    }

    /// Returns the nesting of a program that a program of this nesting calls.
    fn deeper(&self) -> Self {
        // A separate slot: a capability that calls another one keeps its caller's slot occupied.
        Self { depth: self.depth + 1, ..Self::outermost() }
    }
}

/// Runs the program of a capability as a part of the run that called it.
///
/// The future is boxed because it is recursive: a capability may call other capabilities.
pub(super) fn run<'a>(
    context: &'a RunContext,
    tool: &'a ResolvedTool,
    capability: &'a ResolvedCapability,
    args: Value,
    cancel: CancellationToken,
) -> BoxFuture<'a, Result<Value, ErrorBody>> {
    Box::pin(async move {
        let fail =
            |code, what: &str| ErrorBody::new(code, format!("capability `{}`: {what}", tool.id));
        // The resolution refuses deeper nesting before a run. This check bounds the number of
        // processes independently of it.
        if context.nesting.depth >= CAPABILITY_DEPTH {
            return Err(fail(ErrorCode::TooComplex, "capabilities are nested too deeply"));
        }
        // Acquired first, so that queued calls occupy neither an analyser nor a sandbox.
        let _slot = context
            .nesting
            .slot
            .acquire()
            .await
            .map_err(|_| fail(ErrorCode::Cancelled, "the run has ended"))?;
        let analysis = context.gateway.analyser.analyse(&capability.code).await?;
        // A newer analyser may find other tools than the one at publication; the caller's plan rests on those.
        if !analysis.can_run() || analysis.dynamic || analysis.tools != capability.calls {
            let what =
                "the analysis of its program differs from that at publication; publish it again";
            return Err(fail(ErrorCode::IntegrityMismatch, what));
        }
        // Nothing is resolved during a run: the routing was decided for exactly these tools.
        let declared =
            capabilities::callees(tool).filter_map(|named| context.reach.get(&named).cloned());
        let inner = RunContext { nesting: context.nesting.deeper(), ..context.clone() };
        let calls = Arc::new(ProgramCalls::new(inner, declared));
        let program = Program {
            source: analysis.program.clone(),
            implicit_returns: analysis.implicit_returns.clone(),
            args,
            ..Program::default()
        };
        // A capability gets full limits, but it ends with its caller: by the time limit of the
        // call, and when the caller's run ends.
        let limits = Limits::server();
        let (gateway, caller) = (context.gateway.clone(), calls.clone());
        // In a separate task: if it were polled by the calling run, all levels would share one stack.
        let task = async move { gateway.nested.run(program, &limits, caller, cancel).await };
        let task = trace_context::within(trace_context::current(), task);
        // Aborted when this future is dropped, because a spawned task would continue. A spawned
        // task does not inherit the span, which has the id of the request.
        let task = AbortOnDropHandle::new(tokio::spawn(task.in_current_span()));
        let outcome =
            task.await.map_err(|_| fail(ErrorCode::Internal, "its run was aborted; retry"))?;
        outcome.result.map_err(|why| {
            let error = failure::error_body(&why, &capability.code, &calls.log());
            fail(error.error_code, &error.message)
        })
    })
}
