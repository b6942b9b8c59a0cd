//! Approvals: a run pauses inside a call, and continues there after the answer.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{calls, failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Server;
use crate::support::terminal::approve;

/// Appends to a file before, between and after two calls that need approval. Their arguments are computed, so that they
/// are not known before the program starts.
const TWO_QUESTIONS: &str = "
    const note = (text: string) => mcp.shell.exec({ command: ['sh', '-c', `echo ${text} >> log`] });
    const zero = (await note('before')).exit_code;
    await mcp.filesystem.write_file({ path: 'first.txt', content: `${zero + 1}` });
    await note('between');
    await mcp.filesystem.write_file({ path: 'second.txt', content: `${zero + 2}` });
    await note('after');
    return 'done';";

fn two_questions() -> (Project, StdioClient) {
    let project = Project::new().allow_commands(&["sh"]);
    let pml = project.stdio();
    (project, pml)
}

/// A paused run continues where it paused. It does not start again, so no call runs twice.
#[test]
fn an_approved_run_continues_inside_the_paused_call() {
    let (project, mut pml) = two_questions();
    let first = pml.execute(TWO_QUESTIONS);
    assert_eq!(question(&first)["context"]["tool"], "filesystem:write_file");
    assert_eq!(first["context"]["arguments"]["path"], "first.txt");
    assert_eq!(project.read("log"), "before\n");
    assert!(!project.path("first.txt").exists());

    // One yes covers one call, not what the run does next.
    let second = pml.resume(&first, true, false);
    assert_eq!(question(&second)["context"]["arguments"]["path"], "second.txt");
    assert_ne!(second["workflow_id"], first["workflow_id"]);
    assert_eq!(project.read("log"), "before\nbetween\n");
    assert_eq!(project.read("first.txt"), "1");
    assert!(!project.path("second.txt").exists());

    let done = pml.resume(&second, true, false);
    assert_eq!(success(&done), "done");
    assert_eq!(project.read("log"), "before\nbetween\nafter\n", "each call happened once");
    assert_eq!(project.read("second.txt"), "2");
    assert_eq!(calls(&done).len(), 5);
}

/// `continue_workflow` inside `pml_execute` does the same as `pml_continue`.
#[test]
fn pml_execute_accepts_continue_workflow() {
    let (project, mut pml) = two_questions();
    let first = pml.execute(TWO_QUESTIONS);
    let decision =
        json!({ "continue_workflow": { "workflow_id": first["workflow_id"], "approved": true } });
    let second = pml.execute_request(decision);
    assert_eq!(question(&second)["context"]["arguments"]["path"], "second.txt");
    assert_eq!(project.read("log"), "before\nbetween\n");
}

/// A no ends the run: nothing after the denied call runs.
#[test]
fn a_denied_call_ends_the_run() {
    let (project, mut pml) = two_questions();
    let first = pml.execute(TWO_QUESTIONS);
    let refused = pml.resume(&first, false, false);
    failure(&refused, "APPROVAL_DENIED");
    assert_eq!(project.read("log"), "before\n");
    assert!(!project.path("first.txt").exists());
    success(&pml.execute("return 1"));
}

/// `try`/`catch` in the program suppresses neither the question nor the denial.
#[test]
fn programs_cannot_catch_a_denial() {
    let project = Project::new();
    let mut pml = project.stdio();
    let code = "
        try { await mcp.filesystem.write_file({ path: 'a.txt', content: args.a ?? 'a' }); } catch { return 'caught'; }
        try { await mcp.filesystem.write_file({ path: 'b.txt', content: args.b ?? 'b' }); } catch (error) { return 'caught too'; }
        finally { try { await mcp.filesystem.write_file({ path: 'c.txt', content: args.c ?? 'c' }); } catch {} }
        return 'end';";
    let first = pml.execute(code);
    question(&first);
    let second = pml.resume(&first, true, false);
    question(&second);
    assert_eq!(project.read("a.txt"), "a");
    failure(&pml.resume(&second, false, false), "APPROVAL_DENIED");
    assert!(!project.path("b.txt").exists() && !project.path("c.txt").exists());
}

