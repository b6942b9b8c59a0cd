//! The official MCP conformance suite, for both protocol versions: against `/mcp`, the scenarios of transport and
//! lifecycle that ask for no fixture tools; through `/mcp/proxy/{server}`, all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::cli::{Project, finish, text};
use crate::support::gateway_stub::with_key;
use crate::support::guard;
use crate::support::mcp_servers::{node_22, npm};
use crate::support::server::Server;
use crate::support::upstream::{Entry, Everything, scope_of};

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

/// Runs a whole suite and returns the verdicts by scenario, check and place.
fn verdicts(
    project: &Project,
    fixture: &str,
    url: &str,
    which: &[&str],
) -> BTreeMap<String, String> {
    let script = npm(fixture).join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let results = guard::folder("c");
    let mut command = project.wrap(Command::new(node_22()), &[]);
    command.arg(&script).args(["server", "--url", url, "-o"]).arg(&results).args(which);
    let output = finish(command, b"");
    let mut verdicts = BTreeMap::new();
    for entry in std::fs::read_dir(&results).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        // server-<scenario>-<time>
        let scenario = name.trim_start_matches("server-").split("-2").next().unwrap().to_owned();
        for (id, status) in checks(&entry.path().join("checks.json")) {
            let mut place = 1;
            while verdicts.contains_key(&format!("{scenario} {id} {place}")) {
                place += 1;
            }
            verdicts.insert(format!("{scenario} {id} {place}"), status);
        }
    }
    let said = plain(&(text(&output.stdout) + &text(&output.stderr)));
    assert!(verdicts.len() >= 30, "{fixture} {url}: {} checks\n{said}", verdicts.len());
    verdicts
}

fn checks(file: &Path) -> Vec<(String, String)> {
    let checks: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let text = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    let checks = checks.as_array().unwrap();
    checks.iter().map(|check| (text(check, "id"), text(check, "status"))).collect()
}

/// Whatever a server passes alone it passes through the gateway.
fn passes_through(fixture: &str, which: &[&str], least: usize) {
    let server = Server::shared();
    let tenant = server.tenant();
    let upstream = Everything::start();
    let namespace = format!("everything_{}", which[1].replace('-', "_"));
    Entry::http(&scope_of(&tenant), &namespace, &upstream.url).publish(server.installation());
    let project = Project::of(&tenant);
    let alone = verdicts(&project, fixture, &upstream.url, which);
    let url = format!("{}/mcp/proxy/{namespace}", with_key(&tenant.url, &tenant.key));
    let through = verdicts(&project, fixture, &url, which);
    let passed: Vec<&String> =
        alone.iter().filter(|(_, verdict)| *verdict == "SUCCESS").map(|(name, _)| name).collect();
    assert!(
        passed.len() >= least,
        "{fixture}: {} of {} checks pass alone",
        passed.len(),
        alone.len()
    );
    let lost: Vec<String> = passed
        .iter()
        .filter(|name| through.get(**name).map(String::as_str) != Some("SUCCESS"))
        .map(|name| format!("{name}: {:?}", through.get(*name)))
        .collect();
    assert!(lost.is_empty(), "{fixture}: what passes alone and not through:\n{}", lost.join("\n"));
}

#[test]
fn all_of_2025_11_25_passes_through() {
    passes_through("conformance-2025-11-25", &["--suite", "all"], 40);
}

#[test]
fn all_of_2026_07_28_passes_through() {
    passes_through("conformance-2026-07-28", &["--requirements", "2026-07-28"], 130);
}
