//! The calls of a program that the user allowed before it started.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use protocol::{Integrity, ToolId, canonical_json};
use serde_json::Value;

use crate::consent::question::{AskedCall, Channel};
use crate::workspace::protected::Touched;

/// The tool, and a hash of the arguments and of the places that they lead to.
type CallKey = (ToolId, Integrity);

/// The calls that the user has allowed and that were not made yet.
#[derive(Default)]
pub(super) struct AllowedCalls(Mutex<HashMap<CallKey, (Channel, u64)>>);

impl AllowedCalls {
    /// Takes the permission for one call, if there is one; returns the channel of the answer.
    pub(super) fn take(
        &self,
        tool: &ToolId,
        arguments: &Value,
        touched: &Touched,
    ) -> Option<Channel> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (by, left) = calls.get_mut(&key(tool, arguments, touched))?;
        *left = left.checked_sub(1)?;
        Some(*by)
    }

    /// Allows calls, as many as each states.
    pub(super) fn allow(&self, calls: &[AskedCall], by: Channel) {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls {
            let key = key(&call.tool, &call.arguments, &call.touched);
            allowed.entry(key).or_insert((by, 0)).1 += call.count;
        }
    }
}

fn key(tool: &ToolId, arguments: &Value, touched: &Touched) -> CallKey {
    let arguments = canonical_json(arguments.clone());
    (tool.clone(), Integrity::of(format!("{touched:?}{arguments}").as_bytes()))
}
