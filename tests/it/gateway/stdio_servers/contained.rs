//! A server that attacks its machine, or fails, is contained, and others are served.

use serde_json::{Value, json};

use super::{MISBEHAVIOUR, add, call, client, fixture, install, supervisors};
use crate::cli::sealed_servers::Site;
use crate::support::expect::{failure, success};
use crate::support::http::HttpMcp;
use crate::support::processes::Pid;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, guard, poll};

/// Makes an attempt; returns what it got, or why it failed.
#[track_caller]
fn attempt(client: &HttpMcp, kind: &str, arguments: &Value) -> Result<String, String> {
    let envelope = client.execute(&format!(
        "try {{ return [true, await mcp.reach.{kind}({arguments})] }} catch (error) {{ return [false, String(error)] }}"
    ));
    let result = success(&envelope);
    let text = result[1].as_str().map_or_else(|| result[1].to_string(), str::to_owned);
    if result[0] == true { Ok(text) } else { Err(text) }
}

/// Returns the process of the only server that runs.
#[track_caller]
fn program(gateway: &Server) -> Pid {
    let running = supervisors(gateway);
    assert_eq!(running.len(), 1);
    running[0].tree().pop().unwrap()
}

/// P3, P6: a hostile server reaches no network, no file of the gateway, of the machine or of another tenant, and no other
/// process. It can use its own folder.
#[test]
fn a_hostile_server_reaches_nothing() {
    let gateway = Installation::new().start();
    let installation = gateway.installation().clone();
    let kinds = [
        "abstract", "child", "dns", "environ", "get", "list", "memory", "own", "path", "read",
        "tcp", "udp", "write",
    ];
    add(&gateway, "reach", &fixture("reaches_out.js"), &kinds, &[]);
    let (one, two) = (gateway.tenant(), gateway.tenant());
    let (one, two) = (client(&one, "reach:list"), client(&two, "reach:list"));
    let site = Site::start("");
    let (port, pid) = (site.port, gateway.pid().number);
    let data = installation.data_dir();
    let outside = guard::folder("outside");
    std::fs::write(outside.join("secret"), "canary").unwrap();
    let homes = data.join("stdio/state");

    // The allowed twin: its own folder.
    let own = attempt(&one, "child", &json!({ "code": "process.stdout.write(process.env.HOME)" }));
    let own = own.unwrap();
    assert!(own.starts_with(&homes.display().to_string()), "{own}");
    let note = format!("{own}/note");
    attempt(&one, "write", &json!({ "path": note })).unwrap();
    assert_eq!(attempt(&one, "read", &json!({ "path": note })).unwrap(), "changed");

    // The other tenant's server does not run yet.
    let other = program(&gateway);
    for (kind, arguments) in [
        ("tcp", json!({ "port": port })),
        ("dns", json!({})),
        ("get", json!({ "url": format!("http://127.0.0.1:{port}/") })),
        ("abstract", json!({ "name": "pml-test" })),
        ("path", json!({ "path": installation.socket_folder() })),
        ("read", json!({ "path": outside.join("secret") })),
        ("read", json!({ "path": format!("/proc/self/root{}", outside.join("secret").display()) })),
        ("read", json!({ "path": data.join("local.key") })),
        ("read", json!({ "path": "/etc/shadow" })),
        ("read", json!({ "path": "/etc/hostname" })),
        ("read", json!({ "path": data.join("stdio/installed/reach.json") })),
        ("read", json!({ "path": format!("/proc/{pid}/cmdline") })),
        ("list", json!({ "path": "/proc" })),
        ("list", json!({ "path": data })),
        ("list", json!({ "path": homes })),
        ("list", json!({ "path": data.join("stdio/packages") })),
        ("write", json!({ "path": outside.join("new") })),
        ("write", json!({ "path": homes.join("new") })),
        ("environ", json!({ "pid": pid })),
        ("memory", json!({ "pid": pid })),
        ("environ", json!({ "pid": other.number })),
        ("memory", json!({ "pid": other.number })),
        ("own", json!({})),
        (
            "child",
            json!({ "code": format!("require('fs').readFileSync({:?})", outside.join("secret")) }),
        ),
    ] {
        // A tenant's file and process are tried by the other tenant.
        let tried = attempt(&two, kind, &arguments);
        assert!(tried.is_err(), "{kind} {arguments}: {tried:?}");
    }
    attempt(&two, "read", &json!({ "path": note })).unwrap_err();
    // It has a network of its own, in which a datagram can be sent, and arrives nowhere.
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let _ = attempt(&two, "udp", &json!({ "port": datagrams.local_addr().unwrap().port() }));
    datagrams.recv(&mut [0; 16]).unwrap_err();
    assert_eq!(site.connections(), 0);
    assert!(!outside.join("new").exists());
}

/// A server with hosts runs in a network of its own, and answers when it cannot connect.
#[test]
fn a_server_that_may_connect_runs_behind_its_proxy() {
    let gateway = Installation::new().start();
    install(gateway.installation(), &["pml.mcp.fetch"]);
    let tenant = gateway.tenant();
    let fetch = client(&tenant, "fetch:fetch");
    let site = Site::start("");
    // Public by its form, so that the server itself tries; the name has no address (RFC 6761).
    for url in [format!("http://127.0.0.1:{}/", site.port), "http://none.invalid/".to_owned()] {
        let envelope = fetch.execute(&format!("return await mcp.fetch.fetch({{ url: '{url}' }})"));
        let message = failure(&envelope, "TOOL_FAILED");
        assert!(message.contains("fetch"), "{message}");
    }
    assert_eq!(site.connections(), 0);
    // In the network of the gateway, it could reach the site.
    let here = program(&gateway);
    let network = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_ne!(network(here.number), network(gateway.pid().number));
}

