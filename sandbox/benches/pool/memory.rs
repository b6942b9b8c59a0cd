//! The private memory of a child, while it waits for a program and while its program waits for a tool.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use sandbox::{CallError, Limits, Pool, PoolConfig, ToolCall, ToolCaller};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::figures::{median, quantile, sorted};
use crate::ours::{Ours, program};
use crate::spent;

const CHILDREN: usize = 8;
const CALL: &str = "return await mcp.demo.wait({ n: args.n })";
const PATIENCE: Duration = Duration::from_secs(30);
/// The time after which a child is idle, or a call has arrived.
const REST: Duration = Duration::from_millis(500);

/// A tool that never answers; counts its calls.
#[derive(Default)]
struct Silence(AtomicUsize);

impl ToolCaller for Silence {
    fn call(
        &self,
        _: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

/// Returns a Markdown table, or a sentence with the reason why there is none.
pub(crate) fn table(ours: &Ours) -> Result<String, Box<dyn Error>> {
    let others = spent::children(std::process::id());
    let inside = ours.runtime.enter();
    let pool = Arc::new(Pool::new(PoolConfig { warm: CHILDREN, ..PoolConfig::default() })?);
    drop(inside);
    let forks = found("eight children", || {
        let mut zygotes = spent::children(std::process::id());
        zygotes.retain(|pid| !others.contains(pid));
        let mut forks = spent::children(*zygotes.first()?);
        // The oldest is the namespace's init process, which never runs a program.
        forks.drain(..1.min(forks.len()));
        (forks.len() == CHILDREN).then_some(forks)
    })?;
    std::thread::sleep(REST);
    let Some(waiting) = private(&forks) else {
        return Ok("The memory of a child was not measured: only root may look.\n".to_owned());
    };
    let (silence, cancel) = (Arc::new(Silence::default()), CancellationToken::new());
    for _ in 0..CHILDREN {
        let (pool, tools, cancel) = (Arc::clone(&pool), Arc::clone(&silence), cancel.clone());
        ours.runtime.spawn(async move {
            pool.run(program(CALL), &Limits::server(), tools, cancel).await;
        });
    }
    // The pool takes the oldest children first, so the programs run in these eight, not in their replacements.
    found("eight calls", || (silence.0.load(Ordering::Relaxed) == CHILDREN).then_some(()))?;
    std::thread::sleep(REST);
    let calling = private(&forks).ok_or("a child has ended in its call")?;
    cancel.cancel();
    let mut table = format!(
        "| {CHILDREN} children of a fresh pool | private memory, median | max |\n|---|---:|---:|\n"
    );
    for (state, kib) in
        [("wait for a program", waiting), ("have a program that waits for a tool", calling)]
    {
        let kib = sorted(&kib);
        let (half, all) = (median(kib.iter().copied()), quantile(&kib, 1.0));
        table += &format!("| {state} | {half:.0} KiB | {all:.0} KiB |\n");
    }
    Ok(table)
}

/// Polls until `look` returns a value.
fn found<T>(what: &str, look: impl Fn() -> Option<T>) -> Result<T, Box<dyn Error>> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(found) = look() {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("{what}: not within {PATIENCE:?}").into())
}

fn private(pids: &[u32]) -> Option<Vec<f64>> {
    pids.iter().map(|pid| Some(spent::private_kib(*pid)? as f64)).collect()
}
