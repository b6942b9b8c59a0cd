//! `pml plan`: reports what a program will and may do, without running it.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};

/// Reads a file on this machine, sends its text to server tools, and runs a command per step.
const MIXED: &str = "const text = await mcp.filesystem.read_text_file({ path: args.path });
const data = await mcp.json.parse({ data: text });
if (data.ok) await mcp.slack.post_message({ channel: '#ops', text: data.title });
for (const step of data.steps) await mcp.shell.exec({ command: ['make', step] });
return data;";

pub(super) fn plan(project: &Project, code: &str) -> (Value, i32) {
    let output = project.run_with(&["plan", "-", "--json"], code.as_bytes());
    let plan = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (plan, output.status.code().unwrap())
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

/// The JSON has exactly the documented fields.
#[test]
fn the_json_plan_has_exactly_the_documented_fields() {
    let project = Project::offline();
    let (plan, code) = plan(&project, MIXED);
    assert_eq!(code, 0, "{plan:#}");
    assert_eq!(
        keys(&plan),
        BTreeSet::from([
            "can_run",
            "denied",
            "runs_on",
            "complete",
            "gaps",
            "groups",
            "tasks",
            "order",
            "egress",
            "args_egress",
            "capabilities",
            "routing",
            "text_goes_to",
            "refusals",
            "notes",
            "diagnostics"
        ])
    );
    assert_eq!((&plan["can_run"], &plan["complete"]), (&json!(true), &json!(true)));
    assert_eq!((&plan["runs_on"], &plan["gaps"]), (&json!("client"), &json!([])));
    assert_eq!(
        plan["groups"],
        json!([
            { "effect": "reads", "tasks": ["t1"] },
            { "effect": "runs", "tasks": ["t4"] },
            { "effect": "sends", "tasks": ["t3"] },
            { "effect": "computes", "tasks": ["t2"] },
        ])
    );
    for task in plan["tasks"].as_array().unwrap() {
        assert_eq!(
            keys(task),
            BTreeSet::from([
                "id",
                "tool",
                "side",
                "effect",
                "certainty",
                "times",
                "layer",
                "line",
                "column",
                "arguments",
                "parameters",
                "from_args",
                "data_from",
                "decided_by",
                "decided_by_args",
                "conditions",
                "routing_source",
                "routing_age_s"
            ])
        );
    }
    let [read, parse, post, make] = &plan["tasks"].as_array().unwrap()[..] else {
        panic!("{plan}")
    };
    assert_eq!(read["parameters"], json!(["args.path"]));
    assert_eq!((&read["from_args"], &parse["from_args"]), (&json!(true), &json!(false)));
    assert_eq!((&read["certainty"], &read["times"]), (&json!("will"), &json!("once")));
    assert_eq!((&parse["side"], &parse["data_from"]), (&json!("server"), &json!(["t1"])));
    assert_eq!((&post["certainty"], &post["decided_by"]), (&json!("may"), &json!(["t2"])));
    assert_eq!(
        post["conditions"],
        json!([{ "repeats": false, "branch": "then", "text": "data.ok" }])
    );
    assert_eq!((&make["certainty"], &make["times"]), (&json!("may"), &json!("many")));
    assert_eq!((&make["line"], &make["effect"]), (&json!(4), &json!("runs")));
    assert_eq!(
        plan["egress"],
        json!([{ "from": "t1", "to": "t2" }, { "from": "t1", "to": "t3", "via": ["t2"] }])
    );
    assert_eq!(plan["args_egress"], json!([]));
}

/// Data that decides whether a server tool is called leaves the machine with the call.
#[test]
fn conditions_of_server_calls_count_as_egress() {
    let project = Project::offline();
    let code = "const text = await mcp.filesystem.read_text_file({ path: 'notes.md' });
if (text && !args.dry_run) await mcp.slack.post_message({ channel: '#ops', text: 'written' });
for (const topic of args.topics) await mcp.tavily.search({ query: topic });";
    let (planned, _) = plan(&project, code);
    assert_eq!(planned["egress"], json!([{ "from": "t1", "to": "t2", "decides": true }]));
    assert_eq!(
        planned["args_egress"],
        json!([
            { "to": "t2", "parameters": [], "decides": ["args.dry_run"] },
            { "to": "t3", "parameters": ["args.topics"] },
        ])
    );
    assert_eq!(planned["tasks"][1]["decided_by_args"], json!(["args.dry_run"]));
    let shown = text(&project.run_with(&["plan", "-"], code.as_bytes()).stdout);
    let leaving = "Leaves this machine
  t1 filesystem:read_text_file → t2 slack:post_message (decides)
  args.topics                  → t3
  args.dry_run                 → t2 (decides)
  (decides): not sent, but whether or how often a call is made depends on it
";
    assert!(shown.contains(leaving), "{shown}");
}

/// Piped output is text without colours and has the essential lines.
#[test]
fn the_default_output_is_text_without_colours() {
    let project = Project::offline();
    let output = project.run_with(&["plan", "-"], MIXED.as_bytes());
    let shown = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(!shown.contains('\u{1b}'), "{shown}");
    for part in [
        "Runs on this machine: 4 calls, 4 tools, 4 steps.",
        "path: args.path",
        "command: [\"make\", `step`]",
        "if `data.ok`",
        "Leaves this machine",
        "t1 filesystem:read_text_file → t2 json:parse, t3 slack:post_message (through t2)",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    // The command is confined without network.
    assert!(!shown.contains("may send"), "{shown}");
}

/// A command may send its arguments unless it is known to be confined without network.
#[test]
fn commands_with_network_may_send_their_arguments() {
    let project = Project::offline();
    for (arguments, may_send) in [
        ("{ command: ['make'] }", false),
        ("{ command: ['make', args.x], access: 'workspace' }", false),
        ("{ command: ['make'], access: 'network' }", true),
        ("{ command: ['make'], access: 'unconfined' }", true),
        ("{ command: ['make'], access: args.access }", true),
        ("{ command: ['make'], ...args }", true),
        ("args.all", true),
    ] {
        let code = format!("return await mcp.shell.exec({arguments})");
        let shown = text(&project.run_with(&["plan", "-"], code.as_bytes()).stdout);
        let part = "may send their arguments, from here: t1 shell:exec";
        assert_eq!(shown.contains(part), may_send, "{arguments}\n{shown}");
    }
    // A server of the user's own that is called `shell` is not confined.
    let server = json!({ "shell": { "command": "cat", "override": true } });
    let project = Project::offline().configure(&json!({ "mcpServers": server }));
    let code = b"return await mcp.shell.exec({ command: ['make'] })";
    let shown = text(&project.run_with(&["plan", "-"], code).stdout);
    assert!(shown.contains("may send"), "{shown}");
}

/// Colours are used on a terminal only, and not with `NO_COLOR`.
#[test]
fn colours_are_for_terminals_without_no_color() {
    let project = Project::offline();
    project.write("program.ts", MIXED);
    let on_terminal = |no_color: &str| {
        let pml = project.command(&["plan", "program.ts"]);
        let words: Vec<String> = std::iter::once(pml.get_program())
            .chain(pml.get_args())
            .map(|word| format!("'{}'", word.to_str().unwrap()))
            .collect();
        // `script` gives the command a terminal.
        let mut script = Command::new("script");
        script.args(["-qec", &words.join(" "), "/dev/null"]).current_dir(project.workspace());
        for (name, value) in pml.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        script.env("TERM", "xterm").env("NO_COLOR", no_color);
        let output = crate::support::cli::finish(script, b"");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = on_terminal("");
    assert!(shown.contains("\u{1b}[1;31mLeaves this machine\u{1b}[0m"), "{shown:?}");
    let shown = on_terminal("1");
    assert!(shown.contains("Leaves this machine") && !shown.contains('\u{1b}'), "{shown:?}");
}

/// `plan` and `analyze` draw the same graphs.
#[test]
fn plan_and_analyze_draw_the_same_graphs() {
    let project = Project::offline();
    for (format, start) in [("mermaid", "flowchart TD\n"), ("svg", "<svg xmlns=")] {
        let draw = |command: &str| {
            let output = project.run_with(&[command, "-", "--graph", format], MIXED.as_bytes());
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        let drawn = draw("plan");
        assert!(drawn.starts_with(start), "{drawn}");
        assert!(drawn.contains("t3 slack:post_message"), "{drawn}");
        assert_eq!(draw("analyze"), drawn);
    }
    let output = project.run(&["plan", "-", "--graph", "png"]);
    assert_eq!(output.status.code(), Some(2));
    let output = project.run(&["plan", "-", "--graph", "svg", "--json"]);
    assert_eq!(output.status.code(), Some(2));
}

/// For an invalid program the exit code is 2, with the reason on stderr and nothing on stdout.
#[test]
fn invalid_programs_exit_with_2_and_have_no_plan() {
    let project = Project::offline();
    for flags in [&["plan", "-"][..], &["plan", "-", "--graph", "svg"]] {
        let output = project.run_with(flags, b"await mcp.json.parse({}); const = 1;");
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("(line 1, column"), "{}", text(&output.stderr));
    }
    let (plan, code) = plan(&project, "import fs from 'fs';");
    assert_eq!((code, &plan["can_run"], &plan["complete"]), (2, &json!(false), &json!(false)));
    assert_eq!(plan["diagnostics"][0]["severity"], "error", "{plan:#}");
    let missing = project.run(&["plan", "no-such-file.ts", "--json"]);
    assert_eq!(missing.status.code(), Some(2));
    let envelope: Value = serde_json::from_slice(&missing.stdout).unwrap();
    assert_eq!(envelope["status"], "error", "{envelope:#}");
}

/// The plan of a program that chooses tools at run time states its gaps.
#[test]
fn a_plan_states_its_gaps() {
    let project = Project::offline();
    let code =
        "const a = await mcp.git.git_log({ repo_path: '.' });\nawait mcp[args.to].send({ a });";
    let (plan, exit) = plan(&project, code);
    assert_eq!((exit, &plan["complete"]), (0, &json!(false)), "{plan:#}");
    assert_eq!(
        (&plan["gaps"][0]["line"], &plan["gaps"][0]["code"]),
        (&json!(2), &json!("DYNAMIC_NAME"))
    );
    let output = project.run_with(&["plan", "-"], code.as_bytes());
    let shown = text(&output.stdout);
    assert!(output.status.success());
    assert!(shown.contains("INCOMPLETE") && shown.contains("  line 2, column"), "{shown}");
    assert!(shown.contains("It cannot be determined what leaves this machine"), "{shown}");
}

/// Every form of the plan escapes hidden characters of the program.
#[test]
fn hidden_characters_are_escaped_in_every_output_format() {
    let project = Project::offline();
    let code = "await mcp.filesystem.write_file({ path: 'a\u{202e}\u{200b}\\x1b[2J.txt', content: '</text><script>' });";
    for flags in [
        &["plan", "-"][..],
        &["plan", "-", "--json"],
        &["plan", "-", "--graph", "svg"],
        &["plan", "-", "--graph", "mermaid"],
    ] {
        let output = project.run_with(flags, code.as_bytes());
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(shown.contains("202e") || shown.contains("8238"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{shown:?}");
        let picture = flags.contains(&"--graph");
        assert!(!picture || !shown.contains("<script>") && !shown.contains("</text><"), "{shown}");
    }
}

/// Calls each tool of the shipped catalog once. Each must have a known effect, so that a new tool cannot be added
/// without one.
#[test]
fn every_shipped_tool_has_a_known_effect() {
    // `everything` is a test server for clients; its tools have no effects.
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/catalog");
    let mut code = String::new();
    for entry in std::fs::read_dir(catalog).unwrap() {
        let path = entry.unwrap().path();
        let server = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_none_or(|extension| extension != "json") || server == "everything" {
            continue;
        }
        let entry: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for tool in entry["tools"].as_array().unwrap() {
            code += &format!("await mcp[{:?}][{}]({{}});\n", server, tool["name"]);
        }
    }
    // The gateway's own tools are listed in the operator's page, which another test
    // compares with the gateway.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating.md");
    for row in std::fs::read_to_string(page).unwrap().lines() {
        let cells: Vec<&str> = row.split('`').collect();
        if let ["| ", namespace, " | ", tools, " |"] = cells[..] {
            for tool in tools.split_whitespace() {
                code += &format!("await mcp[{namespace:?}][{tool:?}]({{}});\n");
            }
        }
    }
    assert!(code.contains("[\"json\"][\"parse\"]"), "{code}");
    let project = Project::offline();
    let (plan, _) = plan(&project, &code);
    let tasks = plan["tasks"].as_array().unwrap();
    assert!(tasks.len() >= 80, "{} tools", tasks.len());
    for task in tasks {
        assert_ne!(task["effect"], "calls", "{}", task["tool"]);
    }
}

/// `plan` does not run the program.
#[test]
fn plan_does_not_run_the_program() {
    let project = Project::offline();
    let (plan, code) = plan(
        &project,
        "for (;;) await mcp.filesystem.write_file({ path: 'made.txt', content: '' });",
    );
    assert_eq!((code, &plan["tasks"][0]["effect"]), (0, &json!("writes")));
    assert!(!project.path("made.txt").exists());
}

/// The plan lists calls in order, and only calls that can overlap as concurrent.
#[test]
fn the_plan_lists_calls_in_order() {
    let project = Project::offline();
    let code = "await mcp.filesystem.write_file({ path: 'a', content: '' });
await mcp.shell.exec({ command: ['make'] });
await Promise.all([mcp.slack.post_message({ text: 'a' }), mcp.slack.post_message({ text: 'b' })]);
for (const path of args.paths) await mcp.filesystem.write_file({ path, content: '' });";
    let (planned, _) = plan(&project, code);
    assert_eq!(
        planned["order"],
        json!([
            { "tasks": ["t1"] },
            { "tasks": ["t2"] },
            { "tasks": ["t3", "t4"], "together": true },
            { "tasks": ["t5"], "repeats_from": [4] },
        ])
    );
    let shown = text(&project.run_with(&["plan", "-"], code.as_bytes()).stdout);
    let order = "Order\n  1  t1\n  2  t2\n  3  t3 t4  (together)\n  4  t5  (repeats)\n";
    assert!(shown.contains(order), "{shown}");
    let mermaid =
        text(&project.run_with(&["plan", "-", "--graph", "mermaid"], code.as_bytes()).stdout);
    assert!(
        mermaid.contains("t2 shell:exec #40;step 2") && mermaid.contains("t1 -.->|then| t2"),
        "{mermaid}"
    );
    let svg = text(&project.run_with(&["plan", "-", "--graph", "svg"], code.as_bytes()).stdout);
    assert!(svg.contains("RUNS · STEP 2"), "{svg}");
}
