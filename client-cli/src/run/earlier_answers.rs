//! The answers about a program that an earlier process recorded, for a run that is resumed.

use std::collections::HashMap;

use protocol::{Integrity, ToolId};

use crate::consent::question::Channel;
use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{Answered, Covered};

/// How the reason of a call ends in the record that was allowed before the program started.
pub(super) const BEFORE_START: &str = ", before the program started";

/// How long an answer about a program counts for a run that is resumed.
const ANSWER_LIFE: chrono::TimeDelta = chrono::TimeDelta::hours(1);

/// A part of an answer: calls that were not made yet, or were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EarlierAnswer {
    /// They are allowed.
    Allowed {
        /// The tool.
        tool: ToolId,
        /// What exactly was shown.
        covers: Covered,
        /// How many calls are left.
        count: u64,
        /// The channel of the answer.
        by: Channel,
    },
    /// They fail.
    LeftOut {
        /// The tool.
        tool: ToolId,
        /// The canonical JSON text of their arguments.
        arguments: String,
    },
}

/// Returns what is left of the answers about a program, without those that are too old.
pub(super) fn earlier_answers(reader: &Reader, run: &Run) -> Vec<EarlierAnswer> {
    // How many calls were made with an answer, by their tool and arguments.
    let mut used: HashMap<(&str, Integrity), u64> = HashMap::new();
    for call in &run.calls {
        if let Call::Made(made) = call
            && made.began.decision.ends_with(BEFORE_START)
        {
            *used.entry((&made.began.tool, made.began.args.hash)).or_default() += 1;
        }
    }
    let latest = chrono::Utc::now() - ANSWER_LIFE;
    let is_recent =
        |at: &str| chrono::DateTime::parse_from_rfc3339(at).is_ok_and(|at| at.to_utc() > latest);
    let mut left = Vec::new();
    for approval in &run.approvals {
        let Ok(tool) = approval.tool.parse::<ToolId>() else { continue };
        match approval.answer {
            Answered::LeftOut => {
                let arguments = reader.content(&approval.args);
                left.extend(arguments.map(|arguments| EarlierAnswer::LeftOut { tool, arguments }));
            }
            Answered::Once => {
                let Some(covers) = &approval.covers else { continue };
                let mut covers = covers.clone();
                let given = u64::from(approval.count);
                let used = used.entry((&approval.tool, approval.args.hash)).or_default();
                let count = given.saturating_sub(*used);
                if *used > 0 {
                    // The first call has changed the file.
                    covers.before = None;
                }
                *used = used.saturating_sub(given);
                let by = approval.by.as_deref().and_then(Channel::named);
                if let Some(by) = by.filter(|_| count > 0 && is_recent(&approval.at)) {
                    left.push(EarlierAnswer::Allowed { tool, covers, count, by });
                }
            }
            Answered::Always | Answered::Abort | Answered::None => {}
        }
    }
    left
}
