//! Checks and executes the calls of a local run.
//!
//! Every call of the program and of its capabilities passes through here. It must be declared, permitted and, if
//! needed, approved. Then a native tool, a local MCP server, a nested program or the gateway executes it.

mod execute;
mod mocked;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use execution::spans::{self, Span};
use futures::future::{BoxFuture, FutureExt as _};
use protocol::{CallNote, ErrorBody, ErrorCode, Routing, ToolId};
use sandbox::{CallError, ProgramClock, ToolCall, ToolCaller, WallClock};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::capabilities::Target;
use crate::run::journal::{Begun, ProgramJournal, Step, now_ms};
use crate::run::local_run::LocalRun;
use crate::run::permission::{PendingCall, Permit};
use crate::run::resolver::Resolver;

/// The maximum number of concurrent calls of one program.
const EXECUTING_LIMIT: usize = 64;

/// Answers the calls of one program: the program of a run, or of a capability within it.
pub(crate) struct Router {
    caller: Arc<Caller>,
}

/// A program that makes calls.
struct Caller {
    run: Arc<LocalRun>,
    /// The tools that the analysis on this machine found, and where each runs.
    declared: HashMap<ToolId, Target>,
    /// The names that permission rules are applied to, where they differ from the names in the program.
    rules: HashMap<ToolId, ToolId>,
    dynamic: bool,
    /// The capabilities that it is nested in, the outermost first and itself last; empty for the program of the run.
    through: Vec<ToolId>,
    /// The call indexes of those capabilities.
    outer: Vec<u64>,
    /// Its clock.
    clock: ProgramClock,
    /// Its record so far, if the run is resumed.
    journal: Option<ProgramJournal>,
    /// When its calls were answered, for the sandbox, which takes each time with the answer.
    answered: Mutex<HashMap<u64, u64>>,
    /// The clocks of the programs that wait for it, which stop while the user is asked.
    clocks: Vec<WallClock>,
    /// Limits concurrent calls. Calls that wait for the user are not counted.
    executing: Semaphore,
    /// A program executes one capability at a time, so that the number of a run's processes does not grow with its
    /// calls.
    capability_slot: Semaphore,
}

/// A call that may be made.
struct AdmittedCall<'a> {
    id: ToolId,
    target: Target,
    /// The clocks of all programs that wait for it.
    clocks: Vec<WallClock>,
    permit: Permit,
    /// What it was before the run was resumed.
    begun: Option<Begun>,
    /// Its place among the calls that execute at the same time.
    _slot: SemaphorePermit<'a>,
}

impl Router {
    /// Creates the router of a run's own program.
    pub(crate) fn new(
        run: Arc<LocalRun>,
        declared: HashMap<ToolId, Target>,
        dynamic: bool,
        clock: ProgramClock,
    ) -> Self {
        let journal = run.journal.as_ref().map(|journal| journal.of_program(&[], &clock));
        let caller = Caller {
            run,
            clock,
            journal,
            answered: Mutex::default(),
            declared,
            rules: HashMap::new(),
            dynamic,
            through: Vec::new(),
            outer: Vec::new(),
            clocks: Vec::new(),
            executing: Semaphore::new(EXECUTING_LIMIT),
            capability_slot: Semaphore::new(1),
        };
        Self { caller: Arc::new(caller) }
    }
}

