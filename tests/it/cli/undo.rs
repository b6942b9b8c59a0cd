//! `pml runs undo`: what a run changed is put back, byte for byte, unless somebody has changed it since.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::cli::{Project, policy_for, text};
use crate::support::expect::{failure, question, success};
use crate::support::scaled;
use crate::support::terminal::say_yes;

/// A project in which file tools run without a question, also for hidden files.
fn project() -> Project {
    Project::offline().configure(&json!({
        "permissions": { "allow": ["filesystem:*", "shell:exec"] },
        "policy": policy_for(&["touch"]),
    }))
}

/// Describes everything in a folder: types, modes, contents and the targets of links.
fn snapshot(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            if name == ".pml" {
                continue;
            }
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.mode() & 0o7777;
            let what = if metadata.is_symlink() {
                format!("link to {}", std::fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                folders.push(path);
                format!("folder {mode:o}")
            } else {
                format!("file {mode:o} {:?}", std::fs::read(&path).unwrap())
            };
            found.insert(name, what);
        }
    }
    found
}

pub(crate) fn last_run(project: &Project) -> String {
    let listed = project.run(&["runs", "list", "--limit", "1", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed["runs"][0]["run_id"].as_str().unwrap().to_owned()
}

/// Undoes a run and returns the answer and its exit code.
fn undo(project: &Project, run: &str) -> (Value, i32) {
    let output = project.run(&["runs", "undo", run, "--json"]);
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    (answer, output.status.code().unwrap())
}

/// A small generator of numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn path(&mut self) -> String {
        let names = ["a", "b", "d", "d/a", "d/e", "d/e/b", "n", "n/m", "n/m/x", "link", ".h", "to"];
        names[self.below(names.len())].to_owned()
    }

    /// Returns a call of a file tool, which may fail.
    fn call(&mut self) -> String {
        let (path, other, n) = (self.path(), self.path(), self.below(1000));
        match self.below(5) {
            0 | 1 => format!(
                "filesystem.write_file({{ path: '{path}', content: 'text {n}\\n'.repeat({n} % 7) }})"
            ),
            2 => format!("filesystem.create_directory({{ path: '{path}' }})"),
            3 => format!("filesystem.move_file({{ source: '{path}', destination: '{other}' }})"),
            _ => format!(
                "filesystem.edit_file({{ path: '{path}', edits: [{{ oldText: 'e', newText: '<{n}>' }}] }})"
            ),
        }
    }
}

/// Every effect of random programs is put back, with modes and links, and an undo can be undone.
#[test]
fn random_programs_are_undone() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut changed = 0;
    for round in 0..scaled(100) {
        let project = project();
        for (path, content, mode) in [
            ("a", "one e", 0o644),
            ("d/a", "two e", 0o600),
            ("d/e/b", "three e\r\n", 0o755),
            (".h", "e", 0o640),
        ] {
            project.write(path, content);
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(project.path(path), permissions).unwrap();
        }
        std::fs::write(project.path("to"), b"\xff\x00 not text").unwrap();
        std::os::unix::fs::symlink("d/a", project.path("link")).unwrap();
        let before = snapshot(&project.workspace());
        let calls: String = (0..12)
            .map(|_| format!("try {{ await mcp.{}; done++ }} catch {{}}\n", random.call()))
            .collect();
        let (ran, _) = project.exec(&format!("let done = 0;\n{calls}return done;"));
        assert!(success(&ran).as_u64().unwrap() > 0, "{calls}");
        let after = snapshot(&project.workspace());
        changed += usize::from(after != before);
        let (answer, code) = undo(&project, &last_run(&project));
        assert_eq!(code, 0, "round {round}: {answer:#}\n{calls}");
        assert_eq!(snapshot(&project.workspace()), before, "round {round}: {answer:#}\n{calls}");
        if let Some(again) = answer["undone_by"].as_str() {
            let (answer, code) = undo(&project, again);
            assert_eq!(code, 0, "round {round}: {answer:#}\n{calls}");
            assert_eq!(snapshot(&project.workspace()), after, "round {round}: {answer:#}\n{calls}");
        }
        let verified = project.run(&["runs", "verify"]);
        assert!(verified.status.success(), "{}", text(&verified.stdout));
    }
    assert!(changed * 10 >= scaled(100) * 9, "{changed} programs changed something");
}

