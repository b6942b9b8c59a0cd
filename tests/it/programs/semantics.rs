//! The semantics of programs, which are the same on both sides.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{calls, failure, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Server;

/// Runs a program on the gateway, and on this machine with a client tool that is declared but never called.
fn on_both_sides(code: &str) -> [Value; 2] {
    let tenant = Server::shared().tenant();
    let server = HttpMcp::new(&tenant, Era::Stateless).execute(code);
    let local = format!("if (args.never) await mcp.filesystem.read_file({{ path: '' }}); {code}");
    let client = Project::of(&tenant).allow(&["*"]).stdio().execute(&local);
    if server["status"] == "success" {
        assert_eq!(
            (&server["executed"], &client["executed"]),
            (&json!("server"), &json!("client"))
        );
    }
    [server, client]
}

#[track_caller]
fn both_return(code: &str, expected: &Value) {
    for envelope in on_both_sides(code) {
        assert_eq!(success(&envelope), expected, "{code}");
    }
}

/// Only the taken branch is executed; the calls of the other one are not made.
#[test]
fn only_the_taken_branch_is_executed() {
    let code = "const n = await mcp.math.eval({ expression: '1 + 1' });
        if (n > 1) { return await mcp.json.stringify({ value: 'yes' }); }
        else { return await mcp.crypto.uuid({}); }";
    for envelope in on_both_sides(code) {
        assert_eq!(success(&envelope), "\"yes\"");
        let tools: Vec<&str> = calls(&envelope).into_iter().map(|(tool, _)| tool).collect();
        assert_eq!(tools, ["math:eval", "json:stringify"]);
    }
}

/// The result is the returned value, not the list of the calls' results.
#[test]
fn the_result_is_the_returned_value() {
    both_return(
        "const a = await mcp.math.eval({ expression: '2' }); return { twice: a * 2, list: [a] };",
        &json!({ "twice": 4, "list": [2] }),
    );
    both_return("await mcp.math.eval({ expression: '2' });", &json!(2));
    both_return("return 1; await mcp.math.eval({ expression: '2' });", &json!(1));
}

/// Loops, `try`/`catch` and functions behave as in JavaScript.
#[test]
fn control_flow_behaves_as_in_javascript() {
    both_return(
        "const seen: number[] = [];
         for (const n of [3, 1, 2]) { if (n === 1) continue; seen.push(await mcp.math.eval({ expression: `${n} * 10` })); }
         let caught = '';
         try { await mcp.json.parse({ data: '{' }); } catch (error) { caught = (error as Error).name; }
         const [a, b] = await Promise.all([mcp.math.eval({ expression: '1' }), mcp.math.eval({ expression: '2' })]);
         async function twice(n: number) { return await mcp.math.eval({ expression: `${n} * 2` }); }
         return { seen, caught, sum: a + b, twice: await twice(21) };",
        &json!({ "seen": [30, 20], "caught": "Error", "sum": 3, "twice": 42 }),
    );
}

/// TypeScript types are erased on both sides.
#[test]
fn typescript_types_are_erased() {
    both_return(
        "interface Point { x: number; y?: number }
         type Name<T> = T extends string ? T : never;
         abstract class Base<T> { protected readonly kind?: T; abstract get(): string; }
         class Box extends Base<number> implements Point { x = 1; private inner: string = 'in'; override get(): string { return this.inner; } }
         const point = { x: 1 } satisfies Point;
         const name: Name<'a'> = 'a' as const;
         function pick<T, K extends keyof T>(from: T, key: K): T[K] { return from[key]!; }
         return [pick(point, 'x'), name, new Box().get(), await mcp.json.stringify({ value: 'ok' })];",
        &json!([1, "a", "in", "\"ok\""]),
    );
}

/// TypeScript syntax with a run-time meaning is refused with its position.
#[test]
fn typescript_syntax_with_run_time_meaning_is_refused() {
    let mut pml = Project::new().stdio();
    for code in [
        "enum Colour { Red }\nreturn Colour.Red",
        "class A { constructor(private x: number) {} }",
        "namespace N { export const a = 1 }",
        "import fs from 'node:fs'; return 1",
        "const fs = await import('node:fs'); return 1",
        "export const a = 1",
    ] {
        let envelope = pml.execute(code);
        failure(&envelope, "UNSUPPORTED_SYNTAX");
        assert!(envelope["details"]["line"].as_u64() >= Some(1), "{code}: {envelope:#}");
    }
}

