//! `/metrics`: who may read it, and what it counts.

mod documents;
mod exposition;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::gateway::database_outage::Setup;
use crate::support::expect::{failure, success};
use crate::support::http::{HttpMcp, Reply, get, send};
use crate::support::mcp_client::Era;
use crate::support::relay::Network;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, scope_of};
use crate::support::{PATIENCE, poll, scaled};

use exposition::Exposition;

/// The operator's token of these tests.
const TOKEN: &str = "operator-0123456789abcdef0123456789abcdef";

/// The settings of a gateway whose metrics can be read in both ways.
pub(super) const SETTINGS: [(&str, &str); 2] =
    [("PML_METRICS_LISTEN", "127.0.0.1:0"), ("PML_METRICS_TOKEN", TOKEN)];

/// Returns the URL of the operator's own listener, from the start screen.
#[track_caller]
pub(super) fn own_listener(server: &Server) -> String {
    let screen = server.start_screen();
    let line = screen.lines().find_map(|line| line.trim().strip_prefix("metrics "));
    let url = line.and_then(|line| line.trim().split(',').next());
    url.unwrap_or_else(|| panic!("no metrics on the screen:\n{screen}")).to_owned()
}

#[track_caller]
pub(super) fn scrape(url: &str) -> Exposition {
    let reply = get(url, &[]);
    assert_eq!(reply.status, 200, "{url}");
    Exposition::parse(std::str::from_utf8(&reply.body).unwrap())
}

fn with_bearer(url: &str, token: &str) -> Reply {
    get(url, &[("authorization", &format!("Bearer {token}"))])
}

