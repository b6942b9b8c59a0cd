use std::path::PathBuf;
use std::sync::Arc;

use protocol::Integrity;
use serde_json::json;

use super::*;

mod combined;

fn parse(text: &Value) -> Result<PolicyFile, serde_json::Error> {
    serde_json::from_str(&text.to_string())
}

fn policy(section: &Value) -> Policy {
    Policy::new(Some(parse(section).unwrap()), true, Vec::new())
}

fn letter(judged: &Judged) -> char {
    match judged {
        Judged::Within => 'w',
        Judged::Beyond(_) => 'b',
        Judged::Denied(_) => '-',
    }
}

/// Judges a place for each operation: list, read, change and move.
fn place(policy: &Policy, path: &str) -> String {
    use Operation::{Change, List, Move, Read};
    [List, Read, Change, Move].map(|op| letter(&policy.place(Path::new(path), op))).iter().collect()
}

fn tool(policy: &Policy, id: &str) -> char {
    letter(&policy.tool(&id.parse().unwrap()))
}

/// NP-01: without a section, the built-in policy applies. A section denies what it omits.
#[test]
fn what_a_section_omits_is_denied() {
    let built_in = Policy::default();
    assert_eq!(place(&built_in, "src/a.rs"), "wwww");
    assert_eq!(place(&built_in, ".hidden"), "wbbb");
    assert_eq!(place(&built_in, "a/.b/c"), "wbbb");
    for id in ["filesystem:read_file", "shell:exec", "json:parse", "acme.x.y:z"] {
        assert_eq!(tool(&built_in, id), 'w', "{id}");
    }
    for (section, read, write, shell, other) in [
        (json!({}), '-', '-', '-', '-'),
        (json!({ "filesystem": {} }), '-', '-', '-', '-'),
        (json!({ "filesystem": { "read": {} } }), 'w', '-', '-', '-'),
        (json!({ "filesystem": { "write": {} } }), '-', 'w', '-', '-'),
        (json!({ "shell": {} }), '-', '-', 'w', '-'),
        (json!({ "tools": ["*"] }), '-', '-', '-', 'w'),
        (json!({ "web": {} }), '-', '-', '-', '-'),
        (json!({ "tools": ["filesystem:*", "shell:*"] }), '-', '-', '-', '-'),
    ] {
        let policy = policy(&section);
        assert_eq!(tool(&policy, "filesystem:read_file"), read, "{section}");
        assert_eq!(tool(&policy, "filesystem:search_files"), read, "{section}");
        assert_eq!(tool(&policy, "filesystem:write_file"), write, "{section}");
        assert_eq!(tool(&policy, "shell:exec"), shell, "{section}");
        assert_eq!(tool(&policy, "json:parse"), other, "{section}");
        // A list that is missing is empty.
        assert_eq!(place(&policy, "a.txt"), "----", "{section}");
    }
    let moves = policy(&json!({ "filesystem": { "write": {} } }));
    assert_eq!(tool(&moves, "filesystem:move_file"), '-', "what is moved can be read");
}

#[test]
fn paths_are_judged_by_their_patterns() {
    let policy = policy(&json!({ "filesystem": {
        "read": { "allow": ["**"], "deny": ["private/**", "**/*.pem", "exact"] },
        "write": { "allow": ["./src/**", "a/*.md", "{x,y}/z"], "hidden": true },
    } }));
    for (path, expected) in [
        ("", "ww--"),
        ("src", "wwww"),
        ("src/deep/a.rs", "wwww"),
        ("src/.hidden", "--w-"),
        ("srcs/a.rs", "ww--"),
        ("a/b.md", "wwww"),
        ("a/b/c.md", "ww--"),
        ("x/z", "wwww"),
        ("private", "----"),
        ("private/a/b", "----"),
        // Some file systems find a file by its name in any case.
        ("Private/a", "----"),
        ("privates", "ww--"),
        ("src/key.pem", "--w-"),
        // A denied folder is denied with everything in it.
        ("exact/a/b", "----"),
        ("key.pem/inner", "----"),
        ("exactly", "ww--"),
    ] {
        assert_eq!(place(&policy, path), expected, "{path}");
    }
}

