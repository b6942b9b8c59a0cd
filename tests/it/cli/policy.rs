//! `policy` of `.pml.json`: what the calls of a program may touch.

use serde_json::{Value, json};

use crate::support::cli::{Project, policy_for, text};
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{StdioClient, envelope};
use crate::support::terminal::approve;
use crate::support::{PATIENCE, poll};

/// Creates a project in which rules allow everything, and only this policy restricts.
fn under(policy: &Value) -> (Project, StdioClient) {
    let project = Project::offline()
        .configure(&json!({ "permissions": { "allow": ["*"] }, "policy": policy }));
    for (path, content) in
        [("src/a.txt", "a"), ("private/b.txt", "secret"), ("notes.md", "n"), (".hidden", "h")]
    {
        project.write(path, content);
    }
    let pml = project.stdio();
    (project, pml)
}

fn call(tool: &str, arguments: &Value) -> String {
    format!("return await mcp.{}({arguments})", tool.replace(':', "."))
}

/// NP-01, NP-15: what the policy does not allow is refused without a question, whatever rules allow. The error says
/// which part of the policy, and nothing about the file.
#[test]
fn what_the_policy_denies_is_refused_without_a_question() {
    let (project, mut pml) = under(&json!({ "filesystem": {
        "read": { "allow": ["src/**", "*.md", "private/**"], "deny": ["private/**"] },
        "write": { "allow": ["src/**"] },
    } }));
    let read = |path: &str| call("filesystem:read_text_file", &json!({ "path": path }));
    let write =
        |path: &str| call("filesystem:write_file", &json!({ "path": path, "content": "x" }));
    assert_eq!(success(&pml.execute(&read("src/a.txt"))), "a");
    assert_eq!(success(&pml.execute(&read("notes.md"))), "n");
    success(&pml.execute(&write("src/new.txt")));
    for (code, expected) in [
        (
            read("private/b.txt"),
            "the policy does not allow `private/b.txt`: `policy.filesystem.read.deny` in `.pml.json` has `private/**`",
        ),
        (
            read("private/missing"),
            "the policy does not allow `private/missing`: `policy.filesystem.read.deny` in `.pml.json` has `private/**`",
        ),
        (
            read(".hidden"),
            "the policy does not allow `.hidden`: it is hidden, and `policy.filesystem.read.hidden` in `.pml.json` is not set",
        ),
        (
            read("other.txt"),
            "the policy does not allow `other.txt`: `policy.filesystem.read.allow` in `.pml.json` has no pattern for it",
        ),
        (
            write("notes.md"),
            "the policy does not allow `notes.md`: `policy.filesystem.write.allow` in `.pml.json` has no pattern for it",
        ),
        (
            call("shell:exec", &json!({ "command": ["true"] })),
            "tool `shell:exec` is denied: `policy.shell` in `.pml.json` is missing",
        ),
        (
            call("json:parse", &json!({ "data": "1" })),
            "tool `json:parse` is denied: `policy.tools` in `.pml.json` does not list it",
        ),
        (
            call("pml:search_tools", &json!({ "query": "x" })),
            "tool `pml:search_tools` is denied: `policy.tools` in `.pml.json` does not list it",
        ),
        (
            call("filesystem:move_file", &json!({ "source": "src/a.txt", "destination": "a.txt" })),
            "`policy.filesystem.read.allow`",
        ),
        (
            call("filesystem:create_directory", &json!({ "path": "deep/er" })),
            "`policy.filesystem.write.allow`",
        ),
        (
            call("filesystem:list_directory", &json!({ "path": "private" })),
            "`policy.filesystem.read.deny`",
        ),
        (
            call("filesystem:get_file_info", &json!({ "path": "private/b.txt" })),
            "`policy.filesystem.read.deny`",
        ),
    ] {
        let refused = pml.execute(&code);
        let message = failure(&refused, "POLICY_DENIED");
        assert!(message.contains(expected), "{code}: {message}");
        assert_eq!(refused["error_number"], 1002);
    }
    assert_eq!(project.read("notes.md"), "n");
    assert!(!project.path("a.txt").exists() && !project.path("deep").exists());
    // The program can catch it, as it can catch any error of a tool.
    let caught = pml.execute("try { await mcp.filesystem.read_text_file({ path: 'private/b.txt' }) } catch (e) { return e.code }");
    assert_eq!(success(&caught), "POLICY_DENIED");
}

