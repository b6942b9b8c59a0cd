//! `pml analyze`: reports what a program calls, offline and without running it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::failure;

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

/// The JSON has exactly the documented fields.
#[test]
fn the_json_report_has_exactly_the_documented_fields() {
    let project = Project::offline();
    let (report, code) = project.analyze(
        "const text = await mcp.filesystem.read_text_file({ path: args.path });
         const data = await mcp.json.parse({ data: text });
         if (data.ok) { for (const x of data.list) await mcp.math.eval({ expression: x }); }
         return data;",
    );
    assert_eq!(code, 0);
    assert_eq!(
        keys(&report),
        BTreeSet::from([
            "tools",
            "client_tools",
            "unknown_tools",
            "routing",
            "dynamic",
            "dag",
            "diagnostics"
        ])
    );
    assert_eq!(report["tools"], json!(["filesystem:read_text_file", "json:parse", "math:eval"]));
    assert_eq!(report["client_tools"], json!(["filesystem:read_text_file"]));
    assert_eq!((&report["routing"], &report["dynamic"]), (&json!("client"), &json!(false)));
    assert_eq!(report["diagnostics"], json!([]));
    let tasks = report["dag"]["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3);
    for task in tasks {
        assert_eq!(
            keys(task),
            BTreeSet::from([
                "id",
                "tool",
                "depends_on",
                "layer",
                "conditional",
                "repeats",
                "arguments"
            ])
        );
    }
    let [read, parse, eval] = &tasks[..] else { panic!("three tasks") };
    assert_eq!((&read["layer"], &read["depends_on"]), (&json!(0), &json!([])));
    assert_eq!(parse["depends_on"], json!([read["id"]]));
    assert_eq!(parse["layer"], 1);
    assert_eq!((&eval["conditional"], &eval["repeats"]), (&json!(true), &json!(true)));
    assert_eq!((&read["conditional"], &read["repeats"]), (&json!(false), &json!(false)));
}

/// The routing is `server` for server tools only, `client` for dynamic programs, and `unknown` for unknown tools.
#[test]
fn the_report_states_where_the_program_runs() {
    let project = Project::offline();
    let routing = |code: &str| project.analyze(code).0["routing"].clone();
    assert_eq!(routing("return await mcp.json.parse({ data: '1' })"), "server");
    assert_eq!(routing("return 1"), "server");
    // No table has this tool, and `analyze` does not ask the gateway.
    assert_eq!(routing("return await mcp.unheard_of.tool({})"), "unknown");
    let (report, code) = project.analyze("return await mcp[args.x].y({})");
    assert_eq!((&report["dynamic"], &report["routing"], code), (&json!(true), &json!("client"), 0));
    let diagnostic = &report["diagnostics"][0];
    assert_eq!(diagnostic["severity"], "warning", "{report:#}");
    assert_eq!(
        keys(diagnostic),
        BTreeSet::from(["code", "severity", "message", "line", "column"]),
        "{report:#}"
    );
}

/// For an invalid program the exit code is 2, and its diagnostics are on stdout as JSON.
#[test]
fn invalid_programs_exit_with_2_and_json_diagnostics() {
    let project = Project::offline();
    // The last one makes the parser panic.
    let programs =
        ["const = 1;", "import fs from 'fs';", "export const a = 1;", "return (", "<a:b.c/>"];
    for program in programs {
        let (report, code) = project.analyze(program);
        assert_eq!(code, 2, "{program}: {report:#}");
        assert_ne!(report["diagnostics"][0]["code"], "TOO_COMPLEX", "{program}: {report:#}");
        let diagnostic = &report["diagnostics"][0];
        assert_eq!(diagnostic["severity"], "error", "{program}: {report:#}");
        assert!(diagnostic["line"].as_u64() >= Some(1) && diagnostic["column"].as_u64() >= Some(1));
    }
}

/// With `--json`, stdout has JSON whatever is wrong with the file.
#[test]
fn every_failure_is_json_with_the_json_flag() {
    let project = Project::offline();
    let too_large = " ".repeat(70_000);
    let (report, code) = project.analyze(&too_large);
    assert_eq!(code, 2);
    assert_eq!(report["diagnostics"][0]["code"], "SOURCE_TOO_LARGE", "{report:#}");
    let (envelope, code) = project.exec(&too_large);
    assert_eq!(code, 2);
    assert!(failure(&envelope, "SOURCE_TOO_LARGE").contains("70000"), "{envelope:#}");
    let inputs: [(&str, &[u8], &str); 3] = [
        ("-", &[b' '; 600_000], "SOURCE_TOO_LARGE"),
        ("-", b"return '\xff'", "INVALID_REQUEST"),
        ("no-such-file.ts", b"", "INVALID_REQUEST"),
    ];
    for (file, input, expected) in inputs {
        for command in ["analyze", "exec"] {
            let output = project.run_with(&[command, file, "--json"], input);
            assert_eq!(output.status.code(), Some(2), "{command} {file}");
            failure(&serde_json::from_slice(&output.stdout).unwrap(), expected);
        }
    }
}

/// Without `--json` the report is text, and errors are shown with a code frame on stderr.
#[test]
fn the_default_output_is_text_with_a_code_frame_on_stderr() {
    let project = Project::offline();
    let output = project.run_with(&["analyze", "-"], b"return await mcp.json.parse({ data: '1' })");
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("json:parse"), "{}", text(&output.stdout));
    let output = project.run_with(&["analyze", "-"], b"const a = ;");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1 | const a = ;"), "{}", text(&output.stderr));
    let missing = project.run(&["analyze", "no-such-file.ts"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("no-such-file.ts"));
}

/// AN-16: `analyze` does not run the program.
#[test]
fn analyze_does_not_run_the_program() {
    let project = Project::offline();
    let (report, code) = project.analyze(
        "for (;;) { await mcp.filesystem.write_file({ path: 'made.txt', content: '' }); }",
    );
    assert_eq!(code, 0, "{report:#}");
    assert!(!project.path("made.txt").exists());
}
