//! Writes one run into the run store.

use std::sync::Arc;

use protocol::redaction::keys_in_use;
use protocol::{ErrorBody, Integrity, ToolId};
use serde_json::{Value, json};

use crate::capabilities::Target;
use crate::consent::permissions::Permissions;
use crate::consent::question::{Answer, Given};
use crate::run::journal::RunStart;
use crate::run::mock::{Mock, MockedAnswer};
use crate::run::prepare::LocalProgram;
use crate::run_store::record::{
    Answered, ApprovalGiven, CallBegan, CallEnded, CallMocked, CallRefused, CallRepeated, Content,
    Covered, Failure, MOCK, ProgramStarted, RUN, Record, RunBegan, RunEnded, RunResumed, Status,
    TraceTarget, now,
};
use crate::run_store::{Keeping, Lost, RunStore};
use crate::tools::only_reads;
use crate::workspace::changes::Change;

/// The records of one run.
pub(crate) struct Recorder {
    store: Arc<RunStore>,
    run: String,
    /// Why the beginning of the run was not stored, if so. Then nothing else of it is.
    unbegun: Arc<Lost>,
    /// Why the end of a call was not stored, if so.
    lost: Arc<Lost>,
}

/// A question to the user, with its answer.
pub(crate) struct AnsweredQuestion {
    /// When it was asked.
    pub(crate) asked_at: String,
    /// The tool.
    pub(crate) tool: ToolId,
    /// The arguments that were shown.
    pub(crate) arguments: Value,
    /// The number of calls that it covers.
    pub(crate) count: u64,
    /// Why it was asked.
    pub(crate) reason: String,
    /// The hash of the text of the question.
    pub(crate) shown: Integrity,
    /// The answer that counts; `None` if nobody answered in time.
    pub(crate) answer: Option<Given>,
    /// Whether the answer leaves it out.
    pub(crate) is_left_out: bool,
    /// For a call of a list: what exactly was shown.
    pub(crate) covers: Option<Covered>,
}

impl Recorder {
    fn new(store: Arc<RunStore>, run: String) -> Self {
        Self { store, run, unbegun: Arc::default(), lost: Arc::default() }
    }

    /// Records the start of a run without waiting: it is stored before the first question or call. Without these, nothing
    /// has happened that the user could look for.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. The program must not start then. If it is known only later, the records that
    /// wait for it fail.
    pub(crate) fn begin(
        store: Arc<RunStore>,
        run: &str,
        program: &LocalProgram,
        permissions: &Permissions,
        mock: Option<&Mock>,
    ) -> Result<Self, ErrorBody> {
        let recorder = Self::new(store, run.to_owned());
        let mut plan = json!({ "dag": program.analysis.dag, "dynamic": program.analysis.dynamic });
        if let Some(lock) = &program.lock {
            // The run is resumed under the same lock.
            plan["lock"] = lock.record();
        }
        let trace = program.trace.clone();
        recorder.began(&program.code, &program.args, &plan, permissions, trace, mock)?;
        Ok(recorder)
    }

    /// Records a program that was denied before it started: a run that has only a start and an end.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`.
    pub(crate) async fn refuse(
        store: Arc<RunStore>,
        code: &str,
        args: &Value,
        permissions: &Permissions,
        error: &ErrorBody,
    ) -> Result<(), ErrorBody> {
        let run = uuid::Uuid::now_v7().to_string();
        let recorder = Self::new(store, run);
        recorder.began(code, args, &Value::Null, permissions, None, None)?;
        recorder.end(Err(error), None).await
    }

    fn began(
        &self,
        code: &str,
        args: &Value,
        plan: &Value,
        permissions: &Permissions,
        trace: Option<TraceTarget>,
        mock: Option<&Mock>,
    ) -> Result<(), ErrorBody> {
        let began = RunBegan {
            at: now(),
            run: self.run.clone(),
            mode: if mock.is_some() { MOCK } else { RUN }.to_owned(),
            of: mock.map(|mock| mock.run.clone()),
            pml: env!("CARGO_PKG_VERSION").to_owned(),
            code: self.content(&json!(code))?,
            args: self.content(args)?,
            plan: self.content(plan)?,
            policy: self.content(&json!(permissions))?,
            trace,
        };
        let queued = self.store.queue(Record::RunBegan(began), &self.unbegun);
        queued.map_err(|error| error.body())
    }

