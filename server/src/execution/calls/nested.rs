//! The program of a capability, which runs within the run that calls it.

use std::sync::Arc;

use execution::failure;
use futures::future::BoxFuture;
use protocol::{CAPABILITY_DEPTH, ErrorBody, ErrorCode};
use registry::{ResolvedCapability, ResolvedTool};
use sandbox::{Limits, Program};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::{ProgramCalls, RunOf};
use crate::execution::capabilities;

/// The limits of a run's capability calls.
#[derive(Debug, Clone)]
pub(super) struct Nesting {
    depth: usize,
    place: Arc<Semaphore>,
}

impl Nesting {
    /// Returns the nesting of a program that no other program called.
    pub(super) fn outermost() -> Self {
        Self { depth: 0, place: Arc::new(Semaphore::new(1)) }
    }

    fn inner(&self) -> Self {
        Self { depth: self.depth + 1, ..Self::outermost() }
    }
}

/// Runs the program of a capability as a part of the run that called it.
///
/// Boxed, because it may call itself: a capability may call others.
pub(super) fn run<'a>(
    of: &'a RunOf,
    tool: &'a ResolvedTool,
    capability: &'a ResolvedCapability,
    args: Value,
    cancel: CancellationToken,
) -> BoxFuture<'a, Result<Value, ErrorBody>> {
    Box::pin(async move {
        let fail =
            |code, what: &str| ErrorBody::new(code, format!("capability `{}`: {what}", tool.id));
        if of.nesting.depth >= CAPABILITY_DEPTH {
            return Err(fail(ErrorCode::TooComplex, "capabilities are nested too deeply"));
        }
        let _place = of
            .nesting
            .place
            .acquire()
            .await
            .map_err(|_| fail(ErrorCode::Cancelled, "the run has ended"))?;
        let analysis = of.gateway.analyser.analyse(&capability.code).await?;
        if !analysis.can_run() || analysis.dynamic || analysis.tools != capability.calls {
            let what =
                "the analysis of its program differs from that at publication; publish it again";
            return Err(fail(ErrorCode::IntegrityMismatch, what));
        }
        let declared = capabilities::inner(tool).filter_map(|named| of.reach.get(&named).cloned());
        let inner = RunOf { nesting: of.nesting.inner(), ..of.clone() };
        let calls = Arc::new(ProgramCalls::new(inner, declared));
        let program = Program {
            source: analysis.program.clone(),
            implicit_returns: analysis.implicit_returns.clone(),
            args,
            ..Program::default()
        };
        let limits = Limits::server();
        let (gateway, callee) = (of.gateway.clone(), calls.clone());
        // In a task of its own: polled within the run that calls it, each level would add to one stack.
        let task = async move { gateway.nested.run(program, &limits, callee, cancel).await };
        let task = AbortOnDropHandle::new(tokio::spawn(task.in_current_span()));
        let outcome =
            task.await.map_err(|_| fail(ErrorCode::Internal, "its run was aborted; retry"))?;
        outcome.result.map_err(|why| {
            let error = failure::error_body(&why, &capability.code, &calls.log());
            fail(error.error_code, &error.message)
        })
    })
}
