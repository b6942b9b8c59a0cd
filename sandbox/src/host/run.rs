//! The host's side of one run: sends the program, answers its calls, and checks every field that the child sends.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::WallClock;
use crate::host::child_socket::ChildSocket;
use crate::host::peer::cpu_reaches;
use crate::limits::{CPU_GRACE, CPU_SHORT, KIB, Limits, MAX_ERROR_TEXT, MAX_NAME, MIB};
use crate::outcome::{ConsoleLine, Failure, FailureKind, Program};
use crate::repeatable::ProgramClock;
use crate::tool::{CallError, ToolCall, ToolCaller};
use crate::wire::frame::{self, ChildFailure, FromChild, ThrownError, ToChild, VERSION};
use crate::wire::inbox::Inbox;

/// The number of unsent answers above which no further calls are answered, so that a child that does not read cannot
/// make the host buffer them.
const MAX_UNSENT: usize = 8 * MIB;
/// Bytes of answers that are collected before they are sent.
const BATCH: usize = 8 * KIB;
/// Bytes of arguments of waiting calls above which nothing more is read from the child.
const MAX_QUEUED: usize = 16 * MIB;
/// Bytes of arguments of running calls above which no further call starts. Parsed JSON is larger than its text.
const MAX_RUNNING: usize = 8 * MIB;
/// The code of the error that a program sees when a tool's result is too large.
const RESULT_TOO_LARGE: &str = "TOOL_RESULT_TOO_LARGE";

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The child sent a result.
    Complete(Result<Value, Failure>),
    /// The host ended it.
    Stopped(Failure),
    /// The child broke the protocol.
    Broken(String),
    /// The child closed its end without a result.
    Closed,
}

/// A call's number, the size of its arguments and its answer.
type Answer = (u64, usize, Result<Value, CallError>);

/// How long a run that is repeated may compute before its next call, while a timer waits that cannot fire.
const STUCK: Duration = Duration::from_secs(10);

/// The host's state of one run.
pub(crate) struct Run<'a> {
    socket: &'a ChildSocket,
    limits: &'a Limits,
    tools: Arc<dyn ToolCaller>,
    clock: WallClock,
    /// The program's clock, if its run can be repeated, and its next timer.
    program_clock: Option<ProgramClock>,
    timer: Option<u64>,
    /// Since when the record goes on with an answer, and there is no call that could get it.
    stuck: Option<Instant>,
    /// The last time that the child was told.
    told: Option<u64>,
    /// Cancels the calls when the run ends in any way.
    calls_cancel: CancellationToken,
    _cancel_on_drop: DropGuard,
    out: Vec<u8>,
    sent: usize,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    running: FuturesUnordered<BoxFuture<'static, Answer>>,
    running_bytes: usize,
    result_refused: bool,
    console_spent: usize,
    pub(crate) calls: u64,
    /// The tools of the calls that are not answered yet, by id.
    pub(crate) unanswered: BTreeMap<u64, String>,
    pub(crate) console: Vec<ConsoleLine>,
    pub(crate) console_truncated: bool,
    /// Whether the program's value was `undefined`.
    pub(crate) returned_nothing: bool,
}