/// `tools` lists the names that programs use, wherever the tools are. A rule may also have the full name.
#[test]
fn tools_of_the_gateway_are_listed_by_their_short_names() {
    let project = Project::new();
    let exec = |project: &Project| project.exec("return await mcp.math.eval({ expression: '7' })");
    let mut config =
        json!({ "permissions": { "allow": ["*"] }, "policy": { "tools": ["math:*"] } });
    let project = project.configure(&config);
    let (done, _) = exec(&project);
    assert_eq!((success(&done), &done["executed"]), (&json!(7), &json!("server")));
    config["policy"]["tools"] = json!(["json:*"]);
    let project = project.configure(&config);
    failure(&exec(&project).0, "POLICY_DENIED");
    config["policy"]["tools"] = json!(["math:*"]);
    config["permissions"] = json!({ "allow": ["*"], "deny": ["pml.mcp.math:eval"] });
    let project = project.configure(&config);
    failure(&exec(&project).0, "PERMISSION_DENIED");
    // It is asked about, although the policy does not have that name.
    config["permissions"] = json!({ "ask": ["pml.mcp.math:*"] });
    let project = project.configure(&config);
    let (asked, code) = exec(&project);
    assert_eq!((&asked["status"], code), (&json!("approval_required"), 3), "{asked:#}");
}

/// A refused call is in the record of its run, with the policy of the run.
#[test]
fn denials_are_recorded() {
    let policy = json!({ "filesystem": { "read": { "allow": ["src/**"] } } });
    let (project, mut pml) = under(&policy);
    let code = "const path = ['notes', 'md'].join('.');
        try { await mcp.filesystem.read_text_file({ path }) } catch {} return 1";
    success(&pml.execute(code));
    let shown = project.run(&["runs", "show", "--json"]);
    let run: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        run["policy"]["policy"]["filesystem"]["read"]["allow"],
        json!(["src/**"]),
        "{run:#}"
    );
    let call = &run["calls"][0];
    assert_eq!(call["error"]["code"], "POLICY_DENIED", "{run:#}");
    let verified = project.run(&["runs", "verify"]);
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}

/// Listings, trees and searches show no name that the policy does not let the program read, also not by a link.
#[test]
fn listings_show_only_what_may_be_read() {
    let (project, mut pml) = under(&json!({ "filesystem": {
        "read": { "allow": ["**"], "deny": ["private/**", "**/*.key"] },
    } }));
    project.write("src/x.key", "k");
    project.write("private/deep/c.txt", "c");
    std::os::unix::fs::symlink("private/b.txt", project.path("link.txt")).unwrap();
    std::os::unix::fs::symlink("private", project.path("linked")).unwrap();
    for (tool, arguments) in [
        ("filesystem:list_directory", json!({ "path": "." })),
        ("filesystem:list_directory_with_sizes", json!({ "path": "." })),
        ("filesystem:directory_tree", json!({ "path": "." })),
        ("filesystem:search_files", json!({ "path": ".", "pattern": "**/*" })),
        ("filesystem:search_files", json!({ "path": "src", "pattern": "*" })),
    ] {
        let listed = pml.execute(&call(tool, &arguments));
        let listed = success(&listed).to_string();
        for denied in ["private", "b.txt", "c.txt", "x.key", ".hidden", ".pml.json"] {
            assert!(!listed.contains(denied), "{tool}: {listed}");
        }
        assert!(listed.contains("a.txt") || listed.contains("notes.md"), "{tool}: {listed}");
    }
    for (tool, arguments) in [
        ("filesystem:read_text_file", json!({ "path": "link.txt" })),
        ("filesystem:read_text_file", json!({ "path": "linked/b.txt" })),
        ("filesystem:list_directory", json!({ "path": "linked" })),
        ("filesystem:directory_tree", json!({ "path": "linked" })),
        ("filesystem:search_files", json!({ "path": "linked", "pattern": "*" })),
        ("filesystem:read_media_file", json!({ "path": "link.txt" })),
    ] {
        failure(&pml.execute(&call(tool, &arguments)), "POLICY_DENIED");
    }
    let many = pml.execute(
        "return await mcp.filesystem.read_multiple_files({ paths: ['notes.md', 'link.txt', 'private/b.txt'] })",
    );
    let many = success(&many).to_string();
    assert!(!many.contains("secret") && many.contains("the policy does not allow"), "{many}");
}

