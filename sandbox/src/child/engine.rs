//! QuickJS inside a sealed child: runs one program, then leaves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Module, Persistent, Promise, Runtime, Value};
use serde_json::value::RawValue;

use crate::child::heap::{Heap, Meter};
use crate::child::host_socket::HostSocket;
use crate::child::probe;
use crate::child::process::{EXIT_PANIC, cpu_time, exit};
use crate::child::realm::{self, Realm, Shared};
use crate::child::stack::{PREFIX, PROGRAM_FILE, SUFFIX};
use crate::limits::{COMPILE_STACK, MIB};
use crate::outcome::FailureKind;
use crate::wire::frame::{self, ChildFailure, FromHost, ToHost};
use crate::wire::json;

mod fault;

use fault::{Fault, failure};

/// The longest frame from the host. It is trusted; this only catches a broken stream.
const HOST_FRAME: usize = 64 * MIB;
/// The number of jobs between two checks of the CPU clock. A single long job is stopped by the interrupt handler.
const JOBS_PER_LOOK: u32 = 32;

/// Bytes of heap after which the engine first looks for cycles. Few programs live that long; what is in no cycle
/// is freed at once.
const CYCLES: usize = 8 * MIB;
/// Reads and writes that happen before there is a program.
const WARM_UP_FRAME: &str = r#"{"type":"rpc_result","id":1,"ok":true,"value":[1.5,"one"]}"#;

/// Everything of the language but the clocks and the weak references.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
    intrinsic::DOMException,
);

/// The engine, with its globals and nothing of a program.
pub(crate) struct Engine {
    runtime: Runtime,
    context: Context,
    realm: Realm,
    shared: Rc<Shared>,
    budget: Rc<Budget>,
    heap: Rc<Meter>,
    rejections: Rc<Rejections>,
}

/// A program, and how it ends.
struct ProgramInput {
    source: String,
    args: String,
    /// A program without a `return` ends when everything that it started has ended.
    ends_by_itself: bool,
}

/// Returns whether a program failed only because its value cannot be handed out.
fn is_about_result(fault: &Fault) -> bool {
    [FailureKind::ResultNotSerializable, FailureKind::ResultTooLarge]
        .iter()
        .any(|kind| kind.as_str() == fault.kind)
}

/// Rejected promises that nothing awaited, each with its reason.
type Rejections = RefCell<Vec<(Persistent<Value<'static>>, Persistent<Value<'static>>)>>;

/// The maximum number of them that is kept.
const MAX_REJECTIONS: usize = 32;

/// The CPU time of the program.
#[derive(Default)]
struct Budget {
    end: Cell<Option<Duration>>,
    exceeded: Cell<bool>,
}

impl Budget {
    fn is_spent(&self) -> bool {
        if self.end.get().is_some_and(|end| cpu_time() >= end) {
            self.exceeded.set(true);
        }
        self.exceeded.get()
    }
}