/// Names that are not UTF-8 are matched byte by byte.
#[test]
fn odd_names_are_matched() {
    use std::os::unix::ffi::OsStrExt as _;
    let policy =
        policy(&json!({ "filesystem": { "read": { "allow": ["**"], "deny": ["p/**"] } } }));
    let odd = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    assert_eq!(policy.place(&odd(b"a/\xff"), Operation::Read), Judged::Within);
    for denied in [&b"p/\xff"[..], b".\xff", b"a/.\xff/b"] {
        assert_ne!(policy.place(&odd(denied), Operation::Read), Judged::Within);
    }
    // A line break is a character like any other.
    assert_ne!(policy.place(Path::new("p/a\nb"), Operation::Read), Judged::Within);
}

/// A policy of a file that the user has not trusted only restricts the built-in one.
#[test]
fn an_untrusted_policy_only_restricts() {
    let section = json!({
        "filesystem": { "read": { "allow": ["**"], "deny": ["private"], "hidden": true } },
        "shell": { "allow": ["git"] },
    });
    let mut untrusted = Policy::new(Some(parse(&section).unwrap()), false, Vec::new());
    untrusted.prepare(|name| Some(command(&format!("/usr/bin/{name}"), &[name]))).unwrap();
    assert_eq!(place(&untrusted, "a.txt"), "ww--");
    assert_eq!(place(&untrusted, ".hidden"), "wb--");
    assert_eq!(place(&untrusted, "private"), "----");
    assert_eq!(letter(&untrusted.command(&command("/usr/bin/git", &["git"]))), 'b');
    assert_eq!(letter(&untrusted.command(&command("/usr/bin/ls", &["ls"]))), '-');
}

fn command(file: &str, argv: &[&str]) -> Command {
    let argv = argv.iter().map(|argument| (*argument).to_owned()).collect();
    Command {
        argv,
        file: PathBuf::from(file),
        is_of_workspace: false,
        access: CommandAccess::Workspace,
    }
}

/// NP-08: the file that would run is compared, not the name that the program gives it.
#[test]
fn only_the_listed_file_runs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
    let shown = |name: &str| at(name).display().to_string();
    for name in ["git", "bash", "many"] {
        std::fs::write(at(name), name).unwrap();
    }
    std::fs::create_dir(at("copy")).unwrap();
    std::fs::copy(at("git"), at("copy/git")).unwrap();
    for (link, target) in
        [("ls", "many"), ("sh", "many"), ("copy/link", "../git"), ("alias", "git")]
    {
        std::os::unix::fs::symlink(target, at(link)).unwrap();
    }
    std::fs::create_dir(at("other")).unwrap();
    std::os::unix::fs::symlink("../git", at("other/git")).unwrap();
    let mut policy = policy(&json!({ "shell": { "allow": ["git", "ls", "absent"] } }));
    policy.prepare(|name| at(name).exists().then(|| command(&shown(name), &[name]))).unwrap();
    for (file, argv, expected) in [
        ("git", &["git", "status"][..], 'w'),
        // The same file, by a link of the same name.
        ("other/git", &["git"], 'w'),
        // A file that is several programs runs as the listed one only.
        ("ls", &["ls"], 'w'),
        ("sh", &["sh", "-c", "x"], '-'),
        ("many", &["many", "sh"], '-'),
        ("copy/git", &["git"], '-'),
        ("copy/link", &["link"], '-'),
        ("alias", &["alias"], '-'),
        ("bash", &["bash", "-c", "git"], '-'),
        ("absent", &["absent"], '-'),
    ] {
        assert_eq!(letter(&policy.command(&command(&shown(file), argv))), expected, "{file}");
    }
    let mut of_workspace = command(&shown("git"), &["git"]);
    of_workspace.is_of_workspace = true;
    assert_eq!(letter(&policy.command(&of_workspace)), '-');
    let mut policy = super::tests::policy(&json!({ "shell": { "allow": ["git"] } }));
    let error = policy.prepare(|_| Some(of_workspace.clone())).unwrap_err();
    assert!(error.contains("in the workspace"), "{error}");
}

