//! The limits of a run, each with a separate error code, on both sides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;

use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, envelope};
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll};

/// Runs a program on the gateway, and on this machine with a declared client tool.
#[track_caller]
fn both_fail(code: &str, expected: &str) {
    let tenant = Server::shared().tenant();
    let mut pml = Project::of(&tenant).allow(&["*"]).stdio();
    failure(&HttpMcp::new(&tenant, Era::Stateless).execute(code), expected);
    let local = format!("if (args.never) await mcp.filesystem.read_file({{ path: '' }}); {code}");
    failure(&pml.execute(&local), expected);
    assert_eq!(success(&pml.execute("return 1")), 1);
}

#[test]
fn a_run_ends_at_the_limit_of_calls() {
    // In batches: one after the other, a thousand take longer than a run may on a busy machine.
    both_fail(
        "for (let n = 0; n < 40; n++)
            await Promise.all([...Array(50)].map(() => mcp.math.eval({ expression: '1' })))",
        "TOO_MANY_CALLS",
    );
}

#[test]
fn results_over_the_size_limit_are_refused() {
    both_fail("return 'x'.repeat(3_000_000)", "RESULT_TOO_LARGE");
}

#[test]
fn arguments_over_the_size_limit_are_refused() {
    both_fail("await mcp.json.parse({ data: 'x'.repeat(3_000_000) })", "ARGUMENT_TOO_LARGE");
}

#[test]
fn a_cyclic_result_is_refused() {
    both_fail("const a: any = {}; a.a = a; return a", "RESULT_NOT_SERIALIZABLE");
}

/// `timeout_ms` shortens the wall time, and cannot lengthen it.
#[test]
fn timeout_ms_shortens_the_wall_time() {
    let tenant = Server::shared().tenant();
    let code = "await new Promise((done) => setTimeout(done, 20_000)); return 1";
    let arguments = json!({ "code": code, "options": { "timeout_ms": 200 } });
    let answer = HttpMcp::new(&tenant, Era::Stateless).call("pml_execute", arguments.clone());
    failure(&envelope(&answer), "TIME_LIMIT");
    failure(&Project::of(&tenant).stdio().execute_request(arguments), "TIME_LIMIT");
}

/// Console output over the limit is truncated, and `console_truncated` states it.
#[test]
fn console_output_over_the_limit_is_truncated_and_flagged() {
    let tenant = Server::shared().tenant();
    let envelope = HttpMcp::new(&tenant, Era::Stateless)
        .execute("for (let n = 0; n < 5000; n++) console.log('x'.repeat(100)); return 1");
    assert_eq!(success(&envelope), 1);
    assert_eq!(envelope["console_truncated"], true);
    assert!(envelope["console"].to_string().len() < 300_000);
    let short = HttpMcp::new(&tenant, Era::Stateless)
        .execute("console.log('a', { b: 1 }); console.error('e'); return 1");
    assert_eq!(short["console"][0]["level"], "log");
    assert_eq!(short["console"][1], json!({ "level": "error", "text": "e" }));
    assert!(short.get("console_truncated").is_none());
}

/// A dry run states where a program would run, and does not run it.
#[test]
fn a_dry_run_does_not_run_the_program() {
    let tenant = Server::shared().tenant();
    let dry = |code: &str| {
        let arguments = json!({ "code": code, "options": { "dry_run": true } });
        HttpMcp::new(&tenant, Era::Stateless).execute_request(arguments)
    };
    let server = dry("return await mcp.math.eval({ expression: '1' })");
    assert_eq!(success(&server)["routing"], "server");
    assert_eq!(server["calls"], json!([]));
    let client = dry("return await mcp.filesystem.list_directory({ path: '.' })");
    assert_eq!(success(&client)["client_tools"], json!(["filesystem:list_directory"]));
    let project = Project::of(&tenant).allow(&["*"]);
    let local = json!({
        "code": "await mcp.filesystem.write_file({ path: 'made.txt', content: '' })",
        "options": { "dry_run": true },
    });
    for project in [&project, &Project::offline().allow(&["*"])] {
        let dry = project.stdio().execute_request(local.clone());
        assert_eq!(success(&dry)["routing"], "client");
        assert!(!project.path("made.txt").exists(), "a dry run through `pml` ran the program");
    }
}

