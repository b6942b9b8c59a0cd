//! `pml keys`: the user's secrets for tools, in the workspace's `.env` or on the gateway.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::server::Server;

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
    let (code, printed) = run(&["keys", "set", "ECHO_API_KEY"], "canary-9f 1\n");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("do not commit"), "{printed}");
    assert_eq!(project.read(".env"), "# mine\nOTHER=1\nECHO_API_KEY='canary-9f 1'\n");
    let mode = std::fs::metadata(project.path(".env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_, listed) = run(&["keys", "list", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed, json!([{ "name": "ECHO_API_KEY" }, { "name": "OTHER" }]));
    assert_eq!(run(&["keys", "unset", "ECHO_API_KEY"], "").0, Some(0));
    assert_eq!(project.read(".env"), "# mine\nOTHER=1\n");
    assert_eq!(run(&["keys", "unset", "ECHO_API_KEY"], "").0, Some(2));

    let (code, printed) = run(&["keys", "set", "ECHO_API_KEY", "--cloud"], "canary-9f 1");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("the hosts of catalog entries"), "{printed}");
    let host = ["keys", "set", "TRACKER_KEY", "--cloud", "--host", "API.Tracker.example:443"];
    let (code, printed) = run(&host, "canary-9f 2");
    assert!(code == Some(0) && printed.contains("sent to api.tracker.example only"), "{printed}");
    let (_, listed) = run(&["keys", "list", "--cloud", "--json"], "");
    let parsed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(parsed[1]["hosts"], json!(["api.tracker.example"]), "{listed}");
    assert_eq!(run(&["keys", "unset", "TRACKER_KEY", "--cloud"], "").0, Some(0));
    let (code, printed) = run(&["keys", "set", "A", "--cloud", "--host", "*.example"], "canary");
    assert!(code != Some(0) && printed.contains("no wildcard"), "{printed}");
    let (_, listed) = run(&["keys", "list", "--cloud", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["for"]), (&json!("ECHO_API_KEY"), &json!("me")));
    let (code, printed) = run(&["keys", "set", "ECHO_API_KEY", "--cloud", "--project"], "x");
    assert!(code != Some(0) && printed.contains("admin"), "{printed}");
    assert_eq!(run(&["keys", "unset", "ECHO_API_KEY", "--cloud"], "").0, Some(0));
    let (code, printed) = run(&["keys", "unset", "ECHO_API_KEY", "--cloud"], "");
    assert!(code != Some(0) && printed.contains("there is no secret"), "{printed}");
    for (arguments, input) in [
        (&["keys", "set", "ECHO_API_KEY"][..], ""),
        (&["keys", "set", "ECHO_API_KEY"], "canary-9f\0second"),
        (&["keys", "set", "echo"], "x"),
        (&["keys", "set", "A", "--project"], "x"),
        (&["keys", "set", "A", "--host", "a.example"], "x"),
        (&["keys", "set", "A", "canary"], ""),
    ] {
        assert_eq!(run(arguments, input).0, Some(2), "{arguments:?}");
    }
}
