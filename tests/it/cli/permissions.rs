//! The permission rules of `.pml.json`, which are checked on every call.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{calls, failure, question, success};
use crate::support::mcp_client::StdioClient;

const LIST: &str = "return typeof await mcp.filesystem.list_directory({ path: '.' })";

/// CL-08: `deny` takes precedence over `allow`, whatever the order and breadth of the patterns.
#[test]
fn deny_takes_precedence_over_allow() {
    for (rules, denied) in [
        (json!({ "allow": ["*"], "deny": ["filesystem:*"] }), true),
        (
            json!({ "deny": ["filesystem:list_directory"], "allow": ["filesystem:*", "filesystem:list_directory"] }),
            true,
        ),
        (json!({ "deny": ["*"], "allow": ["filesystem:list_directory"] }), true),
        (json!({ "deny": ["filesystem:write_file"], "allow": ["*"] }), false),
    ] {
        let envelope =
            Project::new().configure(&json!({ "permissions": rules })).stdio().execute(LIST);
        if denied {
            assert!(
                failure(&envelope, "PERMISSION_DENIED").contains("filesystem:list_directory"),
                "{rules}"
            );
        } else {
            assert_eq!(success(&envelope), "string", "{rules}");
        }
    }
}

/// CL-08: no spelling of a call bypasses `deny`.
#[test]
fn no_spelling_of_a_call_bypasses_deny() {
    let project = Project::new()
        .configure(&json!({ "permissions": { "deny": ["filesystem:*"], "allow": ["*"] } }));
    project.write("a.txt", "secret");
    let mut pml = project.stdio();
    for code in [
        "return await mcp['filesystem']['read_text_file']({ path: 'a.txt' })",
        "const f = mcp.filesystem; return await f.read_text_file({ path: 'a.txt' })",
        "const { filesystem: { read_text_file: read } } = mcp; return await read({ path: 'a.txt' })",
        "const n = 'file' + 'system'; return await mcp[n].read_text_file({ path: 'a.txt' })",
        "const n = [...'metsyselif'].reverse().join(''); return await mcp[n].read_text_file({ path: 'a.txt' })",
        "return await m\\u0063p.filesystem.read_text_file({ path: 'a.txt' })",
        "try { return await mcp.filesystem.read_text_file({ path: 'a.txt' }) } catch (e) { return await mcp.filesystem?.read_text_file?.({ path: 'a.txt' }) }",
        "return await mcp.Filesystem.read_text_file({ path: 'a.txt' })",
    ] {
        let envelope = pml.execute(code);
        assert_eq!(envelope["status"], "error", "{code}: {envelope:#}");
        assert!(!envelope.to_string().contains("secret"), "{code}: {envelope:#}");
    }
}

/// A program that names a denied tool is refused before any of it runs.
#[test]
fn a_denied_tool_refuses_the_whole_program() {
    let project = Project::new()
        .configure(&json!({ "permissions": { "deny": ["shell:exec"], "allow": ["*"] } }));
    let envelope = project.stdio().execute(
        "await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' });
         try { await mcp.shell.exec({ command: ['true'] }); } catch {}",
    );
    failure(&envelope, "PERMISSION_DENIED");
    assert!(!project.path("made.txt").exists());
}

/// An `ask` rule applies to the gateway's tools, too, even in a program that uses nothing else.
#[test]
fn ask_rules_apply_to_server_tools() {
    let project = Project::new()
        .configure(&json!({ "permissions": { "ask": ["json:*"], "allow": ["math:*"] } }));
    let mut pml = project.stdio();
    let code = "const n = await mcp.math.eval({ expression: '1+1' });
        return await mcp.json.parse({ data: args.text + n })";
    let run = json!({ "code": code, "args": { "text": "4" } });
    let pending = pml.execute_request(run.clone());
    question(&pending);
    assert!(pending["description"].as_str().unwrap().contains("json:parse"), "{pending:#}");
    let done = pml.resume(&pending, true, false);
    assert_eq!(success(&done), 42);
    let sides: Vec<_> = calls(&done).into_iter().map(|(_, side)| side).collect();
    assert_eq!(sides, ["server", "server"], "{done:#}");
    let pending = pml.execute_request(run);
    question(&pending);
    failure(&pml.resume(&pending, false, false), "APPROVAL_DENIED");
    // The control: without such a rule, the gateway runs the program.
    let plain = Project::new().stdio().execute("return await mcp.math.eval({ expression: '1' })");
    assert_eq!((success(&plain), &plain["executed"]), (&json!(1), &json!("server")));
}

