//! Results of MCP servers: a program gets the same value on both sides.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::mcp_servers::{PYTHON, python};

/// A project with three of the reference servers configured and allowed.
fn project() -> Project {
    let project = Project::new();
    let servers = json!({
        "memory": project.node_server("server-memory", &[]),
        "everything": project.node_server("server-everything", &[]),
        "files": project.node_server("server-filesystem", &["${workspace}"]),
    });
    project.configure(&json!({ "permissions": { "allow": ["*"] }, "mcpServers": servers }))
}

/// Concurrent first calls start each server once, and results are plain values.
#[test]
fn programs_call_several_real_servers_concurrently() {
    let project = project();
    project.write("a.txt", "from the reference server");
    let envelope = project.stdio().execute(
        "const [text, sum, made] = await Promise.all([
            mcp.files.read_text_file({ path: 'a.txt' }),
            mcp.everything['get-sum']({ a: 2, b: 3 }),
            mcp.memory.create_entities({ entities: [{ name: 'pml', entityType: 'program', observations: ['runs'] }] }),
         ]);
         const graph: any = await mcp.memory.read_graph({});
         return { text, sum, made: typeof made, names: graph.entities.map((e: any) => e.name) };",
    );
    let result = success(&envelope);
    assert_eq!(
        result["text"], "from the reference server",
        "structured content that repeats the text is reduced to the text"
    );
    assert!(result["sum"].as_str().is_some_and(|sum| sum.contains('5')), "{result}");
    assert_eq!(result["names"], json!(["pml"]));
    assert!(project.read("memory.jsonl").contains("\"pml\""));
}

/// `isError` throws an error with the server's text, which the program can catch.
#[test]
fn an_error_result_of_a_tool_throws_in_the_program() {
    let project = project();
    let mut pml = project.stdio();
    let envelope = pml.execute("return await mcp.files.read_text_file({ path: 'missing.txt' })");
    assert!(failure(&envelope, "TOOL_FAILED").contains("missing.txt"), "{envelope:#}");
    let caught = pml.execute(
        "try { await mcp.files.read_text_file({ path: 'missing.txt' }); return 'no error'; }
         catch (error) { return { is: error instanceof Error, text: (error as Error).message }; }",
    );
    assert_eq!(success(&caught)["is"], true);
    assert!(caught["result"]["text"].as_str().unwrap().contains("missing.txt"));
}

/// A tool returns the same value when the program runs on the gateway and when its call is forwarded.
#[test]
fn a_tool_returns_the_same_value_on_both_sides() {
    let project = project();
    let mut pml = project.stdio();
    let call = "await mcp.json.query({ data: { a: [{ b: 1 }, { b: 2 }] }, path: '$.a[*].b' })";
    let other = "await mcp.math.stats({ numbers: [1, 2, 3] })";
    let both =
        format!("return [{call}, {other}, await mcp.json.stringify({{ value: {{ value: 1 }} }})]");
    let server = pml.execute(&both);
    let client =
        pml.execute(&format!("await mcp.filesystem.list_directory({{ path: '.' }}); {both}"));
    assert_eq!((&server["executed"], &client["executed"]), (&json!("server"), &json!("client")));
    assert_eq!(success(&server), success(&client));
    assert!(server["result"][1]["mean"].is_number(), "{server:#}");
}

/// Several blocks, or blocks other than text, are returned unchanged.
#[test]
fn several_content_blocks_are_returned_as_a_list() {
    let envelope = project().stdio().execute("return await mcp.everything['get-tiny-image']({})");
    let blocks = success(&envelope).as_array().expect("the content array").clone();
    assert!(blocks.iter().any(|block| block["type"] == "image"), "{blocks:?}");
}

/// Servers in Python work like servers in Node.js.
#[test]
fn programs_can_call_python_servers() {
    let bin = python(PYTHON);
    let project = Project::new();
    let status =
        std::process::Command::new("git").args(["init", "-q"]).arg(project.workspace()).status();
    assert!(status.is_ok_and(|status| status.success()), "these tests need git");
    let repository = project.workspace().display().to_string();
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": {
            "clock": { "command": bin.join("mcp-server-time"), "args": ["--local-timezone", "UTC"] },
            "repo": { "command": bin.join("mcp-server-git"), "args": ["--repository", repository] },
        },
    }));
    project.write("new.txt", "x");
    let envelope = project.stdio().execute(&format!(
        "const [time, status] = await Promise.all([
            mcp.clock.get_current_time({{ timezone: 'Europe/Paris' }}),
            mcp.repo.git_status({{ repo_path: {repository:?} }}),
         ]);
         return {{ time: JSON.stringify(time), status }};"
    ));
    let result: &Value = success(&envelope);
    assert!(result["time"].as_str().unwrap().contains("Europe/Paris"), "{result}");
    assert!(result["status"].to_string().contains("new.txt"), "{result}");
}

/// The error for a server that cannot start names the missing program or its last output.
#[test]
fn a_server_that_fails_to_start_is_reported_with_its_stderr() {
    let project = Project::new().configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": {
            "missing": { "command": "no-such-program-anywhere" },
            "broken": { "command": "sh", "args": ["-c", "echo it is broken >&2; exit 7"] },
        },
    }));
    let mut pml = project.stdio();
    let missing = pml.execute("return await mcp.missing.tool({})");
    assert!(
        failure(&missing, "TOOL_UNAVAILABLE").contains("no-such-program-anywhere"),
        "{missing:#}"
    );
    let broken = pml.execute("return await mcp.broken.tool({})");
    assert!(failure(&broken, "TOOL_UNAVAILABLE").contains("it is broken"), "{broken:#}");
    success(&pml.execute("return typeof await mcp.filesystem.list_directory({ path: '.' })"));
}
