//! Questions that the agent's client shows to the person: MCP's elicitation, in both protocol generations.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::{Project, finish, text};
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::mcp_servers::{PYTHON, python};

/// Writes a file, which needs approval, and returns its text.
const WRITES: &str = "
    await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' });
    return await mcp.filesystem.read_text_file({ path: 'a.txt' });";

fn reading() -> Project {
    Project::offline().allow(&["filesystem:read_text_file"])
}

fn choose(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

/// Returns the latest run of a project.
#[track_caller]
fn latest(project: &Project) -> Value {
    let output = project.run(&["runs", "show", "--json"]);
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// Runs a program whose first question is answered by this form.
#[track_caller]
fn run_with(pml: &mut StdioClient, code: &str, answer: &Value) -> Value {
    let id = pml.begin(code);
    let form = pml.server_request("elicitation/create");
    pml.respond(&form, answer);
    envelope(&pml.answer(id)["result"])
}

/// The form shows the whole question. A person who only confirms it allows nothing.
#[test]
fn a_client_of_2025_shows_the_question() {
    let project = reading();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let id = pml.begin(WRITES);
    let form = pml.server_request("elicitation/create");
    let params = &form["params"];
    assert_eq!(
        params["message"],
        "Run `filesystem:write_file` with {\"path\":\"a.txt\",\"content\":\"x\"}"
    );
    let field = &params["requestedSchema"]["properties"]["decision"];
    assert_eq!(field["enum"], json!(["abort", "always", "continue"]));
    assert_eq!(field["default"], "abort");
    assert!(!project.path("a.txt").exists());
    pml.respond(&form, &choose("continue"));
    assert_eq!(success(&envelope(&pml.answer(id)["result"])), "x");
    let run = latest(&project);
    assert_eq!(run["approvals"][0]["answered_by"], "client");

    failure(&run_with(&mut pml, WRITES, &choose("abort")), "APPROVAL_DENIED");
    failure(&run_with(&mut pml, WRITES, &json!({ "action": "decline" })), "APPROVAL_DENIED");
}

/// Calls a command three times with FastMCP: the person allows it, denies it and cancels the form. Prints the statuses
/// and the questions.
const FASTMCP: &str = "
import asyncio, json, os, sys
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport

asked, answers = [], ['accept', 'decline', 'cancel']
code = \"return (await mcp.shell.exec({ command: ['echo', 'hi'] })).stdout\"

async def handler(message, response_type, params, context):
    asked.append(message)
    action = answers[len(asked) - 1]
    return response_type(decision='continue') if action == 'accept' else ElicitResult(action=action)

async def main():
    pml = StdioTransport(sys.argv[1], ['stdio'], env=dict(os.environ))
    async with Client(pml, elicitation_handler=handler) as client:
        for _ in answers:
            result = await client.call_tool('pml_execute', {'code': code}, raise_on_error=False)
            print(json.dumps(result.structured_content))
    print(json.dumps(asked))

asyncio.run(main())
";

/// A third-party client shows the form, also for a call that the agent cannot approve.
#[test]
fn fastmcp_shows_the_question() {
    let project = Project::offline();
    let pml = built("pml").display().to_string();
    let client = Command::new(python(PYTHON).join("python"));
    let output = finish(project.wrap(client, &["-c", FASTMCP, &pml]), b"");
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(success(&lines[0]), "hi\n");
    failure(&lines[1], "APPROVAL_DENIED");
    question(&lines[2]);
    let shown = "Run `shell:exec` with {\"command\":[\"echo\",\"hi\"]}";
    assert_eq!(lines[3], json!([shown, shown, shown]));
}

/// NX-11: a client that answers by itself approves nothing, and a cancelled form is not a denial.
#[test]
fn an_answer_without_a_choice_is_no_answer() {
    let project = reading();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    for answer in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept", "content": { "approved": true } }),
        json!({ "action": "accept", "content": { "decision": "yes" } }),
        json!({ "action": "accept", "content": { "decision": true } }),
    ] {
        let asked = run_with(&mut pml, WRITES, &answer);
        assert_eq!(question(&asked)["options"], json!(["continue", "abort"]), "{answer}");
        assert!(!project.path("a.txt").exists(), "{answer}");
        // The run still waits, and can be answered otherwise.
        let denied = pml.resume(&asked, false, false);
        failure(&denied, "APPROVAL_DENIED");
    }
}

/// "Always" in the form writes exactly one tool; from the agent it counts once.
#[test]
fn only_the_person_allows_permanently() {
    let project = reading();
    let rules = || -> Value {
        let file: Value = serde_json::from_str(&project.read(".pml.json")).unwrap();
        file["permissions"]["allow"].clone()
    };
    let mut plain = project.stdio();
    let asked = plain.execute(WRITES);
    assert_eq!(question(&asked)["options"], json!(["continue", "abort"]));
    let done = plain.resume(&asked, true, true);
    assert_eq!(success(&done), "x");
    assert!(done["warnings"][0].as_str().unwrap().contains("was allowed once"), "{done}");
    assert_eq!(rules(), json!(["filesystem:read_text_file"]));

    let mut pml = project.stdio_with_forms(Era::Handshake);
    assert_eq!(success(&run_with(&mut pml, WRITES, &choose("always"))), "x");
    assert_eq!(rules(), json!(["filesystem:read_text_file", "filesystem:write_file"]));
    assert_eq!(success(&pml.execute(WRITES)), "x");
}

/// Every question of a program is asked within the same call.
#[test]
fn several_questions_are_asked_one_after_the_other() {
    let project = reading();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let id = pml.begin(
        "
        const done = await mcp.filesystem.write_file({ path: 'a.txt', content: '1' });
        await mcp.filesystem.write_file({ path: 'b.txt', content: (done && args.b) ?? '2' });
        return 'done';",
    );
    for name in ["a.txt", "b.txt"] {
        let form = pml.server_request("elicitation/create");
        assert!(form["params"]["message"].as_str().unwrap().contains(name), "{form}");
        assert!(!project.path(name).exists());
        pml.respond(&form, &choose("continue"));
    }
    assert_eq!(success(&envelope(&pml.answer(id)["result"])), "done");
}

/// A direct call of a tool asks in the same way, and returns the tool's result.
#[test]
fn a_direct_call_asks_too() {
    let project = Project::offline();
    project.write("a.txt", "A");
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let call = json!({ "name": "filesystem__read_text_file", "arguments": { "path": "a.txt" } });
    let id = pml.send("tools/call", call);
    let form = pml.server_request("elicitation/create");
    pml.respond(&form, &choose("continue"));
    assert_eq!(pml.answer(id)["result"]["structuredContent"], json!({ "value": "A" }));
}

/// A cancelled call ends its run: nobody waits for the answer any more.
#[test]
fn a_cancelled_call_ends_the_run() {
    let project = reading();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let id = pml.begin(WRITES);
    let form = pml.server_request("elicitation/create");
    pml.notify("notifications/cancelled", json!({ "requestId": id }));
    crate::support::poll("the run to end", crate::support::PATIENCE, || {
        (latest(&project)["status"] == "failed").then_some(())
    });
    pml.respond(&form, &choose("continue"));
    assert_eq!(pml.execute("return 1")["result"], 1);
    assert!(!project.path("a.txt").exists());
}

fn call_again(pml: &mut StdioClient, code: &str, asked: &Value, answer: &Value) -> Value {
    let arguments = crate::support::mcp_client::with_all_details(json!({ "code": code }));
    pml.request(
        "tools/call",
        json!({
            "name": "pml_execute", "arguments": arguments,
            "requestState": asked["requestState"], "inputResponses": { "approval": answer },
        }),
    )
}

/// Under 2026-07-28 the question is a result, and the repeated call has the answer.
#[test]
fn a_client_of_2026_repeats_the_call() {
    let project = reading();
    let mut pml = project.stdio_with_forms(Era::Stateless);
    let id = pml.begin(WRITES);
    let asked = pml.answer(id)["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let form = &asked["inputRequests"]["approval"];
    assert_eq!(form["method"], "elicitation/create");
    assert!(form["params"]["message"].as_str().unwrap().contains("a.txt"));
    let done = call_again(&mut pml, WRITES, &asked, &choose("continue"));
    assert_eq!(success(&envelope(&done["result"])), "x");
    assert_eq!(latest(&project)["approvals"][0]["answered_by"], "client");

    // The answer is used up, and a repeated call never starts the program again.
    std::fs::remove_file(project.path("a.txt")).unwrap();
    let again = call_again(&mut pml, WRITES, &asked, &choose("continue"));
    failure(&envelope(&again["result"]), "WORKFLOW_NOT_FOUND");
    assert!(!project.path("a.txt").exists());
}

/// A handle belongs to one call and to one question.
#[test]
fn a_forged_repetition_runs_nothing() {
    let project = reading();
    let mut pml = project.stdio_with_forms(Era::Stateless);
    let id = pml.begin(WRITES);
    let asked = pml.answer(id)["result"].clone();
    let other = WRITES.replace("'x'", "'y'");
    for (code, state) in [
        (other.as_str(), asked["requestState"].clone()),
        (WRITES, json!("00000000000000000000000000000000")),
        (WRITES, json!("")),
        (WRITES, json!(null)),
    ] {
        let forged = json!({ "requestState": state });
        let answer = call_again(&mut pml, code, &forged, &choose("continue"));
        failure(&envelope(&answer["result"]), "WORKFLOW_NOT_FOUND");
        assert!(!project.path("a.txt").exists(), "{state}");
    }
    // Without a choice, the question becomes the result.
    let unanswered = call_again(&mut pml, WRITES, &asked, &json!({ "action": "cancel" }));
    let waiting = envelope(&unanswered["result"]);
    question(&waiting);
    let form = pml
        .call("pml_continue", json!({ "workflow_id": waiting["workflow_id"], "approved": true }));
    assert_eq!(success(&envelope(&form)), "x");
}
