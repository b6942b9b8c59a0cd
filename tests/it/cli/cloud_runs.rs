//! `pml runs list --cloud` and `pml runs show ID --cloud`: what the gateway has recorded.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::server::Server;
use crate::support::{PATIENCE, poll};

#[track_caller]
fn answer(project: &Project, arguments: &[&str]) -> (Value, i32) {
    let output = project.run(arguments);
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (answer, output.status.code().unwrap())
}

/// Lists executions; returns their ids and whether there may be more.
#[track_caller]
fn list(project: &Project, options: &[&str]) -> (Vec<String>, bool) {
    let (listed, code) =
        answer(project, &[&["runs", "list", "--cloud", "--json"], options].concat());
    assert_eq!(code, 0, "{listed:#}");
    let runs = listed["runs"].as_array().unwrap().iter();
    let ids = runs.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    (ids, listed["more"].as_bool().unwrap())
}

/// Runs programs on the gateway, one after the other, and waits until their ends are recorded.
fn run_on_gateway(project: &Project, count: usize) {
    for number in 0..count {
        let (done, _) =
            project.exec(&format!("return await mcp.math.eval({{ expression: '{number}' }})"));
        assert_eq!(success(&done), number);
        assert_eq!(done["executed"], "server");
    }
    poll("the ends of the executions", PATIENCE, || {
        (list(project, &["--status", "success"]).0.len() == count).then_some(())
    });
}

/// Executions are listed over several pages, with filters, and shown alone. Nobody else sees them.
#[test]
fn executions_of_the_gateway_are_listed() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    assert_eq!(list(&project, &[]), (vec![], false));
    let none = project.run(&["runs", "list", "--cloud"]);
    assert!(text(&none.stderr).contains("lists no execution"), "{}", text(&none.stderr));
    run_on_gateway(&project, 3);
    let (all, more) = list(&project, &[]);
    assert_eq!((all.len(), more), (3, false));
    for (options, expected, more) in [
        (&["--limit", "2"][..], &all[..2], true),
        (&["--limit", "3"], &all[..], false),
        (&["--tool", "math:eval"], &all[..], false),
        (&["--tool", "json:parse"], &[], false),
        (&["--status", "error"], &[], false),
        (&["--since", "2100-01-01T00:00:00+02:00"], &[], false),
        (&["--until", "2100-01-01T00:00:00Z", "--limit", "1"], &all[..1], true),
    ] {
        assert_eq!(list(&project, options), (expected.to_vec(), more), "{options:?}");
    }
    let (shown, code) = answer(&project, &["runs", "show", &all[0], "--cloud", "--json"]);
    assert_eq!(code, 0, "{shown:#}");
    assert_eq!(
        (&shown["run_id"], &shown["status"], &shown["decision"], &shown["tools"]),
        (&json!(all[0]), &json!("success"), &json!("server"), &json!(["math:eval"]))
    );
    // The names are those of the recorded runs of this machine.
    project.exec("return 1");
    let (local, _) = answer(&project, &["runs", "list", "--json"]);
    let names = |run: &Value| -> Vec<String> { run.as_object().unwrap().keys().cloned().collect() };
    let of_cloud = names(&answer(&project, &["runs", "list", "--cloud", "--json"]).0["runs"][0]);
    if let Some(run) = local["runs"].get(0) {
        let shared =
            ["run_id", "created_at", "completed_at", "status", "total_steps", "tools", "error"];
        for name in shared {
            assert!(names(run).contains(&name.to_owned()) && of_cloud.contains(&name.to_owned()));
        }
    }
    let table = project.run(&["runs", "list", "--cloud", "--limit", "2"]);
    let (rows, told) = (text(&table.stdout), text(&table.stderr));
    assert!(rows.starts_with("RUN ") && rows.contains("math:eval"), "{rows}");
    assert_eq!(rows.lines().count(), 3, "{rows}");
    assert!(told.contains("There may be more than these 2"), "{told}");
    let shown = text(&project.run(&["runs", "show", &all[0], "--cloud"]).stdout);
    assert!(shown.contains("decision  server") && shown.contains("tools     math:eval"), "{shown}");

    // Another tenant, and another principal of the same one, find nothing.
    let other = Project::of(&Server::shared().tenant());
    assert_eq!(list(&other, &[]), (vec![], false));
    let (foreign, code) = answer(&other, &["runs", "show", &all[0], "--cloud", "--json"]);
    let (foreign, missing) = (
        (failure(&foreign, "NOT_FOUND").replace(&all[0], "ID"), code),
        answer(
            &other,
            &["runs", "show", "0195d2a0-0000-7000-8000-000000000000", "--cloud", "--json"],
        ),
    );
    let missing = (
        failure(&missing.0, "NOT_FOUND").replace("0195d2a0-0000-7000-8000-000000000000", "ID"),
        missing.1,
    );
    assert_eq!(foreign, missing);
    let (refused, _) =
        answer(&other, &["runs", "list", "--cloud", "--principal", "somebody-else", "--json"]);
    failure(&refused, "FORBIDDEN");
}

