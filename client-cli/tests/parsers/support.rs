//! Runs programs in the real engine with tools that return their arguments.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use analysis::{Analysis, Limits, analyze};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use sandbox::{CallError, Failure, Outcome, Pool, PoolConfig, Program, ToolCall, ToolCaller};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let _inside = RUNTIME.enter();
    Pool::new(PoolConfig { warm: 4, max_running: 4, ..PoolConfig::default() }).unwrap()
});

/// Answers every call with its arguments and records the tool ids.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl ToolCaller for Recorder {
    fn call(
        &self,
        call: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        self.0.lock().unwrap().push(format!("{}:{}", call.namespace, call.action));
        Box::pin(async move { Ok(call.args) })
    }
}

/// The result of a program and its calls.
pub(crate) struct Ran {
    pub(crate) result: Result<Value, Failure>,
    pub(crate) calls: Vec<String>,
}

/// Runs programs in the real engine, four at a time; the results are in the order of the programs.
pub(crate) fn run_all(sources: Vec<String>) -> Vec<Ran> {
    let program = |source| Program { source, args: json!({}), ..Program::default() };
    run_programs(sources.into_iter().map(program).collect())
}

/// Runs analysed programs as `pml` and `pml-server` do.
pub(crate) fn run_analysed<'a>(analysed: impl IntoIterator<Item = &'a Analysis>) -> Vec<Ran> {
    let program = |analysis: &Analysis| Program {
        source: analysis.program.clone(),
        args: json!({}),
        implicit_returns: analysis.implicit_returns.clone(),
        ..Program::default()
    };
    run_programs(analysed.into_iter().map(program).collect())
}

fn run_programs(programs: Vec<Program>) -> Vec<Ran> {
    let runs = stream::iter(programs).map(run).buffered(4);
    RUNTIME.block_on(runs.collect())
}

async fn run(program: Program) -> Ran {
    let recorder = Arc::new(Recorder::default());
    let limits = sandbox::Limits::server();
    let run = POOL.run(program, &limits, Arc::clone(&recorder) as _, CancellationToken::new());
    let outcome: Outcome =
        tokio::time::timeout(Duration::from_secs(60), run).await.expect("a run ends");
    let calls = recorder.0.lock().unwrap().clone();
    Ran { result: outcome.result, calls }
}

/// Analyses a program with the limits of `pml` and `pml-server`.
pub(crate) fn analysed(source: &str) -> Analysis {
    analyze(source, &Limits::default())
}
