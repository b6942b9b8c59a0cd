//! `pml lock`: a program and the tools that it reaches are pinned, and a run of anything else is refused.

mod during_runs;

use serde_json::{Value, json};

use crate::cli::server_starts::{publish, tenant};
use crate::registry::capabilities::{DOUBLE, author, published};
use crate::support::cli::{Project, text};
use crate::support::expect::{calls, failure, success};
use crate::support::server::Server;

/// A program that shows by a file that it ran.
const PROGRAM: &str = "// Makes a file.
await mcp.filesystem.write_file({ path: \"made.txt\", content: \"x\" });
return await mcp.filesystem.read_text_file({ path: 'made.txt' });
";

/// Runs `pml`; returns its exit code, stdout and stderr.
fn run(project: &Project, arguments: &[&str]) -> (i32, String, String) {
    let output = project.run(arguments);
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Writes a program, and locks it.
#[track_caller]
fn locked(project: &Project, code: &str) -> String {
    project.write("a.ts", code);
    let (code, said, warned) = run(project, &["lock", "a.ts"]);
    assert_eq!((code, &*warned), (0, ""), "{said}");
    said
}

#[track_caller]
fn exec(project: &Project) -> Value {
    let (_, said, warned) = run(project, &["exec", "--json", "a.ts"]);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{warned}"))
}

#[track_caller]
fn check(project: &Project) -> (i32, Value) {
    let (code, said, warned) = run(project, &["lock", "a.ts", "--check", "--json"]);
    (code, serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{warned}")))
}

/// Asserts that a run is refused before it made a call; returns the message.
#[track_caller]
fn refused(project: &Project) -> String {
    let envelope = exec(project);
    assert!(envelope.get("calls").is_none(), "a call was made: {envelope:#}");
    failure(&envelope, "INTEGRITY_MISMATCH").to_owned()
}

/// LK-01: an edited program is refused before it makes a call, and the difference is shown. Another formatting is no
/// edit.
#[test]
fn a_locked_program_runs_until_it_is_edited() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let said = locked(&project, PROGRAM);
    assert!(said.starts_with("a.ts.lock was written: 2 tools, program sha256-"), "{said}");
    assert!(
        said.contains("\n- filesystem:write_file: built into `pml`, on this machine\n"),
        "{said}"
    );
    assert_eq!(success(&exec(&project)), "x");
    assert_eq!(run(&project, &["lock", "a.ts", "--check"]).0, 0);
    let (code, said, _) = run(&project, &["lock", "a.ts"]);
    assert!(code == 0 && said.starts_with("a.ts.lock is up to date: 2 tools, "), "{said}");

    project.write("a.ts", PROGRAM.replace("// Makes a file.\n", "/* ? */").replace('"', "'"));
    assert_eq!(success(&exec(&project)), "x");
    let (code, checked) = check(&project);
    assert_eq!((code, &checked["equal"], &checked["tools"]), (0, &json!(true), &json!([])));

    std::fs::remove_file(project.path("made.txt")).unwrap();
    project.write("a.ts", PROGRAM.replace("\"x\"", "\"y\""));
    let message = refused(&project);
    assert!(
        message.contains("not what `a.ts.lock` has:\nthe program changed: sha256-"),
        "{message}"
    );
    let (code, _, shown) = run(&project, &["exec", "a.ts"]);
    assert_eq!(code, 2, "{shown}");
    let hint = "hint: Review the difference; if it is intended, run `pml lock a.ts`.\n";
    assert!(shown.contains("[4002 INTEGRITY_MISMATCH]") && shown.ends_with(hint), "{shown}");
    assert!(!project.path("made.txt").exists());
    let shown = run(&project, &["runs", "show", "last"]).1;
    assert!(shown.contains("INTEGRITY_MISMATCH"), "the refusal is on record: {shown}");

    let (code, checked) = check(&project);
    let program = &checked["program"];
    assert_eq!((code, &checked["equal"], &program["changed"]), (2, &json!(false), &json!(true)));
    assert_ne!(program["from"], program["to"]);
    let (code, said, _) = run(&project, &["lock", "a.ts", "--check"]);
    assert_eq!(code, 2);
    assert!(
        said.starts_with("Changed since a.ts.lock was written:\n- the program changed: sha256-"),
        "{said}"
    );
    assert!(!project.path("made.txt").exists());

    let (code, said, _) = run(&project, &["lock", "a.ts"]);
    assert!(code == 0 && said.contains("Changed since it was written last:\n"), "{said}");
    assert_eq!(success(&exec(&project)), "y");
    let (_, said, _) = run(&project, &["lock", "a.ts", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["written"], &said["not_known"]), (&json!(false), &json!([])));
    let lock: Value = serde_json::from_str(&project.read("a.ts.lock")).unwrap();
    assert_eq!(said["lock"], lock);
}

/// LK-08: the ends of lines are formatting, but texts that only look alike are different programs.
#[test]
fn a_text_that_looks_alike_is_another_program() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let program = PROGRAM.replace("\"x\"", "\"\u{e9}\"");
    locked(&project, &program);
    project.write("a.ts", program.replace('\n', "\r\n"));
    assert_eq!(success(&exec(&project)), "\u{e9}");
    project.write("a.ts", program.replace('\u{e9}', "e\u{301}"));
    assert!(refused(&project).contains("the program changed: sha256-"));
    assert_eq!(project.read("made.txt"), "\u{e9}");
}

/// A file that the program imports is part of it.
#[test]
fn an_edited_import_is_refused() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("lib/n.ts", "export const n = 1;");
    let program = "import { n } from './lib/n.ts'; return n + 1";
    locked(&project, program);
    project.write("lib/n.ts", "// One.\nexport const n = 1");
    assert_eq!(success(&exec(&project)), 2);
    project.write("lib/n.ts", "export const n = 2;");
    assert!(refused(&project).contains("the program changed: sha256-"));
}

/// A program with another tool is refused; the tool is named.
#[test]
fn added_and_removed_tools_are_named() {
    let project = Project::offline().allow(&["filesystem:*"]);
    locked(&project, PROGRAM);
    let other = PROGRAM.replace("filesystem.read_text_file", "filesystem.get_file_info");
    project.write("a.ts", other);
    let message = refused(&project);
    for line in [
        "\n`filesystem:get_file_info`: added, built into `pml`, on this machine",
        "\n`filesystem:read_text_file`: removed, built into `pml`, on this machine",
    ] {
        assert!(message.contains(line), "{line}: {message}");
    }
    let changes = check(&project).1["tools"].clone();
    let expected = json!([
        { "tool": "filesystem:get_file_info", "change": "added" },
        { "tool": "filesystem:read_text_file", "change": "removed" },
    ]);
    assert_eq!(changes, expected);

    // A server of `.pml.json` that takes the place of the tools of `pml` is named, too.
    project.write("a.ts", PROGRAM);
    let replaced = project.configure(&json!({
        "permissions": { "allow": ["filesystem:*"] },
        "mcpServers": { "filesystem": { "command": "python3", "args": ["x.py"], "override": true } },
    }));
    let message = refused(&replaced);
    let line = "`filesystem:write_file`: kind native → configured";
    assert!(message.contains(line), "{message}");
}

/// LK-03: `--frozen` requires a lock. A malformed one refuses the run with or without it, and is not replaced.
#[test]
fn a_missing_or_malformed_lock_refuses_the_run() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.ts", PROGRAM);
    let (code, _, said) = run(&project, &["exec", "--frozen", "a.ts"]);
    assert_eq!(code, 2);
    assert!(said.contains("`a.ts.lock` does not exist, and `--frozen` was given"), "{said}");
    assert!(said.contains("hint: Write it with `pml lock a.ts`, and commit it."), "{said}");
    let (code, _, said) = run(&project, &["lock", "a.ts", "--check"]);
    assert!(code == 2 && said.contains("`a.ts.lock` does not exist"), "{said}");
    for arguments in [["exec", "--frozen", "-"], ["lock", "--check", "-"]] {
        assert_eq!(run(&project, &arguments).0, 2, "{arguments:?}");
    }

    locked(&project, PROGRAM);
    let good = project.read("a.ts.lock");
    assert_eq!(run(&project, &["exec", "--frozen", "a.ts"]).0, 0);
    std::fs::remove_file(project.path("made.txt")).unwrap();
    for (malformed, reason) in [
        (String::new(), "EOF while parsing"),
        (good.replacen("sha256-", "md5-", 1), "an integrity must be"),
        (good.replacen("\"version\": 1", "\"version\": 2", 1), "it has version 2"),
        (good.replacen("\"tools\"", "\"version\": 1, \"tools\"", 1), "duplicate key `version`"),
        (format!("<<<<<<< HEAD\n{good}"), "expected value"),
        (format!("{good}{}", " ".repeat(1024 * 1024)), "it is larger than 1 MiB"),
    ] {
        project.write("a.ts.lock", &malformed);
        for arguments in
            [&["exec", "a.ts"] as &[&str], &["lock", "a.ts"], &["lock", "a.ts", "--check"]]
        {
            let (code, _, said) = run(&project, arguments);
            assert_eq!(code, 2, "{said}");
            assert!(said.contains("`a.ts.lock`: ") && said.contains(reason), "{reason}: {said}");
        }
        assert_eq!(project.read("a.ts.lock"), malformed);
    }
    project.write("good.lock", &good);
    std::fs::remove_file(project.path("a.ts.lock")).unwrap();
    std::os::unix::fs::symlink("good.lock", project.path("a.ts.lock")).unwrap();
    failure(&exec(&project), "CONFIG_INVALID");
    assert!(!project.path("made.txt").exists());
}

