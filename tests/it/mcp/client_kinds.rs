//! Where a program runs for each kind of client, and what the client gets.
//!
//! 1. `pml`, client tools: `execute_locally`, then a local run
//! 2. a web app, client tools: an error that explains
//! 3. a direct API call, client tools: the same error
//! 4. `pml`, server tools only: the gateway runs it
//! 5. only server tools, over HTTP: a normal result
//! 6. only client tools, through `pml exec`: a local result
//! 7. mixed tools: all local, server tools forwarded, data flows between them
//! 8. permissions of `pml` apply to local runs

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{calls, failure, question, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Server;

const READ: &str = "return await mcp.filesystem.read_text_file({ path: 'a.txt' })";

#[test]
fn pml_runs_programs_with_client_tools_locally() {
    let project = Project::new().allow(&["filesystem:read_text_file"]);
    project.write("a.txt", "here");
    let mut pml = project.stdio();
    let envelope = pml.execute(READ);
    assert_eq!(success(&envelope), "here");
    assert_eq!(envelope["executed"], "client");
    // Execution ids have the same form on both sides.
    let server = pml.execute("return await mcp.math.eval({ expression: '1' })");
    let form = |envelope: &Value| {
        let id = envelope["execution_id"].as_str().expect("a run has an id").to_owned();
        id.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect::<String>()
    };
    assert_eq!(form(&server), form(&envelope));
}

#[test]
fn a_web_app_with_client_tools_gets_an_explanation() {
    let answer = HttpMcp::new(&Server::shared().tenant(), Era::Handshake).execute(READ);
    assert_explains_the_package(&answer);
}

#[test]
fn a_direct_call_of_a_client_tool_gets_the_same_explanation() {
    let client = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    assert_explains_the_package(&client.execute(READ));
    let direct = client.call("filesystem:read_text_file", json!({ "path": "a.txt" }));
    assert_eq!(direct["isError"], true);
    assert_explains_the_package(&direct["structuredContent"]);
}

fn assert_explains_the_package(answer: &Value) {
    let message = failure(answer, "CLIENT_TOOLS_REQUIRE_PACKAGE");
    assert!(message.contains("user's machine"), "{message}");
    assert_eq!(answer["client_tools"], json!(["filesystem:read_text_file"]));
    assert!(!answer["install_command"].as_str().unwrap().is_empty());
}

#[test]
fn programs_with_server_tools_only_run_on_the_server() {
    let envelope =
        Project::new().stdio().execute("return await mcp.math.eval({ expression: '6 * 7' })");
    assert_eq!(success(&envelope), 42);
    assert_eq!(envelope["executed"], "server");
}

#[test]
fn server_tools_over_http_give_a_normal_result() {
    let tenant = Server::shared().tenant();
    for era in [Era::Handshake, Era::Stateless] {
        let envelope =
            HttpMcp::new(&tenant, era).execute("return await mcp.json.parse({ data: '[1]' })");
        assert_eq!(success(&envelope), &json!([1]), "{era:?}");
        assert_eq!(envelope["executed"], "server");
    }
}

#[test]
fn client_tools_through_exec_give_a_local_result() {
    let project = Project::new().allow(&["filesystem:*"]);
    project.write("a.txt", "from exec");
    let (envelope, code) = project.exec(READ);
    assert_eq!((success(&envelope), code), (&json!("from exec"), 0));
}

#[test]
fn mixed_tools_pass_data_between_the_sides() {
    let project = Project::new().allow(&["filesystem:*", "json:*", "math:*"]);
    project.write("numbers.json", "[1, 2, 3, 4]");
    let envelope = project.stdio().execute(
        "const numbers = await mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: 'numbers.json' }) });
         const { mean } = await mcp.math.stats({ numbers });
         await mcp.filesystem.write_file({ path: 'mean.txt', content: String(mean) });
         return mean;",
    );
    assert_eq!(success(&envelope), 2.5);
    assert_eq!(project.read("mean.txt"), "2.5");
    let sides: Vec<&str> = calls(&envelope).into_iter().map(|(_, side)| side).collect();
    assert_eq!(sides, ["client", "server", "server", "client"]);
}

#[test]
fn permissions_apply_to_forwarded_server_tools() {
    let project = Project::new()
        .configure(&json!({ "permissions": { "deny": ["json:parse"], "allow": ["*"] } }));
    project.write("a.txt", "{}");
    let mut pml = project.stdio();
    // A rule applies to a forwarded server tool as well as to a local one.
    let denied = pml.execute(
        "return await mcp.json.parse({ data: await mcp.filesystem.read_text_file({ path: 'a.txt' }) })",
    );
    assert!(failure(&denied, "PERMISSION_DENIED").contains("json:parse"));

    // Without a rule, the user is asked.
    let mut asking = Project::new().stdio();
    question(&asking.execute(READ));
}
