//! Capabilities that need the user's machine: `pml` runs them, under the user's rules, pinned to what the user saw.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::hostile_capabilities::Served;
use crate::programs::tampering::{frame_with, socket_of_the_program};
use crate::registry::capabilities::{DOUBLE, author, entry, published};
use crate::skipped::skipped;
use crate::support::cli::{Project, text};
use crate::support::expect::{calls, failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub, pass_on};
use crate::support::mcp_client::StdioClient;
use crate::support::{PATIENCE, poll};

const COUNT: &str = "/** Counts the characters of a file, doubled. */
const text = await mcp.filesystem.read_text_file({ path: args.path });
return await mcp.math.eval({ expression: `2 * ${text.length}` })";
const OUTER: &str = "/** Counts. */ return { count: await mcp.files.count(args) }";

/// Answers yes until the run ends; returns its end and what was asked.
fn yes(pml: &mut StdioClient, code: &str) -> (Value, Vec<String>) {
    let mut envelope = pml.execute(code);
    let mut asked = Vec::new();
    while envelope["status"] == "approval_required" {
        asked.push(envelope["description"].as_str().unwrap().to_owned());
        envelope = pml.resume(&envelope, true, false);
    }
    (envelope, asked)
}

/// The whole way: shown once, run here, each call told with its path; the server tool of it ran on the gateway.
#[test]
fn a_capability_runs_on_the_users_machine() {
    let author = author();
    published(&author, "files.count", COUNT);
    published(&author, "files.outer", OUTER);
    let project = Project::of(&author).allow(&["*"]);
    project.write("a.txt", "abc");
    let mut pml = project.stdio();
    let program = "return await mcp.files.outer({ path: 'a.txt' })";
    let first = pml.execute(program);
    assert_eq!(question(&first)["approval_type"], "dependency");
    let shown = first["description"].as_str().unwrap();
    for part in [
        ".files.outer@0.1.0` (sha256-",
        "may call `files:count`, `filesystem:read_text_file`, `math:eval`",
        "return { count: await mcp.files.count(args) }",
        "Run `files:outer` with {\"path\":\"a.txt\"}",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let second = pml.resume(&first, true, false);
    let shown = question(&second)["description"].as_str().unwrap();
    assert!(shown.contains("Run `mcp.files.outer → files:count` with"), "{shown}");
    assert_eq!(second["context"]["through"], json!(["files:outer"]));
    let done = pml.resume(&second, true, false);
    assert_eq!((success(&done), &done["executed"]), (&json!({ "count": 6 }), &json!("client")));
    assert_eq!(
        calls(&done),
        [
            ("files:outer", "client"),
            ("files:count", "client"),
            ("filesystem:read_text_file", "client"),
            ("math:eval", "server"),
        ]
    );
    assert!(done["calls"][0].get("through").is_none(), "{done:#}");
    assert_eq!(done["calls"][3]["through"], json!(["files:outer", "files:count"]));
    let used = &done["tools_used"][0];
    assert_eq!((&used["type"], &used["routing"]), (&json!("capability"), &json!("client")));
    assert_eq!(used["tools"], json!(["files:count", "filesystem:read_text_file", "math:eval"]));

    // It is shown once, to this user in this folder.
    success(&pml.execute(program));
    let (again, code) = project.exec(program);
    assert_eq!((success(&again), code), (&json!({ "count": 6 }), 0));
    let lock = project.read(".pml/mcp.lock");
    assert!(lock.contains(".files.outer@0.1.0") && lock.contains(".files.count@0.1.0"), "{lock}");
    // CL-04: the lock alone, as a repository can ship it, lets nothing run.
    let other = Project::of(&author).allow(&["*"]);
    std::fs::create_dir(other.path(".pml")).unwrap();
    other.write(".pml/mcp.lock", &lock);
    question(&other.stdio().execute(program));

    // What it throws is thrown where it was called, and can be caught there.
    let caught = "try { await mcp.files.count({ path: 'none' }) } catch (e: any) { return [e.code, e.message] }";
    let caught = pml.execute(caught);
    let (code, message) = (&success(&caught)[0], caught["result"][1].as_str().unwrap());
    assert_eq!(code, "TOOL_FAILED");
    assert!(message.contains("capability `files:count`") && message.contains("none"), "{message}");
    // A name that only shows itself at run time leads to it as well.
    let dynamic = pml.execute("const all: any = { f: 'files', c: 'count' }; let n = all[args.x ?? 'f']; return await mcp[n].count({ path: 'a.txt' })");
    assert_eq!(success(&dynamic), 6);
    // A new version is another program.
    published(
        &author,
        "files.outer",
        "/** Counts. */ return await mcp.filesystem.read_text_file(args)",
    );
    let asked = pml.execute(program);
    let shown = question(&asked)["description"].as_str().unwrap();
    assert!(shown.contains("0.1.1") && shown.contains("you allowed 0.1.0"), "{shown}");
}

/// The rules hold for every call, also within a capability, and also if all of its tools run on the gateway.
#[test]
fn the_rules_hold_within_a_capability() {
    let author = author();
    published(&author, "maths.double", DOUBLE);
    published(&author, "files.count", COUNT);
    let ruled = |rules: Value| {
        let project = Project::of(&author).configure(&json!({ "permissions": rules }));
        project.write("a.txt", "abc");
        project
    };
    let double = "return await mcp.maths.double({ n: 21 })";
    let count = "return await mcp.files.count({ path: 'a.txt' })";
    let free = ruled(json!({ "allow": ["*"] }));
    let there = free.stdio().execute(double);
    assert_eq!((success(&there), &there["executed"]), (&json!(42), &json!("server")));

    for (program, denied) in [
        (double, "maths:*"),
        (double, "math:eval"),
        (count, "math:*"),
        (count, "filesystem:read_text_file"),
        (count, "files:count"),
    ] {
        let project = ruled(json!({ "allow": ["*"], "deny": [denied] }));
        let told = project.stdio().execute(program);
        let message = failure(&told, "PERMISSION_DENIED");
        assert!(message.contains(denied), "{message}");
        assert!(told.get("calls").is_none(), "nothing ran: {told:#}");
    }

    // A tool of the gateway that is asked about is asked about here.
    let project = ruled(json!({ "allow": ["maths:*"], "ask": ["math:*"] }));
    let mut pml = project.stdio();
    let first = pml.execute(double);
    assert_eq!(question(&first)["context"]["tool"], "maths:double");
    let second = pml.resume(&first, true, false);
    let shown = question(&second)["description"].as_str().unwrap();
    assert_eq!(shown, "Run `mcp.maths.double → math:eval` with {\"expression\":\"2 * 21\"}");
    assert_eq!(success(&pml.resume(&second, true, true)), 42);
    let rules: Value = serde_json::from_str(&project.read(".pml.json")).unwrap();
    assert_eq!(rules["permissions"]["allow"], json!(["maths:*", "math:eval"]));

    // A no ends the run, whatever the programs would catch.
    let project = ruled(json!({ "allow": ["files:*", "filesystem:write_file"] }));
    let catches =
        "/** Catches. */ try { return await mcp.files.count(args) } catch { return 'caught' }";
    published(&author, "files.catches", catches);
    let mut pml = project.stdio();
    let program =
        "let r; try { r = await mcp.files.catches({ path: 'a.txt' }) } catch { r = 'caught' }
        await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' }); return r";
    let mut asked = pml.execute(program);
    while asked["context"]["tool"] != "filesystem:read_text_file" {
        asked = pml.resume(question(&asked), true, false);
    }
    let shown = asked["description"].as_str().unwrap();
    assert!(
        shown.contains("mcp.files.catches → mcp.files.count → filesystem:read_text_file"),
        "{shown}"
    );
    let ended = pml.resume(&asked, false, false);
    failure(&ended, "APPROVAL_DENIED");
    assert!(!project.path("made.txt").exists());
    let last = ended["calls"].as_array().unwrap().iter().rfind(|call| call["through"].is_array());
    assert_eq!(last.unwrap()["tool"], "filesystem:read_text_file", "{ended:#}");
}

/// SB-17: a capability whose process was taken over is held to its own tools, not to those of who calls it.
#[test]
fn a_capability_calls_only_what_it_declares() {
    if !rustix::process::geteuid().is_root() {
        skipped!("only root may speak for another process");
    }
    let author = author();
    let hold = "/** Holds. */ await mcp.filesystem.list_allowed_directories({});
        const large = new Uint8Array(40_000_000).fill(1);
        await new Promise((done) => setTimeout(done, 2_000));
        return large.length";
    published(&author, "files.hold", hold);
    let project = Project::of(&author).allow(&["*"]);
    let mut pml = project.stdio();
    let program = "if (args.never) await mcp.shell.exec({ command: ['touch', 'declared'] });
        return await mcp.files.hold({})";
    let asked = pml.execute(program);
    question(&asked);
    let decision = json!({ "workflow_id": asked["workflow_id"], "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": decision }));
    let mut socket = socket_of_the_program(pml.pid());
    let touch = json!({ "command": ["touch", "made.txt"] });
    socket.write_all(&frame_with(2, "shell", "exec", &touch)).unwrap();
    let write = json!({ "path": "made.txt", "content": "x" });
    socket.write_all(&frame_with(3, "filesystem", "write_file", &write)).unwrap();
    let answer = pml.answer(waiting);
    let done = &answer["result"]["structuredContent"];
    assert_eq!(success(done), 40_000_000);
    let told: Vec<_> =
        done["calls"].as_array().unwrap().iter().map(|call| (&call["tool"], &call["ok"])).collect();
    let expected = [
        (&json!("files:hold"), &json!(true)),
        (&json!("filesystem:list_allowed_directories"), &json!(true)),
        (&json!("shell:exec"), &json!(false)),
        (&json!("filesystem:write_file"), &json!(false)),
    ];
    assert_eq!(told, expected, "{done:#}");
    assert!(!project.path("made.txt").exists());
}

