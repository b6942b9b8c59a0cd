//! Runs a program in the sandbox and records the calls that its tools receive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use sandbox::{
    CallError, FailureKind, Limits, Pool, PoolConfig, ProgramClock, Repeatable, SandboxError,
    ToolCall, ToolCaller,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::claims::Prepared;
use crate::inputs::Inputs;

/// The most calls of one run. More of them reveal no further flows.
const MAX_CALLS: u64 = 120;

/// The most CPU time of one run. A run that ends at all needs about a hundredth of it.
const MAX_CPU: Duration = Duration::from_millis(300);

/// A call as the tool receives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The id of the tool.
    pub(crate) tool: String,
    pub(crate) args: Value,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Without an error, after all calls were answered.
    Completed,
    /// Without an error, while a call was unanswered or other code had not finished.
    ReturnedEarly,
    /// With an uncaught error.
    Failed(String),
    /// At a limit. Such a run is not compared with others.
    LimitReached(String),
}

/// One run of a program.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) inputs: Inputs,
    pub(crate) calls: Vec<Call>,
    pub(crate) end: End,
    /// Whether two calls were in flight at the same time.
    pub(crate) concurrent: bool,
}

struct Tools {
    inputs: Inputs,
    calls: Mutex<Vec<Call>>,
    in_flight: Arc<AtomicUsize>,
    most_in_flight: AtomicUsize,
}

impl ToolCaller for Tools {
    fn call(
        &self,
        call: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let tool = format!("{}:{}", call.namespace, call.action);
        let result = self.inputs.result_of(&tool).map_err(CallError::new);
        self.calls.lock().expect("no holder panics").push(Call { tool, args: call.args });
        let in_flight_now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(in_flight_now, Ordering::Relaxed);
        let in_flight = Arc::clone(&self.in_flight);
        // The host starts all calls that it has read before it polls the first of them. So a count above 1 means that
        // the program did not wait for one call before it made the next.
        Box::pin(async move {
            in_flight.fetch_sub(1, Ordering::Relaxed);
            result
        })
    }
}

/// Runs each program in a separate sealed child.
#[derive(Clone)]
pub(crate) struct Runner(Arc<Pool>);

impl Runner {
    pub(crate) fn start() -> Result<Self, SandboxError> {
        let config = PoolConfig { warm: 4, max_running: 4, ..PoolConfig::default() };
        Ok(Self(Arc::new(Pool::new(config)?)))
    }

    pub(crate) async fn run(&self, prepared: &Prepared, inputs: Inputs) -> Run {
        let program = sandbox::Program {
            source: prepared.program.clone(),
            args: inputs.args(),
            repeatable: Some(Repeatable {
                clock: ProgramClock::virtual_time(1_700_000_000_000),
                seed: [1; 32],
            }),
            implicit_returns: prepared.implicit_returns.clone(),
        };
        let tools = Arc::new(Tools {
            inputs,
            calls: Mutex::default(),
            in_flight: Arc::default(),
            most_in_flight: AtomicUsize::new(0),
        });
        let limits = Limits { calls: MAX_CALLS, cpu: MAX_CPU, ..Limits::server() };
        let caller: Arc<dyn ToolCaller> = tools.clone();
        let outcome = self.0.run(program, &limits, caller, CancellationToken::new()).await;
        let end = match outcome.result {
            Ok(_) if outcome.unanswered.is_empty() => End::Completed,
            Ok(_) => End::ReturnedEarly,
            Err(failure) => {
                let text = format!("{}: {}", failure.name, failure.message);
                match failure.kind {
                    FailureKind::Exception | FailureKind::Deadlock | FailureKind::StackOverflow => {
                        End::Failed(text)
                    }
                    // All calls were made; only the returned value cannot be sent.
                    FailureKind::ResultNotSerializable => End::Completed,
                    _ => End::LimitReached(text),
                }
            }
        };
        let calls = tools.calls.lock().expect("no holder panics").clone();
        let concurrent = tools.most_in_flight.load(Ordering::Relaxed) > 1;
        Run { inputs: tools.inputs.clone(), calls, end, concurrent }
    }
}
