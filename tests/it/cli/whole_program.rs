//! The question about a whole program: one answer covers the calls that are known before it starts.

use serde_json::{Value, json};

use crate::support::cli::{Project, policy_for};
use crate::support::expect::{calls, failure, question, success};
use crate::support::mcp_client::{Era, envelope};
use crate::support::terminal::{approve, on_terminal};
use crate::support::{PATIENCE, poll};

/// Writes two files with known arguments, and one whose path depends on a result.
const TWO: &str = "
    const done = await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
    await mcp.filesystem.write_file({ path: (done && args.name) ?? 'none', content: 'b' });
    await mcp.filesystem.write_file({ path: 'b.txt', content: 'b' });
    return 'written';";

fn description(asked: &Value) -> &str {
    question(asked)["description"].as_str().unwrap()
}

#[track_caller]
fn latest(project: &Project) -> Value {
    let output = project.run(&["runs", "show", "--json"]);
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn twenty_calls_are_one_question() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    let mut pml = project.stdio();
    let code: String = (0..20)
        .map(|place| {
            format!(
                "await mcp.filesystem.write_file({{ path: 'f{place}.txt', content: '{place}' }});\n"
            )
        })
        .collect();
    let asked = pml.execute(&(code + "return mcp.filesystem.read_text_file({ path: 'f19.txt' });"));
    assert_eq!(asked["approval_type"], "plan");
    assert_eq!(question(&asked)["context"]["calls"].as_array().unwrap().len(), 20);
    assert!(
        description(&asked).contains(
            "\n20. Run `filesystem:write_file` with {\"path\":\"f19.txt\",\"content\":\"19\"}\n"
        ),
        "{asked:#}"
    );
    assert!(
        description(&asked)
            .ends_with("Allowing it covers these 20 calls, with exactly these arguments.")
    );
    assert!(!project.path("f0.txt").exists());
    let done = pml.resume(&asked, true, false);
    assert_eq!(success(&done), "19");
    assert_eq!(calls(&done).len(), 21);
    // Each call has its own approval in the record, before the first call.
    let run = latest(&project);
    assert_eq!(run["approvals"].as_array().unwrap().len(), 20);
    assert!(run["approvals"].as_array().unwrap().iter().all(|one| one["answer"] == "once"));
    let because = run["calls"][0]["decision"].as_str().unwrap();
    assert_eq!(because, "approved through the agent, before the program started");
    assert!(project.run(&["runs", "verify"]).status.success());
}

/// P5: the answer covers the arguments that were shown, and no others.
#[test]
fn other_arguments_are_asked_about_again() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("secret.txt", "s3");
    let mut pml = project.stdio();
    let asked = pml.execute(
        "const text = await mcp.filesystem.read_text_file({ path: 'secret.txt' });
         await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
         await mcp.filesystem.write_file({ path: 'b.txt', content: text });
         await mcp.filesystem.write_file({ path: 'c.txt', content: 'c' });
         return 'written';",
    );
    assert_eq!(
        description(&asked),
        "1. Run `filesystem:write_file` with {\"path\":\"a.txt\",\"content\":\"a\"}\n\
         2. Run `filesystem:write_file` with {\"path\":\"c.txt\",\"content\":\"c\"}\n\
         Not covered, and asked about when the program reaches it:\n\
         - `filesystem:write_file`, line 3: the program computes its arguments\n\
         Allowing it covers these 2 calls, with exactly these arguments."
    );
    let second = pml.resume(&asked, true, false);
    assert_eq!(
        description(&second),
        "Run `filesystem:write_file` with {\"path\":\"b.txt\",\"content\":\"s3\"}"
    );
    assert_eq!(project.read("a.txt"), "a");
    assert!(!project.path("b.txt").exists() && !project.path("c.txt").exists());
    assert_eq!(success(&pml.resume(&second, true, false)), "written");
    assert_eq!(project.read("c.txt"), "c");
}

/// P5: the answer covers as many calls as were shown.
#[test]
fn more_calls_are_asked_about_again() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("name.txt", "a.txt");
    let mut pml = project.stdio();
    let asked = pml.execute(
        "const name = await mcp.filesystem.read_text_file({ path: 'name.txt' });
         await mcp.filesystem.write_file({ path: name, content: 'a' });
         await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
         await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
         return 'written';",
    );
    assert_eq!(question(&asked)["context"]["calls"][0]["count"], 2, "{asked:#}");
    assert!(description(&asked).starts_with("1. Run `filesystem:write_file` 2 times with"));
    // The computed call has the same arguments and takes one of the two.
    let second = pml.resume(&asked, true, false);
    assert_eq!(question(&second)["context"]["arguments"]["path"], "a.txt");
    assert_eq!(success(&pml.resume(&second, true, false)), "written");
    assert_eq!(calls(&pml.execute("return 1")).len(), 0);
}