/// GW-01: figures concern all tenants, so no tenant's key opens them, whatever its rights.
#[test]
fn only_the_operator_reads_the_metrics() {
    let server = Installation::new().start_with(&SETTINGS);
    let all = server.tenant_with_rights("execute,read,publish,admin").key;
    let owner = server.installation().first_key();
    let main = format!("{}/metrics", server.url());
    let unauthorized = |reply: Reply, why: &str| {
        assert_eq!((reply.status, &reply.json()["code"]), (401, &json!("UNAUTHORIZED")), "{why}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("# TYPE"), "{why}");
    };
    unauthorized(get(&main, &[]), "no credential");
    for (token, why) in [
        (all.as_str(), "a tenant's admin"),
        (owner.as_str(), "the owner of an organisation"),
        ("", "an empty token"),
        (&TOKEN[1..], "a part of the token"),
        (&format!("{TOKEN}x"), "a longer token"),
    ] {
        unauthorized(with_bearer(&main, token), why);
    }
    unauthorized(get(&main, &[("x-api-key", TOKEN)]), "the token in the header of API keys");
    unauthorized(get(&format!("{main}?token={TOKEN}"), &[]), "the token in the URL");
    let reply = with_bearer(&main, TOKEN);
    assert_eq!(reply.status, 200, "control");
    assert_eq!(reply.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(reply.header("cache-control"), "no-store");
    Exposition::parse(std::str::from_utf8(&reply.body).unwrap());
    // It is no API key.
    let routing = format!("{}/api/v1/routing", server.url());
    assert_eq!(with_bearer(&routing, TOKEN).status, 401);
    assert_eq!(with_bearer(&routing, &all).status, 200, "control");
    assert_eq!(send("POST", &main, &[], None).status, 405);

    // The operator's own listener needs no credential, and serves nothing else.
    let own = own_listener(&server);
    scrape(&own);
    let base = own.strip_suffix("/metrics").unwrap();
    for path in ["/", "/health", "/mcp", "/api/v1/keys", "/version", "/metrics/", "/metricsx"] {
        assert_eq!(with_bearer(&format!("{base}{path}"), &all).status, 404, "{path}");
    }
    assert_eq!(send("POST", &own, &[], None).status, 405);
    assert_eq!(send("POST", &format!("{base}/mcp"), &[], Some(b"{}".to_vec())).status, 404);

    // Without a token in the settings, none is accepted.
    let main = format!("{}/metrics", Server::shared().url());
    for token in ["", TOKEN, &Server::shared().tenant_with_rights("admin").key] {
        unauthorized(with_bearer(&main, token), "a gateway without a token");
    }
    assert!(!server.installation().log().contains(TOKEN), "the token was logged");
    assert_eq!(server.stop(), Some(0));
}

/// A token that can be guessed, and a file that others can read, stop the gateway before it starts anything.
#[test]
fn a_weak_token_for_metrics_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let installation = Installation::new();
    let run = |settings: &[(&str, &str)]| {
        let output = installation.command(&[]).envs(settings.iter().copied()).output().unwrap();
        assert!(!output.status.success());
        assert!(!installation.data_dir().join("postgres").exists(), "Postgres was started");
        String::from_utf8(output.stderr).unwrap()
    };
    let weak = run(&[("PML_METRICS_TOKEN", "secret")]);
    assert!(weak.contains("PML_METRICS_TOKEN") && weak.contains("openssl rand"), "{weak}");
    let folder = installation.data_dir().parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let file = folder.join("token");
    std::fs::write(&file, TOKEN).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let named = ("PML_METRICS_TOKEN_FILE", file.to_str().unwrap());
    let open = run(&[named]);
    assert!(open.contains("chmod 600") && open.contains("token"), "{open}");
    let both = run(&[named, ("PML_METRICS_TOKEN", TOKEN)]);
    assert!(both.contains("not both"), "{both}");
    // Control.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = installation.start_with(&[named]);
    assert_eq!(with_bearer(&format!("{}/metrics", server.url()), TOKEN).status, 200);
    assert_eq!(server.stop(), Some(0));
}

/// Each figure rises by exactly what was done.
#[test]
fn figures_count_what_was_done() {
    let server = Installation::new().start_with(&SETTINGS);
    let tenant = server.tenant();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let package = HttpMcp::new(&tenant, Era::Stateless).with_package();
    let own = own_listener(&server);
    let before = scrape(&own);

    let sum = "return await mcp.math.eval({ expression: '6 * 7' })";
    for _ in 0..3 {
        assert_eq!(success(&client.execute(sum)), 42);
    }
    failure(&client.execute("return ("), "PARSE_ERROR");
    failure(&client.execute("return await mcp.math.nothing({})"), "TOOL_NOT_FOUND");
    failure(&client.execute("throw new Error('no')"), "PROGRAM_FAILED");
    let forever = "while (true) {}";
    let long = client.execute_request(json!({ "code": forever, "options": { "timeout_ms": 300 } }));
    failure(&long, "TIME_LIMIT");
    let local = "return await mcp.filesystem.read_file({ path: 'a' })";
    failure(&client.execute(local), "CLIENT_TOOLS_REQUIRE_PACKAGE");
    assert_eq!(package.execute(local)["status"], "execute_locally");
    success(&client.execute_request(json!({ "code": sum, "options": { "dry_run": true } })));
    client.call("math__eval", json!({ "expression": "1 +" }));
    client.call("math__eval", json!({ "expression": "1 + 1" }));
    assert_eq!(get(&format!("{}/nowhere", server.url()), &[]).status, 404);
    let bearer = format!("Bearer {}", tenant.key);
    let routing = format!("{}/api/v1/routing", server.url());
    assert_eq!(get(&routing, &[("authorization", &bearer)]).status, 200);
    assert_eq!(get(&format!("{}/v0/servers/?limit=1", server.url()), &[]).status, 200);

    let after = scrape(&own);
    let rise = |name: &str, labels: &[(&str, &str)]| {
        after.value(name, labels) - before.value(name, labels)
    };
    let programs = |decision: &str, outcome: &str| {
        rise("pml_programs_total", &[("decision", decision), ("outcome", outcome)])
    };
    assert_eq!(programs("server", "success"), 3.0);
    assert_eq!(programs("server", "error"), 2.0);
    assert_eq!(programs("server", "cancelled"), 0.0);
    assert_eq!(programs("refused", "error"), 3.0);
    assert_eq!(programs("client", "success"), 1.0);
    assert_eq!(programs("dry_run", "success"), 1.0);
    for code in [
        "PARSE_ERROR",
        "TOOL_NOT_FOUND",
        "PROGRAM_FAILED",
        "TIME_LIMIT",
        "CLIENT_TOOLS_REQUIRE_PACKAGE",
    ] {
        assert_eq!(rise("pml_program_errors_total", &[("code", code)]), 1.0, "{code}");
    }
    let durations = |outcome| rise("pml_program_duration_seconds_count", &[("outcome", outcome)]);
    assert_eq!((durations("success"), durations("error")), (3.0, 2.0));
    let spent = rise("pml_program_duration_seconds_sum", &[("outcome", "error")]);
    assert!((0.3..30.0).contains(&spent), "{spent}");
    assert_eq!(rise("pml_program_queue_seconds_count", &[]), 5.0);
    let kills =
        |reason| rise("pml_sandbox_kills_total", &[("pool", "programs"), ("reason", reason)]);
    assert_eq!((kills("wall") + kills("cpu"), kills("memory"), kills("crash")), (1.0, 0.0, 0.0));
    assert!(rise("pml_sandbox_cpu_seconds_total", &[("pool", "programs")]) > 0.0);
    let calls = |outcome| rise("pml_tool_calls_total", &[("type", "native"), ("outcome", outcome)]);
    assert_eq!((calls("success"), calls("error")), (4.0, 1.0));
    let analyses = |outcome| rise("pml_analyses_total", &[("outcome", outcome)]);
    // `sum` is analysed once and found three times, `local` once and once.
    assert_eq!((analyses("analysed"), analyses("cached")), (6.0, 4.0));
    assert_eq!(rise("pml_analysis_duration_seconds_count", &[]), 6.0);
    let requests = |method, route, status| {
        rise("pml_http_requests_total", &[("method", method), ("route", route), ("status", status)])
    };
    assert_eq!(requests("POST", "/mcp", "2xx"), 12.0);
    assert_eq!(requests("GET", "none", "4xx"), 1.0);
    assert_eq!(requests("GET", "/api/v1/routing", "2xx"), 1.0);
    assert_eq!(requests("GET", "/v0.1/servers", "2xx"), 1.0, "an old spelling");
    let latencies = [("method", "POST"), ("route", "/mcp")];
    assert_eq!(rise("pml_http_request_duration_seconds_count", &latencies), 12.0);
    for gauge in [
        "pml_http_requests_in_progress",
        "pml_programs_running",
        "pml_programs_queued",
        "pml_upstream_breakers_open",
    ] {
        assert_eq!(after.value(gauge, &[]), 0.0, "{gauge}");
    }
    assert_eq!(after.value("pml_database_up", &[]), 1.0);
    assert!(rise("pml_database_acquires_total", &[("outcome", "success")]) > 0.0);
    assert!(rise("pml_cache_requests_total", &[("cache", "keys"), ("result", "hit")]) > 0.0);
    assert!(after.value("process_resident_memory_bytes", &[]) > 1e6);
    assert!(after.value("process_open_fds", &[]) > 3.0);
    assert_eq!(server.stop(), Some(0));
}

/// A program that runs, and one that waits, are in the gauges; one that finds no place is counted as refused.
#[test]
fn running_queued_and_refused_programs_are_counted() {
    let mut settings = SETTINGS.to_vec();
    settings.extend([("PML_TENANT_PROGRAMS", "1"), ("PML_TENANT_WAITING", "1")]);
    let server = Installation::new().start_with(&settings);
    let tenant = server.tenant();
    let own = own_listener(&server);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Until its own time limit: nothing else has to happen meanwhile.
                let code = "await new Promise((done) => setTimeout(done, 25_000))";
                HttpMcp::new(&tenant, Era::Stateless)
                    .execute_request(json!({ "code": code, "options": { "timeout_ms": 4_000 } }))
            });
        }
        poll("one running and one queued program", PATIENCE, || {
            let now = scrape(&own);
            let counts = ["pml_programs_running", "pml_programs_queued"];
            (counts.map(|name| now.value(name, &[])) == [1.0, 1.0]).then_some(())
        });
        failure(&HttpMcp::new(&tenant, Era::Stateless).execute("return 1"), "BUSY");
        let now = scrape(&own);
        assert_eq!(now.value("pml_refusals_total", &[("limit", "programs")]), 1.0);
        assert_eq!(
            now.value("pml_sandbox_children", &[("pool", "programs"), ("state", "busy")]),
            1.0
        );
    });
    poll("both to end", PATIENCE, || {
        let now = scrape(&own);
        let ended = [("decision", "server"), ("outcome", "error")];
        (now.value("pml_programs_total", &ended) == 2.0).then_some(())
    });
    assert_eq!(scrape(&own).value("pml_programs_running", &[]), 0.0);
    assert_eq!(server.stop(), Some(0));
}

