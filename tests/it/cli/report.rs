//! `pml report`: what a recorded run did, as text, as JSON and as a page that verifies itself.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Output;

use serde_json::{Value, json};

use super::page::browse;
use super::web::Site;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::terminal::on_terminal;

/// Texts that would act if they were not escaped: markup, terminal sequences, directions, line ends.
const HOSTILE: &str = "</script></main><script>alert(1)</script><img src=x onerror=alert(2)><!--\u{1b}[2J\u{1b}]0;x\u{7}\u{202e}\u{2028}\u{200b}&lt;\r";

/// A run with a call of each kind of end.
const PROGRAM: &str = "const text = await mcp.filesystem.read_text_file({ path: './a.txt' });
const failed = await mcp.filesystem.read_text_file({ path: 'missing' }).catch(() => 'failed');
const denied = await mcp.filesystem.read_text_file({ path: '../x' }).catch(() => 'denied');
await mcp.filesystem.write_file({ path: 'b.txt', content: text + args.more });
await mcp.filesystem.edit_file({ path: 'a.txt', edits: [{ oldText: 'A', newText: 'B' }] });
return [text, failed, denied];
";

/// Creates a project with such a run.
pub(super) fn with_run() -> Project {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "A\n");
    project.write("b.txt", "old\n");
    project.write("program.ts", PROGRAM);
    let output = project.run(&["exec", "program.ts", "--args", r#"{ "more": "<b>" }"#]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    project
}

pub(super) fn report(project: &Project, arguments: &[&str]) -> Output {
    let output = project.run(&[&["report"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

fn console(project: &Project) -> String {
    text(&report(project, &["last"]).stdout)
}

#[track_caller]
pub(super) fn as_json(project: &Project) -> Value {
    serde_json::from_slice(&report(project, &["--format", "json"]).stdout).unwrap()
}

/// Writes the page of the last run; returns its text.
#[track_caller]
pub(super) fn page(project: &Project) -> String {
    report(project, &["last", "--format", "html", "--output", "report.html"]);
    project.read("report.html")
}

pub(super) fn url(project: &Project, name: &str) -> String {
    format!("file://{}", project.path(name).display())
}

/// Replaces what differs from run to run: ids, times, durations, and the hashes of what has them.
fn stable(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let is_time = name == "at" || name.ends_with("_at");
                let value = match name.as_str() {
                    _ if is_time && value.is_string() => json!("[time]"),
                    "duration_ms" | "total_duration_ms" if value.is_u64() => json!("[ms]"),
                    "last_record" => json!({ "seq": value["seq"], "hash": "[hash]" }),
                    "run_id" => json!("[run]"),
                    "pml" => json!("[version]"),
                    // It depends on the umask.
                    "mode" if value.is_u64() => json!("[mode]"),
                    _ => stable(value),
                };
                (name.clone(), value)
            };
            Value::Object(members.iter().map(member).collect())
        }
        Value::Array(items) => items.iter().map(stable).collect(),
        other => other.clone(),
    }
}

/// The same for the text form.
fn stable_text(shown: &str) -> String {
    let digits = |word: &str| word.trim_start_matches('+').parse::<f64>().is_ok();
    let line = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let next = words.get(at + 1).map(|next| next.trim_end_matches(',').to_owned());
            if matches!(next.as_deref(), Some("ms" | "s")) && digits(&words[at]) {
                words[at] = "[n]".to_owned();
            } else if words[at].starts_with("20") && words[at].ends_with('Z') {
                words[at] = "[time]".to_owned();
            } else if words[at].len() == 36 && words[at].matches('-').count() == 4 {
                words[at] = "[run]".to_owned();
            }
        }
        words.join(" ")
    };
    shown.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The text and the JSON have every call, what it used, and what was denied with its reason.
#[test]
fn a_report_says_what_a_run_did() {
    let project = with_run();
    insta::assert_snapshot!("console", stable_text(&console(&project)));
    let found = as_json(&project);
    let mut shown = stable(&found);
    // The difference that an edit returns has the path of the project.
    assert!(shown["steps"][4]["output"].as_str().unwrap().contains("-A\n+B\n"), "{shown:#}");
    shown["steps"][4]["output"] = json!("[difference]");
    shown["steps"][4]["output_hash"] = json!("[hash]");
    insta::assert_snapshot!("json", format!("{shown:#}"));
    // A prefix of the id finds the run, and nothing else does.
    let id = found["run"]["run_id"].as_str().unwrap();
    report(&project, &[&id[..30]]);
    let none = project.run(&["report", "x"]);
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stderr));
    let none = project.run(&["report", "x", "--format", "json"]);
    let none: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!(none["status"], "error", "{none}");
}