/// A program reaches no further than its lists in the policy say.
#[test]
fn more_access_has_to_be_listed() {
    let shell =
        json!({ "allow": ["git", "npm", "docker"], "network": ["npm"], "unconfined": ["docker"] });
    let mut policy = policy(&json!({ "shell": shell }));
    policy.prepare(|_| None).unwrap();
    for (program, expected) in [("git", "w--"), ("npm", "ww-"), ("docker", "www"), ("sh", "---")] {
        let judged = [CommandAccess::Workspace, CommandAccess::Network, CommandAccess::Unconfined]
            .map(|access| {
                letter(&policy.command(&Command { access, ..command(program, &[program]) }))
            });
        assert_eq!(String::from_iter(judged), expected, "{program}");
    }
    let built_in = Policy::default();
    let unconfined = Command { access: CommandAccess::Unconfined, ..command("ls", &["ls"]) };
    assert_eq!(letter(&built_in.command(&unconfined)), 'b');
}

/// NP-09: a denied text is found wherever it stands in an argument.
#[test]
fn denied_texts_are_found_in_arguments() {
    let shell = json!({ "allow": ["git"], "deny_tokens": ["--force", ";", "$("] });
    let mut policy = policy(&json!({ "shell": shell }));
    policy.prepare(|_| None).unwrap();
    for (argv, expected) in [
        (&["git", "push"][..], 'w'),
        (&["git", "push", "--force"], '-'),
        (&["git", "push", "--force-with-lease"], '-'),
        (&["git", "log; rm"], '-'),
        (&["git", "-c", "x=$(y)"], '-'),
        (&["git", "--Force"], 'w'),
    ] {
        assert_eq!(letter(&policy.command(&command("git", argv))), expected, "{argv:?}");
    }
}

/// AP-15: without a policy that names it, no program runs without a question, however harmless its name.
#[test]
fn the_built_in_policy_lets_no_rule_allow_a_command() {
    for name in ["ls", "git", "bash", "env", "find", "tar", "vim", "nmap", "xargs", "sudo", "true"]
    {
        let judged = Policy::default().command(&command(&format!("/usr/bin/{name}"), &[name]));
        assert_eq!(letter(&judged), 'b', "{name}");
    }
}

/// Without a policy, no address is opened without a question. A file that is not trusted only denies.
#[test]
fn web_addresses_are_judged_by_their_host() {
    let judged = |policy: &Policy, url: &str| letter(&policy.url(&url.parse().unwrap()));
    assert_eq!(judged(&Policy::default(), "https://a.test/"), 'b');
    let section = json!({ "web": {
        "allow": ["a.test", "*.b.test"], "deny": ["x.b.test"], "private": ["localhost:8080"],
    } });
    let trusted = policy(&section);
    let untrusted = Policy::new(Some(parse(&section).unwrap()), false, Vec::new());
    for (url, expected, is_private) in [
        ("https://a.test/x", 'w', false),
        ("https://c.b.test/x", 'w', false),
        ("https://x.b.test/", '-', false),
        ("https://y.x.b.test/", '-', false),
        ("http://localhost:8080/", 'w', true),
        ("http://localhost/", '-', false),
        ("https://c.test/", '-', false),
    ] {
        assert_eq!(judged(&trusted, url), expected, "{url}");
        assert_eq!(trusted.allows_private(&url.parse().unwrap()), is_private, "{url}");
        let restricted = if expected == 'w' { 'b' } else { '-' };
        assert_eq!(judged(&untrusted, url), restricted, "{url}");
        assert!(!untrusted.allows_private(&url.parse().unwrap()), "{url}");
    }
    assert_eq!(judged(&policy(&json!({})), "https://a.test/"), '-');
    assert_eq!(
        (tool(&trusted, "web:get"), tool(&policy(&json!({ "tools": ["*"] })), "web:get")),
        ('w', '-')
    );
}

