//! Approvals with third-party clients, by every channel and in both protocol generations.

use serde_json::{Value, json};

use super::sdk_clients::{self, Client};
use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::serve::Serving;

const CLIENTS: [(Client, &str); 7] = [
    (Client::PythonSdk, "2025-11-25"),
    (Client::PythonSdk, "2026-07-28"),
    (Client::FastMcp, "2025-11-25"),
    (Client::FastMcp, "2026-07-28"),
    (Client::TypeScriptV1, "2025-11-25"),
    (Client::TypeScriptV2, "2025-11-25"),
    (Client::TypeScriptV2, "2026-07-28"),
];

/// Writes twenty files; the content of the last one depends on what another contains if `computed`.
fn twenty(computed: bool) -> String {
    let writes = (0..19).map(|place| {
        format!(
            "await mcp.filesystem.write_file({{ path: 'f{place}.txt', content: '{place}' }});\n"
        )
    });
    let last = match computed {
        true => "await mcp.filesystem.read_text_file({ path: 'f3.txt' })",
        false => "'19'",
    };
    let writes: String = writes.collect();
    format!(
        "{writes}await mcp.filesystem.write_file({{ path: 'f19.txt', content: {last} }}); return 'done';"
    )
}

fn execute(code: &str) -> Value {
    json!({ "name": "pml_execute", "arguments": { "code": code } })
}

/// A person at a form allows it.
fn allow() -> Value {
    json!({ "action": "accept", "content": { "decision": "continue" } })
}

/// Every client, over each of the two transports.
fn everywhere() -> impl Iterator<Item = ((Client, &'static str), bool)> {
    CLIENTS.into_iter().flat_map(|client| [(client, false), (client, true)])
}

/// What a client printed: the questions and the envelopes, in order.
struct Seen {
    asked: Vec<String>,
    envelopes: Vec<Value>,
}

/// Has a client make calls, over stdio or over the HTTP of `pml serve`.
#[track_caller]
fn drive(
    project: &Project,
    (client, version): (Client, &str),
    is_http: bool,
    calls: Value,
    answers: Value,
) -> Seen {
    let serving = is_http.then(|| Serving::start(project));
    let target = serving.as_ref().map_or_else(|| sdk_clients::stdio(project), |it| it.target());
    let mut input = json!({ "target": target, "version": version, "calls": calls });
    if answers != Value::Null {
        input["answers"] = answers;
    }
    let mut seen = Seen { asked: Vec::new(), envelopes: Vec::new() };
    let lines = sdk_clients::run(project, client, &input);
    assert_eq!(lines[0]["version"], version, "{client:?}");
    for line in &lines[1..] {
        match line["asked"].as_str() {
            Some(asked) => seen.asked.push(asked.to_owned()),
            None => seen.envelopes.push(line["result"]["structuredContent"].clone()),
        }
    }
    seen
}

/// A program of twenty calls is one question. With one argument that depends on data it is two, and the second is about
/// that call only.
#[test]
fn forms_of_clients_approve_a_program_once() {
    for (client, is_http) in everywhere() {
        let project = Project::offline().allow(&["filesystem:read_text_file"]);
        let calls = json!([execute(&twenty(false)), execute(&twenty(true))]);
        let seen = drive(&project, client, is_http, calls, json!([allow(), allow(), allow()]));
        assert_eq!(seen.asked.len(), 3, "{client:?}: {:?}", seen.asked);
        assert!(
            seen.asked[0].contains("\n20. Run `filesystem:write_file` with"),
            "{}",
            seen.asked[0]
        );
        assert!(
            seen.asked[1].contains("\n19. ") && !seen.asked[1].contains("\n20. "),
            "{client:?}"
        );
        let last = "Run `filesystem:write_file` with {\"path\":\"f19.txt\",\"content\":\"3\"}";
        assert!(seen.asked[2].ends_with(last), "{client:?}: {}", seen.asked[2]);
        assert_eq!(seen.asked[2].matches("Run `").count(), 1, "{client:?}: {}", seen.asked[2]);
        for envelope in &seen.envelopes {
            assert_eq!(success(envelope), "done", "{client:?}");
        }
        assert_eq!(project.read("f19.txt"), "3");
    }
}

/// A client that answers for itself approves nothing that needs a person: it accepts without a choice, cancels, and calls
/// `pml_continue`.
#[test]
fn clients_that_answer_for_themselves_approve_nothing() {
    let command = "return (await mcp.shell.exec({ command: ['touch', 'made.txt'] })).exit_code";
    for (client, is_http) in everywhere() {
        let project = Project::offline();
        // FastMCP refuses to send an answer that does not have the form's fields.
        let empty = match client.0 {
            Client::FastMcp => json!({ "action": "cancel" }),
            _ => json!({ "action": "accept", "content": {} }),
        };
        let approve = json!({
            "name": "pml_continue",
            "arguments": { "workflow_id": "last", "approved": true, "always": true },
        });
        let calls = json!([
            execute(command),
            execute(command),
            approve,
            execute(command),
            execute(command)
        ]);
        let cancel = json!({ "action": "cancel" });
        let answers = json!([empty, cancel, cancel, { "action": "decline" }, allow()]);
        let seen = drive(&project, client, is_http, calls, answers);
        let [accepted, cancelled, continued, declined, allowed] = &seen.envelopes[..] else {
            panic!("{client:?}")
        };
        assert_eq!(question(accepted)["options"], json!(["abort"]), "{client:?}");
        question(cancelled);
        assert_eq!(question(continued)["workflow_id"], cancelled["workflow_id"], "{client:?}");
        failure(declined, "APPROVAL_DENIED");
        assert_eq!(seen.asked.len(), 5, "{client:?}: {:?}", seen.asked);
        // The form itself works.
        assert_eq!(success(allowed), 0, "{client:?}");
        let run = project.run(&["runs", "list", "--json"]);
        let runs: Value = serde_json::from_slice(&run.stdout).unwrap();
        let completed = runs.to_string().matches("\"completed\"").count();
        assert_eq!(completed, 1, "{client:?}: {runs:#}");
    }
}