/// A move takes everything in a folder to new paths, so each of them is judged at both places.
#[test]
fn a_move_does_not_get_around_the_policy() {
    let (project, mut pml) = under(&json!({ "filesystem": {
        "read": { "allow": ["**"], "deny": ["data/private/**"] },
        "write": { "allow": ["**"], "deny": ["done/locked/**"] },
    } }));
    project.write("data/private/b.txt", "secret");
    project.write("data/c.txt", "c");
    project.write("open/locked/d.txt", "d");
    let moved = |from: &str, to: &str| {
        call("filesystem:move_file", &json!({ "source": from, "destination": to }))
    };
    for (from, to, place) in [
        ("data", "shown", "data/private"),
        ("data/private", "shown", "data/private"),
        ("data/private/b.txt", "b.txt", "data/private/b.txt"),
        ("open", "done", "done/locked"),
        ("src/a.txt", "data/private/a.txt", "data/private/a.txt"),
    ] {
        let refused = pml.execute(&moved(from, to));
        let message = failure(&refused, "POLICY_DENIED");
        assert!(message.contains(&format!("`{place}`")), "{from} {to}: {message}");
    }
    assert_eq!(project.read("data/private/b.txt"), "secret");
    success(&pml.execute(&moved("data/c.txt", "c.txt")));
    success(&pml.execute(&moved("src", "moved")));
    assert_eq!(project.read("moved/a.txt"), "a");
}

/// NP-11, NP-12: sizes and counts hold for concurrent calls of a run, and the next run begins anew.
#[test]
fn limits_hold_for_concurrent_calls() {
    let (project, mut pml) = under(&json!({
        "filesystem": {
            "read": { "allow": ["**"], "max_bytes": 10 },
            "write": { "allow": ["out/**"], "max_bytes": 100, "max_total_bytes": 1000 },
        },
        "calls": { "filesystem:read_text_file": 20 },
    }));
    std::fs::create_dir(project.path("out")).unwrap();
    project.write("big.txt", "x\n".repeat(100));
    let read = |arguments: Value| call("filesystem:read_text_file", &arguments);
    for arguments in [
        json!({ "path": "big.txt" }),
        json!({ "path": "big.txt", "head": 6 }),
        json!({ "path": "big.txt", "tail": 7 }),
    ] {
        let refused = pml.execute(&read(arguments));
        let message = failure(&refused, "POLICY_DENIED");
        assert!(
            message.contains("`policy.filesystem.read.max_bytes` in `.pml.json` is 10"),
            "{message}"
        );
    }
    success(&pml.execute(&read(json!({ "path": "big.txt", "head": 5 }))));
    success(&pml.execute(&read(json!({ "path": "big.txt", "tail": 5 }))));

    let counted = pml.execute(
        "const all = await Promise.allSettled(Array.from({ length: 100 }, () => mcp.filesystem.read_text_file({ path: 'notes.md' })));
         return all.filter(one => one.status === 'fulfilled').length",
    );
    assert_eq!(*success(&counted), json!(20));

    for _ in 0..2 {
        let written = pml.execute(
            "const all = await Promise.allSettled(Array.from({ length: 100 }, (_, n) => mcp.filesystem.write_file({ path: `out/${n % 30}.txt`, content: 'x'.repeat(30) })));
             return [all.filter(one => one.status === 'fulfilled').length, all.filter(one => one.reason?.code === 'POLICY_DENIED').length]",
        );
        assert_eq!(*success(&written), json!([33, 67]));
    }
    let large = pml.execute(
        "return await mcp.filesystem.write_file({ path: 'out/l', content: 'x'.repeat(101) })",
    );
    failure(&large, "POLICY_DENIED");
    assert!(!project.path("out/l").exists());
    // An edit counts as what it writes.
    let edits = pml.execute(
        "let done = 0;
         await mcp.filesystem.write_file({ path: 'out/e', content: 'abc' });
         try { for (;;) { await mcp.filesystem.edit_file({ path: 'out/e', edits: [{ oldText: 'abc', newText: 'abc' }] }); done++ } } catch (e) { return [done, e.code] }",
    );
    assert_eq!(*success(&edits), json!([332, "POLICY_DENIED"]));
}

/// The time limit of a policy ends the run.
#[test]
fn the_time_of_a_run_is_limited() {
    let (_project, mut pml) = under(&json!({ "total_ms": 200 }));
    failure(&pml.execute("while (true) {}"), "TIME_LIMIT");
    success(&pml.execute("return 1"));
}

