//! `pml approve` and `pml deny`: a person answers a run that waits in an agent's session.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{Era, envelope};
use crate::support::terminal::{approve, on_terminal};

const WRITES: &str = "
    await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' });
    return 'written';";

const RUNS: &str = "
    const done = await mcp.shell.exec({ command: ['touch', 'b.txt'] });
    return done.exit_code;";

fn shown(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn id(asked: &Value) -> &str {
    question(asked)["workflow_id"].as_str().unwrap()
}

/// The person sees the question and answers it; the agent gets the outcome with `pml_continue`.
#[test]
fn a_person_approves_on_a_terminal() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(WRITES);
    let (shown, code) = on_terminal(&project, &["approve", id(&asked)], &[("ow: ", "y")]);
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("Run `filesystem:write_file` with {\"path\":\"a.txt\",\"content\":\"x\"}"),
        "{shown}"
    );
    assert!(shown.ends_with("Allowed; the run continues.\n"), "{shown}");
    // Whatever the agent says now, the person has answered.
    assert_eq!(success(&pml.resume(&asked, false, false)), "written");
    assert_eq!(project.read("a.txt"), "x");
    let run = project.run(&["runs", "show", "--json"]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(run["approvals"][0]["answered_by"], "terminal");
    // It is used up.
    failure(&pml.resume(&asked, true, false), "WORKFLOW_LOST");
}

/// NX-11, AP-10: the agent cannot approve a command, whatever it sends.
#[test]
fn the_agent_cannot_approve_a_dangerous_call() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(RUNS);
    assert_eq!(asked["options"], json!(["abort"]), "{asked}");
    assert_eq!(
        asked["context"]["needs_person"],
        "the command can change every file in the workspace"
    );
    let hint = asked["context"]["answer_with"].as_str().unwrap();
    assert!(hint.contains(&format!("pml approve {}", id(&asked))), "{hint}");
    // It waits for the person, who approves in the meantime by retyping the code.
    let arguments = json!({ "workflow_id": id(&asked), "approved": true, "always": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": arguments }));
    assert!(pml.answer_within(waiting, std::time::Duration::from_millis(500)).is_none());
    assert!(!project.path("b.txt").exists());
    let retyped = [("Type ([a-z]+) to allow it, anything else to leave it unanswered: ", r"\1")];
    let (shown, code) = on_terminal(&project, &["approve"], &retyped);
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("Careful: the command can change every file in the workspace."),
        "{shown}"
    );
    let done = pml.answer(waiting)["result"]["structuredContent"].clone();
    assert_eq!(success(&done), 0);
    assert!(project.path("b.txt").exists());

    // The agent can always say no.
    let asked = pml.execute(RUNS);
    failure(&pml.resume(&asked, false, false), "APPROVAL_DENIED");
}

/// A question that is shown in a form can be answered on a terminal instead, and the program runs once.
#[test]
fn the_first_of_two_answers_counts() {
    let project = Project::offline();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let id = pml.begin(WRITES);
    let form = pml.server_request("elicitation/create");
    let (shown, code) = on_terminal(&project, &["approve"], &[("ow: ", "y")]);
    assert_eq!(code, 0, "{shown}");
    let done = envelope(&pml.answer(id)["result"]);
    assert_eq!(success(&done), "written");
    pml.respond(&form, &json!({ "action": "accept", "content": { "decision": "abort" } }));
    assert_eq!(success(&pml.execute("return 1")), 1);
    let (late, code) = on_terminal(&project, &["approve"], &[]);
    assert!(code == 0 && late.contains("No question waits"), "{late}");
}

/// A protected place and the start of a server need a person, too.
#[test]
fn protected_places_need_a_person() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let mut pml = project.stdio();
    let asked = pml.execute(
        "await mcp.filesystem.write_file({ path: 'AGENTS.md', content: 'x' }); return 'written'",
    );
    assert_eq!(question(&asked)["context"]["needs_person"], "the call touches a protected place");
    let arguments = json!({ "workflow_id": id(&asked), "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": arguments }));
    assert!(pml.answer_within(waiting, std::time::Duration::from_millis(300)).is_none());
    assert!(!project.path("AGENTS.md").exists());
    approve(&project, &asked, false);
    let done = envelope(&pml.answer(waiting)["result"]);
    assert_eq!(success(&done), "written");
}