/// Nothing is put back if somebody has changed one of the places since: content, kind, or what is at a new place.
#[test]
fn what_was_changed_since_stays() {
    let write = "await mcp.filesystem.write_file({ path: 'a', content: 'new' });
        await mcp.filesystem.write_file({ path: 'd/b', content: 'new' });
        await mcp.filesystem.move_file({ source: 'from', destination: 'to' });
        await mcp.filesystem.create_directory({ path: 'made' });";
    type Spoil = fn(&Project);
    let spoil: [(&str, Spoil); 12] = [
        ("a", |project| project.write("a", "edited")),
        ("a", |project| std::fs::remove_file(project.path("a")).unwrap()),
        ("a", |project| {
            std::fs::remove_file(project.path("a")).unwrap();
            std::os::unix::fs::symlink("d/b", project.path("a")).unwrap();
        }),
        ("d/b", |project| project.write("d/b", "edited")),
        // The folder is another one, by a link.
        ("d/b", |project| {
            std::fs::rename(project.path("d"), project.path("moved")).unwrap();
            std::os::unix::fs::symlink("moved", project.path("d")).unwrap();
        }),
        ("from", |project| project.write("from", "again")),
        // Something else is at the new place.
        ("to", |project| project.write("to", "another")),
        ("to", |project| {
            std::fs::remove_file(project.path("to")).unwrap();
            std::fs::create_dir(project.path("to")).unwrap();
        }),
        ("to", |project| {
            std::fs::rename(project.path("to"), project.path("kept")).unwrap();
            std::os::unix::fs::symlink("kept", project.path("to")).unwrap();
        }),
        // Permissions are part of a file.
        ("a", |project| {
            let permissions = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(project.path("a"), permissions).unwrap();
        }),
        ("to", |project| {
            let permissions = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(project.path("to"), permissions).unwrap();
        }),
        ("made", |project| {
            std::fs::remove_dir(project.path("made")).unwrap();
            project.write("made", "a file");
        }),
    ];
    for (place, change) in spoil {
        let project = project();
        project.write("a", "old");
        project.write("d/c", "c");
        project.write("from", "moved");
        success(&project.exec(write).0);
        let run = last_run(&project);
        change(&project);
        let spoiled = snapshot(&project.workspace());
        let (refused, code) = undo(&project, &run);
        assert_eq!(code, 1, "{place}: {refused:#}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{place}` was changed since")), "{place}: {message}");
        assert_eq!(snapshot(&project.workspace()), spoiled, "{place}");
    }
}

/// What is put back needs its folder. Nothing is changed if that is gone.
#[test]
fn a_folder_that_is_gone_is_a_conflict() {
    let project = project();
    project.write("d/from", "moved");
    project.write("a", "old");
    success(&project.exec("await mcp.filesystem.move_file({ source: 'd/from', destination: 'to' }); await mcp.filesystem.write_file({ path: 'a', content: 'new' });").0);
    std::fs::remove_dir(project.path("d")).unwrap();
    let (refused, code) = undo(&project, "last");
    assert_eq!((code, &refused["error_code"]), (1, &json!("CONFLICT")), "{refused:#}");
    assert!(refused["message"].as_str().unwrap().contains("the folder `d` is gone"), "{refused:#}");
    assert_eq!((project.read("a"), project.read("to")), ("new".to_owned(), "moved".to_owned()));
}