    /// Records that a run goes on whose `pml` was stopped.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. The program must not start then.
    pub(crate) async fn resume(
        store: Arc<RunStore>,
        run: &str,
        permissions: &Permissions,
    ) -> Result<Self, ErrorBody> {
        let recorder = Self::new(store, run.to_owned());
        let resumed = RunResumed {
            at: now(),
            run: run.to_owned(),
            pml: env!("CARGO_PKG_VERSION").to_owned(),
            policy: recorder.content(&json!(permissions))?,
        };
        recorder.append(Record::RunResumed(resumed)).await?;
        Ok(recorder)
    }

    /// Records the start of the program without waiting: it is stored before the first call.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. The program must not start then.
    pub(crate) fn start_program(&self, start: &RunStart) -> Result<(), ErrorBody> {
        let seed = start.seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let (at, run, epoch_ms) = (now(), self.run.clone(), start.epoch_ms);
        let started = ProgramStarted { at, run, epoch_ms, seed };
        self.queue(Record::ProgramStarted(started))
    }

    /// Waits until all records so far are stored, before the user is asked: an answer that cannot be recorded does not
    /// count.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. Nobody must be asked then.
    pub(crate) async fn check_stored(&self) -> Result<(), ErrorBody> {
        let flushed = self.store.flush().await;
        // What was lost says more than the failure after it.
        self.none_lost()?;
        flushed.map_err(|error| error.body())
    }

    /// Records that a call is about to be made, and why it may be. `epoch_ms` is what the clock of a capability's
    /// program shows at its start.
    ///
    /// Waits until that is stored, unless the call only reads files. What the program does with what it has read stays
    /// in the sandbox until its next call, or its own result, is stored, which is after this record.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. The call must not be made then.
    pub(crate) async fn begin_call(
        &self,
        call: &str,
        tool: &ToolId,
        target: &Target,
        arguments: &Value,
        decision: String,
        epoch_ms: Option<i64>,
    ) -> Result<(), ErrorBody> {
        let native = matches!(target, Target::Native);
        let began = Record::CallBegan(CallBegan {
            at: now(),
            run: self.run.clone(),
            call: call.to_owned(),
            tool: tool.to_string(),
            routing: target.routing().as_str().to_owned(),
            native,
            args: self.content(arguments)?,
            decision,
            epoch_ms,
        });
        if native && only_reads(tool) {
            self.none_lost()?;
            return self.queue(began);
        }
        self.append(began).await
    }

    /// Records that a call is about to be made which was begun before the run was resumed.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. The call must not be made then.
    pub(crate) async fn repeat_call(&self, call: &str, decision: String) -> Result<(), ErrorBody> {
        let (at, run, call) = (now(), self.run.clone(), call.to_owned());
        self.append(Record::CallRepeated(CallRepeated { at, run, call, decision })).await
    }

    /// Records a change of a file that a call is about to make, and keeps what it replaces. Blocks.
    ///
    /// # Errors
    /// Returns why it was not recorded. The change must not be made then.
    pub(crate) fn change(&self, call: &str, change: Change<'_>) -> Result<(), String> {
        self.store.change(&self.run, call, change, Keeping::Bounded)?;
        self.lost.get().map_or(Ok(()), |error| Err(error.to_string()))
    }

    /// Records the end of a call that was made, without waiting: it has no effect on the machine, and it is stored
    /// before any later record of the run; with the connections that its server was `refused`. The program gets the answer at this time, before those of later records.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. If that is known only later, the start of the next call and [`Recorder::end`]
    /// fail with it.
    pub(crate) fn end_call(
        &self,
        call: &str,
        answer: &Result<Value, ErrorBody>,
        refused: Option<String>,
        at_ms: u64,
    ) -> Result<(), ErrorBody> {
        let ended = Record::CallEnded(CallEnded {
            at: now(),
            run: self.run.clone(),
            call: call.to_owned(),
            status: status(answer.is_ok()),
            output: match answer {
                Ok(output) => Some(self.store.output(output).map_err(|error| error.body())?),
                Err(_) => None,
            },
            error: answer.as_ref().err().map(Failure::of),
            refused_connections: refused.map(|text| keys_in_use().text(&text).into_owned()),
            at_ms: Some(at_ms),
        });
        self.queue(ended)
    }

