//! What others of the same user cannot read of `pml` and `pml-server`.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Installation;

const KEY: &str = "5vL0c8s4sT8k2m1wq0l8bDgYb1yXn3s9r7u5t3o1p0A=";

/// Returns a command that reads files as a program does that `pml` starts: without root's right to read any process.
fn reading(path: &str) -> Command {
    let mut command = match is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "cat"]);
            command
        }
        false => Command::new("cat"),
    };
    command.arg(path);
    command
}

/// NX-07: a local MCP server finds the key for the gateway neither in its parents nor anywhere else, and gets no
/// descriptor that is not its own.
#[test]
fn a_local_server_reads_nothing_of_pml() {
    let servers = json!({ "mcpServers": { "looks": { "command": "python3", "args": ["looks_around.py"] } },
        "permissions": { "allow": ["looks:*", "shell:exec"] } });
    let project = Project::offline().configure(&servers).set("PML_API_KEY", "pml_canary-91");
    project.write("looks_around.py", include_str!("../../fixtures/looks_around.py"));
    project.write("inherited.txt", "x");
    // As an agent's own descriptor might be handed on.
    let file = File::open(project.path("inherited.txt")).unwrap();
    let mut command = project.command(&["stdio"]);
    let number = file.as_raw_fd();
    #[expect(unsafe_code, reason = "only a raw call between fork and exec hands a descriptor on")]
    // SAFETY: `dup` may be called between fork and exec; its result is not closed on exec.
    unsafe {
        command.pre_exec(move || match libc::dup(number) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut pml = StdioClient::start(command, Era::Handshake, &project.log());
    let pid = pml.pid().number;
    let looked = pml.execute(&format!("return await mcp.looks.around({{ until: {pid} }})"));
    let found = success(&looked);
    let above = found["above"].as_object().unwrap();
    assert!(above.len() >= 2 && above.contains_key(&pid.to_string()), "{found:#}");
    // Root's `CAP_SYS_ADMIN` opens what names the memory, and not the memory; what stood there is gone.
    let open = if is_root() { json!(["environ", "maps"]) } else { json!([]) };
    assert!(above.values().all(|holds| *holds == open || *holds == json!([])), "{found:#}");
    assert_eq!(found["marked"], json!([]), "{found:#}");
    let descriptors: Vec<&str> =
        found["descriptors"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(descriptors.iter().all(|name| !name.contains("inherited")), "{found:#}");
    // So does a program of `shell:exec`.
    let code = format!(
        "const environ = await mcp.shell.exec({{ command: ['cat', '/proc/{pid}/environ'] }});
         const exe = await mcp.shell.exec({{ command: ['readlink', '/proc/{pid}/exe'] }});
         return [environ.stdout.includes('canary'), exe.exit_code]"
    );
    assert_eq!(*success(&pml.execute(&code)), json!([false, 1]));
}

/// NX-07: the key stands no longer where it was given, whoever looks; and only in `pml` itself.
#[test]
fn a_key_does_not_stay_in_the_environment() {
    let project = Project::offline().set("PML_API_KEY", "pml_canary-92").set("OTHER", "stays");
    let mut pml = project.stdio();
    pml.call("pml_discover", json!({ "intent": "read a file" }));
    let number = pml.pid().number;
    refused(reading(&format!("/proc/{number}/mem")));
    let environ = format!("/proc/{number}/environ");
    if is_root() {
        let block = text(&std::fs::read(environ).unwrap());
        assert!(block.contains("OTHER=stays") && !block.contains("canary"), "{block}");
    } else {
        refused(reading(&environ));
    }
    // A server's entry cannot ask for it by its name either.
    let entry = json!({ "mcpServers": { "takes": { "command": "true", "env": { "KEY": "${PML_API_KEY}" } } },
        "permissions": { "allow": ["*"] } });
    let project = project.configure(&entry);
    let asked = project.stdio().execute("return await mcp.takes.it({})");
    let message = asked["message"].as_str().unwrap_or_default();
    assert!(message.contains("belongs to `pml`"), "{asked:#}");
}

/// NX-07: the gateway's process shows neither its master key nor its database's password.
#[test]
fn the_gateway_shows_no_secret() {
    let server = Installation::new().start_with(&[("PML_MASTER_KEY", KEY)]);
    let number = server.pid().number;
    refused(reading(&format!("/proc/{number}/mem")));
    let environ = format!("/proc/{number}/environ");
    if is_root() {
        let block = text(&std::fs::read(environ).unwrap());
        assert!(block.contains("PML_LISTEN=") && !block.contains(KEY), "{block}");
    } else {
        refused(reading(&environ));
    }
    let limits = std::fs::read_to_string(format!("/proc/{number}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    assert_eq!(server.stop(), Some(0));
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

#[track_caller]
fn refused(mut command: Command) {
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("denied"), "{command:?}: {stderr}");
    assert!(output.stdout.is_empty());
}
