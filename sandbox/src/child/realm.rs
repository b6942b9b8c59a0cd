//! The globals of a program: native functions, and the scripts that build the globals from them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Error, Function, IntoJs, Object, Persistent, Result, TypedArray, Value};
use serde_json::value::RawValue;

use crate::child::host_socket::HostSocket;
use crate::child::random::Random;
use crate::child::timers::Timers;
use crate::child::{stack, url};
use crate::limits::{KIB, MAX_NAME, MAX_TIMERS};
use crate::wire::frame::{self, ChildLimits, ToHost};
use crate::wire::json;

/// Bytes of frames after which they are sent although the program still runs.
const FLUSH: usize = 16 * KIB;

/// The state shared by the native functions and the engine's loop.
pub(crate) struct Shared {
    pub(crate) socket: RefCell<HostSocket>,
    pub(crate) limits: Cell<ChildLimits>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) random: RefCell<Random>,
    /// The running program's text, for the positions of errors.
    pub(crate) source: RefCell<Rc<str>>,
    /// Where `return` was inserted into that text.
    pub(crate) implicit_returns: RefCell<Rc<[u32]>>,
    /// The tools that the program has accessed, by number.
    tools: RefCell<Vec<Option<(String, String)>>>,
    /// Calls that have no answer yet.
    pub(crate) in_flight: Cell<u64>,
    /// Whether a call was refused because its arguments were too large.
    pub(crate) argument_refused: Cell<bool>,
    /// Whether a timer was refused because of the limit.
    pub(crate) timer_refused: Cell<bool>,
    last_call: Cell<u64>,
    console_spent: Cell<usize>,
    console_full: Cell<bool>,
}

/// The script functions that the engine calls.
#[derive(Clone)]
pub(crate) struct Realm {
    pub(crate) settle: Persistent<Function<'static>>,
    pub(crate) call_of: Persistent<Function<'static>>,
    pub(crate) fire: Persistent<Function<'static>>,
    pub(crate) start: Persistent<Function<'static>>,
    pub(crate) stringify: Persistent<Function<'static>>,
    pub(crate) finish: Persistent<Function<'static>>,
    pub(crate) why_not_serializable: Persistent<Function<'static>>,
}

impl Shared {
    pub(crate) fn new(socket: HostSocket) -> Rc<Shared> {
        // Nothing is permitted until the program's own limits arrive.
        let limits = ChildLimits {
            cpu_ms: 0,
            heap: 0,
            stack: 0,
            argument_bytes: 0,
            result_bytes: 0,
            console_bytes: 0,
        };
        Rc::new(Shared {
            socket: RefCell::new(socket),
            limits: Cell::new(limits),
            timers: RefCell::default(),
            random: RefCell::default(),
            source: RefCell::new("".into()),
            implicit_returns: RefCell::new([].into()),
            tools: RefCell::default(),
            in_flight: Cell::new(0),
            argument_refused: Cell::new(false),
            timer_refused: Cell::new(false),
            last_call: Cell::new(0),
            console_spent: Cell::new(0),
            console_full: Cell::new(false),
        })
    }

    /// Returns a stack trace in the coordinates of the program's author.
    pub(crate) fn trim_stack(&self, text: &str) -> stack::Trace {
        stack::trim(text, &self.source.borrow(), &self.implicit_returns.borrow())
    }

    /// Assigns a number to a tool. A name that is too long is not stored: calls of it are refused.
    fn tool(&self, namespace: String, action: String) -> usize {
        let mut tools = self.tools.borrow_mut();
        let fits = namespace.len() <= MAX_NAME && action.len() <= MAX_NAME;
        tools.push(fits.then_some((namespace, action)));
        tools.len() - 1
    }