/// A change that was made is put back although its call failed, and a call that changed nothing is not mentioned.
#[test]
fn a_change_is_judged_by_the_file_and_not_by_its_call() {
    let project = project();
    let line = "x".repeat(6_000_000);
    project.write("a", format!("{line}Q"));
    project.write("d/b", "b");
    let code = "let failed = 0;
        for (const call of [
            () => mcp.filesystem.edit_file({ path: 'a', edits: [{ oldText: 'Q', newText: 'Z' }] }),
            () => mcp.filesystem.write_file({ path: 'missing/b', content: 'x' }),
        ]) { try { await call() } catch { failed++ } }
        await mcp.filesystem.create_directory({ path: 'd' });
        return failed;";
    assert_eq!(success(&project.exec(code).0), 2);
    let (answer, code) = undo(&project, "last");
    assert_eq!((code, &answer["not_covered"]), (0, &json!([])), "{answer:#}");
    assert!(project.read("a") == format!("{line}Q"));
}

/// Records that came with the project are another user's: they put nothing back, and never touch a protected place.
#[test]
fn records_that_were_copied_are_not_trusted() {
    let (ours, theirs) = (project(), project());
    let write = "for (const path of ['a', 'AGENTS.md']) await mcp.filesystem.write_file({ path, content: 'new' });";
    theirs.write("a", "old");
    theirs.write("AGENTS.md", "old");
    let mut pml = theirs.stdio();
    let asked = pml.execute(write);
    success(&say_yes(&theirs, &mut pml, question(&asked)));
    drop(pml);
    let run = last_run(&theirs);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(theirs.path(".pml"))
        .arg(ours.workspace())
        .status();
    assert!(copied.unwrap().success());
    ours.write("a", "new");
    ours.write("AGENTS.md", "new");
    let before = snapshot(&ours.workspace());
    for _ in 0..2 {
        let (refused, code) = undo(&ours, &run);
        assert_eq!(code, 1, "{refused:#}");
        assert!(
            refused["message"].as_str().unwrap().contains("the store was copied here"),
            "{refused:#}"
        );
        let forced = ours.run(&["runs", "undo", &run, "--unverified"]);
        assert!(
            text(&forced.stderr).contains("`AGENTS.md` is a protected place"),
            "{}",
            text(&forced.stderr)
        );
        assert_eq!(snapshot(&ours.workspace()), before);
        // From now on, the end of the store is known.
        success(&ours.exec("return 1").0);
    }
    success(&ours.exec("await mcp.filesystem.write_file({ path: 'b', content: 'b' })").0);
    assert_eq!(undo(&ours, "last").1, 0);
    assert!(!ours.path("b").exists());
    // Where the run was recorded, the user may put back what the user allowed.
    assert_eq!(undo(&theirs, &run).1, 0);
    assert_eq!((theirs.read("a"), theirs.read("AGENTS.md")), ("old".to_owned(), "old".to_owned()));
}

/// A name that is not text cannot be recorded, so that nothing is changed there.
#[test]
fn names_that_are_not_text_are_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let project = project();
    let odd = project.workspace().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, project.path("l")).unwrap();
    for call in [
        "write_file({ path: 'l/new', content: 'x' })",
        "create_directory({ path: 'l/new' })",
        "move_file({ source: 'a', destination: 'l/a' })",
    ] {
        project.write("a", "a");
        let (failed, _) = project.exec(&format!("await mcp.filesystem.{call}"));
        assert!(failure(&failed, "TOOL_FAILED").contains("not UTF-8"), "{failed:#}");
    }
    assert_eq!(std::fs::read_dir(&odd).unwrap().count(), 0);
    assert_eq!(project.read("a"), "a");
}

/// A file that the user put into a folder of the run keeps the folder. Later runs are undone first.
#[test]
fn folders_with_other_files_stay_and_later_runs_come_first() {
    let project = project();
    success(&project.exec("await mcp.filesystem.create_directory({ path: 'made/inner' }); await mcp.filesystem.write_file({ path: 'made/a', content: '1' })").0);
    let first = last_run(&project);
    success(&project.exec("await mcp.filesystem.write_file({ path: 'made/a', content: '2' })").0);
    let second = last_run(&project);
    assert_eq!(undo(&project, &first).1, 1);
    assert_eq!(undo(&project, &second).1, 0);
    assert_eq!(project.read("made/a"), "1");
    project.write("made/mine", "mine");
    let (answer, code) = undo(&project, &first);
    assert_eq!((code, &answer["kept_folders"]), (0, &json!(["made"])), "{answer:#}");
    assert!(!project.path("made/inner").exists() && !project.path("made/a").exists());
    assert_eq!(project.read("made/mine"), "mine");
}

