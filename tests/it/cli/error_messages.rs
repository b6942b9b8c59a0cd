//! The messages for common mistakes, with their exact wording.

use crate::support::cli::{Project, text};
use crate::support::http::get;
use crate::support::server::Server;

/// Runs `pml` with a program on stdin; returns the exit code and stderr.
fn stderr_of(project: &Project, arguments: &[&str], program: &str) -> (Option<i32>, String) {
    let output = project.run_with(arguments, program.as_bytes());
    (output.status.code(), text(&output.stderr))
}

#[test]
fn invalid_options_are_reported_with_a_correction() {
    let project = Project::offline();
    for (arguments, words) in [
        (
            &["exec", "-", "--timeout-ms", "5s"][..],
            "error: invalid value '5s' for '--timeout-ms <MS>': write it in milliseconds, without a unit: 5000\n\nFor more information, try '--help'.\n",
        ),
        (
            &["exec", "-", "--args", "{a:1}"],
            "error: `--args` is not JSON: key must be a string at line 1 column 2\nhint: Write an object, with names in double quotes: --args '{\"path\": \"a.txt\"}'.\n",
        ),
        (
            &["exec", "-", "--args", "[1]"],
            "error: `--args` is an array, not an object\nhint: Write an object, with names in double quotes: --args '{\"path\": \"a.txt\"}'.\n",
        ),
        (
            &["login", "--url", "pml.acme.test"],
            "error: the gateway's URL `pml.acme.test` from the command line cannot be used: it has no scheme; write `https://pml.acme.test` [5008 CONFIG_INVALID]\nhint: Correct the file, variable or option that the message names; invalid ones are never skipped.\n",
        ),
    ] {
        assert_eq!(stderr_of(&project, arguments, "return 1"), (Some(2), words.to_owned()));
    }
}

/// Without a terminal to ask on, the message states the call, its arguments and how to allow it.
#[test]
fn without_a_terminal_the_message_states_how_to_allow_the_call() {
    let project = Project::offline();
    let (code, stderr) =
        stderr_of(&project, &["exec", "-"], "return await mcp.shell.exec({ command: ['ls'] })");
    assert_eq!(code, Some(3));
    let words = "error: `shell:exec` needs approval, but there is no terminal to ask on:\nRun `shell:exec` with {\"command\":[\"ls\"]} [1003 APPROVAL_DENIED]\nhint: Run it on a terminal to be asked: no rule can allow a command unless `policy.shell.allow` in `.pml.json` names its program.\n";
    assert!(stderr.ends_with(words), "{stderr}");
}

/// The user is not asked about a call that would be refused anyway.
#[test]
fn calls_that_would_fail_are_refused_without_a_question() {
    let project = Project::offline();
    std::os::unix::fs::symlink("/etc", project.path("link")).unwrap();
    for (call, code) in [
        ("filesystem.write_file({ path: '../evil.txt', content: '' })", "PATH_OUTSIDE_WORKSPACE"),
        ("filesystem.write_file({ path: 'link/evil', content: '' })", "PATH_OUTSIDE_WORKSPACE"),
        ("filesystem.write_file({ path: '.pml.json', content: '' })", "POLICY_DENIED"),
        ("filesystem.write_file({ pth: 'a.txt', content: '' })", "INVALID_ARGUMENTS"),
        ("filesystem.create_directory({ path: '/tmp/evil' })", "PATH_OUTSIDE_WORKSPACE"),
        ("filesystem.move_file({ source: 'a', destination: '../b' })", "PATH_OUTSIDE_WORKSPACE"),
        ("filesystem.edit_file({ path: '../a', edits: [] })", "PATH_OUTSIDE_WORKSPACE"),
        ("filesystem.read_text_file({ path: '../a' })", "PATH_OUTSIDE_WORKSPACE"),
        ("shell.exec({ command: 'ls -l' })", "INVALID_ARGUMENTS"),
        ("shell.exec({ command: ['ls'], cwd: '..' })", "PATH_OUTSIDE_WORKSPACE"),
        ("shell.exec({ command: ['no-such-program'] })", "TOOL_FAILED"),
    ] {
        let (envelope, _) = project.exec(&format!("return await mcp.{call}"));
        assert_eq!(envelope["error_code"], code, "{call}: {envelope}");
    }
    // A missing folder may be created by an earlier call, so this is a question.
    let (envelope, _) =
        project.exec("return await mcp.filesystem.write_file({ path: 'new/a', content: '' })");
    assert_eq!(envelope["status"], "approval_required", "{envelope}");
}

