//! `pml login`: a key that was tried is kept for its gateway, and nothing shows it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::server::Server;

const PROGRAM: &str = "return await mcp.json.parse({ data: '7' })";

#[test]
fn a_key_is_tried_and_kept() {
    let tenant = Server::shared().tenant();
    let project = Project::at(&tenant.url);
    let (envelope, _) = project.exec(PROGRAM);
    assert_eq!(envelope["error_code"], "UNAUTHORIZED", "{envelope}");
    let wrong = format!("{}x", &tenant.key[..tenant.key.len() - 1]);
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
    assert!(!credentials.exists(), "what was refused is not kept");

    let output = project.run_with(&["login"], format!("{}\n", tenant.key).as_bytes());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(printed.contains("execute, read") && printed.contains(&tenant.url), "{printed}");
    assert!(!printed.contains(&tenant.key[8..]) && output.stderr.is_empty(), "{printed}");
    let mode = std::fs::metadata(&credentials).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    // A later key that does not count leaves it where it is.
    assert_eq!(project.run_with(&["login"], wrong.as_bytes()).status.code(), Some(3));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);

    let gone = project.run(&["logout"]);
    assert!(gone.status.success() && text(&gone.stdout).contains("until it is revoked"));
    assert!(text(&project.run(&["logout"]).stdout).starts_with("No API key was stored"));
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
}

/// The gateway of the last login is that of commands that name none; `PML_API_KEY` alone names none.
#[test]
fn login_remembers_its_gateway() {
    let tenant = Server::shared().tenant();
    let project = Project::at("").set("PML_API_KEY", "");
    let output = project.run_with(&["login"], tenant.key.as_bytes());
    assert_eq!(output.status.code(), Some(2), "no gateway is named");
    assert!(text(&output.stderr).contains("pml login --url"), "{}", text(&output.stderr));
    let output = project.run_with(&["login", "--url", &tenant.url], tenant.key.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    // A gateway that is named goes before it.
    let named = project.run_with(&["exec", "-", "--url", "http://127.0.0.1:1"], PROGRAM.as_bytes());
    assert!(text(&named.stderr).contains("http://127.0.0.1:1 cannot be reached"));
    assert!(project.run(&["logout"]).status.success());
    let gateway = project.home().join(".config/pml/gateway");
    assert!(!gateway.exists(), "it is forgotten with its key");
}

/// A gateway that is not there cannot say that a key is good.
#[test]
fn without_the_gateway_nothing_is_kept() {
    let project = Project::offline();
    let output = project.run_with(&["login"], b"pml_key_x");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(!project.home().join(".config/pml/credentials").exists());
    // Nor one that has no time, or is none of ours.
    for (status, body, said) in [
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
        assert!(stderr.contains(said), "{stderr}");
        assert!(!project.home().join(".config/pml/credentials").exists());
    }
}

/// A person types the key on a terminal: it is not shown, and the terminal is as it was afterwards.
#[test]
fn a_typed_key_is_not_shown() {
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
