//! The official MCP conformance suite, for both protocol versions. All of it runs three times: against a fixture server
//! directly, through `/mcp/proxy/{server}`, and against `/mcp` with the tools of the fixture in the registry. The
//! scenarios of transport and lifecycle also run against `/mcp` without the fixture. A second fixture, on the TypeScript
//! SDK, runs directly and through the proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, finish, text};
use crate::support::gateway_stub::{with_key, with_key_and};
use crate::support::guard;
use crate::support::http::send;
use crate::support::mcp_client::Era;
use crate::support::mcp_servers::{node_22, npm};
use crate::support::server::Server;
use crate::support::upstream::{Entry, Everything, scope_of};

/// Checks that need a fixture on the server, which a gateway does not have: tools with fixed names, prompts,
/// resources. A gateway without prompts and resources answers "method not found", as another check requires.
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
        let printed = plain(&(text(&output.stdout) + &text(&output.stderr)));
        let checks: Vec<(&str, &str)> = printed.lines().filter_map(check).collect();
        // Without this, a scenario that runs no check would pass.
        if !checks.iter().any(|(_, verdict)| *verdict == "SUCCESS") {
            failed.push(format!("{version} {name}: {}\n{printed}", output.status));
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

/// Returns a text without ANSI colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[test]
fn the_2025_11_25_suite_passes_without_a_fixture() {
    scenarios(
        "conformance-2025-11-25",
        "2025-11-25",
        &["server-initialize", "ping", "tools-list", "dns-rebinding-protection"],
    );
}

#[test]
fn the_2026_07_28_suite_passes_without_a_fixture() {
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

/// The newer suite also tests the older version.
#[test]
fn the_2026_07_28_suite_passes_for_clients_of_2025_11_25() {
    scenarios("conformance-2026-07-28", "2025-11-25", &["server-initialize", "ping", "tools-list"]);
}

/// Runs a whole suite and returns the verdicts by scenario, check and number.
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
    let printed = plain(&(text(&output.stdout) + &text(&output.stderr)));
    assert!(verdicts.len() >= 30, "{fixture} {url}: {} checks\n{printed}", verdicts.len());
    verdicts
}

fn checks(file: &Path) -> Vec<(String, String)> {
    let checks: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let text = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    let checks = checks.as_array().unwrap();
    checks.iter().map(|check| (text(check, "id"), text(check, "status"))).collect()
}

/// Prefixes of the checks that the fixture passes directly and `POST /mcp` does not, with the reason.
const NOT_DIRECT: &[(&str, &str)] = &[
    ("completion-complete ", NO_SUCH_METHODS),
    ("logging-set-level ", NO_SUCH_METHODS),
    ("prompts-", NO_SUCH_METHODS),
    ("resources-", NO_SUCH_METHODS),
    ("caching sep-2549-prompts-", NO_SUCH_METHODS),
    ("caching sep-2549-resources-", NO_SUCH_METHODS),
    ("sep sep-2164-", NO_SUCH_METHODS),
    ("input-required-result-non-tool-request ", NO_SUCH_METHODS),
    ("elicitation-", NO_ELICITATION),
    ("tools-call-elicitation ", NO_ELICITATION),
    ("tools-call-sampling ", NO_ELICITATION),
    ("input-required-result-", NO_ELICITATION),
    ("stateless sep-2575-missing-capability-http-400 ", NO_ELICITATION),
    ("stateless sep-2575-server-rejects-undeclared-capability ", NO_ELICITATION),
    ("json-schema ", OWN_TOOL_LIST),
    ("http-custom-header-server-validation ", OWN_TOOL_LIST),
    ("tools-call-with-logging ", OWN_PROGRESS),
    ("tools-call-with-progress ", OWN_PROGRESS),
    ("sse-multiple-streams ", "an answer without earlier messages is JSON, not an event stream"),
];
const NO_SUCH_METHODS: &str = "`/mcp` supports tools only; the proxy forwards the rest";
const NO_ELICITATION: &str =
    "a tool that asks fails with a pointer to the proxy, which forwards questions";
const OWN_TOOL_LIST: &str = "`tools/list` has PML's own tools; others are found by `pml_discover`";
const OWN_PROGRESS: &str = "progress is the gateway's own; the proxy forwards the server's";
/// Extensions that a suite tests without counting them, and why PML does not have them.
const EXTENSIONS: &[(&str, &str)] = &[("tasks-", "the extension for tasks is not declared")];

/// Rewrites calls of the fixture's tools to their names on `POST /mcp`, which have the namespace of the registry.
fn with_namespace(namespace: String) -> impl Fn(&mut Vec<String>, &mut Vec<u8>) {
    move |head, body| {
        let Ok(mut message) = serde_json::from_slice::<Value>(body) else { return };
        let name = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        if message["method"] != "tools/call" || name.starts_with("pml_") {
            return;
        }
        let qualified = format!("{namespace}__{name}");
        for line in head.iter_mut() {
            let (key, value) = line.split_once(':').unwrap_or_default();
            if key.eq_ignore_ascii_case("mcp-name") && value.trim() == name {
                *line = format!("mcp-name: {qualified}");
            }
        }
        message["params"]["name"] = qualified.into();
        *body = message.to_string().into_bytes();
        head.retain(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
        head.push(format!("content-length: {}", body.len()));
    }
}

/// Runs a suite against the fixture directly, through the proxy and against `POST /mcp`. Each check that passes directly
/// must pass in the other two, except for the listed ones. `--nocapture` shows the counts.
#[expect(clippy::print_stdout, reason = "the counts are the report of the test")]
fn three_ways(fixture: &str, which: &[&str], least: [usize; 2]) {
    let server = Server::shared();
    let tenant = server.tenant();
    let upstream = Everything::start();
    let namespace = format!("everything_{}", which[1].replace('-', "_"));
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, &namespace, &upstream.url);
    entry.tools = tools_of(&upstream.url);
    entry.publish(server.installation());
    let project = Project::of(&tenant);
    let alone = verdicts(&project, fixture, &upstream.url, which);
    let url = format!("{}/mcp/proxy/{namespace}", with_key(&tenant.url, &tenant.key));
    let through = verdicts(&project, fixture, &url, which);
    let url = with_key_and(&tenant.url, &tenant.key, with_namespace(namespace));
    let direct = verdicts(&project, fixture, &format!("{url}/mcp"), which);

    let passes = |verdicts: &BTreeMap<String, String>, name: &str| {
        verdicts.get(name).is_some_and(|verdict| verdict == "SUCCESS")
    };
    let passed: Vec<&String> = alone.keys().filter(|name| passes(&alone, name)).collect();
    let count = |verdicts| passed.iter().filter(|name| passes(verdicts, name)).count();
    println!(
        "{fixture}: {} checks pass alone, {} of them through the proxy, {} directly",
        passed.len(),
        count(&through),
        count(&direct)
    );
    assert!(passed.len() >= least[0], "{fixture}: {} of {} pass alone", passed.len(), alone.len());
    assert!(count(&direct) >= least[1], "{fixture}: {} pass directly", count(&direct));
    let lost = |verdicts: &BTreeMap<String, String>, reasons: &[(&str, &str)]| {
        let lost = passed.iter().filter(|name| !passes(verdicts, name));
        let lost = lost.filter(|name| !reasons.iter().any(|(check, _)| name.starts_with(check)));
        lost.map(|name| format!("{name}: {:?}", verdicts.get(*name))).collect::<Vec<_>>()
    };
    let lost_through = lost(&through, &[]);
    assert!(lost_through.is_empty(), "{fixture}, through: {}", lost_through.join("\n"));
    let lost_directly = lost(&direct, NOT_DIRECT);
    assert!(lost_directly.is_empty(), "{fixture}, directly: {}", lost_directly.join("\n"));
    // Checks that the fixture does not pass itself must not fail either, except for extensions.
    let failed = direct.iter().filter(|(_, verdict)| *verdict == "FAILURE").map(|(name, _)| name);
    let known = |name: &str| {
        let mut reasons = NOT_DIRECT.iter().chain(EXTENSIONS);
        reasons.any(|(check, _)| name.starts_with(check))
    };
    let failed: Vec<&String> = failed.filter(|name| !known(name)).collect();
    assert!(failed.is_empty(), "{fixture}, directly: {failed:?}");
}

#[test]
fn the_2025_11_25_suite_passes_directly_proxied_and_on_mcp() {
    three_ways("conformance-2025-11-25", &["--suite", "all"], [40, 12]);
}

#[test]
fn the_2026_07_28_suite_passes_directly_proxied_and_on_mcp() {
    three_ways("conformance-2026-07-28", &["--requirements", "2026-07-28"], [130, 100]);
}

/// Every check that the fixture on the TypeScript SDK passes also passes through the proxy, including subscriptions.
#[test]
fn the_proxy_preserves_every_check_of_the_typescript_fixture() {
    let server = Server::shared();
    let tenant = server.tenant();
    let upstream = Everything::in_typescript();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "everything_ts", &upstream.url);
    entry.tools = tools_of(&upstream.url);
    entry.publish(server.installation());
    let project = Project::of(&tenant);
    let (fixture, which) = ("conformance-2026-07-28", ["--requirements", "2026-07-28"]);
    let alone = verdicts(&project, fixture, &upstream.url, &which);
    let url = format!("{}/mcp/proxy/everything_ts", with_key(&tenant.url, &tenant.key));
    let through = verdicts(&project, fixture, &url, &which);
    let passed: Vec<&String> =
        alone.iter().filter(|(_, verdict)| *verdict == "SUCCESS").map(|(name, _)| name).collect();
    assert!(passed.len() >= 140, "{} of {} pass alone", passed.len(), alone.len());
    let subscribes = |name: &&&String| name.contains("-subscription");
    assert!(passed.iter().filter(subscribes).count() >= 4, "{passed:#?}");
    let lost: Vec<String> = passed
        .iter()
        .filter(|name| through.get(**name).is_none_or(|verdict| verdict != "SUCCESS"))
        .map(|name| format!("{name}: {:?}", through.get(*name)))
        .collect();
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// Returns the tools of a server, as it describes them.
fn tools_of(url: &str) -> Vec<Value> {
    let message = Era::Stateless.request(1, "tools/list", json!({})).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", Era::Stateless.version()),
        ("mcp-method", "tools/list"),
    ];
    let reply = send("POST", url, &headers, Some(message.into_bytes()));
    let body = String::from_utf8_lossy(&reply.body);
    let data = body.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or(&body);
    let answer: Value = serde_json::from_str(data.trim()).unwrap();
    answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}
