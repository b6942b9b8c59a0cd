//! thousands of calls that are cancelled at any instant leave nothing behind, on a machine and on the gateway.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};

use crate::support::cli::{Project, policy_for, text};
use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::processes::Pid;
use crate::support::server::Installation;
use crate::support::{PATIENCE, poll, scaled};

/// The calls at the same time.
const AT_ONCE: usize = 12;

/// Numbers that are the same in every run of the test.
struct Random(u64);

impl Random {
    /// Returns a number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        // The generator of Knuth's MMIX; its low bits are the weak ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn open_files(pid: Pid) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", pid.number)).unwrap().count()
}

/// Programs that use each kind of target, wait, compute, or start a process.
const PROGRAMS: [&str; 8] = [
    "return 1",
    "return (await mcp.filesystem.read_text_file({ path: 'a.txt' })).length",
    "await Promise.all([...Array(20).keys()].map(n => mcp.filesystem.write_file({ path: `b${n % 3}`, content: `${n}` })))",
    "return (await mcp.memory.read_graph({})).entities.length",
    "return await mcp.math.eval({ expression: '1 + 1' })",
    "await new Promise(done => setTimeout(done, 30)); return 2",
    "let n = 0; while (n < 3_000_000) n++; return n",
    "await mcp.shell.exec({ command: ['sleep', '281'], timeout_ms: 290000 })",
];

/// The program that never ends by itself.
const ENDLESS: usize = 7;

/// What arrived for the requests of a storm.
#[derive(Default)]
struct Answers {
    answered: BTreeSet<u64>,
    succeeded: usize,
}

impl Answers {
    fn take(&mut self, message: &Value, asked: &BTreeSet<u64>) {
        let Some(id) = message["id"].as_u64() else { return };
        assert!(asked.contains(&id), "nobody asked: {message}");
        assert!(self.answered.insert(id), "answered twice: {message}");
        self.succeeded +=
            usize::from(message["result"]["structuredContent"]["status"] == "success");
    }
}

