//! Programs and their tool calls.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter, IntCounterVec, Registry};
use protocol::{EntryType, Envelope, ErrorCode};

use super::histogram;
use super::label::{Histograms, PairCounters, family, labels};

labels! {
    /// Where a program runs.
    pub(crate) enum Decision as "decision" {
        /// On the gateway.
        Server = "server",
        /// On the caller's machine.
        Client = "client",
        /// Nowhere: it was refused before it could start.
        Refused = "refused",
        /// Nowhere: the caller only wanted to know where it would run.
        DryRun = "dry_run",
    }
}

labels! {
    /// How a program or a call ended.
    pub(crate) enum Ending as "outcome" {
        /// With a result; of a delegated program, with its delegation.
        Success = "success",
        /// With an error.
        Error = "error",
        /// It was cancelled, or its caller left.
        Cancelled = "cancelled",
    }
}

labels! {
    /// What a called tool is.
    pub(crate) enum CallKind as "type" {
        /// A tool of the gateway.
        Native = "native",
        /// A tool of an HTTP MCP server.
        Http = "http",
        /// A capability.
        Deno = "deno",
        /// A tool of a stdio MCP server.
        Stdio = "stdio",
    }
}

impl From<EntryType> for CallKind {
    fn from(kind: EntryType) -> Self {
        match kind {
            EntryType::Native => Self::Native,
            EntryType::Http => Self::Http,
            EntryType::Deno => Self::Deno,
            EntryType::Stdio => Self::Stdio,
        }
    }
}

/// Counts programs and their tool calls.
pub(crate) struct Programs {
    counts: PairCounters<Decision, Ending>,
    errors: IntCounterVec,
    /// By the order of [`ErrorCode::ALL`], each created at its first error: most of the codes are not the gateway's.
    error_counts: Vec<OnceLock<IntCounter>>,
    durations: Histograms<Ending>,
    queued: Histogram,
    calls: PairCounters<CallKind, Ending>,
    call_durations: Histograms<CallKind>,
}

impl Programs {
    /// Creates the counters.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            counts: PairCounters::new(
                registry,
                "pml_programs_total",
                "Submitted programs, by where they run and how that ended.",
            ),
            errors: family(
                registry,
                "pml_program_errors_total",
                "Programs that ended with an error, by its code.",
                &["code"],
            ),
            error_counts: ErrorCode::ALL.iter().map(|_| OnceLock::new()).collect(),
            durations: Histograms::new(
                registry,
                "pml_program_duration_seconds",
                "The duration of each run on the gateway, without its wait in the queue.",
            ),
            queued: histogram(
                registry,
                "pml_program_queue_seconds",
                "The time for which a program waited in the queue of its tenant.",
            ),
            calls: PairCounters::new(
                registry,
                "pml_tool_calls_total",
                "Tool calls on the gateway, by the type of the tool and how they ended.",
            ),
            call_durations: Histograms::new(
                registry,
                "pml_tool_call_duration_seconds",
                "The duration of each tool call on the gateway.",
            ),
        }
    }

    /// Begins to count a program. Dropping the returned value counts it as cancelled.
    pub(crate) fn begin(&self) -> ProgramCount<'_> {
        ProgramCount {
            programs: self,
            decision: Decision::Refused,
            ending: Ending::Cancelled,
            ran: None,
        }
    }

    /// Begins to count a tool call. Dropping the returned value counts it as cancelled.
    pub(crate) fn begin_call(&self, kind: CallKind) -> CallCount<'_> {
        CallCount { programs: self, kind, began: Instant::now(), ending: Ending::Cancelled }
    }

    fn count_error(&self, code: ErrorCode) {
        // The codes are declared without numbers of the enum, so they are numbered in the order of `ALL`.
        if let Some(counter) = self.error_counts.get(code as usize) {
            counter.get_or_init(|| self.errors.with_label_values(&[code.name()])).inc();
        }
    }
}

/// A program in progress.
pub(crate) struct ProgramCount<'a> {
    programs: &'a Programs,
    decision: Decision,
    ending: Ending,
    ran: Option<Duration>,
}

impl ProgramCount<'_> {
    /// Notes where the program runs.
    pub(crate) fn decided(&mut self, decision: Decision) {
        self.decision = decision;
    }

    /// Notes how long it waited in the queue.
    pub(crate) fn left_queue(&self, wait: Duration) {
        self.programs.queued.observe(wait.as_secs_f64());
    }

    /// Notes how long it ran.
    pub(crate) fn ran(&mut self, duration: Duration) {
        self.ran = Some(duration);
    }

    /// Counts the program with its answer.
    pub(crate) fn answered(mut self, envelope: &Envelope) {
        self.ending = match envelope {
            Envelope::Error(failed) => {
                let code = failed.error.error_code;
                self.programs.count_error(code);
                ending_of(code)
            }
            _ => Ending::Success,
        };
    }
}

impl Drop for ProgramCount<'_> {
    fn drop(&mut self) {
        self.programs.counts.add(self.decision, self.ending);
        if let Some(duration) = self.ran {
            self.programs.durations.observe(self.ending, duration.as_secs_f64());
        }
    }
}

/// A tool call in progress.
pub(crate) struct CallCount<'a> {
    programs: &'a Programs,
    kind: CallKind,
    began: Instant,
    ending: Ending,
}

impl CallCount<'_> {
    /// Counts the call with its result, or with its error.
    pub(crate) fn ended(mut self, error: Option<ErrorCode>) {
        self.ending = error.map_or(Ending::Success, ending_of);
    }
}

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        self.programs.calls.add(self.kind, self.ending);
        self.programs.call_durations.observe(self.kind, self.began.elapsed().as_secs_f64());
    }
}

fn ending_of(code: ErrorCode) -> Ending {
    if code == ErrorCode::Cancelled { Ending::Cancelled } else { Ending::Error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_numbered_in_the_order_of_their_list() {
        for (index, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(*code as usize, index, "{}", code.name());
        }
    }
}