/// NX-12: identical calls that wait at the same time are one question, which states their number.
#[test]
fn identical_calls_are_one_question_with_a_count() {
    let project = Project::new().allow(&["filesystem:list_allowed_directories"]);
    let mut pml = project.stdio();
    let first = pml.execute(
        "const one = () => mcp.shell.exec({ command: ['sh', '-c', 'echo ran >> log'] });
         const here = await mcp.filesystem.list_allowed_directories({});
         await Promise.all(Array.from({ length: here === '' ? 0 : 200 }, one));
         await one();
         return 'done'",
    );
    assert_eq!(question(&first)["context"]["count"], 200, "{first:#}");
    assert!(first["description"].as_str().unwrap().contains("200 times"), "{first:#}");
    // The yes covers the calls that were counted, and none after them.
    approve(&project, &first, false);
    let second = pml.resume(&first, true, false);
    assert_eq!(question(&second)["context"].get("count"), None);
    assert_eq!(project.read("log").lines().count(), 200);
    approve(&project, &second, false);
    assert_eq!(success(&pml.resume(&second, true, false)), "done");
    assert_eq!(project.read("log").lines().count(), 201);
}

/// NX-12: invalid arguments and paths outside the workspace are refused before the user is asked.
#[test]
fn invalid_calls_are_refused_without_a_question() {
    let project = Project::new();
    let mut pml = project.stdio();
    for (call, code) in [
        ("filesystem.read_file({})", "INVALID_ARGUMENTS"),
        ("filesystem.read_file({ path: 'a', head: 1, tail: 1 })", "INVALID_ARGUMENTS"),
        ("filesystem.read_media_file({ path: 1 })", "INVALID_ARGUMENTS"),
        ("filesystem.read_multiple_files({ paths: [] })", "INVALID_ARGUMENTS"),
        ("filesystem.list_directory({})", "INVALID_ARGUMENTS"),
        ("filesystem.list_directory_with_sizes({ path: '', sortBy: 'age' })", "INVALID_ARGUMENTS"),
        ("filesystem.directory_tree({ path: '', excludePatterns: ['['] })", "INVALID_ARGUMENTS"),
        ("filesystem.search_files({ path: '' })", "INVALID_ARGUMENTS"),
        ("filesystem.get_file_info({ path: '../x' })", "PATH_OUTSIDE_WORKSPACE"),
        ("shell.exec({ command: ['sh'], args: ['-c', 'true'] })", "INVALID_ARGUMENTS"),
        ("shell.exec({ command: 'git status' })", "INVALID_ARGUMENTS"),
    ] {
        failure(&pml.execute(&format!("return await mcp.{call}")), code);
    }
    let pending = pml.execute(
        "return (await mcp.shell.exec({ command: 'sh', args: ['-c', 'echo ran'] })).stdout",
    );
    approve(&project, question(&pending), false);
    assert_eq!(success(&pml.resume(&pending, true, false)), "ran\n");
}

/// NX-12: the question warns that a name only looks like one of PML's own.
#[test]
fn a_question_warns_about_look_alike_names() {
    let servers = json!({ "memorv": { "command": "cat" } });
    let project = Project::new().configure(&json!({ "mcpServers": servers }));
    let pending = project.stdio().execute("return await mcp.memorv.read_graph({})");
    let description = question(&pending)["description"].as_str().unwrap();
    assert!(description.contains("`memorv` looks like `memory`"), "{description}");
}

/// Concurrent calls with different arguments are separate questions, asked one after the other.
#[test]
fn concurrent_calls_are_asked_about_one_at_a_time() {
    let project = Project::new().allow(&["filesystem:list_allowed_directories"]);
    let mut pml = project.stdio();
    let mut envelope = pml.execute(
        "const here = await mcp.filesystem.list_allowed_directories({});
         const names = here === '' ? [] : ['a', 'b', 'c'];
         await Promise.all(names.map((name) => mcp.filesystem.write_file({ path: name, content: name })));
         return here !== '';",
    );
    let mut asked_tools = Vec::new();
    while envelope["status"] == "approval_required" && asked_tools.len() < 9 {
        asked_tools.push(envelope["context"]["tool"].as_str().unwrap().to_owned());
        envelope = pml.resume(&envelope, true, false);
    }
    assert_eq!(success(&envelope), true);
    assert_eq!(
        asked_tools.iter().filter(|tool| *tool == "filesystem:write_file").count(),
        3,
        "{asked_tools:?}"
    );
    for name in ["a", "b", "c"] {
        assert_eq!(project.read(name), name);
    }
}