/// The user is not asked about a server whose program or key is missing.
#[test]
fn a_server_that_cannot_start_is_refused_without_a_question() {
    let servers = serde_json::json!({ "mcpServers": {
        "gone": { "command": "no-such-program" },
        "keyless": { "type": "stdio", "command": "sh", "env": { "TOKEN": "${NO_SUCH_TOKEN}" } },
    } });
    let project = Project::offline().configure(&servers);
    for (call, code, word) in [
        ("gone.x({})", "TOOL_UNAVAILABLE", "no-such-program"),
        ("keyless.x({})", "API_KEY_REQUIRED", "NO_SUCH_TOKEN"),
    ] {
        let (envelope, _) = project.exec(&format!("return await mcp.{call}"));
        assert_eq!(envelope["error_code"], code, "{envelope}");
        assert!(envelope["message"].as_str().unwrap().contains(word), "{envelope}");
    }
}

/// If the registry of npm cannot be reached, the message states that and what to do, before the start-up time limit;
/// also if it is `npx` that downloads the package, because the server is not sealed.
#[test]
fn a_failed_npx_download_is_explained() {
    for (fields, words, program) in [
        (
            serde_json::json!({ "sealed": false }),
            [
                "`npx` could not fetch it",
                "npm registry cannot be reached",
                "npm config get registry",
            ],
            "npx",
        ),
        (
            serde_json::json!({}),
            ["was not installed", "its registry cannot be reached", "settings of npm"],
            "node",
        ),
    ] {
        let mut entry = serde_json::json!({
            "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"] });
        entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let servers = serde_json::json!({
            "mcpServers": { "memory": entry }, "permissions": { "allow": ["memory:*"] } });
        let project =
            Project::offline().set("npm_config_registry", "http://127.0.0.1:1").configure(&servers);
        let (envelope, _) = project.exec("return await mcp.memory.read_graph({})");
        assert_eq!(envelope["error_code"], "TOOL_UNAVAILABLE", "{envelope}");
        let message = envelope["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "{message}");
        }
        // There is no Node on this `PATH`.
        let bare = project.set("PATH", "/nonexistent");
        let (envelope, _) = bare.exec("return await mcp.memory.read_graph({})");
        let message = envelope["message"].as_str().unwrap();
        let missing = format!("`{program}` was not found; install Node.js 18");
        assert!(message.contains(&missing), "{message}");
    }
}

/// `https` to a gateway that speaks plain HTTP.
#[test]
fn https_to_a_plain_http_port_is_explained() {
    let url = Server::shared().url().replace("http://", "https://");
    let project = Project::at(&url).set("PML_API_KEY", "pml_key_x");
    let (code, stderr) =
        stderr_of(&project, &["exec", "-"], "return await mcp.json.parse({ data: '1' })");
    assert_eq!(code, Some(4));
    let words = format!(
        "error: the gateway at {url} cannot be reached: that port does not use TLS; `pml` has no `json:parse` of its own [5005 GATEWAY_UNREACHABLE]\nhint: Write the URL with `http`, or give the gateway a certificate.\n"
    );
    assert!(stderr.ends_with(&words), "{stderr}");
}

/// Models guess `mcp.call_tool`; the message shows how tools are called.
#[test]
fn a_call_without_a_namespace_is_explained() {
    let (envelope, _) = Project::new().exec("return await mcp.call_tool('json:parse', {})");
    let words = "`mcp.call_tool` is not a tool; call a tool as `mcp.namespace.action({ … })`";
    assert!(envelope.to_string().contains(words), "{envelope}");
}

#[test]
fn unknown_entries_are_named_in_the_error() {
    let project = Project::of(&Server::shared().tenant_with_rights("read,publish"));
    for (arguments, what) in [
        (&["yank", "text.no@1.0.0"][..], "capability `text:no` 1.0.0"),
        (&["unpublish", "nowhere", "--yes"], "server `nowhere`"),
        (&["deprecate", "text.no", "old"], "capability `text:no`"),
    ] {
        let (code, stderr) = stderr_of(&project, arguments, "");
        let words = format!(
            "error: {what} is not published in the project of your API key [3018 NOT_FOUND]\n"
        );
        assert!(code == Some(1) && stderr.starts_with(&words), "{stderr}");
    }
    let url = format!("{}/api/v1/nowhere", Server::shared().url());
    let answer = get(&url, &[]).json();
    assert_eq!(answer["hint"], "`GET /openapi.json` lists the paths.", "{answer}");
}

