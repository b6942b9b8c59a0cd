//! Analyses and runs one program, and compares the results.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use analysis::Analysis;
use futures::future::BoxFuture;
use sandbox::{
    CallError, Limits, Outcome, Pool, PoolConfig, ProgramClock, Repeatable, SandboxError, ToolCall,
    ToolCaller,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::generator::{ARGS, Program};
use crate::report::Fault;

/// Answers every call and records it.
#[derive(Default)]
struct Recorder(Mutex<BTreeSet<String>>);

impl ToolCaller for Recorder {
    fn call(
        &self,
        call: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let name = format!("{}:{}", call.namespace, call.action);
        self.0.lock().expect("no holder panics").insert(name);
        let answer = json!({
            "ok": true, "id": call.id, "name": "given", "list": [1, 2], "items": [{ "a": 1 }],
        });
        Box::pin(async move { Ok(answer) })
    }
}

/// The results of one program.
pub(crate) struct Found {
    pub(crate) declared: BTreeSet<String>,
    pub(crate) dynamic: bool,
    pub(crate) diagnostics: Vec<String>,
    /// Whether the analysis refuses it.
    pub(crate) refused: bool,
    pub(crate) observed: BTreeSet<String>,
    /// The calls that every run makes and that were not observed.
    pub(crate) missed: Vec<String>,
    pub(crate) calls: u64,
    /// The error with which it ended, if any.
    pub(crate) failure: Option<String>,
    resolvable: bool,
}

impl Found {
    pub(crate) fn undeclared(&self) -> Vec<&String> {
        self.observed.difference(&self.declared).collect()
    }

    /// Returns the fault of the analysis or of the program, if any.
    pub(crate) fn fault(&self) -> Option<Fault> {
        if self.refused {
            return Some(Fault::Refused);
        }
        if !self.dynamic && !self.undeclared().is_empty() {
            return Some(Fault::Undeclared);
        }
        match &self.failure {
            Some(_) if self.resolvable => Some(Fault::Failed),
            None if !self.missed.is_empty() => Some(Fault::Missed),
            _ => None,
        }
    }
}

/// Analyses programs and runs them in the sandbox.
#[derive(Clone)]
pub(crate) struct Runner {
    pool: Arc<Pool>,
    args: Value,
}

impl Runner {
    pub(crate) fn start() -> Result<Self, SandboxError> {
        let pool = Pool::new(PoolConfig { warm: 4, max_running: 8, ..PoolConfig::default() })?;
        let args = serde_json::from_str(ARGS).expect("the arguments are JSON");
        Ok(Self { pool: Arc::new(pool), args })
    }

    pub(crate) async fn check(&self, program: &Program) -> Found {
        let source = program.source();
        let analysed = tokio::task::spawn_blocking(move || {
            analysis::analyze_with_misused_promises(&source, &analysis::Limits::default())
        });
        let analysis = analysed.await.expect("the analysis does not panic");
        let mut found = Found {
            declared: analysis.tools.iter().map(ToString::to_string).collect(),
            dynamic: analysis.dynamic,
            diagnostics: analysis
                .diagnostics
                .iter()
                .map(|one| format!("{}:{} {}", one.line, one.column, one.message))
                .collect(),
            refused: !analysis.can_run(),
            observed: BTreeSet::new(),
            missed: Vec::new(),
            calls: 0,
            failure: None,
            resolvable: program.resolvable,
        };
        if found.refused {
            return found;
        }
        let (outcome, observed) = self.run(analysis, program.seed).await;
        found.observed = observed;
        found.calls = outcome.calls;
        found.failure = outcome.result.err().map(|failure| {
            format!("{}: {} (line {:?})", failure.name, failure.message, failure.line)
        });
        found.missed = program.called().difference(&found.observed).cloned().collect();
        found
    }

    /// Runs a program; returns the outcome and the tools that it called.
    pub(crate) async fn run(&self, analysis: Analysis, seed: u64) -> (Outcome, BTreeSet<String>) {
        let recorder = Arc::new(Recorder::default());
        let mut seed_bytes = [0; 32];
        seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let run = sandbox::Program {
            source: analysis.program,
            implicit_returns: analysis.implicit_returns,
            args: self.args.clone(),
            repeatable: Some(Repeatable {
                clock: ProgramClock::start(1_700_000_000_000),
                seed: seed_bytes,
            }),
        };
        let limits = Limits { calls: 20_000, ..Limits::server() };
        let tools: Arc<dyn ToolCaller> = recorder.clone();
        let outcome = self.pool.run(run, &limits, tools, CancellationToken::new()).await;
        let mut observed = recorder.0.lock().expect("no holder panics").clone();
        observed.extend(outcome.unanswered.iter().cloned());
        (outcome, observed)
    }
}
