//! many programs at once that take all the memory, time, stack or output they can get.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Tenant};
use crate::support::{PATIENCE, poll, scaled};

/// Programs that end at a limit, with the codes that they may end with: on a busy machine, the time may end first.
const BOMBS: &[(&str, &[&str])] = &[
    (
        "const all = []; for (;;) all.push(new ArrayBuffer(1e6))",
        &["OUT_OF_MEMORY", "TIME_LIMIT", "CPU_LIMIT"],
    ),
    (
        "let s = 'x'; for (;;) s += s",
        &["OUT_OF_MEMORY", "TIME_LIMIT", "CPU_LIMIT", "PROGRAM_FAILED"],
    ),
    ("for (;;) {}", &["TIME_LIMIT", "CPU_LIMIT"]),
    ("const f = () => f() + 1; return f()", &["STACK_OVERFLOW", "TIME_LIMIT", "CPU_LIMIT"]),
    ("for (;;) console.log('x'.repeat(1e5))", &["TIME_LIMIT", "CPU_LIMIT", "OUT_OF_MEMORY"]),
    (
        "return await Promise.all([...Array(1e6)].map(() => mcp.math.eval({ expression: '1' })))",
        &["TOO_MANY_CALLS", "TIME_LIMIT", "CPU_LIMIT", "OUT_OF_MEMORY"],
    ),
];

/// The programs of one tenant explode, each with a typed error; those of another all succeed; the gateway itself keeps
/// its memory, and the kernel would kill any child before it.
#[test]
fn a_storm_of_bombs_ends_typed_and_harms_nobody_else() {
    let server = Installation::new().start();
    let tenants: [Tenant; 2] =
        [server.tenant_of_own_org("execute"), server.tenant_of_own_org("execute")];
    let quiet = HttpMcp::new(&tenants[1], Era::Stateless);
    success(&quiet.execute("return 1"));
    let pid = server.pid();
    let before = pid.memory();
    let (served, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let limit = |code: &str| json!({ "code": code, "options": { "timeout_ms": 400 } });
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(
                    success(&quiet.execute("return await mcp.math.eval({ expression: '6 * 7' })")),
                    42
                );
                served.fetch_add(1, Ordering::Relaxed);
                // The children are those that the kernel kills first if there is no memory.
                for child in pid.tree().into_iter().skip(1) {
                    // The processes of the database are not sandboxes.
                    if !child.command_line().starts_with("pml-sandbox") {
                        continue;
                    }
                    let score = format!("/proc/{}/oom_score_adj", child.number);
                    poll("a child to be the first to be killed", PATIENCE, || {
                        let is_first =
                            fs::read_to_string(&score).is_ok_and(|it| it.trim() == "1000");
                        (is_first || !child.is_alive()).then_some(())
                    });
                }
            }
        });
        let bombers: Vec<_> = (0..50)
            .map(|number| {
                let (tenant, limit) = (&tenants[0], &limit);
                scope.spawn(move || {
                    let client = HttpMcp::new(tenant, Era::Stateless);
                    for round in 0..scaled(20) {
                        let (code, expected) = BOMBS[(number + round) % BOMBS.len()];
                        let envelope = client.execute_request(limit(code));
                        let told = envelope["error_code"].as_str().unwrap_or_default();
                        assert!(expected.contains(&told), "{code}: {envelope:.600}");
                    }
                })
            })
            .collect();
        // All are joined first, so that the other tenant ends in any case.
        let ended: Vec<_> = bombers.into_iter().map(|bomber| bomber.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|end| end.unwrap());
    });
    assert!(pid.is_alive());
    assert!(served.load(Ordering::Relaxed) > 0, "nobody else was served during the storm");
    let after = pid.memory();
    assert!(after < before + (128 << 20), "from {before} to {after} bytes");
    success(&quiet.execute("return 1"));
}