/// The processes, the open files and the record of `pml` after a storm are as before, and it still runs programs.
#[test]
fn cancelled_calls_of_pml_leave_nothing_behind() {
    let project = Project::new();
    let memory = project.node_server("server-memory", &[]);
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "policy": policy_for(&["sleep"]),
        "mcpServers": { "memory": memory },
    }));
    project.write("a.txt", "hello");
    let mut pml = project.stdio();
    // Each kind once, so that what starts with the first use is there.
    for code in &PROGRAMS[..ENDLESS] {
        success(&pml.execute(code));
    }
    // And as many at once as below.
    let first: Vec<u64> = (0..AT_ONCE).map(|_| pml.begin(PROGRAMS[5])).collect();
    for id in first {
        success(&pml.answer(id)["result"]["structuredContent"]);
    }
    let (processes, files) = (pml.pid().tree(), open_files(pml.pid()));

    let mut random = Random(17);
    let (mut asked, mut cancelled) = (BTreeSet::new(), BTreeSet::new());
    let mut answers = Answers::default();
    let count = scaled(2_500);
    let mut open: Vec<(u64, bool)> = Vec::new();
    while asked.len() < count || !open.is_empty() {
        if asked.len() < count && open.len() < AT_ONCE {
            let kind = usize::try_from(random.below(PROGRAMS.len() as u64)).unwrap();
            let id = pml.begin(PROGRAMS[kind]);
            asked.insert(id);
            // A third is not cancelled: those must be answered.
            open.push((id, kind == ENDLESS || random.below(3) > 0));
        }
        if let Some(message) = pml.next_message(Duration::from_millis(random.below(6))) {
            answers.take(&message, &asked);
        }
        open.retain(|(id, _)| !answers.answered.contains(id));
        let at = usize::try_from(random.below(AT_ONCE as u64 + 4)).unwrap();
        if let Some((id, true)) = open.get(at).copied() {
            pml.notify("notifications/cancelled", json!({ "requestId": id, "reason": "storm" }));
            cancelled.insert(id);
            open.remove(at);
        } else if asked.len() == count && !open.is_empty() && open.iter().all(|(_, cancel)| !cancel)
        {
            let message =
                pml.next_message(PATIENCE).expect("a call that is not cancelled is answered");
            answers.take(&message, &asked);
        }
    }
    // Late answers may arrive up to here; the next one is that of a new call.
    let id = pml.begin("return 'last'");
    asked.insert(id);
    while !answers.answered.contains(&id) {
        let message = pml.next_message(PATIENCE).expect("it still runs programs");
        answers.take(&message, &asked);
    }
    assert!(cancelled.len() > count / 4 && answers.succeeded > count / 6, "a storm of both kinds");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tree = pml.pid().tree();
        let lines: Vec<String> = tree.iter().map(|pid| pid.command_line()).collect();
        if tree.len() <= processes.len() && !lines.iter().any(|line| line.contains("sleep 281")) {
            break;
        }
        let new: Vec<_> =
            tree.iter().zip(&lines).filter(|(pid, _)| !processes.contains(pid)).collect();
        assert!(
            Instant::now() < deadline,
            "{} before, {} now; new: {new:?}",
            processes.len(),
            tree.len()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    poll("the files of cancelled calls to be closed", PATIENCE, || {
        (open_files(pml.pid()) <= files + 4).then_some(())
    });
    drop(pml);
    let verified = project.run(&["runs", "verify"]);
    assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
    let listed = project.run(&["runs", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    for run in listed["runs"].as_array().unwrap() {
        assert!(["completed", "failed"].contains(&run["status"].as_str().unwrap()), "{run:#}");
    }
}

/// A gateway whose clients break their connections off has no transaction, process or place for a run in use afterwards.
#[test]
fn broken_connections_leave_nothing_behind() {
    let home = Installation::new();
    let server = home.start();
    let tenant = server.tenant();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let codes = [
        "return 1",
        "return await mcp.math.eval({ expression: '1 + 1' })",
        "return await Promise.all([1, 2, 3].map(n => mcp.math.eval({ expression: `${n}` })))",
        "await new Promise(done => setTimeout(done, 30)); return 2",
        "let n = 0; while (n < 3_000_000) n++; return n",
        "while (true) await new Promise(done => setTimeout(done, 1))",
    ];
    for code in &codes[..5] {
        success(&client.execute(code));
    }
    // What is started for many runs at once is there from here on.
    let all_run = || {
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let client = HttpMcp::new(&tenant, Era::Stateless);
                    assert_eq!(*success(&client.execute("return 7")), 7);
                });
            }
        });
    };
    all_run();
    let pid = server.pid();
    let busy = || {
        home.sql(
            "select count(*) from pg_stat_activity where usename = 'pml_app' and state <> 'idle'",
        )
    };
    // Connections to the database are kept for later, each with a process of Postgres: on a busy machine the storm opens
    // more of them than the runs before it. That none is in use is checked below.
    let own = || -> Vec<String> {
        let all = pid.tree().into_iter().map(|pid| pid.command_line());
        all.filter(|line| !line.starts_with("postgres:")).collect()
    };
    let (processes, files) = (own().len(), open_files(pid));
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let (next, count) = (AtomicUsize::new(0), scaled(2_500));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (address, key, next) = (&address, &tenant.key, &next);
            scope.spawn(move || {
                let mut random = Random(thread);
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    let code = codes[usize::try_from(random.below(6)).unwrap()];
                    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
                        "name": "pml_execute", "arguments": { "code": code },
                    } })
                    .to_string();
                    let head = format!(
                        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
                         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
                         mcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    let mut stream = TcpStream::connect(address.as_str()).unwrap();
                    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                    let until = Duration::from_millis(1 + random.below(40));
                    stream.set_read_timeout(Some(until)).unwrap();
                    let _ = stream.read(&mut [0; 64]);
                    // Closing sends a reset.
                    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                }
            });
        }
    });
    poll("the transactions of broken requests to end", PATIENCE, || {
        (busy().trim() == "0").then_some(())
    });
    // A process that children are forked from has its successor beside it for a while, and stays until the last of its
    // children that wait for a program has run one.
    let deadline = Instant::now() + PATIENCE;
    while own().len() > processes + 6 {
        assert!(Instant::now() < deadline, "{processes} before, now {:#?}", own());
        std::thread::sleep(Duration::from_millis(50));
    }
    poll("the connections to be closed", PATIENCE, || {
        (open_files(pid) <= files + 16).then_some(())
    });
    // Every place for a run is free.
    all_run();
}

/// A client of the storm in the other protocol generation: what it cancels is not answered, what it does not is.
#[test]
fn a_stateless_client_can_cancel_in_a_storm() {
    let project = Project::offline();
    let mut pml: StdioClient = project.stdio_stateless();
    let mut kept = Vec::new();
    for round in 0..scaled(500) {
        let id = pml.begin("await new Promise(done => setTimeout(done, 20)); return 3");
        match round % 3 {
            0 => kept.push(id),
            _ => pml.notify("notifications/cancelled", json!({ "requestId": id })),
        }
        if kept.len() > 8 {
            assert_eq!(*success(&pml.answer(kept.remove(0))["result"]["structuredContent"]), 3);
        }
    }
    for id in kept {
        assert_eq!(*success(&pml.answer(id)["result"]["structuredContent"]), 3);
    }
}