/// Only a terminal gets colours, unless `NO_COLOR` is set, and it gets no page.
#[test]
fn a_terminal_gets_colours() {
    let project = with_run();
    let (shown, code) = on_terminal(&project, &["report"], &[]);
    assert!(code == 0 && shown.contains("\u{1b}[32msuccess\u{1b}[0m"), "{shown:?}");
    let (page, code) = on_terminal(&project, &["report", "--format", "html"], &[]);
    assert!(code == 2 && page.contains("`--output report.html` writes it to a file"), "{page:?}");
    assert!(!console(&project).contains('\u{1b}'));
    let project = project.set("NO_COLOR", "1");
    let (shown, code) = on_terminal(&project, &["report"], &[]);
    assert!(code == 0 && shown.contains("✓ 1 ") && !shown.contains('\u{1b}'), "{shown:?}");
}

/// What commands, MCP servers and redirects did is not on record, and the report says so for each of these calls.
#[test]
fn what_is_not_known_is_said() {
    let site = Site::start();
    let server = Project::offline().node_server("server-everything", &[]);
    let all = json!({ "allow": ["**"] });
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["*"] },
        "policy": {
            "filesystem": { "read": all, "write": all },
            "shell": { "allow": ["echo"] },
            "web": { "private": [format!("127.0.0.1:{}", site.port)] },
            "tools": ["*"],
        },
        "mcpServers": { "everything": server },
    }));
    let (text_url, moved, broken) = (site.url("/text"), site.url("/to/1"), site.url("/no-http"));
    let (done, _) = project.exec(&format!(
        "await mcp.shell.exec({{ command: ['echo', 'x'] }});
         await mcp.everything.echo({{ message: 'x' }});
         await mcp.web.get({{ url: '{text_url}' }});
         await mcp.web.get({{ url: '{moved}' }});
         await mcp.web.get({{ url: '{broken}' }}).catch(() => null);
         await mcp.filesystem.list_directory({{ path: '.' }});
         return 1;"
    ));
    assert_eq!(success(&done), 1);
    let found = as_json(&project);
    let resources = &found["summary"]["resources"];
    assert_eq!(resources["programs_run"], json!(["echo"]), "{resources:#}");
    let host = json!([format!("127.0.0.1:{}", site.port)]);
    assert_eq!(resources["domains_contacted"], host);
    assert_eq!(resources["possible"]["domains_contacted"], host);
    assert_eq!(resources["places_listed"], json!(["."]));
    let gaps = resources["not_known"].as_array().unwrap();
    let gaps: Vec<(&str, &str)> = gaps
        .iter()
        .map(|gap| (gap["call"].as_str().unwrap(), gap["what"].as_str().unwrap()))
        .collect();
    assert_eq!(
        gaps,
        [
            ("1", "what the program read, wrote, contacted and started"),
            ("2", "what the MCP server read, wrote and contacted"),
            ("4", "which hosts the address redirected through"),
            ("5", "which hosts the address redirected through"),
        ]
    );
    let shown = console(&project);
    assert!(shown.contains("call 2, everything:echo: what the MCP server read"), "{shown}");

    // A program that a rule refuses made no call, and that is a denial, too.
    let project = Project::offline().configure(&json!({ "permissions": { "deny": ["shell:*"] } }));
    let (refused, _) = project.exec("await mcp.shell.exec({ command: ['true'] })");
    failure(&refused, "PERMISSION_DENIED");
    let found = as_json(&project);
    let denials = &found["summary"]["denials"];
    assert_eq!((&denials[0]["call"], &denials[1]), (&json!(null), &json!(null)), "{denials:#}");
    assert!(denials[0]["message"].as_str().unwrap().contains("`deny` has `shell:*`"));
    assert!(page(&project).contains("The run made no call."));
}

/// AP-02: hostile texts in arguments, results, names and errors act neither on a terminal nor in a browser.
#[test]
fn hostile_texts_stay_texts() {
    let project = Project::offline().allow(&["filesystem:*"]);
    let name = "<img src=x onerror=alert(3)>\u{202e}.txt";
    project.write(name, HOSTILE);
    let (path, content) = (json!({ "path": name }), json!(HOSTILE));
    let (done, _) = project.exec(&format!(
        "const text = await mcp.filesystem.read_text_file({path});
         await mcp.filesystem.write_file({{ path: {path}.path, content: {content} + text }});
         await mcp.filesystem.read_text_file({{ path: {content} }}).catch(() => null);
         throw new Error({content});"
    ));
    failure(&done, "PROGRAM_FAILED");
    let shown = console(&project);
    assert!(
        shown.contains("\\u{202e}") && shown.contains("<img src=x onerror=alert(3)>"),
        "{shown}"
    );
    let acts = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2028}\u{200b}".contains(c));
    assert!(!shown.contains(acts), "{shown:?}");
    let steps = as_json(&project)["steps"].clone();
    assert_eq!(steps[0]["output"], HOSTILE);
    assert!(!page(&project).contains(acts));
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    let seen = &seen[0];
    assert_eq!((&seen["check"][0], &seen["elements"]), (&json!("verified"), &json!(0)), "{seen}");
    assert_eq!((&seen["errors"], &seen["requests"]), (&json!([]), &json!([])), "{seen}");
    let main = seen["shown"].as_str().unwrap();
    assert!(main.contains("<script>alert(1)</script>") && main.contains("\\u{1b}[2J"), "{main}");
}

