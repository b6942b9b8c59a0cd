//! Runs a program in the real engine and keeps what its tools are given.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use sandbox::{
    CallError, FailureKind, Limits, Pool, PoolConfig, SandboxError, ToolCall, ToolCaller,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::told::Prepared;
use crate::world::World;

/// The most calls of one run; more of them tell nothing new.
const CALLS: u64 = 120;

/// The CPU time of one run; they need a hundredth of it, if they end at all.
const CPU: Duration = Duration::from_millis(300);

/// A call as the tool saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The id of the tool.
    pub(crate) tool: String,
    pub(crate) args: Value,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Without an error, and all calls were answered.
    Well,
    /// Without an error, while a call was not answered or code was still to run.
    Early,
    /// With an error that nothing caught.
    Error(String),
    /// At a limit; such a run tells nothing.
    Cut(String),
}

/// What a run did.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) calls: Vec<Call>,
    pub(crate) end: End,
    /// Whether two calls were in flight at the same time.
    pub(crate) together: bool,
}

struct Tools {
    world: World,
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
        let answer = self.world.answer(&tool).map_err(CallError::new);
        self.calls.lock().expect("no holder panics").push(Call { tool, args: call.args });
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        let in_flight = Arc::clone(&self.in_flight);
        // The host starts all calls that it has read before it asks for the first answer.
        Box::pin(async move {
            in_flight.fetch_sub(1, Ordering::Relaxed);
            answer
        })
    }
}

/// Runs programs, each in a sealed child of its own.
#[derive(Clone)]
pub(crate) struct Runner(Arc<Pool>);

impl Runner {
    pub(crate) fn start() -> Result<Self, SandboxError> {
        let config = PoolConfig { warm: 4, max_running: 4, ..PoolConfig::default() };
        Ok(Self(Arc::new(Pool::new(config)?)))
    }

    pub(crate) async fn run(&self, prepared: &Prepared, world: World) -> Run {
        let program = sandbox::Program {
            source: prepared.program.clone(),
            args: world.args(),
            epoch_ms: Some(1_700_000_000_000),
            seed: Some(1),
            implicit_returns: prepared.implicit_returns.clone(),
        };
        let tools = Arc::new(Tools {
            world,
            calls: Mutex::default(),
            in_flight: Arc::default(),
            most_in_flight: AtomicUsize::new(0),
        });
        let limits = Limits { calls: CALLS, cpu: CPU, ..Limits::server() };
        let caller: Arc<dyn ToolCaller> = tools.clone();
        let outcome = self.0.run(program, &limits, caller, CancellationToken::new()).await;
        let end = match outcome.result {
            Ok(_) if outcome.unanswered.is_empty() => End::Well,
            Ok(_) => End::Early,
            Err(failure) => {
                let text = format!("{}: {}", failure.name, failure.message);
                match failure.kind {
                    FailureKind::Exception | FailureKind::Deadlock | FailureKind::StackOverflow => {
                        End::Error(text)
                    }
                    // The calls were made; only the value cannot be told.
                    FailureKind::ResultNotSerializable => End::Well,
                    _ => End::Cut(text),
                }
            }
        };
        let calls = tools.calls.lock().expect("no holder panics").clone();
        let together = tools.most_in_flight.load(Ordering::Relaxed) > 1;
        Run { world: tools.world.clone(), calls, end, together }
    }
}
