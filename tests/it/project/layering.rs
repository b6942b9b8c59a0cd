//! Layering: which crate may depend on which, by `cargo metadata`, and which component of a crate may import which, by
//! the paths in its source.

mod components;

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Each crate of the workspace, with the other ones that it may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("sandbox", &[]),
    ("analysis", &["protocol"]),
    ("execution", &["analysis", "protocol", "sandbox"]),
    ("registry", &["protocol"]),
    ("server", &["analysis", "execution", "protocol", "registry", "sandbox"]),
    ("client-cli", &["analysis", "execution", "protocol", "sandbox"]),
    ("tests", &[]),
];

/// External crates that only some of ours may depend on. A star matches any suffix.
const RESTRICTED: &[(&str, &[&str])] = &[
    // Only the gateway serves HTTP; the page for approvals is three routes.
    ("axum", &["server"]),
    ("tower", &["server"]),
    // SQL is in one crate.
    ("sqlx", &["registry"]),
    ("tokio-postgres", &[]),
    ("rusqlite", &["client-cli"]),
    // The parser and the engine are hidden behind one crate each.
    ("swc_*", &["analysis"]),
    ("rquickjs*", &["sandbox"]),
    ("seccompiler", &["sandbox"]),
    // Crates that only decide, and the sandbox, do not use the network.
    ("reqwest", &["execution", "server", "client-cli", "tests"]),
    ("rmcp", &["execution", "server", "client-cli"]),
    // Also the proxy of a sealed process.
    ("hyper", &["execution", "server", "client-cli"]),
    ("tokio", &["execution", "registry", "sandbox", "server", "client-cli", "tests"]),
    // The other crates have plain figures, which the gateway exports.
    ("prometheus*", &["server"]),
    // Libraries have error enums.
    ("anyhow", &["server", "client-cli"]),
];