/// Calls and time of a capability count to the run; waiting for a human does not.
#[test]
fn limits_count_within_a_capability() {
    let author = author();
    let many = "/** Many. */ for (let i = 0; i < 400; i++) await mcp.filesystem.list_allowed_directories({})";
    published(&author, "l.many", many);
    published(
        &author,
        "l.waits",
        "/** Waits. */ await mcp.filesystem.list_allowed_directories({}); await new Promise((done) => setTimeout(done, 60_000))",
    );
    published(
        &author,
        "l.large",
        "/** Large. */ await mcp.filesystem.list_allowed_directories({}); return 'x'.repeat(1_100_000)",
    );
    published(
        &author,
        "l.reads",
        "/** Reads. */ return await mcp.filesystem.read_text_file({ path: 'a.txt' })",
    );
    let project = Project::of(&author).allow(&["l:*", "filesystem:list_allowed_directories"]);
    project.write("a.txt", "abc");
    let mut pml = project.stdio();
    let (twice, _) = yes(&mut pml, "await mcp.l.many({}); await mcp.l.many({}); return 1");
    assert_eq!(success(&twice), 1);
    let program = "for (let i = 0; i < 3; i++) { try { await mcp.l.many({}) } catch {} } return 1";
    let told = pml.execute(program);
    let message = failure(&told, "TOO_MANY_CALLS");
    assert!(message.contains("1000"), "{message}");

    let (large, _) = yes(&mut pml, "return (await mcp.l.large({})).length");
    failure(&large, "RESULT_TOO_LARGE");

    let short = |code: &str| json!({ "code": code, "options": { "timeout_ms": 1_500 } });
    let asked = pml.execute_request(short("return await mcp.l.reads({})"));
    question(&asked);
    let asked = pml.resume(&asked, true, false);
    assert_eq!(question(&asked)["context"]["tool"], "filesystem:read_text_file");
    // Longer than the run may take, without the human.
    std::thread::sleep(Duration::from_millis(2_000));
    assert_eq!(success(&pml.resume(&asked, true, false)), "abc");

    let asked = pml.execute_request(short("try { await mcp.l.waits({}) } catch {} return 1"));
    failure(&pml.resume(question(&asked), true, false), "TIME_LIMIT");
}

