//! The page on which a person approves in a browser.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::http::{Reply, get, send};
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::mcp_servers::npm;
use crate::support::terminal::on_terminal;
use crate::support::{PATIENCE, poll};

const RUNS: &str = "
    const done = await mcp.shell.exec({ command: ['touch', 'b.txt'] });
    return done.exit_code;";

/// The media type of forms.
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Creates a project whose browser is a script that writes down the link.
pub(crate) fn with_browser() -> Project {
    let project = Project::offline();
    let script = project.home().join("browser");
    let link = project.home().join("link");
    std::fs::write(&script, format!("#!/bin/sh\nprintf %s \"$1\" >> '{}'\n", link.display()))
        .unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
    project.set("PML_BROWSER", script.to_str().unwrap())
}

/// Returns the link that the browser got, and forgets it.
#[track_caller]
pub(crate) fn link(project: &Project) -> String {
    let file = project.home().join("link");
    poll("a link", PATIENCE, || {
        let link = std::fs::read_to_string(&file).ok().filter(|link| !link.is_empty())?;
        std::fs::remove_file(&file).ok()?;
        Some(link)
    })
}

/// Returns what is between two texts of a page.
#[track_caller]
fn between<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
    let rest = page.split_once(start).unwrap_or_else(|| panic!("no `{start}`: {page}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no `{end}`: {page}")).0
}

fn body(reply: &Reply) -> String {
    text(&reply.body)
}

fn origin(link: &str) -> &str {
    &link[..link.rfind('/').unwrap()]
}

/// Sends the form of a page, as a browser does.
fn post(link: &str, fields: &str) -> Reply {
    let headers = [("origin", origin(link)), ("sec-fetch-site", "same-origin"), FORM];
    send("POST", &format!("{}/answer", origin(link)), &headers, Some(fields.into()))
}

fn asked(pml: &mut StdioClient, program: &str) -> Value {
    let asked = pml.execute(program);
    question(&asked);
    asked
}

