//! Calls that a person leaves out when they allow a program: they fail, and the others are made.

use serde_json::{Value, json};

use crate::cli::page::{browse, link, with_browser};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{Era, envelope};
use crate::support::terminal::on_terminal;

/// Makes three calls, and returns what became of each. Then it makes the second one again, in other words.
const THREE: &str = "
    const codes = [];
    const note = (call) => call.then(() => codes.push('made'), (error) => codes.push(error.code));
    await note(mcp.filesystem.write_file({ path: 'a.txt', content: 'a' }));
    await note(mcp.filesystem.write_file({ path: 'b.txt', content: 'b' }));
    await note(mcp.filesystem.write_file({ path: 'c.txt', content: 'c' }));
    const again = JSON.parse(JSON.stringify({ content: 'b', path: 'b.txt' }));
    await note(mcp.filesystem.write_file(again));
    return codes";

#[track_caller]
fn assert_second_is_left_out(project: &Project, result: &Value) {
    assert_eq!(result, &json!(["made", "APPROVAL_DENIED", "made", "APPROVAL_DENIED"]));
    let there = ["a.txt", "b.txt", "c.txt"].map(|name| project.path(name).exists());
    assert_eq!(there, [true, false, true]);
    let run = project.run(&["runs", "show", "--json"]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    let answers: Vec<&str> = run["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["answer"].as_str().unwrap())
        .collect();
    assert_eq!(answers, ["once", "left_out", "once"], "{run:#}");
    assert!(project.run(&["runs", "verify"]).status.success());
}

/// A person types the numbers. What cannot be left out is asked again, and is no denial.
#[test]
fn calls_are_left_out_on_a_terminal() {
    let project = Project::offline();
    project.write("three.ts", THREE);
    let answers = [
        ("No?: |\\[N\\]o: ", "w 4"),
        ("the list has 3[^$]*\\[N\\]o: ", "without 1-3"),
        ("deny the program instead[^$]*\\[N\\]o: ", "w"),
        ("by their numbers[^$]*\\[N\\]o: ", "w 2"),
    ];
    let (shown, code) = on_terminal(&project, &["exec", "three.ts"], &answers);
    assert_eq!(code, 0, "{shown}");
    let result = shown.rsplit_once("w 2\n").unwrap_or_else(|| panic!("{shown}")).1;
    assert_second_is_left_out(&project, &serde_json::from_str(result).unwrap());
}

/// The agent passes on what the user said. An answer that does not fit leaves the question open.
#[test]
fn the_agent_passes_on_what_is_left_out() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(THREE);
    let id = question(&asked)["workflow_id"].clone();
    let answer =
        |without: Value| json!({ "workflow_id": id, "approved": true, "without": without });
    for wrong in
        [json!([4]), json!([1, 2, 3]), json!([0, 1, 2]), json!([-1]), json!(["2"]), json!("2")]
    {
        failure(&envelope(&pml.call("pml_continue", answer(wrong))), "INVALID_REQUEST");
    }
    let done = envelope(&pml.call("pml_continue", answer(json!([2, 2]))));
    assert_second_is_left_out(&project, success(&done));
    // A question about one call has none to leave out.
    let asked = pml.execute("await mcp.filesystem.write_file({ path: 'd.txt', content: 'd' })");
    let id = question(&asked)["workflow_id"].clone();
    let one = json!({ "workflow_id": id, "approved": true, "without": [1] });
    failure(&envelope(&pml.call("pml_continue", one)), "INVALID_REQUEST");
    assert!(!project.path("d.txt").exists());
}

/// In a form, the numbers are a field of their own. What cannot be read is no answer.
#[test]
fn calls_are_left_out_in_a_form() {
    let project = Project::offline();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    for (without, answered) in
        [(json!("2"), true), (json!("7"), false), (json!("all"), false), (json!(2), false)]
    {
        let id = pml.begin(THREE);
        let form = pml.server_request("elicitation/create");
        assert!(form["params"]["requestedSchema"]["properties"]["without"].is_object(), "{form}");
        let content = json!({ "decision": "continue", "without": without });
        pml.respond(&form, &json!({ "action": "accept", "content": content }));
        let done = envelope(&pml.answer(id)["result"]);
        match answered {
            true => assert_second_is_left_out(&project, success(&done)),
            false => drop(question(&done).clone()),
        }
    }
}

/// A dangerous call can be left out, on a terminal and on the page; the code is still needed.
#[test]
fn a_dangerous_call_is_left_out() {
    let program = "
        await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
        try { await mcp.shell.exec({ command: ['touch', 'made.txt'] }) } catch (error) { return error.code }";
    let project = with_browser();
    let mut pml = project.stdio();
    let asked = pml.execute(program);
    let wrong =
        [("Type ([a-z]+) to allow it, [a-z]+ w 2,4 to leave calls out, .*unanswered: ", r"\1 w 3")];
    let (shown, code) = on_terminal(&project, &["approve"], &wrong);
    assert!(code == 2 && shown.contains("call 3 cannot be left out: the list has 2"), "{shown}");
    let (shown, code) = on_terminal(&project, &["approve"], &[("unanswered: ", "w 2")]);
    assert!(code == 2 && shown.contains("not answered; the run waits"), "{shown}");
    let right = [("Type ([a-z]+) to allow it, .*unanswered: ", r"\1 w 2")];
    let (shown, code) = on_terminal(&project, &["approve"], &right);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(success(&pml.resume(&asked, true, false)), "APPROVAL_DENIED");
    assert!(project.path("a.txt").exists() && !project.path("made.txt").exists());

    let project = with_browser();
    let mut pml = project.stdio();
    let asked = pml.execute(program);
    let steps = json!([
        { "check": [1, 2], "type": "CODE", "click": "once" },
        { "check": [2], "type": "CODE", "click": "once" },
    ]);
    let seen = browse(&json!({ "url": link(&project), "steps": steps }));
    let shown = |place: usize| seen["seen"][place]["text"].as_str().unwrap();
    assert!(shown(1).contains("All calls would be left out. Nothing was answered."), "{seen}");
    assert_eq!(shown(2), "Allowed; the run continues. You can close this page.");
    assert_eq!(success(&pml.resume(&asked, true, false)), "APPROVAL_DENIED");
    assert!(project.path("a.txt").exists() && !project.path("made.txt").exists());
    let shown = text(&project.run(&["runs", "show"]).stdout);
    assert!(shown.contains("left out, through the page"), "{shown}");
}