    /// Sends a call of the tool with this number, or returns why it cannot be made.
    fn call(&self, tool: usize, mut args: String) -> Called {
        let limits = self.limits.get();
        let tools = self.tools.borrow();
        let Some(Some((namespace, action))) = tools.get(tool) else {
            return Called::Refused(format!("the name of a tool has at most {MAX_NAME} bytes"));
        };
        if args.len() > limits.argument_bytes {
            self.argument_refused.set(true);
            return Called::Refused(format!(
                "the arguments of mcp.{namespace}.{action} have {} bytes; the limit is {}",
                args.len(),
                limits.argument_bytes
            ));
        }
        // The host's parser is stricter than `JSON.stringify`. Text that it refuses would end the
        // run as a breach of the protocol, not as an error of this call.
        if let Err(refusal) = json::clean(&mut args) {
            return Called::Refused(format!(
                "the arguments of mcp.{namespace}.{action} are {refusal}"
            ));
        }
        let Ok(args) = serde_json::from_str::<&RawValue>(&args) else {
            return Called::Refused(format!(
                "the arguments of mcp.{namespace}.{action} have no JSON form"
            ));
        };
        // Assigned last: the host expects numbers without gaps, so a refused call takes none.
        let id = self.last_call.get() + 1;
        self.last_call.set(id);
        self.in_flight.set(self.in_flight.get() + 1);
        let mut socket = self.socket.borrow_mut();
        frame::write(socket.out(), &ToHost::RpcCall { id, namespace, action, args });
        // The host can start the first calls while the program makes the next.
        if socket.out().len() > FLUSH {
            socket.flush();
        }
        Called::Id(id)
    }

    /// Sends one line. The line that crosses the limit is the last. Slightly more of it is sent than fits, which tells
    /// the host that it was truncated.
    pub(crate) fn log(&self, level: &str, text: &str) {
        if self.console_full.get() {
            return;
        }
        let room = self.limits.get().console_bytes - self.console_spent.get();
        self.console_full.set(text.len() > room || room == 0);
        // A character has at most four bytes, so a line that does not fit keeps at least one byte
        // too many, by which the host can tell.
        let kept = &text[..text.floor_char_boundary(room + 4)];
        // The host counts in the same way, and treats any line after the limit as a breach of the protocol.
        self.console_spent.set(self.console_spent.get() + (kept.len() + 1).min(room));
        let mut socket = self.socket.borrow_mut();
        frame::write(socket.out(), &ToHost::Console { level, text: kept });
        // Output before a crash should be visible, but not at the cost of a system call for each line.
        if socket.out().len() > FLUSH {
            socket.flush();
        }
    }
}

/// The result of a call.
enum Called {
    Id(u64),
    Refused(String),
}

impl<'js> IntoJs<'js> for Called {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "a run makes far fewer than 2^53 calls")]
            Called::Id(id) => (id as f64).into_js(ctx),
            Called::Refused(message) => message.into_js(ctx),
        }
    }
}

/// Locale-dependent functions.
const LOCALE: [(&str, &str); 3] = [
    ("numbers.js", include_str!("realm/locale/numbers.js")),
    ("dates.js", include_str!("realm/locale/dates.js")),
    ("order.js", include_str!("realm/locale/order.js")),
];

