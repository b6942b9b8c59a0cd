//! Stores the traces of the gateway's own executions, off the path of their requests.
//!
//! A trace is a record of what has happened, so no execution waits for it or fails with it: the queue is bounded, and
//! what finds it full is dropped and counted.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Scope;
use registry::{OwnTrace, Registry, RegistryError};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

/// The most events in the queue. A run counts as one more.
const QUEUE: usize = 40_000;
/// The most events of one transaction.
const BATCH: usize = 4_000;
/// How long traces are gathered before they are stored, so that a busy gateway has few transactions.
const GATHER: Duration = Duration::from_secs(1);
/// The time before the next try while the database does not answer.
const RETRY: Duration = Duration::from_secs(2);

/// The queue of traces, and the task that stores them.
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    _writer: AbortOnDropHandle<()>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something is in the queue.
    filled: Notify,
    /// The queue is to be stored now.
    flush: Notify,
    /// Whether everything is stored.
    is_empty: watch::Sender<bool>,
}

/// Why traces were not stored.
enum NotStored {
    /// The database does not answer. The next try may succeed.
    Unavailable,
    /// Another reason, which the next try would meet again.
    Refused(String),
}

#[derive(Default)]
struct Queue {
    waiting: Vec<(Scope, OwnTrace)>,
    /// The size of what is waiting and of what is being stored.
    size: usize,
    /// The traces that were dropped since one was stored.
    dropped: u64,
    /// All traces that were dropped.
    dropped_in_total: u64,
}

impl Recorder {
    /// Starts a recorder that stores traces in the registry.
    pub(crate) fn start(registry: Registry) -> Self {
        Self::with_store(move |scope, traces| {
            let registry = registry.clone();
            async move {
                let stored = registry.store_own_traces(&scope, traces).await;
                stored.map_err(|error| match error {
                    RegistryError::Unavailable(_) => NotStored::Unavailable,
                    error => NotStored::Refused(error.to_string()),
                })
            }
        })
    }

    fn with_store<F>(store: impl Fn(Scope, Arc<Vec<OwnTrace>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), NotStored>> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Notify::new(),
            flush: Notify::new(),
            is_empty: watch::Sender::new(true),
        });
        let writer = tokio::spawn(write(Arc::clone(&shared), store));
        Self { shared, _writer: AbortOnDropHandle::new(writer) }
    }

    /// Queues a trace of an execution in a scope. Never waits.
    pub(crate) fn record(&self, scope: &Scope, trace: OwnTrace) {
        let size = size(&trace);
        let mut queue = self.shared.queue();
        if queue.size + size > QUEUE {
            queue.drop_traces(1, "the queue is full");
            return;
        }
        queue.size += size;
        queue.waiting.push((scope.clone(), trace));
        // Under the lock, so that the writer cannot have stored it already.
        self.shared.is_empty.send_replace(false);
        drop(queue);
        self.shared.filled.notify_one();
    }

    /// Returns how many traces were dropped since the start.
    pub(crate) fn dropped_in_total(&self) -> u64 {
        self.shared.queue().dropped_in_total
    }

    /// Waits until what is in the queue is stored.
    pub(crate) async fn flush(&self) {
        self.shared.flush.notify_one();
        // The sender lives as long as this recorder.
        let _ = self.shared.is_empty.subscribe().wait_for(|is_empty| *is_empty).await;
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic while the lock was held left a consistent queue: a trace is added in one step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Counts traces that are lost, and logs it once until one is stored again.
    fn drop_traces(&mut self, count: usize, reason: &str) {
        if self.dropped == 0 {
            tracing::warn!(
                reason,
                "Traces of executions are dropped; the executions are unaffected"
            );
        }
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.dropped = self.dropped.saturating_add(count);
        self.dropped_in_total = self.dropped_in_total.saturating_add(count);
    }
}

fn size(trace: &OwnTrace) -> usize {
    trace.trace.events.len() + 1
}

