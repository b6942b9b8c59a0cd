//! AN-01: deeply nested programs that would overflow the stack of a parser or exhaust its memory.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::PATIENCE;
use crate::support::cli::Project;
use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::poll;
use crate::support::server::{Installation, Server};

const DEPTHS: [usize; 3] = [700, 5_000, 100_000];

/// Returns programs of each shape with this nesting depth.
fn bombs(depth: usize) -> Vec<(&'static str, String)> {
    let around = |open: &str, middle: &str, close: &str| {
        format!("return {}{middle}{};", open.repeat(depth), close.repeat(depth))
    };
    vec![
        ("parentheses", around("(", "1", ")")),
        ("brackets", around("[", "1", "]")),
        ("objects", around("{a:", "1", "}")),
        ("template literals", around("`${", "1", "}`")),
        ("arrow functions", around("a=>", "1", "")),
        ("type assertions", around("<any>", "1", "")),
        ("labels", format!("{}return 1;", "a:".repeat(depth))),
        (
            "distinct labels",
            format!("{}return 1;", (0..depth).map(|n| format!("l{n}:")).collect::<String>()),
        ),
        ("negations", around("!", "1", "")),
        ("calls", around("f(", "1", ")")),
        ("conditions", around("1?", "1", ":0")),
        ("blocks", format!("{}return 1;{}", "{".repeat(depth), "}".repeat(depth))),
        ("generics", format!("let a: {}1{} = 1; return a;", "A<".repeat(depth), ">".repeat(depth))),
        ("unclosed", format!("return {}", "(".repeat(depth))),
    ]
}

#[track_caller]
fn assert_refused(envelope: &serde_json::Value, shape: &str, since: Instant) {
    let error = envelope["error_code"].as_str().unwrap_or_default();
    assert_eq!(error, "TOO_COMPLEX", "{shape}: {:.300}", envelope.to_string());
    let took = since.elapsed();
    assert!(took < Duration::from_secs(20), "{shape}: took {took:?}");
}

/// The gateway refuses them, its process survives, and the memory is freed.
#[test]
fn deeply_nested_programs_do_not_harm_the_gateway() {
    // A separate gateway, so that other tests do not affect the measurement.
    let server = Installation::new().start();
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    let works = || {
        assert_eq!(success(&client.execute("return await mcp.math.eval({ expression: '1' })")), 1)
    };
    for _ in 0..10 {
        works();
    }
    let pid = server.pid();
    let before = settled(|| pid.tree_memory());
    for depth in DEPTHS {
        for (shape, code) in bombs(depth) {
            let since = Instant::now();
            assert_refused(&client.execute(&code), shape, since);
        }
        works();
    }
    assert_eq!(server.pid(), pid);
    assert!(pid.is_alive());
    poll("memory to return to within 20 MiB", Duration::from_secs(100), || {
        let after = pid.tree_memory();
        (after < before + (20 << 20)).then_some(())
    });
    works();
    assert_eq!(server.stop(), Some(0));
}

/// `pml stdio` refuses them without asking the gateway, and its process survives.
#[test]
fn deeply_nested_programs_do_not_harm_pml() {
    let mut pml = Project::offline().stdio();
    for depth in DEPTHS {
        for (shape, code) in bombs(depth) {
            let since = Instant::now();
            assert_refused(&pml.execute(&code), shape, since);
        }
    }
    assert!(pml.pid().is_alive());
}

/// The engine must be able to run long but flat programs, which the analysis accepts.
#[test]
fn long_flat_programs_run() {
    let client = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    for (shape, code, expected) in [
        ("sums", format!("return {}1", "1+".repeat(4_900)), json!(4_901)),
        (
            "else ifs",
            format!("const a = 0; if(a){{}} {} return 7", "else if(a){}".repeat(4_900)),
            json!(7),
        ),
        ("statements", format!("let n = 0; {} return n", "n++;".repeat(16_000)), json!(16_000)),
        (
            "members",
            format!("const a: any = {{}}; a.b = a; return a{}.c ?? 5", ".b".repeat(4_900)),
            json!(5),
        ),
        ("array", format!("return [{}].length", "1,".repeat(30_000)), json!(30_000)),
    ] {
        let envelope = client.execute(&code);
        assert_eq!(envelope["result"], expected, "{shape}: {:.400}", envelope.to_string());
    }
}

/// Other callers are served while many of them arrive at the same time.
#[test]
fn concurrent_deeply_nested_programs_do_not_block_other_callers() {
    let bomber = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    let other = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    let bomb = bombs(5_000).swap_remove(5).1;
    std::thread::scope(|scope| {
        for _ in 0..crate::support::scaled(80) {
            scope.spawn(|| assert_eq!(bomber.execute(&bomb)["status"], "error"));
        }
        let started = Instant::now();
        success(&other.execute("return 1"));
        assert!(started.elapsed() < PATIENCE);
    });
}

/// Reads a value until it stops changing.
fn settled(read: impl Fn() -> u64) -> u64 {
    let mut last = read();
    poll("memory to settle", Duration::from_secs(30), || {
        std::thread::sleep(Duration::from_millis(200));
        let now = read();
        let still = now.abs_diff(last) < (1 << 20);
        last = now;
        still.then_some(now)
    })
}