/// The components of each crate, and which others of the same crate each may import: crate, folder, allowed folders.
///
/// A component is a module with everything below it, named by its path in `src`. `*` is the crate's root and every
/// module that no row names. A component may import itself; one without a row may import everything.
const COMPONENTS: &[(&str, &str, &[&str])] = &[
    // A child may be compromised, so the host learns about it only from its frames.
    ("sandbox", "host", &["wire", "*"]),
    ("sandbox", "child", &["wire", "*"]),
    ("sandbox", "wire", &["*"]),
    ("sandbox", "*", &[]),
    ("server", "config", &[]),
    ("server", "error", &[]),
    ("server", "metrics", &[]),
    ("server", "private_settings", &[]),
    ("server", "http_client", &[]),
    ("server", "telemetry", &[]),
    ("server", "tools", &[]),
    ("server", "analyser", &["metrics"]),
    ("server", "synced_tools", &[]),
    ("server", "traces", &[]),
    ("server", "database", &["config", "private_settings"]),
    ("server", "admission", &["config", "error", "metrics"]),
    ("server", "connections", &["admission", "error"]),
    ("server", "identity", &["config", "error", "http_client", "private_settings"]),
    (
        "server",
        "upstreams",
        &["admission", "config", "error", "http_client", "identity", "metrics"],
    ),
    // Handles only; the components that use them are below this row.
    (
        "server",
        "state",
        &["admission", "analyser", "connections", "identity", "metrics", "traces", "upstreams"],
    ),
    (
        "server",
        "execution",
        &[
            "admission",
            "error",
            "identity",
            "metrics",
            "state",
            "synced_tools",
            "tools",
            "traces",
            "upstreams",
        ],
    ),
    ("server", "publish", &["error", "execution", "identity", "state"]),
    (
        "server",
        "proxy",
        &["admission", "config", "error", "execution", "identity", "state", "upstreams"],
    ),
    (
        "server",
        "http",
        &[
            "admission",
            "config",
            "connections",
            "error",
            "execution",
            "identity",
            "metrics",
            "proxy",
            "publish",
            "state",
            "synced_tools",
            "traces",
        ],
    ),
    (
        "server",
        "commands",
        &[
            "admission",
            "analyser",
            "config",
            "connections",
            "database",
            "execution",
            "http",
            "http_client",
            "identity",
            "metrics",
            "private_settings",
            "publish",
            "state",
            "telemetry",
            "tools",
            "traces",
            "upstreams",
        ],
    ),
    ("client-cli", "background", &[]),
    ("client-cli", "files", &[]),
    ("client-cli", "attestation", &["files"]),
    ("client-cli", "policy", &["files"]),
    ("client-cli", "workspace", &["files", "policy"]),
    ("client-cli", "processes", &["workspace"]),
    ("client-cli", "agents", &["files", "workspace", "*"]),
    ("client-cli", "origin", &["http_client"]),
    ("client-cli", "capabilities", &["files", "origin"]),
    // A record decides nothing and calls nothing.
    ("client-cli", "run_store", &["files", "workspace"]),
    // The targets of calls; none of them checks permissions.
    ("client-cli", "http_client", &[]),
    ("client-cli", "diagram", &[]),
    // The page shows a question and takes its answer; it knows no run.
    ("client-cli", "browser", &[]),
    ("client-cli", "approval_page", &["browser", "consent"]),
    (
        "client-cli",
        "gateway",
        &["capabilities", "files", "http_client", "origin", "processes", "*"],
    ),
    // What was decided before a run is in its record.
    ("client-cli", "traces", &["background", "files", "gateway", "run_store", "workspace"]),
    // It knows no project.
    ("client-cli", "release", &["files", "http_client"]),
    // It asks, and decides nothing.
    ("client-cli", "registries", &["capabilities", "gateway", "http_client", "origin"]),
    ("client-cli", "local_mcp", &["files", "http_client", "policy", "processes", "workspace", "*"]),
    ("client-cli", "tools", &["files", "http_client", "policy", "processes", "workspace"]),
    // The decision about a call depends on what can be called, and not on runs.
    (
        "client-cli",
        "consent",
        &[
            "capabilities",
            "files",
            "local_mcp",
            "origin",
            "processes",
            "tools",
            "policy",
            "workspace",
        ],
    ),
    (
        "client-cli",
        "config",
        &["consent", "files", "local_mcp", "origin", "policy", "processes", "tools", "workspace"],
    ),
    // It says what the file says, of tools that are known already; it starts nothing.
    (
        "client-cli",
        "tool_sync",
        &[
            "background",
            "config",
            "consent",
            "files",
            "gateway",
            "local_mcp",
            "processes",
            "workspace",
        ],
    ),
    (
        "client-cli",
        "app",
        &[
            "capabilities",
            "config",
            "consent",
            "files",
            "gateway",
            "local_mcp",
            "origin",
            "processes",
            "registries",
            "run_store",
            "tool_sync",
            "tools",
            "traces",
            "policy",
            "workspace",
            "*",
        ],
    ),
    // These search, and run nothing.
    ("client-cli", "placement", &["app", "capabilities", "consent", "files", "origin", "tools"]),
    (
        "client-cli",
        "discover",
        &["app", "capabilities", "consent", "files", "origin", "registries", "tools"],
    ),
    (
        "client-cli",
        "run",
        &[
            "app",
            "approval_page",
            "browser",
            "capabilities",
            "consent",
            "diagram",
            "discover",
            "files",
            "gateway",
            "placement",
            "run_store",
            "tools",
            "policy",
            "workspace",
        ],
    ),
    // Putting files back needs no program and no rules.
    ("client-cli", "undo", &["policy", "run_store", "tools", "workspace"]),
    ("client-cli", "added", &["files", "workspace"]),
    // It selects what agents are offered, and calls nothing.
    (
        "client-cli",
        "exposed",
        &["added", "app", "capabilities", "config", "consent", "files", "run_store", "tools"],
    ),
    ("client-cli", "agent", &["app", "consent", "discover", "exposed", "run"]),
    ("client-cli", "stdio", &["agent", "app", "run"]),
    ("client-cli", "serve", &["agent", "app", "files", "run", "workspace"]),
    (
        "client-cli",
        "commands",
        &[
            "added",
            "agent",
            "agents",
            "app",
            "attestation",
            "browser",
            "capabilities",
            "config",
            "consent",
            "diagram",
            "discover",
            "files",
            "gateway",
            "http_client",
            "origin",
            "placement",
            "processes",
            "registries",
            "release",
            "run",
            "run_store",
            "serve",
            "stdio",
            "tool_sync",
            "traces",
            "policy",
            "undo",
            "workspace",
            "*",
        ],
    ),
    (
        "client-cli",
        "testing",
        &[
            "commands",
            "consent",
            "local_mcp",
            "policy",
            "processes",
            "run_store",
            "tools",
            "workspace",
            "*",
        ],
    ),
    ("client-cli", "*", &[]),
    ("registry", "identity", &["*"]),
    ("registry", "paging", &["*"]),
    ("registry", "database", &["identity", "*"]),
    ("registry", "records", &["identity", "database", "paging", "*"]),
    // Reading an entry is independent of publishing it.
    ("registry", "entries", &["identity", "database", "paging", "*"]),
    ("registry", "accounts", &["identity", "database", "records", "entries", "paging", "*"]),
    ("registry", "publishing", &["identity", "database", "records", "entries", "*"]),
    (
        "registry",
        "operator",
        &["identity", "database", "records", "entries", "publishing", "accounts", "*"],
    ),
    ("registry", "limits", &["identity", "database", "records", "accounts", "operator", "*"]),
    // A secret is bound to its owner and hosts, never to an entry.
    ("registry", "secrets", &["identity", "database", "records", "accounts", "*"]),
    ("registry", "routes", &["identity", "database", "entries", "accounts", "limits", "*"]),
    ("registry", "*", &[]),
];

