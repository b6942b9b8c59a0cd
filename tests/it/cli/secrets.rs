//! `pml keys`: the user's secrets for tools, in the workspace's `.env` or on the gateway.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::server::Server;

/// A key that a program cannot do without is named before anything runs, and a key that it may do without when it is used.
#[test]
fn a_missing_key_is_named_before_anything_runs() {
    let entry = json!({ "command": "true", "env": { "TOKEN": "${SEARCH_KEY}" } });
    let config = json!({ "permissions": { "allow": ["*"] }, "mcpServers": { "seek": entry } });
    let project = Project::offline().configure(&config);
    let writes = "await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' });";
    let (envelope, code) = project.exec(&format!("{writes} return await mcp.seek.search({{}})"));
    let message = failure(&envelope, "API_KEY_REQUIRED");
    assert!(message.contains("store it with `pml secrets set SEARCH_KEY`"), "{message}");
    assert_ne!(code, 0);
    assert!(!project.path("a.txt").exists(), "something ran");

    let tries =
        format!("{writes} try {{ await mcp.seek.search({{}}) }} catch (e) {{ return e.code }}");
    assert_eq!(success(&project.exec(&tries).0), "API_KEY_REQUIRED");
    assert!(project.path("a.txt").exists());
    let skips = "if (args.web) await mcp.seek.search({}); return 'skipped'";
    assert_eq!(success(&project.exec(skips).0), "skipped");

    // With a key, the server is started; `true` ends at once.
    project.write(".env", "SEARCH_KEY=1\n");
    let (envelope, _) = project.exec("return await mcp.seek.search({})");
    failure(&envelope, "TOOL_UNAVAILABLE");
}

/// Values are read from stdin, stored in `.env` or on the gateway, and never printed.
#[test]
fn secrets_are_set_listed_and_unset_without_printing_them() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    project.write(".env", "# mine\nOTHER=1\n");
    let run = |arguments: &[&str], input: &str| {
        let output = project.run_with(arguments, input.as_bytes());
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains("canary"), "{all}");
        (output.status.code(), all)
    };
    let (code, printed) = run(&["secrets", "set", "ECHO_API_KEY"], "canary-9f 1\n");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("do not commit"), "{printed}");
    assert_eq!(project.read(".env"), "# mine\nOTHER=1\nECHO_API_KEY='canary-9f 1'\n");
    let mode = std::fs::metadata(project.path(".env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_, listed) = run(&["secrets", "list", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed, json!([{ "name": "ECHO_API_KEY" }, { "name": "OTHER" }]));
    assert_eq!(run(&["secrets", "unset", "ECHO_API_KEY"], "").0, Some(0));
    assert_eq!(project.read(".env"), "# mine\nOTHER=1\n");
    assert_eq!(run(&["secrets", "unset", "ECHO_API_KEY"], "").0, Some(2));

    let (code, printed) = run(&["secrets", "set", "ECHO_API_KEY", "--cloud"], "canary-9f 1");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("the hosts of catalog entries"), "{printed}");
    let host = ["secrets", "set", "TRACKER_KEY", "--cloud", "--host", "API.Tracker.example:443"];
    let (code, printed) = run(&host, "canary-9f 2");
    assert!(code == Some(0) && printed.contains("sent to api.tracker.example only"), "{printed}");
    let (_, listed) = run(&["secrets", "list", "--cloud", "--json"], "");
    let parsed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(parsed[1]["hosts"], json!(["api.tracker.example"]), "{listed}");
    assert_eq!(run(&["secrets", "unset", "TRACKER_KEY", "--cloud"], "").0, Some(0));
    let (code, printed) = run(&["secrets", "set", "A", "--cloud", "--host", "*.example"], "canary");
    assert!(code != Some(0) && printed.contains("no wildcard"), "{printed}");
    let (_, listed) = run(&["secrets", "list", "--cloud", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["for"]), (&json!("ECHO_API_KEY"), &json!("me")));
    let (code, printed) = run(&["secrets", "set", "ECHO_API_KEY", "--cloud", "--project"], "x");
    assert!(code != Some(0) && printed.contains("admin"), "{printed}");
    assert_eq!(run(&["secrets", "unset", "ECHO_API_KEY", "--cloud"], "").0, Some(0));
    let (code, printed) = run(&["secrets", "unset", "ECHO_API_KEY", "--cloud"], "");
    assert!(code != Some(0) && printed.contains("there is no secret"), "{printed}");
    for (arguments, input) in [
        (&["secrets", "set", "ECHO_API_KEY"][..], ""),
        (&["secrets", "set", "ECHO_API_KEY"], "canary-9f\0second"),
        (&["secrets", "set", "echo"], "x"),
        (&["secrets", "set", "A", "--project"], "x"),
        (&["secrets", "set", "A", "--host", "a.example"], "x"),
        (&["secrets", "set", "A", "canary"], ""),
    ] {
        assert_eq!(run(arguments, input).0, Some(2), "{arguments:?}");
    }
}

/// `pml keys` is the former name of `pml secrets`.
#[test]
fn pml_keys_is_an_alias() {
    let project = Project::of(&Server::shared().tenant());
    let run = |arguments: &[&str], input: &[u8]| project.run_with(arguments, input);
    assert!(run(&["keys", "set", "ECHO_API_KEY"], b"x\n").status.success());
    let [by_alias, by_name] =
        ["keys", "secrets"].map(|command| run(&[command, "list", "--json"], b"").stdout);
    assert_eq!(text(&by_alias), text(&by_name));
    assert!(text(&by_name).contains("ECHO_API_KEY"));
    assert!(run(&["keys", "unset", "ECHO_API_KEY"], b"").status.success());
}