/// P3: nothing that a tenant names is shown, and no caller can create a series.
#[test]
fn callers_cannot_put_text_or_series_into_the_metrics() {
    let server = Installation::new().start_with(&SETTINGS);
    let operator = server.installation();
    operator.run_ok(&["scope", "create", "canaryorg.canaryproject"]);
    let key = operator.run_ok(&["keys", "create", "--scope", "canaryorg.canaryproject"]);
    let tenant = Tenant { key: key.trim().to_owned(), url: server.url().to_owned() };
    let client = HttpMcp::new(&tenant, Era::Stateless);
    // Nothing listens there.
    let url = "http://127.0.0.1:9/canaryurl";
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "canaryserver", url);
    entry.tools = vec![json!({ "name": "canarytool", "inputSchema": { "type": "object" } })];
    entry.publish(operator);
    poll("the entry", PATIENCE, || {
        let called = client.execute("return await mcp.canaryserver.canarytool({})");
        (called["error_code"] != "TOOL_NOT_FOUND").then_some(())
    });
    let odd = |number: usize| {
        let paths = [
            format!("/canary{number}"),
            format!("/mcp/canary{number}.a.b"),
            format!("/mcp/proxy/canary{number}"),
            format!("/v0.1/servers/canary{number}/versions"),
            format!("/api/v1/keys/canary{number}"),
        ];
        let methods =
            ["GET", "POST", "DELETE", "BREW", &format!("CANARY{number}")].map(str::to_owned);
        let text = format!("canary{number}");
        let headers =
            [("user-agent", text.as_str()), ("x-request-id", &text), ("x-forwarded-for", &text)];
        let url = format!("{}{}?canary={number}", server.url(), paths[number % 5]);
        send(&methods[number / 5 % 5], &url, &headers, None);
    };
    let own = own_listener(&server);
    // All pairs of a path and a method, so that each series exists.
    (0..25).for_each(odd);
    let before = scrape(&own);
    (25..500).for_each(odd);
    for number in 0..scaled(100) {
        let code = format!("const canary = {number}; return await mcp.canary{number}.tool({{}})");
        failure(&client.execute(&code), "TOOL_NOT_FOUND");
        failure(&client.execute("throw new Error('canary')"), "PROGRAM_FAILED");
    }
    let text = String::from_utf8(get(&own, &[]).body).unwrap();
    assert!(!text.to_lowercase().contains("canary"), "{text}");
    assert!(!text.contains("127.0.0.1") && !text.contains("BREW"), "{text}");
    let after = Exposition::parse(&text);
    after.assert_not_below(&before);
    let count = |it: &Exposition| {
        ["2xx", "4xx"].map(|status| {
            it.value(
                "pml_http_requests_total",
                &[("method", "GET"), ("route", "none"), ("status", status)],
            )
        })
    };
    assert!(count(&after) > count(&before), "control: the requests were counted");
    // The programs' errors add their codes, and their requests one method of one route: far fewer than the requests.
    let grown = after.len() - before.len();
    assert!(grown <= 60, "{grown} new series");
    let full = scrape(&own).len();
    (500..700).for_each(odd);
    assert_eq!(scrape(&own).len(), full);
    assert!(full < 3_000, "{full} series");
    assert_eq!(server.stop(), Some(0));
}

