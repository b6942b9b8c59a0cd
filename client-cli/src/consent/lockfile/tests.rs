//! Tests of the lock: what counts as approved.

use execution::processes::programs::Program;
use rustix::fs::Mode;

use super::file::write;
use super::*;
use crate::local_mcp::Files;
use crate::processes::environment::Source;

fn entry(args: &[&str]) -> RegisteredServer {
    let mut entry: RegistryEntry = serde_json::from_value(serde_json::json!({
        "fqdn": "pml.mcp.memory", "type": "stdio", "description": "", "routing": "client",
        "install": { "command": "npx", "args": args }, "integrity": Integrity::of(b""),
    }))
    .unwrap();
    entry.integrity = entry.content_integrity();
    RegisteredServer::of_gateway(entry)
}

fn grant(variables: &[(&str, Source)]) -> Grant {
    Grant {
        program: Program {
            file: "/usr/bin/npx".into(),
            interpreters: vec!["/usr/bin/node".into()],
            is_of_workspace: false,
        },
        package: None,
        request: None,
        variables: variables.iter().map(|(name, from)| ((*name).to_owned(), *from)).collect(),
        hosts: None,
        files: Files::new(),
    }
}

/// Returns the question about a server that receives no variables.
fn question(lock: &Lockfile, entry: &RegisteredServer) -> Option<Start> {
    lock.question(entry, &grant(&[])).unwrap()
}

/// Approves what the user is shown.
fn approve_with(lock: &Lockfile, entry: &RegisteredServer, grant: &Grant) -> Result<(), ErrorBody> {
    let shown = lock.question(entry, grant)?.and_then(|start| start.hash);
    lock.approve(entry, grant, shown, "terminal")
}

fn approve(lock: &Lockfile, entry: &RegisteredServer) -> Result<(), ErrorBody> {
    approve_with(lock, entry, &grant(&[]))
}

struct Project {
    folder: tempfile::TempDir,
    workspace: Arc<Workspace>,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("w");
        std::fs::create_dir(&root).unwrap();
        let workspace = Arc::new(Workspace::open(&root).unwrap());
        Self { folder, workspace }
    }

    /// Opens the lock with the records of this user.
    fn open(&self, user: &str) -> Result<Lockfile, ErrorBody> {
        let store = TrustStore::in_folder(self.folder.path().join(user));
        Lockfile::load(Arc::clone(&self.workspace), store)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.workspace.root().join(name)
    }
}

#[test]
fn a_changed_server_needs_a_new_approval() {
    let project = Project::new();
    let lock = project.open("me").unwrap();
    let first = entry(&["-y", "memory@1"]);
    let asked = question(&lock, &first).unwrap();
    assert!(asked.what.contains("\"npx\" \"-y\" \"memory@1\""), "{asked:?}");
    approve(&lock, &first).unwrap();
    assert_eq!(question(&lock, &first), None);
    let again = project.open("me").unwrap();
    assert_eq!(question(&again, &first), None);
    let changed = question(&again, &entry(&["-y", "memory@2"])).unwrap();
    assert!(changed.what.contains("CHANGED"), "{changed:?}");
}

/// The same entry in another registry is a change. So is the way back, and the gateway is one of them.
#[test]
fn a_server_of_another_registry_needs_a_new_approval() {
    let project = Project::new();
    let of = |registry: Option<&str>| {
        let registry = registry.map(|text| text.parse().unwrap());
        RegisteredServer { registry, ..entry(&["-y", "memory@1"]) }
    };
    let (one, other) = (Some("https://one.test"), Some("https://other.test"));
    let hash = of(None).integrity;
    let lock = project.open("me").unwrap();
    let first = question(&lock, &of(one)).unwrap().what;
    assert!(
        first.starts_with(&format!("`pml.mcp.memory` of the registry https://one.test ({hash}): ")),
        "{first}"
    );
    approve(&lock, &of(one)).unwrap();
    let mut known = "the registry https://one.test";
    for (registry, name) in
        [(other, "the registry https://other.test"), (None, "the gateway"), (one, known)]
    {
        // In a new process as well as in one that has started the server.
        for lock in [&lock, &project.open("me").unwrap()] {
            let asked = question(lock, &of(registry)).unwrap().what;
            let expected = format!(
                "`pml.mcp.memory`, which CHANGED since you allowed it (was {hash} of {known}, now {hash} of {name}): "
            );
            assert!(asked.starts_with(&expected), "{asked}");
        }
        approve(&lock, &of(registry)).unwrap();
        assert_eq!(question(&project.open("me").unwrap(), &of(registry)), None);
        known = name;
    }
    // Neither are its tools those of the other one.
    assert_ne!(ToolsOf::registered(&of(one)), ToolsOf::registered(&of(other)));
    assert_ne!(ToolsOf::registered(&of(one)), ToolsOf::registered(&of(None)));
}

