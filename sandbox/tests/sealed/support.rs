//! Shared by all cases: a pool, tools, and helpers that run a program.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use libtest_mimic::{Failed, Trial};
use sandbox::{
    CallError, Failure, FailureKind, Limits, Outcome, Pool, PoolConfig, Program, ToolCall,
    ToolCaller,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let _inside = RUNTIME.enter();
    Pool::new(PoolConfig { warm: 2, max_running: 8, ..PoolConfig::default() }).expect("a pool")
});

pub(crate) fn pool() -> &'static Pool {
    &POOL
}

/// Converts an async case to a trial, which fails if the case panics.
pub(crate) fn case<F, Fut>(name: &str, body: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    Trial::test(name, move || {
        RUNTIME.block_on(body());
        Ok::<(), Failed>(())
    })
}

/// Lists trials, named after their functions.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            let module = module_path!().rsplit("::").next().unwrap_or("");
            vec![$($crate::support::case(&format!("{module}::{}", stringify!($name)), $name)),*]
        }
    };
}
pub(crate) use trials;

/// Tools of the namespace `test`.
#[derive(Default)]
pub(crate) struct Tools {
    running: Arc<AtomicUsize>,
    pub(crate) most_running: Arc<AtomicUsize>,
    pub(crate) cancelled: Arc<AtomicUsize>,
}

struct CountCancelled(CancellationToken, Arc<AtomicUsize>);

impl Drop for CountCancelled {
    fn drop(&mut self) {
        if self.0.is_cancelled() {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl ToolCaller for Tools {
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let (running, most) = (Arc::clone(&self.running), Arc::clone(&self.most_running));
        let cancelled = Arc::clone(&self.cancelled);
        Box::pin(async move {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let answer = match (call.namespace.as_str(), call.action.as_str()) {
                ("test", "echo") => Ok(call.args),
                ("test", "id") => Ok(json!(call.id)),
                ("test", "name") => Ok(json!(format!("{}:{}", call.namespace, call.action))),
                ("test", "big") => {
                    let bytes = call.args["bytes"].as_u64().unwrap_or(0);
                    Ok(json!("x".repeat(usize::try_from(bytes).expect("a size"))))
                }
                ("test", "deep") => {
                    let text = format!("{}{}", "[".repeat(120), "]".repeat(120));
                    Ok(serde_json::from_str(&text).expect("JSON"))
                }
                ("test", "wait") => {
                    let wait = Duration::from_millis(call.args["ms"].as_u64().unwrap_or(0));
                    tokio::time::sleep(wait).await;
                    Ok(Value::Null)
                }
                ("test", "human") => {
                    let _pause = call.clock.pause();
                    let wait = Duration::from_millis(call.args["ms"].as_u64().unwrap_or(0));
                    tokio::time::sleep(wait).await;
                    Ok(json!("yes"))
                }
                ("test", "never") => {
                    let _counted = CountCancelled(cancel, cancelled);
                    std::future::pending().await
                }
                ("test", "fail") => Err(CallError {
                    name: "ToolError".to_owned(),
                    message: "the tool said no".to_owned(),
                    code: Some("NO".to_owned()),
                }),
                (namespace, action) => Err(CallError::new(format!("no tool {namespace}:{action}"))),
            };
            running.fetch_sub(1, Ordering::SeqCst);
            answer
        })
    }
}

pub(crate) fn program(source: &str) -> Program {
    Program { source: source.to_owned(), args: json!({}), ..Program::default() }
}

pub(crate) async fn run_with(program: Program, limits: &Limits, tools: Arc<Tools>) -> Outcome {
    let limit = Duration::from_secs(60);
    let run = pool().run(program, limits, tools, CancellationToken::new());
    tokio::time::timeout(limit, run).await.expect("the run ends within a minute")
}

pub(crate) async fn run(source: &str) -> Outcome {
    run_with(program(source), &Limits::server(), Arc::default()).await
}

/// Runs a program that must succeed.
pub(crate) async fn value(source: &str) -> Value {
    run(source).await.result.unwrap_or_else(|failure| panic!("{source}\n{failure:#?}"))
}

/// Runs a program that must fail.
pub(crate) async fn failure(source: &str) -> Failure {
    failure_with(source, &Limits::server()).await
}

pub(crate) async fn failure_with(source: &str, limits: &Limits) -> Failure {
    run_with(program(source), limits, Arc::default()).await.result.expect_err(source)
}

/// Runs a program that must fail with this kind, and returns its duration.
pub(crate) async fn fails_as(kind: FailureKind, source: &str, limits: &Limits) -> Duration {
    let outcome = run_with(program(source), limits, Arc::default()).await;
    let failure = outcome.result.expect_err(source);
    assert_eq!(failure.kind, kind, "{source}\n{failure:#?}");
    outcome.duration
}

/// Waits until something becomes true.
pub(crate) async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the children of a process, as the kernel lists them.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .filter_map(Result::ok)
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns all descendants of a process.
pub(crate) fn tree_of(pid: u32) -> Vec<u32> {
    let mut found = children_of(pid);
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let more = children_of(*pid);
        found.extend(more);
        next += 1;
    }
    found
}
