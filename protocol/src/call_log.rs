//! What a run remembers of its calls.

use std::collections::HashSet;

use crate::{CallNote, ErrorCode};

/// Returns what to tell the user of a run that ended before these calls of tools did.
pub fn unanswered_calls(tools: &[String]) -> Vec<String> {
    const SHOWN: usize = 10;
    let told = tools.iter().take(SHOWN).map(|tool| {
        let tool = crate::escape_text(tool);
        format!("the program ended before its call of `{tool}` did, so that may have happened or not; `await` every call")
    });
    let more = tools.len().saturating_sub(SHOWN);
    told.chain((more > 0).then(|| format!("the same holds for {more} more calls"))).collect()
}

/// The calls of one run, as both sides report them.
#[derive(Debug, Clone, Default)]
pub struct CallLog {
    notes: Vec<(u64, CallNote)>,
    issued: HashSet<ErrorCode>,
}

impl CallLog {
    /// Records an ended call; `index` is its place among the calls of the run.
    pub fn record(&mut self, index: u64, note: CallNote, failed: Option<ErrorCode>) {
        self.notes.push((index, note));
        self.issued.extend(failed);
    }

    /// Returns the calls in the order they began.
    pub fn notes(&self) -> Vec<CallNote> {
        let mut notes = self.notes.clone();
        notes.sort_by_key(|(index, _)| *index);
        notes.into_iter().map(|(_, note)| note).collect()
    }

    /// Returns the tool of the call of this index.
    pub fn tool(&self, index: u64) -> Option<&str> {
        self.notes.iter().find(|(known, _)| *known == index).map(|(_, note)| note.tool.as_str())
    }

    /// Returns the codes that calls failed with.
    pub fn issued(&self) -> &HashSet<ErrorCode> {
        &self.issued
    }
}
