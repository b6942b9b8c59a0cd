//! `/metrics`: the gateway's figures, in the text format of Prometheus.
//!
//! They concern all tenants together, so only the operator may read them: with the operator's own token, or on a
//! listener of its own. No API key and no token of a user opens them, whatever its rights.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use headers::{Authorization, HeaderMapExt as _, authorization::Bearer};
use prometheus::TextEncoder;
use protocol::ErrorCode;
use registry::DatabaseStats;
use sandbox::PoolStats;

use crate::connections::tls::Tls;
use crate::error::ApiError;
use crate::metrics::Snapshot;
use crate::state::{Gateway, SharedGateway};

/// The only path of the figures.
pub(super) const PATH: &str = "/metrics";

/// The content type of the format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the routes of the operator's own listener.
pub(crate) fn router(gateway: SharedGateway) -> Router {
    Router::new()
        .route(PATH, get(async |State(gateway): State<SharedGateway>| answer(&gateway)))
        .with_state(gateway)
        .fallback(async |uri: Uri| ApiError::no_such_path(uri.path()))
        .method_not_allowed_fallback(async |method: Method| ApiError::no_such_method(&method))
}

/// Serves the figures to the operator.
///
/// # Errors
/// Returns `UNAUTHORIZED` without the operator's token; without such a token, always.
pub(super) async fn get_metrics(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let sent = headers.typed_get::<Authorization<Bearer>>();
    let is_operator = match (&gateway.metrics_token, &sent) {
        (Some(token), Some(sent)) => token.is(sent.token()),
        _ => false,
    };
    if !is_operator {
        let message = "the request does not carry the operator's token for metrics";
        return Err(ApiError::new(ErrorCode::Unauthorized, message));
    }
    Ok(answer(&gateway))
}

fn answer(gateway: &Gateway) -> Response {
    let mut families = gateway.metrics.gather();
    families.extend(state_of(gateway).into_families());
    // A reader compares the answers of two gateways, or of two moments.
    families.sort_by(|one, other| one.name().cmp(other.name()));
    match TextEncoder::new().encode_to_string(&families) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT), (header::CACHE_CONTROL, "no-store")], text)
            .into_response(),
        Err(error) => {
            tracing::error!(error = %error, "Could not write the metrics");
            ApiError::new(ErrorCode::Internal, "the metrics could not be written").into_response()
        }
    }
}

/// Reads the state of the gateway's parts. It asks neither the database nor a child process, so that it answers when
/// they do not.
fn state_of(gateway: &Gateway) -> Snapshot {
    let snapshot = Snapshot::new();
    snapshot.process();
    let help = "The version of the gateway, as a label.";
    snapshot.gauge("pml_build_info", help, ["version"], [([env!("CARGO_PKG_VERSION")], 1.0)]);
    let queue = gateway.queue.stats();
    let help = "Programs that are running, of all tenants.";
    snapshot.gauge("pml_programs_running", help, [], [([], queue.running as f64)]);
    let help = "Programs that wait in the queue of their tenant.";
    snapshot.gauge("pml_programs_queued", help, [], [([], queue.waiting as f64)]);
    let help = "Upstreams that are not called at present, because they failed several times in a row. Each tenant counts separately.";
    let open = gateway.upstreams.open_breakers();
    snapshot.gauge("pml_upstream_breakers_open", help, [], [([], open as f64)]);
    let help = "`stdio` servers that run on the gateway, of all tenants.";
    let running = gateway.stdio.running() as f64;
    snapshot.gauge("pml_stdio_processes", help, [], [([], running)]);
    let help = "Traces of executions that were not stored, because the database did not take them.";
    let dropped = gateway.traces.dropped_in_total();
    snapshot.counter("pml_traces_dropped_total", help, [], [([], dropped as f64)]);
    let help = "Spans that were not exported, because the collector did not take them.";
    let dropped = execution::spans::dropped();
    snapshot.counter("pml_spans_dropped_total", help, [], [([], dropped as f64)]);
    if let Some(tls) = &gateway.tls {
        certificate(&snapshot, tls);
    }
    sandboxes(&snapshot, gateway);
    let registry = gateway.registry.stats();
    database(&snapshot, &registry.database);
    let caches = registry.caches.iter().flat_map(|(cache, stats)| {
        [([*cache, "hit"], stats.hits as f64), ([*cache, "miss"], stats.misses as f64)]
    });
    let help = "Look-ups in the caches of the registry.";
    snapshot.counter("pml_cache_requests_total", help, ["cache", "result"], caches);
    snapshot
}

