//! Our sandbox: a pool and a runtime like the gateway's, and one tool.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use sandbox::{CallError, Limits, Outcome, Pool, PoolConfig, Program, ToolCall, ToolCaller};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// The tool, which returns its arguments.
pub(crate) async fn echo(args: Value) -> Result<Value, CallError> {
    Ok(args)
}

/// Routes every call of a program to [`echo`].
pub(crate) struct Echo;

impl ToolCaller for Echo {
    fn call(
        &self,
        call: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        Box::pin(echo(call.args))
    }
}

/// A pool with waiting children, a pool without, and their runtime.
pub(crate) struct Ours {
    pub(crate) runtime: Runtime,
    pub(crate) pool: Arc<Pool>,
    pub(crate) empty: Arc<Pool>,
}

impl Ours {
    /// Starts the runtime and both pools.
    pub(crate) fn start() -> Result<Ours, Box<dyn Error>> {
        let runtime = Runtime::new()?;
        let inside = runtime.enter();
        let pool = Arc::new(Pool::new(PoolConfig::default())?);
        let empty = Arc::new(Pool::new(PoolConfig { warm: 0, ..PoolConfig::default() })?);
        drop(inside);
        Ok(Ours { runtime, pool, empty })
    }

    /// Runs a program on one of the runtime's own threads, as the gateway does.
    pub(crate) fn run(
        &self,
        pool: &Arc<Pool>,
        source: &str,
    ) -> Result<(Value, Duration), Box<dyn Error>> {
        let (pool, source) = (Arc::clone(pool), source.to_owned());
        let task = self.runtime.spawn(async move {
            let started = Instant::now();
            let outcome = run(&pool, &source, &Limits::server()).await;
            (outcome.result, started.elapsed())
        });
        let (result, took) = self.runtime.block_on(task)?;
        Ok((result.map_err(|failure| failure.message)?, took))
    }

    /// Runs a program repeatedly in concurrent lanes; returns the number of runs.
    pub(crate) fn flood(
        &self,
        source: &'static str,
        length: Duration,
        side_by_side: usize,
    ) -> Result<u64, Box<dyn Error>> {
        let count = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let lanes: Vec<_> = (0..side_by_side)
            .map(|_| {
                let (pool, count) = (Arc::clone(&self.pool), Arc::clone(&count));
                self.runtime.spawn(async move {
                    let limits = Limits::server();
                    while started.elapsed() < length {
                        let outcome = run(&pool, source, &limits).await;
                        outcome.result.map_err(|failure| failure.message)?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for lane in lanes {
            self.runtime.block_on(lane)??;
        }
        Ok(count.load(Ordering::Relaxed))
    }
}

/// Runs a program that may call [`Echo`].
pub(crate) async fn run(pool: &Pool, source: &str, limits: &Limits) -> Outcome {
    pool.run(program(source), limits, Arc::new(Echo), CancellationToken::new()).await
}

/// Returns a program with fixed arguments.
pub(crate) fn program(source: &str) -> Program {
    Program { source: source.to_owned(), args: json!({ "n": 41 }), ..Program::default() }
}