/// LM-03: a question shows the whole command, and every character of it. The question itself shortens what is too long,
/// with its length and its hash.
#[test]
fn a_question_shows_the_command_unambiguously() {
    let (project, long) = (Project::new(), "x".repeat(5_000));
    let words = ["a\nAllow? yes", "\u{1b}[2Jb", "c  ", "", "d\" \"e", "\u{202e}f", &*long];
    let asked = question(&project.open("me").unwrap(), &entry(&words)).unwrap();
    let expected = format!(
        r#""npx" "a\nAllow? yes" "\u{{1b}}[2Jb" "c  " "" "d\" \"e" "\u{{202e}}f" "{long}""#
    );
    assert!(asked.what.ends_with(&expected), "{}", asked.what);
}

/// LM-05: a start is approved with the content of the files that run.
#[test]
fn another_file_needs_a_new_approval() {
    let (project, entry) = (Project::new(), entry(&["-y", "memory@1"]));
    let lock = project.open("me").unwrap();
    let with = |files: &[(&str, &[u8])]| Grant {
        files: files.iter().map(|(path, text)| ((*path).to_owned(), Integrity::of(text))).collect(),
        ..grant(&[])
    };
    let first = with(&[("/usr/bin/node", b"one"), ("/usr/bin/npx", b"npx")]);
    approve_with(&lock, &entry, &first).unwrap();
    let again = project.open("me").unwrap();
    again.check_start(&entry, &first).unwrap();
    for (now, expected) in [
        (
            with(&[("/usr/bin/node", b"two"), ("/usr/bin/npx", b"npx")]),
            "(`/usr/bin/node`: was sha256-",
        ),
        (with(&[("/opt/node", b"one"), ("/usr/bin/npx", b"npx")]), "(new: `/opt/node`, sha256-"),
        (with(&[("/usr/bin/npx", b"npx")]), "(no longer: `/usr/bin/node`)"),
    ] {
        let asked = again.question(&entry, &now).unwrap().unwrap();
        assert!(
            asked.what.contains("whose program (") && asked.what.contains(expected),
            "{asked:?}"
        );
        let error = again.check_start(&entry, &now).unwrap_err();
        assert_eq!(error.error_code, ErrorCode::IntegrityMismatch);
        // The approval of one does not cover another.
        again.approve(&entry, &first, asked.hash, "terminal").unwrap_err();
    }
}

/// NX-01: what a start grants is shown, bound to the answer and pinned. A change needs a new approval.
#[test]
fn grants_of_a_start_are_shown_and_pinned() {
    let (project, entry) = (Project::new(), entry(&["-y", "memory@1"]));
    let lock = project.open("me").unwrap();
    let of_file = grant(&[("GITHUB_TOKEN", Source::Dotenv)]);
    let asked = lock.question(&entry, &of_file).unwrap().unwrap();
    assert_eq!(
        asked.grants,
        [
            "It runs `/usr/bin/npx` with `/usr/bin/node`",
            "It gets `GITHUB_TOKEN` from the workspace's `.env`, a credential that lets its holder act as you",
            "It is not sandboxed: it can access your files and the network as you can",
        ]
    );
    // The approval covers exactly what was shown.
    let more = grant(&[("GITHUB_TOKEN", Source::Dotenv), ("NOTES", Source::Environment)]);
    let error = lock.approve(&entry, &more, asked.hash, "terminal").unwrap_err();
    assert_eq!(error.error_code, ErrorCode::IntegrityMismatch);
    lock.approve(&entry, &of_file, asked.hash, "terminal").unwrap();
    let again = project.open("me").unwrap();
    assert_eq!(again.question(&entry, &of_file).unwrap(), None);

    let shown = |grant: &Grant| {
        let asked = again.question(&entry, grant).unwrap().unwrap();
        assert!(asked.what.contains("CHANGED"), "{asked:?}");
        asked.grants.join("\n")
    };
    assert!(shown(&more).contains("NEW: It gets `NOTES` from your environment\n"));
    // A variable from another source is a change too.
    let of_user = grant(&[("GITHUB_TOKEN", Source::Environment)]);
    assert!(shown(&of_user).contains("NEW: It gets `GITHUB_TOKEN` from your environment"));
    // So are other hosts, and whether it is sealed at all.
    let sealed = |hosts: &[&str]| Grant {
        hosts: Some(hosts.iter().map(|host| (*host).to_owned()).collect()),
        ..of_file.clone()
    };
    let reaches = shown(&sealed(&["api.notes.test"]));
    assert!(reaches.contains("NEW: It is sealed: it can read and change"), "{reaches}");
    assert!(reaches.contains("and connect to `api.notes.test`"), "{reaches}");
    assert!(shown(&sealed(&[])).contains("and connect to nothing"));
    assert!(shown(&sealed(&["*"])).contains("and connect to every public host"));
    let mut other = of_file.clone();
    other.program.file = "/opt/npx".into();
    assert!(shown(&other).contains("`/opt/npx`"));
    let mut other = of_file.clone();
    other.program.interpreters = vec!["/opt/node".into()];
    assert!(shown(&other).contains("with `/opt/node`"));
}