/// A rule that asks about everything else is not about a tool that is allowed, whatever its full name. A run and its plan
/// agree on the side.
#[test]
fn an_allowed_tool_is_not_asked_about_by_its_full_name() {
    let code = "return await mcp.math.eval({ expression: '1' })";
    for (allow, ask, side) in [
        ("math:*", "*", "server"),
        ("math:*", "pml.mcp.math:eval", "server"),
        ("json:*", "pml.mcp.math:eval", "client"),
        ("json:*", "json:*", "server"),
    ] {
        let rules = json!({ "allow": [allow], "ask": [ask] });
        let project = Project::new().configure(&json!({ "permissions": rules }));
        let mut pml = project.stdio();
        let dry = pml.execute_request(json!({ "code": code, "options": { "dry_run": true } }));
        assert_eq!(success(&dry)["routing"], side, "{allow} {ask}: {dry:#}");
        let mut done = pml.execute(code);
        if side == "client" {
            question(&done);
            done = pml.resume(&done, true, false);
        }
        assert_eq!((success(&done), &done["executed"]), (&json!(1), &json!(side)), "{allow} {ask}");
    }
    // The rules that `pml init` writes.
    let project = Project::new();
    assert!(project.run(&["init", "--yes"]).status.success());
    let (done, _) = project.exec(code);
    assert_eq!((success(&done), &done["executed"]), (&json!(1), &json!("server")), "{done:#}");
}

/// `deny` and `ask` apply to configured MCP servers, including those that were used before.
#[test]
fn rules_apply_to_configured_mcp_servers() {
    let project = Project::new();
    let memory = json!({ "memory": project.node_server("server-memory", &[]) });
    let project = project
        .configure(&json!({ "mcpServers": memory, "permissions": { "allow": ["memory:*"] } }));
    let graph = "return await mcp.memory.read_graph({})";
    success(&project.stdio().execute(graph));

    let rules = json!({ "mcpServers": memory, "permissions": { "allow": ["*"], "deny": ["memory:read_graph"] } });
    let project = project.configure(&rules);
    let mut pml = project.stdio();
    failure(&pml.execute(graph), "PERMISSION_DENIED");
    let dynamic = "const name = ['mem', 'ory'].join(''); return await mcp[name].read_graph({})";
    let envelope = pml.execute(dynamic);
    assert_eq!(envelope["status"], "error", "{envelope:#}");

    let project = project.configure(&json!({ "mcpServers": memory }));
    question(&project.stdio().execute(graph));
}

/// AP-13: what a server says about its own tools decides nothing.
#[test]
fn annotations_of_a_server_allow_nothing() {
    let server = json!({ "command": "python3", "args": ["claims.py"] });
    let project = Project::offline().configure(&json!({ "mcpServers": { "claims": server } }));
    project.write("claims.py", include_str!("../../fixtures/claims_to_read.py"));
    let wipe = "return await mcp.claims.wipe({})";
    // Known or not: it is asked about before and after the first call, and no plan says that it reads.
    for _ in 0..2 {
        let mut pml = project.stdio();
        let asked = pml.execute(wipe);
        assert_eq!(question(&asked)["context"]["tool"], "claims:wipe");
        assert!(!project.path("wiped").exists());
        success(&pml.resume(&asked, true, false));
        assert!(project.path("wiped").exists());
        std::fs::remove_file(project.path("wiped")).unwrap();
        project.write("wipe.ts", wipe);
        let plan = project.run(&["plan", "wipe.ts", "--json"]);
        let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
        assert_eq!(plan["tasks"][0]["effect"], "calls", "{plan:#}");
    }
}

