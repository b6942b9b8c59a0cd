//! What `pml` tells the gateway of the runs on this machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::http::get;
use crate::support::server::{Server, Tenant};
use crate::support::{PATIENCE, poll, scaled};

/// Reads a file, changes its text on the gateway, and fails once.
const MIXED: &str = "
const text = await mcp.filesystem.read_text_file({ path: 'note.txt' });
const upper = await mcp.string.upper({ text: args.secret });
try { await mcp.filesystem.read_text_file({ path: 'none.txt' }); } catch (error) {}
return { upper, text };";

fn project_of(tenant: &Tenant, traces: &str) -> Project {
    let project = Project::of(tenant);
    project.write("note.txt", "canary-of-file\n");
    project.configure(&json!({
        "permissions": { "allow": ["filesystem:*", "string:*"] }, "traces": traces,
    }))
}

/// Returns what the gateway answers to the tenant; `None` for what it does not have.
pub(super) fn asked(tenant: &Tenant, path: &str) -> Option<Value> {
    let bearer = format!("Bearer {}", tenant.key);
    let reply = get(&format!("{}/api/v1/{path}", tenant.url), &[("authorization", &bearer)]);
    (reply.status == 200).then(|| reply.json())
}

/// Returns all executions of the tenant.
pub(super) fn executions(tenant: &Tenant) -> Vec<Value> {
    let (mut found, mut path) = (Vec::new(), "executions?limit=50".to_owned());
    loop {
        let page = asked(tenant, &path).unwrap();
        found.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["nextCursor"].as_str() else { return found };
        path = format!("executions?limit=50&cursor={next}");
    }
}

/// Runs the program; returns its run's id and the trace that the gateway has of it.
#[track_caller]
fn run(project: &Project, tenant: &Tenant, arguments: &Value) -> (String, Value) {
    let arguments = arguments.to_string();
    let output = project.run_with(&["exec", "-", "--json", "--args", &arguments], MIXED.as_bytes());
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    success(&envelope);
    assert_eq!(envelope["executed"], "client", "{envelope:#}");
    let run = envelope["execution_id"].as_str().unwrap().to_owned();
    let trace = poll("the trace arrives", PATIENCE, || asked(tenant, &format!("traces/{run}")));
    (run, trace)
}

