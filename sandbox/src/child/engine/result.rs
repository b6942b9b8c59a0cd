//! Checks a program's result and sends it to the host.

use rquickjs::{Ctx, Persistent, Value};
use serde_json::value::RawValue;

use super::Engine;
use super::fault::{Fault, failure};
use crate::child::process::{EXIT_PANIC, exit};
use crate::outcome::FailureKind;
use crate::wire::frame::{self, ToHost};
use crate::wire::json;

/// Returns whether a program failed only because its result cannot be sent.
pub(super) fn is_about_result(fault: &Fault) -> bool {
    [FailureKind::ResultNotSerializable, FailureKind::ResultTooLarge]
        .iter()
        .any(|kind| kind.as_str() == fault.kind)
}

impl Engine {
    /// Returns the JSON of a result, if it is within its limits.
    pub(super) fn checked_result<'js>(
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

    pub(super) fn complete(&self, result: &Result<Option<String>, Fault>) {
        let mut socket = self.shared.socket.borrow_mut();
        match result {
            Ok(text) => {
                let value = text.as_deref().map(serde_json::from_str::<&RawValue>).transpose();
                // The engine wrote this text itself, so it is JSON unless the process is corrupted.
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