/// The text names the steps, what is not covered, and how to take it back. A dry run changes nothing.
#[test]
fn the_text_says_what_is_done_and_what_is_not() {
    let project = project();
    project.write("a", "old");
    let code = "await mcp.filesystem.write_file({ path: 'a', content: 'new' });
        await mcp.filesystem.write_file({ path: 'b\\u001b[2J', content: 'x' });
        await mcp.shell.exec({ command: ['touch', 'c'] });";
    success(&project.exec(code).0);
    let run = last_run(&project);
    let dry = project.run(&["runs", "undo", &run, "--dry-run"]);
    assert_eq!(
        text(&dry.stdout),
        "remove b\\u{1b}[2J\nrestore a (3 bytes)\n\
         note: what 1 call of `shell:exec` changed is not known, and stays.\n\
         Nothing was changed: this was a dry run.\n"
    );
    assert_eq!(project.read("a"), "new");
    let undone = project.run(&["runs", "undo", &run[..30]]);
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    assert_eq!(project.read("a"), "old");
    assert!(text(&undone.stdout).contains("Undone. `pml runs undo "), "{}", text(&undone.stdout));
    assert!(project.path("c").exists());
    let again = project.run(&["runs", "undo", &run]);
    assert!(
        text(&again.stdout).contains("It was undone already; `pml runs undo "),
        "{}",
        text(&again.stdout)
    );
    let shown = text(&project.run(&["runs", "show", &run]).stdout).to_owned();
    assert!(shown.contains("  changed   a, 3 bytes before\n"), "{shown}");
    let unknown = project.run(&["runs", "undo", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
}

/// P7: a file is replaced only after its content was kept. If it cannot be, the run ends and the file stays.
#[test]
fn what_cannot_be_kept_is_not_replaced() {
    let project = project();
    project.write("a", "old");
    project.write("b", "other");
    success(&project.exec("await mcp.filesystem.write_file({ path: 'b', content: 'x' })").0);
    // A file where the folder of kept contents should be.
    std::fs::remove_dir_all(project.path(".pml/contents")).unwrap();
    project.write(".pml/contents", "");
    let (refused, code) = project.exec(
        "try { await mcp.filesystem.write_file({ path: 'a', content: 'new' }) } catch {} return 1",
    );
    failure(&refused, "RUN_STORE_UNAVAILABLE");
    assert_eq!((code, project.read("a").as_str()), (4, "old"));
}

/// A kept content that somebody changes is found by `verify`, and is not put back.
#[test]
fn changed_contents_are_not_put_back() {
    let project = project();
    project.write("a", "old");
    success(&project.exec("await mcp.filesystem.write_file({ path: 'a', content: 'new' })").0);
    let run = last_run(&project);
    let folder = project.path(".pml/contents");
    let mut kept = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.find(|path| std::fs::read(path).unwrap() == b"old").unwrap();
    assert_eq!(std::fs::metadata(&kept).unwrap().mode() & 0o777, 0o600);
    std::fs::write(&kept, "bad").unwrap();
    let (refused, code) = undo(&project, &run);
    assert_eq!(code, 1);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("a file content that is missing or was changed"), "{refused:#}");
    let forced = project.run(&["runs", "undo", &run, "--unverified"]);
    assert_eq!(forced.status.code(), Some(1));
    let message = text(&forced.stderr);
    assert!(message.contains("the content of `a` was not kept"), "{message}");
    assert_eq!(project.read("a"), "new");
    let verified = project.run(&["runs", "verify"]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(
        text(&verified.stdout).contains("a file content that is missing or was changed"),
        "{}",
        text(&verified.stdout)
    );
}
