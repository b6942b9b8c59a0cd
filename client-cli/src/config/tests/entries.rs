//! The entries of servers.

use serde_json::{Value, json};

use crate::config::file::{ConfigFile, parse};
use crate::local_mcp::ServerSpec;

fn file(private_mcps: &Value) -> Result<ConfigFile, String> {
    let content = json!({ "private_mcps": private_mcps }).to_string();
    parse(content.as_bytes()).map_err(|error| error.to_string())
}

/// Returns the namespace of the only server, and how it is started.
fn server(name: &str, entry: &Value) -> (String, ServerSpec) {
    let file = file(&json!({ name: entry })).unwrap();
    let (namespace, server) = file.servers.private_mcps.iter().next().unwrap();
    (namespace.clone(), server.spec("/home".into(), "/packages".into()))
}

/// An entry in the registry's form starts the same server as one with `command`, with the same seal.
#[test]
fn both_forms_start_the_same_server() {
    for (fields, moved) in [
        (json!({}), json!({})),
        (json!({ "type": "stdio" }), json!({})),
        (json!({ "cwd": "sub", "override": true }), json!({ "env": { "A": "${B}" } })),
        (json!({}), json!({ "network": ["api.github.com"] })),
        (json!({}), json!({ "network": [] })),
        (json!({}), json!({ "network": "all" })),
        (json!({ "sealed": false }), json!({})),
        (json!({ "tools": ["own:query"] }), json!({})),
    ] {
        let program = json!({ "command": "npx", "args": ["-y", "own@1.0.0"] });
        let with = |object: &Value, more: &Value| {
            let mut object = object.clone();
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object
        };
        let flat = with(&with(&program, &fields), &moved);
        let nested = with(&json!({ "install": with(&program, &moved) }), &fields);
        assert_eq!(server("own", &flat), server("own", &nested), "{nested}");
    }
    let install = json!({ "command": "own", "env_required": ["TOKEN"] });
    let (_, spec) = server("own", &json!({ "install": install }));
    assert_eq!(spec.env_required, ["TOKEN"]);
    assert!(spec.seal.is_some() && !spec.of_registry);
}

/// `${WORKSPACE}` is `${workspace}`, in both forms of an entry and in every field that is expanded.
#[test]
fn the_workspace_has_two_spellings() {
    let program = |name: &str| {
        json!({ "command": format!("{name}/run"), "args": [format!("--root={name}"), "${WORKSPACES}"],
            "env": { "ROOT": format!("{name}:{name}"), "OTHER": "${Workspace}" } })
    };
    let (upper, lower) = (program("${WORKSPACE}"), program("${workspace}"));
    let (_, spec) = server("own", &lower);
    assert_eq!(spec.args, ["--root=${workspace}", "${WORKSPACES}"]);
    assert_eq!(spec.env["OTHER"], "${Workspace}");
    assert_eq!(server("own", &upper).1, spec);
    assert_eq!(server("own", &json!({ "install": upper })).1, spec);
    let (_, spec) = server("own", &json!({ "command": "x", "cwd": "${WORKSPACE}/sub" }));
    assert_eq!(spec.cwd.as_deref(), Some("${workspace}/sub"));
}

/// `tools` decide about the namespace, which an identifier of a program cannot spell as the entry's name does.
#[test]
fn listed_tools_name_the_namespace() {
    for (name, tools, namespace, listed) in [
        ("own", json!(null), "own", None),
        ("own-db", json!(null), "own-db", None),
        (
            "own-db",
            json!(["own_db:query", "own_db:migrate"]),
            "own_db",
            Some(&["migrate", "query"][..]),
        ),
        ("own-db", json!(["own-db:query"]), "own-db", Some(&["query"])),
        ("own_db", json!(["own-db:query"]), "own-db", Some(&["query"])),
        ("own", json!(["own:run-it", "own:run-it"]), "own", Some(&["run-it"])),
    ] {
        let (found, spec) = server(name, &json!({ "command": "x", "tools": tools }));
        assert_eq!(found, namespace, "{name} {tools}");
        let found: Option<Vec<String>> = spec.tools.map(|tools| tools.into_iter().collect());
        assert_eq!(
            found.as_deref().map(|tools| tools.iter().map(String::as_str).collect()),
            listed.map(<[&str]>::to_vec)
        );
    }
    let remote = json!({ "url": "https://docs.example/mcp", "tools": ["own:query"] });
    assert!(server("own", &remote).1.tools.is_some());
}

