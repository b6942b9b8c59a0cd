//! `pml login`: verifies an API key, stores it for its gateway, and never prints it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::server::Server;

const PROGRAM: &str = "return await mcp.json.parse({ data: '7' })";

#[test]
fn login_stores_only_a_key_that_the_gateway_accepts() {
    let tenant = Server::shared().tenant();
    let project = Project::at(&tenant.url);
    let (envelope, _) = project.exec(PROGRAM);
    assert_eq!(envelope["error_code"], "UNAUTHORIZED", "{envelope}");
    // Another last character than that of the key, whichever it is.
    let last = if tenant.key.ends_with('x') { 'y' } else { 'x' };
    let wrong = format!("{}{last}", &tenant.key[..tenant.key.len() - 1]);
    for refused in [wrong.as_str(), "nonsense"] {
        let output = project.run_with(&["login"], refused.as_bytes());
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    }
    for no_key in ["", "\n", "a b"] {
        assert_eq!(
            project.run_with(&["login"], no_key.as_bytes()).status.code(),
            Some(2),
            "{no_key:?}"
        );
    }
    let credentials = project.home().join(".config/pml/credentials");
    assert!(!credentials.exists(), "a refused key was stored");

    let output = project.run_with(&["login"], format!("{}\n", tenant.key).as_bytes());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(printed.contains("execute, read") && printed.contains(&tenant.url), "{printed}");
    assert!(!printed.contains(&tenant.key[8..]) && output.stderr.is_empty(), "{printed}");
    let mode = std::fs::metadata(&credentials).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    // A later login with an invalid key keeps the stored one.
    assert_eq!(project.run_with(&["login"], wrong.as_bytes()).status.code(), Some(3));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);

    let logged_out = project.run(&["logout"]);
    assert!(
        logged_out.status.success() && text(&logged_out.stdout).contains("until it is revoked")
    );
    assert!(text(&project.run(&["logout"]).stdout).starts_with("No API key was stored"));
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
}

/// Commands without a URL use the gateway of the last login. `PML_API_KEY` alone does not select a gateway.
#[test]
fn later_commands_use_the_gateway_of_the_last_login() {
    let tenant = Server::shared().tenant();
    let project = Project::at("").set("PML_API_KEY", "");
    let output = project.run_with(&["login"], tenant.key.as_bytes());
    assert_eq!(output.status.code(), Some(2), "no gateway was given");
    assert!(text(&output.stderr).contains("pml login --url"), "{}", text(&output.stderr));
    let output = project.run_with(&["login", "--url", &tenant.url], tenant.key.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    // An explicit URL takes precedence.
    let named = project.run_with(&["exec", "-", "--url", "http://127.0.0.1:1"], PROGRAM.as_bytes());
    assert!(text(&named.stderr).contains("http://127.0.0.1:1 cannot be reached"));
    assert!(project.run(&["logout"]).status.success());
    let gateway = project.home().join(".config/pml/gateway");
    assert!(!gateway.exists(), "`logout` kept the gateway");
}

/// Without a usable answer from the gateway, the key is not stored.
#[test]
fn login_stores_nothing_if_the_key_cannot_be_verified() {
    let project = Project::offline();
    let output = project.run_with(&["login"], b"pml_key_x");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(!project.home().join(".config/pml/credentials").exists());
    // The same if the gateway is rate limited, or is not a PML gateway.
    for (status, body, reason) in [
        (429, r#"{"code":"RATE_LIMITED","detail":"later"}"#, "later"),
        (404, "<html>", "HTTP status 404"),
        (200, "{}", "scope"),
    ] {
        let stub =
            GatewayStub::start(move |_| Answer::Raw(status, "application/json", body.into()));
        let project = Project::at(&stub.url);
        let output = project.run_with(&["login"], b"pml_key_x");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        assert!(!project.home().join(".config/pml/credentials").exists());
    }
}

/// A key that is typed on a terminal is not echoed, and echo is restored afterwards.
#[test]
fn a_key_typed_on_a_terminal_is_not_echoed() {
    const TERMINAL: &str = r#"
import os, pty, sys, termios
program, key = sys.argv[1], os.environ["TYPED"]
child, terminal = pty.fork()
if child == 0:
    os.execv(program, [program, "login"])
seen = b""
while b"not shown" not in seen:
    seen += os.read(terminal, 1024)
while termios.tcgetattr(terminal)[3] & termios.ECHO:
    pass
os.write(terminal, key.encode() + b"\n")
while b"stored in" not in seen:
    seen += os.read(terminal, 1024)
assert key.encode() not in seen, seen
assert termios.tcgetattr(terminal)[3] & termios.ECHO, "the echo is back"
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;
    let tenant = Server::shared().tenant();
    let project = Project::at(&tenant.url).set("TYPED", &tenant.key);
    let program = project.command(&[]).get_program().to_owned();
    let mut python = project.wrap(Command::new("python3"), &["-c", TERMINAL]);
    let output = python.arg(program).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
}
