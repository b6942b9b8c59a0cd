//! Why a program failed, in the program's own coordinates.

use rquickjs::{Ctx, Object, Value};

use super::Engine;
use crate::child::realm;
use crate::limits::MAX_ERROR_TEXT;
use crate::outcome::FailureKind;
use crate::wire::frame::ChildFailure;

/// Why the program failed.
pub(super) type Fault = Box<ChildFailure>;

impl Engine {
    pub(super) fn caught(
        &self,
        ctx: &Ctx<'_>,
        error: &rquickjs::Error,
        kind: FailureKind,
    ) -> Fault {
        if realm::is_exception(error) {
            let thrown = ctx.catch();
            self.describe(ctx, &thrown, kind)
        } else {
            failure(kind, "Error", &error.to_string())
        }
    }

    /// Describes a thrown value as a failure, in the program's own coordinates.
    pub(super) fn describe<'js>(
        &self,
        ctx: &Ctx<'js>,
        thrown: &Value<'js>,
        kind: FailureKind,
    ) -> Fault {
        let object = thrown.as_object();
        let text = |key: &str| object.and_then(|object| text_of(ctx, object, key));
        let trace = self.shared.trim_stack(&text("stack").unwrap_or_default());
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
        // The engine does not name the value that is not a function.
        let message = match &trace.callee {
            Some(callee) if name == "TypeError" && message == "not a function" => {
                format!("`{callee}` is not a function")
            }
            _ => message,
        };
        let code = text("code");
        let call = object.and_then(|_| self.call_of(ctx, thrown));
        // Checked here, because the reads above may have run getters of the program until the time was up.
        if self.budget.is_spent() {
            return self.out_of_cpu(trace.place);
        }
        // A program can throw an error of any name and code, so what it claims about memory, timers and arguments
        // counts only if this process has recorded it. The engine reports a stack overflow nowhere else, so a program
        // can claim one, which changes only the code of its own error.
        let kind = match (name.as_str(), message.as_str(), code.as_deref()) {
            _ if starved => FailureKind::OutOfMemory,
            ("InternalError", "out of memory", _) if self.heap.ran_out() => {
                FailureKind::OutOfMemory
            }
            ("RangeError" | "InternalError", "Maximum call stack size exceeded", _) => {
                FailureKind::StackOverflow
            }
            (_, _, Some("TOO_MANY_TIMERS")) if self.shared.timer_refused.get() => {
                FailureKind::TooManyTimers
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
            call,
        })
    }

    /// Describes what a program threw, or why its result could not be serialized.
    pub(super) fn describe_thrown<'js>(&self, ctx: &Ctx<'js>, thrown: &Value<'js>) -> Fault {
        // Finding out the reason runs scripts, for which there is no CPU time left.
        if self.budget.is_spent() {
            return self.describe(ctx, thrown, FailureKind::Exception);
        }
        let why = self.realm.why_not_serializable.clone().restore(ctx);
        let why = why.and_then(|why| why.call::<_, i32>((thrown.clone(),))).unwrap_or_else(|_| {
            // Taken out of the context, where a later operation would seem to have thrown it.
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

    /// Returns the id of the call that threw an error, if it came from one.
    fn call_of<'js>(&self, ctx: &Ctx<'js>, thrown: &Value<'js>) -> Option<u64> {
        let call_of = self.realm.call_of.clone().restore(ctx).ok()?;
        let number: Option<f64> = call_of.call((thrown.clone(),)).unwrap_or_else(|_| {
            ctx.catch();
            None
        });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small whole number that this process assigned"
        )]
        number.map(|number| number as u64)
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
            // JSON has no text for functions and symbols.
            Ok(None) => format!("a value of type {}", value.type_name()),
            Err(_) => {
                ctx.catch();
                "a value that cannot be shown".to_owned()
            }
        }
    }

    pub(super) fn out_of_cpu(&self, place: Option<(u32, u32)>) -> Fault {
        let limit = self.shared.limits.get().cpu_ms;
        let mut message = format!("the program used all of its {limit} ms of CPU time");
        // At a loop's back edge, the engine reports the last position before it, and no line if there is none.
        if let Some((line, _)) = place {
            message.push_str(&format!(", at or after line {line}"));
        }
        Box::new(ChildFailure {
            line: place.map(|place| place.0),
            column: place.map(|place| place.1),
            ..*failure(FailureKind::CpuTime, "LimitError", &message)
        })
    }
}

/// Reads a property that should be text; `None` if it is something else or its getter throws.
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
    // The `code` of a `DOMException` is a number.
    value.as_number().map(|number| number.to_string())
}

pub(super) fn failure(kind: FailureKind, name: &str, message: &str) -> Fault {
    Box::new(ChildFailure {
        kind: kind.as_str().to_owned(),
        name: name.to_owned(),
        message: message.to_owned(),
        code: None,
        line: None,
        column: None,
        stack: None,
        call: None,
    })
}

/// Truncates a text that is too long to send.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}