/// A program that is denied has not started: calls that need no approval did not happen either.
#[test]
fn a_denied_program_does_nothing() {
    let project = Project::offline().allow_commands(&["sh", "touch"]);
    let mut pml = project.stdio();
    let code = format!("await mcp.shell.exec({{ command: ['touch', 'began'] }});{TWO}");
    let asked = pml.execute(&code);
    let refused = pml.resume(&asked, false, false);
    failure(&refused, "APPROVAL_DENIED");
    assert_eq!(calls(&refused).len(), 0);
    assert!(!project.path("began").exists() && !project.path("a.txt").exists());
    let run = latest(&project);
    assert_eq!(run["status"], "failed");
    assert!(run["approvals"].as_array().unwrap().iter().all(|one| one["answer"] == "abort"));
    failure(&pml.resume(&asked, true, false), "WORKFLOW_LOST");
}

/// The values of `args` are known before the program starts, and are shown and compared like literals.
#[test]
fn args_are_part_of_the_plan() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute_request(json!({
        "code": "const { to } = args;
                 await mcp.filesystem.write_file({ path: to.first, content: args.text });
                 await mcp.filesystem.write_file({ path: args.to.second, content: args.none ?? 'x' });
                 await mcp.filesystem.write_file({ path: args.to.third[0], content: '3' });
                 return 'written';",
        "args": { "to": { "first": "1.txt", "second": "2.txt", "third": ["3.txt"] }, "text": "t\u{202e}" },
    }));
    assert!(
        description(&asked).starts_with(
            "1. Run `filesystem:write_file` with {\"path\":\"1.txt\",\"content\":\"t\\u{202e}\"}\n\
             2. Run `filesystem:write_file` with {\"path\":\"2.txt\",\"content\":\"x\"}\n\
             3. Run `filesystem:write_file` with {\"path\":\"3.txt\",\"content\":\"3\"}\n\
             Allowing"
        ),
        "{asked:#}"
    );
    assert_eq!(success(&pml.resume(&asked, true, false)), "written");
    assert_eq!(project.read("1.txt"), "t\u{202e}");
}

/// NX-11, AP-10: a dangerous call in the plan makes the whole question one for a person.
#[test]
fn a_dangerous_plan_needs_a_person() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(
        "await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
         if (args.never) await mcp.shell.exec({ command: ['touch', 'never'] });
         return (await mcp.shell.exec({ command: ['cat', 'a.txt'] })).stdout;",
    );
    assert!(
        description(&asked).starts_with(
            "Careful, call 2: the command can change every file in the workspace\n\
             Careful, call 3: the command can change every file in the workspace\n\
             1. Run `filesystem:write_file`"
        ),
        "{asked:#}"
    );
    assert!(description(&asked).contains("\n2. (perhaps) Run `shell:exec` with"), "{asked:#}");
    assert_eq!(asked["options"], json!(["abort"]), "{asked:#}");
    let arguments = json!({ "workflow_id": asked["workflow_id"], "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": arguments }));
    assert!(pml.answer_within(waiting, std::time::Duration::from_millis(300)).is_none());
    assert!(!project.path("a.txt").exists());
    approve(&project, &asked, false);
    assert_eq!(success(&envelope(&pml.answer(waiting)["result"])), "a");
    assert!(!project.path("never").exists());
}

/// A command that asks for more than the workspace says so first, and the worst of a program's calls is the reason.
#[test]
fn the_question_says_how_far_a_command_reaches() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(
        "await mcp.shell.exec({ command: ['true'] });
         await mcp.shell.exec({ command: ['true'], access: 'unconfined' });
         await mcp.shell.exec({ command: ['true'], access: 'network' });",
    );
    assert!(
        description(&asked).starts_with(
            "Careful, call 1: the command can change every file in the workspace\n\
             Careful, call 2: the command can do everything that you can\n\
             Careful, call 3: the command can change every file in the workspace, and use the network\n\
             1. Run `shell:exec` with {\"command\":[\"true\"]}\n\
             2. Not confined: may do everything that you can\n   \
                Run `shell:exec` with {\"command\":[\"true\"],\"access\":\"unconfined\"}\n\
             3. May use the network\n"
        ),
        "{asked:#}"
    );
    assert_eq!(asked["context"]["needs_person"], "the command can do everything that you can");
}

