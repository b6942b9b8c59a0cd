//! QuickJS inside a sealed child: runs one program, then leaves.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Module, Persistent, Promise, Runtime, Value};
use serde_json::value::RawValue;

use crate::child::{EXIT_PANIC, cpu_time, exit};
use crate::frame::{self, FromHost, ToHost};
use crate::heap::{Heap, Meter};
use crate::json;
use crate::limits::{COMPILE_STACK, MIB};
use crate::outcome::FailureKind;
use crate::probe;
use crate::realm::{self, Realm, Shared};
use crate::stack::{PREFIX, PROGRAM_FILE, SUFFIX};
use crate::wire::Wire;

mod fault;

use fault::{Fault, failure};

/// The longest frame from the host. It is trusted; this only catches a broken stream.
const HOST_FRAME: usize = 64 * MIB;
/// Jobs between two looks at the CPU clock. One that runs long is stopped by the interrupt handler.
const JOBS_PER_LOOK: u32 = 32;

/// Bytes of heap after which the engine first looks for cycles. Few programs live that long; what is in no cycle
/// is freed at once.
const CYCLES: usize = 8 * MIB;
/// What is read and written before there is a program.
const REHEARSED: &str = r#"{"type":"rpc_result","id":1,"ok":true,"value":[1.5,"one"]}"#;

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
}

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
    /// Makes an engine that is connected to nothing.
    pub(crate) fn new() -> rquickjs::Result<Engine> {
        let shared = Shared::new(Wire::nowhere());
        // The first of these looks up how to ask the kernel, which is done here once for all forks.
        shared.chance.borrow_mut().begin(None);
        let heap = Meter::new();
        let runtime = Runtime::new_with_alloc(Heap(Rc::clone(&heap)))?;
        runtime.set_gc_threshold(CYCLES);
        let budget = Rc::new(Budget::default());
        let watched = Rc::clone(&budget);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_spent())));
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let realm = context.with(|ctx| realm::build(&ctx, &shared))?;
        Ok(Engine { runtime, context, realm, shared, budget, heap })
    }

    /// Connects the engine with the host.
    pub(crate) fn take(&self, wire: Wire) {
        *self.shared.wire.borrow_mut() = wire;
    }

    /// Sends one frame.
    pub(crate) fn say(&self, message: &ToHost<'_>) {
        let mut wire = self.shared.wire.borrow_mut();
        frame::write(wire.out(), message);
        wire.flush();
    }

    /// Says that it is ready, runs one program and waits for its end.
    pub(crate) fn serve(&self, ready: &[u8]) -> ! {
        {
            let mut wire = self.shared.wire.borrow_mut();
            wire.out().extend_from_slice(ready);
            wire.flush();
        }
        self.rehearse();
        let (source, args) = self.await_program();
        let result = self.run(&source, &args);
        self.complete(&result);
        // Leaving takes the kernel longer than many a program, and whoever waits for the result would wait for
        // that too if it is to run on this processor.
        self.shared.wire.borrow_mut().rest()
    }

    /// Does what most programs do, so that the memory for it is no longer shared with the zygote.
    fn rehearse(&self) {
        self.shared.chance.borrow_mut().begin(None);
        self.shared.wire.borrow_mut().make_room();
        let _ = frame::read_from_host(REHEARSED.as_bytes());
        // A script and not a module, which could be imported by its name. How it ends is of no interest.
        let _ = self.context.with(|ctx| {
            ctx.json_parse(REHEARSED)?;
            ctx.eval::<(), _>(include_str!("realm/rehearsal.js"))
        });
        while let Ok(true) = self.runtime.execute_pending_job() {}
        let mut unsent = Vec::new();
        let value = serde_json::from_str::<&RawValue>(REHEARSED).ok();
        frame::write(&mut unsent, &ToHost::ExecutionComplete { ok: true, value, error: None });
    }

    /// Waits for the one program and sets its limits.
    fn await_program(&self) -> (String, String) {
        let mut wire = self.shared.wire.borrow_mut();
        loop {
            match wire.inbox().next(HOST_FRAME) {
                Ok(Some(body)) => {
                    let execute = match frame::read_from_host(body) {
                        Ok(FromHost::Execute(execute)) => execute,
                        Ok(FromHost::Probe(number)) => probe::answer(number),
                        _ => exit(EXIT_PANIC),
                    };
                    let limits = execute.limits;
                    self.shared.limits.set(limits);
                    self.shared.chance.borrow_mut().begin(execute.seed);
                    if let Some(epoch_ms) = execute.epoch_ms {
                        self.shared.timers.borrow_mut().freeze(epoch_ms);
                    }
                    self.heap.set_limit(limits.heap);
                    self.runtime.set_max_stack_size(limits.stack);
                    self.budget.end.set(Some(cpu_time() + Duration::from_millis(limits.cpu_ms)));
                    return (execute.program.into_owned(), execute.args.get().to_owned());
                }
                Ok(None) => {
                    wire.fill(None);
                }
                Err(_) => exit(EXIT_PANIC),
            }
        }
    }

    fn run(&self, source: &str, args: &str) -> Result<String, Fault> {
        let promise = self.begin(source, args)?;
        loop {
            self.run_jobs()?;
            if let Some(result) = self.settled(&promise) {
                return result;
            }
            self.shared.wire.borrow_mut().flush();
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
            self.shared.wire.borrow_mut().fill(timeout);
            // One by one: what the program does next must not depend on how many came at once.
            while self.settle_answer()? {
                self.run_jobs()?;
                if let Some(result) = self.settled(&promise) {
                    return result;
                }
            }
        }
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

    /// Makes the program's function; nothing of the program itself runs.
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

    /// Hands the next answer that has arrived to the program; tells whether there was one.
    fn settle_answer(&self) -> Result<bool, Fault> {
        self.context.with(|ctx| {
            let mut wire = self.shared.wire.borrow_mut();
            let arrived = wire.inbox().next(HOST_FRAME).unwrap_or_else(|_| exit(EXIT_PANIC));
            let Some(body) = arrived else { return Ok(false) };
            let Ok(FromHost::RpcResult { id, result }) = frame::read_from_host(body) else {
                exit(EXIT_PANIC)
            };
            let result = result.map(|value| ctx.json_parse(value.get()));
            // A program may have changed what an object inherits, and so have a word in what is settled.
            drop(wire);
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

    /// Returns the result once the program has ended.
    fn settled(&self, promise: &Persistent<Promise<'static>>) -> Option<Result<String, Fault>> {
        self.context.with(|ctx| {
            let promise = match promise.clone().restore(&ctx) {
                Ok(promise) => promise,
                Err(error) => return Some(Err(self.caught(&ctx, &error, FailureKind::Exception))),
            };
            match promise.state() {
                PromiseState::Pending => None,
                PromiseState::Resolved => {
                    let value = promise.result::<Value<'_>>().and_then(Result::ok)?;
                    Some(self.serialize(&ctx, value))
                }
                PromiseState::Rejected => {
                    let _ = promise.result::<Value<'_>>();
                    let thrown = ctx.catch();
                    Some(Err(self.describe(&ctx, &thrown, FailureKind::Exception)))
                }
            }
        })
    }

    fn serialize<'js>(&self, ctx: &Ctx<'js>, value: Value<'js>) -> Result<String, Fault> {
        let written = (|| {
            let stringify = self.realm.stringify.clone().restore(ctx)?;
            stringify.call::<_, Option<String>>((value,))
        })();
        let mut text = match written {
            Ok(text) => text.unwrap_or_else(|| "null".to_owned()),
            Err(error) => {
                let mut cause = self.caught(ctx, &error, FailureKind::ResultNotSerializable);
                if cause.kind == FailureKind::ResultNotSerializable.as_str() {
                    cause.message =
                        format!("the returned value has no JSON form: {}", cause.message);
                }
                return Err(cause);
            }
        };
        let limit = self.shared.limits.get().result_bytes;
        if text.len() > limit {
            let message =
                format!("the result has {} bytes, at most {limit} are allowed", text.len());
            return Err(failure(FailureKind::ResultTooLarge, "LimitError", &message));
        }
        match json::clean(&mut text) {
            Ok(()) => Ok(text),
            Err(refusal) => {
                let message = format!("the returned value is {refusal}");
                Err(failure(FailureKind::ResultNotSerializable, "TypeError", &message))
            }
        }
    }

    fn complete(&self, result: &Result<String, Fault>) {
        let mut wire = self.shared.wire.borrow_mut();
        match result {
            Ok(text) => {
                let Ok(value) = serde_json::from_str::<&RawValue>(text) else { exit(EXIT_PANIC) };
                let done = ToHost::ExecutionComplete { ok: true, value: Some(value), error: None };
                frame::write(wire.out(), &done);
            }
            Err(error) => {
                let done = ToHost::ExecutionComplete { ok: false, value: None, error: Some(error) };
                frame::write(wire.out(), &done);
            }
        }
        wire.flush();
    }
}
