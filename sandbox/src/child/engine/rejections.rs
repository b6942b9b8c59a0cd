//! Unhandled promise rejections.

use std::cell::RefCell;
use std::rc::Rc;

use rquickjs::{Persistent, Runtime, Value};

use super::Engine;
use super::fault::Fault;
use crate::outcome::FailureKind;
use crate::wire::frame::ChildFailure;

/// Rejected promises that nothing awaited, each with its reason.
pub(super) type Rejections = RefCell<Vec<(Persistent<Value<'static>>, Persistent<Value<'static>>)>>;

/// The number of rejections that are kept.
const MAX_REJECTIONS: usize = 32;

/// Makes the engine collect rejected promises until something handles them.
pub(super) fn track(runtime: &Runtime) -> Rc<Rejections> {
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
                // Only the first ones: each entry keeps two values alive, and a program can reject
                // any number of promises.
                seen.push((Persistent::save(&ctx, promise), Persistent::save(&ctx, reason)));
            }
        },
    )));
    rejections
}

impl Engine {
    /// Reports rejected promises that nothing awaited: as the program's failure if `fatal`, otherwise on its console.
    pub(super) fn report_unhandled(&self, fatal: bool) -> Result<(), Fault> {
        let rejected = self.rejections.take();
        if rejected.is_empty() {
            return Ok(());
        }
        self.context.with(|ctx| {
            for (_, reason) in rejected {
                let Ok(reason) = reason.restore(&ctx) else { continue };
                let fault = self.describe(&ctx, &reason, FailureKind::Exception);
                // A limit ends the run even where an ordinary rejection is only printed.
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
}
