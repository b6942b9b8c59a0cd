//! The calls of a run on the gateway, as its trace tells them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use chrono::{DateTime, Utc};
use execution::trace_value;
use protocol::{ErrorCode, Integrity, Routing, ToolId, TraceKind, TraceStatus, TraceValue};
use registry::{NewTrace, NewTraceEvent};
use serde_json::Value;
use uuid::Uuid;

/// The most calls of a run that have an event. A program of its own may make 1,000, but capabilities multiply them.
const EVENTS: usize = 2_000;
/// A value with a larger text is summarized off the async threads, in bytes.
const LARGE: usize = 64 * 1024;

/// The calls of one run, with those within its capabilities.
pub(crate) struct RunLog {
    started_at: DateTime<Utc>,
    started: Instant,
    /// The key of the run's hashes, which nobody learns: they say which values of the run are equal, and nothing else.
    key: [u8; 32],
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    begun: Vec<Call>,
    dropped: i32,
}

/// A call that has begun.
struct Call {
    /// The numbers of the enclosing calls, outermost first, and then its own.
    path: Vec<u64>,
    tool: ToolId,
    kind: TraceKind,
    started_at: DateTime<Utc>,
    started: Instant,
    arguments: TraceValue,
    /// `None` as long as its end is not known.
    end: Option<End>,
}

struct End {
    duration_ms: i64,
    status: TraceStatus,
    error_code: Option<ErrorCode>,
    result: Option<TraceValue>,
}

/// How a run ended.
pub(crate) struct RunEnd {
    /// The execution.
    pub execution_id: Uuid,
    /// The hash of the program.
    pub code_hash: Integrity,
    /// Whether it was cancelled.
    pub is_cancelled: bool,
    /// The code of its error.
    pub error_code: Option<ErrorCode>,
    /// Its arguments.
    pub arguments: Option<TraceValue>,
    /// Its result.
    pub result: Option<TraceValue>,
}

/// The number of a call in the log.
#[derive(Clone, Copy)]
pub(crate) struct CallNumber(usize);

impl RunLog {
    /// Begins the log of a run; `None` if the system has no random numbers.
    pub(crate) fn start() -> Option<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).ok()?;
        let (started_at, started) = (Utc::now(), Instant::now());
        Some(Self { started_at, started, key, calls: Mutex::default() })
    }

    /// Summarizes a value, and gives it back.
    pub(crate) async fn summarize(&self, value: Value) -> (Value, Option<TraceValue>) {
        let key = self.key;
        if !is_large(&value) {
            let summary = trace_value(&key, &value);
            return (value, Some(summary));
        }
        let task = tokio::task::spawn_blocking(move || {
            let summary = trace_value(&key, &value);
            (value, Some(summary))
        });
        // Only a panic ends it without a value, and there is none in it.
        task.await.unwrap_or_else(|_| (Value::Null, None))
    }

    /// Records that a call begins; `None` if the log is full.
    pub(crate) fn begin(
        &self,
        path: Vec<u64>,
        tool: ToolId,
        kind: TraceKind,
        arguments: TraceValue,
    ) -> Option<CallNumber> {
        let (started_at, started) = (Utc::now(), Instant::now());
        let mut calls = self.calls();
        // A call begins before those within it, so the log never has a call without its caller.
        if calls.begun.len() >= EVENTS {
            calls.dropped = calls.dropped.saturating_add(1);
            return None;
        }
        calls.begun.push(Call { path, tool, kind, started_at, started, arguments, end: None });
        Some(CallNumber(calls.begun.len() - 1))
    }

    /// Records how a call ended.
    pub(crate) fn end(
        &self,
        call: CallNumber,
        error_code: Option<ErrorCode>,
        result: Option<TraceValue>,
    ) {
        let mut calls = self.calls();
        if let Some(call) = calls.begun.get_mut(call.0) {
            let (duration_ms, status) = (millis(call.started), call_status(error_code));
            call.end = Some(End { duration_ms, status, error_code, result });
        }
    }

    /// Returns the trace of the run, which has ended. Calls that have not ended are indeterminate.
    pub(crate) fn trace(&self, end: RunEnd) -> NewTrace {
        let (mut begun, dropped) = {
            let mut calls = self.calls();
            (std::mem::take(&mut calls.begun), calls.dropped)
        };
        // A path sorts directly before the longer ones that begin with it: the calls within that call.
        begun.sort_by(|a, b| a.path.cmp(&b.path));
        let mut numbered: HashSet<Vec<u64>> = HashSet::with_capacity(begun.len());
        let mut events = Vec::with_capacity(begun.len());
        for call in begun {
            // The child chose the number of its call, and must not be able to use one twice.
            if !numbered.insert(call.path.clone()) {
                continue;
            }
            let (seq, path) = (events.len() + 1, &call.path);
            let (last, parent) = (path.len() > 1, &path[..path.len().saturating_sub(1)]);
            let known = call.end;
            events.push(NewTraceEvent {
                seq: i32::try_from(seq).unwrap_or(i32::MAX),
                trace_id: dotted(path),
                parent_trace_id: last.then(|| dotted(parent)),
                tool: call.tool,
                kind: call.kind,
                routing: Routing::Server,
                status: known.as_ref().map_or(TraceStatus::Indeterminate, |end| end.status),
                error_code: known.as_ref().and_then(|end| name(end.error_code)),
                started_at: call.started_at,
                duration_ms: known.as_ref().map(|end| end.duration_ms),
                arguments: Some(call.arguments),
                result: known.and_then(|end| end.result),
            });
        }
        NewTrace {
            run_id: end.execution_id,
            execution_id: None,
            code_hash: end.code_hash,
            status: match end.error_code {
                _ if end.is_cancelled => TraceStatus::Cancelled,
                None => TraceStatus::Success,
                Some(_) => TraceStatus::Error,
            },
            error_code: name(end.error_code),
            started_at: self.started_at,
            duration_ms: millis(self.started),
            arguments: end.arguments,
            result: end.result,
            event_count: i32::try_from(events.len()).unwrap_or(i32::MAX),
            events_dropped: dropped,
            events,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // A panic while the lock was held left a consistent log: a call is added in one step.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn call_status(error_code: Option<ErrorCode>) -> TraceStatus {
    match error_code {
        None => TraceStatus::Success,
        Some(ErrorCode::Cancelled) => TraceStatus::Cancelled,
        Some(
            ErrorCode::ToolNotDeclared
            | ErrorCode::Forbidden
            | ErrorCode::KeyNotForHost
            | ErrorCode::RateLimited,
        ) => TraceStatus::Denied,
        Some(_) => TraceStatus::Error,
    }
}

fn name(error_code: Option<ErrorCode>) -> Option<String> {
    error_code.map(|code| code.name().to_owned())
}

fn millis(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX)
}