/// An upstream that fails is counted, and so is the pause that follows; neither its URL nor its tenant is shown.
#[test]
fn calls_of_a_failing_upstream_are_counted() {
    let server = Installation::new().start_with(&SETTINGS);
    let tenant = server.tenant();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "gone", "http://127.0.0.1:9/mcp");
    entry.tools = vec![json!({ "name": "ask", "inputSchema": { "type": "object" } })];
    entry.publish(server.installation());
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let own = own_listener(&server);
    let call = || client.execute("return await mcp.gone.ask({})");
    poll("the entry", PATIENCE, || (call()["error_code"] != "TOOL_NOT_FOUND").then_some(()));
    let open = poll("the upstream to be paused", PATIENCE, || {
        failure(&call(), "TOOL_UNAVAILABLE");
        let now = scrape(&own);
        (now.value("pml_upstream_breakers_open", &[]) == 1.0).then_some(now)
    });
    let ended =
        |it: &Exposition, outcome| it.value("pml_upstream_calls_total", &[("outcome", outcome)]);
    assert_eq!((ended(&open, "unavailable"), ended(&open, "success")), (5.0, 0.0));
    failure(&call(), "TOOL_UNAVAILABLE");
    let now = scrape(&own);
    assert_eq!(ended(&now, "paused") - ended(&open, "paused"), 1.0);
    assert_eq!(now.value("pml_upstream_call_duration_seconds_count", &[]), 5.0);
    // The same, by the semantic conventions of MCP.
    let measured = |side: &str, error: &str| {
        let labels = [
            ("mcp_method_name", "tools/call"),
            ("network_transport", "tcp"),
            ("error_type", error),
        ];
        now.value(&format!("mcp_{side}_operation_duration_seconds_count"), &labels)
    };
    assert_eq!(measured("client", "connection_error"), 5.0);
    assert_eq!(measured("client", ""), 0.0);
    let answered = measured("server", "tool_error");
    assert!(answered >= 6.0, "{answered}");
    let calls = [("type", "http"), ("outcome", "error")];
    assert_eq!(
        now.value("pml_tool_calls_total", &calls),
        ended(&now, "unavailable") + ended(&now, "paused")
    );
    assert_eq!(server.stop(), Some(0));
}

