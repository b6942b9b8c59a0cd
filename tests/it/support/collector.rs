//! A collector of OpenTelemetry, which receives spans as protobuf over HTTP.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

use super::gateway_stub::{Request, listen};
use super::{PATIENCE, poll};

/// A received span.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// The name of the program that sent it.
    pub(crate) service: String,
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: SpanKind,
    /// The id of its trace.
    pub(crate) trace: String,
    /// Its id.
    pub(crate) id: String,
    /// The id of its parent; empty if it has none.
    pub(crate) parent: String,
    /// Its attributes.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Whether its status is that of an error.
    pub(crate) failed: bool,
}

impl Span {
    /// Returns an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

#[derive(Default)]
struct Received {
    heads: Vec<String>,
    bodies: Vec<Vec<u8>>,
    spans: Vec<Span>,
}

/// A running collector.
pub(crate) struct Collector {
    /// Its address, as in `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) url: String,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Received>>,
}

impl Collector {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let received: Arc<Mutex<Received>> = Arc::default();
        let (answers, record) = (Arc::clone(&status), Arc::clone(&received));
        let url = listen(move |mut stream| {
            let Some(request) = Request::read(&mut stream) else { return };
            let status = answers.load(Ordering::SeqCst);
            let mut record = record.lock().unwrap();
            if status == 200 {
                let message = ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap();
                record.spans.extend(spans(message));
            }
            record.heads.push(request.head);
            record.bodies.push(request.body);
            drop(record);
            let head = format!(
                "HTTP/1.1 {status} Stub\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes());
        });
        Self { url, status, received }
    }

    /// Answers with this status from now on.
    pub(crate) fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Returns the received spans.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    /// Waits for the spans of a trace that `complete` accepts.
    #[track_caller]
    pub(crate) fn trace(&self, id: &str, complete: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        poll("the spans of the trace", PATIENCE, || {
            let all = self.spans();
            let spans: Vec<Span> = all.into_iter().filter(|span| span.trace == id).collect();
            complete(&spans).then_some(spans)
        })
    }

    /// Returns the heads of the requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.received.lock().unwrap().heads.clone()
    }

    /// Returns whether the bytes of a text were received, in whatever place.
    pub(crate) fn has_bytes_of(&self, text: &str) -> bool {
        let bodies = &self.received.lock().unwrap().bodies;
        bodies.iter().any(|body| body.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

fn spans(message: ExportTraceServiceRequest) -> Vec<Span> {
    let mut found = Vec::new();
    for resource in message.resource_spans {
        let of_resource = texts(resource.resource.unwrap_or_default().attributes);
        let service = of_resource.get("service.name").cloned().unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
            assert!(span.events.is_empty() && span.links.is_empty(), "{span:?}");
            let status = span.status.unwrap_or_default();
            assert_eq!(status.message, "", "a status has no text");
            found.push(Span {
                service: service.clone(),
                name: span.name.clone(),
                kind: SpanKind::try_from(span.kind).expect("a kind of the protocol"),
                trace: data_encoding::HEXLOWER.encode(&span.trace_id),
                id: data_encoding::HEXLOWER.encode(&span.span_id),
                parent: data_encoding::HEXLOWER.encode(&span.parent_span_id),
                attributes: texts(span.attributes),
                failed: status.code == 2,
            });
        }
    }
    found
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |attribute: KeyValue| match attribute.value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => (attribute.key, text),
        other => (attribute.key, format!("{other:?}")),
    };
    attributes.into_iter().map(text).collect()
}
