//! Third-party clients, driven by the scripts of the fixtures.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::{Project, finish, text};
use crate::support::mcp_servers::{CLIENTS, PYTHON, node_22, npm, python};

/// A third-party client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    PythonSdk,
    FastMcp,
    TypeScriptV1,
    TypeScriptV2,
    Inspector,
}

/// Returns `pml stdio` as the target of a script.
pub(crate) fn stdio(project: &Project) -> Value {
    json!({
        "command": built("pml"),
        "args": ["stdio"],
        "env": environment(project),
        "cwd": project.workspace(),
    })
}

/// Returns the environment of a project's programs.
pub(crate) fn environment(project: &Project) -> BTreeMap<String, String> {
    let command = project.command(&[]);
    let set =
        command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
    set.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Runs the script of a library with this input; returns the lines that it prints.
#[track_caller]
pub(crate) fn run(project: &Project, client: Client, input: &Value) -> Vec<Value> {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
    let mut command = match client {
        Client::PythonSdk | Client::FastMcp => {
            let mut command = Command::new(python(PYTHON).join("python"));
            let script = if client == Client::PythonSdk { "mcp" } else { "fastmcp" };
            command.arg(format!("{fixtures}/python/matrix_{script}.py"));
            command
        }
        Client::TypeScriptV1 | Client::TypeScriptV2 | Client::Inspector => {
            let mut command = Command::new(node_22());
            let script = if client == Client::TypeScriptV1 { "v1" } else { "v2" };
            command.arg(format!("{fixtures}/clients/{script}.mjs")).arg(npm(CLIENTS));
            command
        }
    };
    command = project.wrap(command, &[]);
    command.env("FASTMCP_CHECK_FOR_UPDATES", "off");
    let output = finish(command, input.to_string().as_bytes());
    let printed = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{client:?}: {input}\n{printed}");
    let lines = text(&output.stdout);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {printed}")))
        .collect()
}