    /// Records a call that was refused, so that it was not made; without waiting, like [`Recorder::end_call`].
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`.
    pub(crate) fn refuse_call(
        &self,
        call: &str,
        tool: &str,
        arguments: &Value,
        error: &ErrorBody,
        at_ms: u64,
    ) -> Result<(), ErrorBody> {
        let refused = Record::CallRefused(CallRefused {
            at: now(),
            run: self.run.clone(),
            call: call.to_owned(),
            tool: tool.to_owned(),
            args: self.content(arguments)?,
            error: Failure::of(error),
            at_ms: Some(at_ms),
        });
        self.queue(refused)
    }

    /// Records that a call was not made, and got the answer `found` of a call of the run `of`; without waiting, like
    /// [`Recorder::end_call`].
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`.
    pub(super) fn mock_call(
        &self,
        call: &str,
        tool: &str,
        arguments: &Value,
        of: &str,
        found: &MockedAnswer,
        at_ms: u64,
    ) -> Result<(), ErrorBody> {
        let answer = found.answer.as_ref();
        let output = answer.ok().map(|output| self.store.output(output)).transpose();
        let mocked = Record::CallMocked(CallMocked {
            at: now(),
            run: self.run.clone(),
            call: call.to_owned(),
            tool: tool.to_owned(),
            routing: found.routing.as_str().to_owned(),
            args: self.content(arguments)?,
            of: of.to_owned(),
            of_call: found.call.clone(),
            status: status(answer.is_ok()),
            output: output.map_err(|error| error.body())?,
            error: answer.err().map(Failure::of),
            at_ms,
        });
        self.queue(mocked)
    }

    /// Records the answer to a question.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. An approval does not count then.
    pub(crate) async fn answer(&self, question: AnsweredQuestion) -> Result<(), ErrorBody> {
        self.append(Record::Approval(ApprovalGiven {
            at: now(),
            asked_at: question.asked_at,
            run: self.run.clone(),
            tool: question.tool.to_string(),
            args: self.content(&question.arguments)?,
            count: u32::try_from(question.count).unwrap_or(u32::MAX),
            reason: question.reason,
            shown_hash: Some(question.shown),
            answer: match question.answer.as_ref().map(|given| given.answer) {
                Some(Answer::Once) if question.is_left_out => Answered::LeftOut,
                Some(Answer::Once) => Answered::Once,
                Some(Answer::Always) => Answered::Always,
                Some(Answer::Abort) => Answered::Abort,
                None => Answered::None,
            },
            by: question.answer.map(|given| given.by.as_str().to_owned()),
            covers: question.covers,
        }))
        .await
    }

    /// Records the end of the run, unless another record of it was lost; `console` is the hash of what its program printed.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. If [`Recorder::none_lost`] has an error then, the run has failed, and
    /// [`Recorder::fail`] records its end.
    pub(crate) async fn end(
        &self,
        result: Result<&Value, &ErrorBody>,
        console: Option<Integrity>,
    ) -> Result<(), ErrorBody> {
        self.end_after(&[&self.unbegun, &self.lost], result, console).await
    }

    /// Records the end of a run of which another record was lost.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`, also if the beginning was lost: then nothing of the run is recorded.
    pub(crate) async fn fail(&self, error: &ErrorBody) -> Result<(), ErrorBody> {
        self.end_after(&[&self.unbegun], Err(error), None).await
    }

    /// Returns whether the beginning of the run is known not to be stored.
    pub(crate) fn is_unbegun(&self) -> bool {
        self.unbegun.get().is_some()
    }

    async fn end_after(
        &self,
        after: &[&Arc<Lost>],
        result: Result<&Value, &ErrorBody>,
        console: Option<Integrity>,
    ) -> Result<(), ErrorBody> {
        let ended = Record::RunEnded(RunEnded {
            at: now(),
            run: self.run.clone(),
            status: status(result.is_ok()),
            output: match result {
                Ok(output) => Some(self.content(output)?),
                Err(_) => None,
            },
            error: result.err().map(Failure::of),
            console,
        });
        self.store.append_after(after, ended).await.map_err(|error| error.body())
    }

    fn content(&self, value: &Value) -> Result<Content, ErrorBody> {
        self.store.content(value).map_err(|error| error.body())
    }

    async fn append(&self, record: Record) -> Result<(), ErrorBody> {
        let stored = self.store.append_after(&[&self.unbegun], record).await;
        // What was lost says more than the failure after it.
        self.none_lost()?;
        stored.map_err(|error| error.body())
    }

    fn queue(&self, record: Record) -> Result<(), ErrorBody> {
        let queued = self.store.queue_after(&[&self.unbegun], record, &self.lost);
        queued.map_err(|error| error.body())
    }

    /// Returns that a record was lost for which nobody waited.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`.
    pub(crate) fn none_lost(&self) -> Result<(), ErrorBody> {
        let lost = self.unbegun.get().or_else(|| self.lost.get());
        lost.map_or(Ok(()), |error| Err(error.body()))
    }
}

fn status(is_ok: bool) -> Status {
    match is_ok {
        true => Status::Success,
        false => Status::Error,
    }
}