/// A record that somebody changed is reported as not verified, in all forms.
#[test]
fn a_changed_store_is_not_called_verified() {
    let project = with_run();
    assert!(console(&project).contains("record      verified\n"));
    // The triggers are put back: a store with other tables is not read.
    let script = "import sqlite3
store = sqlite3.connect('.pml/runs.db')
name = 'records_are_not_changed'
(trigger,) = store.execute('select sql from sqlite_master where name = ?', [name]).fetchone()
store.execute(f'drop trigger {name}')
changed = store.execute(\"update records set body = replace(body, 'missing', 'other00') where type = 'call_began'\")
store.execute(trigger)
store.commit()";
    let mut python = std::process::Command::new("python3");
    python.arg("-c").arg(script);
    let changed = project.wrap(python, &[]).output().unwrap();
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    let shown = console(&project);
    assert!(shown.contains("record      NOT VERIFIED: Record "), "{shown}");
    let found = as_json(&project);
    assert_eq!(found["verification"]["ok"], false, "{found:#}");
    page(&project);
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    assert_eq!(seen[0]["check"][0], "changed", "{seen}");
    let main = seen[0]["shown"].as_str().unwrap();
    assert!(main.starts_with("The record was not verified: Record "), "{main}");
}

/// A report is private, replaces a file, and nothing else. Keys of the user and hidden files are not in it.
#[test]
fn reports_are_private() {
    let project = with_run();
    for format in ["console", "json", "html"] {
        let arguments = ["--format", format, "--output", "out"];
        report(&project, &arguments);
        report(&project, &arguments);
        let mode = std::fs::metadata(project.path("out")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    std::fs::create_dir(project.path("folder")).unwrap();
    symlink("elsewhere", project.path("link")).unwrap();
    for name in ["folder", "link", "missing/out", "/dev/null"] {
        let refused = project.run(&["report", "--output", name]);
        assert_eq!(refused.status.code(), Some(2), "{name}: {}", text(&refused.stderr));
    }
    assert!(!project.path("elsewhere").exists());

    let canary = "canary-7f3a9c1e5b2d";
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["filesystem:*"] },
        "policy": { "filesystem": {
            "read": { "allow": ["**"], "hidden": true },
            "write": { "allow": ["**"], "hidden": true },
        } },
    }));
    project.write("a.txt", format!("key {canary}\nother\n"));
    project.write(".hidden", "in-a-hidden-file\n");
    let (done, _) = project.exec(
        "await mcp.filesystem.write_file({ path: 'a.txt', content: 'new' });
         await mcp.filesystem.write_file({ path: '.hidden', content: 'new' }); return 1",
    );
    success(&done);
    assert!(page(&project).contains(canary), "without the key, it is a text like any other");
    let project = project.set("NOTES_TOKEN", canary);
    let page = page(&project);
    assert!(!page.contains(canary) && page.contains("other"), "{page}");
    assert!(page.contains("The contents of hidden files are not shown."));
    assert!(!page.contains("in-a-hidden-file"));
}

/// Values that were erased are nowhere in a report, which says that they were, and the page verifies what is stated of them.
#[test]
fn a_report_says_what_was_erased() {
    let project = with_run();
    let erased = project.run(&["runs", "erase", "last"]);
    assert!(erased.status.success(), "{}", text(&erased.stderr));
    let shown = console(&project);
    let found = as_json(&project);
    let page = page(&project);
    for report in [&shown, &found.to_string(), &page] {
        for value in ["denied = await", "a.txt", "b.txt"] {
            assert!(!report.contains(value), "{value}: {report}");
        }
    }
    let not_known = &found["summary"]["not_known"];
    let whole = found.to_string();
    assert!(whole.contains("which place it changed: that was erased"), "{not_known:#}\n{found:#}");
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    let check = seen[0]["check"][1].as_str().unwrap();
    assert!(check.starts_with("Verified in this browser: all "), "{check}");
    assert!(
        check.contains("records were erased; their hashes are those that were stated"),
        "{check}"
    );
    // What is left of an erased record is covered, too.
    let changed = page.replacen("\"kind\":\"erased\"", "\"kind\":\"erasex\"", 1);
    assert_ne!(changed, page);
    project.write("changed.html", changed);
    let seen = browse(&json!({ "reports": [url(&project, "changed.html")] }));
    assert_eq!(seen[0]["check"][0], "changed", "{seen}");
}
