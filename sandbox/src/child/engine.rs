//! QuickJS inside a sealed child: runs one program.

use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::{Context, Function, Module, Persistent, Promise, Runtime};
use serde_json::value::RawValue;

use crate::child::heap::{self, Heap, Meter};
use crate::child::host_socket::HostSocket;
use crate::child::probe;
use crate::child::process::{EXIT_PANIC, cpu_time, exit};
use crate::child::realm::{self, Realm, Shared};
use crate::child::stack::{PREFIX, PROGRAM_FILE, SUFFIX};
use crate::limits::{COMPILE_STACK, MIB};
use crate::outcome::FailureKind;
use crate::wire::frame::{self, FromHost, ToHost};

mod budget;
mod event_loop;
mod fault;
mod rejections;
mod result;

use budget::Budget;
use fault::Fault;
use rejections::Rejections;
use result::is_about_result;

/// The longest frame from the host. The host is trusted; the limit only detects a broken stream.
const HOST_FRAME: usize = 64 * MIB;
/// Bytes of heap after which the engine first looks for cycles. Values in no cycle are freed at once, and few programs
/// ever reach this size.
const GC_THRESHOLD: usize = 8 * MIB;
/// The frame that a forked child reads and writes to warm up.
const WARM_UP_FRAME: &str = r#"{"type":"rpc_result","id":1,"ok":true,"value":[1.5,"one"]}"#;

/// The whole language except high-resolution clocks and weak references, by which a program could observe the machine
/// and the garbage collector.
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

/// The engine and its globals, before and while it runs its one program.
pub(crate) struct Engine {
    runtime: Runtime,
    context: Context,
    realm: Realm,
    shared: Rc<Shared>,
    budget: Rc<Budget>,
    heap: Rc<Meter>,
    rejections: Rc<Rejections>,
}

/// A program to run.
struct ProgramInput {
    source: String,
    args: String,
    /// Whether the program has no `return`, so that it ends when everything that it started has ended.
    ends_by_itself: bool,
}

impl Engine {
    /// Creates an engine that is connected to nothing.
    pub(crate) fn new() -> rquickjs::Result<Engine> {
        let shared = Shared::new(HostSocket::unconnected());
        // The first random number probes how the kernel provides them. Done here, all forks inherit the result.
        shared.random.borrow_mut().reset(None);
        let heap = Meter::new();
        let runtime = Runtime::new_with_alloc(Heap(Rc::clone(&heap)))?;
        runtime.set_gc_threshold(GC_THRESHOLD);
        let budget = Rc::new(Budget::default());
        let watched = Rc::clone(&budget);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_spent())));
        let rejections = rejections::track(&runtime);
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let realm = context.with(|ctx| realm::build(&ctx, &shared))?;
        Ok(Engine { runtime, context, realm, shared, budget, heap, rejections })
    }

    /// Connects the engine with the host.
    pub(crate) fn connect(&self, socket: HostSocket) {
        *self.shared.socket.borrow_mut() = socket;
    }

    /// Makes what forks allocate lie together.
    pub(crate) fn fill_gaps(&self) {
        self.context.with(|ctx| heap::fill_gaps(&ctx, &self.heap));
    }

    /// Sends one frame.
    pub(crate) fn send(&self, message: &ToHost<'_>) {
        let mut socket = self.shared.socket.borrow_mut();
        frame::write(socket.out(), message);
        socket.flush();
    }

    /// Reports that the child is ready, runs one program and waits to be killed.
    pub(crate) fn serve(&self, ready: &[u8], warm_up: bool) -> ! {
        {
            let mut socket = self.shared.socket.borrow_mut();
            socket.out().extend_from_slice(ready);
            socket.flush();
        }
        // After the report, so that the host can take the child while it still warms up.
        if warm_up {
            self.warm_up();
        }
        let program = self.await_program();
        let result = self.run(&program);
        self.complete(&result);
        // The child does not exit by itself: freeing its memory takes the kernel longer than many programs run, and a
        // host that continues on this processor would wait for that before it sees the result.
        self.shared.socket.borrow_mut().wait_for_host_exit()
    }

    /// Touches the pages that most programs write to, so that they are copied from the zygote before a program
    /// arrives.
    fn warm_up(&self) {
        self.shared.random.borrow_mut().reset(None);
        self.shared.socket.borrow_mut().reserve_buffers();
        let _ = frame::read_from_host(WARM_UP_FRAME.as_bytes());
        // A script and not a module, because a module could be imported by its name. Its result is ignored.
        let _ = self.context.with(|ctx| {
            ctx.json_parse(WARM_UP_FRAME)?;
            ctx.eval::<(), _>(include_str!("realm/warm_up.js"))
        });
        // The script is asynchronous, so the rest of it waits in these jobs.
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
                        // The host is trusted, so anything else is a broken stream.
                        _ => exit(EXIT_PANIC),
                    };
                    let limits = execute.limits;
                    self.shared.limits.set(limits);
                    // Even without a seed: all forks of a zygote inherit the same state.
                    self.shared.random.borrow_mut().reset(execute.seed);
                    if let Some(epoch_ms) = execute.epoch_ms {
                        self.shared.timers.borrow_mut().repeat_from(epoch_ms);
                    }
                    self.heap.set_limit(limits.heap);
                    self.runtime.set_max_stack_size(limits.stack);
                    // Counted from here, so that the child's own start costs the program nothing.
                    self.budget.end.set(Some(cpu_time() + Duration::from_millis(limits.cpu_ms)));
                    let ends_by_itself = execute.implicit_returns.is_some();
                    *self.shared.implicit_returns.borrow_mut() =
                        execute.implicit_returns.unwrap_or_default().into();
                    // Owned, because the frame lies in the inbox, which must be free for answers
                    // while the program runs.
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
        // At the end, because a rejected promise counts as handled when something awaits it later.
        self.report_unhandled(program.ends_by_itself)?;
        let finished = self.context.with(|ctx| {
            let value = value.restore(&ctx);
            // Asynchronous, because promises within the result are awaited, too.
            let finish = self.realm.finish.clone().restore(&ctx);
            value
                .and_then(|value| finish?.call::<_, Promise<'_>>((value,)))
                .map(|promise| Persistent::save(&ctx, promise))
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
        })?;
        let written = self
            .run_until_settled(&finished)
            .and_then(|text| self.context.with(|ctx| self.checked_result(&ctx, text)));
        match written {
            // The author wrote no `return`, and everything that the program started has ended, so it has not failed.
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

    /// Compiles the program and calls it.
    fn begin(&self, source: &str, args: &str) -> Result<Persistent<Promise<'static>>, Fault> {
        // The compiler may recurse deeper than the program that it compiles.
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
            // Before the program is compiled, because a syntax error is located in this text.
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
}