/// A cancelled request reaches what a capability started.
#[test]
fn cancelling_reaches_a_capability() {
    let author = author();
    published(
        &author,
        "c.sleeps",
        "/** Sleeps. */ return await mcp.shell.exec({ command: ['sleep', '333'] })",
    );
    published(&author, "c.outer", "/** Sleeps. */ return await mcp.c.sleeps({})");
    let project = Project::of(&author).allow(&["*"]);
    let mut pml = project.stdio();
    let first = pml.execute("return await mcp.c.outer({})");
    let second = pml.resume(question(&first), true, false);
    let decision = json!({ "workflow_id": question(&second)["workflow_id"], "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": decision }));
    let sleeps = |pml: &StdioClient| {
        pml.pid().tree().into_iter().any(|pid| pid.command_line().contains("sleep 333"))
    };
    poll("the child to start", PATIENCE, || sleeps(&pml).then_some(()));
    pml.notify("notifications/cancelled", json!({ "requestId": waiting }));
    poll("the child to end", PATIENCE, || (!sleeps(&pml)).then_some(()));
    success(&pml.execute("return 1"));
}

/// What ran here before and needs only this machine runs without the gateway; what does not says so.
#[test]
fn what_ran_before_runs_without_the_gateway() {
    let author = author();
    published(&author, "o.reads", "/** Reads. */ return await mcp.filesystem.read_text_file(args)");
    published(&author, "o.outer", "/** Reads. */ return await mcp.o.reads(args)");
    published(&author, "o.counts", COUNT);
    let project = Project::of(&author).allow(&["*"]);
    project.write("a.txt", "abc");
    let reads = "return await mcp.o.outer({ path: 'a.txt' })";
    let counts = "return await mcp.o.counts({ path: 'a.txt' })";
    let mut pml = project.stdio();
    assert_eq!(success(&yes(&mut pml, reads).0), "abc");
    assert_eq!(success(&yes(&mut pml, counts).0), 6);
    drop(pml);

    let nowhere = format!(
        "http://{}",
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    );
    let project = project.set("PML_CLOUD_URL", &nowhere);
    let (alone, code) = project.exec(reads);
    assert_eq!((success(&alone), code), (&json!("abc"), 0));
    assert_eq!(alone["calls"][2]["through"], json!(["o:outer", "o:reads"]));
    // What ran here before is known to the plan, too.
    let plan = |more: &[&str]| {
        let arguments = [&["plan", "-"], more].concat();
        text(&project.run_with(&arguments, counts.as_bytes()).stdout)
    };
    let shown = plan(&[]);
    assert!(
        shown.contains(
            ".o.counts@0.1.0 and reaches filesystem:read_text_file here, math:eval on the server"
        ),
        "{shown}"
    );
    let told: Value = serde_json::from_str(&plan(&["--json"])).unwrap();
    assert_eq!(
        told["capabilities"][0]["reaches"],
        json!({ "filesystem:read_text_file": "client", "math:eval": "server" })
    );
    let (told, code) = project.exec(counts);
    assert_eq!(code, 4);
    let message = failure(&told, "SERVER_TOOLS_OFFLINE");
    assert!(message.contains("math:eval") && message.contains("o:counts"), "{message}");
    let (told, code) = project.exec("return await mcp.o.other({})");
    assert_eq!(code, 4, "{told:#}");

    // What is kept is held against its hash each time.
    let kept = project.home().join(".local/state/pml/capabilities");
    for file in std::fs::read_dir(&kept).unwrap() {
        let path = file.unwrap().path();
        let changed = std::fs::read_to_string(&path)
            .unwrap()
            .replace("a.path", "b")
            .replace("(args)", "({ path: 'b' })");
        std::fs::write(&path, changed).unwrap();
    }
    failure(&project.exec(reads).0, "SERVER_TOOLS_OFFLINE");
    std::fs::remove_file(project.path(".pml/mcp.lock")).unwrap();
    failure(&project.exec(reads).0, "GATEWAY_UNREACHABLE");
}