/// Without a key, without a network, with a key that is not accepted or may not read, and with a gateway that does not
/// know the route, the message says which it is.
#[test]
fn it_says_why_there_is_no_list() {
    let url = Server::shared().url();
    for (project, code, says, exit) in [
        (Project::at(url), "UNAUTHORIZED", "needs an API key, but none is set", 3),
        (
            Project::at(url).set("PML_API_KEY", "pml_live_nonsense"),
            "UNAUTHORIZED",
            "does not accept the API key",
            3,
        ),
        (
            Project::offline().set("PML_API_KEY", "pml_live_nonsense"),
            "GATEWAY_UNREACHABLE",
            "cannot be reached",
            4,
        ),
        (Project::of(&Server::shared().tenant_with_rights("execute")), "FORBIDDEN", "read", 3),
    ] {
        for arguments in [
            &["runs", "list", "--cloud", "--json"][..],
            &["runs", "show", "0195d2a0-0000-7000-8000-000000000000", "--cloud", "--json"],
        ] {
            let (refused, exited) = answer(&project, arguments);
            let message = failure(&refused, code);
            assert!(message.contains(says) && exited == exit, "{exited} {refused:#}");
        }
    }
    // A gateway without the route.
    for (status, body) in [(404, "{}"), (404, "not found"), (405, "")] {
        let stub = GatewayStub::start(move |_| {
            Answer::Raw(status, "text/plain", body.as_bytes().to_vec())
        });
        let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test_canary");
        let (refused, _) = answer(&project, &["runs", "list", "--cloud", "--json"]);
        let message = failure(&refused, "GATEWAY_BAD_ANSWER");
        assert!(message.contains("does not list executions"), "{refused:#}");
        assert!(refused["hint"].as_str().unwrap().contains("older"), "{refused:#}");
    }
    let project = Project::of(&Server::shared().tenant());
    for (arguments, says) in [
        (&["runs", "list", "--status", "error"][..], "--cloud"),
        (&["runs", "list", "--cloud", "--status", "done"], "possible values"),
        (&["runs", "list", "--cloud", "--since", "yesterday"], "2026-01-31T12:00:00Z"),
        (&["runs", "list", "--cloud", "--limit", "0"], "at least 1"),
        (&["runs", "list", "--cloud", "--tool", "x"], "x"),
        (&["runs", "show", "--cloud"], "runs list --cloud"),
        (&["runs", "show", "last", "--cloud"], "`last` is not the id of an execution"),
    ] {
        let output = project.run(arguments);
        let shown = text(&output.stderr);
        assert!(shown.contains(says) && !output.status.success(), "{arguments:?}: {shown}");
    }
}

/// Text of a hostile gateway reaches no terminal as it is, and its pages end.
#[test]
fn a_hostile_list_is_harmless() {
    const EVIL: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\nRUN";
    let execution = |text: &str| {
        json!({
            "id": text, "principal": text, "decision": text, "status": text, "code_hash": text,
            "code_bytes": 1, "args_bytes": 1, "dynamic": true, "tools": [text, "x".repeat(500)],
            "started_at": text, "finished_at": text, "error_code": text, "result_bytes": 1,
            "calls": -1, "duration_ms": i64::MAX, "trace_id": text, "more": text,
        })
    };
    let pages = AtomicUsize::new(0);
    let stub = GatewayStub::start_with_head(move |head, _| {
        Answer::Json(match head.contains("/executions/") {
            true => execution(EVIL),
            // More than requested, and a further page for ever.
            false => json!({
                "items": vec![execution(EVIL); 7],
                "nextCursor": format!("{EVIL}{}", pages.fetch_add(1, Ordering::Relaxed)),
            }),
        })
    });
    let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test_canary");
    let id = "0195d2a0-0000-7000-8000-000000000000";
    for arguments in [
        &["runs", "list", "--cloud", "--limit", "5"][..],
        &["runs", "list", "--cloud", "--limit", "5", "--json"],
        &["runs", "show", id, "--cloud"],
        &["runs", "show", id, "--cloud", "--json"],
    ] {
        let output = project.run(arguments);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{shown}");
        assert!(
            !shown.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']) && shown.contains("owned"),
            "{arguments:?}: {shown:?}"
        );
    }
    let rows = text(&project.run(&["runs", "list", "--cloud", "--limit", "5"]).stdout);
    assert_eq!(rows.lines().count(), 6, "{rows}");
    let before = stub.requests();
    assert!(list(&project, &["--limit", "100000"]).1);
    assert!(stub.requests() - before <= 100, "{}", stub.requests());

    // A page that is followed by itself, and answers that are no list.
    for body in [json!({ "items": [], "nextCursor": "same" }), json!([]), json!({ "items": [{}] })]
    {
        let stub = GatewayStub::start(move |_| Answer::Json(body.clone()));
        let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test_canary");
        let (refused, _) = answer(&project, &["runs", "list", "--cloud", "--json"]);
        failure(&refused, "GATEWAY_BAD_ANSWER");
        assert!(stub.requests() <= 2);
    }
}