/// What is refused says what to write instead.
#[test]
fn a_refused_entry_says_what_to_write() {
    for (entry, words) in [
        (json!({ "command": "x", "tools": [] }), "remove `tools`"),
        (json!({ "command": "x", "tools": ["query"] }), "write `own-db:query`"),
        (json!({ "command": "x", "tools": ["own_db:query@1.0.0"] }), "write `own_db:query`"),
        (json!({ "command": "x", "tools": ["own_db:query@latest"] }), "write `own_db:query`"),
        (json!({ "command": "x", "tools": ["a.b.own_db:query"] }), "write `own_db:query`"),
        (json!({ "command": "x", "tools": ["own_db:*"] }), "remove `tools`: then all"),
        (
            json!({ "command": "x", "tools": ["other:query"] }),
            "write `own-db:query`, or name the entry `other`",
        ),
        (
            json!({ "command": "x", "tools": ["own_db:a", "other:b"] }),
            "write `own_db:b`, or name the entry `other`",
        ),
        (json!({ "command": "x", "tools": ["own_db:a", "own-db:b"] }), "write `own_db:b`"),
        (json!({ "install": { "command": "x" }, "command": "y" }), "both `install` and `command`"),
        (json!({ "install": { "command": "x" }, "args": ["y"] }), "write `args` in `install`"),
        (json!({ "install": { "command": "x" }, "env": { "A": "1" } }), "write `env` in `install`"),
        (json!({ "install": { "command": "x" }, "network": [] }), "write `network` in `install`"),
        (json!({ "install": { "command": "x" }, "url": "https://a.test" }), "write one of the two"),
        (json!({ "install": { "command": "x" }, "headers": {} }), "write one of the two"),
        (json!({ "install": { "command": "x" }, "type": "http" }), "has no `url`"),
        (json!({ "install": { "command": "" } }), "has no `command`"),
        (json!({ "install": {} }), "missing field `command`"),
        (json!({ "install": ["x"] }), "expected an object"),
        (json!({ "install": "npx own" }), "expected an object"),
        (json!({ "install": { "command": "x", "cwd": "." } }), "unknown field `cwd`"),
        (
            json!({ "install": { "command": "x", "network": ["https://a.test"] } }),
            "in the `network` of `own-db`",
        ),
        (
            json!({ "install": { "command": "x", "network": [] }, "sealed": false }),
            "it can connect to everything",
        ),
        (
            json!({ "proxy_to": "https://a.test/mcp" }),
            "write `\"type\": \"http\"`, and the address as `url`",
        ),
        (
            json!({ "fqdn": "own" }),
            "line 1 column 33: `fqdn` is for entries of the registry: remove it",
        ),
        (json!({ "env_required": ["A"] }), "write it in `install`"),
        (json!({ "routing": "client" }), "always made from this machine"),
        (
            json!({ "install": { "command": "x", "routing": "client" } }),
            "unknown field `routing`, expected",
        ),
        (json!({ "colour": "red" }), "unknown field `colour`, expected"),
        (json!({ "type": "cloud", "url": "https://a.test" }), "write `\"type\": \"http\"`"),
        (json!({ "type": "deno", "command": "x" }), "write `stdio` or `http`"),
    ] {
        let error = file(&json!({ "own-db": entry })).expect_err(&entry.to_string());
        assert!(error.contains(words) && error.contains(".pml.json"), "{entry}: {error}");
    }
}

/// A name that leads to a server has one meaning, whichever list its entry is in.
#[test]
fn names_and_namespaces_are_unique() {
    let aliased = json!({ "command": "x", "tools": ["own_db:query"] });
    let plain = json!({ "command": "x" });
    for (mcp_servers, private_mcps) in [
        (json!({ "own_db": plain }), json!({ "own-db": aliased })),
        (
            json!({ "own-db": plain }),
            json!({ "own_db": { "command": "x", "tools": ["own-db:a"] } }),
        ),
        (json!({ "own-db": aliased }), json!({ "own-db": plain })),
        (json!({}), json!({ "own_db": plain, "own-db": aliased })),
    ] {
        let content = json!({ "mcpServers": mcp_servers, "private_mcps": private_mcps });
        let error = parse(content.to_string().as_bytes()).expect_err(&content.to_string());
        assert!(error.to_string().contains("own"), "{error}");
    }
    let alike = file(&json!({ "own_db": plain, "own-db": plain })).unwrap_err();
    assert!(alike.contains("`own_db` looks like `own-db`"), "{alike}");
    let reserved = json!({ "command": "x", "tools": ["web:get"] });
    assert!(file(&json!({ "web": reserved })).unwrap_err().contains("is built into `pml`"));
}