/// RG-02: someone between `pml` and the gateway changes bodies and their hashes alike: what is pinned does not run.
#[test]
fn changed_on_the_way_never_runs() {
    let author = author();
    let code =
        "/** Writes. */ return await mcp.filesystem.write_file({ path: 'good.txt', content: 'x' })";
    published(&author, "w.writes", code);
    let module = entry(&author, "w:writes", "*/*").body;
    let module = String::from_utf8(module).unwrap();
    let meta = module.lines().next().unwrap().strip_prefix("// __meta__:").unwrap();
    let honest: Value = serde_json::from_str(meta).unwrap();
    let (name, integrity) = (honest["fqdn"].clone(), honest["integrity"].clone());

    let project = Project::of(&author).allow(&["*"]);
    let program = "return await mcp.w.writes({})";
    let (done, asked) = yes(&mut project.stdio(), program);
    success(&done);
    assert_eq!(asked.len(), 1);
    std::fs::remove_file(project.path("good.txt")).unwrap();

    // The same version with another program, whole and true in itself.
    let evil_code = code.replace("good.txt", "evil.txt");
    let mut evil = honest.clone();
    evil["fqdn"] = json!(name.as_str().unwrap().rsplit_once('.').unwrap().0);
    evil["code_hash"] = json!(crate::cli::hostile_gateway::hash(&evil_code));
    let evil = Served::of_entry(evil, &evil_code);
    let url = author.url.clone();
    let forged = evil.clone();
    let middle = GatewayStub::start_with_head(move |head, request| {
        if request.is_null() && head.starts_with("GET /mcp/") {
            return Answer::Raw(200, "application/typescript", forged.module.clone().into_bytes());
        }
        let told = pass_on(&url, head, request);
        let told = told.replace(integrity.as_str().unwrap(), &forged.integrity);
        let told = told.replace(name.as_str().unwrap(), &forged.fqdn);
        Answer::Json(serde_json::from_str(&told).unwrap())
    });
    let project = project.set("PML_CLOUD_URL", &middle.url);
    let told = project.stdio().execute(program);
    let message = failure(&told, "INTEGRITY_MISMATCH");
    assert!(message.contains(".w.writes@0.1.0") && message.contains(&evil.integrity), "{message}");
    assert!(told["hint"].as_str().unwrap().contains("mcp.lock"), "{told:#}");
    for made in ["good.txt", "evil.txt"] {
        assert!(!project.path(made).exists());
    }
    assert!(middle.heard().iter().any(|heard| heard.starts_with("GET")), "it was fetched");
    // Of what was never let run there is no pin: the question has its very bytes.
    let fresh = Project::at(&middle.url).set("PML_API_KEY", &author.key).allow(&["*"]);
    let asked = fresh.stdio().execute(program);
    assert!(question(&asked)["description"].as_str().unwrap().contains("evil.txt"));
}