/// Builds the globals.
pub(crate) fn build(ctx: &Ctx<'_>, shared: &Rc<Shared>) -> Result<Realm> {
    let host = natives(ctx, shared)?;
    let bootstrap: Function<'_> = script(ctx, "bootstrap.js", include_str!("realm/bootstrap.js"))?;
    let writer: Function<'_> = script(ctx, "plain.js", include_str!("realm/plain.js"))?;
    let realm: Object<'_> = bootstrap.call((host.clone(), writer))?;
    let web: Function<'_> = script(ctx, "web.js", include_str!("realm/web.js"))?;
    web.call::<_, ()>((host, realm.clone()))?;
    let shared: Function<'_> = script(ctx, "shared.js", include_str!("realm/locale/shared.js"))?;
    let locale: Object<'_> = shared.call(())?;
    for (name, source) in LOCALE {
        script(ctx, name, source)?.call::<_, ()>((locale.clone(),))?;
    }
    let hidden: Function<'_> = realm.get("hidden")?;
    hidden.call::<_, ()>(("Intl", locale.get::<_, Value<'_>>("Intl")?))?;
    let take = |name: &str| -> Result<Persistent<Function<'static>>> {
        Ok(Persistent::save(ctx, realm.get::<_, Function<'_>>(name)?))
    };
    Ok(Realm {
        settle: take("settle")?,
        call_of: take("callOf")?,
        fire: take("fire")?,
        start: take("start")?,
        stringify: take("stringify")?,
        finish: take("finish")?,
        why_not_serializable: take("whyNotSerializable")?,
    })
}

fn script<'js>(ctx: &Ctx<'js>, name: &str, source: &str) -> Result<Function<'js>> {
    let mut options = EvalOptions::default();
    // Frames with a name other than the program's are dropped from stack traces.
    options.filename = Some(name.to_owned());
    ctx.eval_with_options(source, options)
}

fn natives<'js>(ctx: &Ctx<'js>, shared: &Rc<Shared>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    let own = || Rc::clone(shared);

    let tool = own();
    host.set(
        "tool",
        Function::new(ctx.clone(), move |namespace: String, action: String| {
            tool.tool(namespace, action)
        })?,
    )?;
    let call = own();
    host.set(
        "call",
        Function::new(ctx.clone(), move |tool: usize, args: String| call.call(tool, args))?,
    )?;
    let log = own();
    host.set(
        "log",
        Function::new(ctx.clone(), move |level: String, text: String| log.log(&level, &text))?,
    )?;
    let arm = own();
    host.set(
        "arm",
        Function::new(ctx.clone(), move |wait_ms: f64, id: f64, repeats: bool| -> Option<f64> {
            // The conversion panics on a negative number or NaN, which `max` replaces by zero, and
            // on a huge one, which the script has clamped.
            let wait = Duration::from_secs_f64(wait_ms.max(0.0) / 1000.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "ids are small whole numbers that this process assigned"
            )]
            let armed = arm.timers.borrow_mut().arm(wait, id as u64, repeats).map(|id| id as f64);
            arm.timer_refused.set(arm.timer_refused.get() || armed.is_none());
            armed
        })?,
    )?;
    host.set("mostTimers", MAX_TIMERS)?;
    let disarm = own();
    host.set(
        "disarm",
        Function::new(ctx.clone(), move |id: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "what is not an id finds no timer"
            )]
            disarm.timers.borrow_mut().disarm(id as u64);
        })?,
    )?;
    let now = own();
    host.set("now", Function::new(ctx.clone(), move || now.timers.borrow_mut().now_ms())?)?;
    let random = own();
    host.set("random", Function::new(ctx.clone(), move || random.random.borrow_mut().fraction())?)?;
    let bytes = own();
    host.set(
        "randomBytes",
        Function::new(
            ctx.clone(),
            random_bytes(move |ctx, count| {
                TypedArray::new(ctx, bytes.random.borrow_mut().bytes(count))
            }),
        )?,
    )?;
    let source = own();
    host.set(
        "trimStack",
        Function::new(ctx.clone(), move |text: String| source.trim_stack(&text).text)?,
    )?;
    host.set("encode", Function::new(ctx.clone(), encode)?)?;
    host.set("decode", Function::new(ctx.clone(), decode)?)?;
    host.set("parseUrl", Function::new(ctx.clone(), url::parse)?)?;
    host.set("changeUrl", Function::new(ctx.clone(), url::change)?)?;
    host.set("parseQuery", Function::new(ctx.clone(), url::parse_query)?)?;
    host.set("formatQuery", Function::new(ctx.clone(), url::format_query)?)?;
    Ok(host)
}

/// Gives the closure's argument and result one lifetime, which a closure cannot declare itself.
fn random_bytes<F>(f: F) -> F
where
    F: for<'js> Fn(Ctx<'js>, usize) -> Result<TypedArray<'js, u8>>,
{
    f
}

fn encode(ctx: Ctx<'_>, text: String) -> Result<TypedArray<'_, u8>> {
    TypedArray::new(ctx, text.into_bytes())
}

fn decode(bytes: TypedArray<'_, u8>, fatal: bool) -> Result<Option<String>> {
    // A detached buffer has no bytes.
    let Some(raw) = bytes.as_raw() else { return Ok(Some(String::new())) };
    #[expect(unsafe_code, reason = "the engine hands out its buffers only as pointers")]
    // SAFETY: the array keeps its buffer alive, and no script runs while it is read.
    let bytes: &[u8] = unsafe { raw.as_ref() };
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) if fatal => Ok(None),
        Err(_) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
    }
}

/// Returns whether an error is a JavaScript exception that is pending in the context.
pub(crate) fn is_exception(error: &Error) -> bool {
    matches!(error, Error::Exception)
}
