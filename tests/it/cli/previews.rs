//! What a question shows about the file that a call changes, and that an answer is about this content.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::StdioClient;
use crate::support::terminal::say_yes;

fn started(allow: &[&str]) -> (Project, StdioClient) {
    let project = Project::offline().allow(allow);
    project.write("a.txt", "one\ntwo\nthree\n");
    let pml = project.stdio();
    (project, pml)
}

fn write(path: &str, content: &str) -> String {
    format!("await mcp.filesystem.write_file({})", json!({ "path": path, "content": content }))
}

fn description(asked: &Value) -> String {
    question(asked)["description"].as_str().unwrap().to_owned()
}

/// The lines that change are shown before the call, for a write and for an edit.
#[test]
fn a_question_shows_what_changes_in_a_file() {
    let (project, mut pml) = started(&["filesystem:read_text_file"]);
    let asked = pml.execute(&write("a.txt", "one\n2\u{1b}[2J\u{202e}\nthree\n"));
    assert!(
        description(&asked).starts_with(
            "Changes `a.txt`:\n  @@ -1,3 +1,3 @@\n   one\n  -two\n  +2\\u{1b}[2J\\u{202e}\n   three\nRun `filesystem:write_file`"
        ),
        "{}",
        description(&asked)
    );
    let changes = &question(&asked)["context"]["changes"];
    assert_eq!((&changes["path"], &changes["bytes"]), (&json!("a.txt"), &json!(14)));
    success(&say_yes(&project, &mut pml, question(&asked)));
    let edit = "await mcp.filesystem.edit_file({ path: 'a.txt', edits: [{ oldText: 'one', newText: '1' }] })";
    let shown = description(&pml.execute(edit));
    assert!(
        shown.starts_with("Changes `a.txt`:\n") && shown.contains("\n  -one\n  +1\n"),
        "{shown}"
    );
    let shown = description(&pml.execute(&write("a.txt", &project.read("a.txt"))));
    assert!(shown.starts_with("Does not change the content of `a.txt`\n"), "{shown}");
    let shown = description(&pml.execute(&write("new.txt", "x")));
    assert!(shown.starts_with("Run `filesystem:write_file`"), "{shown}");
    // A long change is cut, and says so.
    let long = (0..2_000).map(|n| format!("line {n}\n")).collect::<String>();
    let shown = description(&pml.execute(&write("a.txt", &long)));
    assert!(shown.contains("more lines of the change, sha256-"), "{shown}");
    assert!(shown.len() < 8_000, "{}", shown.len());
}

/// The agent sees the question, so it shows no content that a program could not read.
#[test]
fn a_question_reveals_nothing_that_cannot_be_read() {
    let (project, mut pml) = started(&[]);
    let asked = pml.execute(&write("a.txt", "new"));
    assert!(
        description(&asked).starts_with("Replaces `a.txt` (14 bytes)\n"),
        "{}",
        description(&asked)
    );
    drop(pml);
    let project = project.allow(&["filesystem:read_text_file"]);
    project.write(".env", "TOKEN=secret\n");
    project.write("b.bin", b"\xff\xfe secret");
    let mut pml = project.stdio();
    for path in [".env", "b.bin"] {
        let asked = pml.execute(&write(path, "x"));
        assert!(!asked.to_string().contains("secret"), "{asked:#}");
        assert!(
            description(&asked).contains(&format!("Replaces `{path}`")),
            "{}",
            description(&asked)
        );
    }
}

/// AP-01: an answer is about the content that was shown. If the file is another one by then, it is not replaced.
#[test]
fn a_file_that_changes_while_the_user_is_asked_stays() {
    let (project, mut pml) = started(&["filesystem:read_text_file"]);
    for (path, present) in [("a.txt", "mine\n"), ("new.txt", "mine, too\n")] {
        let asked = pml.execute(&write(path, "new"));
        project.write(path, present);
        let failed = say_yes(&project, &mut pml, question(&asked));
        let message = failure(&failed, "POLICY_DENIED");
        assert!(message.contains("is not what it was when the user was asked"), "{message}");
        assert_eq!(project.read(path), present);
    }
}

/// AP-01: one answer for a program covers each file as it was shown. A call that finds another content asks again.
#[test]
fn a_planned_call_that_finds_another_content_asks_again() {
    let (project, mut pml) = started(&["filesystem:read_text_file", "filesystem:edit_file"]);
    project.write("b.txt", "b\n");
    let code = format!(
        "{};\n await mcp.filesystem.edit_file({{ path: 'b.txt', edits: [{{ oldText: 'b', newText: 'B' }}] }});\n {};\n {};\n return 1",
        write("a.txt", "1\n"),
        write("b.txt", "2\n"),
        write("a.txt", "3\n"),
    );
    let asked = pml.execute(&code);
    assert_eq!(question(&asked)["approval_type"], "plan", "{asked:#}");
    let shown = description(&asked);
    assert!(
        shown.contains("1. Changes `a.txt`:\n") && shown.contains("2. Changes `b.txt`:\n"),
        "{shown}"
    );
    // What the first call leaves is not known before it is made.
    assert!(shown.contains("3. Run `filesystem:write_file`"), "{shown}");
    let again = say_yes(&project, &mut pml, question(&asked));
    let shown = description(&again);
    assert!(shown.starts_with("Changes `b.txt`:\n  @@ -1,1 +1,1 @@\n  -B\n  +2\n"), "{shown}");
    assert_eq!((project.read("a.txt").as_str(), project.read("b.txt").as_str()), ("1\n", "B\n"));
    success(&say_yes(&project, &mut pml, question(&again)));
    assert_eq!((project.read("a.txt").as_str(), project.read("b.txt").as_str()), ("3\n", "2\n"));
}