fn dotted(path: &[u64]) -> String {
    path.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

/// Returns whether the text of a value is larger than [`LARGE`], by a look at no more of it than that.
fn is_large(value: &Value) -> bool {
    fn spend(value: &Value, budget: usize) -> Option<usize> {
        let budget = budget.checked_sub(8)?;
        match value {
            Value::String(text) => budget.checked_sub(text.len()),
            Value::Array(items) => items.iter().try_fold(budget, |left, item| spend(item, left)),
            Value::Object(members) => members.iter().try_fold(budget, |left, (name, member)| {
                spend(member, left.checked_sub(name.len())?)
            }),
            _ => Some(budget),
        }
    }
    spend(value, LARGE).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(log: &RunLog) -> TraceValue {
        trace_value(&log.key, &json!({}))
    }

    fn ended(log: &RunLog) -> NewTrace {
        let code_hash = Integrity::of(b"return 1");
        let execution_id = Uuid::now_v7();
        log.trace(RunEnd {
            execution_id,
            code_hash,
            is_cancelled: false,
            error_code: None,
            arguments: None,
            result: None,
        })
    }

    #[test]
    fn callers_precede_their_calls_and_what_has_not_ended_is_indeterminate() {
        let log = RunLog::start().unwrap();
        let tool: ToolId = "json:parse".parse().unwrap();
        let begin = |path: &[u64]| {
            log.begin(path.to_vec(), tool.clone(), TraceKind::Tool, summary(&log)).unwrap()
        };
        let [second, first, inner, _open] = [&[2][..], &[1], &[1, 1], &[10]].map(begin);
        // A child that uses a number twice does not add a second event of that name.
        begin(&[2]);
        log.end(inner, Some(ErrorCode::RateLimited), None);
        log.end(first, Some(ErrorCode::ToolFailed), None);
        log.end(second, None, Some(summary(&log)));
        let trace = ended(&log);
        let told: Vec<_> = trace
            .events
            .iter()
            .map(|it| (it.seq, it.trace_id.as_str(), it.parent_trace_id.as_deref(), it.status))
            .collect();
        assert_eq!(
            told,
            [
                (1, "1", None, TraceStatus::Error),
                (2, "1.1", Some("1"), TraceStatus::Denied),
                (3, "2", None, TraceStatus::Success),
                (4, "10", None, TraceStatus::Indeterminate),
            ]
        );
        assert_eq!((trace.event_count, trace.events_dropped), (4, 0));
    }

    #[test]
    fn a_full_log_counts_what_it_drops() {
        let log = RunLog::start().unwrap();
        let tool: ToolId = "json:parse".parse().unwrap();
        for number in 1..=EVENTS as u64 + 5 {
            log.begin(vec![number], tool.clone(), TraceKind::Tool, summary(&log));
        }
        let trace = ended(&log);
        assert_eq!((trace.events.len(), trace.events_dropped), (EVENTS, 5));
        assert_eq!(trace.event_count, EVENTS as i32);
    }

    #[tokio::test]
    async fn large_values_are_summarized_and_given_back() {
        let log = RunLog::start().unwrap();
        for value in [json!("x"), json!("x".repeat(LARGE)), json!(vec![1; LARGE])] {
            let (back, summary) = log.summarize(value.clone()).await;
            assert_eq!(back, value);
            assert_eq!(summary.unwrap(), trace_value(&log.key, &value));
        }
        assert!(!is_large(&json!({ "a": ["x".repeat(LARGE / 2), 1] })));
        assert!(is_large(&json!({ "a": ["x".repeat(LARGE / 2), "x".repeat(LARGE / 2)] })));
    }
}