/// Only `pml` can send `local_tools`, and they apply to one submission.
#[test]
fn only_pml_can_send_local_tools() {
    let tenant = Server::shared().tenant();
    let plain = HttpMcp::new(&tenant, Era::Stateless);
    let package = HttpMcp::new(&tenant, Era::Stateless).with_package();
    for (code, id) in [
        ("return await mcp.mine.tool({})", "mine:tool"),
        ("return await mcp.math.eval({ expression: '1' })", "math:eval"),
    ] {
        let arguments = json!({ "code": code, "local_tools": [id] });
        failure(&envelope(&plain.call("pml_execute", arguments.clone())), "INVALID_REQUEST");
        let answer = package.call("pml_execute", arguments)["structuredContent"].clone();
        assert_eq!(answer["client_tools"], json!([id]), "{answer:#}");
        assert!(answer["tools_used"][0].get("fqdn").is_none(), "{answer:#}");
    }
    failure(&package.execute("return await mcp.mine.tool({})"), "TOOL_NOT_FOUND");
    let server = package.execute("return await mcp.math.eval({ expression: '1' })");
    assert_eq!((success(&server), &server["executed"]), (&json!(1), &json!("server")));
}

/// A dynamic program runs on the client only, and each of its calls is decided individually.
#[test]
fn calls_of_a_dynamic_program_are_decided_individually() {
    let tenant = Server::shared().tenant();
    let code = "const name = ['ma', 'th'].reverse().reverse().join(''); return await mcp[name].eval({ expression: '2 + 3' })";
    failure(&HttpMcp::new(&tenant, Era::Stateless).execute(code), "CLIENT_TOOLS_REQUIRE_PACKAGE");
    let mut allowed = Project::of(&tenant).allow(&["math:eval"]).stdio();
    let envelope = allowed.execute(code);
    assert_eq!((success(&envelope), &envelope["executed"]), (&json!(5), &json!("client")));
    let mut asking = Project::of(&tenant).stdio();
    assert_eq!(asking.execute(code)["status"], "approval_required");
}

/// A time limit of zero is an invalid request on both sides.
#[test]
fn a_time_limit_of_zero_is_refused() {
    let tenant = Server::shared().tenant();
    let arguments = json!({ "code": "return 1", "options": { "timeout_ms": 0 } });
    let refused =
        envelope(&HttpMcp::new(&tenant, Era::Stateless).call("pml_execute", arguments.clone()));
    failure(&refused, "INVALID_REQUEST");
    failure(&Project::of(&tenant).stdio().execute_request(arguments), "INVALID_REQUEST");
    let project = Project::of(&tenant);
    assert_eq!(project.run(&["exec", "x.ts", "--timeout-ms", "0"]).status.code(), Some(2));
    let twice = project.run_with(&["exec", "-", "--args", r#"{"a":1,"a":2}"#], b"return args.a");
    assert_eq!(twice.status.code(), Some(2), "a duplicate key");
}

/// SB-23: a tenant over its limit of programs gets `BUSY` at once; other tenants are not affected.
#[test]
fn a_tenant_over_its_program_limit_does_not_affect_others() {
    let places = [("PML_TENANT_PROGRAMS", "1"), ("PML_TENANT_WAITING", "1")];
    let server = Installation::new().start_with(&places);
    let (crowded, other) = (server.tenant(), server.tenant());
    let slow = "const end = Date.now() + 1000; while (Date.now() < end) {} return 'done'";
    let (answers, other_tenant) = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| HttpMcp::new(&crowded, Era::Stateless).execute(slow)))
            .collect();
        let other_tenant = HttpMcp::new(&other, Era::Stateless).execute("return 1");
        let answers: Vec<_> = runs.into_iter().map(|run| run.join().unwrap()).collect();
        (answers, other_tenant)
    });
    assert_eq!(success(&other_tenant), 1);
    let (done, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer["status"] == "success");
    assert!(done.len() >= 2 && !refused.is_empty(), "{answers:#?}");
    for answer in refused {
        assert!(failure(answer, "BUSY").contains("limit reached: 1 programs running, 1 queued"));
        assert_eq!(answer["details"]["retry_after_s"], 1);
    }
}

/// `BUSY` answers have a `Retry-After` header in addition to the field in the result.
#[test]
fn busy_answers_have_a_retry_after_header() {
    let places = [("PML_TENANT_PROGRAMS", "1"), ("PML_TENANT_WAITING", "0")];
    let server = Installation::new().start_with(&places);
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    let call = |code: &str| {
        let params = json!({ "name": "pml_execute", "arguments": { "code": code } });
        let body = Era::Stateless.request(1, "tools/call", params).to_string();
        client.post(body.as_bytes(), "tools/call", Some("pml_execute"))
    };
    let (found, started) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        // Either request may find the other one running, so the long one is repeated until the short one was refused.
        scope.spawn(|| {
            while !found.load(Ordering::Acquire) && started.elapsed() < PATIENCE {
                call("await new Promise((done) => setTimeout(done, 500))");
            }
        });
        let refused = poll("the one place to be taken", PATIENCE, || {
            let reply = call("return 1");
            let busy = envelope(&reply.json()["result"])["error_code"] == "BUSY";
            assert_eq!(reply.header("retry-after"), if busy { "1" } else { "" });
            busy.then_some(reply)
        });
        found.store(true, Ordering::Release);
        assert_eq!(refused.status, 200);
    });
}