struct Queued {
    id: u64,
    namespace: String,
    action: String,
    args: Box<RawValue>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        socket: &'a ChildSocket,
        limits: &'a Limits,
        tools: Arc<dyn ToolCaller>,
        cancel: &CancellationToken,
    ) -> Run<'a> {
        // A child token: the end of this run cancels its own calls and nothing of the caller's.
        let calls_cancel = cancel.child_token();
        Run {
            socket,
            limits,
            tools,
            clock: WallClock::start(),
            program_clock: None,
            timer: None,
            stuck: None,
            told: None,
            _cancel_on_drop: calls_cancel.clone().drop_guard(),
            calls_cancel,
            out: Vec::new(),
            sent: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            running: FuturesUnordered::new(),
            running_bytes: 0,
            result_refused: false,
            console_spent: 0,
            calls: 0,
            unanswered: BTreeMap::new(),
            console: Vec::new(),
            console_truncated: false,
            returned_nothing: false,
        }
    }

    /// Sends the program and answers the child until the run ends. `cpu` returns the CPU time of the child;
    /// `on_long_run` is called when the program has used more CPU time than a short one does.
    pub(crate) async fn drive(
        &mut self,
        program: &Program,
        inbox: &mut Inbox,
        cpu: impl Fn() -> Option<Duration>,
        on_long_run: impl Fn(),
        cancel: &CancellationToken,
    ) -> Ending {
        frame::write(
            &mut self.out,
            &ToChild::Execute {
                version: VERSION,
                program: &program.source,
                args: &program.args,
                limits: self.limits.into(),
                epoch_ms: program.repeatable.as_ref().map(|repeatable| repeatable.clock.epoch_ms()),
                seed: program.repeatable.as_ref().map(|repeatable| repeatable.seed),
                implicit_returns: program.implicit_returns.as_deref(),
            },
        );
        self.program_clock = program.repeatable.as_ref().map(|repeatable| repeatable.clock.clone());
        let clock = self.clock.clone();
        let before = cpu().unwrap_or_default();
        // These three waits are created once, so that a round of the loop does not start them anew.
        let mut wall = std::pin::pin!(clock.expired(self.limits.wall));
        let limit = self.limits.cpu + CPU_GRACE;
        let mut spent = std::pin::pin!(async {
            cpu_reaches(&cpu, before, CPU_SHORT.min(limit)).await;
            on_long_run();
            cpu_reaches(&cpu, before, limit).await;
        });
        let mut cancelled = std::pin::pin!(cancel.cancelled());
        loop {
            match self.step(inbox) {
                Ok(Some(ending)) => return ending,
                Ok(None) => {}
                Err(broken) => return Ending::Broken(broken),
            }
            let socket = self.socket;
            let may_answer = self.out.len() - self.sent < MAX_UNSENT && !self.running.is_empty();
            let may_read = self.queued_bytes < MAX_QUEUED;
            let is_idle = self.unanswered.is_empty();
            let timer = self.program_clock.clone().zip(self.timer);
            let timer = OptionFuture::from(
                timer.map(|(clock, due)| async move { clock.reach(due, is_idle).await }),
            );
            // After an answer, the program may still compute until it makes the next call.
            let stuck = self.stuck.map(|since| tokio::time::sleep_until(since + STUCK));
            let stuck = OptionFuture::from(stuck);
            tokio::select! {
                // The order saves wake-ups: a second timer that expires after the first wakes nothing. The branches
                // before the socket only have work that came from the socket, so they cannot starve it.
                biased;
                () = &mut cancelled => return stop(FailureKind::Cancelled, "the run was cancelled"),
                () = &mut spent => {
                    let limit = self.limits.cpu;
                    return stop(FailureKind::CpuTime, format!("the program used all of its {limit:?} of CPU time"));
                }
                () = &mut wall => {
                    let limit = self.limits.wall;
                    return stop(FailureKind::WallTime, format!("the program ran longer than its {limit:?}"));
                }
                Some(answer) = self.running.next(), if may_answer => if let Err(broken) = self.answer_all(answer) {
                    return Ending::Broken(broken);
                },
                Some(now) = timer => {
                    self.timer = None;
                    self.tell(now);
                }
                Some(()) = stuck => {
                    let message = "the program waits for a timer that did not fire when it was recorded";
                    return stop(FailureKind::Deadlock, message);
                }
                received = socket.receive(inbox), if may_read => if received.is_err() {
                    return Ending::Closed;
                },
                _ = socket.writable(), if self.sent < self.out.len() => {}
            }
        }
    }

    /// Does all work that does not wait: reads frames, starts calls, and sends.
    fn step(&mut self, inbox: &mut Inbox) -> Result<Option<Ending>, String> {
        while let Some(body) = inbox.next(self.limits.frame_from_child())? {
            if let Some(ending) = self.read(body)? {
                return Ok(Some(ending));
            }
        }
        self.start_calls()?;
        let is_stuck = self.unanswered.is_empty()
            && (self.program_clock.as_ref().zip(self.timer))
                .is_some_and(|(clock, due)| clock.is_held_before(due));
        self.stuck = is_stuck.then(|| self.stuck.unwrap_or_else(Instant::now));
        // A child that closed its end has sent its last message already, or has died; the next read finds out which.
        while self.sent < self.out.len() {
            match self.socket.try_send(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => self.sent = self.out.len(),
            }
        }
        self.out.clear();
        // One large answer must not hold its memory for the rest of the run.
        self.out.shrink_to(64 * 1024);
        self.sent = 0;
        Ok(None)
    }

    fn read(&mut self, body: &[u8]) -> Result<Option<Ending>, String> {
        match frame::read_from_child(body)? {
            FromChild::RpcCall { id, namespace, action, args } => {
                if self.calls == self.limits.calls {
                    let limit = self.limits.calls;
                    let message = format!("the program made more than {limit} tool calls");
                    return Ok(Some(stop(FailureKind::TooManyCalls, message)));
                }
                // Logs and failures refer to calls by these numbers, so a child must neither skip
                // nor repeat one.
                if id != self.calls + 1 {
                    return Err(format!("call {id} came after call {}", self.calls));
                }
                // Only the lengths: the tool caller parses the names and refuses undeclared tools.
                let name_is_good = |name: &str| !name.is_empty() && name.len() <= MAX_NAME;
                if !name_is_good(&namespace) || !name_is_good(&action) {
                    return Err(format!("call {id} has a name of a wrong length"));
                }
                let size = args.get().len();
                if size > self.limits.argument_bytes || !args.get().starts_with('{') {
                    return Err(format!(
                        "the arguments of call {id} are too large or not an object"
                    ));
                }
                self.calls = id;
                self.unanswered.insert(id, format!("{namespace}:{action}"));
                self.queued_bytes += size;
                self.queue.push_back(Queued { id, namespace, action, args: args.to_owned() });
                Ok(None)
            }
            FromChild::Console { level, text } => {
                self.print(&level, &text)?;
                Ok(None)
            }
            FromChild::Timer { at_ms } => {
                if self.program_clock.is_none() {
                    return Err("a timer of a program whose run is not repeatable".to_owned());
                }
                // One that is due already fires when the child learns the time. Each answer to a timer is at least a
                // millisecond after the one before, so a child cannot keep the host busy with them.
                self.timer = Some(at_ms).filter(|due| self.told.is_none_or(|told| told < *due));
                Ok(None)
            }
            FromChild::Complete(Ok(None)) => {
                self.returned_nothing = true;
                Ok(Some(Ending::Complete(Ok(Value::Null))))
            }
            FromChild::Complete(Ok(Some(value))) => {
                // An honest child checks this limit itself and reports a failure instead.
                if value.get().len() > self.limits.result_bytes {
                    return Err("a result larger than the child may send".to_owned());
                }
                let value =
                    serde_json::from_str(value.get()).map_err(|e| format!("a bad result: {e}"))?;
                Ok(Some(Ending::Complete(Ok(value))))
            }
            FromChild::Complete(Err(failure)) => {
                Ok(Some(Ending::Complete(Err(self.checked_failure(failure)?))))
            }
            FromChild::Ready { .. } | FromChild::Unavailable { .. } => {
                Err("the child reported its seal twice".to_owned())
            }
        }
    }

    fn print(&mut self, level: &str, text: &str) -> Result<(), String> {
        if !matches!(level, "log" | "info" | "warn" | "error" | "debug") {
            return Err("a console line of an unknown level".to_owned());
        }
        if self.console_truncated {
            return Err("console lines after the limit".to_owned());
        }
        let room = self.limits.console_bytes - self.console_spent;
        // A line that fills the room exactly fits; the line after it does not.
        self.console_truncated = text.len() > room || room == 0;
        let kept = &text[..text.floor_char_boundary(room.min(text.len()))];
        // Each line costs one byte in addition, so that the number of empty lines is limited as well.
        self.console_spent = (self.console_spent + kept.len() + 1).min(self.limits.console_bytes);
        if !self.console_truncated || !kept.is_empty() {
            self.console.push(ConsoleLine { level: level.to_owned(), text: kept.to_owned() });
        }
        Ok(())
    }

    fn checked_failure(&self, reported: ChildFailure) -> Result<Failure, String> {
        let mut kind = FailureKind::claimed(&reported.kind)
            .ok_or_else(|| "a failure of a type that the child may not report".to_owned())?;
        // A program can throw an error with this code, so a refusal must also have happened.
        if kind == FailureKind::Exception
            && self.result_refused
            && reported.code.as_deref() == Some(RESULT_TOO_LARGE)
        {
            kind = FailureKind::ToolResultTooLarge;
        }
        // The child appends `…`, which has three bytes, to a text that it cuts to this size.
        let fits = |text: &str, most: usize| text.len() <= most + 8;
        if !fits(&reported.name, MAX_NAME)
            || !fits(&reported.message, MAX_ERROR_TEXT)
            || !fits(reported.code.as_deref().unwrap_or(""), MAX_NAME)
            || !fits(reported.stack.as_deref().unwrap_or(""), MAX_ERROR_TEXT)
        {
            return Err("a failure with a text that is too long".to_owned());
        }
        if reported.call.is_some_and(|call| call == 0 || call > self.calls) {
            return Err("a failure of a call that was never made".to_owned());
        }
        Ok(Failure {
            kind,
            name: reported.name,
            message: reported.message,
            code: reported.code,
            line: reported.line,
            column: reported.column,
            stack: reported.stack,
            call: reported.call,
        })
    }

    fn start_calls(&mut self) -> Result<(), String> {
        while self.running.len() < self.limits.in_flight {
            let Some(next) = self.queue.front() else { break };
            let size = next.args.get().len();
            // A call that exceeds the limit by itself runs alone; otherwise it would never start.
            if !self.running.is_empty() && self.running_bytes + size > MAX_RUNNING {
                break;
            }
            let Some(Queued { id, namespace, action, args }) = self.queue.pop_front() else {
                break;
            };
            self.queued_bytes -= size;
            self.running_bytes += size;
            // Parsed when the call starts: until then, the arguments are text, which is far
            // smaller.
            let args = serde_json::from_str(args.get())
                .map_err(|e| format!("the arguments of call {id} are not JSON: {e}"))?;
            let call = ToolCall { id, namespace, action, args, clock: self.clock.clone() };
            let answer = self.tools.call(call, self.calls_cancel.clone());
            self.running.push(Box::pin(async move { (id, size, answer.await) }));
        }
        Ok(())
    }

    /// Queues an answer and all others that are ready, so that one write sends them all.
    fn answer_all(&mut self, first: Answer) -> Result<(), String> {
        let mut next = Some(first);
        while let Some(answer) = next {
            self.answer(answer);
            // The answer has freed a place, and the next call may be answered in the same batch.
            self.start_calls()?;
            let may_answer = self.out.len() - self.sent < BATCH;
            next = if may_answer { self.running.next().now_or_never().flatten() } else { None };
        }
        Ok(())
    }

    fn answer(&mut self, (id, size, answer): Answer) {
        self.running_bytes -= size;
        self.unanswered.remove(&id);
        if let Some(clock) = &self.program_clock {
            let at = self.tools.answered_at(id).unwrap_or_else(|| clock.now_ms());
            self.tell(at);
        }
        let limit = self.limits.tool_result_bytes;
        let answer = answer.and_then(|value| {
            let text = serde_json::value::to_raw_value(&value)
                .map_err(|e| CallError::new(format!("the tool's result has no JSON form: {e}")))?;
            if text.get().len() <= limit {
                return Ok(text);
            }
            self.result_refused = true;
            let message = format!(
                "the tool's result has {} bytes; the limit is {limit}; request less",
                text.get().len()
            );
            Err(CallError {
                name: "RangeError".to_owned(),
                message,
                code: Some(RESULT_TOO_LARGE.to_owned()),
            })
        });
        let frame = match &answer {
            Ok(value) => ToChild::RpcResult { id, ok: true, value: Some(value), error: None },
            Err(error) => {
                let CallError { name, message, code } = error.clone();
                let error = Some(ThrownError { name, message, code });
                ToChild::RpcResult { id, ok: false, value: None, error }
            }
        };
        frame::write(&mut self.out, &frame);
    }

    /// Tells the child the time of its program, if it does not know it.
    fn tell(&mut self, at_ms: u64) {
        if self.told.is_none_or(|told| told < at_ms) {
            self.told = Some(at_ms);
            frame::write(&mut self.out, &ToChild::Time { at_ms });
        }
    }
}

fn stop(kind: FailureKind, message: impl Into<String>) -> Ending {
    Ending::Stopped(Failure::new(kind, message))
}

#[cfg(test)]
mod tests;
