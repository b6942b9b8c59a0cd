//! `pml keys`: the user's own keys, in the workspace or on the gateway.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::server::Server;

/// `pml keys`: values come from stdin, go to `.env` or to the gateway, and are never shown.
#[test]
fn keys_are_set_from_the_command_line() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    project.write(".env", "# mine\nOTHER=1\n");
    let run = |arguments: &[&str], input: &str| {
        let output = project.run_with(arguments, input.as_bytes());
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains("canary"), "{all}");
        (output.status.code(), all)
    };
    let (code, told) = run(&["keys", "set", "ECHO_API_KEY"], "canary-9f 1\n");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("do not commit"), "{told}");
    assert_eq!(project.read(".env"), "# mine\nOTHER=1\nECHO_API_KEY='canary-9f 1'\n");
    let mode = std::fs::metadata(project.path(".env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_, listed) = run(&["keys", "list", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed, json!([{ "name": "ECHO_API_KEY" }, { "name": "OTHER" }]));
    assert_eq!(run(&["keys", "unset", "ECHO_API_KEY"], "").0, Some(0));
    assert_eq!(project.read(".env"), "# mine\nOTHER=1\n");
    assert_eq!(run(&["keys", "unset", "ECHO_API_KEY"], "").0, Some(2));

    let (code, told) = run(&["keys", "set", "ECHO_API_KEY", "--cloud"], "canary-9f 1");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("the hosts of catalog entries"), "{told}");
    let host = ["keys", "set", "TRACKER_KEY", "--cloud", "--host", "API.Tracker.example:443"];
    let (code, told) = run(&host, "canary-9f 2");
    assert!(code == Some(0) && told.contains("sent to api.tracker.example only"), "{told}");
    let (_, listed) = run(&["keys", "list", "--cloud", "--json"], "");
    let two: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(two[1]["hosts"], json!(["api.tracker.example"]), "{listed}");
    assert_eq!(run(&["keys", "unset", "TRACKER_KEY", "--cloud"], "").0, Some(0));
    let (code, told) = run(&["keys", "set", "A", "--cloud", "--host", "*.example"], "canary");
    assert!(code != Some(0) && told.contains("no wildcard"), "{told}");
    let (_, listed) = run(&["keys", "list", "--cloud", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["for"]), (&json!("ECHO_API_KEY"), &json!("me")));
    let (code, told) = run(&["keys", "set", "ECHO_API_KEY", "--cloud", "--project"], "x");
    assert!(code != Some(0) && told.contains("admin"), "{told}");
    assert_eq!(run(&["keys", "unset", "ECHO_API_KEY", "--cloud"], "").0, Some(0));
    let (code, told) = run(&["keys", "unset", "ECHO_API_KEY", "--cloud"], "");
    assert!(code != Some(0) && told.contains("there is no secret"), "{told}");
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