/// Warnings have the same form as errors, without a timestamp.
#[test]
fn warnings_have_no_timestamp() {
    let project = Project::offline();
    project.write(".pml.json", r#"{"permissions": {"allow": ["json:*"]}}"#);
    let (_, stderr) = stderr_of(&project, &["exec", "-"], "return 1");
    assert!(stderr.starts_with("warning: `.pml.json` is not trusted"), "{stderr}");
}

/// Entries that are copied from `.mcp.json` are accepted. Unsupported ones are refused with a correction.
#[test]
fn server_entries_of_other_clients_are_accepted_or_explained() {
    let project = Project::offline();
    for (entry, message) in [
        (r#"{"type":"stdio","command":"sh"}"#, None),
        (r#"{"type":"http","url":"https://x.test/mcp","headers":{"A":"b"}}"#, None),
        (r#"{"url":"https://x.test/mcp"}"#, None),
        (r#"{"type":"streamable-http","url":"http://localhost:9/mcp","headers":{"A":"b"}}"#, None),
        (
            r#"{"type":"http","url":"http://x.test/mcp","headers":{"A":"canary"}}"#,
            Some("`headers` are sent only over `https`"),
        ),
        (r#"{"type":"sse","url":"https://x.test/sse"}"#, Some("also speaks Streamable HTTP")),
        (r#"{"type":"http"}"#, Some("has no `url`")),
        (
            r#"{"type":"http","url":"https://x.test","command":"sh"}"#,
            Some("either `command` or `url`"),
        ),
        (r#"{"type":"stdio","url":"https://x.test"}"#, Some("has a `url`")),
        (r#"{"command":"sh","headers":{}}"#, Some("`headers` but no `url`")),
        (r#"{"url":"https://x.test","headers":{"Host":"canary"}}"#, Some("is set by `pml` itself")),
        (r#"{"url":"https://u:canary@x.test"}"#, Some("use `headers`")),
        (r#"{"type":"carrier-pigeon","command":"sh"}"#, Some("write `stdio` or `http`")),
        (r#"{"args":["x"]}"#, Some("has no `command`")),
    ] {
        project.write(".pml.json", format!(r#"{{"mcpServers":{{"docs":{entry}}}}}"#));
        let output = project.run_with(&["exec", "-", "--json"], b"return 1");
        let out = text(&output.stdout);
        match message {
            None => assert!(output.status.success(), "{entry}: {out}"),
            Some(message) => {
                assert_eq!(output.status.code(), Some(2), "{entry}: {out}");
                assert!(out.contains("5008") && out.contains(message), "{entry}: {out}");
                assert!(!out.contains("canary"), "{out}");
            }
        }
    }
}

/// `pml doctor` checks the project, its gateway and its API key, and never prints the key.
#[test]
fn doctor_checks_the_project_its_gateway_and_key() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    assert!(project.run(&["init", "--yes"]).status.success());
    let look = |project: &Project| {
        let output = project.run(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!report.to_string().contains(&tenant.key), "the key is printed");
        let found = report["findings"].as_array().unwrap().clone();
        let state = move |what: &str| {
            let finding = found.iter().find(|finding| finding["what"] == what);
            let finding = finding.unwrap_or_else(|| panic!("no `{what}` in {found:?}"));
            (finding["state"].as_str().unwrap().to_owned(), finding["detail"].to_string())
        };
        (output.status.code(), state)
    };
    let (code, state) = look(&project);
    assert_eq!(code, Some(0));
    for (what, word) in [
        ("workspace", "work"),
        (".pml.json", "trusted"),
        ("gateway", "pml-server"),
        ("key", "rights: execute, read"),
    ] {
        let (state, detail) = state(what);
        assert!(state == "ok" && detail.contains(word), "{what}: {state} {detail}");
    }
    std::fs::create_dir(project.path(".cursor")).unwrap();
    let (_, state) = look(&project);
    let cursor = state(".cursor/mcp.json");
    assert_eq!(cursor.0, "warning");
    assert!(cursor.1.contains("not found; `pml init` writes it for Cursor"), "{}", cursor.1);

    let refused = Project::at(&tenant.url).set("PML_API_KEY", "pml_key_nobody");
    let (code, state) = look(&refused);
    assert_eq!((code, state("key").0.as_str()), (Some(3), "failed"));
    let (code, state) = look(&Project::offline());
    assert_eq!((code, state("gateway").0.as_str()), (Some(4), "failed"));
    let broken = Project::of(&tenant);
    broken.write(".pml.json", "{");
    let (code, state) = look(&broken);
    assert_eq!((code, state(".pml.json").0.as_str()), (Some(2), "failed"));
}
