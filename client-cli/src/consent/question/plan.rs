//! The question about a whole program: the calls that it is about to make, in one list.

use std::fmt::Write as _;
use std::sync::Arc;

use analysis::Plan;
use protocol::{ToolId, escape_text};
use serde_json::{Value, json};

use super::{AskedCall, NeedsPerson, context, describe_call};

/// The maximum displayed length of a text in the list; a longer one is shown in part, with its length and hash.
const SHOWN_TEXT: usize = 400;

/// The maximum number of results that leave the machine that are shown.
const LEAVES_LIMIT: usize = 20;

/// The maximum number of lines that are named for calls of one kind.
const LINES_LIMIT: usize = 10;

/// The calls of a program that one answer covers.
#[derive(Debug)]
pub(crate) struct AskedPlan {
    /// What the whole program will and may do, for the picture.
    pub(crate) plan: Arc<Plan>,
    /// The calls, in the order in which the program has them, or makes them if that is known.
    pub(crate) calls: Vec<PlannedCall>,
    /// Those that the answer does not cover.
    pub(crate) later: Vec<LaterCalls>,
    /// Which results of tools on this machine reach tools elsewhere, a line each.
    pub(crate) leaves: Vec<String>,
}

/// A call that the answer covers.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    /// The call with its exact arguments.
    pub(crate) call: AskedCall,
    /// Whether the program may end without making it.
    pub(crate) may: bool,
    /// The line of the call in the program, from 1, if it is known.
    pub(crate) line: Option<u32>,
    /// Why it is dangerous in itself, if it is.
    pub(crate) danger: Option<NeedsPerson>,
}

/// Calls that need approval and that the answer does not cover: the user is asked again when they are reached.
#[derive(Debug)]
pub(crate) struct LaterCalls {
    /// The tool.
    pub(crate) tool: ToolId,
    /// Why they are not covered.
    pub(crate) why: Uncovered,
    /// Their lines in the program, from 1.
    pub(crate) lines: Vec<u32>,
}

/// Why an answer does not cover a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uncovered {
    /// Its arguments are not known before the program runs.
    Computed,
    /// It is not known how often it is made.
    Repeated,
    /// It starts a server or a capability, which is approved on its own.
    Starts,
    /// It would fail as things are now.
    Fails,
    /// It is dangerous, and too long to be shown in full in a list.
    TooLong,
    /// The list is too long.
    TooMany,
    /// The paths of the calls before it took too long to look up.
    TooSlow,
}

impl Uncovered {
    /// Returns the reason, for display.
    fn reason(self) -> &'static str {
        match self {
            Self::Computed => "the program computes its arguments",
            Self::Repeated => "it may be called any number of times",
            Self::Starts => "it has to be started first",
            Self::Fails => "it would fail at present",
            Self::TooLong => "it is dangerous, and too long for this list",
            Self::TooMany => "this list would be too long",
            Self::TooSlow => "the program has too many paths to look up",
        }
    }
}

impl PlannedCall {
    /// Returns whether its arguments are shown in full.
    pub(crate) fn is_shown_in_full(&self) -> bool {
        self.call.arguments.to_string().chars().count() <= SHOWN_TEXT
    }
}

impl AskedPlan {
    /// Adds a call, or counts it if it is in the list already.
    pub(crate) fn add(&mut self, new: PlannedCall) {
        let is_same = |known: &&mut PlannedCall| {
            known.may == new.may
                && known.call.tool == new.call.tool
                && known.call.arguments == new.call.arguments
                && known.call.touched == new.call.touched
        };
        match self.calls.iter_mut().find(is_same) {
            Some(known) => known.call.count += 1,
            None => self.calls.push(new),
        }
    }

    /// Sorts the calls by their places in the program's course. One without a place follows the one before it.
    pub(crate) fn sort_by(&mut self, place: impl Fn(&AskedCall) -> Option<usize>) {
        let mut last = 0;
        let mut placed: Vec<(usize, PlannedCall)> = Vec::with_capacity(self.calls.len());
        for planned in self.calls.drain(..) {
            last = place(&planned.call).unwrap_or(last);
            placed.push((last, planned));
        }
        placed.sort_by_key(|(place, _)| *place);
        self.calls = placed.into_iter().map(|(_, planned)| planned).collect();
    }