/// NP-08, NP-09, AP-11: a rule alone allows no command. A policy allows those of a resolved file, without denied
/// texts, in its time and with its amount of output.
#[test]
fn commands_run_without_a_question_only_by_policy() {
    let exec = |argv: &[&str]| call("shell:exec", &json!({ "command": argv }));
    let project = Project::offline().allow(&["*"]);
    let mut pml = project.stdio();
    let asked = pml.execute(&exec(&["true"]));
    assert_eq!(question(&asked)["options"], json!(["abort"]));
    assert_eq!(asked["context"]["can_be_allowed"], false);
    assert!(asked["context"]["reason"].as_str().unwrap().contains("`policy.shell.allow`"));
    approve(&project, &asked, false);
    success(&pml.resume(&asked, true, true));
    // Not even for the rest of the session.
    question(&pml.execute(&exec(&["true"])));

    let mut policy = policy_for(&["echo", "sleep"]);
    policy["shell"]["deny_tokens"] = json!(["--force"]);
    policy["shell"]["timeout_ms"] = json!(200);
    policy["shell"]["max_output_bytes"] = json!(5);
    let (project, mut pml) = under(&policy);
    let ran = pml.execute(&exec(&["echo", "hi"]));
    assert_eq!(success(&ran)["stdout"], "hi\n");
    let cut = pml.execute(&exec(&["echo", "a; rm -rf $HOME"]));
    assert_eq!(
        (&success(&cut)["stdout"], &success(&cut)["truncated"]),
        (&json!("a; rm"), &json!(true))
    );
    failure(&pml.execute(&exec(&["sleep", "60"])), "TOOL_TIMEOUT");
    std::fs::create_dir(project.path("bin")).unwrap();
    std::fs::copy("/bin/echo", project.path("bin/echo")).unwrap();
    std::os::unix::fs::symlink("/bin/sh", project.path("bin/sleep")).unwrap();
    for argv in [
        &["sh", "-c", "echo hi"][..],
        &["env", "echo", "hi"],
        &["./bin/echo", "hi"],
        &["bin/sleep", "-c", "true"],
        &["echo", "--force"],
        &["echo", "x--force-y"],
    ] {
        let refused = pml.execute(&exec(argv));
        let message = failure(&refused, "POLICY_DENIED");
        assert!(message.contains("the policy does not allow the command"), "{argv:?}: {message}");
    }
}

/// A command reaches the workspace only, unless the policy lists its program for more.
#[test]
fn commands_are_confined_unless_the_policy_says_otherwise() {
    let mut policy = policy_for(&["cat", "head", "wc"]);
    policy["shell"]["network"] = json!(["head"]);
    policy["shell"]["unconfined"] = json!(["wc"]);
    let (project, mut pml) = under(&policy);
    let secret = project.home().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let read = |program: &str, access: &str| {
        call("shell:exec", &json!({ "command": [program, secret], "access": access }))
    };
    for (program, access) in [("cat", "workspace"), ("head", "network"), ("wc", "workspace")] {
        let ran = pml.execute(&read(program, access));
        let result = success(&ran);
        assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(1), &json!("")), "{program}");
        assert!(result["note"].as_str().unwrap().contains("confined"), "{result}");
    }
    let ran = pml.execute(&read("wc", "unconfined"));
    assert!(success(&ran)["stdout"].as_str().unwrap().contains('6'), "{ran:#}");
    for (program, access, list) in
        [("cat", "network", "network"), ("head", "unconfined", "unconfined")]
    {
        let refused = pml.execute(&read(program, access));
        let message = failure(&refused, "POLICY_DENIED");
        assert!(message.contains(&format!("`policy.shell.{list}`")), "{message}");
    }
}

/// AP-15: whatever a rule allows, no program on this machine runs as a command without a question.
#[test]
fn no_program_is_silently_allowed() {
    let project = Project::offline().allow(&["*", "shell:*", "shell:exec"]);
    let mut names: Vec<String> = std::fs::read_dir("/usr/bin")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let step = names.len() / 200 + 1;
    let mut pml = project.stdio();
    let calls: Vec<String> = names
        .iter()
        .step_by(step)
        .map(|name| format!("mcp.shell.exec({{ command: [{name:?}, '--version'] }})"))
        .collect();
    assert!(calls.len() > 50, "{} programs", calls.len());
    let mut asked = 0;
    for some in calls.chunks(10) {
        // Each of them is in the question; a script whose interpreter is missing fails.
        let envelope = pml.execute(&format!("await Promise.allSettled([{}])", some.join(", ")));
        asked += question(&envelope)["context"]["calls"].as_array().map_or(1, Vec::len);
    }
    assert!(asked * 10 > calls.len() * 9, "{asked} of {}", calls.len());
}

