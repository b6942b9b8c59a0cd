//! Plan files: a list of calls in YAML, which becomes a program.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::terminal::on_terminal;

#[track_caller]
fn exec(project: &Project, plan: &str) -> (Value, i32) {
    project.write("plan.yaml", plan);
    let output = project.run(&["exec", "plan.yaml", "--json"]);
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (answer, output.status.code().unwrap())
}

#[track_caller]
fn steps(project: &Project) -> Vec<(String, String)> {
    let output = project.run(&["report", "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let member = |step: &Value, name: &str| step[name].as_str().unwrap().to_owned();
    let steps = report["steps"].as_array().unwrap().iter();
    steps.map(|step| (member(step, "tool"), member(step, "status"))).collect()
}

/// The steps are made in their order, under their own names and the short ones, as one run.
#[test]
fn the_steps_of_a_plan_are_made_in_order() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "A\n");
    let plan = "version: \"1.0\"
name: Copy a file
description: Reads and writes.
steps:
  - id: read
    name: Read it
    tool: fs.read
    args:
      path: a.txt
  - tool: fs.write
    args: { path: b.txt, content: 'B' }
  - tool: filesystem:read_text_file
    args:
      path: b.txt
";
    let (done, code) = exec(&project, plan);
    assert_eq!(code, 0, "{done:#}");
    assert_eq!(
        done["result"],
        json!([
            { "id": "read", "tool": "filesystem:read_text_file", "result": "A\n" },
            { "id": "2", "tool": "filesystem:write_file", "result": "Successfully wrote to b.txt" },
            { "id": "3", "tool": "filesystem:read_text_file", "result": "B" },
        ])
    );
    let tools: Vec<String> = steps(&project).into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(
        tools,
        ["filesystem:read_text_file", "filesystem:write_file", "filesystem:read_text_file"]
    );
    // The plan shows what it does before, with the arguments in full.
    let shown = project.run(&["plan", "plan.yaml", "--json", "--offline"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["complete"], &shown["can_run"]), (&json!(true), &json!(true)), "{shown:#}");
    let tasks = shown["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3);
    assert_eq!(tasks[1]["arguments"]["content"], json!({ "kind": "literal", "value": "B" }));
    assert!(tasks.iter().all(|task| task["certainty"] == "will"), "{shown:#}");
    // Each call is on the line of its step.
    let lines: Vec<&Value> = tasks.iter().map(|task| &task["line"]).collect();
    assert_eq!(lines, [7, 10, 12]);
}

/// A step that fails or is denied ends the run with its reason, and no later step is made.
#[test]
fn a_denied_step_ends_the_run() {
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["filesystem:*"] },
        "policy": { "filesystem": {
            "read": { "allow": ["**"] },
            "write": { "allow": ["ok/**"] },
        } },
    }));
    project.write("ok/a.txt", "A");
    let plan = |place: &str| {
        format!(
            "steps:\n  - tool: fs.read\n    args: {{ path: ok/a.txt }}\n  - tool: fs.write\n    args: {{ path: {place}, content: x }}\n  - tool: fs.write\n    args: {{ path: ok/last.txt, content: x }}\n"
        )
    };
    let (denied, code) = exec(&project, &plan("other.txt"));
    assert_eq!((&denied["error_code"], code), (&json!("POLICY_DENIED"), 3), "{denied:#}");
    let message = denied["message"].as_str().unwrap();
    assert!(message.contains("`policy.filesystem.write.allow`"), "{message}");
    assert_eq!(denied["details"]["line"], 4, "{denied:#}");
    let made: Vec<String> = steps(&project).into_iter().map(|(_, status)| status).collect();
    assert_eq!(made, ["success", "denied"]);
    assert!(!project.path("ok/last.txt").exists());
    let (done, code) = exec(&project, &plan("ok/other.txt"));
    assert_eq!(code, 0, "{done:#}");
    assert!(project.path("ok/last.txt").exists());

    // One question for the whole plan, or none without a terminal.
    let project = Project::offline();
    let plan = "steps: [{ tool: fs.write, args: { path: a.txt, content: x } }, { tool: fs.write, args: { path: b.txt, content: x } }]";
    let (asked, code) = exec(&project, plan);
    assert_eq!(code, 3, "{asked:#}");
    assert!(!project.path("a.txt").exists());
    let (shown, code) = on_terminal(&project, &["exec", "plan.yaml"], &[(r"\[N\]o: ", "y")]);
    assert_eq!(code, 0, "{shown}");
    assert!(project.path("a.txt").exists() && project.path("b.txt").exists());
}

