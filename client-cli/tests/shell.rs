//! `shell:exec`: arguments are passed unchanged, output is limited, and no process is left behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use protocol::ErrorCode;
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[path = "support/commands.rs"]
mod commands;
#[path = "support/processes.rs"]
mod processes;

use self::commands::Bench;

async fn assert_no_process_is_left(bench: &Bench) {
    let root = bench.folder.path().canonicalize().unwrap();
    let start = Instant::now();
    while !processes::marked(root.to_str().unwrap()).is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{:?}",
            processes::marked(root.to_str().unwrap())
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_with_their_arguments_as_they_are() {
    let bench = Bench::new();
    let words =
        ["a b", "; touch sentinel", "$(touch sentinel)", "`x`", "*", "new\nline", "", "--", "｜"];
    let mut command = vec!["printf", "%s|"];
    command.extend(words);
    let result = bench.exec(json!({ "command": command })).await.unwrap();
    assert_eq!(result["stdout"], format!("{}|", words.join("|")));
    assert_eq!((&result["exit_code"], &result["truncated"]), (&json!(0), &json!(false)));
    assert!(result["duration_ms"].is_number());
    assert!(!bench.folder.path().join("sentinel").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_have_exit_code_streams_and_folder() {
    let bench = Bench::new();
    let result = bench
        .exec(json!({ "command": ["sh", "-c", "echo out; echo err >&2; exit 3"] }))
        .await
        .unwrap();
    assert_eq!(result["exit_code"], 3);
    assert_eq!(
        (result["stdout"].as_str(), result["stderr"].as_str()),
        (Some("out\n"), Some("err\n"))
    );
    let killed = bench.exec(json!({ "command": ["sh", "-c", "kill -9 $$"] })).await.unwrap();
    assert_eq!(killed["exit_code"], 137);
    let folder = bench.exec(json!({ "command": ["pwd"], "cwd": "sub" })).await.unwrap();
    assert_eq!(folder["stdout"], format!("{}\n", bench.path("sub")));
    let input = "x".repeat(300_000);
    let counted = bench.exec(json!({ "command": ["wc", "-c"], "stdin": input })).await.unwrap();
    assert_eq!(counted["stdout"].as_str().unwrap().trim(), "300000");
    let unread = bench.exec(json!({ "command": ["true"], "stdin": input })).await.unwrap();
    assert_eq!(unread["exit_code"], 0);
    let empty = bench.exec(json!({ "command": ["cat"] })).await.unwrap();
    assert_eq!(empty["stdout"], "");
}

/// LM-01: a program receives only the variables on the allow-list.
#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_an_allow_list() {
    let bench = Bench::new();
    let result = bench.exec(json!({ "command": ["env"] })).await.unwrap();
    let text = result["stdout"].as_str().unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "HOME",
            "LANG",
            "PATH",
            "TMPDIR",
            "UV_CACHE_DIR",
            "XDG_CACHE_HOME",
            "XDG_STATE_HOME",
            "npm_config_cache"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_what_cannot_run() {
    let bench = Bench::new();
    let line = bench.exec(json!({ "command": "git status" })).await.unwrap_err();
    assert_eq!(line.code, ErrorCode::InvalidArguments);
    assert!(line.message.contains(r#"["git","status"]"#), "{line}");
    for (arguments, code) in [
        (json!({ "command": [] }), ErrorCode::InvalidArguments),
        (json!({ "command": ["x\0"] }), ErrorCode::InvalidArguments),
        (json!({ "command": ["ls"], "timeout_ms": 0 }), ErrorCode::InvalidArguments),
        (json!({ "command": ["ls"], "shell": true }), ErrorCode::InvalidArguments),
        (json!({}), ErrorCode::InvalidArguments),
        (json!({ "command": ["no-such-program-here"] }), ErrorCode::ToolFailed),
        (json!({ "command": ["./sub"] }), ErrorCode::ToolFailed),
        (json!({ "command": ["pwd"], "cwd": ".." }), ErrorCode::PathOutsideWorkspace),
        (json!({ "command": ["pwd"], "cwd": "/" }), ErrorCode::PathOutsideWorkspace),
        (json!({ "command": ["pwd"], "cwd": "none" }), ErrorCode::ToolFailed),
    ] {
        let error = bench.exec(arguments.clone()).await.expect_err(&arguments.to_string());
        assert_eq!(error.code, code, "{arguments}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_capped_without_stopping_the_program() {
    let bench = Bench::new();
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2";
    let result = bench.exec(json!({ "command": ["sh", "-c", script] })).await.unwrap();
    assert_eq!(result["stdout"].as_str().unwrap().len(), 1024 * 1024);
    assert_eq!((result["stderr"].as_str(), &result["truncated"]), (Some("end\n"), &json!(true)));
    assert_eq!(result["exit_code"], 0);
}

/// A timeout, a cancellation and a dropped call kill the program and all its descendants, even in other sessions.
#[tokio::test(flavor = "multi_thread")]
async fn descendants_are_killed_with_the_program() {
    let bench = Bench::new();
    let mark = bench.path("mark");
    let script = format!("setsid sh -c 'sleep 1000 {mark} & sleep 1000' {mark} & sleep 1000");
    let command = json!({ "command": ["sh", "-c", script, mark], "timeout_ms": 300 });
    let error = bench.exec(command).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ToolTimeout);
    assert_no_process_is_left(&bench).await;

    let cancel = CancellationToken::new();
    let trigger = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        trigger.cancel();
    });
    let slow = json!({ "command": ["sh", "-c", "sleep 1000", mark] });
    let error = bench.exec_until(slow.clone(), &cancel).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Cancelled);
    assert_no_process_is_left(&bench).await;

    tokio::time::timeout(Duration::from_millis(200), bench.exec(slow)).await.unwrap_err();
    assert_no_process_is_left(&bench).await;

    // A background process that outlives its parent does not keep the call open.
    let daemon = format!("setsid sleep 1000 {mark} & exit 0");
    let result = bench.exec(json!({ "command": ["sh", "-c", daemon, mark] })).await.unwrap();
    assert_eq!(result["exit_code"], 0);
    assert_no_process_is_left(&bench).await;
}

/// NX-03: read-only Git commands do not run helpers from a repository's settings, even in a nested repository.
#[tokio::test]
async fn read_only_git_commands_run_no_helpers_of_the_repository() {
    let shell = Bench::new();
    let evil = format!("touch '{}' #", shell.path("ran"));
    let git = |folder: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(arguments).current_dir(shell.path(folder));
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    };
    std::fs::create_dir_all(shell.path("sub")).unwrap();
    git("", &["init", "-q"]);
    git("sub", &["init", "-q", "--separate-git-dir", "../store"]);
    for folder in ["", "sub"] {
        let at = |name: &str| format!("{}/{name}", shell.path(folder));
        std::fs::write(at("a.txt"), "one\n").unwrap();
        git(folder, &["add", "a.txt"]);
        git(folder, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one"]);
        std::fs::write(at("a.txt"), "two\n").unwrap();
        std::fs::write(at(".gitattributes"), "*.txt filter=evil diff=evil\n").unwrap();
        for key in [
            "core.fsmonitor",
            "core.pager",
            "core.hooksPath",
            "diff.external",
            "diff.evil.command",
            "diff.evil.textconv",
            "filter.evil.clean",
            "filter.evil.process",
            "alias.look",
        ] {
            let value = if key == "alias.look" { format!("!{evil}") } else { evil.clone() };
            git(folder, &["config", key, &value]);
        }
    }
    for folder in ["", "sub"] {
        for arguments in [
            &["status"][..],
            &["status", "-s"],
            &["diff"],
            &["log", "-p"],
            &["show"],
            &["blame", "a.txt"],
            &["look"],
        ] {
            for command in [
                [&["git"], arguments].concat(),
                [&["git", "-C", &shell.path(folder)], arguments].concat(),
            ] {
                let cwd = if command[1] == "-C" { "" } else { folder };
                let result = shell.exec(json!({ "command": command, "cwd": cwd })).await.unwrap();
                assert!(
                    !std::path::Path::new(&shell.path("ran")).exists(),
                    "{command:?}: {result}"
                );
            }
        }
    }
    let diff = shell.exec(json!({ "command": ["git", "diff"] })).await.unwrap();
    assert!(diff.to_string().contains("+two"), "{diff}");
}

/// NX-03: Git does not run if the filters and aliases of the repository cannot be listed completely.
#[tokio::test]
async fn git_does_not_run_if_the_filters_of_the_repository_are_unknown() {
    let shell = Bench::new();
    // As `git`, the shell runs the file that is named like Git's command.
    std::os::unix::fs::symlink("/bin/sh", shell.path("git")).unwrap();
    std::fs::write(shell.path("status"), "echo > ran").unwrap();
    for (listing, reason) in [
        ("exit 0", None),
        // Git's answer if there are no filters and aliases.
        ("exit 1", None),
        ("echo 'fatal: bad config' >&2; exit 128", Some("fatal: bad config")),
        ("kill -9 $$", Some("signal: 9")),
        (r"printf 'local\0filter.\377.clean\0'", Some("not UTF-8")),
    ] {
        let _ = std::fs::remove_file(shell.path("ran"));
        std::fs::write(shell.path("config"), listing).unwrap();
        let result = shell.exec(json!({ "command": ["./git", "status"] })).await;
        let ran = std::path::Path::new(&shell.path("ran")).exists();
        match (result, reason) {
            (Ok(_), None) => assert!(ran, "{listing}"),
            (Err(error), Some(reason)) => {
                assert_eq!(error.code, ErrorCode::ToolFailed, "{error}");
                assert!(error.message.contains(reason) && !ran, "{listing}: {error}");
            }
            (result, _) => panic!("{listing}: {result:?}"),
        }
    }
}