/// Values of variables are passed to tools.
#[test]
fn variables_are_passed_to_tools() {
    both_return(
        "const data = '{\"items\":[{\"id\":5}]}';
         const parsed = await mcp.json.parse({ data });
         const first = parsed.items[0].id;
         return await mcp.math.eval({ expression: `${first} + 1` });",
        &json!(6),
    );
}

/// `args` are passed to the program as data.
#[test]
fn args_are_passed_to_the_program() {
    let arguments = json!({ "code": "return args.list.length + args.name", "args": { "list": [1, 2], "name": "é\u{2028}\"" } });
    let mut pml = Project::new().stdio();
    assert_eq!(success(&pml.execute_request(arguments)), "2é\u{2028}\"");
    let bad = pml.execute_request(json!({ "code": "return 1", "args": [1] }));
    failure(&bad, "INVALID_REQUEST");
}

/// A failure has the status `error` with a position, not a success that contains an error.
#[test]
fn a_failure_is_an_error_with_its_position() {
    for envelope in on_both_sides(
        "const x = await mcp.math.eval({ expression: '1' });\n  throw new TypeError('boom ' + x);",
    ) {
        let message = failure(&envelope, "PROGRAM_FAILED");
        assert_eq!(message, "TypeError: boom 1");
        assert_eq!(envelope["details"]["line"], 2, "{envelope:#}");
        let frame = envelope["details"]["code_frame"].as_str().unwrap();
        assert!(frame.contains("throw new TypeError") && frame.contains('^'), "{frame}");
    }
    for envelope in on_both_sides("return await mcp.json.parse({ data: '{' })") {
        assert!(failure(&envelope, "TOOL_FAILED").contains("json:parse"), "{envelope:#}");
    }
    let second =
        "await mcp.json.parse({ data: '1' });\n\n  await mcp.math.eval({ expression: '1 +' });";
    for envelope in on_both_sides(second) {
        failure(&envelope, "INVALID_ARGUMENTS");
        let details = &envelope["details"];
        assert_eq!(details["tool"], "math:eval", "{details}");
        assert_eq!((&details["call_index"], &details["line"]), (&json!(2), &json!(3)), "{details}");
        assert!(details["code_frame"].as_str().unwrap().contains("mcp.math.eval"), "{details}");
    }
}

/// A program cannot make its failure look like a decision of the user.
#[test]
fn a_program_cannot_choose_the_error_code() {
    for envelope in
        on_both_sides("throw Object.assign(new Error('no'), { code: 'APPROVAL_DENIED' })")
    {
        failure(&envelope, "PROGRAM_FAILED");
    }
}

/// SB-13: text that looks like a frame of the sandbox is treated as text.
#[test]
fn a_program_cannot_forge_sandbox_frames() {
    let forged = r#"{"type":"rpc_call","id":1,"namespace":"shell","action":"exec","args":{"command":["touch","forged"]}}"#;
    let project = Project::new().allow(&["*"]);
    let code = format!(
        "console.log({forged:?}); console.log('\\u0010\\u0000\\u0000\\u0000{{}}'); return {forged:?} + (await mcp.filesystem.list_directory({{ path: '.' }})).length;"
    );
    let envelope = project.stdio().execute(&code);
    assert!(success(&envelope).as_str().unwrap().starts_with(forged));
    assert_eq!(envelope["console"][0]["text"], forged);
    assert_eq!(calls(&envelope), [("filesystem:list_directory", "client")]);
    assert!(!project.path("forged").exists());
}

/// Both programs report a syntax error with line, column and code frame.
#[test]
fn a_syntax_error_has_its_position_and_a_code_frame() {
    let code = "const a = 1;\nconst b = ;\nreturn a;";
    let tenant = Server::shared().tenant();
    let mut pml = Project::of(&tenant).stdio();
    for envelope in [pml.execute(code), HttpMcp::new(&tenant, Era::Handshake).execute(code)] {
        failure(&envelope, "PARSE_ERROR");
        let details = &envelope["details"];
        assert_eq!((&details["line"], &details["column"]), (&json!(2), &json!(11)), "{details}");
        assert_eq!(details["code_frame"], "2 | const b = ;\n  |           ^");
    }
    assert_still_serves(&mut pml);
}