/// CL-07: an invalid `.pml.json` stops the command. It is never treated as an empty one.
#[test]
fn an_invalid_configuration_stops_exec() {
    for broken in [
        "{ \"permissions\": { \"deny\": [\"filesystem:*\"], ",
        "[]",
        "null",
        "{ \"permissions\": { \"deny\": \"filesystem:*\" } }",
        "{ \"permissions\": { \"deny\": [\"filesystem\"] } }",
        "{ \"permissions\": { \"deny\": [\"a:*\"], \"deny\": [] } }",
        "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> x",
        "",
        "{\"permissions\":{\"allow\":[\"*\"]}} trailing",
    ] {
        let project = Project::new();
        project.write("a.txt", "secret");
        project.write(".pml.json", broken);
        let output = project.run_with(
            &["exec", "-", "--json"],
            b"return await mcp.filesystem.read_text_file({ path: 'a.txt' })",
        );
        assert!(!output.status.success(), "{broken}");
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(printed.contains(".pml.json"), "{broken}: {printed}");
        assert!(!printed.contains("secret"), "{broken}: {printed}");
        assert!(!printed.contains("approval_required"), "{broken}: {printed}");
    }
}

/// CL-07: `pml stdio` runs nothing with an invalid configuration.
#[test]
fn an_invalid_configuration_stops_pml_stdio() {
    let project = Project::new();
    project.write(".pml.json", "{ not json");
    project.write("a.txt", "secret");
    let mut pml = StdioClient::spawn(
        project.command(&["stdio"]),
        crate::support::mcp_client::Era::Handshake,
        &project.log(),
    );
    let id = pml.send(
        "tools/call",
        json!({ "name": "pml_execute", "arguments": { "code": "return await mcp.filesystem.read_text_file({ path: 'a.txt' })" } }),
    );
    pml.hang_up();
    let answer = pml.answer_within(id, crate::support::PATIENCE);
    let ended = pml.wait();
    let printed = std::fs::read_to_string(project.log()).unwrap();
    match answer {
        Some(answer) => assert!(!answer.to_string().contains("secret"), "{answer}"),
        None => assert!(!ended.success() && printed.contains(".pml.json"), "{ended}: {printed}"),
    }
}

