//! `pml` without a reachable gateway, or without a valid API key.

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::server::Server;

/// A program whose tools are all on this machine runs without the gateway.
#[test]
fn client_programs_run_offline() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "offline");
    let mut pml = project.stdio();
    let envelope = pml
        .execute("return (await mcp.filesystem.read_text_file({ path: 'a.txt' })).toUpperCase()");
    assert_eq!(success(&envelope), "OFFLINE");
    assert_eq!(envelope["executed"], "client");
    let (envelope, code) =
        project.exec("return await mcp.filesystem.read_text_file({ path: 'a.txt' })");
    assert_eq!((success(&envelope), code), (&json!("offline"), 0));
}

/// A program with a server tool fails before any of it runs.
#[test]
fn programs_with_server_tools_fail_offline_before_they_run() {
    let project = Project::offline().allow(&["*"]);
    let mut pml = project.stdio();
    for code in [
        "return await mcp.json.parse({ data: '{}' })",
        "await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' }); return await mcp.json.parse({ data: '{}' })",
    ] {
        let envelope = pml.execute(code);
        let error = envelope["error_code"].as_str().unwrap_or_default();
        assert!(["GATEWAY_UNREACHABLE", "SERVER_TOOLS_OFFLINE"].contains(&error), "{envelope:#}");
        assert!(envelope["hint"].as_str().unwrap().contains("gateway"), "{envelope:#}");
        let message = envelope["message"].as_str().unwrap();
        assert!(message.ends_with("; `pml` has no `json:parse` of its own"), "{message}");
    }
    assert!(!project.path("made.txt").exists(), "part of the program ran");
    let (_, code) = project.exec("return await mcp.json.parse({ data: '{}' })");
    assert_eq!(code, 4);
}

/// The gateway stops and starts again while `pml stdio` runs.
#[test]
fn pml_stdio_survives_a_restart_of_the_gateway() {
    let server = crate::support::server::Installation::new().start();
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let project = Project::of(&server.tenant()).allow(&["*"]);
    project.write("a.txt", "still here");
    let mut pml = project.stdio();
    let math = "return await mcp.math.eval({ expression: '1' })";
    success(&pml.execute(math));
    assert_eq!(server.stop(), Some(0));
    let envelope = pml.execute(math);
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    success(&pml.execute("return await mcp.filesystem.read_text_file({ path: 'a.txt' })"));
    let again = server.installation().start_with(&[("PML_LISTEN", &address)]);
    success(&pml.execute(math));
    assert_eq!(again.stop(), Some(0));
}

/// An invalid API key is an error, and is not treated like a missing one.
#[test]
fn an_invalid_api_key_is_unauthorized_and_not_echoed() {
    let server = Server::shared();
    let wrong = server.tenant().key.chars().rev().collect::<String>();
    for key in ["pml_live_nonsense", wrong.as_str()] {
        let project = Project::at(server.url()).set("PML_API_KEY", key).allow(&["*"]);
        let envelope = project.stdio().execute("return await mcp.json.parse({ data: '{}' })");
        failure(&envelope, "UNAUTHORIZED");
        assert!(!envelope.to_string().contains(key), "a key is never echoed: {envelope:#}");
    }
}

/// Without an API key, server tools are refused with a hint how to get one; local tools run.
#[test]
fn without_an_api_key_the_hint_names_the_command_that_makes_one() {
    let project = Project::at(Server::shared().url()).allow(&["filesystem:*"]);
    let mut pml = project.stdio();
    let envelope = pml.execute("return await mcp.json.parse({ data: '{}' })");
    let message = failure(&envelope, "UNAUTHORIZED");
    assert!(
        !message.is_empty() && envelope["hint"].as_str().unwrap().contains("keys create"),
        "{envelope:#}"
    );
    project.write("a.txt", "no key needed");
    let envelope = pml.execute("return await mcp.filesystem.read_text_file({ path: 'a.txt' })");
    assert_eq!(success(&envelope), "no key needed");
}

/// An API key allows nothing beyond its rights.
#[test]
fn an_api_key_without_the_execute_right_is_refused() {
    let tenant = Server::shared().tenant_with_rights("read");
    let envelope =
        Project::of(&tenant).stdio().execute("return await mcp.json.parse({ data: '{}' })");
    assert!(failure(&envelope, "FORBIDDEN").contains("execute"));
}

/// `pml exec` without `--json` prints the error and the hint on stderr, and nothing on stdout.
#[test]
fn exec_prints_errors_and_hints_on_stderr() {
    let project = Project::offline();
    let output = project.run_with(&["exec", "-"], b"return await mcp.json.parse({ data: '{}' })");
    assert_eq!(output.status.code(), Some(4));
    assert!(output.stdout.is_empty());
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("error: ") && stderr.contains("\nhint: "), "{stderr}");
    assert!(stderr.contains("http://127.0.0.1:"), "{stderr}");
}