/// Single imports that are allowed across components: crate, importing module, imported module. The crate's root has
/// the reason.
const IMPORTS_ACROSS: &[(&str, &str, &str)] = &[];

/// Folders whose modules may have import cycles: crate, folder. The crate's root has the reason.
const CYCLES: &[(&str, &str)] = &[("sandbox", "host/spawner")];

/// The dependencies of each crate, including those of tests and build scripts.
type Graph = BTreeMap<String, Vec<String>>;

fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (name, dependencies) in graph {
        let Some((_, allowed)) = CRATES.iter().find(|(ours, _)| ours == name) else {
            found.push(format!(
                "`{name}` is a new crate; it needs a decision record and a row in `CRATES`"
            ));
            continue;
        };
        for dependency in dependencies {
            let is_ours = CRATES.iter().any(|(ours, _)| ours == dependency);
            if is_ours && !allowed.contains(&dependency.as_str()) {
                found.push(format!("`{name}` must not depend on `{dependency}`"));
            }
            for (kept, owners) in RESTRICTED {
                let matches = match kept.strip_suffix('*') {
                    Some(start) => dependency.starts_with(start),
                    None => dependency == kept,
                };
                if matches && !owners.contains(&name.as_str()) {
                    found.push(format!("`{name}` must not use `{dependency}`"));
                }
            }
        }
    }
    found
}

fn workspace_graph() -> Graph {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs, as it has built this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let names =
                dependencies.iter().map(|d| d["name"].as_str().unwrap().to_owned()).collect();
            (package["name"].as_str().unwrap().to_owned(), names)
        })
        .collect()
}

#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let graph = workspace_graph();
    assert_eq!(graph.len(), CRATES.len(), "{:?}", graph.keys());
    let found = violations(&graph);
    assert!(found.is_empty(), "{found:#?}");
}

/// Checks the checker: each kind of violation in a made-up graph is detected.
#[test]
fn forbidden_dependencies_are_detected() {
    let edge = |from: &str, to: &str| {
        violations(&BTreeMap::from([(from.to_owned(), vec![to.to_owned()])]))
    };
    for (from, to) in [
        ("client-cli", "server"),
        ("client-cli", "registry"),
        ("sandbox", "protocol"),
        ("protocol", "analysis"),
        ("analysis", "tokio"),
        ("analysis", "rquickjs-core"),
        ("registry", "axum"),
        ("server", "sqlx"),
        ("server", "swc_ecma_ast"),
        ("protocol", "reqwest"),
        ("sandbox", "reqwest"),
        ("tests", "analysis"),
        ("surprise", "serde"),
    ] {
        assert_eq!(edge(from, to).len(), 1, "{from} -> {to}");
    }
    for (from, to) in [("server", "axum"), ("registry", "sqlx"), ("client-cli", "analysis")] {
        assert_eq!(edge(from, to), [""; 0], "{from} -> {to}");
    }
}

/// SB-21: the engine trusts bytecode that it loads, so the sandbox never loads any.
#[test]
fn the_sandbox_never_loads_bytecode() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox/src");
    let mut folders = vec![sources];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                // Of the engine's own functions, only the one that allocates may be named.
                let text = std::fs::read_to_string(&path).unwrap().replace("qjs::js_malloc(", "");
                for reader in ["Module::load", "JS_ReadObject", "bytecode", "qjs::"] {
                    assert!(!text.contains(reader), "{}: `{reader}`", path.display());
                }
                files += 1;
            }
        }
    }
    assert!(files > 20, "{files} files");
}
