//! The calls of a program that the user allowed before it started, and those that the user left out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use protocol::{Integrity, ToolId, canonical_json};
use serde_json::Value;

use super::earlier_answers::EarlierAnswer;
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{AskedCall, Channel};
use crate::run_store::record::{Before, Covered};
use crate::tools::filesystem::preview::Preview;
use crate::workspace::touched::Touched;

/// The tool, and a hash of the arguments and of the places that they lead to.
type CallKey = (ToolId, Integrity);

/// The permission for one call.
struct Allowed {
    by: Channel,
    /// What was at the place of the file that it changes, as the user saw it, if an answer depends on it.
    before: Option<Before>,
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
        let left = calls.get_mut(&(tool.clone(), key(arguments, touched)))?;
        let allowed = left.pop_front()?;
        let is_as_shown = || preview().map(|preview| before(&preview)) == allowed.before;
        (allowed.before.is_none() || is_as_shown()).then_some(allowed.by)
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
        for (place, call) in calls.iter().enumerate() {
            let tool = call.tool.clone();
            self.restore(match without.has(place) {
                true => {
                    let arguments = canonical_json(call.arguments.clone());
                    EarlierAnswer::LeftOut { tool, arguments }
                }
                false => {
                    EarlierAnswer::Allowed { tool, covers: covered(call), count: call.count, by }
                }
            });
        }
    }

    /// Allows what is left of an answer, or refuses what it leaves out.
    pub(super) fn restore(&self, answer: EarlierAnswer) {
        match answer {
            EarlierAnswer::LeftOut { tool, arguments } => {
                let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
                left_out.insert((tool, arguments));
            }
            EarlierAnswer::Allowed { tool, covers, count, by } => {
                let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
                let left = allowed.entry((tool, covers.key)).or_default();
                // After the first call, the file has the content that the user was shown.
                let mut before = covers.before;
                left.extend((0..count).map(|_| Allowed { by, before: before.take() }));
            }
        }
    }
}

/// Returns what an answer about a call covers.
pub(super) fn covered(call: &AskedCall) -> Covered {
    Covered { key: key(&call.arguments, &call.touched), before: call.preview.as_ref().map(before) }
}

fn key(arguments: &Value, touched: &Touched) -> Integrity {
    let arguments = canonical_json(arguments.clone());
    Integrity::of(format!("{touched:?}{arguments}").as_bytes())
}

fn before(preview: &Preview) -> Before {
    preview.before.map_or(Before::Nothing, Before::File)
}
