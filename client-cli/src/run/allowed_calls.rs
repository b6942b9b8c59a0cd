//! The calls of a program that the user allowed before it started.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use protocol::{Integrity, ToolId, canonical_json};
use serde_json::Value;

use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{AskedCall, Channel};
use crate::tools::filesystem::preview::Preview;
use crate::workspace::touched::Touched;

/// The tool, and a hash of the arguments and of the places that they lead to.
type CallKey = (ToolId, Integrity);

/// The permission for one call.
struct Allowed {
    by: Channel,
    /// The content of the file that it changes, as the user saw it, if an answer depends on it: the inner `None` if
    /// there was no file.
    before: Option<Option<Integrity>>,
}

/// The calls that the user has allowed and that were not made yet, and those that the user left out.
#[derive(Default)]
pub(super) struct AllowedCalls {
    allowed: Mutex<HashMap<CallKey, VecDeque<Allowed>>>,
    /// Wherever they lead by now.
    left_out: Mutex<HashSet<(ToolId, String)>>,
}

impl AllowedCalls {
    /// Takes the permission for one call, if there is one; returns the channel of the answer. `preview` says what the
    /// call would do now: if that is not what the user saw, the permission does not count.
    pub(super) fn take(
        &self,
        tool: &ToolId,
        arguments: &Value,
        touched: &Touched,
        preview: impl FnOnce() -> Option<Preview>,
    ) -> Option<Channel> {
        let mut calls = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let left = calls.get_mut(&key(tool, arguments, touched))?;
        let allowed = left.pop_front()?;
        match allowed.before {
            Some(before) if preview().map(|preview| preview.before) != Some(before) => None,
            _ => Some(allowed.by),
        }
    }

    /// Returns whether the user left a call out. That counts for all calls with these arguments.
    pub(super) fn leaves_out(&self, tool: &ToolId, arguments: &Value) -> bool {
        let left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        // Most runs have none.
        !left_out.is_empty()
            && left_out.contains(&(tool.clone(), canonical_json(arguments.clone())))
    }

    /// Allows calls, as many as each states, except those that the answer leaves out.
    pub(super) fn allow(&self, calls: &[AskedCall], without: &LeftOut, by: Channel) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, call) in calls.iter().enumerate() {
            if without.has(place) {
                left_out.insert((call.tool.clone(), canonical_json(call.arguments.clone())));
                continue;
            }
            let left = allowed.entry(key(&call.tool, &call.arguments, &call.touched)).or_default();
            // After the first call, the file has the content that the user was shown.
            let mut before = call.preview.as_ref().map(|preview| preview.before);
            for _ in 0..call.count {
                left.push_back(Allowed { by, before: before.take() });
            }
        }
    }
}

fn key(tool: &ToolId, arguments: &Value, touched: &Touched) -> CallKey {
    let arguments = canonical_json(arguments.clone());
    (tool.clone(), Integrity::of(format!("{touched:?}{arguments}").as_bytes()))
}