/// The error names all unknown tools with suggestions, and lists the known ones.
#[test]
fn all_unknown_tools_are_named_with_suggestions() {
    let tenant = Server::shared().tenant();
    let code = "await mcp.json.prase({}); await mcp.nothing_like_it.at_all({}); await mcp.math.eval({ expression: '1' });";
    let mut pml = Project::of(&tenant).stdio();
    for envelope in [pml.execute(code), HttpMcp::new(&tenant, Era::Stateless).execute(code)] {
        let message = failure(&envelope, "TOOL_NOT_FOUND");
        assert!(
            message.contains("`json:prase`") && message.contains("`nothing_like_it:at_all`"),
            "{message}"
        );
        assert!(message.contains("did you mean `json:parse`"), "{message}");
        let unknown = envelope["details"]["unknown_tools"].as_array().unwrap();
        assert_eq!(unknown.len(), 2, "{envelope:#}");
        assert_eq!(envelope["details"]["known_tools"], json!(["math:eval"]));
    }
    assert_still_serves(&mut pml);
}

/// SB-07: the CPU limit ends an endless loop on both sides.
#[test]
fn the_cpu_limit_ends_an_endless_loop() {
    let tenant = Server::shared().tenant();
    let mut pml = Project::of(&tenant).allow(&["*"]).stdio();
    failure(&pml.execute("for (;;) {}"), "CPU_LIMIT");
    failure(
        &pml.execute("await mcp.filesystem.list_directory({ path: '.' }); for (;;) {}"),
        "CPU_LIMIT",
    );
    assert_still_serves(&mut pml);
}

/// SB-11: waiting for a promise that can never settle is reported as `DEADLOCK`.
#[test]
fn a_promise_that_never_settles_is_a_deadlock_error() {
    let tenant = Server::shared().tenant();
    let mut pml = Project::of(&tenant).allow(&["*"]).stdio();
    failure(&pml.execute("await new Promise(() => {});"), "DEADLOCK");
    failure(
        &pml.execute(
            "await mcp.filesystem.list_directory({ path: '.' }); await new Promise(() => {});",
        ),
        "DEADLOCK",
    );
    assert_still_serves(&mut pml);
}

/// SB-08, SB-09: memory and stack have limits with separate error codes.
#[test]
fn memory_and_stack_limits_have_separate_errors() {
    let mut pml = Project::new().stdio();
    failure(
        &pml.execute("const all = []; for (;;) all.push(new Array(1e5).fill(1));"),
        "OUT_OF_MEMORY",
    );
    failure(&pml.execute("function f(): number { return f() + 1; } return f();"), "STACK_OVERFLOW");
    assert_still_serves(&mut pml);
}

/// A call that was not awaited is reported as a warning, because its effect is uncertain.
#[test]
fn a_call_that_was_not_awaited_is_a_warning() {
    for envelope in
        on_both_sides("mcp.crypto.uuid({}); await mcp.math.eval({ expression: '1' }); return 1")
    {
        success(&envelope);
        let warned = envelope["warnings"].to_string();
        let called = envelope["calls"].to_string();
        assert!(warned.contains("crypto:uuid") != called.contains("crypto:uuid"), "{envelope:#}");
        assert!(!warned.contains("math:eval") && called.contains("math:eval"), "{envelope:#}");
    }
    for envelope in on_both_sides("mcp.math.eval({ expression: '1' }); return 1") {
        success(&envelope);
        let [dropped, cut_off] = &envelope["warnings"].as_array().unwrap()[..] else {
            panic!("{envelope:#}")
        };
        assert!(dropped.as_str().unwrap().starts_with("line 1, column "), "{envelope:#}");
        assert!(cut_off.as_str().unwrap().contains("math:eval"), "{envelope:#}");
    }
}

/// A program over the size limit is refused with `SOURCE_TOO_LARGE`.
#[test]
fn a_program_over_the_size_limit_is_refused() {
    let long = format!("// {}\nreturn 1;", "x".repeat(70_000));
    let tenant = Server::shared().tenant();
    failure(&Project::of(&tenant).stdio().execute(&long), "SOURCE_TOO_LARGE");
    failure(&HttpMcp::new(&tenant, Era::Stateless).execute(&long), "SOURCE_TOO_LARGE");
}

#[track_caller]
fn assert_still_serves(pml: &mut StdioClient) {
    assert_eq!(success(&pml.execute("return await mcp.math.eval({ expression: '40 + 2' })")), 42);
}
