//! Hybrid routing: where a program with server tools, client tools or both runs.

use serde_json::json;

use crate::support::cli::Project;
use crate::support::expect::{calls, question, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Server;
use crate::support::terminal::approve;

/// AN-12: with server tools only, the gateway runs the program.
#[test]
fn programs_with_server_tools_run_on_the_server() {
    let mut pml = Project::new().stdio();
    let envelope = pml.execute("return await mcp.json.parse({ data: '{}' })");
    assert_eq!(success(&envelope), &json!({}));
    assert_eq!(envelope["executed"], "server");
    assert_eq!(calls(&envelope), [("json:parse", "server")]);
    let used = &envelope["tools_used"][0];
    assert_eq!((&used["id"], &used["type"]), (&json!("json:parse"), &json!("tool")));
    assert!(used["fqdn"].as_str().unwrap().starts_with("pml.mcp.json.parse."), "{used}");
    assert!(used["integrity"].as_str().unwrap().starts_with("sha256-"), "{used}");
}

/// AN-12: with client tools only, the gateway answers `execute_locally` and `pml` runs the program.
#[test]
fn programs_with_client_tools_run_on_the_client() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant).allow(&["filesystem:*"]);
    project.write("test.txt", "on the user's disk\n");
    let code = "return await mcp.filesystem.read_file({ path: 'test.txt' })";

    let delegated = HttpMcp::new(&tenant, Era::Stateless).with_package().execute(code);
    assert_eq!(delegated["status"], "execute_locally", "{delegated:#}");
    assert_eq!(delegated["code"], code);
    assert!(delegated["code_hash"].as_str().unwrap().starts_with("sha256-"));
    assert_eq!(delegated["client_tools"], json!(["filesystem:read_file"]));
    assert_eq!(delegated["tools_used"][0]["routing"], "client");
    assert_eq!(delegated["dag"]["tasks"][0]["tool"], "filesystem:read_file");
    assert!(delegated["workflowId"].as_str().unwrap().starts_with("ws_"), "{delegated:#}");
    assert!(delegated["static_structure"].is_object() || delegated["static_structure"].is_array());

    let envelope = project.stdio().execute(code);
    assert_eq!(success(&envelope), "on the user's disk\n");
    assert_eq!(envelope["executed"], "client");
    assert_eq!(calls(&envelope), [("filesystem:read_file", "client")]);
}

/// AN-12: with both kinds, the program runs on the client, which forwards calls of server tools.
#[test]
fn programs_with_both_kinds_run_on_the_client_and_forward_server_tools() {
    let project = Project::new().allow(&["filesystem:*", "json:parse"]);
    project.write("data.json", r#"{"items":[{"id":7},{"id":8}]}"#);
    let envelope = project.stdio().execute(
        "const content = await mcp.filesystem.read_file({ path: 'data.json' });
         const parsed = await mcp.json.parse({ data: content });
         return parsed.items.map((item: { id: number }) => item.id);",
    );
    assert_eq!(success(&envelope), &json!([7, 8]));
    assert_eq!(envelope["executed"], "client");
    assert_eq!(calls(&envelope), [("filesystem:read_file", "client"), ("json:parse", "server")]);
}

/// AP-09: a call that no rule allows waits for approval, and runs after it.
#[test]
fn a_call_without_a_rule_runs_after_approval() {
    let project = Project::new();
    std::fs::create_dir(project.path("test")).unwrap();
    project.write("test/file", "x");
    let mut pml = project.stdio();
    let pending = pml.execute("return await mcp.shell.exec({ command: ['rm', '-rf', 'test'] })");
    let pending = question(&pending);
    assert_eq!(pending["approval_type"], "tool_permission");
    assert_eq!(pending["context"]["tool"], "shell:exec");
    let description = pending["description"].as_str().unwrap();
    assert!(description.contains("shell:exec") && description.contains("-rf"), "{description}");
    assert!(project.path("test/file").exists(), "the call ran before the approval");

    approve(&project, pending, false);
    let done = pml.resume(pending, true, false);
    assert_eq!(success(&done)["exit_code"], 0, "{done:#}");
    assert!(!project.path("test").exists());
    assert_eq!(calls(&done), [("shell:exec", "client")]);
}