/// Drives the real browser; returns what it saw.
#[track_caller]
pub(crate) fn browse(request: &Value) -> Value {
    let folder = npm("browser");
    // A module finds its packages beside itself.
    let script = folder.join("drive.mjs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/browser/drive.mjs");
    let temporary =
        folder.join(format!("drive-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::copy(source, &temporary).expect("the cache takes files");
    std::fs::rename(&temporary, &script).expect("the cache takes files");
    let output = Command::new("node").arg(&script).arg(request.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// AP-09, AP-10: the page answers only the form that it showed, with its code, from its own origin. The agent learns
/// nothing that could answer.
#[test]
fn only_the_shown_form_answers() {
    let project = with_browser();
    let mut pml = project.stdio();
    let asked = asked(&mut pml, RUNS);
    let link = link(&project);
    let (origin, secret) = (origin(&link), link.rsplit('/').next().unwrap());
    assert!(!asked.to_string().contains(secret) && !asked.to_string().contains(origin), "{asked}");
    let how = asked["context"]["answer_with"].as_str().unwrap();
    assert!(
        how.starts_with("the user answers on the page that `pml` had the browser open, or "),
        "{how}"
    );

    // Before it was opened: no guess, no other page, no other name.
    let id = asked["workflow_id"].as_str().unwrap();
    let guesses = ["", "answer", id, &secret[1..], &secret.to_uppercase(), "../", "%2e"];
    for guess in guesses {
        assert_ne!(get(&format!("{origin}/{guess}"), &[]).status, 200, "{guess}");
    }
    for site in ["cross-site", "same-site", "same-origin"] {
        assert_eq!(get(&link, &[("sec-fetch-site", site)]).status, 403);
    }
    let port = origin.rsplit(':').next().unwrap();
    for host in
        ["localhost", "evil.example", "127.0.0.1", "127.0.0.1:1", &format!("localhost:{port}")]
    {
        assert_eq!(get(&link, &[("host", host)]).status, 421, "{host}");
    }
    for method in ["HEAD", "PUT", "DELETE", "OPTIONS", "POST"] {
        assert_eq!(send(method, &link, &[], None).status, 405, "{method}");
    }
    let early = post(&link, &format!("secret={secret}&answer=once"));
    assert_eq!(early.status, 410);

    let page = get(&link, &[("sec-fetch-site", "none")]);
    assert_eq!(page.status, 200);
    for (header, value) in [
        ("cache-control", "no-store"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
    ] {
        assert_eq!(page.header(header), value);
    }
    let policy = page.header("content-security-policy");
    for part in
        ["default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(page.headers.get("set-cookie").is_none());
    // The link works once.
    assert_eq!(get(&link, &[]).status, 404);
    let page = body(&page);
    let code = between(&page, "type <code>", "</code>").to_owned();
    let secret = between(&page, "name=\"secret\" value=\"", "\"").to_owned();
    let right = format!("secret={secret}&code={code}&answer=once");
    // Other pages, and programs that do not say where the form is from.
    for headers in [
        &[FORM][..],
        &[FORM, ("origin", "null")],
        &[FORM, ("origin", "http://127.0.0.1")],
        &[FORM, ("origin", &format!("http://localhost:{port}"))],
        &[FORM, ("origin", &format!("https://127.0.0.1:{port}"))],
        &[FORM, ("origin", origin), ("origin", "http://evil.example")],
        &[FORM, ("origin", origin), ("sec-fetch-site", "cross-site")],
        &[FORM, ("origin", origin), ("sec-fetch-site", "same-site")],
    ] {
        let reply = send("POST", &format!("{origin}/answer"), headers, Some(right.clone().into()));
        assert_eq!(reply.status, 403, "{headers:?}");
    }
    for fields in [
        String::new(),
        format!("code={code}&answer=once"),
        format!("secret=&code={code}&answer=once"),
        format!("secret=x&secret={secret}&code={code}&answer=once"),
        format!("{right}&always=true"),
        format!("{right}&padding={}", "x".repeat(5_000)),
    ] {
        assert!(post(&link, &fields).status >= 400, "{fields}");
    }
    // A person who presses Enter has not answered, and gets a new form.
    let page = body(&post(&link, &format!("secret={secret}&code={code}&answer=later")));
    assert!(page.contains("Nothing was answered. The run waits."), "{page}");
    assert_eq!(post(&link, &right).status, 410, "the form was used up");
    let secret = between(&page, "name=\"secret\" value=\"", "\"").to_owned();
    // A permanent rule is not offered for a command.
    let always = post(&link, &format!("secret={secret}&code={code}&answer=always"));
    assert_eq!(always.status, 400);
    assert!(!project.path("b.txt").exists());
    let run = project.run(&["runs", "show", "--json"]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(run["approvals"], json!([]), "{run}");
}

/// A wrong code does not allow, and after three the page is of no use. A terminal still answers.
#[test]
fn wrong_codes_do_not_allow() {
    let project = with_browser();
    let mut pml = project.stdio();
    let asked = asked(&mut pml, RUNS);
    let link = link(&project);
    let mut page = body(&get(&link, &[]));
    for tries in 1..=3 {
        let secret = between(&page, "name=\"secret\" value=\"", "\"").to_owned();
        let reply = post(&link, &format!("secret={secret}&code=zzzzz&answer=once"));
        page = body(&reply);
        let (status, message) = match tries {
            3 => (403, "The code was wrong too often."),
            _ => (200, "That is not the code. Nothing was allowed."),
        };
        assert_eq!(reply.status, status);
        assert!(page.contains(message), "{page}");
    }
    assert!(!page.contains("name=\"secret\""));
    let retyped = [("Type ([a-z]+) to allow it, anything else to leave it unanswered: ", r"\1")];
    let (shown, code) = on_terminal(&project, &["approve"], &retyped);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(success(&pml.resume(&asked, true, false)), 0);
}

/// A person reads the question in a real browser, which shows what a terminal shows, and allows it there.
#[test]
fn a_person_approves_in_a_browser() {
    let project = with_browser();
    let mut pml = project.stdio();
    let asked = asked(&mut pml, RUNS);
    let arguments = json!({ "workflow_id": asked["workflow_id"], "approved": true });
    let waiting = pml.send("tools/call", json!({ "name": "pml_continue", "arguments": arguments }));
    let (terminal, _) = on_terminal(&project, &["approve"], &[("unanswered: ", "no")]);
    let seen = browse(&json!({
        "url": link(&project),
        "steps": [
            { "press": "Enter", "type": "CODE" },
            { "type": "xxxxx", "click": "once" },
            { "type": "CODE", "click": "once" },
        ],
    }));
    let texts: Vec<&str> = seen["seen"]
        .as_array()
        .unwrap()
        .iter()
        .map(|seen| seen["text"].as_str().unwrap())
        .collect();
    let pre = seen["seen"][0]["pre"].as_str().unwrap();
    assert!(terminal.contains(pre.trim_end()), "{terminal}\n---\n{pre}");
    assert!(
        texts[0].contains("Careful: the command can change every file in the workspace."),
        "{}",
        texts[0]
    );
    assert!(texts[1].contains("Nothing was answered. The run waits."), "{}", texts[1]);
    assert!(texts[2].contains("That is not the code. Nothing was allowed."), "{}", texts[2]);
    assert_eq!(texts[3], "Allowed; the run continues. You can close this page.");
    let first = &seen["seen"][0];
    assert_eq!(first["buttons"], json!(["Not now", "Deny and end the run", "Allow once"]));
    assert_eq!((&first["scripts"], &first["styled"]), (&json!(0), &json!("8px")));
    // The policy of the page forbids nothing that it has.
    assert_eq!(seen["errors"], json!([]), "{seen}");
    let done = pml.answer(waiting)["result"]["structuredContent"].clone();
    assert_eq!(success(&done), 0);
    assert!(project.path("b.txt").exists());
    let run = project.run(&["runs", "show", "--json"]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(run["approvals"][0]["answered_by"], "page");
    assert_eq!(run["calls"][0]["decision"], "approved on the page");
}

/// A question about a whole program has a picture of it; denying needs no code.
#[test]
fn the_page_of_a_program_has_its_picture() {
    let project = with_browser().configure(&json!({ "approvals": "human" }));
    let mut pml = project.stdio();
    asked(
        &mut pml,
        "await mcp.filesystem.write_file({ path: 'a.txt', content: '<script>alert(1)</script>' });
         await mcp.shell.exec({ command: ['sh', '-c', 'echo \u{202e}x'] }); return 1",
    );
    let seen = browse(&json!({ "url": link(&project), "steps": [{ "click": "deny" }] }));
    let first = &seen["seen"][0];
    assert_eq!((&first["picture"], &first["scripts"]), (&json!([true]), &json!(0)), "{first}");
    let pre = first["pre"].as_str().unwrap();
    assert!(pre.contains("<script>alert(1)</script>") && pre.contains("\\u{202e}"), "{pre}");
    assert_eq!(seen["seen"][1]["text"], "Denied; the run was ended. You can close this page.");
    assert_eq!(seen["errors"], json!([]), "{seen}");
    assert!(!project.path("a.txt").exists());
}

/// AP-10: a page of another origin, on this machine as well, can neither answer nor show the question in a frame.
#[test]
fn another_page_cannot_answer() {
    let project = with_browser();
    let mut pml = project.stdio();
    asked(&mut pml, RUNS);
    let link = link(&project);
    let seen = browse(&json!({ "url": link, "attack": true }));
    assert_eq!(seen["framed"], false, "{seen}");
    let answers = seen["answers"].as_array().unwrap();
    assert!(answers.len() >= 4 && answers.iter().all(|answer| answer[1] != 200), "{seen}");
    assert!(seen["text"].as_str().unwrap().contains("This request was refused."), "{seen}");
    assert!(!project.path("b.txt").exists());
    // The link still works for the person.
    let page = browse(&json!({ "url": link, "steps": [{ "type": "CODE", "click": "once" }] }));
    assert_eq!(page["seen"][1]["text"], "Allowed; the run continues. You can close this page.");
}

/// No page is opened for what the agent may answer, for a client that shows forms, and without a browser.
#[test]
fn pages_are_opened_only_where_they_are_needed() {
    let ordinary = with_browser();
    let mut pml = ordinary.stdio();
    let write = "await mcp.filesystem.create_directory({ path: 'x' }); return 1";
    let asked = asked(&mut pml, write);
    assert!(asked["context"].get("answer_with").is_none(), "{asked}");
    let off = with_browser().set("PML_BROWSER", "off");
    let dangerous = question(&off.stdio().execute(RUNS)).clone();
    let how = dangerous["context"]["answer_with"].as_str().unwrap();
    assert!(how.starts_with("the user runs `pml approve "), "{how}");
    let broken = with_browser().set("PML_BROWSER", "/nowhere/browser");
    let dangerous = question(&broken.stdio().execute(RUNS)).clone();
    assert!(dangerous["context"]["answer_with"].as_str().unwrap().starts_with("the user runs "));
    let forms = with_browser();
    let mut pml = forms.stdio_with_forms(Era::Handshake);
    let arguments = json!({ "name": "pml_execute", "arguments": { "code": RUNS } });
    let waiting = pml.send("tools/call", arguments);
    assert!(pml.answer_within(waiting, std::time::Duration::from_millis(500)).is_none());
    for project in [ordinary, off, broken, forms] {
        assert!(!project.home().join("link").exists());
    }
}

/// A page whose question was answered elsewhere says so.
#[test]
fn a_question_is_answered_once() {
    let project = with_browser();
    let mut pml = project.stdio();
    let asked = asked(&mut pml, RUNS);
    let link = link(&project);
    let page = body(&get(&link, &[]));
    failure(&pml.resume(&asked, false, false), "APPROVAL_DENIED");
    let secret = between(&page, "name=\"secret\" value=\"", "\"");
    let code = between(&page, "type <code>", "</code>");
    let late = post(&link, &format!("secret={secret}&code={code}&answer=once"));
    assert_eq!(late.status, 410);
    assert!(body(&late).contains("This question does not wait any more"), "{}", body(&late));
    assert!(!project.path("b.txt").exists());
}
