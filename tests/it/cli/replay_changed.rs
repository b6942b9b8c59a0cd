//! `pml replay --program`: a changed program runs over an old record, which says where they differ. Nothing is called.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};

/// The program of the record.
const PROGRAM: &str = "const a = await mcp.filesystem.read_text_file({ path: 'a.txt' });
const b = await mcp.filesystem.get_file_info({ path: 'b.txt' });
return [a, b.length > 0];
";

/// Returns a project with a run of [`PROGRAM`], whose files have changed since.
fn recorded() -> Project {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "A");
    project.write("b.txt", "B");
    let (ran, code) = project.exec(PROGRAM);
    assert_eq!(code, 0, "{ran:#}");
    project.write("a.txt", "changed");
    project
}

/// Replays the last run with another program; returns the report and the exit code.
#[track_caller]
fn replay(project: &Project, program: &str) -> (Value, i32) {
    project.write("changed.ts", program);
    let output = project.run(&["replay", "last", "--program", "changed.ts", "--json"]);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr))
    });
    (report, output.status.code().unwrap())
}

/// RP-05: a program that makes the recorded calls and returns the recorded result is the same, however it is written.
/// Any other difference is named.
#[test]
fn a_changed_program_is_compared_with_the_record() {
    let project = recorded();
    let (report, code) = replay(&project, PROGRAM);
    assert_eq!((code, &report["matches"]), (0, &json!(true)), "{report:#}");
    assert!(changed(&report, "program").is_null(), "{report:#}");

    let same = "// Rewritten.\nconst read = mcp.filesystem.read_text_file;
const first = await read({ path: ['a', 'txt'].join('.') });
const info = await mcp.filesystem.get_file_info({ path: 'b.txt' });
return [first, info !== ''];";
    let (report, code) = replay(&project, same);
    assert_eq!((code, &report["matches"]), (0, &json!(true)), "{report:#}");
    assert_eq!(report["result"], json!(["A", true]));
    let program = changed(&report, "program");
    assert_eq!(program["error_code"], "CODE_HASH_MISMATCH");
    assert_ne!(program["recorded"], program["now"]);
    assert_eq!((&report["left"], &report["not_made"]), (&json!(null), &json!([])));

    // The same calls, and another result.
    let (report, code) = replay(&project, &PROGRAM.replace("[a,", "[a + '!',"));
    assert_eq!((code, &report["matches"], &report["left"]), (1, &json!(false), &json!(null)));
    assert_eq!(report["result"], json!(["A!", true]));

    // A call that is not made.
    let fewer = "return [await mcp.filesystem.read_text_file({ path: 'a.txt' }), true];";
    let (report, code) = replay(&project, fewer);
    assert_eq!((code, &report["matches"]), (0, &json!(true)), "{report:#}");
    let second =
        json!({ "call": 2, "tool": "filesystem:get_file_info", "arguments": { "path": "b.txt" } });
    assert_eq!(report["not_made"], json!([second]));
}