#[test]
fn invalid_sections_are_refused() {
    for (section, in_error) in [
        (json!([]), "an object"),
        (json!({ "network": {} }), "unknown field `network`"),
        (
            json!({ "web": { "allow": ["https://a.test"] } }),
            "in `web.allow`: `https://a.test` is no pattern",
        ),
        (json!({ "web": { "private": ["*"] } }), "`*` does not name one host"),
        (json!({ "web": { "private": ["*.test"] } }), "does not name one host"),
        (json!({ "web": { "timeout_ms": 0 } }), "at least 1"),
        (json!({ "web": { "max_redirects": 11 } }), "at most 10"),
        (json!({ "match": [{ "url": "x" }] }), "the example `x`"),
        (json!({ "filesystem": [] }), "an object"),
        (json!({ "filesystem": { "read": { "max_total_bytes": 1 } } }), "unknown field"),
        (json!({ "filesystem": { "read": { "allow": ["../x"] } } }), "leads out"),
        (json!({ "filesystem": { "read": { "allow": ["~/x"] } } }), "leads out"),
        (json!({ "filesystem": { "read": { "allow": ["a//b"] } } }), "an empty part"),
        (json!({ "filesystem": { "read": { "allow": ["a/"] } } }), "an empty part"),
        (json!({ "filesystem": { "read": { "allow": [""] } } }), "is empty"),
        (json!({ "filesystem": { "read": { "allow": ["["] } } }), "is not a glob"),
        (json!({ "filesystem": { "read": { "allow": ["{a,b}".repeat(40)] } } }), "alternatives"),
        (json!({ "filesystem": { "write": { "max_bytes": -1 } } }), "invalid value"),
        (json!({ "filesystem": { "write": { "max_bytes": 1.5 } } }), "invalid type"),
        (json!({ "shell": { "allow": ["./x"] } }), "absolute path"),
        (json!({ "shell": { "allow": [""] } }), "absolute path"),
        (json!({ "shell": { "deny_tokens": [""] } }), "empty text"),
        (json!({ "shell": { "timeout_ms": 0 } }), "at least 1"),
        (json!({ "shell": { "allow": ["a"], "network": ["b"] } }), "which `shell.allow` does not"),
        (json!({ "shell": { "unconfined": ["b"] } }), "which `shell.allow` does not"),
        (json!({ "match": [{ "command": ["a"], "access": "all" }] }), "unknown variant"),
        (json!({ "match": [{ "read": "a", "access": "network" }] }), "that of its `command`"),
        (json!({ "calls": { "a b": 1 } }), "in `calls`"),
        (json!({ "tools": ["x"] }), ""),
        (json!({ "match": [{}] }), "an example has one of"),
        (json!({ "match": [{ "read": "a", "write": "b" }] }), "an example has one of"),
        (json!({ "no_match": [{ "command": [] }] }), "an example has one of"),
        (json!({ "total_ms": 0 }), "at least 1"),
    ] {
        let error = parse(&section).expect_err(&section.to_string()).to_string();
        assert!(error.contains(in_error), "{section}: {error}");
    }
    // Duplicate keys, which two readers could read differently.
    let twice = r#"{ "shell": { "allow": [], "allow": ["sh"] } }"#;
    serde_json::from_str::<PolicyFile>(twice).unwrap_err();
}

