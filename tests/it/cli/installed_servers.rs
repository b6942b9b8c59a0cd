//! MCP servers that `pml` installs from npm and PyPI, and starts sealed without a package manager.

use std::path::Path;

use serde_json::{Value, json};

use super::sealed_servers::{Site, Sockets, all_fail, attempt};
use super::server_starts::{RUNNER, tenant};
use crate::identity::keys::call;
use crate::support::PATIENCE;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::registry::Registry;
use crate::support::terminal::{approve, on_terminal};

/// An entry of a server from npm, sealed and without hosts.
fn npx(arguments: &[&str]) -> Value {
    json!({ "command": "npx", "args": arguments, "network": [] })
}

/// Returns a project with these servers.
fn project(servers: &Value) -> Project {
    let servers = json!({ "permissions": { "allow": ["*"] }, "mcpServers": servers });
    Project::offline().configure(&servers)
}

/// Returns the same project with this registry, for npm and for pip.
fn with(project: Project, registry: &Registry) -> Project {
    project.set("npm_config_registry", registry.npm()).set("PIP_INDEX_URL", &registry.pypi())
}

/// A server from npm and one from PyPI are installed at the first call, from a cold cache, and work without hosts. After
/// that they start without a registry.
#[test]
fn servers_are_installed_once() {
    let mut memory = npx(&["-y", "@modelcontextprotocol/server-memory@2026.8.31"]);
    // Else it would write into its own package.
    memory["env"] = json!({ "MEMORY_FILE_PATH": "${workspace}/memory.jsonl" });
    let project = project(&json!({
        "memory": memory,
        "time": { "command": "uvx", "args": ["mcp-server-time==2026.10.19", "--local-timezone", "UTC"], "network": [] },
    }));
    let code = "const [graph, now] = await Promise.all([
        mcp.memory.create_entities({ entities: [{ name: 'n', entityType: 't', observations: [] }] }),
        mcp.time.get_current_time({ timezone: 'UTC' }),
    ]);
    return { graph, now }";
    let (envelope, _) = project.exec(code);
    let result = success(&envelope).to_string();
    assert!(result.contains("entityType") && result.contains("UTC"), "{result}");
    let offline = project
        .set("npm_config_registry", "http://127.0.0.1:1")
        .set("PIP_INDEX_URL", "http://127.0.0.1:1");
    let (envelope, _) = offline.exec(code);
    success(&envelope);
}