/// RP-05: the first call that differs is named, with both sides and its place, and it is not made.
#[test]
fn the_first_call_that_differs_is_named() {
    let project = recorded();
    let write =
        |path: &str| format!("mcp.filesystem.write_file({{ path: '{path}', content: 'x' }})");
    let first = "const a = await mcp.filesystem.read_text_file({ path: 'a.txt' });\n";
    let read =
        |path: &str| json!({ "tool": "filesystem:read_text_file", "arguments": { "path": path } });
    let written = |path: &str| json!({ "tool": "filesystem:write_file", "arguments": { "path": path, "content": "x" } });
    let info =
        json!({ "call": 2, "tool": "filesystem:get_file_info", "arguments": { "path": "b.txt" } });
    let mut recorded_read = read("a.txt");
    recorded_read["call"] = json!(1);
    let cases = [
        // Other arguments.
        (
            "const a = await mcp.filesystem.read_text_file({ path: 'c.txt' });".to_owned(),
            json!({ "call": 1, "recorded": recorded_read, "now": read("c.txt"), "places": [{ "line": 1, "column": 17 }] }),
            json!([info]),
        ),
        // Another tool.
        (
            format!("{first}  await {};", write("c.txt")),
            json!({ "call": 2, "recorded": info, "now": written("c.txt"), "places": [{ "line": 2, "column": 9 }] }),
            json!([]),
        ),
        // A further call.
        (
            PROGRAM.replace("return", &format!("await {};\nreturn", write("d.txt"))),
            json!({ "call": 3, "recorded": null, "now": written("d.txt"), "places": [{ "line": 3, "column": 7 }] }),
            json!([]),
        ),
        // The error is caught, so the place is that of the only call of the tool.
        (
            format!("try {{ await {} }} catch {{}}\nreturn 1", write("e.txt")),
            json!({ "call": 1, "recorded": recorded_read, "now": written("e.txt"), "places": [{ "line": 1, "column": 13 }] }),
            json!([info]),
        ),
        // It is caught, and may be that of either call.
        (
            "for (const path of ['f', 'g']) try { await mcp.filesystem.read_text_file({ path }) } catch {}
return mcp.filesystem.read_text_file({ path: 'h' })"
                .to_owned(),
            json!({ "call": 1, "recorded": recorded_read, "now": read("f"), "places": [{ "line": 1, "column": 44 }, { "line": 2, "column": 8 }] }),
            json!([info]),
        ),
        // It waits for a time at which the record has another call.
        (
            "await new Promise((done) => setTimeout(done, 60_000)); return 1".to_owned(),
            json!({ "call": 1, "recorded": recorded_read, "now": null, "places": [] }),
            json!([info]),
        ),
    ];
    for (program, left, not_made) in cases {
        let (report, code) = replay(&project, &program);
        assert_eq!((code, &report["matches"]), (1, &json!(false)), "{program}\n{report:#}");
        assert_eq!((&report["left"], &report["not_made"]), (&left, &not_made), "{program}");
        assert!(report.get("result").is_none(), "{report:#}");
    }
    for name in ["c.txt", "d.txt", "e.txt"] {
        assert!(!project.path(name).exists(), "{name}");
    }
    // A person gets the same.
    project.write(
        "lib/read.ts",
        "export const read = (path: string) =>\n  mcp.filesystem.read_text_file({ path });\n",
    );
    project.write(
        "changed.ts",
        "import { read } from './lib/read.ts';\nreturn await read('z.txt');\n",
    );
    let output = project.run(&["replay", "last", "--program", "changed.ts"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for line in [
        "first difference: call 1, at ./lib/read.ts:2:3\n",
        "  recorded  filesystem:read_text_file {\"path\":\"a.txt\"}\n",
        "  now       filesystem:read_text_file {\"path\":\"z.txt\"}\n",
        "not made: call 2, filesystem:get_file_info {\"path\":\"b.txt\"}\n",
        "[4003 REPLAY_MISMATCH]",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    // One that cannot run is not replayed.
    let (refused, code) = replay(&project, "return (");
    assert_eq!((code, &refused["error_code"]), (2, &json!("PARSE_ERROR")), "{refused}");
}

/// RP-05: what else a run depends on is compared as far as that is known here.
#[test]
fn other_inputs_are_compared_as_far_as_they_are_known() {
    let project = recorded();
    let (report, _) = replay(&project, PROGRAM);
    assert!(changed(&report, "policy").is_null(), "{report:#}");
    // Only a locked program's record has the schemas of its tools.
    let tools = |report: &Value| -> Vec<Value> {
        let changed = report["changed"].as_array().unwrap().iter();
        changed.filter(|input| input["what"] == "tool").cloned().collect()
    };
    let unknown = tools(&report);
    assert_eq!(unknown.len(), 2, "{report:#}");
    assert!(unknown.iter().all(|tool| tool["state"] == "unknown"), "{report:#}");
    project.write("locked.ts", PROGRAM);
    for command in [["lock", "locked.ts"], ["exec", "locked.ts"]] {
        let output = project.run(&command);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let (report, code) = replay(&project, PROGRAM);
    assert_eq!((code, tools(&report)), (0, vec![]), "{report:#}");
    // Other rules are a difference, and decide about nothing: nothing is called.
    let project = project.configure(&json!({ "permissions": { "deny": ["filesystem:*"] } }));
    let (report, code) = replay(&project, PROGRAM);
    assert_eq!((code, &report["matches"]), (0, &json!(true)), "{report:#}");
    let policy = changed(&report, "policy");
    assert_eq!(
        (&policy["state"], &policy["error_code"]),
        (&json!("changed"), &json!("INTEGRITY_MISMATCH"))
    );
}

/// Returns what the report says about an input.
fn changed(report: &Value, what: &str) -> Value {
    let inputs = report["changed"].as_array().unwrap();
    inputs.iter().find(|input| input["what"] == what).cloned().unwrap_or_default()
}