impl ToolCaller for Router {
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let caller = Arc::clone(&self.caller);
        async move {
            let tool = match ToolId::from_call(&call.namespace, &call.action) {
                // Normalized, so that a tool has the same name in the log with and without `@latest`.
                Ok(id) => id.to_string(),
                // The child is untrusted, and the name goes into the log and the answer.
                Err(_) => protocol::escape_text(&format!("{}:{}", call.namespace, call.action)),
            };
            let index = call.id;
            let mut started = Instant::now();
            let mut routing = Routing::Client;
            // First, so that calls of tools that do not exist count towards the limit too. It also bounds the records
            // of a run, so the call that exceeds it has none.
            let counted = caller.run.begin_call();
            let is_recorded = counted.is_ok();
            let step = match &counted {
                Ok(()) => caller.step(&call, &tool, &cancel).await,
                Err(_) => Ok(Step::Make(None)),
            };
            let mut refused = None;
            let answer = match step {
                Ok(Step::Answer { at_ms, routing: recorded, answer }) => {
                    routing = recorded;
                    caller.answered().insert(index, at_ms);
                    answer
                }
                Ok(Step::Fail(error)) => caller.end(index, Err(error), None),
                Ok(Step::Make(begun)) => {
                    let admitted = match counted {
                        Ok(()) => caller.admit(&call, begun, &mut routing, &cancel).await,
                        Err(error) => Err(error),
                    };
                    match admitted {
                        Ok(admitted) => {
                            // The waits for the user and for a slot do not count as the duration of the call.
                            started = Instant::now();
                            let mut span = Span::of_tool(&admitted.id);
                            span.set("pml.routing", || routing.as_str().to_owned());
                            let made = caller.make(admitted, call, &cancel);
                            let answer = span.within(made).await;
                            let error = answer.as_ref().err().map(|error| error.error_code);
                            spans::end_step(span, error);
                            answer
                        }
                        Err(error) => {
                            refused = is_recorded.then_some((call.args, begun, error.clone()));
                            Err(error)
                        }
                    }
                }
                Err(error) => Err(caller.run.end_with(error)),
            };
            let note = CallNote {
                tool,
                routing,
                ok: answer.is_ok(),
                duration_ms: started.elapsed().as_secs_f64() * 1e3,
                through: caller.through.iter().map(ToolId::to_string).collect(),
            };
            let failed = answer.as_ref().err().map(|error| error.error_code);
            tracing::debug!(
                run = %caller.run.id,
                call = index,
                tool = %note.tool,
                through = note.through.join(" → "),
                routing = note.routing.as_str(),
                duration_ms = note.duration_ms,
                error = failed.map(|code| code.name()),
                "A call ended"
            );
            let name = note.tool.clone();
            caller.run.record(&caller.outer, index, note, failed);
            if let Some((arguments, begun, error)) = refused {
                caller.refuse(index, &name, &arguments, begun.is_some(), &error);
            }
            answer.map_err(|error| CallError::new(error.message).with_code(error.error_code.name()))
        }
        .boxed()
    }

    fn answered_at(&self, call: u64) -> Option<u64> {
        self.caller.answered().remove(&call)
    }
}

impl Caller {
    /// Returns what a call does: in a run that is resumed, it may have been made before, and in one with a mock, another
    /// run may have its answer.
    async fn step(
        &self,
        call: &ToolCall,
        tool: &str,
        cancel: &CancellationToken,
    ) -> Result<Step, ErrorBody> {
        let Some(journal) = &self.journal else { return self.mocked(call, tool, cancel).await };
        let step = journal.step(call.id, tool, &call.args).await?;
        if let (Step::Answer { .. }, Ok(id)) =
            (&step, ToolId::from_call(&call.namespace, &call.action))
        {
            // What was made counts towards the limits, whatever they are now.
            let _ = self.run.policy.count_call(self.rules.get(&id).unwrap_or(&id));
        }
        Ok(step)
    }

    /// Records the answer to a call that was made or begun. The caller must return it without waiting for anything else:
    /// the program gets answers in the order of their records.
    fn end(
        &self,
        index: u64,
        answer: Result<Value, ErrorBody>,
        refused: Option<String>,
    ) -> Result<Value, ErrorBody> {
        let at_ms = self.answer_now(index);
        let recorded = self.run.recorder.end_call(&self.name(index), &answer, refused, at_ms);
        recorded.map_err(|error| self.run.end_with(error))?;
        answer
    }

