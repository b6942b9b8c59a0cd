//! The official MCP conformance suite: the scenarios of transport and lifecycle
//! that ask for no fixture tools, for both protocol versions.

use std::process::Command;

use crate::support::cli::{Project, finish, text};
use crate::support::gateway_stub::with_key;
use crate::support::mcp_servers::{node_22, npm};
use crate::support::server::Server;

/// Checks inside a scenario that ask for a fixture on the server, which a gateway
/// does not have: tools of fixed names, prompts, resources. A gateway without
/// prompts and resources says that there is no such method, which another check
/// of the suite asks for.
const NEED_A_FIXTURE: &[&str] = &[
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2549-prompts-list-caching-hints",
    "sep-2549-resources-list-caching-hints",
    "sep-2549-resources-templates-list-caching-hints",
];

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
        let said = plain(&(text(&output.stdout) + &text(&output.stderr)));
        let checks: Vec<(&str, &str)> = said.lines().filter_map(check).collect();
        // A scenario without a single check would pass by saying nothing.
        if !checks.iter().any(|(_, verdict)| *verdict == "SUCCESS") {
            failed.push(format!("{version} {name}: {}\n{said}", output.status));
        }
        for (id, verdict) in checks {
            if verdict == "FAILURE" && !NEED_A_FIXTURE.contains(&id) {
                failed.push(format!("{version} {name}: {id}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Reads a line `<time> [<check>] <verdict> <text>`.
fn check(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(" [")?;
    let (id, rest) = rest.split_once(']')?;
    let verdict = rest.split_whitespace().next()?;
    ["SUCCESS", "FAILURE", "WARNING", "INFO", "SKIPPED"]
        .contains(&verdict)
        .then(|| (id.trim(), verdict))
}

/// Returns a text without its colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
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

/// The newer suite's view of the older version.
#[test]
fn the_newer_suite_for_2025_11_25_passes() {
    scenarios("conformance-2026-07-28", "2025-11-25", &["server-initialize", "ping", "tools-list"]);
}