async fn write<F>(shared: Arc<Shared>, store: impl Fn(Scope, Arc<Vec<OwnTrace>>) -> F)
where
    F: Future<Output = Result<(), NotStored>> + Send,
{
    loop {
        shared.filled.notified().await;
        pause(&shared, GATHER).await;
        let waiting = std::mem::take(&mut shared.queue().waiting);
        for (scope, traces) in batches(waiting) {
            let (count, size) = (traces.len(), traces.iter().map(size).sum::<usize>());
            let traces = Arc::new(traces);
            let stored = loop {
                match store(scope.clone(), Arc::clone(&traces)).await {
                    // Meanwhile the queue fills up, and then drops what is new.
                    Err(NotStored::Unavailable) => pause(&shared, RETRY).await,
                    Err(NotStored::Refused(reason)) => break Err(reason),
                    Ok(()) => break Ok(()),
                }
            };
            let mut queue = shared.queue();
            queue.size -= size;
            match stored {
                Ok(()) if queue.dropped > 0 => {
                    let dropped = std::mem::take(&mut queue.dropped);
                    tracing::warn!(dropped, "Traces of executions are stored again");
                }
                Ok(()) => {}
                // It would fail again.
                Err(reason) => queue.drop_traces(count, &reason),
            }
        }
        let queue = shared.queue();
        if queue.waiting.is_empty() {
            // Under the lock, so that a trace that is queued now is not overlooked.
            shared.is_empty.send_replace(true);
        }
    }
}

/// Waits, but no longer when the gateway is about to stop.
async fn pause(shared: &Shared, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = shared.flush.notified() => {}
    }
}

/// Groups traces by their scope, into batches of a bounded size.
fn batches(traces: Vec<(Scope, OwnTrace)>) -> Vec<(Scope, Vec<OwnTrace>)> {
    let mut open: HashMap<Scope, (usize, Vec<OwnTrace>)> = HashMap::new();
    let mut full = Vec::new();
    for (scope, trace) in traces {
        let (events, batch) = open.entry(scope.clone()).or_default();
        if *events + size(&trace) > BATCH && !batch.is_empty() {
            full.push((scope, std::mem::take(batch)));
            *events = 0;
        }
        *events += size(&trace);
        batch.push(trace);
    }
    full.extend(open.into_iter().map(|(scope, (_, batch))| (scope, batch)));
    full
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use chrono::Utc;
    use protocol::{Integrity, TraceStatus};
    use registry::NewTrace;
    use uuid::Uuid;

    use super::*;

    fn trace() -> OwnTrace {
        let trace = NewTrace {
            run_id: Uuid::now_v7(),
            execution_id: None,
            code_hash: Integrity::of(b"return 1"),
            status: TraceStatus::Success,
            error_code: None,
            started_at: Utc::now(),
            duration_ms: 1,
            arguments: None,
            result: None,
            event_count: 0,
            events_dropped: 0,
            events: Vec::new(),
        };
        OwnTrace { principal: "ann".parse().unwrap(), trace }
    }

    fn scope(name: &str) -> Scope {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn a_full_queue_drops_what_is_new_and_keeps_its_size() {
        let recorder = Recorder::with_store(|_, _| async { Err(NotStored::Unavailable) });
        for _ in 0..QUEUE + 7 {
            recorder.record(&scope("acme.web"), trace());
        }
        let queue = recorder.shared.queue();
        assert_eq!((queue.size, queue.dropped, queue.dropped_in_total), (QUEUE, 7, 7));
    }

    #[tokio::test]
    async fn traces_are_stored_once_after_an_outage_and_refused_ones_are_dropped() {
        let (tries, stored) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (tried, counted) = (Arc::clone(&tries), Arc::clone(&stored));
        let recorder = Recorder::with_store(move |scope, traces| {
            let answer = match (scope.project(), tried.fetch_add(1, Ordering::Relaxed)) {
                ("gone", _) => Err(NotStored::Refused("it was deleted".to_owned())),
                (_, 0) => Err(NotStored::Unavailable),
                _ => {
                    counted.fetch_add(traces.len(), Ordering::Relaxed);
                    Ok(())
                }
            };
            async { answer }
        });
        for _ in 0..BATCH + 10 {
            recorder.record(&scope("acme.web"), trace());
        }
        recorder.flush().await;
        assert_eq!(stored.load(Ordering::Relaxed), BATCH + 10);
        assert_eq!(tries.load(Ordering::Relaxed), 3, "two batches, one of them twice");
        recorder.record(&scope("acme.gone"), trace());
        recorder.flush().await;
        let queue = recorder.shared.queue();
        assert_eq!((queue.size, queue.dropped, queue.dropped_in_total), (0, 1, 1));
    }
}
