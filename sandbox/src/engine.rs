//! QuickJS inside a sealed child: runs one program, then leaves.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Module, Object, Persistent, Promise, Runtime, Value};
use serde_json::value::RawValue;

use crate::child::{EXIT_PANIC, cpu_time, exit};
use crate::frame::{self, ChildFailure, FromHost, ToHost};
use crate::heap::{Heap, Meter};
use crate::json;
use crate::limits::{MAX_ERROR_TEXT, MIB};
use crate::outcome::FailureKind;
use crate::realm::{self, Realm, Shared};
use crate::stack::{self, PREFIX, PROGRAM_FILE, SUFFIX};
use crate::wire::Wire;

/// The longest frame from the host. It is trusted; this only catches a broken stream.
const HOST_FRAME: usize = 64 * MIB;
/// Jobs between two looks at the CPU clock. One that runs long is stopped by the interrupt handler.
const JOBS_PER_LOOK: u32 = 32;

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

/// Why the program failed.
type Fault = Box<ChildFailure>;

struct Engine {
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

/// Runs one program and leaves.
pub(crate) fn serve(wire: Wire) -> ! {
    let shared = Shared::new(wire);
    let Ok(engine) = Engine::new(Rc::clone(&shared)) else {
        let mut wire = shared.wire.borrow_mut();
        wire.out().clear();
        frame::write(wire.out(), &ToHost::Unavailable { message: "the engine does not start" });
        wire.flush();
        exit(EXIT_PANIC)
    };
    shared.wire.borrow_mut().flush();
    let (source, args) = engine.await_program();
    let result = engine.run(&source, &args);
    engine.complete(&result);
    exit(0)
}

impl Engine {
    fn new(shared: Rc<Shared>) -> rquickjs::Result<Engine> {
        let heap = Meter::new();
        let runtime = Runtime::new_with_alloc(Heap(Rc::clone(&heap)))?;
        let budget = Rc::new(Budget::default());
        let watched = Rc::clone(&budget);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_spent())));
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let realm = context.with(|ctx| realm::build(&ctx, &shared))?;
        Ok(Engine { runtime, context, realm, shared, budget, heap })
    }

    /// Waits for the one program and sets its limits.
    fn await_program(&self) -> (String, String) {
        let mut wire = self.shared.wire.borrow_mut();
        loop {
            match wire.inbox().next(HOST_FRAME) {
                Ok(Some(body)) => {
                    let Ok(FromHost::Execute(execute)) = frame::read_from_host(body) else {
                        exit(EXIT_PANIC)
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
            if self.shared.wire.borrow_mut().fill(timeout) {
                self.settle_answers()?;
            }
        }
    }

    /// Compiles the program and calls it.
    fn begin(&self, source: &str, args: &str) -> Result<Persistent<Promise<'static>>, Fault> {
        self.context.with(|ctx| {
            let begun = (|| {
                let args = ctx.json_parse(args)?;
                self.realm.start.clone().restore(&ctx)?.call::<_, ()>((args,))?;
                Ok(())
            })();
            begun.map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))?;
            let text = [PREFIX, source, SUFFIX].concat();
            let module = Module::declare(ctx.clone(), PROGRAM_FILE, text)
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Syntax))?;
            let begun: rquickjs::Result<Promise<'_>> = (|| {
                let (module, _) = module.eval()?;
                module.get::<_, Function<'_>>("default")?.call(())
            })();
            begun
                .map(|promise| Persistent::save(&ctx, promise))
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

    /// Hands every answer that has arrived to the program.
    fn settle_answers(&self) -> Result<(), Fault> {
        self.context.with(|ctx| {
            let settled = (|| {
                let settle = self.realm.settle.clone().restore(&ctx)?;
                let mut wire = self.shared.wire.borrow_mut();
                while let Some(body) =
                    wire.inbox().next(HOST_FRAME).unwrap_or_else(|_| exit(EXIT_PANIC))
                {
                    let Ok(FromHost::RpcResult { id, result }) = frame::read_from_host(body) else {
                        exit(EXIT_PANIC)
                    };
                    #[expect(clippy::cast_precision_loss, reason = "ids are small")]
                    let id = id as f64;
                    // Settling only queues jobs; no code of the program runs while the wire is borrowed.
                    let known: bool = match result {
                        Ok(value) => {
                            let value: Value<'_> = ctx.json_parse(value.get())?;
                            settle.call((id, true, value))?
                        }
                        Err(thrown) => settle.call((
                            id,
                            false,
                            (),
                            thrown.name,
                            thrown.message,
                            thrown.code,
                        ))?,
                    };
                    if known {
                        self.shared.in_flight.set(self.shared.in_flight.get() - 1);
                    }
                }
                Ok(())
            })();
            settled.map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
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

    fn caught(&self, ctx: &Ctx<'_>, error: &rquickjs::Error, kind: FailureKind) -> Fault {
        if realm::is_exception(error) {
            let thrown = ctx.catch();
            self.describe(ctx, &thrown, kind)
        } else {
            failure(kind, "Error", &error.to_string())
        }
    }

    /// Tells a thrown value as a failure, in the program's own coordinates.
    fn describe<'js>(&self, ctx: &Ctx<'js>, thrown: &Value<'js>, kind: FailureKind) -> Fault {
        let object = thrown.as_object();
        let text = |key: &str| object.and_then(|object| text_of(ctx, object, key));
        let trace = stack::trim(&text("stack").unwrap_or_default());
        if self.budget.is_spent() {
            return self.out_of_cpu(trace.place);
        }
        // The engine throws `null` when not even the error fits into the heap.
        let starved = self.heap.ran_out() && thrown.is_null();
        let name = text("name").unwrap_or_else(|| "Error".to_owned());
        let message = match object {
            _ if starved => "out of memory".to_owned(),
            Some(_) => text("message").unwrap_or_else(|| self.show(ctx, thrown)),
            None => thrown
                .as_string()
                .and_then(|text| text.to_string().ok())
                .unwrap_or_else(|| self.show(ctx, thrown)),
        };
        let code = text("code");
        let kind = match (name.as_str(), message.as_str(), code.as_deref()) {
            _ if starved => FailureKind::OutOfMemory,
            ("InternalError", "out of memory", _) => FailureKind::OutOfMemory,
            ("RangeError" | "InternalError", "Maximum call stack size exceeded", _) => {
                FailureKind::StackOverflow
            }
            (_, _, Some("ARGUMENT_TOO_LARGE")) if self.shared.argument_refused.get() => {
                FailureKind::ArgumentTooLarge
            }
            _ => kind,
        };
        Box::new(ChildFailure {
            kind: kind.as_str().to_owned(),
            name: cut(name, 256),
            message: cut(message, MAX_ERROR_TEXT),
            code: code.map(|code| cut(code, 256)),
            line: trace.place.map(|place| place.0),
            column: trace.place.map(|place| place.1),
            stack: (!trace.text.is_empty()).then(|| cut(trace.text, MAX_ERROR_TEXT)),
        })
    }

    fn show<'js>(&self, ctx: &Ctx<'js>, value: &Value<'js>) -> String {
        let written = self
            .realm
            .stringify
            .clone()
            .restore(ctx)
            .and_then(|stringify| stringify.call::<_, Option<String>>((value.clone(),)));
        match written {
            Ok(Some(text)) => text,
            Ok(None) => format!("a value of type {}", value.type_name()),
            Err(_) => {
                ctx.catch();
                "a value that cannot be shown".to_owned()
            }
        }
    }

    fn out_of_cpu(&self, place: Option<(u32, u32)>) -> Fault {
        let limit = self.shared.limits.get().cpu_ms;
        let message = format!("the program used all of its {limit} ms of CPU time");
        Box::new(ChildFailure {
            line: place.map(|place| place.0),
            column: place.map(|place| place.1),
            ..*failure(FailureKind::CpuTime, "LimitError", &message)
        })
    }
}

/// Reads a property that should be text. A getter may throw; that is then no text.
fn text_of<'js>(ctx: &Ctx<'js>, object: &Object<'js>, key: &str) -> Option<String> {
    let value: Value<'js> = match object.get(key) {
        Ok(value) => value,
        Err(_) => {
            ctx.catch();
            return None;
        }
    };
    if let Some(text) = value.as_string() {
        return text.to_string().ok();
    }
    value.as_number().map(|number| number.to_string())
}

fn failure(kind: FailureKind, name: &str, message: &str) -> Fault {
    Box::new(ChildFailure {
        kind: kind.as_str().to_owned(),
        name: name.to_owned(),
        message: message.to_owned(),
        code: None,
        line: None,
        column: None,
        stack: None,
    })
}

/// Cuts a text that would be too long to send.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}
