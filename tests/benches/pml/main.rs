//! The start-up time of `pml stdio` and its overhead per call, compared with the MCP server itself. The built programs
//! are black boxes.

#![expect(clippy::unwrap_used, reason = "a bench without its servers has nothing to measure")]

#[path = "../support/figures.rs"]
mod figures;
#[path = "../support/harness.rs"]
mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use figures::{Rounds, time};
use support::binaries::built;
use support::cli::Project;
use support::mcp_client::{Era, StdioClient};
use support::mcp_servers::server_script;

const START_ROUNDS: usize = 40;
const PROGRAM_ROUNDS: usize = 100;

const PML: &str = "`pml stdio`: start → `tools/list`";
const NODE: &str = "`server-everything` on Node: start → `tools/list`";
const PROCESS: &str = "`/bin/true`, start to end";
const DIRECT: &str = "a call of `everything:echo`, straight to the MCP server";
const WITHIN: &str = "the same in a program: one more call of it";
const THROUGH: &str = "the same as `tools/call` on `pml stdio`: a program of one call";
/// The number of additional calls in a program, to measure the cost of one.
const MORE: u32 = 50;
/// The number of calls that one server gets at once.
const AT_ONCE: usize = 100;
const DIRECT_AT_ONCE: &str = "100 calls at once, straight to the MCP server";
const WITHIN_AT_ONCE: &str = "the same in a program, by `Promise.all`";

const SERVER_ONLY: &str = "program with one server tool, through `pml stdio`";
const CLIENT_ONLY: &str = "program with one local tool, through `pml stdio`";

/// Gives processes of the previous measurement time to end.
fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

fn bare_server(project: &Project) -> Command {
    let mut command = project.wrap(Command::new("node"), &[]);
    command.arg(server_script("server-everything"));
    command
}

fn starts(project: &Project) -> Rounds {
    let mut rounds = Rounds::default();
    let listed = |command: Command| {
        let started = Instant::now();
        let mut client = StdioClient::start(command, Era::Handshake, &project.log());
        let answer = client.request("tools/list", json!({}));
        let took = started.elapsed();
        assert!(answer["result"]["tools"].is_array(), "{answer}");
        drop(client);
        settle();
        took
    };
    for _ in 0..START_ROUNDS {
        rounds.add(PML, listed(project.command(&["stdio"])));
        rounds.add(NODE, listed(bare_server(project)));
        let started = Instant::now();
        let status = Command::new("/bin/true").env_clear().stdin(Stdio::null()).status().unwrap();
        rounds.add(PROCESS, started.elapsed());
        assert!(status.success());
        settle();
    }
    rounds
}

fn echoes(pml: &mut StdioClient, count: u32) -> Duration {
    let code = format!(
        "for (let i = 0; i < {count}; i++) await mcp.everything.echo({{ message: 'hello' }}); return 'done'"
    );
    let started = Instant::now();
    let envelope = pml.execute(&code);
    let took = started.elapsed();
    assert_eq!(envelope["result"], "done", "{envelope:#}");
    settle();
    took
}

fn calls(pml: &mut StdioClient, direct: &mut StdioClient) -> Rounds {
    let mut rounds = Rounds::default();
    for _ in 0..PROGRAM_ROUNDS {
        let started = Instant::now();
        for _ in 0..MORE {
            direct.call("echo", json!({ "message": "hello" }));
        }
        rounds.add(DIRECT, started.elapsed() / MORE);
        settle();
        let more = echoes(pml, MORE + 1).saturating_sub(echoes(pml, 1));
        rounds.add(WITHIN, more / MORE);
        let started = Instant::now();
        let result = pml.call("everything__echo", json!({ "message": "hello" }));
        rounds.add(THROUGH, started.elapsed());
        assert_ne!(result["isError"], true, "{result}");
        settle();
    }
    rounds
}

/// Measures many calls of one server at once. The calls take their own time in both cases, so the difference is what
/// `pml` adds to all of them: decisions, records, and the way to the server and back.
fn at_once(pml: &mut StdioClient, direct: &mut StdioClient) -> Rounds {
    let mut rounds = Rounds::default();
    let code = format!(
        "const all = [...Array({AT_ONCE})].map((_, i) => mcp.everything.echo({{ message: `m${{i}}` }}));
        return (await Promise.all(all)).length"
    );
    for _ in 0..PROGRAM_ROUNDS / 2 {
        let started = Instant::now();
        let sent: Vec<u64> = (0..AT_ONCE)
            .map(|i| {
                let params = json!({ "name": "echo", "arguments": { "message": format!("m{i}") } });
                direct.send("tools/call", params)
            })
            .collect();
        for id in sent {
            let answer = direct.answer(id);
            assert_ne!(answer["result"]["isError"], true, "{answer}");
        }
        rounds.add(DIRECT_AT_ONCE, started.elapsed());
        settle();
        let started = Instant::now();
        let envelope = pml.execute(&code);
        rounds.add(WITHIN_AT_ONCE, started.elapsed());
        assert_eq!(envelope["result"], json!(AT_ONCE), "{envelope:#}");
        settle();
    }
    rounds
}

fn programs(pml: &mut StdioClient) -> Rounds {
    let mut rounds = Rounds::default();
    for _ in 0..PROGRAM_ROUNDS {
        for (name, code) in [
            (SERVER_ONLY, r#"return await mcp.json.parse({ data: "[1]" })"#),
            (CLIENT_ONLY, r#"return await mcp.filesystem.read_text_file({ path: "a.txt" })"#),
        ] {
            let started = Instant::now();
            let envelope = pml.execute(code);
            rounds.add(name, started.elapsed());
            assert_eq!(envelope["status"], "success", "{envelope:#}");
            settle();
        }
    }
    rounds
}

fn warm(client: &mut StdioClient, tool: &str) {
    let result: Value = client.call(tool, json!({ "message": "hello" }));
    assert_ne!(result["isError"], true, "{result}");
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() {
    let project = Project::new();
    let servers = json!({ "everything": project.node_server("server-everything", &[]) });
    let project =
        project.configure(&json!({ "permissions": { "allow": ["*"] }, "mcpServers": servers }));
    project.write("a.txt", "hello");

    println!("### `pml stdio`, compared with the MCP server that it starts\n");
    println!("{}", starts(&project).table(&[(PML, &[NODE, PROCESS])]));

    let mut pml = project.stdio();
    let mut direct = StdioClient::start(bare_server(&project), Era::Handshake, &project.log());
    warm(&mut pml, "everything__echo");
    warm(&mut direct, "echo");
    let table = calls(&mut pml, &mut direct);
    println!("{}", table.table(&[(WITHIN, &[DIRECT]), (THROUGH, &[DIRECT])]));
    println!("Added to a call in a program, median: {}.\n", time(table.difference(WITHIN, DIRECT)));
    let table = at_once(&mut pml, &mut direct);
    println!("{}", table.table(&[(WITHIN_AT_ONCE, &[DIRECT_AT_ONCE])]));
    println!("{}", programs(&mut pml).table(&[]));
    for name in ["pml", "pml-server"] {
        let bytes = std::fs::metadata(built(name)).unwrap().len();
        println!("`{name}`, stripped: {:.1} MiB.", bytes as f64 / 1_048_576.0);
    }
    println!();
}
