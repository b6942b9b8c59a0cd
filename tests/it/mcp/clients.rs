//! Third-party clients list and call tools on stdio and over HTTP.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::{Project, finish, text};
use crate::support::mcp_servers::{PYTHON, node_22, npm, python};
use crate::support::serve::Serving;
use crate::support::server::{Server, Tenant};

const CODE: &str = "return await mcp.math.eval({ expression: '6 * 7' })";

/// Runs the command line of the MCP inspector.
fn inspector(project: &Project, arguments: &[&str]) -> Value {
    let node = node_22();
    let script = npm("inspector").join("node_modules/.bin/mcp-inspector");
    let mut command = project.wrap(Command::new(&node), &[]);
    let path = std::env::join_paths(
        std::iter::once(node.parent().expect("node lies in a folder").to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    command.arg(script).arg("--cli").args(arguments).env("PATH", path.unwrap());
    let output = finish(command, b"");
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

fn assert_lists_the_meta_tools(listed: &Value) {
    let shown = listed.to_string();
    for name in ["pml_execute", "pml_discover", "pml_create", "pml_continue"] {
        assert!(shown.contains(&format!("\"{name}\"")), "{shown}");
    }
}

fn assert_returned_42(result: &Value) {
    let shown = result.to_string();
    assert!(shown.contains("\"status\":\"success\"") && shown.contains("\"result\":42"), "{shown}");
}

fn over_http() -> (Tenant, Project, String) {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    let url = format!("{}/mcp", tenant.url);
    (tenant, project, url)
}

#[test]
fn the_inspector_works_on_stdio() {
    let project = Project::new();
    let pml = built("pml").display().to_string();
    // The inspector passes little of its environment to servers, so the variables are listed.
    let wrapped = project.command(&[]);
    let settings: Vec<String> = wrapped
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
        .filter(|(_, value)| !value.is_empty())
        .filter(|(name, _)| name.starts_with("PML_") || name.starts_with("XDG_") || *name == "HOME")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut arguments = vec![pml.as_str(), "stdio"];
    for setting in &settings {
        arguments.extend(["-e", setting]);
    }
    let list = [&arguments[..], &["--method", "tools/list"]].concat();
    assert_lists_the_meta_tools(&inspector(&project, &list));
    let code = format!("code={CODE}");
    let call =
        ["--method", "tools/call", "--tool-name", "pml_execute", "--tool-arg", code.as_str()];
    assert_returned_42(&inspector(&project, &[&arguments[..], &call].concat()));
}

/// Lists the tools of this address and calls one.
#[track_caller]
fn the_inspector_works_with(project: &Project, url: &str, key: &str) {
    let header = format!("Authorization: Bearer {key}");
    let target = [url, "--transport", "http", "--header", header.as_str()];
    let list = [&target[..], &["--method", "tools/list"]].concat();
    assert_lists_the_meta_tools(&inspector(project, &list));
    let code = format!("code={CODE}");
    let call =
        ["--method", "tools/call", "--tool-name", "pml_execute", "--tool-arg", code.as_str()];
    assert_returned_42(&inspector(project, &[&target[..], &call].concat()));
}

#[test]
fn the_inspector_works_over_http() {
    let (tenant, project, url) = over_http();
    the_inspector_works_with(&project, &url, &tenant.key);
}

#[test]
fn the_inspector_works_with_serve() {
    let project = Project::new();
    let serving = Serving::start(&project);
    the_inspector_works_with(&project, &serving.url, &serving.token);
}

fn fastmcp(project: &Project, arguments: &[&str]) -> Value {
    let program: PathBuf = python(PYTHON).join("fastmcp");
    let mut command = project.wrap(Command::new(program), arguments);
    command.env("FASTMCP_CHECK_FOR_UPDATES", "off");
    let output = finish(command, b"");
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// Lists the tools of this address and calls one.
#[track_caller]
fn fastmcp_works_with(project: &Project, url: &str, key: &str) {
    assert_lists_the_meta_tools(&fastmcp(project, &["list", url, "--auth", key, "--json"]));
    let code = format!("code={CODE}");
    let call = ["call", url, "pml_execute", &code, "--auth", key, "--json"];
    assert_returned_42(&fastmcp(project, &call));
}

#[test]
fn fastmcp_works_over_http() {
    let (tenant, project, url) = over_http();
    fastmcp_works_with(&project, &url, &tenant.key);
}

#[test]
fn fastmcp_works_with_serve() {
    let project = Project::new();
    let serving = Serving::start(&project);
    fastmcp_works_with(&project, &serving.url, &serving.token);
}

#[test]
fn fastmcp_works_on_stdio() {
    let project = Project::new();
    // FastMCP passes little of its environment to a command, so `env` sets what `pml` needs.
    let wrapped = project.command(&[]);
    let mut command = String::from("env");
    for (name, value) in wrapped.get_envs() {
        if let (Some(name), Some(value)) = (name.to_str(), value.and_then(|value| value.to_str())) {
            command += &format!(" '{name}={value}'");
        }
    }
    command += &format!(" '{}' stdio", built("pml").display());
    assert_lists_the_meta_tools(&fastmcp(&project, &["list", "--command", &command, "--json"]));
    let arguments = json!({ "code": CODE }).to_string();
    let target = ["--target", "pml_execute", "--input-json", arguments.as_str(), "--json"];
    assert_returned_42(&fastmcp(
        &project,
        &[&["call", "--command", &command], &target[..]].concat(),
    ));
}

/// The Python SDK cancels a running call and continues, or exits. Neither is an error in the log.
#[test]
fn cancelled_calls_leave_no_errors_in_the_log() {
    const CANCELS: &str = r#"
import sys, anyio, os
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def main():
    pml = StdioServerParameters(command=sys.argv[1], args=["stdio"], env=dict(os.environ))
    with open(sys.argv[2], "w") as log:
        async with stdio_client(pml, errlog=log) as streams:
            async with ClientSession(*streams) as session:
                await session.initialize()
                for code in ["return await mcp.shell.exec({ command: ['sleep', '60'] })", "while (true) {}"]:
                    with anyio.move_on_after(1) as scope:
                        await session.call_tool("pml_execute", {"code": code})
                    assert scope.cancelled_caught
                    result = await session.call_tool("pml_execute", {"code": "return 7"})
                    assert "7" in result.content[0].text, result
                with anyio.move_on_after(1):
                    await session.call_tool("pml_execute", {"code": "while (true) {}"})
anyio.run(main)
"#;
    let project = Project::offline().allow_commands(&["sleep"]);
    let pml = project.command(&[]).get_program().to_owned();
    let mut client = project.wrap(Command::new(python(PYTHON).join("python")), &["-c", CANCELS]);
    let output = client.arg(pml).arg(project.log()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let log = std::fs::read_to_string(project.log()).unwrap();
    assert!(log.is_empty(), "{log}");
}