/// AP-11: "always" allows exactly that tool, in this session and in later ones.
#[test]
fn always_writes_a_rule_for_exactly_that_tool() {
    let project = Project::new().configure(&json!({
        "permissions": { "deny": ["shell:*"], "allow": ["json:parse"] },
        "$schema": "https://example.com/kept-as-it-is",
    }));
    let mut pml = project.stdio();
    let code = "for (const n of await mcp.json.parse({ data: '[\"1\", \"2\"]' }))
          await mcp.filesystem.write_file({ path: n, content: n });
        return 'ok';";
    let pending = pml.execute(code);
    approve(&project, question(&pending), true);
    let done = pml.resume(&pending, true, false);
    assert_eq!(success(&done), "ok", "the second call of the tool is covered");

    let config: Value = serde_json::from_str(&project.read(".pml.json")).unwrap();
    let mut allow: Vec<&str> = config["permissions"]["allow"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    allow.sort_unstable();
    assert_eq!(allow, ["filesystem:write_file", "json:parse"]);
    assert_eq!(config["permissions"]["deny"], json!(["shell:*"]));
    assert_eq!(config["$schema"], "https://example.com/kept-as-it-is");

    let mut later = project.stdio();
    success(&later.execute(code));
    question(&later.execute("return await mcp.filesystem.read_text_file({ path: '1' })"));
    failure(
        &later.execute("return await mcp.shell.exec({ command: ['true'] })"),
        "PERMISSION_DENIED",
    );
}

/// AP-08, GW-24: a workflow id works once, in the process that issued it, for its principal.
#[test]
fn a_workflow_id_works_once_and_in_its_own_session_only() {
    let (project, mut pml) = two_questions();
    let first = pml.execute(TWO_QUESTIONS);
    question(&first);

    // Another session, another user.
    let mut other = project.stdio();
    failure(&other.resume(&first, true, false), "WORKFLOW_LOST");
    let mut stranger = Project::new().stdio();
    failure(&stranger.resume(&first, true, false), "WORKFLOW_LOST");
    for made_up in ["", "wl_x", "ws_00000000000000000000000000000000", "nonsense\u{1b}[2J"] {
        let answer = pml.resume(&json!({ "workflow_id": made_up }), true, false);
        failure(&answer, "WORKFLOW_NOT_FOUND");
        assert!(!answer.to_string().contains('\u{1b}'));
    }
    assert!(!project.path("first.txt").exists(), "an answer from another session was accepted");

    let second = pml.resume(&first, true, false);
    question(&second);
    failure(&pml.resume(&first, true, false), "WORKFLOW_LOST");
    assert_eq!(project.read("log"), "before\nbetween\n");

    // A paused run does not survive a restart, and the error states that.
    drop(pml);
    let mut restarted = project.stdio();
    let lost = restarted.resume(&second, true, false);
    failure(&lost, "WORKFLOW_LOST");
    assert!(lost["hint"].as_str().unwrap().contains("submit the program again"));
    assert!(!project.path("second.txt").exists());
}

/// The gateway's own workflow ids are forwarded to it. It answers another principal's id like an unknown one.
#[test]
fn gateway_workflow_ids_are_forwarded_to_the_gateway() {
    let tenant = Server::shared().tenant();
    let id = json!({ "workflow_id": format!("ws_{}", "0".repeat(32)) });
    let through_pml = Project::of(&tenant).stdio().resume(&id, true, false);
    failure(&through_pml, "WORKFLOW_NOT_FOUND");
    let arguments = json!({ "workflow_id": id["workflow_id"], "approved": true });
    let direct = HttpMcp::new(&tenant, Era::Stateless).call("pml_continue", arguments);
    failure(&direct["structuredContent"], "WORKFLOW_NOT_FOUND");
}

/// The decision about a run that is paused on the gateway arrives there with all of its fields.
#[test]
fn decisions_are_forwarded_to_the_gateway_unchanged() {
    let stub = GatewayStub::start(|request| {
        let arguments = request["params"]["arguments"].clone();
        let received = json!({
            "status": "success", "result": arguments, "execution_id": "ex_1", "executed": "server",
            "duration_ms": 1.0, "console": [], "calls": [], "tools_used": [], "dag": {},
        });
        Answer::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": {
            "resultType": "complete", "structuredContent": received,
            "content": [{ "type": "text", "text": received.to_string() }],
        }}))
    });
    let mut pml = Project::at(&stub.url).set("PML_API_KEY", "pml_test").stdio();
    let id = format!("ws_{}", "5".repeat(32));
    let answers = [
        pml.resume(&json!({ "workflow_id": id }), true, true),
        pml.execute_request(json!({
            "continue_workflow": { "workflow_id": id, "approved": true, "always": true },
        })),
    ];
    for answer in answers {
        let received = success(&answer);
        assert_eq!(
            (&received["workflow_id"], &received["approved"], &received["always"]),
            (&json!(id), &json!(true), &json!(true))
        );
    }
}

