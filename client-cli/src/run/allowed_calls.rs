//! The calls of a program that the user allowed before it started.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use protocol::{Integrity, ToolId, canonical_json};
use serde_json::Value;

use crate::consent::question::{AskedCall, Channel};
use crate::workspace::protected::Protected;

/// The tool, and a hash of the arguments and of the protected places that they lead to.
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
        places: &[Protected],
    ) -> Option<Channel> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (by, left) = calls.get_mut(&key(tool, arguments, places))?;
        *left = left.checked_sub(1)?;
        Some(*by)
    }

    /// Allows calls, as many as each states.
    pub(super) fn allow(&self, calls: &[AskedCall], by: Channel) {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls {
            allowed.insert(key(&call.tool, &call.arguments, &call.places), (by, call.count));
        }
    }
}

fn key(tool: &ToolId, arguments: &Value, places: &[Protected]) -> CallKey {
    let places: Vec<_> = places.iter().map(|place| place.real.display()).collect();
    let arguments = canonical_json(arguments.clone());
    (tool.clone(), Integrity::of(format!("{places:?}{arguments}").as_bytes()))
}