/// RG-02: the same for the command of an MCP server.
#[test]
fn a_server_changed_on_the_way_never_starts() {
    let author = author();
    let script = crate::support::mcp_servers::server_script("server-memory").display().to_string();
    let url = author.url.clone();
    // Both are another command than the registry's: the one that the user let start, and the one that comes later.
    let later = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let evil = std::sync::Arc::clone(&later);
    let middle = GatewayStub::start_with_head(move |head, request| {
        let told = pass_on(&url, head, request);
        let mut told: Value = serde_json::from_str(&told).unwrap();
        if head.starts_with("GET /mcp/pml.mcp.memory ") {
            let evil = evil.load(std::sync::atomic::Ordering::SeqCst);
            let args = if evil { vec!["touch", "started"] } else { vec!["node", &script] };
            told["install"]["command"] = json!(args[0]);
            told["install"]["args"] = json!(args[1..]);
            let served = Served::of_entry(told.clone(), "");
            told["integrity"] = json!(served.integrity);
        }
        Answer::Json(told)
    });
    let project = Project::at(&middle.url).set("PML_API_KEY", &author.key).allow(&["*"]);
    let program = "return typeof await mcp.memory.read_graph({})";
    let (done, asked) = yes(&mut project.stdio(), program);
    success(&done);
    assert_eq!(asked.len(), 1);
    success(&project.exec(program).0);

    later.store(true, std::sync::atomic::Ordering::SeqCst);
    let output = project.run_with(&["exec", "-"], program.as_bytes());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("CHANGED since you allowed it"),
        "{}",
        text(&output.stderr)
    );
    let mut pml = project.stdio();
    let asked = pml.execute(program);
    question(&asked);
    failure(&pml.resume(&asked, false, false), "APPROVAL_DENIED");
    assert!(!project.path("started").exists());
}