/// P5: a link that is put in place after the answer leads elsewhere, so that the call is not the one that was shown.
#[test]
fn a_call_that_leads_elsewhere_is_asked_about_again() {
    let project = Project::offline().allow_commands(&["sh", "touch"]);
    for folder in [".vscode", "d"] {
        std::fs::create_dir(project.path(folder)).unwrap();
    }
    let mut pml = project.stdio();
    let asked = pml.execute(
        "await mcp.shell.exec({ command: ['sh', '-c', 'rmdir d && ln -s .vscode d'] });
         await mcp.filesystem.write_file({ path: 'd/tasks.json', content: 'x' });
         await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
         return 'written';",
    );
    assert_eq!(question(&asked)["context"]["calls"].as_array().unwrap().len(), 2);
    let second = pml.resume(&asked, true, false);
    assert_eq!(question(&second)["context"]["needs_person"], "the call touches a protected place");
    failure(&pml.resume(&second, false, false), "APPROVAL_DENIED");
    assert!(!project.path(".vscode/tasks.json").exists() && !project.path("a.txt").exists());
}

/// AP-05: the question shows where a link leads, and the call must still lead there when it is made.
#[test]
fn the_question_shows_where_a_link_leads() {
    let project = Project::offline();
    project.write("main.rs", "kept");
    project.write("notes.md", "old");
    let link = project.path("README.md");
    std::os::unix::fs::symlink("main.rs", &link).unwrap();
    let mut pml = project.stdio();
    let write = "await mcp.filesystem.write_file({ path: 'README.md', content: 'x' });";
    let leads = "`README.md` leads to `main.rs`\n";
    let asked = pml.execute(write);
    assert!(description(&asked).starts_with(leads), "{asked:#}");
    assert_eq!(
        asked["context"]["links"],
        json!([{ "path": "README.md", "leads_to": "main.rs" }]),
        "{asked:#}"
    );
    let both = format!("{write} await mcp.filesystem.write_file({{ path: 'a', content: 'a' }});");
    let plan = pml.execute(&both);
    assert!(description(&plan).contains(&format!("1. {}", leads.trim_end())), "{plan:#}");

    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("notes.md", &link).unwrap();
    failure(&pml.resume(&asked, true, false), "POLICY_DENIED");
    // The plan has time to ask again.
    let again = pml.resume(&plan, true, false);
    assert!(description(&again).starts_with("`README.md` leads to `notes.md`\n"), "{again:#}");
    failure(&pml.resume(&again, false, false), "APPROVAL_DENIED");
    assert_eq!((&*project.read("main.rs"), &*project.read("notes.md")), ("kept", "old"));
}

/// A plan makes no rule, and a rule that denies a call wins over an answer.
#[test]
fn rules_win_over_the_answer() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(TWO);
    let second = pml.resume(&asked, true, true);
    assert_eq!(question(&second)["context"]["arguments"]["path"], "none");
    success(&pml.resume(&second, true, false));
    assert_eq!(question(&pml.execute(TWO))["approval_type"], "plan");

    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(TWO);
    let project =
        project.configure(&json!({ "permissions": { "deny": ["filesystem:write_file"] } }));
    failure(&pml.resume(&asked, true, false), "PERMISSION_DENIED");
    assert!(!project.path("a.txt").exists());
}

/// Every channel shows the same text.
#[test]
fn every_channel_shows_the_same() {
    let project = Project::offline();
    let shown = description(&project.stdio().execute(TWO)).to_owned();
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let id = pml.begin(TWO);
    let form = pml.server_request("elicitation/create");
    assert_eq!(form["params"]["message"], shown.as_str());
    let field = &form["params"]["requestedSchema"]["properties"]["decision"];
    assert_eq!(field["enum"], json!(["abort", "continue"]));
    assert_eq!(field["enumNames"][1], "Allow these calls");
    let (terminal, code) = on_terminal(&project, &["approve"], &[("ow: ", "n")]);
    assert_eq!(code, 2, "{terminal}");
    for line in shown.lines() {
        assert!(terminal.contains(line), "{line} in {terminal}");
    }
    let answer = json!({ "action": "accept", "content": { "decision": "continue" } });
    pml.respond(&form, &answer);
    let second = pml.server_request("elicitation/create");
    pml.respond(&second, &answer);
    assert_eq!(success(&envelope(&pml.answer(id)["result"])), "written");
}

/// AP-03: what is hidden in the middle of a long command is not approved in a list.
#[test]
fn a_long_command_is_asked_about_on_its_own() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let long = format!("true {}; touch hidden; true {}", "a".repeat(300), "b".repeat(300));
    let asked =
        pml.execute(&format!("await mcp.shell.exec({{ command: ['sh', '-c', {long:?}] }});{TWO}"));
    assert!(!description(&asked).contains("shell:exec` with"), "{asked:#}");
    assert!(
        description(&asked)
            .contains("- `shell:exec`, line 1: it is dangerous, and too long for this list\n"),
        "{asked:#}"
    );
    assert!(asked["context"].get("needs_person").is_none());
}

