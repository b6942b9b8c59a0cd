//! Spans of OpenTelemetry, as a collector receives them.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use super::trace_context::{PARENT, echo_over_http, project, tenant_at};
use crate::registry::capabilities::published;
use crate::support::cli::{Project, text};
use crate::support::collector::{Collector, Span};
use crate::support::expect::{failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::{Era, envelope};
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

/// Prepares `pml` so that it exports, too.
fn exporting(project: Project, collector: &Collector) -> Project {
    project
        .set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .set("OTEL_EXPORTER_OTLP_HEADERS", HEADERS)
        .set("OTEL_BSP_SCHEDULE_DELAY", "50")
}

/// A mixed program, end to end: the agent, `pml`, a server on stdio, the gateway and an upstream are in one trace, whose
/// parents, kinds and names are right. Nothing of the values is in it.
#[test]
fn a_mixed_program_is_one_trace_from_the_agent_to_the_upstream() {
    let (collector, web, upstream) = (Collector::start(), echo_over_http(), echo_over_http());
    let (_home, server) = gateway(&collector, &[]);
    let tenant = tenant_at(&server, &upstream);
    let project = exporting(project(&tenant, &web, &["near:*", "filesystem:*"]), &collector);
    project.write("canary-of-a-path.txt", "canary-of-a-file");
    let code = "/* canary-of-code */
        const near = await mcp.near.echo({ given: args.secret });
        const text = await mcp.filesystem.read_text_file({ path: 'canary-of-a-path.txt' });
        const far = await mcp.far.echo({ text });
        return { near, far, text };";
    let mut pml = project.stdio_stateless();
    let arguments = json!({ "code": code, "args": { "secret": "canary-of-args" } });
    let params = json!({ "name": "pml_execute", "arguments": arguments,
        "_meta": { "traceparent": PARENT, "baggage": "user=canary-of-baggage" } });
    let asked = envelope(&pml.request("tools/call", params)["result"]);
    // The call of `far` needs approval, which the second request brings.
    question(&asked);
    let ended = pml.resume(&asked, true, false);
    let result = success(&ended);
    // The spans of `pml` and of the gateway arrive independently.
    let spans = collector.trace(TRACE, |spans| {
        let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
        has(spans, "pml.run")
            && count("tools/call echo") == 2
            && count("tools/call far:echo") == 2
            && count("tools/call pml_execute") == 3
    });
    let of = |service: &str, name: &str, kind: SpanKind| {
        let is = |span: &&Span| span.service == service && span.name == name && span.kind == kind;
        let found: Vec<Span> = spans.iter().filter(is).cloned().collect();
        assert_eq!(found.len(), 1, "{service} {name}: {spans:#?}");
        found[0].clone()
    };
    let (pml_name, gateway_name) = ("pml", "pml-server");
    let door = of(pml_name, "tools/call pml_execute", SpanKind::Server);
    assert_eq!((door.parent.as_str(), door.attribute("network.transport")), (AGENT, Some("pipe")));
    assert_eq!(of(pml_name, "pml.analyze", SpanKind::Internal).parent, door.id);
    // The gateway is asked what it knows of the program.
    let asks = of(pml_name, "tools/call pml_execute", SpanKind::Client);
    assert_eq!(asks.parent, door.id);
    let decides = of(gateway_name, "tools/call pml_execute", SpanKind::Server);
    assert_eq!(decides.parent, asks.id);
    assert_eq!(of(gateway_name, "pml.analyze", SpanKind::Internal).parent, decides.id);

    let run = of(pml_name, "pml.run", SpanKind::Internal);
    assert_eq!(run.parent, door.id);
    assert_eq!(run.attribute("pml.run.id"), ended["execution_id"].as_str());
    for (tool, routing) in
        [("near:echo", "client"), ("filesystem:read_text_file", "client"), ("far:echo", "server")]
    {
        let span = of(pml_name, &format!("execute_tool {tool}"), SpanKind::Internal);
        assert_eq!((&span.parent, span.attribute("pml.routing")), (&run.id, Some(routing)));
    }
    assert!(has(&spans, "pml.approval"), "{spans:#?}");
    let near = of(pml_name, "tools/call echo", SpanKind::Client);
    assert_eq!(near.parent, of(pml_name, "execute_tool near:echo", SpanKind::Internal).id);
    assert_eq!(near.attribute("network.transport"), Some("pipe"));
    assert_eq!(result["near"]["meta"]["traceparent"], format!("00-{TRACE}-{}-01", near.id));

    let sends = of(pml_name, "tools/call far:echo", SpanKind::Client);
    assert_eq!(sends.parent, of(pml_name, "execute_tool far:echo", SpanKind::Internal).id);
    let takes = of(gateway_name, "tools/call far:echo", SpanKind::Server);
    assert_eq!(takes.parent, sends.id);
    let executes = of(gateway_name, "execute_tool far:echo", SpanKind::Internal);
    assert_eq!(executes.parent, takes.id);
    let calls = of(gateway_name, "tools/call echo", SpanKind::Client);
    assert_eq!(calls.parent, executes.id);
    let expected = format!("00-{TRACE}-{}-01", calls.id);
    assert_eq!(result["far"]["meta"]["traceparent"], json!(expected));
    assert_eq!(result["far"]["headers"]["traceparent"], json!(expected));
    assert!(spans.iter().all(|span| !span.failed), "{spans:#?}");

    let scope = scope_of(&tenant);
    let (org, _) = scope.split_once('.').unwrap();
    let folder = project.workspace().display().to_string();
    for secret in
        ["canary", org, &tenant.key, &upstream.url[7..], &server.url()[7..], &folder, "given"]
    {
        assert!(!collector.has_bytes_of(secret), "{secret}: {spans:#?}");
    }
    let heads = collector.heads();
    assert!(heads.iter().all(|head| head.contains("Bearer canary-of-header")), "{heads:#?}");
}

/// The spans of a command are sent before it ends. A collector that does not answer delays the end by a second at most,
/// and its result not at all; settings that cannot be used are a warning.
#[test]
fn a_command_sends_its_spans_and_does_not_wait_for_long() {
    let collector = Collector::start();
    let code = b"return await mcp.filesystem.read_text_file({ path: 'a.txt' })";
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("a.txt", "canary");
    // Gathered for longer than the command lasts.
    let project = exporting(project, &collector).set("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let ran = project.run_with(&["exec", "-"], code);
    assert_eq!((text(&ran.stdout).as_str(), ran.status.code()), ("canary\n", Some(0)));
    let spans = collector.spans();
    let root = one(&spans, "pml exec");
    assert_eq!((root.parent.as_str(), root.kind), ("", SpanKind::Internal));
    assert_eq!(one(&spans, "pml.run").parent, root.id);
    assert_eq!(one(&spans, "execute_tool filesystem:read_text_file").trace, root.trace);
    assert!(!collector.has_bytes_of("canary") && !collector.has_bytes_of("a.txt"));

    let silent = GatewayStub::start(|_| Answer::Never);
    let project = project.set("OTEL_EXPORTER_OTLP_ENDPOINT", &silent.url);
    let began = Instant::now();
    let ran = project.run_with(&["exec", "-"], code);
    assert_eq!((text(&ran.stdout).as_str(), ran.status.code()), ("canary\n", Some(0)));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(silent.requests() > 0);

    // A credential is not sent in clear text to another machine.
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ] {
        let project = Project::offline()
            .allow(&["filesystem:read_text_file"])
            .set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
            .set("OTEL_EXPORTER_OTLP_HEADERS", HEADERS)
            .set(name, value);
        project.write("a.txt", "text\n");
        let before = collector.heads().len();
        let ran = project.run_with(&["exec", "-"], code);
        assert_eq!((text(&ran.stdout).as_str(), ran.status.code()), ("text\n", Some(0)));
        let said = text(&ran.stderr);
        assert!(said.contains("Spans are not exported") && !said.contains("canary"), "{said}");
        assert_eq!(collector.heads().len(), before);
    }
}

/// P8: only the user's environment turns exporting on; what a project contains does not.
#[test]
fn a_project_does_not_turn_exporting_on() {
    let collector = Collector::start();
    let code = b"return await mcp.filesystem.read_text_file({ path: 'a.txt' })";
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("a.txt", "text\n");
    project.write(".env", format!("OTEL_EXPORTER_OTLP_ENDPOINT={}\n", collector.url));
    let ran = project.run_with(&["exec", "-"], code);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(collector.heads().is_empty());
    let project = exporting(project, &collector);
    assert_eq!(project.run_with(&["exec", "-"], code).status.code(), Some(0));
    assert!(!collector.heads().is_empty());
}