/// With `approvals` set to `human`, the agent approves nothing. The setting needs no trust, because it only restricts.
#[test]
fn a_setting_turns_off_approvals_by_the_agent() {
    let by_file = Project::offline();
    by_file.write(".pml.json", r#"{ "approvals": "human" }"#);
    let by_variable = Project::offline().set("PML_APPROVALS", "human");
    for project in [by_file, by_variable] {
        let mut pml = project.stdio();
        let asked = pml.execute(WRITES);
        assert_eq!(question(&asked)["options"], json!(["abort"]));
        assert_eq!(asked["context"]["needs_person"], "`approvals` is set to `human`");
        // An ordinary call needs no code.
        let (shown, code) = on_terminal(&project, &["approve"], &[("ow: ", "y")]);
        assert_eq!(code, 0, "{shown}");
        assert_eq!(success(&pml.resume(&asked, true, false)), "written");
    }
    let invalid = Project::offline();
    invalid.write(".pml.json", r#"{ "approvals": "agent" }"#);
    failure(&invalid.exec("return 1").0, "CONFIG_INVALID");
    let invalid = Project::offline().set("PML_APPROVALS", "no");
    failure(&invalid.exec("return 1").0, "CONFIG_INVALID");
}

/// AP-09: without a person at a terminal, nothing is approved. Anybody can deny.
#[test]
fn without_a_terminal_nothing_is_approved() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let nothing = project.run(&["approve"]);
    assert_eq!(shown(&nothing), "No question waits for an answer.\n");
    let asked = pml.execute(WRITES);
    for input in [&b""[..], b"y\n", b"yes\nyes\nyes\n"] {
        let refused = project.run_with(&["approve", id(&asked)], input);
        assert_eq!(refused.status.code(), Some(2));
        assert!(shown(&refused).contains("there is no terminal to ask on"), "{}", shown(&refused));
    }
    // On a terminal, anything but a clear answer leaves the question open.
    for answer in ["", "n", "no", "allow"] {
        let (shown, code) = on_terminal(&project, &["approve"], &[("ow: ", answer)]);
        assert_eq!(code, 2, "{shown}");
    }
    let (shown_on_terminal, code) = on_terminal(&project, &["approve"], &[("ow: ", "\u{4}")]);
    assert_eq!(code, 2, "{shown_on_terminal}");
    assert!(!project.path("a.txt").exists());
    for unknown in ["wl_00000000000000000000000000000000", "x", "../../x", ""] {
        let refused = project.run(&["deny", unknown]);
        assert_eq!(refused.status.code(), Some(2), "{unknown}");
        assert!(shown(&refused).contains("no question waits as"), "{}", shown(&refused));
    }
    let denied = project.run(&["deny"]);
    assert_eq!(shown(&denied), "Denied; the run was ended.\n");
    failure(&pml.resume(&asked, true, false), "APPROVAL_DENIED");
}

/// Several questions are listed; a question of a `pml` that has ended is not.
#[test]
fn questions_are_listed_while_they_wait() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let (first, second) = (pml.execute(WRITES), pml.execute(RUNS));
    let listed = shown(&project.run(&["approve"]));
    assert!(listed.contains(id(&first)) && listed.contains(id(&second)), "{listed}");
    assert!(listed.contains("several questions wait"), "{listed}");
    let refused = project.run(&["deny"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(shown(&refused).contains("`pml deny WORKFLOW`"), "{}", shown(&refused));
    // The line breaks of arguments are not those of the question.
    let hostile = pml.execute(
        "await mcp.filesystem.write_file({ path: 'a\\n\\u001b[2J\\u202eb', content: '' })",
    );
    let listed = shown(&project.run(&["approve"]));
    assert!(!listed.contains('\u{1b}') && !listed.contains('\u{202e}'), "{listed}");
    assert!(listed.contains(id(&hostile)));
    pml.pid().signal("KILL");
    pml.wait();
    assert_eq!(shown(&project.run(&["approve"])), "No question waits for an answer.\n");
}

/// A run with several questions continues from one to the next.
#[test]
fn the_next_question_is_asked_as_before() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(
        "const done = await mcp.filesystem.write_file({ path: 'a.txt', content: '1' });
         await mcp.filesystem.write_file({ path: 'b.txt', content: done });
         return 'done';",
    );
    assert_eq!(on_terminal(&project, &["approve"], &[("ow: ", "y")]).1, 0);
    let next = pml.resume(&asked, true, false);
    assert_eq!(question(&next)["context"]["arguments"]["path"], "b.txt");
    let (shown, code) = on_terminal(&project, &["approve"], &[("ow: ", "a")]);
    assert!(code == 0 && shown.ends_with("Allowed from now on; the run continues.\n"), "{shown}");
    assert_eq!(success(&pml.resume(&next, true, false)), "done");
}