/// LM-04: a server from the registry is not started before the user approves it, even if its tools are allowed.
#[test]
fn a_registry_server_is_not_started_before_approval() {
    // `pml` does not ask about a server whose program is missing, and not every machine has `uvx`.
    let project = Project::new().allow(&["*"]);
    let programs = project.home().join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink("/bin/sh", programs.join("uvx")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let project = project.set("PATH", &format!("{path}:{}", programs.display()));
    let mut pml = project.stdio();
    let before = pml.pid().tree();
    let pending = pml.execute("return await mcp.time.get_current_time({ timezone: 'UTC' })");
    assert_eq!(question(&pending)["approval_type"], "dependency", "{pending:#}");
    let start = pending["context"]["start"].as_str().expect("what would be started is shown");
    assert!(start.contains("mcp-server-time"), "{start}");
    assert!(
        pml.pid()
            .tree()
            .iter()
            .all(|pid| { before.contains(pid) || !pid.command_line().contains("mcp-server-time") })
    );
    failure(&pml.resume(&pending, false, false), "APPROVAL_DENIED");
}

/// AP-02, AP-03: values in a question are escaped. A value is shown completely or, if it is long, shortened with its
/// length and hash.
#[test]
fn questions_escape_control_characters_and_shorten_long_values() {
    let project = Project::new();
    let mut pml = project.stdio();
    let pending = pml.execute(
        "return await mcp.filesystem.write_file({ path: 'a\\u202e\\u001b[2J', content: 'x'.repeat(50_000) + 'END' })",
    );
    let description = question(&pending)["description"].as_str().unwrap();
    assert!(description.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{description}");
    assert!(description.contains("\\u{202e}"), "{description}");
    assert!(
        description.len() < 5_000 && description.contains("characters in total, sha256-"),
        "{description}"
    );
    assert!(pending["context"]["code_hash"].as_str().unwrap().starts_with("sha256-"));
}

/// AP-09, AP-10: without a terminal, `pml exec` does not ask and does not run the call. "y" on a pipe is no approval.
#[test]
fn exec_without_a_terminal_denies_and_ignores_piped_answers() {
    let project = Project::new();
    project.write(
        "p.ts",
        "await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' }); return 1;",
    );
    for arguments in [&["exec", "p.ts"][..], &["exec", "p.ts", "--json"]] {
        let output = project.run_with(arguments, b"y\ny\na\n");
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!project.path("made.txt").exists());
    }
}

/// When the client disconnects, the paused run and its question end.
#[test]
fn a_disconnect_ends_the_paused_run() {
    let (project, mut pml) = two_questions();
    question(&pml.execute(TWO_QUESTIONS));
    pml.hang_up();
    assert!(pml.wait().success());
    assert_eq!(project.read("log"), "before\n");
    assert!(!project.path("first.txt").exists());
}
