//! Sends spans to a collector, off the path of the work that they are about.
//!
//! The queue is bounded: what finds it full is dropped and counted. The library's own queue does not tell how much it
//! drops.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
};
use protocol::redaction::keys_in_use;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::settings::{self, Settings};

/// The most spans of one request.
const BATCH: usize = 512;

/// The time limit for sending a batch, with its repetitions.
const LIMIT: Duration = Duration::from_secs(10);

/// The export of this process; empty while nothing is exported.
static EXPORT: OnceLock<Export> = OnceLock::new();

/// The spans that were not received by the collector.
static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Export {
    tracer: SdkTracer,
    queue: mpsc::Sender<Message>,
}

enum Message {
    Ended(Box<SpanData>),
    /// Everything before this is to be sent now.
    Flush(oneshot::Sender<()>),
}

/// Starts to export the spans of this process, in a task of the current runtime. `http` connects to the collector.
///
/// # Errors
/// Returns an error when the exporter cannot be created.
pub fn start(
    settings: Settings,
    http: reqwest::Client,
    program: &'static str,
    version: &'static str,
) -> Result<(), opentelemetry_otlp::ExporterBuildError> {
    // Redacted from the log. The first word of a credential is its scheme.
    for secret in settings.headers.iter().filter_map(|(_, value)| value.split_whitespace().last()) {
        keys_in_use().keep(secret);
    }
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(http)
        .with_endpoint(settings.endpoint.as_str())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(LIMIT)
        .with_headers(HashMap::from_iter(settings.headers))
        .build()?;
    let resource = settings::resource(program, version);
    exporter.set_resource(&resource);
    let (queue, waiting) = mpsc::channel(settings.queue);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Queue(queue.clone()))
        .with_resource(resource)
        .build();
    tokio::spawn(send_all(exporter, waiting, settings.delay));
    // A second start would change nothing; the programs start it once.
    let _ = EXPORT.set(Export { tracer: provider.tracer(program), queue });
    Ok(())
}

/// Returns the number of spans that were dropped since the start: the queue was full, or the collector did not take them.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Sends what waits, for a limited time.
pub async fn flush(limit: Duration) {
    let Some(export) = EXPORT.get() else { return };
    let flushed = async {
        let (done, told) = oneshot::channel();
        // Neither fails while the task runs, and it runs as long as the runtime.
        if export.queue.send(Message::Flush(done)).await.is_ok() {
            let _ = told.await;
        }
    };
    let _ = timeout(limit, flushed).await;
}

pub(super) fn tracer() -> Option<&'static SdkTracer> {
    EXPORT.get().map(|export| &export.tracer)
}

#[derive(Debug)]
struct Queue(mpsc::Sender<Message>);

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.try_send(Message::Ended(Box::new(span))).is_err() {
            drop_spans(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn drop_spans(count: usize) {
    DROPPED.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

async fn send_all(exporter: SpanExporter, mut waiting: mpsc::Receiver<Message>, delay: Duration) {
    let mut batch: Vec<SpanData> = Vec::new();
    // When the batch is sent, if it has a span.
    let mut due: Option<Instant> = None;
    let mut is_failing = false;
    loop {
        let message = match due {
            None => waiting.recv().await,
            Some(at) => match timeout_at(at, waiting.recv()).await {
                Ok(message) => message,
                Err(_) => {
                    send(&exporter, &mut batch, &mut is_failing).await;
                    due = None;
                    continue;
                }
            },
        };
        match message {
            Some(Message::Ended(span)) => {
                batch.push(*span);
                due.get_or_insert_with(|| Instant::now() + delay);
                if batch.len() < BATCH {
                    continue;
                }
                send(&exporter, &mut batch, &mut is_failing).await;
            }
            Some(Message::Flush(done)) => {
                send(&exporter, &mut batch, &mut is_failing).await;
                // Nobody may wait any more.
                let _ = done.send(());
            }
            None => return,
        }
        due = None;
    }
}

/// Sends a batch. What the collector does not take is dropped, and logged once until it takes some again.
async fn send(exporter: &SpanExporter, batch: &mut Vec<SpanData>, is_failing: &mut bool) {
    if batch.is_empty() {
        return;
    }
    let spans = std::mem::take(batch);
    let count = spans.len();
    let sent = match timeout(LIMIT, exporter.export(spans)).await {
        // The library's text has the status, and neither the address nor the answer.
        Ok(sent) => sent.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    };
    match sent {
        Ok(()) => {
            if std::mem::take(is_failing) {
                tracing::warn!(dropped = dropped(), "Spans are exported again");
            }
        }
        Err(reason) => {
            drop_spans(count);
            if !std::mem::replace(is_failing, true) {
                tracing::warn!(reason, "Spans are dropped: the collector does not take them");
            }
        }
    }
}