/// What cannot be installed is explained.
#[test]
fn failed_installations_are_explained() {
    let registry = Registry::start();
    let project = project(&json!({
        "none": npx(&["-y", "none-such@1.0.0"]),
        "option": npx(&["--registry=https://evil.test", "a"]),
        "address": npx(&["-y", "https://evil.test/a.tgz"]),
        "program": npx(&["-p", "tool", "other"]),
        "changed": npx(&["changed"]),
        "remote": npx(&["remote"]),
        "python": { "command": "uvx", "args": ["none-such==1"], "network": [] },
        "source": { "command": "uvx", "args": ["source_only"], "network": [] },
    }));
    let scratch = project.home();
    let publish = |name: &str, manifest: Value, changed: &[u8]| {
        registry.publish(&scratch, name, &[("index.js", "")], &manifest, changed);
    };
    publish("tool", json!({ "bin": { "tool": "index.js" } }), b"");
    // An empty gzip member (RFC 1952): the archive stays readable, so that npm can only refuse it by its hash.
    let empty = [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0"[..], &[0; 8]].concat();
    publish("changed", json!({ "bin": "index.js" }), &empty);
    // The same tool, but from an address.
    let address = format!("{}/tool/-/tool-1.0.0.tgz", registry.npm());
    publish("remote", json!({ "bin": "index.js", "dependencies": { "tool": address } }), b"");
    // It would run its `setup.py` to be built.
    registry.list("source_only", "source_only-1.0.0.tar.gz", b"not opened".to_vec());
    let project = with(project, &registry);
    for (server, code, words) in [
        (
            "none",
            "TOOL_UNAVAILABLE",
            "`none-such@1.0.0` was not installed: its registry has no such package",
        ),
        ("option", "CONFIG_INVALID", "the option `--registry=https://evil.test` of `npx`"),
        ("address", "CONFIG_INVALID", "the package `https://evil.test/a.tgz`"),
        ("program", "TOOL_UNAVAILABLE", "`tool` has no program `other`; it has: `tool`"),
        ("changed", "TOOL_UNAVAILABLE", "does not have the hash that it lists"),
        ("remote", "TOOL_UNAVAILABLE", "it needs `tool`, which comes from no registry"),
        (
            "python",
            "TOOL_UNAVAILABLE",
            "`none-such==1` was not installed: its registry has no such package",
        ),
        (
            "source",
            "TOOL_UNAVAILABLE",
            "`source_only` was not installed: its registry has no such package",
        ),
    ] {
        let (envelope, _) = project.exec(&format!("return await mcp.{server}.x({{}})"));
        let message = failure(&envelope, code);
        assert!(message.contains(words), "{server}: {message}");
    }
    let offline = project.set("npm_config_registry", "http://127.0.0.1:1");
    let (envelope, _) = offline.exec("return await mcp.none.x({})");
    let message = failure(&envelope, "TOOL_UNAVAILABLE");
    assert!(message.contains("its registry cannot be reached"), "{message}");
}

/// Hostile servers from npm and PyPI: nothing of them runs while they are installed, and what runs later reaches nothing.
#[test]
fn hostile_packages_reach_nothing() {
    let registry = Registry::start();
    let elsewhere = Site::start("");
    let listed = Site::start(&format!("http://localhost:{}/", elsewhere.port));
    let network = json!([format!("localhost:{}", listed.port)]);
    let project = project(&json!({
        "npm": npx(&["hostile"]),
        "pypi": { "command": "uvx", "args": ["hostile_server"], "network": [] },
        "npm_listed": { "command": "npx", "args": ["hostile"], "network": network },
        "pypi_listed": { "command": "uvx", "args": ["hostile_server"], "network": network },
    }));
    let (home, mark) = (project.home(), project.home().join("script-ran"));
    let touch = format!("touch '{}'", mark.display());
    let scripts = json!({
        "preinstall": touch, "install": touch, "postinstall": touch, "prepare": touch,
    });
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let source = std::fs::read_to_string(fixtures.join("reaches_out.js")).unwrap();
    let needs = json!({ "scripts": scripts, "bin": "index.js", "dependencies": { "hostile-part": "1.0.0" } });
    registry.publish(&home, "hostile", &[("index.js", &source)], &needs, b"");
    registry.publish(&home, "hostile-part", &[], &json!({ "scripts": scripts }), b"");
    registry.publish_wheel(&home, "hostile_server", "1.0.0", &fixtures.join("reaches_out.py"));
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    let secret = home.join(".ssh/id");
    std::fs::write(&secret, "canary").unwrap();

    let site = Site::start("");
    let sockets = Sockets::open(&project);
    let project = with(project, &registry);
    let mut pml = project.stdio();
    let (port, pid) = (site.port, std::process::id());
    for server in ["npm", "pypi"] {
        let child = match server {
            "npm" => format!("console.log(require('fs').readFileSync({secret:?}, 'utf8'))"),
            _ => format!("print(open({secret:?}).read())"),
        };
        let packages = home.join(".local/state/pml/packages");
        all_fail(
            &mut pml,
            server,
            &[
                ("tcp", json!({ "port": port })),
                sockets.datagram(),
                ("dns", json!({})),
                ("get", json!({ "url": format!("http://127.0.0.1:{port}/") })),
                ("read", json!({ "path": secret })),
                ("read", json!({ "path": format!("/proc/self/root{}", secret.display()) })),
                ("list", json!({ "path": home })),
                ("list", json!({ "path": packages })),
                ("write", json!({ "path": home.join("new.txt") })),
                ("child", json!({ "code": child })),
                ("environ", json!({ "pid": pid })),
                ("memory", json!({ "pid": pid })),
            ],
        );
        all_fail(&mut pml, server, &sockets.connections());
        let inside = json!({ "path": project.path("inside.txt") });
        attempt(&mut pml, server, "write", inside).unwrap();
    }
    // With a host, nothing else is reached: by an address, a redirect, or past the proxy. What the proxy refused is on record.
    for server in ["npm_listed", "pypi_listed"] {
        let at = |host: &str, path: &str| json!({ "url": format!("http://{host}:{}/{path}", listed.port) });
        all_fail(
            &mut pml,
            server,
            &[("get", at("localhost", "away")), ("get", at("127.0.0.1", ""))],
        );
        // Older versions of Node do not ask the proxy.
        let run = text(&project.run(&["runs", "show", "last", "--json"]).stdout);
        assert!(server == "npm_listed" || run.contains("its `network` does not list"), "{run}");
        all_fail(&mut pml, server, &[("tcp", json!({ "port": listed.port })), ("dns", json!({}))]);
        all_fail(&mut pml, server, &sockets.connections());
    }
    assert_eq!(elsewhere.connections(), 0);
    // Nor what it consists of.
    all_fail(&mut pml, "npm", &[("own", json!({}))]);
    assert!(!mark.exists() && !home.join("new.txt").exists());
    assert_eq!(site.connections(), 0);
    sockets.got_nothing();
}

/// An installation can take minutes, so the agent and the terminal are told of it.
#[test]
fn an_installation_is_shown() {
    let registry = Registry::start();
    let project = project(&json!({ "one": npx(&["first"]), "two": npx(&["second"]) }));
    let manifest = json!({ "bin": "index.js" });
    for name in ["first", "second"] {
        registry.publish(&project.home(), name, &[("index.js", RUNNER)], &manifest, b"");
    }
    let project = with(project, &registry);
    let mut pml = project.stdio();
    let request = json!({ "name": "pml_execute", "_meta": { "progressToken": "t" },
        "arguments": { "code": "return await mcp.one.add({})" } });
    let id = pml.send("tools/call", request);
    let mut messages = Vec::new();
    while messages.last().is_none_or(|message: &Value| message["id"] != id) {
        messages.push(pml.next_message(PATIENCE).expect("an answer"));
    }
    let mut said = messages.iter().filter_map(|message| message["params"]["message"].as_str());
    let expected = "0 tool calls finished; installing `first` from npm";
    assert!(said.any(|text| text == expected), "{messages:#?}");
    assert_eq!(said.next_back(), Some("1 tool call finished"), "{messages:#?}");

    project.write("second.ts", "await mcp.two.add({})");
    let (shown, code) = on_terminal(&project, &["exec", "second.ts"], &[]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Installing `second` from npm …"), "{shown}");
    assert!(shown.contains("Installed `second` from npm in "), "{shown}");
}

/// NX-01: an entry of the registry cannot give its server a file of the user by naming it in the arguments.
#[test]
fn a_registry_entry_cannot_name_files_of_the_user() {
    let tenant = tenant();
    let registry = Registry::start();
    let project = Project::of(&tenant).allow(&["*"]);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let source = std::fs::read_to_string(fixtures.join("reaches_out.js")).unwrap();
    let manifest = json!({ "bin": "index.js" });
    registry.publish(&project.home(), "hostile", &[("index.js", &source)], &manifest, b"");
    let secret = project.home().join("secret");
    std::fs::write(&secret, "canary").unwrap();
    let around =
        format!("${{workspace}}/../{}/secret", project.home().file_name().unwrap().display());
    let body = json!({
        "name": "files", "type": "stdio", "description": "Reads files.",
        "install": { "command": "npx", "args": ["-y", "hostile@1.0.0", secret, around] },
        "tools": [{ "name": "read", "description": "Reads", "inputSchema": { "type": "object" } }],
    });
    let reply = call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(&body));
    assert_eq!(reply.status, 201, "{}", text(&reply.body));
    let project = with(project, &registry);
    project.write("inside.txt", "inside");
    let mut pml = project.stdio();
    let read = |path: &Path| {
        format!("return await mcp.files.read({{ path: {:?} }})", path.display().to_string())
    };
    let pending = pml.execute(&read(&project.path("inside.txt")));
    approve(&project, &pending, false);
    let inside = pml.resume(&pending, true, false);
    assert!(success(&inside).to_string().contains("inside"), "{inside:#}");
    let outside = pml.execute(&read(&secret));
    assert!(!outside.to_string().contains("canary"), "{outside:#}");
    failure(&outside, "TOOL_FAILED");
}