#[test]
fn examples_are_tested() {
    let section = |matching: Value, not_matching: Value| {
        json!({
            "filesystem": { "read": { "allow": ["src/**"] } },
            "shell": { "allow": ["git", "npm"], "network": ["npm"] },
            "tools": ["json:*"],
            "match": matching,
            "no_match": not_matching,
        })
    };
    let read = |path: &str| json!({ "read": path });
    let good = section(
        json!([read("src/a"), read("./src/a"), { "command": ["git", "x"] }, { "command": ["npm"], "access": "network" }, { "tool": "json:parse" }]),
        json!([read("b"), read("src/.a"), { "write": "src/a" }, { "command": ["sh"] }, { "command": ["git"], "access": "network" }, { "tool": "a:b" }]),
    );
    policy(&good).prepare(|_| None).unwrap();
    for (matching, not_matching, expected) in [
        (
            json!([read("b")]),
            json!([]),
            "the example `{\"read\": \"b\"}` in `match` is denied: `policy.filesystem.read.allow` in `.pml.json` has no pattern for it",
        ),
        (
            json!([]),
            json!([read("src/a")]),
            "the example `{\"read\": \"src/a\"}` in `no_match` is allowed",
        ),
        (json!([{ "command": ["sh"] }]), json!([]), "does not list `sh`"),
    ] {
        let error = policy(&section(matching, not_matching)).prepare(|_| None).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// NP-11: the limits of a run hold for concurrent calls, and a refused call counts towards none of them.
#[test]
fn limits_are_exact() {
    let calls = json!({ "a:*": 100, "a:b": 60 });
    let run = PolicyOfRun::new(Arc::new(policy(&json!({ "tools": ["*"], "calls": calls }))));
    let count = |id: &str| run.count_call(&id.parse().unwrap()).is_ok();
    let allowed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let counted = (0..100).filter(|_| count("a:b")).count();
                allowed.fetch_add(counted, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    assert_eq!(allowed.into_inner(), 60);
    assert_eq!((0..100).filter(|_| count("a:c")).count(), 40);
    assert!(count("b:c"));
}

/// NP-12: what was not written does not count, and no size overflows the total.
#[test]
fn written_bytes_are_exact() {
    let write = json!({ "allow": ["**"], "max_bytes": 100, "max_total_bytes": 150 });
    let run = PolicyOfRun::new(Arc::new(policy(&json!({ "filesystem": { "write": write } }))));
    assert!(run.reserve_bytes(101).unwrap_err().contains("max_bytes"));
    run.reserve_bytes(100).unwrap().keep();
    // Dropped: the write failed.
    run.reserve_bytes(50).unwrap();
    assert!(run.reserve_bytes(51).unwrap_err().contains("the run has written 100 bytes"));
    let reserved = run.reserve_bytes(50).unwrap();
    run.reserve_bytes(1).unwrap_err();
    drop(reserved);
    run.reserve_bytes(50).unwrap().keep();
    run.reserve_bytes(0).unwrap().keep();
    let write = json!({ "allow": ["**"], "max_total_bytes": u64::MAX });
    let run = PolicyOfRun::new(Arc::new(policy(&json!({ "filesystem": { "write": write } }))));
    run.reserve_bytes(u64::MAX).unwrap().keep();
    run.reserve_bytes(u64::MAX).unwrap().keep();
}

#[test]
fn findings_name_what_has_no_effect() {
    let mut policy = policy(&json!({
        "filesystem": {
            "read": { "allow": ["a", ".b/**"], "deny": ["a"] },
            "write": {},
        },
        "shell": { "allow": ["python3.12", "gone"], "unconfined": ["gone"] },
        "tools": ["shell:*"],
    }));
    policy.prepare(|name| (name != "gone").then(|| command("/bin/true", &["true"]))).unwrap();
    let found: Vec<_> = findings(&policy)
        .into_iter()
        .map(|found| format!("{}: {}", found.part, found.message))
        .collect();
    for expected in [
        "policy.filesystem.read.allow: `a` has no effect, because `deny` has it, too.",
        "policy.filesystem.read.allow: `.b/**` has no effect, because it is hidden and `hidden` is not set.",
        "policy.filesystem.write.allow: It is empty, so everything is denied.",
        "policy.shell.allow: `python3.12` can run any other program, so this allows every command.",
        "policy.shell.allow: `gone` was not found on this machine.",
        "policy.shell.unconfined: `gone` can do everything that you can.",
        "policy.tools: `shell:*` has no effect: the calls are judged by `policy.shell`.",
        "policy.match: There are no examples. Calls in `match` and `no_match` are tested each time the policy is read.",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected}: {found:#?}");
    }
}