/// NX-01: an entry of an older `pml`, which showed the command alone, does not count.
#[test]
fn an_entry_without_grants_needs_a_new_approval() {
    let (project, entry) = (Project::new(), entry(&["-y", "memory@1"]));
    let lock = project.open("me").unwrap();
    let older =
        Locked { grants: None, ..locked(&entry, entry.install.as_ref().unwrap(), &grant(&[])) };
    let mut content = read(&project.workspace).unwrap();
    content.servers.insert(server_name(&entry), older.clone());
    write(&project.workspace, &content).unwrap();
    lock.store
        .locked(|store| {
            store.trust_locked(&lock.key(&server_name(&entry)), &record(&older).unwrap())
        })
        .unwrap()
        .unwrap();
    let asked = question(&project.open("me").unwrap(), &entry).unwrap();
    assert!(asked.what.contains("whose command or variables CHANGED"), "{asked:?}");
}

/// CL-04: a lock that came with the repository does not allow anything to start.
#[test]
fn a_lock_of_another_user_allows_nothing() {
    let project = Project::new();
    let entry = entry(&["-y", "memory@1"]);
    approve(&project.open("them").unwrap(), &entry).unwrap();
    let mine = project.open("me").unwrap();
    assert!(question(&mine, &entry).is_some());
    approve(&mine, &entry).unwrap();
    assert_eq!(question(&project.open("me").unwrap(), &entry), None);
}

/// LK-01, LK-04, LK-08: an edited hash, an older lock, and an entry whose text is equal only after normalization need
/// a new approval.
#[test]
fn an_edited_or_older_lock_allows_nothing() {
    let project = Project::new();
    let (older, newer) = (entry(&["-y", "memory@1"]), entry(&["-y", "memory@2"]));
    let lock = project.open("me").unwrap();
    approve(&lock, &older).unwrap();
    let old_text = std::fs::read_to_string(project.path(FILE)).unwrap();
    approve(&lock, &newer).unwrap();
    assert_eq!(question(&project.open("me").unwrap(), &newer), None);

    // The entry of the older version is served again, too.
    std::fs::write(project.path(FILE), &old_text).unwrap();
    let again = project.open("me").unwrap();
    assert!(question(&again, &older).is_some());
    assert!(question(&again, &newer).unwrap().what.contains("CHANGED"));
    approve(&again, &older).unwrap();
    assert_eq!(question(&project.open("me").unwrap(), &older), None);

    let hash = older.integrity.to_string();
    let edited = old_text.replace(&hash, &Integrity::of(b"other").to_string());
    assert_ne!(edited, old_text);
    std::fs::write(project.path(FILE), edited).unwrap();
    assert!(question(&project.open("me").unwrap(), &older).unwrap().what.contains("CHANGED"));

    // The same name in two forms of Unicode.
    let (composed, decomposed) = (entry(&["caf\u{e9}"]), entry(&["cafe\u{301}"]));
    approve(&lock, &composed).unwrap();
    assert_eq!(question(&project.open("me").unwrap(), &composed), None);
    assert!(question(&project.open("me").unwrap(), &decomposed).is_some());
}

/// CL-14: concurrent approvals of several processes are all stored.
#[test]
fn concurrent_approvals_lose_nothing() {
    let project = Project::new();
    let named = |n: usize| {
        let mut entry = entry(&["-y", "memory@1"]);
        entry.entry.fqdn = format!("pml.mcp.memory{n}");
        entry
    };
    let locks: Vec<Lockfile> = (0..8).map(|_| project.open("me").unwrap()).collect();
    std::thread::scope(|scope| {
        for (n, lock) in locks.iter().enumerate() {
            scope.spawn(move || approve(lock, &named(n)).unwrap());
        }
    });
    let again = project.open("me").unwrap();
    assert!((0..8).all(|n| question(&again, &named(n)).is_none()));
}