/// the figures are served during an outage of the database, and tell of it.
#[test]
fn metrics_are_served_without_the_database() {
    let setup = Setup::new(&SETTINGS);
    let own = own_listener(&setup.gateway);
    let is_up = |expected: f64| {
        poll("the database's state", PATIENCE, || {
            let began = Instant::now();
            let now = scrape(&own).value("pml_database_up", &[]);
            assert!(began.elapsed() < Duration::from_secs(5), "an answer waited for the database");
            (now == expected).then_some(())
        });
    };
    is_up(1.0);
    for network in [Network::Down, Network::Blackhole] {
        setup.relay.set(network);
        is_up(0.0);
        setup.relay.set(Network::Normal);
        is_up(1.0);
    }
}

/// Concurrent scrapes under load are complete, and no counter falls.
#[test]
fn concurrent_scrapes_are_consistent_under_load() {
    let server = Installation::new().start_with(&SETTINGS);
    let tenant = server.tenant();
    let own = own_listener(&server);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = HttpMcp::new(&tenant, Era::Stateless);
                for number in 0..scaled(200) {
                    assert_eq!(
                        success(&client.execute(&format!("return {number}"))),
                        &json!(number)
                    );
                }
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last: Option<Exposition> = None;
                for _ in 0..scaled(100) {
                    let began = Instant::now();
                    let now = scrape(&own);
                    assert!(began.elapsed() < Duration::from_secs(5), "a scrape took too long");
                    if let Some(last) = &last {
                        now.assert_not_below(last);
                    }
                    last = Some(now);
                }
            });
        }
    });
    let done = [("decision", "server"), ("outcome", "success")];
    let expected = 2 * scaled(200);
    assert_eq!(scrape(&own).value("pml_programs_total", &done), expected as f64);
    assert_eq!(server.stop(), Some(0));
}