/// The question states what leaves the machine, like `pml plan`.
#[test]
fn the_question_states_what_leaves_the_machine() {
    let project = Project::offline().allow(&["filesystem:read_text_file", "pml:*"]);
    project.write("secret.txt", "s3");
    let asked = project.stdio().execute(&format!(
        "const text = await mcp.filesystem.read_text_file({{ path: 'secret.txt' }});
         await mcp.pml.search_tools({{ query: text }});{TWO}"
    ));
    assert!(
        description(&asked).contains(
            "Leaves this machine:\n\
             - the result of `filesystem:read_text_file` (line 1) goes to `pml:search_tools` (line 2)\n"
        ),
        "{asked:#}"
    );
}

/// Settings that are made after the answer apply to the calls that are still to be made.
#[test]
fn later_settings_apply_to_calls_that_were_allowed() {
    for (settings, code) in [
        (
            json!({
                "permissions": { "allow": ["shell:exec"], "deny": ["filesystem:write_file"] },
                "policy": policy_for(&["sh"]),
            }),
            "PERMISSION_DENIED",
        ),
        (
            json!({
                "permissions": { "allow": ["shell:exec"] },
                "policy": policy_for(&["sh"]),
                "approvals": "human",
            }),
            "",
        ),
    ] {
        let project = Project::offline().allow_commands(&["sh", "touch"]);
        let mut pml = project.stdio();
        let asked = pml.execute(
            "const waiting = ['sh', '-c', 'touch began; until [ -e go ]; do sleep 0.02; done'];
             await mcp.shell.exec({ command: waiting });
             await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
             await mcp.filesystem.write_file({ path: 'b.txt', content: 'b' });",
        );
        let decision = json!({ "workflow_id": question(&asked)["workflow_id"], "approved": true });
        let running =
            pml.send("tools/call", json!({ "name": "pml_continue", "arguments": decision }));
        poll("the program to run", PATIENCE, || project.path("began").exists().then_some(()));
        let project = project.configure(&settings);
        project.write("go", "");
        let ended = envelope(&pml.answer(running)["result"]);
        if code.is_empty() {
            let why = question(&ended)["context"]["needs_person"].clone();
            assert_eq!(why, "`approvals` is set to `human`", "{ended:#}");
        } else {
            failure(&ended, code);
        }
        assert!(!project.path("a.txt").exists());
    }
}

/// `approvals: "human"` also applies to a question that was asked before.
#[test]
fn a_later_setting_applies_to_an_open_question() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(TWO);
    assert!(question(&asked)["context"].get("needs_person").is_none());
    let project = project.configure(&json!({ "approvals": "human" }));
    let decision = json!({ "workflow_id": asked["workflow_id"], "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": decision }));
    assert!(pml.answer_within(waiting, std::time::Duration::from_millis(300)).is_none());
    assert!(!project.path("a.txt").exists());
    approve(&project, &asked, false);
    question(&envelope(&pml.answer(waiting)["result"]));
    assert_eq!(project.read("a.txt"), "a");
}

/// If nobody can be asked, a program is refused only if it will make one of the calls, or when it reaches one.
#[test]
fn without_a_person_the_program_starts_if_no_call_is_certain() {
    let project = Project::offline().allow_commands(&["sh", "touch"]);
    let perhaps = "await mcp.shell.exec({ command: ['touch', 'began'] });
         if (!args.write) return 'nothing to do';
         await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' });
         await mcp.filesystem.write_file({ path: 'b.txt', content: 'b' });";
    let (done, code) = project.exec(perhaps);
    assert_eq!((success(&done), code), (&json!("nothing to do"), 0));
    let (asked, code) = project.exec(TWO);
    assert_eq!((&question(&asked)["approval_type"], code), (&json!("plan"), 3));
    let certain = perhaps.replace("if (!args.write) return 'nothing to do';", "");
    std::fs::remove_file(project.path("began")).unwrap();
    let (asked, code) = project.exec(&certain);
    assert_eq!((&question(&asked)["approval_type"], code), (&json!("plan"), 3));
    assert!(!project.path("began").exists() && !project.path("a.txt").exists());
}

/// A single call is asked about when the program reaches it, and a program that needs no approval is not asked about.
#[test]
fn one_call_is_no_plan() {
    let project = Project::offline().allow_commands(&["sh", "touch"]);
    let mut pml = project.stdio();
    let asked = pml.execute(
        "await mcp.shell.exec({ command: ['touch', 'began'] });
         await mcp.shell.exec({ command: ['touch', 'went'] });
         await mcp.filesystem.write_file({ path: 'a.txt', content: 'a' }); return 1",
    );
    assert_eq!(question(&asked)["approval_type"], "tool_permission");
    assert!(project.path("began").exists() && project.path("went").exists());
}