/// LK-03: a malformed lock stops the command; it is never treated as an empty one.
#[test]
fn a_malformed_lock_is_an_error() {
    let good = r#"{"version":1,"servers":{}}"#;
    for (text, ok) in [
        (good, true),
        ("", false),
        ("{}", false),
        (r#"{"version":2,"servers":{}}"#, false),
        (r#"{"version":1,"servers":{}} x"#, false),
        (r#"{"version":1,"servers":{},"servers":{}}"#, false),
        (r#"{"version":1,"servers":{},"more":1}"#, false),
        (r#"{"version":1,"servers":{"a":{"integrity":"","command":"x","args":[]}}}"#, false),
        (r#"{"version":1,"servers":{},"capabilities":{"a.b.c.d@0.1.0":""}}"#, false),
        ("<<<<<<< HEAD\n", false),
    ] {
        let project = Project::new();
        std::fs::create_dir(project.path(".pml")).unwrap();
        std::fs::write(project.path(FILE), text).unwrap();
        assert_eq!(project.open("me").is_ok(), ok, "{text}");
    }
}

/// LK-03: a FIFO or a symbolic link is an error, and nothing is written through it.
#[test]
fn a_lock_that_is_not_a_regular_file_is_an_error() {
    let fifo = Project::new();
    std::fs::create_dir(fifo.path(".pml")).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, fifo.path(FILE), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    fifo.open("me").unwrap_err();

    let file = Project::new();
    std::fs::create_dir(file.path(".pml")).unwrap();
    std::os::unix::fs::symlink("/dev/null", file.path(FILE)).unwrap();
    file.open("me").unwrap_err();

    let folder = Project::new();
    let lock = folder.open("me").unwrap();
    let outside = folder.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, folder.path(".pml")).unwrap();
    folder.open("me").unwrap_err();
    let entry = entry(&[]);
    let hash = Integrity::of(
        &record(&locked(&entry, entry.install.as_ref().unwrap(), &grant(&[]))).unwrap(),
    );
    lock.approve(&entry, &grant(&[]), Some(hash), "terminal").unwrap_err();
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

/// LK-01: a frozen lock is not written. What it has can be allowed by another user; what it lacks is not asked about.
#[test]
fn a_frozen_lock_lacks_what_it_does_not_have() {
    let (project, known) = (Project::new(), entry(&["-y", "memory@1"]));
    approve(&project.open("me").unwrap(), &known).unwrap();
    let before = std::fs::read(project.path(FILE)).unwrap();
    let theirs = project.open("them").unwrap();
    theirs.freeze();
    let other = entry(&["-y", "memory@2"]);
    for error in [
        theirs.question(&other, &grant(&[])).unwrap_err(),
        theirs.check_start(&other, &grant(&[])).unwrap_err(),
        theirs.remove("memory").unwrap_err(),
    ] {
        assert_eq!(error.error_code, ErrorCode::ConfigInvalid);
        assert!(error.message.contains("and `--frozen` was given"), "{error:?}");
    }
    assert!(question(&theirs, &known).is_some());
    approve(&theirs, &known).unwrap();
    assert_eq!(question(&theirs, &known), None);
    assert_eq!(std::fs::read(project.path(FILE)).unwrap(), before);
}

/// An update is of what the user was shown: all of it is written, or nothing.
#[test]
fn an_update_of_another_lock_writes_nothing() {
    let packages = |version: &str| -> execution::packages::LockedPackages {
        let package = format!("{version} sha512-{}w==", "x".repeat(85));
        let npm = serde_json::json!({ "node_modules/a": package });
        serde_json::from_value(serde_json::json!({ "request": "npm:a", "npm": npm })).unwrap()
    };
    let update = |server: &str, before: Option<&str>, now: &str| PackagesUpdate {
        server: server.to_owned(),
        before: before.map(packages),
        now: packages(now),
    };
    let project = Project::new();
    let lock = project.open("me").unwrap();
    lock.update_packages(&[update("a", None, "1.0.0"), update("b", None, "1.0.0")], "--yes")
        .unwrap();
    let before = std::fs::read(project.path(FILE)).unwrap();
    let stale = [update("a", Some("1.0.0"), "2.0.0"), update("b", Some("1.1.0"), "2.0.0")];
    let error = lock.update_packages(&stale, "--yes").unwrap_err();
    assert!(error.message.contains("the packages of `b`"), "{error:?}");
    assert_eq!(std::fs::read(project.path(FILE)).unwrap(), before);
    let shown = [update("a", Some("1.0.0"), "2.0.0"), update("b", Some("1.0.0"), "2.0.0")];
    lock.update_packages(&shown, "--yes").unwrap();
    assert_eq!(lock.packages_of("b").unwrap(), Some(packages("2.0.0")));
    // The user has allowed that.
    assert!(lock.packages_to_allow().unwrap().is_empty());
}