    /// Records that a call was refused; like [`Caller::end`].
    fn refuse(&self, index: u64, tool: &str, arguments: &Value, begun: bool, error: &ErrorBody) {
        if begun {
            // Its start is recorded already.
            let _ = self.end(index, Err(error.clone()), None);
            return;
        }
        let (at_ms, name) = (self.answer_now(index), self.name(index));
        if let Err(error) = self.run.recorder.refuse_call(&name, tool, arguments, error, at_ms) {
            self.run.end_with(error);
        }
    }

    /// Sets the time at which the program gets the answer to a call, which is now, and returns it.
    fn answer_now(&self, index: u64) -> u64 {
        let at_ms = self.clock.now_ms();
        self.answered().insert(index, at_ms);
        at_ms
    }

    fn answered(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a call may be made, and waits for the user if needed, and for a free slot. `routing` is set once it is known.
    async fn admit(
        &self,
        call: &ToolCall,
        begun: Option<Begun>,
        routing: &mut Routing,
        cancel: &CancellationToken,
    ) -> Result<AdmittedCall<'_>, ErrorBody> {
        let id = ToolId::from_call(&call.namespace, &call.action)
            .map_err(|error| ErrorBody::new(ErrorCode::ToolNotFound, error.to_string()))?;
        let target = self.target(&id, cancel).await?;
        *routing = target.routing();
        let mut clocks = self.clocks.clone();
        clocks.push(call.clock.clone());
        let pending = PendingCall {
            tool: &id,
            id: self.rules.get(&id).unwrap_or(&id),
            target: &target,
            arguments: &call.args,
            through: &self.through,
            clocks: &clocks,
        };
        let permit = self.run.ask(&pending, cancel).await?;
        let slot = tokio::select! {
            slot = self.executing.acquire() => slot.map_err(|_| cancelled())?,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        Ok(AdmittedCall { id, target, clocks, permit, begun, _slot: slot })
    }

    /// Makes a call, between the records of its start and its end.
    async fn make(
        &self,
        admitted: AdmittedCall<'_>,
        call: ToolCall,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let (recorder, name) = (&self.run.recorder, self.name(call.id));
        let (tool, target) = (&admitted.id, &admitted.target);
        let reason = admitted.permit.reason.clone();
        // The clock of a capability's program. One that was begun before goes on where it was.
        let is_capability = matches!(target, Target::Capability(_));
        let epoch_ms = is_capability
            .then(|| admitted.begun.and_then(|begun| begun.epoch_ms).unwrap_or_else(now_ms));
        let recorded = match admitted.begun {
            Some(_) => recorder.repeat_call(&name, reason).await,
            None => recorder.begin_call(&name, tool, target, &call.args, reason, epoch_ms).await,
        };
        recorded.map_err(|error| self.run.end_with(error))?;
        let index = call.id;
        let mut refused = None;
        let answer = self.execute(admitted, epoch_ms, call, &mut refused, cancel).await;
        self.end(index, answer, refused)
    }

    /// Returns the name of a call in the records: its number in its program, after those of the calls around it.
    fn name(&self, index: u64) -> String {
        let numbers = self.outer.iter().chain([&index]);
        numbers.map(u64::to_string).collect::<Vec<_>>().join(".")
    }

    /// Returns where a tool runs: as declared, or in a dynamic program as resolved now.
    async fn target(&self, id: &ToolId, cancel: &CancellationToken) -> Result<Target, ErrorBody> {
        if let Some(target) = self.declared.get(id) {
            return Ok(target.clone());
        }
        if !self.dynamic {
            return Err(ErrorBody::new(
                ErrorCode::ToolNotDeclared,
                format!("tool `{id}` is not declared by the analysis of this program"),
            ));
        }
        let mut resolver = Resolver::new(&self.run.app, false, cancel);
        let found = resolver.find_called(id).await;
        for warning in resolver.warnings() {
            self.run.warn(warning.clone());
        }
        found
    }
}

fn cancelled() -> ErrorBody {
    ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled")
}
