//! How long a server runs.

use serde_json::json;

use super::{MISBEHAVIOUR, add, call, client, fixture, supervisors};
use crate::support::processes::Pid;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll};

/// Returns everything that runs beneath the supervisors of servers.
fn processes(gateway: &Server) -> Vec<Pid> {
    supervisors(gateway).into_iter().flat_map(Pid::tree).collect()
}

/// P7: when the gateway is killed or stops, no process of a server is left, not even one that became a daemon.
#[test]
fn nothing_outlives_the_gateway() {
    let installation = Installation::new();
    let mut daemons = Vec::new();
    for is_killed in [true, false] {
        let gateway = installation.start();
        if is_killed {
            add(&gateway, "left", &fixture("misbehaves.js"), MISBEHAVIOUR, &[]);
        }
        let tenant = gateway.tenant();
        let left = client(&tenant, "left:pid");
        let daemon = call(&left, "left:daemon", &json!({}));
        daemons.push(Pid::of(daemon.as_str().unwrap().parse().unwrap()));
        let all = processes(&gateway);
        assert!(
            all.len() >= 3 && all.iter().any(|pid| pid.number == daemons.last().unwrap().number)
        );
        match is_killed {
            true => gateway.kill(),
            false => assert_eq!(gateway.stop(), Some(0)),
        }
        poll("all processes of servers to end", PATIENCE, || {
            all.iter().chain(&daemons).all(|pid| !pid.is_alive()).then_some(())
        });
    }
    // What the killed one left is removed by the next one.
    let gateway = installation.start();
    let left = std::fs::read_dir(installation.data_dir().join("stdio/run")).unwrap().count();
    assert_eq!(left, 0);
    drop(gateway);
}

/// A server without calls is stopped, and started again by the next call.
#[test]
fn an_idle_server_is_stopped() {
    let gateway = Installation::new().start_with(&[("PML_STDIO_IDLE_SECONDS", "1")]);
    add(&gateway, "idle", &fixture("misbehaves.js"), MISBEHAVIOUR, &[]);
    let tenant = gateway.tenant();
    let idle = client(&tenant, "idle:pid");
    let first = call(&idle, "idle:pid", &json!({}));
    poll("the idle server to end", PATIENCE, || supervisors(&gateway).is_empty().then_some(()));
    assert_ne!(call(&idle, "idle:pid", &json!({})), first);
}

/// With all places taken, the server that was idle longest makes way: within a project first, else for another one.
#[test]
fn the_server_that_was_idle_longest_makes_way() {
    let gateway = Installation::new()
        .start_with(&[("PML_STDIO_PROCESSES", "3"), ("PML_STDIO_TENANT_PROCESSES", "2")]);
    let script = fixture("misbehaves.js");
    for name in ["lru-a", "lru-b", "lru-c"] {
        add(&gateway, name, &script, MISBEHAVIOUR, &[]);
    }
    let (one, two) = (gateway.tenant(), gateway.tenant());
    let (one, two) = (client(&one, "json:query"), client(&two, "json:query"));
    let pid = |client: &crate::support::http::HttpMcp, name: &str| {
        poll("the server", PATIENCE, || {
            let envelope = client.execute(&format!("return await mcp['{name}'].pid({{}})"));
            (envelope["status"] == "success").then(|| envelope["result"].clone())
        })
    };
    let (a, b) = (pid(&one, "lru-a"), pid(&one, "lru-b"));
    assert_eq!(pid(&one, "lru-a"), a);
    // The third server of the project: `b` was idle longest.
    pid(&one, "lru-c");
    assert_eq!(pid(&one, "lru-a"), a);
    assert_ne!(pid(&one, "lru-b"), b);
    // Another project has a place of its own, and takes further ones from whoever is idle.
    let of_two = pid(&two, "lru-a");
    pid(&two, "lru-b");
    assert_eq!(pid(&two, "lru-a"), of_two);
    assert!(supervisors(&gateway).len() <= 3);
}