/// LK-04: a capability that was published again is refused, and the difference has both versions. Its tools are part of
/// the lock. Until then the program runs on this machine, with its calls on the gateway.
#[test]
fn another_version_of_a_capability_is_refused() {
    let author = author();
    published(&author, "maths.double", DOUBLE);
    let count = "/** Counts. */ return (await mcp.filesystem.read_text_file(args)).length";
    published(&author, "files.count", count);
    let project = Project::of(&author).allow(&["*"]);
    project.write("b.txt", "abc");
    let program = "return await mcp.maths.double({ n: await mcp.files.count({ path: 'b.txt' }) })";
    let said = locked(&project, program);
    let scope = said.split(": capability `").nth(1).unwrap().split(".files.count").next();
    let scope = scope.unwrap().to_owned();
    for line in [
        format!("files:count: capability `{scope}.files.count` 0.1.0, on this machine\n"),
        format!("maths:double: capability `{scope}.maths.double` 0.1.0, on the gateway\n"),
        "`maths:double`: what it reaches: the gateway says only the names".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let lock: Value = serde_json::from_str(&project.read("a.ts.lock")).unwrap();
    let inner = &lock["capabilities"][format!("{scope}.files.count@0.1.0")];
    assert_eq!(inner["tools"]["filesystem:read_text_file"]["kind"], "native", "{lock:#}");
    assert_eq!(lock["tools"]["maths:double"]["reaches"], json!(["math:eval"]));

    // A capability on this machine asks before its first run.
    let mut pml = project.stdio();
    let pending = pml.execute("return await mcp.files.count({ path: 'b.txt' })");
    assert_eq!(success(&pml.resume(&pending, true, false)), 3);
    let done = exec(&project);
    assert_eq!((success(&done), &done["executed"]), (&json!(6), &json!("client")));
    let expected = [
        ("files:count", "client"),
        ("filesystem:read_text_file", "client"),
        ("maths:double", "server"),
    ];
    assert_eq!(calls(&done), expected);

    published(&author, "maths.double", "/** Triples. */ return 3 * args.n");
    let message = refused(&project);
    for line in [
        "the program is unchanged: sha256-",
        "`maths:double`: version 0.1.0 → 0.1.1",
        "`maths:double`: integrity sha256-",
        "`maths:double`: reaches math:eval → ",
    ] {
        assert!(message.contains(line), "{line}: {message}");
    }
    locked(&project, program);
    assert_eq!(success(&exec(&project)), 9);
    published(
        &author,
        "files.count",
        "/** Counts. */ return (await mcp.filesystem.list_directory(args)).length",
    );
    let message = refused(&project);
    for line in [
        "`files:count`: version 0.1.0 → 0.1.1".to_owned(),
        format!("`filesystem:list_directory` in `{scope}.files.count`: added"),
        format!("`filesystem:read_text_file` in `{scope}.files.count`: removed"),
    ] {
        assert!(message.contains(&line), "{line}: {message}");
    }
    let (code, checked) = check(&project);
    assert_eq!((code, &checked["program"]["changed"]), (2, &json!(false)));
}

/// A server of the registry that was published again is refused before it starts.
#[test]
fn a_changed_entry_of_the_registry_is_refused() {
    let tenant = tenant();
    publish(&tenant, "1.0.0", &[], &[]);
    let project = Project::of(&tenant).allow(&["*"]);
    let said = locked(&project, "return await mcp.jotter.add({})");
    assert!(said.contains("jotter` 1.0.0 of the registry, on this machine\n"), "{said}");
    publish(&tenant, "1.0.1", &[], &["a.test"]);
    let message = refused(&project);
    for line in ["`jotter:add`: version 1.0.0 → 1.0.1", "`jotter:add`: integrity sha256-"] {
        assert!(message.contains(line), "{line}: {message}");
    }
}

/// A program of the gateway's own tools runs on this machine once it is locked, so that what was compared is what runs.
#[test]
fn a_locked_program_of_gateway_tools_runs_here() {
    let project = Project::of(&Server::shared().tenant()).allow(&["math:*"]);
    let program = "return await mcp.math.eval({ expression: `${args.n ?? 6} * 7` })";
    project.write("a.ts", program);
    assert_eq!(exec(&project)["executed"], "server");
    let said = locked(&project, program);
    let line = "- math:eval: `pml.mcp.math.eval` of the registry, on the gateway\n";
    assert!(said.contains(line), "{said}");
    let done = exec(&project);
    assert_eq!((success(&done), &done["executed"]), (&json!(42), &json!("client")));
    assert_eq!(calls(&done), [("math:eval", "server")]);
    let planned = text(&project.run(&["plan", "a.ts"]).stdout);
    assert!(planned.starts_with("Runs on this machine: "), "{planned}");
    assert!(planned.contains("\n  it is locked, so the program runs here\n"), "{planned}");
}

/// A program that computes the names of its tools cannot be locked, nor can one that must not run.
#[test]
fn what_cannot_run_or_is_not_known_cannot_be_locked() {
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["*"], "deny": ["git:*"] },
    }));
    for (program, expected, reason) in [
        ("return await mcp.git.git_status({ repo_path: '.' })", 3, "PERMISSION_DENIED"),
        ("return await mcp.math.eval({ expression: '1' })", 4, "GATEWAY_UNREACHABLE"),
        ("return (", 2, "(line 1, column "),
    ] {
        project.write("a.ts", program);
        let (code, _, said) = run(&project, &["lock", "a.ts"]);
        assert!(code == expected && said.contains(reason), "{program}: {code} {said}");
    }
    project.write("a.ts", "return await mcp[args.x].y({})");
    let (code, _, said) = run(&project, &["lock", "a.ts"]);
    assert_eq!(code, 2);
    assert!(said.contains("the program cannot be locked: some of the tools"), "{said}");
    assert!(!project.path("a.ts.lock").exists());
    // Nor can a program become one.
    locked(&project, PROGRAM);
    project.write("a.ts", "return await mcp[args.x].y({})");
    failure(&exec(&project), "INVALID_REQUEST");
}
