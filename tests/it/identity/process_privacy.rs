//! What other processes of the same user cannot read of `pml` and `pml-server`.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, policy_for, text};
use crate::support::expect::success;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Installation;

const KEY: &str = "5vL0c8s4sT8k2m1wq0l8bDgYb1yXn3s9r7u5t3o1p0A=";

/// Returns a command that reads a file like a program that `pml` has started: without root's `CAP_SYS_PTRACE`.
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

/// NX-07: a local MCP server cannot read the key of the gateway from its parent processes or anywhere else, and
/// inherits no descriptors.
#[test]
fn local_servers_cannot_read_keys_or_inherit_descriptors() {
    let servers = json!({ "mcpServers": { "looks": { "command": "python3", "args": ["looks_around.py"] } },
        "permissions": { "allow": ["looks:*", "shell:exec"] },
        "policy": policy_for(&["cat", "readlink"]) });
    let project = Project::offline().configure(&servers).set("PML_API_KEY", "pml_canary-91");
    project.write("looks_around.py", include_str!("../../fixtures/looks_around.py"));
    project.write("inherited.txt", "x");
    // An agent could leak one of its descriptors like this.
    let file = File::open(project.path("inherited.txt")).unwrap();
    let mut command = project.command(&["stdio"]);
    let number = file.as_raw_fd();
    #[expect(unsafe_code, reason = "only a raw call between fork and exec can leak a descriptor")]
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
    // With root's `CAP_SYS_ADMIN`, `environ` and `maps` can be opened but not `mem`. The key has been erased there.
    let open = if is_root() { json!(["environ", "maps"]) } else { json!([]) };
    assert!(above.values().all(|holds| *holds == open || *holds == json!([])), "{found:#}");
    assert_eq!(found["marked"], json!([]), "{found:#}");
    let descriptors: Vec<&str> =
        found["descriptors"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(descriptors.iter().all(|name| !name.contains("inherited")), "{found:#}");
    // The same for a program of `shell:exec`.
    let code = format!(
        "const environ = await mcp.shell.exec({{ command: ['cat', '/proc/{pid}/environ'] }});
         const exe = await mcp.shell.exec({{ command: ['readlink', '/proc/{pid}/exe'] }});
         return [environ.stdout.includes('canary'), exe.exit_code]"
    );
    assert_eq!(*success(&pml.execute(&code)), json!([false, 1]));
}

/// NX-07: `pml` erases the key from its environment, so that it is only in its unreadable memory.
#[test]
fn the_api_key_is_erased_from_the_environment_of_pml() {
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
    // The entry of a server cannot request it by name either.
    let entry = json!({ "mcpServers": { "takes": { "command": "true", "env": { "KEY": "${PML_API_KEY}" } } },
        "permissions": { "allow": ["*"] } });
    let project = project.configure(&entry);
    let refused_entry = project.stdio().execute("return await mcp.takes.it({})");
    let message = refused_entry["message"].as_str().unwrap_or_default();
    assert!(message.contains("belongs to `pml`"), "{refused_entry:#}");
}

/// NX-07: the master key cannot be read from the gateway's memory or environment, and core dumps are off.
#[test]
fn the_gateways_process_does_not_expose_the_master_key() {
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