/// CL-04: `allow` rules of a repository's configuration have no effect until the user trusts its content.
#[test]
fn an_untrusted_configuration_grants_nothing() {
    let project = Project::new();
    project.write("a.txt", "x");
    project.write(".pml.json", r#"{ "permissions": { "allow": ["*"], "deny": ["shell:*"] } }"#);
    let read = "return await mcp.filesystem.read_text_file({ path: 'a.txt' })";
    let mut pml = project.stdio();
    question(&pml.execute(read));
    failure(
        &pml.execute("return await mcp.shell.exec({ command: ['true'] })"),
        "PERMISSION_DENIED",
    );

    // Without a terminal, `--yes` alone is not the decision of a person.
    let unattended = project.set("PML_TRUST_NONINTERACTIVE", "");
    let refused = unattended.run(&["trust", "--yes"]);
    assert!(!refused.status.success());
    let attended = unattended.set("PML_TRUST_NONINTERACTIVE", "1");
    assert!(attended.run(&["trust", "--yes"]).status.success());
    success(&attended.stdio().execute(read));

    // Trust is for the exact content: any change revokes it.
    attended.write(".pml.json", r#"{ "permissions": { "allow": ["*"], "deny": [] } }"#);
    question(&attended.stdio().execute(read));
}

/// PC-01, PC-03, PC-09: native file tools cannot reach files outside the workspace.
#[test]
fn file_tools_cannot_leave_the_workspace() {
    let project = Project::new().allow(&["filesystem:*"]);
    let outside = project.home().join("secret.txt");
    std::fs::write(&outside, "outside").unwrap();
    std::os::unix::fs::symlink(&outside, project.path("link")).unwrap();
    project.write("inside.txt", "inside");
    let mut pml = project.stdio();
    let shown = outside.display().to_string();
    for path in
        ["../home/secret.txt", "link", "/etc/passwd", shown.as_str(), "./x/../../home/secret.txt"]
    {
        let envelope = pml
            .execute(&format!("return await mcp.filesystem.read_text_file({{ path: {path:?} }})"));
        assert_eq!(envelope["status"], "error", "{path}: {envelope:#}");
        assert!(!envelope["result"].is_string(), "{path}");
    }
    // A new file below a linked folder would be created at the target of the link.
    std::os::unix::fs::symlink(project.home(), project.path("linked")).unwrap();
    for path in ["linked/new.txt", "linked/deep/new.txt", "../home/new.txt"] {
        for code in [
            format!("await mcp.filesystem.write_file({{ path: {path:?}, content: 'x' }})"),
            format!("await mcp.filesystem.create_directory({{ path: {path:?} }})"),
            format!(
                "await mcp.filesystem.move_file({{ source: 'inside.txt', destination: {path:?} }})"
            ),
        ] {
            let envelope = pml.execute(&code);
            assert_eq!(envelope["status"], "error", "{code}: {envelope:#}");
        }
    }
    assert!(!project.home().join("new.txt").exists() && !project.home().join("deep").exists());
    let inside = project.path("inside.txt").display().to_string();
    for path in ["inside.txt", "./inside.txt", inside.as_str()] {
        let envelope = pml
            .execute(&format!("return await mcp.filesystem.read_text_file({{ path: {path:?} }})"));
        assert_eq!(success(&envelope), "inside", "{path}");
    }
}

/// PC-10: file names in what a server returns lead nowhere else than names in the program.
#[test]
fn file_names_in_results_stay_inside() {
    let project = Project::offline();
    let server = project.node_server("server-everything", &[]);
    let project = project.configure(&json!({
        "permissions": { "allow": ["filesystem:*", "everything:echo"] },
        "mcpServers": { "everything": server },
    }));
    std::os::unix::fs::symlink(project.home(), project.path("linked")).unwrap();
    let outside = project.home().join("absolute.txt").display().to_string();
    let hostile = [
        "../x.txt",
        "a/../../x.txt",
        "/x.txt",
        &outside,
        "linked/x.txt",
        "./../home/x.txt",
        "..",
        "a/b/../../../x.txt",
        "file:///x.txt",
        "~/../../x.txt",
        "x.txt\u{0}.png",
    ];
    let code = "
        const codes = [];
        for (const name of args.names) {
            // Like the attachments of a mail: the server chooses the name.
            const named = (await mcp.everything.echo({ message: name })).replace('Echo: ', '');
            try {
                await mcp.filesystem.write_file({ path: named, content: 'x' });
                codes.push('written');
            } catch (error) { codes.push(error.code) }
        }
        return codes";
    let mut pml = project.stdio();
    let names = hostile.iter().copied().chain(["inside.txt"]);
    let names: Vec<&str> = names.collect();
    let done = pml.execute_request(json!({ "code": code, "args": { "names": names } }));
    let codes = success(&done).as_array().unwrap();
    for (name, code) in names.iter().zip(codes) {
        let is_inside = matches!(*name, "inside.txt" | "file:///x.txt" | "~/../../x.txt");
        assert!(is_inside || code != "written", "{name}: {code}");
    }
    assert_eq!(codes.last().unwrap(), "written");
    let mut found: Vec<String> = std::fs::read_dir(project.home())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".txt"))
        .collect();
    found.extend(
        ["/x.txt"]
            .into_iter()
            .filter(|path| std::path::Path::new(path).exists())
            .map(str::to_owned),
    );
    found.extend(
        project.workspace().parent().unwrap().join("x.txt").exists().then(|| "../x.txt".to_owned()),
    );
    assert_eq!(found, Vec::<String>::new());
}

