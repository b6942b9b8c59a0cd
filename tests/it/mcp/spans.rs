//! Spans of OpenTelemetry, as a collector receives them.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use super::trace_context::{PARENT, echo_over_http, tenant_at};
use crate::registry::capabilities::published;
use crate::support::cli::text;
use crate::support::collector::{Collector, Span};
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::scope_of;
use crate::support::{PATIENCE, poll};

/// The trace and the span of [`PARENT`].
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const AGENT: &str = "00f067aa0ba902b7";

/// The operator's token for metrics.
const TOKEN: &str = "operator-0123456789abcdef0123456789abcdef";

/// The header with the operator's credential for the collector.
const HEADERS: &str = "authorization=Bearer%20canary-of-header";

fn gateway(collector: &Collector, more: &[(&str, &str)]) -> (Installation, Server) {
    let home = Installation::new();
    let mut settings = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", HEADERS),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];
    settings.extend(more);
    let server = home.start_with(&settings);
    (home, server)
}

/// Calls a tool with a trace context; returns the structured content of the result.
#[track_caller]
fn call(tenant: &Tenant, name: &str, arguments: &Value, parent: &str) -> Value {
    let params =
        json!({ "name": name, "arguments": arguments, "_meta": { "traceparent": parent } });
    let answer = HttpMcp::new(tenant, Era::Stateless).request("tools/call", params);
    answer["result"]["structuredContent"].clone()
}

/// Returns the only span with this name.
#[track_caller]
fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

fn has(spans: &[Span], name: &str) -> bool {
    spans.iter().any(|span| span.name == name)
}

/// A program with a native tool, an upstream and a capability that calls the upstream again: one trace, whose parents are
/// right. The upstream gets the id of the span of its call.
#[test]
fn a_program_on_the_gateway_is_one_trace() {
    let (collector, upstream) = (Collector::start(), echo_over_http());
    let (_home, server) = gateway(&collector, &[]);
    let tenant = tenant_at(&server, &upstream);
    published(&tenant, "through.run", "/** Echoes. */ return await mcp.far.echo({});");
    let code = "/* canary-of-code */
        const direct = await mcp.far.echo({ given: args.secret });
        const upper = await mcp.string.upper({ text: args.secret });
        const within = await mcp.through.run({});
        return { direct, upper, within };";
    let arguments = json!({ "code": code, "args": { "secret": "canary-of-args" } });
    let envelope = call(&tenant, "pml_execute", &arguments, PARENT);
    let result = success(&envelope);
    let is_complete = |spans: &[Span]| has(spans, "tools/call pml_execute");
    let spans = collector.trace(TRACE, is_complete);

    let door = one(&spans, "tools/call pml_execute");
    assert_eq!((door.parent.as_str(), door.kind), (AGENT, SpanKind::Server));
    assert_eq!(door.service, "pml-server");
    for (name, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "pml_execute"),
        ("mcp.protocol.version", "2026-07-28"),
        ("jsonrpc.request.id", "1"),
        ("network.transport", "tcp"),
        ("pml.execution.id", envelope["execution_id"].as_str().unwrap()),
    ] {
        assert_eq!(door.attribute(name), Some(value), "{name}: {door:#?}");
    }
    assert_eq!(one(&spans, "pml.analyze").parent, door.id);
    let run = one(&spans, "pml.run");
    assert_eq!((&run.parent, run.kind), (&door.id, SpanKind::Internal));
    assert_eq!(one(&spans, "execute_tool string:upper").parent, run.id);
    let capability = one(&spans, "execute_tool through:run");
    assert_eq!(capability.parent, run.id);
    let tools = spans.iter().filter(|span| span.name == "execute_tool far:echo");
    let tools: Vec<&Span> = tools.collect();
    let parents: Vec<&str> = tools.iter().map(|span| span.parent.as_str()).collect();
    assert_eq!(parents, [&run.id, &capability.id], "{spans:#?}");
    let sent = spans.iter().filter(|span| span.name == "tools/call echo").collect::<Vec<_>>();
    assert_eq!(sent.len(), 2, "{spans:#?}");
    for (place, call) in sent.iter().enumerate() {
        assert_eq!((&call.parent, call.kind), (&tools[place].id, SpanKind::Client));
        assert_eq!(call.attribute("gen_ai.tool.name"), Some("echo"));
        let echoed = &result[if place == 0 { "direct" } else { "within" }];
        let expected = format!("00-{TRACE}-{}-01", call.id);
        assert_eq!(echoed["meta"]["traceparent"], json!(expected), "{echoed:#}");
        assert_eq!(echoed["headers"]["traceparent"], json!(expected), "{echoed:#}");
    }
    assert!(spans.iter().all(|span| !span.failed), "{spans:#?}");
    assert_eq!(spans.len(), 9, "{spans:#?}");

    // Nothing of the code, the values, the tenant, the addresses and the keys.
    assert!(collector.has_bytes_of("execute_tool through:run"));
    let scope = scope_of(&tenant);
    let (org, _) = scope.split_once('.').unwrap();
    for secret in ["canary", "CANARY", org, &tenant.key, &upstream.url[7..], "given"] {
        assert!(!collector.has_bytes_of(secret), "{secret}: {spans:#?}");
    }
}

