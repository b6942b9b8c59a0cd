//! `git:*`: reads show only what the program may read and start nothing of the repository; changes are commands.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{StdioClient, envelope};
use crate::support::mcp_servers::{PYTHON, python};
use crate::support::terminal::{approve, say_yes};

/// Runs Git in a project's workspace, without the settings of the user.
fn git(project: &Project, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=A", "-c", "user.email=a@example.com"]).args(arguments);
    git.current_dir(project.workspace()).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = git.output().expect("these tests need git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Creates a repository with a commit and changes after it. Everything that is called secret contains `s3cret`.
fn repository(project: &Project) {
    git(project, &["init", "-q", "-b", "main", "."]);
    let secrets = [".env", ".config/x", "private/key.txt"];
    for name in secrets {
        project.write(name, "s3cret 1\n");
    }
    project.write("src/a.txt", "one\n");
    git(project, &["add", "-A"]);
    git(project, &["commit", "-qm", "first"]);
    for name in secrets {
        project.write(name, "s3cret 2\n");
    }
    project.write("src/a.txt", "two\n");
    project.write("private/new.txt", "s3cret\n");
    project.write("src/new.txt", "new\n");
}

fn call(tool: &str, arguments: &Value) -> String {
    let mut all = json!({ "repo_path": "." });
    all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    format!("return await mcp.git.{tool}({all})")
}

/// The reads that show content, by their arguments.
fn reads() -> Vec<(&'static str, Value)> {
    vec![
        ("git_diff_unstaged", json!({})),
        ("git_diff_unstaged", json!({ "context_lines": 100_000 })),
        ("git_diff_staged", json!({})),
        ("git_diff", json!({ "target": "HEAD" })),
        ("git_diff", json!({ "target": "HEAD~1..HEAD" })),
        ("git_diff", json!({ "target": "HEAD~1..." })),
        ("git_show", json!({ "revision": "HEAD" })),
        ("git_show", json!({ "revision": "HEAD~1" })),
        ("git_show", json!({ "revision": "HEAD:src/a.txt" })),
    ]
}

fn pml(project: Project, policy: Option<Value>) -> (Project, StdioClient) {
    let mut config = json!({ "permissions": { "allow": ["git:*"] } });
    if let Some(policy) = policy {
        config["policy"] = policy;
    }
    let project = project.configure(&config);
    let pml = project.stdio();
    (project, pml)
}

/// NP-01: Git shows no content of a file that the program may not read, neither a past one nor a present one.
#[test]
fn secrets_of_the_repository_are_not_shown() {
    let policy = json!({
        "filesystem": { "read": { "allow": ["**"], "deny": ["private/**"] } },
        "tools": ["json:*"],
    });
    for policy in [None, Some(policy)] {
        let is_built_in = policy.is_none();
        let project = Project::offline();
        repository(&project);
        git(&project, &["commit", "-qam", "second"]);
        for name in [".env", ".config/x", "private/key.txt", "src/a.txt"] {
            project.write(name, "s3cret 3, or not\n");
        }
        git(&project, &["add", ".env", "private/key.txt"]);
        let blob = git(&project, &["rev-parse", "HEAD:.env"]);
        let tree = git(&project, &["rev-parse", "HEAD:.config"]);
        let (_project, mut pml) = pml(project, policy);
        for (tool, arguments) in reads() {
            let read = pml.execute(&call(tool, &arguments));
            let shown = success(&read).as_str().unwrap().to_owned();
            let in_private = shown.contains("+++ b/private/") || shown.contains("--- a/private/");
            assert_eq!(in_private, is_built_in && shown.contains("b/private"), "{shown}");
            for name in [".env", ".config"] {
                let change = format!(" b/{name}");
                assert!(!shown.contains(&change), "{tool} {arguments}: {shown}");
            }
            if !is_built_in {
                // The one file that may be read has it since the last change.
                let lines = shown.lines().filter(|line| line.contains("s3cret"));
                let is_of_it = |line: &str| line == "+s3cret 3, or not";
                assert!(lines.clone().all(is_of_it) && lines.count() < 2, "{shown}");
                assert!(!shown.contains("key.txt"), "{shown}");
            }
        }
        for revision in [
            "HEAD:.env",
            "HEAD~1:.env",
            ":.env",
            ":0:.env",
            "HEAD:./.env",
            "HEAD:src/../.env",
            "HEAD:.config/x",
            blob.trim(),
            tree.trim(),
            "HEAD^{tree}",
            "HEAD:src/a.txt..HEAD:.env",
            ":/first",
            "HEAD HEAD:.env",
            "--ext-diff",
            "-p",
            "",
            "@{0}:.env",
        ] {
            let refused = pml.execute(&call("git_show", &json!({ "revision": revision })));
            let text = refused.to_string();
            assert_eq!(refused["status"], "error", "{revision}: {refused}");
            assert!(!text.contains("s3cret"), "{revision}: {refused}");
        }
        for target in ["HEAD:.env", "--no-index", "HEAD --no-index", "HEAD:.env..HEAD:src/a.txt"] {
            let refused = pml.execute(&call("git_diff", &json!({ "target": target })));
            assert_eq!(refused["status"], "error", "{target}: {refused}");
        }
        let listed = pml.execute(&call("git_show", &json!({ "revision": "HEAD:" })));
        let names = success(&listed).as_str().unwrap().to_owned();
        assert_eq!(names.contains("private"), is_built_in, "{names}");
        let status = pml.execute(&call("git_status", &json!({})));
        let status = success(&status).as_str().unwrap().to_owned();
        assert_eq!(status.contains("private/"), is_built_in, "{status}");
        match is_built_in {
            true => assert!(status.contains("\tmodified:   src/a.txt\n"), "{status}"),
            // Not Git's own sentences, which would say that nothing else has changed.
            false => assert_eq!(
                status,
                "Repository status:\n## main\n M src/a.txt\n?? src/new.txt\n\n\nNot shown: 5 files\n"
            ),
        }
    }
}

/// What may be read is what Git has.
#[test]
fn reads_agree_with_git() {
    let project = Project::offline();
    repository(&project);
    git(&project, &["branch", "topic"]);
    let (project, mut pml) = pml(project, None);
    let mut read = |tool: &str, arguments: Value| {
        let read = pml.execute(&call(tool, &arguments));
        success(&read).as_str().unwrap().to_owned()
    };
    let diff = git(&project, &["diff", "--", "src", "private"]);
    let note = "\nNot shown: `.config/x` (it is hidden, and no `policy` allows that), `.env` (it holds passwords or tokens)\n";
    assert_eq!(read("git_diff_unstaged", json!({})), format!("Unstaged changes:\n{diff}{note}"));
    assert_eq!(read("git_diff_staged", json!({})), "Staged changes:\n");
    assert_eq!(
        read("git_diff", json!({ "target": "HEAD", "context_lines": 0 })),
        format!(
            "Diff with HEAD:\n{}{note}",
            git(&project, &["diff", "-U0", "--", "src", "private"])
        )
    );
    git(&project, &["add", "src"]);
    git(&project, &["mv", "src/new.txt", "src/new name.txt"]);
    assert!(read("git_diff_staged", json!({})).contains("+++ b/src/new name.txt"));
    let status = read("git_status", json!({}));
    assert_eq!(
        status,
        format!("Repository status:\n{}", git(&project, &["status"]).strip_suffix('\n').unwrap())
    );
    let hash = git(&project, &["rev-parse", "HEAD"]);
    let log = read("git_log", json!({ "max_count": 5 }));
    assert!(log.starts_with(&format!("Commit history:\nCommit: {hash}Author: A\n")));
    assert_eq!(read("git_log", json!({ "end_timestamp": "2001-01-01" })), "Commit history:\n");
    assert_eq!(read("git_branch", json!({ "branch_type": "local" })), "* main\n  topic");
    let contains = json!({ "branch_type": "all", "not_contains": "HEAD" });
    assert_eq!(read("git_branch", contains), "");
    assert_eq!(read("git_show", json!({ "revision": "main:src/a.txt" })), "one\n");
    assert_eq!(read("git_show", json!({ "revision": "topic:src/" })), "a.txt");
    let shown = read("git_show", json!({ "revision": "topic" }));
    assert!(shown.contains("\n    first\n") && shown.contains("+one"), "{shown}");
}

/// NX-03: a repository from anywhere starts nothing when it is read, and shows no file outside the workspace.
#[test]
fn reading_a_hostile_repository_starts_nothing() {
    let project = Project::offline();
    repository(&project);
    git(&project, &["commit", "-qam", "second"]);
    project.write("src/a.txt", "three\n");
    let outside = project.home().join("outside.txt");
    std::fs::write(&outside, "s3cret outside\n").unwrap();
    let ran = project.path("ran").display().to_string();
    let run = format!("sh -c 'touch {ran}'");
    git(&project, &["hash-object", "-w", "/dev/null"]);
    // The folder of the user as the working tree, with a file of it in the index.
    git(
        &project,
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            "100644,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,outside.txt",
        ],
    );
    project.write(".gitattributes", "* diff=evil filter=evil\n");
    for (key, value) in [
        ("core.fsmonitor", run.as_str()),
        ("core.pager", &run),
        ("core.worktree", project.home().to_str().unwrap()),
        ("diff.external", &run),
        ("diff.evil.command", &run),
        ("diff.evil.textconv", &run),
        ("filter.evil.clean", &run),
        ("filter.evil.smudge", &run),
        ("filter.evil.process", &run),
        ("filter.evil.required", "true"),
        ("gpg.program", &run),
        ("log.showSignature", "true"),
        ("alias.status", &format!("!{run}")),
        ("remote.origin.url", &format!("ext::{run}")),
        ("remote.origin.promisor", "true"),
        ("extensions.partialClone", "origin"),
    ] {
        git(&project, &["config", key, value]);
    }
    for hook in ["post-index-change", "fsmonitor-watchman", "pre-commit"] {
        let hook = format!(".git/hooks/{hook}");
        project.write(&hook, format!("#!/bin/sh\ntouch {ran}\n"));
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(project.path(&hook), executable).unwrap();
    }
    let (project, mut pml) = pml(project, None);
    let mut failed = Vec::new();
    let others = [
        ("git_status", json!({})),
        ("git_log", json!({})),
        ("git_branch", json!({ "branch_type": "all" })),
    ];
    for (tool, arguments) in reads().into_iter().chain(others) {
        let read = pml.execute(&call(tool, &arguments));
        assert!(!read.to_string().contains("s3cret outside"), "{tool} {arguments}: {read}");
        assert!(!project.path("ran").exists(), "{tool} {arguments}: {read}");
        if read["status"] != "success" {
            failed.push(read);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // A repository elsewhere, by a link or a file that names it.
    let other = project.home().join("other");
    std::fs::rename(project.path(".git"), &other).unwrap();
    for make in [&|| std::os::unix::fs::symlink(&other, project.path(".git")).unwrap(), &|| {
        project.write(".git", format!("gitdir: {}\n", other.display())) as ()
    }] as [&dyn Fn(); 2]
    {
        make();
        failure(&pml.execute(&call("git_log", &json!({}))), "TOOL_FAILED");
        std::fs::remove_file(project.path(".git")).unwrap();
    }
    // Nor is a folder above the workspace a repository of it.
    failure(&pml.execute(&call("git_log", &json!({}))), "TOOL_FAILED");
    for path in ["..", "/", "/tmp", "../other"] {
        let log = format!("return await mcp.git.git_log({})", json!({ "repo_path": path }));
        failure(&pml.execute(&log), "PATH_OUTSIDE_WORKSPACE");
    }
}

/// A tool that changes a repository runs what the repository names, so it is a command: a person approves it, and a
/// policy allows it with Git.
#[test]
fn changes_are_commands() {
    let project = Project::offline();
    repository(&project);
    for (key, value) in [("user.name", "A"), ("user.email", "a@example.com")] {
        git(&project, &["config", key, value]);
    }
    let changes = "
        await mcp.git.git_add({ repo_path: '.', files: ['src/new.txt'] });
        await mcp.git.git_create_branch({ repo_path: '.', branch_name: 'topic', base_branch: 'HEAD' });
        await mcp.git.git_checkout({ repo_path: '.', branch_name: 'topic' });
        const done = await mcp.git.git_commit({ repo_path: '.', message: '--amend' });
        await mcp.git.git_reset({ repo_path: '.' });
        return done;";
    let (project, mut pml) = pml(project, None);
    let asked = pml.execute(changes);
    assert_eq!(question(&asked)["context"]["calls"].as_array().unwrap().len(), 5);
    assert_eq!(
        asked["context"]["needs_person"],
        "the command can change every file in the workspace"
    );
    let arguments = json!({ "workflow_id": asked["workflow_id"], "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": arguments }));
    approve(&project, &asked, false);
    let done = envelope(&pml.answer(waiting)["result"]);
    assert!(success(&done).as_str().unwrap().starts_with("Changes committed.\n[topic "), "{done}");
    assert_eq!(git(&project, &["log", "--format=%s"]), "--amend\nfirst\n");
    for (tool, arguments) in [
        ("git_checkout", json!({ "branch_name": "--orphan" })),
        ("git_checkout", json!({ "branch_name": "" })),
        ("git_create_branch", json!({ "branch_name": "-D", "base_branch": "topic" })),
        ("git_create_branch", json!({ "branch_name": "x", "base_branch": "--force" })),
        ("git_add", json!({ "files": [] })),
        ("git_commit", json!({ "message": "a\0b" })),
        ("git_commit", json!({})),
    ] {
        failure(&pml.execute(&call(tool, &arguments)), "INVALID_ARGUMENTS");
    }
    // A name that is also a file: its changes are not thrown away.
    let other = pml.execute(&call("git_checkout", &json!({ "branch_name": "src" })));
    failure(&say_yes(&project, &mut pml, &other), "TOOL_FAILED");
    assert_eq!(project.read("src/a.txt"), "two\n");

    let read = json!({ "read": { "allow": ["**"] } });
    for (shell, allowed) in
        [(json!({ "allow": ["git"] }), true), (json!({ "allow": ["ls"] }), false)]
    {
        let policy = json!({ "filesystem": read, "shell": shell });
        let config = json!({ "permissions": { "allow": ["git:*"] }, "policy": policy });
        let project = Project::offline().configure(&config);
        repository(&project);
        let added = project.stdio().execute(&call("git_add", &json!({ "files": ["src"] })));
        match allowed {
            true => assert_eq!(success(&added), "Files staged."),
            false => drop(failure(&added, "POLICY_DENIED").to_owned()),
        }
        assert_eq!(git(&project, &["diff", "--cached", "--name-only"]).is_empty(), !allowed);
    }
    let config = json!({ "permissions": { "allow": ["git:*"] }, "policy": { "shell": { "allow": ["git"] } } });
    let project = Project::offline().configure(&config);
    repository(&project);
    failure(&project.stdio().execute(&call("git_log", &json!({}))), "POLICY_DENIED");
}

/// What `pml init` allows is enough to read a repository, and for nothing else.
#[test]
fn the_default_rules_allow_reading_only() {
    let project = Project::offline();
    repository(&project);
    let created = project.run(&["init", "--yes"]);
    assert!(created.status.success(), "{}", text(&created.stderr));
    let mut pml = project.stdio();
    let read = pml.execute(&call("git_diff_unstaged", &json!({})));
    let shown = success(&read).as_str().unwrap();
    assert!(
        shown.contains("+two") && shown.contains("`.env`") && !shown.contains(" b/.env"),
        "{shown}"
    );
    question(&pml.execute(&call("git_add", &json!({ "files": ["src"] }))));
}

/// Programs for the reference server run unchanged: both name the same files, commits and branches.
#[test]
fn the_reference_server_reads_the_same() {
    let bin = python(PYTHON);
    let project = Project::offline();
    repository(&project);
    let path = project.workspace().display().to_string();
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "policy": {
            "filesystem": { "read": { "allow": ["**"], "hidden": true } },
            "tools": ["reference:*"],
        },
        "mcpServers": { "reference": { "command": bin.join("mcp-server-git"), "args": [] } },
    }));
    let mut pml = project.stdio();
    // The lock is none of what they are compared by.
    project.write(".git/info/exclude", ".pml/\n");
    git(&project, &["add", "-A"]);
    git(&project, &["commit", "-qm", "second\n\nWith a body."]);
    git(&project, &["branch", "topic"]);
    project.write("src/a.txt", "three\n");
    project.write("private/key.txt", "changed\n");
    project.write("new/x.txt", "");
    git(&project, &["add", "private"]);
    let mut both = |tool: &str, arguments: &Value| {
        ["git", "reference"].map(|namespace| {
            let code = call(tool, arguments)
                .replace("mcp.git.", &format!("mcp.{namespace}."))
                .replace("\".\"", &format!("{path:?}"));
            let read = pml.execute(&code);
            success(&read).as_str().unwrap().to_owned()
        })
    };
    for (tool, arguments) in [
        ("git_status", json!({})),
        ("git_diff_unstaged", json!({})),
        ("git_diff_staged", json!({ "context_lines": 0 })),
        ("git_diff", json!({ "target": "main" })),
        ("git_diff", json!({ "target": "topic" })),
        ("git_log", json!({ "max_count": 3 })),
        ("git_log", json!({ "end_timestamp": "2001-01-01" })),
        ("git_branch", json!({ "branch_type": "local" })),
        ("git_branch", json!({ "branch_type": "all", "contains": "HEAD" })),
        ("git_show", json!({ "revision": "main:src" })),
        ("git_show", json!({ "revision": "main:src/a.txt" })),
    ] {
        let [ours, theirs] = both(tool, &arguments);
        assert_eq!(ours, theirs, "{tool} {arguments}");
    }
    // The reference server leaves out some lines of Git between the changes of two files.
    let [ours, theirs] = both("git_show", &json!({ "revision": "main" }));
    let header = ours.split("\ndiff").next().unwrap();
    assert!(header.contains("\n\n    second\n    \n    With a body.\n"), "{header}");
    assert!(theirs.starts_with(header), "{theirs}");
    assert!(theirs.lines().all(|line| ours.contains(line) || line.contains(".env")), "{theirs}");
}