fn certificate(snapshot: &Snapshot, tls: &Tls) {
    let help = "When the TLS certificate in use expires, in seconds since 1970.";
    let name = "pml_tls_certificate_expiry_timestamp_seconds";
    snapshot.gauge(name, help, [], [([], tls.not_after() as f64)]);
    let help = "Whether the files contain the TLS certificate in use: 1, or 0 if they were changed and cannot be used.";
    let is_current = f64::from(u8::from(tls.is_current()));
    snapshot.gauge("pml_tls_certificate_current", help, [], [([], is_current)]);
}

fn database(snapshot: &Snapshot, stats: &DatabaseStats) {
    let help = "Whether the database answers: 1 or 0.";
    snapshot.gauge("pml_database_up", help, [], [([], f64::from(u8::from(stats.is_up)))]);
    let help = "Open database connections.";
    let states = [(["busy"], stats.busy as f64), (["idle"], stats.idle as f64)];
    snapshot.gauge("pml_database_connections", help, ["state"], states);
    let help = "The maximum number of database connections.";
    snapshot.gauge("pml_database_connections_max", help, [], [([], f64::from(stats.max))]);
    let help = "Requests that wait for a database connection.";
    snapshot.gauge("pml_database_waiting", help, [], [([], stats.waiting as f64)]);
    let help = "Attempts to get a database connection.";
    let ends = [(["success"], stats.acquired as f64), (["failure"], stats.failed as f64)];
    snapshot.counter("pml_database_acquires_total", help, ["outcome"], ends);
    let help = "The total time for which requests waited for a database connection.";
    let wait = stats.wait.as_secs_f64();
    snapshot.counter("pml_database_acquire_seconds_total", help, [], [([], wait)]);
}

fn sandboxes(snapshot: &Snapshot, gateway: &Gateway) {
    let pools: [(&'static str, PoolStats); 3] = [
        ("programs", gateway.sandboxes.stats()),
        ("capabilities", gateway.nested.stats()),
        ("analysis", gateway.analyser.stats()),
    ];
    let each = |read: fn(&PoolStats) -> f64| {
        pools.iter().map(move |(pool, stats)| ([*pool], read(stats))).collect::<Vec<_>>()
    };
    let started = each(|stats| stats.started as f64);
    let help = "Sandbox processes that started.";
    snapshot.counter("pml_sandbox_children_started_total", help, ["pool"], started);
    let failed = each(|stats| stats.failed_starts as f64);
    let help = "Sandbox processes that could not be started.";
    snapshot.counter("pml_sandbox_start_failures_total", help, ["pool"], failed);
    let cpu = each(|stats| stats.cpu.as_secs_f64());
    let help = "CPU time of the work in sandboxes.";
    snapshot.counter("pml_sandbox_cpu_seconds_total", help, ["pool"], cpu);
    let waiting = each(|stats| stats.waiting as f64);
    let help = "Programs and analyses that wait for a sandbox.";
    snapshot.gauge("pml_sandbox_waiting", help, ["pool"], waiting);
    let states = pools.iter().flat_map(|(pool, stats)| {
        [
            ([*pool, "warm"], stats.warm as f64),
            ([*pool, "starting"], stats.starting as f64),
            ([*pool, "busy"], stats.busy as f64),
        ]
    });
    let help = "Sandbox processes, by state.";
    snapshot.gauge("pml_sandbox_children", help, ["pool", "state"], states);
    let kills = pools.iter().flat_map(|(pool, stats)| {
        [
            ([*pool, "cpu"], stats.ended_by_cpu as f64),
            ([*pool, "memory"], stats.ended_by_memory as f64),
            ([*pool, "wall"], stats.ended_by_wall as f64),
            ([*pool, "crash"], stats.crashed as f64),
        ]
    });
    let help = "Programs and analyses that a limit ended, or whose process crashed.";
    snapshot.counter("pml_sandbox_kills_total", help, ["pool", "reason"], kills);
}