/// Whatever a server does, the caller gets a typed error, the next call works, and other servers are not affected.
#[test]
fn a_server_that_fails_is_contained() {
    let gateway = Installation::new().start_with(&[("PML_STDIO_MEMORY_MB", "256")]);
    let script = fixture("misbehaves.js");
    add(&gateway, "bad", &script, MISBEHAVIOUR, &[]);
    add(&gateway, "good", &script, MISBEHAVIOUR, &[]);
    let tenant = gateway.tenant();
    drop(client(&tenant, "good:pid"));
    let bad = client(&tenant, "bad:pid");
    let good = call(&bad, "good:pid", &json!({}));
    let failed = |tool: &str| {
        let code = format!(
            "try {{ return await mcp.bad.{tool}({{}}) }} catch (error) {{ return [error.code, error.message] }}"
        );
        let result = success(&bad.execute(&code)).clone();
        let field = |index: usize| result[index].as_str().unwrap_or_default().to_owned();
        // The delay before the next start is that of a few failures.
        poll("the server to run again", PATIENCE, || {
            (bad.execute("return await mcp.bad.pid({})")["status"] == "success").then_some(())
        });
        (field(0), field(1))
    };
    for (tool, code, words) in [
        ("crash", "TOOL_UNAVAILABLE", "ended during the call"),
        ("lie", "TOOL_FAILED", "not a tool result"),
        ("huge", "TOOL_RESULT_TOO_LARGE", "too large"),
        ("refuse", "TOOL_FAILED", "not with undefined"),
        ("flood", "TOOL_UNAVAILABLE", "ended during the call"),
        ("exhaust", "TOOL_UNAVAILABLE", "ended during the call"),
    ] {
        let (got, message) = failed(tool);
        assert!(got == code && message.contains(words), "{tool}: {got} {message}");
    }
    // A daemon ends with its server.
    let daemon: u32 = call(&bad, "bad:daemon", &json!({})).as_str().unwrap().parse().unwrap();
    let daemon = Pid::of(daemon);
    assert!(daemon.is_alive());
    failed("crash");
    assert!(!daemon.is_alive());
    assert_eq!(call(&bad, "good:pid", &json!({})), good);
}

/// A server that does not answer is stopped after the call was given up, and one with too many processes at once.
#[test]
fn a_server_that_hangs_or_multiplies_is_stopped() {
    let gateway = Installation::new().start();
    add(&gateway, "bad", &fixture("misbehaves.js"), MISBEHAVIOUR, &[]);
    let tenant = gateway.tenant();
    let bad = client(&tenant, "bad:pid");
    let envelope = bad.execute("return await mcp.bad.fork({})");
    let message = failure(&envelope, "TOOL_UNAVAILABLE").to_owned();
    assert!(message.contains("ended during the call"), "{envelope:#}");
    poll("all its processes to end", PATIENCE, || {
        gateway.pid().tree().iter().all(|pid| !pid.command_line().contains("sleep")).then_some(())
    });
    call(&bad, "bad:pid", &json!({}));
    let hung = json!({ "code": "return await mcp.bad.hang({})", "options": { "timeout_ms": 500 } });
    failure(&bad.execute_request(hung), "TIME_LIMIT");
    call(&bad, "bad:pid", &json!({}));
}

/// What the processes of a server hold together is bounded: their memory, and what they store, also if its files are
/// deleted. A full folder is not filled further, and other projects are not affected.
#[test]
fn a_server_that_takes_too_much_altogether_is_stopped() {
    let limits = [("PML_STDIO_MEMORY_MB", "256"), ("PML_STDIO_FOLDER_MB", "32")];
    let gateway = Installation::new().start_with(&limits);
    add(&gateway, "bad", &fixture("misbehaves.js"), MISBEHAVIOUR, &[]);
    let (one, two) = (gateway.tenant(), gateway.tenant());
    let (bad, other) = (client(&one, "bad:pid"), client(&two, "bad:pid"));
    let served = call(&other, "bad:pid", &json!({}));
    let ended = |tool: &str, words: &str| {
        let envelope = bad.execute(&format!("return await mcp.bad.{tool}"));
        let message = failure(&envelope, "TOOL_UNAVAILABLE");
        assert!(message.contains(words), "{tool}: {message}");
    };
    // Each of five processes has less than it may.
    ended("share({})", "had too much memory");
    call(&bad, "bad:pid", &json!({}));
    // Deleted files are gone with their process.
    ended("fill({ hidden: true })", "had stored too much");
    call(&bad, "bad:pid", &json!({}));
    ended("fill({})", "had stored too much");
    poll("the refusal, after the pause that failures cause", PATIENCE, || {
        let envelope = bad.execute("return await mcp.bad.pid({})");
        let message = failure(&envelope, "TOOL_UNAVAILABLE");
        message.contains("exceeds the limit of 32 MiB").then_some(())
    });
    assert_eq!(call(&other, "bad:pid", &json!({})), served);
}
