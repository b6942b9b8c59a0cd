//! The log of a run's tool calls.

use std::collections::HashSet;

use crate::{CallNote, ErrorCode};

/// Returns the warnings for a run that ended before these tool calls did.
pub fn unanswered_calls(tools: &[String]) -> Vec<String> {
    // A program may abandon a thousand calls, and a model reads every warning.
    const SHOWN: usize = 10;
    let listed = tools.iter().take(SHOWN).map(|tool| {
        // The name comes from the child, where only its length was checked.
        let tool = crate::escape_text(tool);
        format!("the program ended before its call of `{tool}`, which may or may not have taken effect; `await` every call")
    });
    let more = tools.len().saturating_sub(SHOWN);
    listed.chain((more > 0).then(|| format!("the same holds for {more} more calls"))).collect()
}

/// The warning for a run that returned `undefined` and printed nothing.
pub const NO_VALUE: &str =
    "the program returned no value, so its result is `null`; end it with `return …`";

/// The calls of one run.
#[derive(Debug, Clone, Default)]
pub struct CallLog {
    calls: Vec<LoggedCall>,
    issued: HashSet<ErrorCode>,
}

#[derive(Debug, Clone)]
struct LoggedCall {
    /// The indices of the enclosing calls, outermost first, and then the call's own.
    place: Vec<u64>,
    note: CallNote,
    failed: Option<ErrorCode>,
}

impl CallLog {
    /// Records a call that has ended; `index` is its number among the calls of the run.
    pub fn record(&mut self, index: u64, note: CallNote, failed: Option<ErrorCode>) {
        self.record_within(&[], index, note, failed);
    }

    /// Records a call of a capability that has ended; `outer` are the indices of the enclosing calls, outermost first.
    pub fn record_within(
        &mut self,
        outer: &[u64],
        index: u64,
        note: CallNote,
        failed: Option<ErrorCode>,
    ) {
        // The program sees only how the call of the capability itself ended, so the code of a call
        // within it must not vouch for an error that the program throws.
        if outer.is_empty() {
            self.issued.extend(failed);
        }
        self.calls.push(LoggedCall { place: [outer, &[index]].concat(), note, failed });
    }

    /// Returns the calls in the order in which they began, each before those within it.
    pub fn notes(&self) -> Vec<CallNote> {
        let mut calls: Vec<&LoggedCall> = self.calls.iter().collect();
        // Calls are recorded when they end. A path of indices sorts directly before the longer
        // paths that begin with it, which belong to the calls within that call.
        calls.sort_by(|a, b| a.place.cmp(&b.place));
        calls.into_iter().map(|call| call.note.clone()).collect()
    }

    /// Returns the log of the capability that runs within the call with these indices.
    pub fn within(&self, outer: &[u64]) -> Self {
        let mut inner = Self::default();
        for call in &self.calls {
            // The call of the capability has exactly the path `outer`, so it is not in its own log.
            if let Some(place @ [_, rest @ ..]) = call.place.strip_prefix(outer) {
                if rest.is_empty() {
                    inner.issued.extend(call.failed);
                }
                inner.calls.push(LoggedCall { place: place.to_vec(), ..call.clone() });
            }
        }
        inner
    }

    /// Returns the tool of the program's own call with this index.
    pub fn tool(&self, index: u64) -> Option<&str> {
        self.calls.iter().find(|call| call.place == [index]).map(|call| call.note.tool.as_str())
    }

    /// Returns the codes with which the program's own calls failed.
    pub fn issued(&self) -> &HashSet<ErrorCode> {
        &self.issued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routing;

    fn note(tool: &str) -> CallNote {
        CallNote {
            tool: tool.to_owned(),
            routing: Routing::Client,
            ok: true,
            duration_ms: 1.0,
            through: Vec::new(),
        }
    }

    #[test]
    fn lists_inner_calls_after_their_enclosing_call() {
        let mut log = CallLog::default();
        log.record(2, note("c:d"), None);
        log.record_within(&[1, 1], 1, note("deep:est"), Some(ErrorCode::ToolFailed));
        log.record_within(&[1], 2, note("in:second"), None);
        log.record_within(&[1], 1, note("in:first"), Some(ErrorCode::ToolTimeout));
        log.record(1, note("a:b"), None);
        let order: Vec<String> = log.notes().into_iter().map(|note| note.tool).collect();
        assert_eq!(order, ["a:b", "in:first", "deep:est", "in:second", "c:d"]);
        assert_eq!(log.tool(2), Some("c:d"));
        // Codes of inner calls do not count as the program's own.
        assert!(log.issued().is_empty());
        let inner = log.within(&[1]);
        assert_eq!(inner.tool(2), Some("in:second"));
        assert_eq!(inner.issued(), &HashSet::from([ErrorCode::ToolTimeout]));
        assert_eq!(log.within(&[1, 1]).tool(1), Some("deep:est"));
    }
}
