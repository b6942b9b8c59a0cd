//! Widely used MCP servers of npm and PyPI, each installed from nothing, started sealed, and called by a program.

use std::process::Command;

use serde_json::{Value, json};

use super::sealed_servers::Site;
use crate::support::cli::Project;
use crate::support::expect::success;
use crate::support::{PATIENCE, scaled};

/// A server, a program that uses it, and what its result contains.
struct Popular {
    name: &'static str,
    command: &'static str,
    arguments: &'static [&'static str],
    code: &'static str,
    contains: &'static str,
}

const fn popular(
    command: &'static str,
    name: &'static str,
    arguments: &'static [&'static str],
    code: &'static str,
    contains: &'static str,
) -> Popular {
    Popular { name, command, arguments, code, contains }
}

/// The reference servers, and `desktop-commander`, `calculator` and `excel` of others. `WORKSPACE` and `PORT` are the
/// project's. A run that is not full takes them from the start: `fetch` reads a page, for which it would use npm.
const POPULAR: [Popular; 10] = [
    popular(
        "uvx",
        "fetch",
        &["mcp-server-fetch==2026.10.24", "--allow-private-ips"],
        "return await mcp.fetch.fetch({ url: 'http://127.0.0.1:PORT/page' })",
        "hello",
    ),
    popular(
        "npx",
        "desktop",
        &["-y", "@wonderwhy-er/desktop-commander@0.2.52"],
        "return await mcp.desktop.read_file({ path: 'WORKSPACE/a.txt' })",
        "hello",
    ),
    popular(
        "uvx",
        "git",
        &["mcp-server-git==2026.10.19"],
        "return await mcp.git.git_log({ repo_path: 'WORKSPACE' })",
        "the first commit",
    ),
    popular(
        "uvx",
        "calculator",
        &["mcp-server-calculator==0.2.1"],
        "return await mcp.calculator.calculate({ expression: '6 * 7' })",
        "42",
    ),
    popular(
        "uvx",
        "excel",
        &["excel-mcp-server==2.2.2", "stdio"],
        "return await mcp.excel.create_workbook({ path: 'WORKSPACE/a.xlsx' })",
        "a.xlsx",
    ),
    popular(
        "npx",
        "files",
        &["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "WORKSPACE"],
        "return await mcp.files.read_text_file({ path: 'a.txt' })",
        "hello",
    ),
    popular(
        "npx",
        "memory",
        &["-y", "@modelcontextprotocol/server-memory@2026.8.31"],
        "return await mcp.memory.create_entities({ entities: [{ name: 'n', entityType: 't', observations: [] }] })",
        "entityType",
    ),
    popular(
        "npx",
        "everything",
        &["-y", "@modelcontextprotocol/server-everything@2026.8.31"],
        "return await mcp.everything.echo({ message: 'hi' })",
        "Echo: hi",
    ),
    popular(
        "npx",
        "thinking",
        &["-y", "@modelcontextprotocol/server-sequential-thinking@2026.8.31"],
        "return await mcp.thinking.sequentialthinking({ thought: 'a', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 })",
        "thoughtNumber",
    ),
    popular(
        "uvx",
        "time",
        &["mcp-server-time==2026.10.19", "--local-timezone", "UTC"],
        "return await mcp.time.get_current_time({ timezone: 'UTC' })",
        "UTC",
    ),
];

/// Installs a server from nothing and runs the program; the client is told of the installation.
#[track_caller]
fn works(popular: &Popular) {
    let site = Site::start("");
    let project = Project::offline();
    let workspace = project.workspace().display().to_string();
    let fill =
        |text: &str| text.replace("WORKSPACE", &workspace).replace("PORT", &site.port.to_string());
    let arguments: Vec<String> = popular.arguments.iter().map(|text| fill(text)).collect();
    let mut entry = json!({
        // `git` is built into `pml`.
        "override": true, "command": popular.command, "args": arguments,
        "env": { "MEMORY_FILE_PATH": "${home}/memory.jsonl" },
    });
    if popular.name == "fetch" {
        entry["network"] = json!([format!("127.0.0.1:{}", site.port)]);
    }
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] }, "mcpServers": { popular.name: entry },
    }));
    project.write("a.txt", "hello");
    for arguments in [
        &["init", "--quiet"][..],
        &["-c", "user.name=A", "-c", "user.email=a@b.test", "commit", "--quiet", "--allow-empty"],
    ] {
        let message: &[&str] =
            if arguments[0] == "init" { &[] } else { &["-m", "the first commit"] };
        let mut git = project.wrap(Command::new("git"), arguments);
        assert!(git.args(message).status().unwrap().success());
    }

    let mut pml = project.stdio();
    let id = pml.send(
        "tools/call",
        json!({
            "name": "pml_execute", "_meta": { "progressToken": "t" },
            "arguments": { "code": fill(popular.code) },
        }),
    );
    let mut messages: Vec<Value> = Vec::new();
    while messages.last().is_none_or(|message| message["id"] != id) {
        // An installation may take minutes, and says so all the time.
        messages.push(pml.next_message(PATIENCE * 5).expect("an answer"));
    }
    let envelope = &messages.last().unwrap()["result"]["structuredContent"];
    let result = success(envelope).to_string();
    assert!(result.contains(popular.contains), "{}: {result}", popular.name);
    let said = messages.iter().filter_map(|message| message["params"]["message"].as_str());
    let installing = |text: &str| text.contains("; installing `") && text.contains("` from ");
    assert!(said.clone().any(installing), "{}: {messages:#?}", popular.name);
}

/// Each works sealed, in a project and a home folder of its own, with nothing in any cache.
#[test]
fn popular_servers_are_installed_and_work_sealed() {
    for popular in &POPULAR[..scaled(POPULAR.len())] {
        works(popular);
    }
}