/// What `pml permissions explain` says is what happens.
#[test]
fn explanations_agree_with_what_happens() {
    let rules = json!({
        "allow": ["filesystem:read_text_file", "filesystem:write_file"],
        "deny": ["filesystem:move_file"],
    });
    let project = Project::offline().configure(&json!({ "permissions": rules }));
    project.write("a.txt", "A");
    std::os::unix::fs::symlink("a.txt", project.path("link")).unwrap();
    let mut pml = project.stdio();
    for (tool, arguments, verdict, in_text) in [
        ("filesystem:read_text_file", json!({ "path": "a.txt" }), "runs", "Runs: `allow` has"),
        (
            "filesystem:read_text_file",
            json!({ "path": "../b" }),
            "fails",
            "is outside the workspace",
        ),
        ("filesystem:read_text_file", json!({ "pth": "a.txt" }), "fails", "invalid arguments"),
        (
            "filesystem:write_file",
            json!({ "path": "AGENTS.md", "content": "x" }),
            "asks",
            "Only you can approve it: the call touches a protected place.\n",
        ),
        (
            "filesystem:get_file_info",
            json!({ "path": "link" }),
            "asks",
            "The question:\n  `link` leads to `a.txt`\n  Run `filesystem:get_file_info` with {\"path\":\"link\"}\n",
        ),
        (
            "filesystem:move_file",
            json!({ "source": "a.txt", "destination": "b.txt" }),
            "denied",
            "`deny` has `filesystem:move_file` in `.pml.json`",
        ),
        (
            "shell:exec",
            json!({ "command": ["true"] }),
            "asks",
            "can change every file in the workspace",
        ),
    ] {
        let given = arguments.to_string();
        let command = ["permissions", "explain", tool, given.as_str()];
        let shown = project.run(&command);
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        assert!(text(&shown.stdout).contains(in_text), "{tool} {given}: {}", text(&shown.stdout));
        let output = project.run(&[&command[..], &["--json"]].concat());
        let explained: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(explained["verdict"], verdict, "{tool} {given}: {explained:#}");
        let call = tool.replace(':', ".");
        let happened = pml.execute(&format!("return await mcp.{call}({given})"));
        match verdict {
            "runs" => drop(success(&happened).clone()),
            "asks" => {
                assert_eq!(question(&happened)["description"], explained["question"]);
                assert_eq!(
                    happened["context"].get("needs_person").unwrap_or(&json!(null)),
                    &explained["needs_person"]
                );
                assert_eq!(happened["context"]["reason"], explained["reason"]);
            }
            _ => {
                assert_eq!(happened["status"], "error", "{tool} {given}");
                let why = explained["reason"].as_str().unwrap();
                assert!(happened["message"].as_str().unwrap().contains(why), "{happened:#}: {why}");
            }
        }
    }
    assert_eq!(project.read("a.txt"), "A");
    // Without arguments, the rules alone.
    let shown = project.run(&["permissions", "explain", "filesystem:write_file"]);
    assert!(text(&shown.stdout).starts_with("Runs: `allow` has"), "{}", text(&shown.stdout));
    for command in [
        ["permissions", "explain", "write_file", "{}"],
        ["permissions", "explain", "filesystem:write_file", "[]"],
        ["permissions", "explain", "filesystem:write_file", "{\"path\":\"a\",\"path\":\"b\"}"],
        ["permissions", "explain", "filesystem:write_file", "{"],
    ] {
        let refused = project.run(&command);
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", text(&refused.stderr));
    }
    let unknown = project.run(&["permissions", "explain", "nothing:here"]);
    assert!(!unknown.status.success() && text(&unknown.stdout).is_empty());
}