/// P8: by default the gateway learns which tools were called and when, and nothing of the values; the execution that it
/// delegated has ended then.
#[test]
fn the_gateway_is_told_of_a_run_without_its_values() {
    let tenant = Server::shared().tenant();
    let project = project_of(&tenant, "summary");
    let secret = json!({ "secret": "canary-of-args" });
    let (run, trace) = run(&project, &tenant, &secret);
    assert_eq!(trace["status"], "success", "{trace:#}");
    let events = trace["events"].as_array().unwrap();
    let of =
        |name: &str| events.iter().map(|event| event[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        of("tool"),
        ["filesystem:read_text_file", "string:upper", "filesystem:read_text_file"]
    );
    assert_eq!(of("routing"), ["client", "server", "client"]);
    assert_eq!(of("status"), ["success", "success", "error"]);
    assert!(events[2]["error_code"].is_string(), "{trace:#}");
    let (arguments, result) = (&events[0]["arguments"], &events[0]["result"]);
    assert_eq!(
        (&arguments["shape"], &result["shape"]),
        (&"object(1)".into(), &"string(15)".into())
    );
    assert!(arguments["hash"].as_str().unwrap().starts_with("hmac-sha256-"), "{trace:#}");
    // Equal values have one hash in a run: the program passed on what it had read.
    assert_eq!(result["hash"].as_str().unwrap().len(), 56, "{trace:#}");
    for canary in ["canary", "CANARY", "note.txt", "none.txt"] {
        assert!(!trace.to_string().contains(canary), "{trace:#}");
    }
    // In another run, the same values have other hashes.
    let (other, second) = self::run(&project, &tenant, &secret);
    assert_ne!(run, other);
    assert_ne!(second["events"][0]["arguments"]["hash"], arguments["hash"]);

    let executions = executions(&tenant);
    assert!(executions.len() >= 2, "{executions:#?}");
    for execution in &executions {
        assert_eq!(execution["status"], "success", "{execution:#}");
    }
    // Nothing waits, so the doctor has nothing to say of traces.
    let doctor = project.run(&["doctor"]);
    assert!(!text(&doctor.stdout).contains("still to be sent"), "{}", text(&doctor.stdout));
}

/// With `full`, the values are there, sanitized; the contents of files are described.
#[test]
fn values_are_sent_sanitized_where_the_user_has_chosen_that() {
    let tenant = Server::shared().tenant();
    let project = project_of(&tenant, "full");
    let key = format!("{}_{}", "ghp", "16C7e42F292c6912E7710c838347Ae178B4a");
    let arguments = json!({ "secret": format!("with {key} of ada@example.com"), "password": "canary-p", "plain": "hello" });
    let (_, trace) = run(&project, &tenant, &arguments);
    assert_eq!(trace["arguments"]["value"]["plain"], "hello", "{trace:#}");
    let events = trace["events"].as_array().unwrap();
    assert_eq!(events[0]["arguments"]["value"], json!({ "path": "note.txt" }), "{trace:#}");
    assert_eq!(events[0]["result"]["value"], "[text of 15 bytes]", "{trace:#}");
    // What the program returned is a value like any other, whatever it was read from.
    let sent = json!([trace["arguments"], events]).to_string();
    for canary in ["canary", "16C7e42F292c", "ada@example", "ADA@EXAMPLE"] {
        assert!(!sent.contains(canary), "{canary}: {trace:#}");
    }
}

/// With `off`, nothing is sent, and an untrusted file does not make it `full`.
#[test]
fn traces_can_be_turned_off() {
    let tenant = Server::shared().tenant();
    let forwarded = tenant.url.clone();
    let stub = GatewayStub::start_with_head(move |head, body| {
        Answer::Raw(200, "application/json", forward_request(&forwarded, head, body).into_bytes())
    });
    let through = |traces: &str| project_of(&tenant, traces).set("PML_CLOUD_URL", &stub.url);
    let sent = || stub.received().iter().filter(|it| it.starts_with("POST /api/v1/traces")).count();
    let exec = |project: &Project| {
        let ran = project.run_with(&["exec", "-", "--args", r#"{"secret":"x"}"#], MIXED.as_bytes());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
    };
    exec(&through("off"));
    exec(&through("full").set("PML_TRACES", "off"));
    assert_eq!(sent(), 0);
    exec(&through("off").set("PML_TRACES", "summary"));
    assert_eq!(sent(), 1);
    assert!(!stub.received().iter().any(|it| it.contains("canary")));
    let wrong = through("off").set("PML_TRACES", "some").run(&["list"]);
    assert!(text(&wrong.stderr).contains("`off`, `summary` and `full`"), "{}", text(&wrong.stderr));
}

/// Where the text of programs stays here, its hash does too: it would confirm a guess.
#[test]
fn the_hash_of_a_text_that_stays_here_is_keyed() {
    let tenant = Server::shared().tenant();
    let mut hashes = BTreeSet::new();
    for _ in 0..2 {
        let project = project_of(&tenant, "summary").set("PML_ANALYSIS", "local");
        let (_, trace) = run(&project, &tenant, &json!({ "secret": "x" }));
        assert!(trace["execution_id"].is_null(), "{trace:#}");
        hashes.insert(trace["code_hash"].as_str().unwrap().to_owned());
    }
    assert_eq!(hashes.len(), 2, "{hashes:?}");
    let (_, trace) = run(&project_of(&tenant, "summary"), &tenant, &json!({ "secret": "x" }));
    assert!(!hashes.contains(trace["code_hash"].as_str().unwrap()), "{trace:#}");
}

/// A run that nobody has to be told of is not told of: without the gateway.
#[test]
fn runs_without_the_gateway_are_not_told_of() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("note.txt", "x");
    let (envelope, _) =
        project.exec("return await mcp.filesystem.read_text_file({ path: 'note.txt' });");
    success(&envelope);
    let doctor = project.run(&["doctor"]);
    assert!(!text(&doctor.stdout).contains("traces"), "{}", text(&doctor.stdout));
}

/// R-23, TR-06: acknowledgements are lost, requests are cut off or refused, `pml` ends in between; each run arrives once
/// and completely.
#[test]
fn every_trace_arrives_once_whatever_happens_to_it() {
    let tenant = Server::shared().tenant();
    let (forwarded, healed, count) =
        (tenant.url.clone(), Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let is_healed = Arc::clone(&healed);
    let stub = GatewayStub::start_with_head(move |head, body| {
        let forward = || forward_request(&forwarded, head, body).into_bytes();
        if !head.starts_with("POST /api/v1/traces") || is_healed.load(Ordering::SeqCst) {
            return Answer::Raw(200, "application/json", forward());
        }
        match count.fetch_add(1, Ordering::SeqCst) % 4 {
            // Stored, and the acknowledgement is lost.
            0 | 2 => {
                forward();
                Answer::Close
            }
            1 => Answer::Close,
            _ => Answer::Raw(
                503,
                "application/problem+json",
                br#"{"code":"DATABASE_UNAVAILABLE"}"#.to_vec(),
            ),
        }
    });
    let project = project_of(&tenant, "summary").set("PML_CLOUD_URL", &stub.url);
    let mut runs = BTreeSet::new();
    let rounds = scaled(50);
    for round in 0..rounds {
        let mut pml = project.stdio();
        for _ in 0..2 {
            let envelope = pml.execute_request(
                json!({ "code": MIXED, "args": { "secret": format!("{round}") } }),
            );
            runs.insert(success_id(&envelope));
        }
        // It ends with traces on their way.
        drop(pml);
    }
    let waiting = project.run(&["doctor"]);
    assert!(text(&waiting.stdout).contains("still to be sent"), "{}", text(&waiting.stdout));
    healed.store(true, Ordering::SeqCst);
    // The next `pml` sends the rest, without a run.
    let pml = project.stdio();
    for run in &runs {
        let trace =
            poll("the trace arrives", PATIENCE, || asked(&tenant, &format!("traces/{run}")));
        let seqs: Vec<u64> = trace["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(seqs, [1, 2, 3], "{trace:#}");
    }
    assert_eq!(runs.len(), 2 * rounds);
    poll("nothing waits", PATIENCE, || {
        let doctor = project.run(&["doctor"]);
        (!text(&doctor.stdout).contains("still to be sent")).then_some(())
    });
    drop(pml);
    // What is there twice would be counted by the gateway.
    let ended = executions(&tenant);
    assert_eq!(ended.iter().filter(|it| it["status"] == "success").count(), runs.len());
    println!(
        "{} runs told of in {} requests",
        runs.len(),
        stub.received().iter().filter(|it| it.starts_with("POST /api/v1/traces")).count()
    );
}

#[track_caller]
fn success_id(envelope: &Value) -> String {
    success(envelope);
    envelope["execution_id"].as_str().unwrap().to_owned()
}

/// TR-10: a gateway that takes no traces affects no program, and is asked seldom.
#[test]
fn a_gateway_that_takes_no_traces_affects_nothing() {
    let tenant = Server::shared().tenant();
    let forwarded = tenant.url.clone();
    let stub = GatewayStub::start_with_head(move |head, body| {
        match head.starts_with("POST /api/v1/traces") {
            true => Answer::Never,
            false => Answer::Raw(
                200,
                "application/json",
                forward_request(&forwarded, head, body).into_bytes(),
            ),
        }
    });
    let project = project_of(&tenant, "summary").set("PML_CLOUD_URL", &stub.url);
    let mut pml = project.stdio();
    for _ in 0..5 {
        success(&pml.execute_request(json!({ "code": MIXED, "args": { "secret": "x" } })));
    }
    drop(pml);
    let sent = stub.received().iter().filter(|it| it.starts_with("POST /api/v1/traces")).count();
    assert!((1..=5).contains(&sent), "{sent}");
    // Another one: an older gateway does not know the address.
    let forwarded = tenant.url.clone();
    let stub = GatewayStub::start_with_head(move |head, body| {
        match head.starts_with("POST /api/v1/traces") {
            true => Answer::Raw(404, "application/problem+json", br#"{"status":404}"#.to_vec()),
            false => Answer::Raw(
                200,
                "application/json",
                forward_request(&forwarded, head, body).into_bytes(),
            ),
        }
    });
    let project = project_of(&tenant, "summary").set("PML_CLOUD_URL", &stub.url);
    let mut pml = project.stdio();
    for _ in 0..3 {
        success(&pml.execute_request(json!({ "code": MIXED, "args": { "secret": "x" } })));
    }
}

/// A store that came with a repository is not the user's: its runs are not told of.
#[test]
fn the_record_of_somebody_else_is_not_sent() {
    let tenant = Server::shared().tenant();
    let theirs = project_of(&tenant, "summary").set("PML_CLOUD_URL", "http://127.0.0.1:9");
    let forwarded = tenant.url.clone();
    let lost = GatewayStub::start_with_head(move |head, body| {
        match head.starts_with("POST /api/v1/traces") {
            true => Answer::Raw(503, "application/problem+json", br#"{"code":"BUSY"}"#.to_vec()),
            false => Answer::Raw(
                200,
                "application/json",
                forward_request(&forwarded, head, body).into_bytes(),
            ),
        }
    });
    let theirs = theirs.set("PML_CLOUD_URL", &lost.url);
    let ran = theirs.run_with(&["exec", "-", "--args", r#"{"secret":"x"}"#], MIXED.as_bytes());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(text(&theirs.run(&["doctor"]).stdout).contains("still to be sent"));
    // The same origin, and another user's home: only the workspace came along.
    let mine = project_of(&tenant, "summary").set("PML_CLOUD_URL", &lost.url);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(theirs.path(".pml"))
        .arg(mine.workspace())
        .output()
        .unwrap();
    assert!(copied.status.success());
    let ran = mine.run_with(&["exec", "-", "--args", r#"{"secret":"x"}"#], MIXED.as_bytes());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let doctor = mine.run(&["doctor"]);
    assert!(
        text(&doctor.stdout).contains("of 1 runs are still to be sent"),
        "{}",
        text(&doctor.stdout)
    );
}
