//! The records of executions, with the traces of those that ran on the gateway.

use serde_json::{Value, json};

use super::traces::{Person, TEXT, event, run, stored};
use crate::identity::members::Organisation;
use crate::support::cli::Project;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

/// TR-05: everyone reads their own records, an administrator those of the project, and nobody those of another one.
#[test]
fn records_are_read_by_their_principal_and_the_projects_administrators() {
    let (ours, theirs) = (Organisation::on(Server::shared()), Organisation::on(Server::shared()));
    let ann = Person::of(&ours, "ann", "execute,read");
    let ben = Person::of(&ours, "ben", "execute,read");
    let admin = Person { ours: &ours, key: ours.boss.clone() };
    let eve = Person { ours: &theirs, key: theirs.boss.clone() };
    let (workflow, execution, hash) = ann.delegate(TEXT);
    let told = run(Some(&workflow), &hash, vec![event(1, "1", None)]);
    assert_eq!(ann.tell(std::slice::from_ref(&told)), [stored()]);
    let trace = format!("traces/{}", told["run_id"].as_str().unwrap());
    let execution = format!("executions/{execution}");
    for (reader, expected) in [(&ann, 200), (&admin, 200), (&ben, 404), (&eve, 404)] {
        assert_eq!([reader.get(&trace).0, reader.get(&execution).0], [expected; 2]);
        let missing = reader.get("traces/00000000-0000-7000-8000-000000000000").1;
        if expected == 404 {
            assert_eq!(reader.get(&trace).1, missing);
            assert_eq!(reader.get(&execution).1, missing);
        }
        let (_, listed) = reader.get("executions");
        assert_eq!(listed["items"].as_array().unwrap().len(), usize::from(expected == 200));
    }
    let none = Person::of(&ours, "ann", "execute");
    for path in [trace.as_str(), &execution, "executions"] {
        assert_eq!(none.get(path).0, 403);
    }
    // Another principal can be selected by an administrator only.
    assert_eq!(admin.get("executions?principal=ann").1["items"].as_array().unwrap().len(), 1);
    assert_eq!(admin.get("executions?principal=ben").1["items"], json!([]));
    assert_eq!(ann.get("executions?principal=ann").0, 200);
    assert_eq!(
        [ann.get("executions?principal=ben").0, ann.get("executions?principal=no").0],
        [403; 2]
    );
    assert_eq!(admin.get("executions?principal=a%00b").0, 400);
}