/// A failure has the kind and the code of its error, and no text of it; what is not the name of a tool is not shown.
#[test]
fn a_failure_has_its_code() {
    let (collector, upstream) = (Collector::start(), echo_over_http());
    let (_home, server) = gateway(&collector, &[]);
    let tenant = tenant_at(&server, &upstream);
    let code = json!({ "code": "return await mcp.math.eval({ expression: 'canary +' })" });
    failure(&call(&tenant, "pml_execute", &code, PARENT), "INVALID_ARGUMENTS");
    let spans = collector.trace(TRACE, |spans| has(spans, "tools/call pml_execute"));
    let tool = one(&spans, "execute_tool math:eval");
    assert_eq!(
        (tool.failed, tool.attribute("error.type")),
        (true, tool.attribute("pml.error.code"))
    );
    assert_eq!(tool.attribute("error.type"), Some("INVALID_ARGUMENTS"), "{tool:#?}");
    let door = one(&spans, "tools/call pml_execute");
    assert_eq!((door.failed, door.attribute("error.type")), (true, Some("tool_error")));
    assert_eq!(door.attribute("pml.error.code"), Some("INVALID_ARGUMENTS"), "{door:#?}");

    let other = PARENT.replace(TRACE, "5bf92f3577b34da6a3ce929d0e0e4736");
    call(&tenant, "canary of a name", &json!({}), &other);
    let spans = collector.trace(&other[3..35], |spans| has(spans, "tools/call"));
    assert_eq!(one(&spans, "tools/call").attribute("gen_ai.tool.name"), None);
    for secret in ["canary", "expression"] {
        assert!(!collector.has_bytes_of(secret), "{secret}: {spans:#?}");
    }
}

