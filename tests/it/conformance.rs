//! The official MCP conformance suite: the scenarios of transport and lifecycle
//! that ask for no fixture tools, for both protocol versions.

use std::process::Command;

use crate::support::cli::{Project, finish, text};
use crate::support::gateway_stub::with_key;
use crate::support::mcp_servers::{node_22, npm};
use crate::support::server::Server;

/// Runs scenarios against `/mcp` of the shared gateway, through a proxy that adds the key.
fn scenarios(fixture: &str, version: &str, names: &[&str]) {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    let url = format!("{}/mcp", with_key(&tenant.url, &tenant.key));
    let script = npm(fixture).join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut failed = Vec::new();
    for name in names {
        let mut command = project.wrap(Command::new(node_22()), &[]);
        command.arg(&script).args(["server", "--url", &url, "--scenario", name]);
        command.args(["--spec-version", version]);
        let output = finish(command, b"");
        let said = text(&output.stdout) + &text(&output.stderr);
        // A scenario without a single check would pass by saying nothing.
        let told = said.lines().find_map(|line| line.strip_prefix("Passed: "));
        let all = told.and_then(|line| line.split_once(", 0 failed")).is_some_and(|(ratio, _)| {
            ratio.split_once('/').is_some_and(|(passed, of)| passed == of && passed != "0")
        });
        if !output.status.success() || !all {
            failed.push(format!("{version} {name}: {}\n{said}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n---\n"));
}

#[test]
fn the_suite_for_2025_11_25_passes() {
    scenarios(
        "conformance-2025-11-25",
        "2025-11-25",
        &["server-initialize", "ping", "tools-list", "dns-rebinding-protection"],
    );
}

#[test]
fn the_suite_for_2026_07_28_passes() {
    scenarios(
        "conformance-2026-07-28",
        "2026-07-28",
        &[
            "server-stateless",
            "tools-list",
            "dns-rebinding-protection",
            "caching",
            "http-header-validation",
        ],
    );
}