/// Pages of executions are filtered, and stay in place when new ones come in.
#[test]
fn executions_are_listed_in_pages() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann", "execute,read");
    let mcp = ann.mcp();
    let execute = |code: &str| -> String {
        let ran = mcp.execute(code);
        ran["execution_id"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
    };
    let parsed = execute("return await mcp.json.parse({ data: '1' })");
    let failed = execute("throw new Error('no')");
    let plain = execute("return 1");
    let (_, delegated, _) = ann.delegate(TEXT);
    let ids = |query: &str| -> Vec<String> {
        let (status, page) = ann.get(&format!("executions{query}"));
        assert_eq!(status, 200, "{query}: {page}");
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = [&delegated, &plain, &failed, &parsed].map(String::clone);
    assert_eq!(ids(""), all);
    assert_eq!(ids("?status=error"), all[2..3]);
    assert_eq!(ids("?status=delegated"), all[..1]);
    assert_eq!(ids("?status=success"), [plain.clone(), parsed]);
    assert_eq!(ids("?tool=json:parse"), all[3..]);
    assert_eq!(ids("?tool=filesystem:read_text_file&status=delegated"), [delegated]);
    let (_, record) = ann.get(&format!("executions/{plain}"));
    let at = record["started_at"].as_str().unwrap();
    assert_eq!(ids(&format!("?since={at}")), all[..2]);
    assert_eq!(ids(&format!("?until={at}")), all[2..]);
    // A new one does not move the pages after it.
    let (_, first) = ann.get("executions?limit=2");
    let cursor = first["nextCursor"].as_str().unwrap();
    let newest = execute("return 2");
    assert_eq!(ids(&format!("?limit=2&cursor={cursor}")), all[2..]);
    assert_eq!(ids("?limit=1"), [newest]);
    assert_eq!(
        ann.get(&format!("executions?cursor={cursor}&limit=2")).1["nextCursor"],
        Value::Null
    );
    for wrong in
        ["?status=fine", "?tool=a", "?since=now", "?limit=0", "?limit=201", "?cursor=x", "?org=a"]
    {
        assert_eq!(ann.get(&format!("executions{wrong}")).0, 400, "{wrong}");
    }
    let far = format!("?cursor=7fffffffffffffff{}", "0".repeat(32));
    assert_eq!(ann.get(&format!("executions{far}")).0, 400);
    assert_eq!(ids("?since=9999-12-31T23:59:59Z"), [""; 0]);
}

/// What `pml` tells of a run is taken as it is sent, and ends the execution.
#[test]
fn a_run_of_the_cli_ends_its_execution() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann", "execute,read");
    let tenant = Tenant { key: ann.key.clone(), url: ours.server.url().to_owned() };
    let project = Project::of(&tenant).allow(&["filesystem:*", "json:*"]);
    project.write("a.json", r#"{"n":42}"#);
    let code = "const text = await mcp.filesystem.read_text_file({ path: 'a.json' });
        return (await mcp.json.parse({ data: text })).n";
    let (envelope, exit) = project.exec(code);
    assert_eq!((&envelope["result"], exit), (&json!(42), 0), "{envelope}");
    let record = poll("the end of the execution", PATIENCE, || {
        let (_, listed) = ann.get("executions?status=success");
        listed["items"].get(0).cloned()
    });
    assert_eq!((&record["decision"], &record["calls"]), (&json!("client"), &json!(2)), "{record}");
    let (_, whole) = ann.get(&format!("executions/{}", record["id"].as_str().unwrap()));
    let (_, trace) = ann.get(&format!("traces/{}", whole["trace_id"].as_str().unwrap()));
    let calls: Vec<_> = trace["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| json!([event["tool"], event["routing"], event["status"]]))
        .collect();
    assert_eq!(
        json!(calls),
        json!([
            ["filesystem:read_text_file", "client", "success"],
            ["json:parse", "server", "success"],
        ])
    );
    assert_eq!(trace["result"]["shape"], "number");
    assert_eq!(trace["result"].get("value"), None);
}

/// The gateway's own executions have a trace: the calls, within capabilities too, and none of their values.
#[test]
fn executions_on_the_gateway_have_traces_without_values() {
    let ours = Organisation::on(Server::shared());
    let owner = Person { ours: &ours, key: ours.boss.clone() };
    let name = format!("{}:twice", ours.name);
    let code = "/** Twice. */ return await mcp.json.parse({ data: args.text + '' })";
    let published =
        ours.ask(&owner.key, "POST", "capabilities", Some(json!({ "name": name, "code": code })));
    assert_eq!(published.status, 201, "{}", published.json());
    let canary = "canary_of_a_value";
    let program = format!(
        "const a = await mcp.{0}.twice({{ text: args.text }}); const b = await mcp.json.stringify({{ value: args.text }}); try {{ await mcp.json.parse({{ data: '{{' }}) }} catch (e) {{}} return [a, b]",
        ours.name
    );
    let ran = owner
        .mcp()
        .execute_request(json!({ "code": program, "args": { "text": format!("\"{canary}\"") } }));
    assert_eq!(ran["status"], "success", "{ran}");
    let id = ran["execution_id"].as_str().unwrap();
    let trace = poll("the trace", PATIENCE, || {
        let (status, trace) = owner.get(&format!("traces/{id}"));
        (status == 200).then_some(trace)
    });
    let events: Vec<Value> = trace["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            json!([
                it["seq"],
                it["trace_id"],
                it["parent_trace_id"],
                it["tool"],
                it["kind"],
                it["status"]
            ])
        })
        .collect();
    assert_eq!(
        json!(events),
        json!([
            [1, "1", null, name, "capability", "success"],
            [2, "1.1", "1", "json:parse", "tool", "success"],
            [3, "2", null, "json:stringify", "tool", "success"],
            [4, "3", null, "json:parse", "tool", "error"],
        ])
    );
    assert_eq!((&trace["origin"], &trace["status"]), (&json!("gateway"), &json!("success")));
    assert_eq!(trace["result"]["shape"], "array(2) of string");
    assert_eq!(trace["events"][3]["error_code"], "TOOL_FAILED");
    // Equal values of a run have one hash: the result of the capability is that of its only call.
    assert_eq!(trace["events"][0]["result"]["hash"], trace["events"][1]["result"]["hash"]);
    let again = owner
        .mcp()
        .execute_request(json!({ "code": program, "args": { "text": format!("\"{canary}\"") } }));
    let id = again["execution_id"].as_str().unwrap();
    let other = poll("the other trace", PATIENCE, || {
        let (status, trace) = owner.get(&format!("traces/{id}"));
        (status == 200).then_some(trace)
    });
    assert_eq!(other["result"]["bytes"], trace["result"]["bytes"]);
    assert_ne!(other["result"]["hash"], trace["result"]["hash"], "the key is that of another run");
    let (_, record) = owner.get(&format!("executions/{id}"));
    assert_eq!(record["trace_id"], id);
    let tables = ours.server.installation().sql(
        "select row_to_json(t)::text from traces t union all select row_to_json(e)::text from trace_events e",
    );
    assert!(!tables.contains(canary) && tables.contains(id));
}

/// TR-10: executions do not depend on whether traces can be stored.
#[test]
fn executions_run_while_traces_cannot_be_stored() {
    let installation = Installation::new();
    let server = installation.start();
    let ours = Organisation::on(&server);
    let ann = Person::of(&ours, "ann", "execute,read");
    let mcp = ann.mcp();
    let execute = || -> String {
        let ran = mcp.execute("return await mcp.json.parse({ data: '1' })");
        assert_eq!(ran["status"], "success", "{ran}");
        ran["execution_id"].as_str().unwrap().to_owned()
    };
    let has_trace = |id: &str| {
        poll("the trace", PATIENCE, || (ann.get(&format!("traces/{id}")).0 == 200).then_some(()));
    };
    has_trace(&execute());
    let lines = |text: &str| installation.log().lines().filter(|line| line.contains(text)).count();
    let (dropped, stored_again) = ("Traces of executions are dropped", "are stored again");
    installation.sql("revoke insert on trace_events from pml_app");
    let lost = execute();
    poll("the first drop", PATIENCE, || (lines(dropped) == 1).then_some(()));
    for _ in 0..20 {
        execute();
    }
    installation.sql("grant insert on trace_events to pml_app");
    poll("traces to be stored again", PATIENCE, || {
        has_trace(&execute());
        (lines(stored_again) == 1).then_some(())
    });
    assert_eq!(lines(dropped), 1, "each drop was logged");
    assert_eq!(ann.get(&format!("traces/{lost}")).0, 404);
    assert_eq!(ann.status_of(&lost), "success");
}
