//! Without the gateway, or without a valid key.

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::server::Server;

/// A program whose tools are all here runs without the gateway.
#[test]
fn client_programs_run_without_the_gateway() {
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

/// A program with a server tool says that it is offline, before anything runs.
#[test]
fn server_tools_say_that_they_are_offline() {
    let project = Project::offline().allow(&["*"]);
    let mut pml = project.stdio();
    for code in [
        "return await mcp.json.parse({ data: '{}' })",
        "await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' }); return await mcp.json.parse({ data: '{}' })",
    ] {
        let envelope = pml.execute(code);
        let told = envelope["error_code"].as_str().unwrap_or_default();
        assert!(["GATEWAY_UNREACHABLE", "SERVER_TOOLS_OFFLINE"].contains(&told), "{envelope:#}");
        assert!(envelope["hint"].as_str().unwrap().contains("gateway"), "{envelope:#}");
    }
    assert!(!project.path("made.txt").exists(), "a program that cannot run does nothing");
    let (_, code) = project.exec("return await mcp.json.parse({ data: '{}' })");
    assert_eq!(code, 4);
}

/// The gateway goes away and comes back while `pml stdio` lives.
#[test]
fn a_gateway_may_come_back() {
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

/// A wrong key is told as such, and is never treated like no key.
#[test]
fn a_wrong_key_is_told() {
    let server = Server::shared();
    let wrong = server.tenant().key.chars().rev().collect::<String>();
    for key in ["pml_live_nonsense", wrong.as_str()] {
        let project = Project::at(server.url()).set("PML_API_KEY", key).allow(&["*"]);
        let envelope = project.stdio().execute("return await mcp.json.parse({ data: '{}' })");
        failure(&envelope, "UNAUTHORIZED");
        assert!(!envelope.to_string().contains(key), "a key is never echoed: {envelope:#}");
    }
}

/// Without a key server tools are refused with the way to get one; local ones run.
#[test]
fn no_key_is_told() {
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

/// The key of one tenant does nothing beyond its rights.
#[test]
fn a_key_without_the_right_is_refused() {
    let tenant = Server::shared().tenant_that_can("read");
    let envelope =
        Project::of(&tenant).stdio().execute("return await mcp.json.parse({ data: '{}' })");
    assert!(failure(&envelope, "FORBIDDEN").contains("execute"));
}

/// `pml exec` tells a person what is wrong and what to do, on stderr.
#[test]
fn exec_speaks_to_people_on_stderr() {
    let project = Project::offline();
    let output = project.run_with(&["exec", "-"], b"return await mcp.json.parse({ data: '{}' })");
    assert_eq!(output.status.code(), Some(4));
    assert!(output.stdout.is_empty());
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("error: ") && stderr.contains("\nhint: "), "{stderr}");
    assert!(stderr.contains("http://127.0.0.1:"), "{stderr}");
}