    /// Adds a call of this line that the answer does not cover.
    pub(crate) fn add_later(&mut self, tool: &ToolId, why: Uncovered, line: u32) {
        let is_same = |known: &&mut LaterCalls| known.tool == *tool && known.why == why;
        match self.later.iter_mut().find(is_same) {
            Some(known) if known.lines.last() == Some(&line) => {}
            Some(known) => known.lines.push(line),
            None => self.later.push(LaterCalls { tool: tool.clone(), why, lines: vec![line] }),
        }
    }

    /// Returns how many calls the answer covers.
    pub(crate) fn count(&self) -> u64 {
        self.calls.iter().map(|planned| planned.call.count).sum()
    }

    /// Returns why only a person can approve it, if one of the calls is dangerous: the worst of the reasons.
    pub(crate) fn danger(&self) -> Option<NeedsPerson> {
        self.calls.iter().filter_map(|planned| planned.danger).max()
    }

    /// Renders it: first what is dangerous, then the calls, and what the answer covers at the end.
    pub(super) fn describe(&self) -> String {
        let mut out = String::new();
        let mut dangerous = Vec::new();
        for (place, planned) in self.calls.iter().enumerate() {
            if let Some(danger) = planned.danger {
                let _ = writeln!(out, "Careful, call {}: {}", place + 1, danger.reason());
                dangerous.push((place + 1).to_string());
            }
        }
        for (place, planned) in self.calls.iter().enumerate() {
            let text = describe_call(&planned.call, SHOWN_TEXT);
            let may = if planned.may { " (perhaps)" } else { "" };
            let _ = writeln!(out, "{}.{may} {}", place + 1, text.replace('\n', "\n   "));
        }
        if !self.leaves.is_empty() {
            out.push_str("Leaves this machine:\n");
            self.leaves.iter().take(LEAVES_LIMIT).for_each(|line| {
                let _ = writeln!(out, "- {line}");
            });
            if let Some(more) = self.leaves.len().checked_sub(LEAVES_LIMIT).filter(|more| *more > 0)
            {
                let _ = writeln!(out, "- and {more} more; `pml plan` lists them");
            }
        }
        if !self.later.is_empty() {
            out.push_str("Not covered, and asked about when the program reaches it:\n");
            for later in &self.later {
                let _ = writeln!(out, "- `{}`, {}: {}", later.tool, later.at(), later.why.reason());
            }
        }
        let _ = write!(
            out,
            "Allowing it covers these {} calls, with exactly these arguments",
            self.count()
        );
        match &dangerous[..] {
            [] => out.push('.'),
            [one] => {
                let _ = write!(out, "; call {one} is dangerous.");
            }
            all => {
                let _ = write!(out, "; calls {} are dangerous.", all.join(", "));
            }
        }
        out
    }

    /// Returns the machine-readable context.
    pub(super) fn context(&self) -> Value {
        let calls = self.calls.iter().map(|planned| {
            let mut context = context(&planned.call);
            if let Some(line) = planned.line {
                context["line"] = line.into();
            }
            if planned.may {
                context["may"] = true.into();
            }
            context
        });
        let mut context = json!({ "calls": calls.collect::<Vec<_>>() });
        if !self.later.is_empty() {
            let later = self.later.iter().map(|later| {
                json!({ "tool": later.tool, "lines": later.lines, "reason": later.why.reason() })
            });
            context["not_covered"] = later.collect();
        }
        if !self.leaves.is_empty() {
            context["leaves"] = self.leaves.iter().take(LEAVES_LIMIT).cloned().collect();
        }
        context
    }
}

impl LaterCalls {
    /// Names their lines.
    fn at(&self) -> String {
        let lines: Vec<String> = self.lines.iter().take(LINES_LIMIT).map(u32::to_string).collect();
        let more = match self.lines.len().checked_sub(LINES_LIMIT) {
            Some(more) if more > 0 => format!(" and {more} more"),
            _ => String::new(),
        };
        let word = if self.lines.len() == 1 { "line" } else { "lines" };
        format!("{word} {}{more}", lines.join(", "))
    }
}

/// Returns the line for a result that reaches a tool elsewhere; `decides` if it only decides about the call.
pub(crate) fn leaving(from: (&str, u32), to: (&str, u32), decides: bool) -> String {
    let how = if decides { "decides about" } else { "goes to" };
    format!(
        "the result of `{}` (line {}) {how} `{}` (line {})",
        escape_text(from.0),
        from.1,
        escape_text(to.0),
        to.1
    )
}
