//! Files that a later `pml` wrote.

use serde_json::json;

use crate::support::cli::{Project, text};

/// UP-07: a file of a later version is refused and stays as it is; it never counts as empty.
#[test]
fn files_of_a_later_version_are_refused_and_stay() {
    let code = "await mcp.filesystem.write_file({ path: 'x.txt', content: 'x' }); return 1;";
    let allow = json!({ "permissions": { "allow": ["filesystem:*"] } });
    for (file, of_now, later) in [
        (
            ".pml.json",
            r#"{"version":1,"permissions":{"allow":["filesystem:*"]}}"#,
            r#"{"version":2,"permissions":{"allow":["filesystem:*"]}}"#,
        ),
        (".pml/mcp.lock", r#"{"version":1,"servers":{}}"#, r#"{"version":2,"servers":{}}"#),
        (".pml/deps.json", "", r#"{"version":2}"#),
    ] {
        let project = Project::offline().configure(&allow);
        if !of_now.is_empty() {
            project.write(file, of_now);
            assert!(project.run(&["trust", "--yes"]).status.success());
            assert_eq!(project.exec(code).1, 0, "{file}");
        }
        project.write(file, later);
        let refused = project.run(&["list"]);
        assert_eq!(refused.status.code(), Some(2), "{file}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains(file), "{}", text(&refused.stderr));
        assert_eq!(project.read(file), later);
    }
}

/// UP-07: so is a record of runs.
#[test]
fn a_record_of_a_later_version_is_refused_and_stays() {
    let project = Project::offline();
    assert_eq!(project.exec("return 1;").1, 0);
    let store = project.path(".pml/runs.db");
    let set = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('pragma user_version = 99'); db.execute('pragma wal_checkpoint(truncate)')";
    let done =
        std::process::Command::new("python3").args(["-c", set]).arg(&store).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let before = std::fs::read(&store).unwrap();
    let (envelope, code) = project.exec("return 1;");
    assert_ne!(code, 0, "{envelope:#}");
    assert_eq!(envelope["error_code"], "RUN_STORE_UNAVAILABLE", "{envelope:#}");
    let shown = project.run(&["runs", "list"]);
    assert!(
        !shown.status.success() && text(&shown.stderr).contains("newer"),
        "{}",
        text(&shown.stderr)
    );
    assert_eq!(std::fs::read(&store).unwrap(), before);
}