impl Engine {
    /// Creates an engine that is connected to nothing.
    pub(crate) fn new() -> rquickjs::Result<Engine> {
        let shared = Shared::new(HostSocket::unconnected());
        // The first of these looks up how to ask the kernel, which is done here once for all forks.
        shared.random.borrow_mut().reset(None);
        let heap = Meter::new();
        let runtime = Runtime::new_with_alloc(Heap(Rc::clone(&heap)))?;
        runtime.set_gc_threshold(CYCLES);
        let budget = Rc::new(Budget::default());
        let watched = Rc::clone(&budget);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_spent())));
        let rejections: Rc<Rejections> = Rc::default();
        let seen = Rc::clone(&rejections);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, is_handled| {
                let mut seen = seen.borrow_mut();
                if is_handled {
                    seen.retain(|(known, _)| {
                        known.clone().restore(&ctx).is_ok_and(|known| known != promise)
                    });
                } else if seen.len() < MAX_REJECTIONS {
                    seen.push((Persistent::save(&ctx, promise), Persistent::save(&ctx, reason)));
                }
            },
        )));
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let realm = context.with(|ctx| realm::build(&ctx, &shared))?;
        Ok(Engine { runtime, context, realm, shared, budget, heap, rejections })
    }

    /// Connects the engine with the host.
    pub(crate) fn connect(&self, socket: HostSocket) {
        *self.shared.socket.borrow_mut() = socket;
    }

    /// Sends one frame.
    pub(crate) fn send(&self, message: &ToHost<'_>) {
        let mut socket = self.shared.socket.borrow_mut();
        frame::write(socket.out(), message);
        socket.flush();
    }

    /// Reports that it is ready, runs one program and waits for its end.
    pub(crate) fn serve(&self, ready: &[u8]) -> ! {
        {
            let mut socket = self.shared.socket.borrow_mut();
            socket.out().extend_from_slice(ready);
            socket.flush();
        }
        self.warm_up();
        let program = self.await_program();
        let result = self.run(&program);
        self.complete(&result);
        // Exiting takes the kernel longer than many programs take, and the process that waits for the result would
        // also wait for the exit if it is to run on this processor.
        self.shared.socket.borrow_mut().wait_for_host_exit()
    }

    /// Does what most programs do, so that the memory for it is no longer shared with the zygote.
    fn warm_up(&self) {
        self.shared.random.borrow_mut().reset(None);
        self.shared.socket.borrow_mut().reserve_buffers();
        let _ = frame::read_from_host(WARM_UP_FRAME.as_bytes());
        // A script and not a module, because a module could be imported by its name. Its result is ignored.
        let _ = self.context.with(|ctx| {
            ctx.json_parse(WARM_UP_FRAME)?;
            ctx.eval::<(), _>(include_str!("realm/warm_up.js"))
        });
        while let Ok(true) = self.runtime.execute_pending_job() {}
        let mut unsent = Vec::new();
        let value = serde_json::from_str::<&RawValue>(WARM_UP_FRAME).ok();
        frame::write(&mut unsent, &ToHost::ExecutionComplete { ok: true, value, error: None });
    }

    /// Waits for the one program and sets its limits.
    fn await_program(&self) -> ProgramInput {
        let mut socket = self.shared.socket.borrow_mut();
        loop {
            match socket.inbox().next(HOST_FRAME) {
                Ok(Some(body)) => {
                    let execute = match frame::read_from_host(body) {
                        Ok(FromHost::Execute(execute)) => execute,
                        Ok(FromHost::Probe(number)) => probe::run(number),
                        _ => exit(EXIT_PANIC),
                    };
                    let limits = execute.limits;
                    self.shared.limits.set(limits);
                    self.shared.random.borrow_mut().reset(execute.seed);
                    if let Some(epoch_ms) = execute.epoch_ms {
                        self.shared.timers.borrow_mut().freeze(epoch_ms);
                    }
                    self.heap.set_limit(limits.heap);
                    self.runtime.set_max_stack_size(limits.stack);
                    self.budget.end.set(Some(cpu_time() + Duration::from_millis(limits.cpu_ms)));
                    let ends_by_itself = execute.implicit_returns.is_some();
                    *self.shared.implicit_returns.borrow_mut() =
                        execute.implicit_returns.unwrap_or_default().into();
                    return ProgramInput {
                        source: execute.program.into_owned(),
                        args: execute.args.get().to_owned(),
                        ends_by_itself,
                    };
                }
                Ok(None) => {
                    socket.fill(None);
                }
                Err(_) => exit(EXIT_PANIC),
            }
        }
    }

    /// Runs a program and returns the JSON of its value; `None` for `undefined`.
    fn run(&self, program: &ProgramInput) -> Result<Option<String>, Fault> {
        let ended = self.begin(&program.source, &program.args)?;
        let value = self.run_until_settled(&ended)?;
        if program.ends_by_itself {
            self.run_until_idle()?;
        }
        self.report_unhandled(program.ends_by_itself)?;
        let finished = self.context.with(|ctx| {
            let value = value.restore(&ctx);
            let finish = self.realm.finish.clone().restore(&ctx);
            value
                .and_then(|value| finish?.call::<_, Promise<'_>>((value,)))
                .map(|promise| Persistent::save(&ctx, promise))
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
        })?;
        let written = self
            .run_until_settled(&finished)
            .and_then(|text| self.context.with(|ctx| self.checked(&ctx, text)));
        match written {
            // The author did not ask for this value, and all that the program does is done.
            Err(fault) if program.ends_by_itself && is_about_result(&fault) => {
                let text = format!(
                    "the value of the last statement is not a valid result: {}",
                    fault.message
                );
                self.shared.log("warn", &text);
                Ok(None)
            }
            written => written,
        }
    }

    /// Runs jobs until a promise is settled, and returns its value.
    fn run_until_settled(
        &self,
        promise: &Persistent<Promise<'static>>,
    ) -> Result<Persistent<Value<'static>>, Fault> {
        loop {
            self.run_jobs()?;
            if let Some(result) = self.settled(promise) {
                return result;
            }
            // One by one: the program's behaviour must not depend on how many arrived at once.
            if self.deliver_answer()? {
                continue;
            }
            self.shared.socket.borrow_mut().flush();
            let due = self.shared.timers.borrow_mut().take_due();
            if let Some(id) = due {
                self.fire(id)?;
                continue;
            }
            let timeout = self.shared.timers.borrow().next();
            if timeout.is_none() && self.shared.in_flight.get() == 0 {
                return Err(failure(
                    FailureKind::Deadlock,
                    "DeadlockError",
                    "the program waits for something that can never happen: no tool call, timer or job is left",
                ));
            }
            self.shared.socket.borrow_mut().fill(timeout);
        }
    }

    /// Goes on until no call and no timer is left but those that repeat.
    fn run_until_idle(&self) -> Result<(), Fault> {
        loop {
            self.run_jobs()?;
            // Several may have come with the one that ended the program.
            if self.deliver_answer()? {
                continue;
            }
            self.shared.socket.borrow_mut().flush();
            if self.shared.in_flight.get() == 0 && !self.shared.timers.borrow().has_one_shot() {
                return Ok(());
            }
            let due = self.shared.timers.borrow_mut().take_due();
            if let Some(id) = due {
                self.fire(id)?;
                continue;
            }
            let timeout = self.shared.timers.borrow().next();
            self.shared.socket.borrow_mut().fill(timeout);
        }
    }

    /// Reports rejected promises that nothing awaited: as the program's failure if it waited for nothing else,
    /// otherwise on its console.
    fn report_unhandled(&self, fatal: bool) -> Result<(), Fault> {
        let rejected = self.rejections.take();
        if rejected.is_empty() {
            return Ok(());
        }
        self.context.with(|ctx| {
            for (_, reason) in rejected {
                let Ok(reason) = reason.restore(&ctx) else { continue };
                let fault = self.describe(&ctx, &reason, FailureKind::Exception);
                if fatal || fault.kind != FailureKind::Exception.as_str() {
                    return Err(fault);
                }
                let place = match (fault.line, fault.column) {
                    (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
                    _ => String::new(),
                };
                let ChildFailure { name, message, .. } = &*fault;
                let text =
                    format!("a promise failed and nothing awaited it: {name}: {message}{place}");
                self.shared.log("error", &text);
            }
            Ok(())
        })
    }

    /// Compiles the program and calls it.
    fn begin(&self, source: &str, args: &str) -> Result<Persistent<Promise<'static>>, Fault> {
        self.runtime.set_max_stack_size(COMPILE_STACK);
        let program = self.compile(source, args)?;
        self.runtime.set_max_stack_size(self.shared.limits.get().stack);
        self.context.with(|ctx| {
            program
                .restore(&ctx)
                .and_then(|program| program.call(()))
                .map(|promise: Promise<'_>| Persistent::save(&ctx, promise))
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
        })
    }

    /// Creates the program's function; nothing of the program itself runs.
    fn compile(&self, source: &str, args: &str) -> Result<Persistent<Function<'static>>, Fault> {
        self.context.with(|ctx| {
            let begun = (|| {
                let args = ctx.json_parse(args)?;
                self.realm.start.clone().restore(&ctx)?.call::<_, ()>((args,))?;
                Ok(())
            })();
            begun.map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))?;
            *self.shared.source.borrow_mut() = source.into();
            let text = [PREFIX, source, SUFFIX].concat();
            let module = Module::declare(ctx.clone(), PROGRAM_FILE, text)
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Syntax))?;
            let made = (|| {
                let (module, _) = module.eval()?;
                module.get::<_, Function<'_>>("default")
            })();
            made.map(|program| Persistent::save(&ctx, program))
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
        })
    }

    fn run_jobs(&self) -> Result<(), Fault> {
        let mut until_look = JOBS_PER_LOOK;
        loop {
            match self.runtime.execute_pending_job() {
                Ok(false) => break,
                Ok(true) => {}
                Err(job) => {
                    return Err(job.0.with(|ctx| {
                        let thrown = ctx.catch();
                        self.describe(&ctx, &thrown, FailureKind::Exception)
                    }));
                }
            }
            until_look -= 1;
            if until_look == 0 {
                until_look = JOBS_PER_LOOK;
                if self.budget.is_spent() {
                    break;
                }
            }
        }
        if self.budget.exceeded.get() { Err(self.out_of_cpu(None)) } else { Ok(()) }
    }

    fn fire(&self, id: u64) -> Result<(), Fault> {
        self.context.with(|ctx| {
            #[expect(clippy::cast_precision_loss, reason = "ids are small")]
            self.realm
                .fire
                .clone()
                .restore(&ctx)
                .and_then(|fire| fire.call::<_, ()>((id as f64,)))
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
        })
    }

    /// Passes the next answer that has arrived to the program; returns whether there was one.
    fn deliver_answer(&self) -> Result<bool, Fault> {
        self.context.with(|ctx| {
            let mut socket = self.shared.socket.borrow_mut();
            let arrived = socket.inbox().next(HOST_FRAME).unwrap_or_else(|_| exit(EXIT_PANIC));
            let Some(body) = arrived else { return Ok(false) };
            let Ok(FromHost::RpcResult { id, result }) = frame::read_from_host(body) else {
                exit(EXIT_PANIC)
            };
            let result = result.map(|value| ctx.json_parse(value.get()));
            // A program may have changed what an object inherits, and so have a word in what is settled.
            drop(socket);
            #[expect(clippy::cast_precision_loss, reason = "ids are small")]
            let id = id as f64;
            let settled: rquickjs::Result<bool> = (|| {
                let settle = self.realm.settle.clone().restore(&ctx)?;
                match result {
                    Ok(value) => settle.call((id, true, value?)),
                    Err(thrown) => {
                        settle.call((id, false, (), thrown.name, thrown.message, thrown.code))
                    }
                }
            })();
            match settled {
                Ok(known) => {
                    let answered = u64::from(known);
                    self.shared.in_flight.set(self.shared.in_flight.get() - answered);
                    Ok(true)
                }
                Err(error) => Err(self.caught(&ctx, &error, FailureKind::Exception)),
            }
        })
    }

    /// Returns the value of a promise once it is settled.
    fn settled(
        &self,
        promise: &Persistent<Promise<'static>>,
    ) -> Option<Result<Persistent<Value<'static>>, Fault>> {
        self.context.with(|ctx| {
            let promise = match promise.clone().restore(&ctx) {
                Ok(promise) => promise,
                Err(error) => return Some(Err(self.caught(&ctx, &error, FailureKind::Exception))),
            };
            match promise.state() {
                PromiseState::Pending => None,
                PromiseState::Resolved => {
                    let value = promise.result::<Value<'_>>().and_then(Result::ok)?;
                    Some(Ok(Persistent::save(&ctx, value)))
                }
                PromiseState::Rejected => {
                    let _ = promise.result::<Value<'_>>();
                    let thrown = ctx.catch();
                    Some(Err(self.thrown(&ctx, &thrown)))
                }
            }
        })
    }

    /// Describes what a program threw, or why its result could not be serialized.
    fn thrown<'js>(&self, ctx: &Ctx<'js>, thrown: &Value<'js>) -> Fault {
        // Asking for the reason runs code, too, and there is no CPU time left for it.
        if self.budget.is_spent() {
            return self.describe(ctx, thrown, FailureKind::Exception);
        }
        let why = self.realm.why_not_serializable.clone().restore(ctx);
        let why = why.and_then(|why| why.call::<_, i32>((thrown.clone(),))).unwrap_or_else(|_| {
            ctx.catch();
            0
        });
        if why == 0 {
            return self.describe(ctx, thrown, FailureKind::Exception);
        }
        let mut cause = self.describe(ctx, thrown, FailureKind::ResultNotSerializable);
        if why == 2 && cause.kind == FailureKind::ResultNotSerializable.as_str() {
            cause.message = format!("the returned value has no JSON form: {}", cause.message);
        }
        cause
    }

    /// Returns the text of a result if it may leave.
    fn checked<'js>(
        &self,
        ctx: &Ctx<'js>,
        text: Persistent<Value<'static>>,
    ) -> Result<Option<String>, Fault> {
        let text = text
            .restore(ctx)
            .and_then(|text| text.get::<Option<String>>())
            .map_err(|error| self.caught(ctx, &error, FailureKind::ResultNotSerializable))?;
        let Some(mut text) = text else { return Ok(None) };
        let limit = self.shared.limits.get().result_bytes;
        if text.len() > limit {
            let message = format!("the result has {} bytes; the limit is {limit}", text.len());
            return Err(failure(FailureKind::ResultTooLarge, "LimitError", &message));
        }
        match json::clean(&mut text) {
            Ok(()) => Ok(Some(text)),
            Err(refusal) => {
                let message = format!("the returned value is {refusal}");
                Err(failure(FailureKind::ResultNotSerializable, "TypeError", &message))
            }
        }
    }

    fn complete(&self, result: &Result<Option<String>, Fault>) {
        let mut socket = self.shared.socket.borrow_mut();
        match result {
            Ok(text) => {
                let value = text.as_deref().map(serde_json::from_str::<&RawValue>).transpose();
                let Ok(value) = value else { exit(EXIT_PANIC) };
                let done = ToHost::ExecutionComplete { ok: true, value, error: None };
                frame::write(socket.out(), &done);
            }
            Err(error) => {
                let done = ToHost::ExecutionComplete { ok: false, value: None, error: Some(error) };
                frame::write(socket.out(), &done);
            }
        }
        socket.flush();
    }
}