/// AN-10, AN-11: whatever a value is, it reaches the tool as it is, and nothing in it is code.
#[test]
fn values_of_a_plan_are_not_code() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let hostile = "`${mcp.shell.exec({})}` */ }); await mcp.shell.exec({}); // </script>\u{2028}\u{202e}\\u0041\r\n'\"\u{0}__proto__";
    let plan = json!({ "steps": [
        { "tool": "fs.write", "args": { "path": "out.txt", "content": hostile } },
    ] });
    // JSON is YAML.
    let (done, code) = exec(&project, &plan.to_string());
    assert_eq!(code, 0, "{done:#}");
    assert_eq!(project.read("out.txt"), hostile);
    let shown = project.run(&["analyze", "plan.yaml", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["tools"], json!(["filesystem:write_file"]), "{shown:#}");
    // The name is a member like any other: it does not set the prototype, whose `head` the tool would obey.
    let plan = "steps: [{ tool: fs.read, args: { path: out.txt, __proto__: { head: 1 } } }]";
    let (done, _) = exec(&project, plan);
    assert_eq!(done["result"][0]["result"], hostile, "{done:#}");
    let output = project.run(&["report", "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let arguments: Value =
        serde_json::from_str(r#"{ "path": "out.txt", "__proto__": { "head": 1 } }"#).unwrap();
    assert_eq!(report["steps"][0]["arguments"], arguments);
}

/// An invalid file is refused with its line and column, and nothing is run.
#[test]
fn an_invalid_plan_is_refused_with_its_place() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let valid = "steps:\n  - tool: fs.write\n    args: { path: a.txt, content: x }\n";
    for (plan, line, column) in [
        (format!("{valid}    argument: 1\n"), 4, 5),
        (format!("{valid}  - tool: fs.delete\n"), 4, 11),
        (format!("{valid}steps: []\n"), 4, 1),
        (format!("{valid}  - {{}}\n"), 4, 5),
        (format!("{valid}  - tool: [fs.read\n"), 4, 11),
        (format!("{valid}  - tool: \"fs.read\n"), 4, 11),
    ] {
        let (refused, code) = exec(&project, &plan);
        assert_eq!(
            (&refused["error_code"], code),
            (&json!("PARSE_ERROR"), 2),
            "{plan}: {refused:#}"
        );
        let details = &refused["details"];
        assert_eq!(
            (&details["line"], &details["column"]),
            (&json!(line), &json!(column)),
            "{plan}: {refused:#}"
        );
        let shown = project.run(&["plan", "plan.yaml"]);
        assert_eq!(shown.status.code(), Some(2));
        let shown = text(&shown.stderr);
        assert!(shown.contains(&format!("(line {line}, column {column})")), "{shown}");
    }
    assert!(!project.path("a.txt").exists());
    let (done, code) = exec(&project, valid);
    assert_eq!(code, 0, "{done:#}");
    // Other files are programs.
    project.write("plan.txt", valid);
    assert_eq!(project.run(&["exec", "plan.txt"]).status.code(), Some(2));

    // 1,000 steps and large results fit; a plan that is larger than a program does not.
    project.write("large.txt", "x".repeat(400_000));
    let step = "  - { tool: fs.read, args: { path: large.txt } }\n";
    let (done, code) = exec(&project, &format!("steps:\n{}", step.repeat(3)));
    assert_eq!(code, 0, "{done:#}");
    assert_eq!(done["result"][2]["result"], json!({ "omitted": 400_002 }));
    let (refused, code) = exec(&project, &format!("steps:\n{}", step.repeat(1_001)));
    assert_eq!(code, 2);
    assert!(refused["message"].as_str().unwrap().contains("1001 steps"), "{refused:#}");
}