/// CL-04: the policy of a file that is not trusted restricts, and grants nothing.
#[test]
fn an_untrusted_policy_only_restricts() {
    let project = Project::offline();
    let mut policy = policy_for(&["true"]);
    policy["filesystem"]["read"]["deny"] = json!(["private/**"]);
    project.write(
        ".pml.json",
        json!({ "permissions": { "allow": ["*"] }, "policy": policy }).to_string(),
    );
    project.write("private/b.txt", "secret");
    project.write(".hidden", "h");
    let mut pml = project.stdio();
    let read = |path: &str| call("filesystem:read_text_file", &json!({ "path": path }));
    failure(&pml.execute(&read("private/b.txt")), "POLICY_DENIED");
    let hidden = pml.execute(&read(".hidden"));
    assert_eq!(question(&hidden)["context"]["protected"][0]["path"], ".hidden");
    assert_eq!(
        question(&pml.execute(&call("shell:exec", &json!({ "command": ["true"] }))))["options"],
        json!(["abort"])
    );
}

/// A run keeps the policy that it began with; the next one has the new policy.
#[test]
fn an_edit_applies_to_the_next_run() {
    let (project, mut pml) = under(&policy_for(&["sh"]));
    let waits = "await mcp.shell.exec({ command: ['sh', '-c', 'touch began; until [ -e go ]; do sleep 0.02; done'] });
        const path = ['src', 'a.txt'].join('/');
        return await mcp.filesystem.read_text_file({ path });";
    let running = pml.begin(waits);
    poll("the program to run", PATIENCE, || project.path("began").exists().then_some(()));
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "policy": { "filesystem": { "read": { "allow": ["other/**"] } } },
    }));
    project.write("go", "");
    let ended = envelope(&pml.answer(running)["result"]);
    assert_eq!(success(&ended), "a");
    let read = call("filesystem:read_text_file", &json!({ "path": "src/a.txt" }));
    failure(&pml.execute(&read), "POLICY_DENIED");
}

/// `pml policy check` shows what a policy allows, and `pml permissions explain` applies it.
#[test]
fn the_commands_explain_the_policy() {
    let (project, _) = under(&json!({
        "filesystem": { "read": { "allow": ["src/**"], "max_bytes": 1000 } },
        "shell": { "allow": ["echo", "bash", "no-such-program"] },
        "tools": ["json:*"],
        "calls": { "json:*": 3 },
        "match": [{ "read": "src/a.txt" }],
        "no_match": [{ "write": "src/a.txt" }],
    }));
    let checked = project.run(&["policy", "check"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let shown = text(&checked.stdout);
    for line in [
        "The policy in `.pml.json` is valid (sha256-",
        "  Read:            src/**; no hidden files; at most 1000 bytes a file\n",
        "  Write:           none\n",
        ", no-such-program (not found)\n",
        "  Other tools:     json:*\n",
        "  Limits of a run: 3 calls of json:*\n",
        "  Examples:        2, all of them hold\n",
        "note: `policy.shell.allow`: `bash` can run any other program, so this allows every command.\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let json: Value =
        serde_json::from_slice(&project.run(&["policy", "check", "--json"]).stdout).unwrap();
    assert_eq!((&json["source"], &json["trusted"]), (&json!("file"), &json!(true)));
    assert_eq!(json["findings"].as_array().unwrap().len(), 3, "{json:#}");
    for (arguments, verdict, in_reason) in [
        (json!({ "path": "src/a.txt" }), "runs", "`allow` has `*`"),
        (json!({ "path": "notes.md" }), "denied", "has no pattern for it"),
    ] {
        let arguments = arguments.to_string();
        let command =
            ["permissions", "explain", "filesystem:read_text_file", arguments.as_str(), "--json"];
        let explained: Value = serde_json::from_slice(&project.run(&command).stdout).unwrap();
        assert_eq!(explained["verdict"], verdict, "{explained:#}");
        assert!(explained["reason"].as_str().unwrap().contains(in_reason), "{explained:#}");
    }

    project.write("other.json", r#"{ "policy": { "match": [{ "read": "x" }] } }"#);
    let refused = project.run(&["policy", "check", "other.json"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("the example `{\"read\": \"x\"}` in `match` is denied"),
        "{}",
        text(&refused.stderr)
    );
    // Such a file stops every command.
    project.write(".pml.json", r#"{ "policy": { "match": [{ "read": "x" }] } }"#);
    let stopped = project.run(&["exec", "-"]);
    assert!(text(&stopped.stderr).contains("CONFIG_INVALID"), "{}", text(&stopped.stderr));
    std::fs::remove_file(project.path(".pml.json")).unwrap();
    let built_in = project.run(&["policy", "check"]);
    assert!(
        text(&built_in.stdout)
            .starts_with("`.pml.json` has no `policy`, so the built-in one applies.\n")
    );
}