/// TR-09: the client's decision counts, within that of the operator. A request without a credential has no span.
#[test]
fn an_unsampled_trace_is_not_exported() {
    let (collector, upstream) = (Collector::start(), echo_over_http());
    let (_home, server) = gateway(&collector, &[]);
    let tenant = tenant_at(&server, &upstream);
    let other = "5bf92f3577b34da6a3ce929d0e0e4736";
    let unsampled = PARENT.replace("-01", "-00").replace(TRACE, other);
    let echoed = call(&tenant, "far:echo", &json!({}), &unsampled);
    let passed = echoed["meta"]["traceparent"].as_str().unwrap();
    assert!(passed.starts_with(&format!("00-{other}-")) && passed.ends_with("-00"), "{passed}");
    let nobody = Tenant { key: "pml_key_wrong".to_owned(), url: tenant.url.clone() };
    let third = PARENT.replace(TRACE, "6bf92f3577b34da6a3ce929d0e0e4736");
    let params = json!({ "name": "far:echo", "arguments": {}, "_meta": { "traceparent": third } });
    let body = Era::Stateless.request(1, "tools/call", params).to_string();
    let refused =
        HttpMcp::new(&nobody, Era::Stateless).post(body.as_bytes(), "tools/call", Some("far:echo"));
    assert_eq!(refused.status, 401);
    // Sent after the others.
    call(&tenant, "far:echo", &json!({}), PARENT);
    collector.trace(TRACE, |spans| has(spans, "tools/call far:echo"));
    let traces = collector.spans();
    assert!(traces.iter().all(|span| span.trace == TRACE), "{traces:#?}");

    let (_home, server) = gateway(&collector, &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let tenant = tenant_at(&server, &upstream);
    let before = collector.heads().len();
    let echoed = call(&tenant, "far:echo", &json!({}), PARENT);
    let passed = echoed["meta"]["traceparent"].as_str().unwrap();
    assert!(passed.starts_with(&format!("00-{TRACE}-")) && passed.ends_with("-00"), "{passed}");
    // What waits is sent before the gateway ends.
    assert_eq!(server.stop(), Some(0));
    assert_eq!(collector.heads().len(), before);
}

/// The credential for the collector is in its header and nowhere else. The settings that cannot be used are named.
#[test]
fn the_headers_are_a_secret() {
    let (collector, upstream) = (Collector::start(), echo_over_http());
    let (home, server) = gateway(&collector, &[("PML_LOG", "trace")]);
    let tenant = tenant_at(&server, &upstream);
    call(&tenant, "far:echo", &json!({}), PARENT);
    collector.trace(TRACE, |spans| has(spans, "tools/call far:echo"));
    let heads = collector.heads();
    let is_sent = |head: &String| head.contains("authorization: Bearer canary-of-header");
    assert!(!heads.is_empty() && heads.iter().all(is_sent), "{heads:#?}");
    // Logged as a failure, which shows neither.
    collector.answer_with(401);
    call(&tenant, "far:echo", &json!({}), PARENT);
    poll("the failure is logged", PATIENCE, || {
        home.log().contains("Spans are dropped").then_some(())
    });
    let log = home.log();
    assert!(!log.contains("canary"), "{log}");
    drop(server);
    for (name, value) in
        [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_HEADERS", "canary")]
    {
        let mut command = home.command(&[]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).env(name, value);
        let refused = command.output().unwrap();
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(name), "{said}");
        assert!(!said.contains("canary"), "{said}");
    }
}

/// TR-10: with a collector that refuses connections, answers nothing or answers with errors, programs run as before, the
/// queue stays bounded, what it drops is counted, and the gateway stops in time.
#[test]
fn a_collector_that_takes_nothing_affects_nothing() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let down = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let silent = GatewayStub::start(|_| Answer::Never);
    let failing = Collector::start();
    failing.answer_with(500);
    let upstream = echo_over_http();
    for url in [&down, &silent.url, &failing.url] {
        let home = Installation::new();
        let server = home.start_with(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
            ("PML_METRICS_TOKEN", TOKEN),
        ]);
        let tenant = tenant_at(&server, &upstream);
        let client = HttpMcp::new(&tenant, Era::Stateless);
        for _ in 0..4 {
            let code = "return [await mcp.far.echo({}), await mcp.far.echo({})].length";
            assert_eq!(*success(&client.execute(code)), 2);
        }
        poll("dropped spans are counted", PATIENCE, || {
            let bearer = format!("Bearer {TOKEN}");
            let reply = get(&format!("{}/metrics", server.url()), &[("authorization", &bearer)]);
            let body = text(&reply.body);
            let count = body.lines().find_map(|it| it.strip_prefix("pml_spans_dropped_total "))?;
            count.parse::<f64>().is_ok_and(|count| count > 0.0).then_some(())
        });
        let began = Instant::now();
        assert_eq!(server.stop(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}
