//! The page of `pml report`, which verifies itself in a browser.

use serde_json::{Value, json};

use super::page::browse;
use super::report::{as_json, page, report, url, with_run};
use crate::support::cli::{Project, text};
use crate::support::expect::{question, success};

/// The page computes the hashes of its records, in light and dark without a fault that axe finds, and sends nothing.
#[test]
fn a_page_verifies_itself() {
    let project = with_run();
    page(&project);
    let screenshot = std::env::var("PML_TEST_SCREENSHOT").ok();
    let file = url(&project, "report.html");
    let seen = browse(&json!({ "reports": [file], "audit": true, "screenshot": screenshot }));
    let seen = &seen[0];
    let last = as_json(&project)["last_record"].clone();
    let (_, count) = last["seq"].as_i64().map(|seq| (seq, seq - 1)).unwrap();
    let check = seen["check"][1].as_str().unwrap();
    let verified = format!(
        "Verified in this browser: all {count} records of the run have their hashes, {} of them",
        count - 1
    );
    assert!(check.starts_with(&verified), "{check}");
    assert_eq!(seen["violations"], json!([]), "{seen:#}");
    assert_eq!((&seen["errors"], &seen["requests"]), (&json!([]), &json!([])), "{seen}");
    assert_eq!(seen["pictures"], json!([true]));
    // The last scheme was the dark one.
    assert_eq!(seen["background"], "rgb(13, 17, 23)");
    let main = seen["shown"].as_str().unwrap();
    for part in [
        last["hash"].as_str().unwrap(),
        "-old",
        "+A\n",
        "+<b>",
        "-A\n",
        "+B\n",
        r#"{"path":"./a.txt"}"#,
        "PATH_OUTSIDE_WORKSPACE",
        "const failed = await",
        "`allow` has `filesystem:*` in `.pml.json`",
    ] {
        assert!(main.contains(part), "{part}: {main}");
    }
    // A browser that cannot verify does not say that it did.
    for without in ["subtle", "script"] {
        let seen = browse(&json!({ "reports": [file], "without": without }));
        let check = seen[0]["check"][1].as_str().unwrap();
        assert!(check.starts_with("Not verified: "), "{without}: {check}");
    }
}

/// RP-01: a page with one changed byte, wherever it is, says so.
#[test]
fn a_changed_page_says_so() {
    let project = with_run();
    let page = page(&project);
    let (main, records) = page.split_once("id=\"records\">").unwrap();
    let hash = |name: &str| {
        let start = records.find(&format!("\"{name}\":\"sha256-")).unwrap() + name.len() + 11;
        &records[start..start + 8]
    };
    let in_main = |from: &str, to: &str| {
        assert!(main.contains(from), "{from}");
        page.replacen(from, to, 1)
    };
    let in_records = |from: &str, to: &str| {
        assert!(records.contains(from), "{from}");
        format!("{main}id=\"records\">{}", records.replacen(from, to, 1))
    };
    let flipped = |text: &str| {
        let other = if text.starts_with('A') { 'B' } else { 'A' };
        format!("{other}{}", &text[1..])
    };
    let changed = [
        // A record, and the arguments in it.
        in_records("./a.txt", "./b.txt"),
        in_records("\"type\":\"run_began\"", "\"type\":\"run_begun\""),
        in_records("\\\"path\\\":\\\"missing\\\"", "\\\"path\\\":\\\"messing\\\""),
        in_records(hash("hash"), &flipped(hash("hash"))),
        in_records(hash("before"), &flipped(hash("before"))),
        in_records(hash("shown"), &flipped(hash("shown"))),
        in_records("\"seq\":2", "\"seq\":3"),
        // What is shown: an argument, a result, a status, the picture.
        in_main("{\"path\":\"./a.txt\"}", "{\"path\":\"./c.txt\"}"),
        in_main("\"failed\"", "\"faiLed\""),
        in_main("success</span>", "denied</span>"),
        in_main("image/svg+xml;base64,PHN2", "image/svg+xml;base64,PHN3"),
        in_main(" data-n=\"18\"", " data-n=\"17\""),
        // A record without a hash before it.
        in_records("\"before\"", "\"befora\""),
    ];
    let mut reports = vec![url(&project, "report.html")];
    for (index, changed) in changed.iter().enumerate() {
        assert_ne!(*changed, page, "{index}");
        let name = format!("changed-{index}.html");
        project.write(&name, changed);
        reports.push(url(&project, &name));
    }
    let seen = browse(&json!({ "reports": reports }));
    let checks: Vec<&Value> = seen.as_array().unwrap().iter().map(|seen| &seen["check"]).collect();
    assert_eq!(checks[0][0], "verified", "{checks:?}");
    for (index, check) in checks[1..].iter().enumerate() {
        let says = check[1].as_str().unwrap();
        assert!(
            check[0] == "changed" && says.starts_with("CHANGED OR DAMAGED: "),
            "{index}: {says}"
        );
    }
}

/// Between the records of a run, those of another one can be. They are not on its page, which says so.
#[test]
fn records_of_other_runs_are_said_to_be_missing() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let code = "return await mcp.filesystem.write_file({ path: 'a.txt', content: 'new' })";
    let asked = pml.execute(code);
    question(&asked);
    let id = as_json(&project)["run"]["run_id"].as_str().unwrap().to_owned();
    success(&project.exec("return 'of-another-run'").0);
    success(&pml.resume(&asked, true, false));
    report(&project, &[&id, "--format", "html", "--output", "report.html"]);
    let page = project.read("report.html");
    assert!(!page.contains("of-another-run"));
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    assert_eq!(seen[0]["check"][0], "verified", "{seen}");
    let main = seen[0]["shown"].as_str().unwrap();
    assert!(main.contains("At one place, records of other runs are in between."), "{main}");
    assert!(main.contains("filesystem:write_file: allowed, through the agent"), "{main}");
    let shown = text(&report(&project, &[&id]).stdout);
    assert!(
        shown.contains("? asked about filesystem:write_file: allowed, through the agent"),
        "{shown}"
    );

    // An undo is a run without a program.
    drop(pml);
    let undone = project.run(&["runs", "undo", &id]);
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    let found = as_json(&project);
    assert_eq!(found["run"]["mode"], "undo");
    assert_eq!(found["summary"]["resources"]["files_written"], json!(["a.txt"]));
    report(&project, &["--format", "html", "--output", "report.html"]);
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    assert_eq!(seen[0]["check"][0], "verified", "{seen}");
}

/// A page has less than 1 MB, however much the run did, and says what is missing.
#[test]
fn a_page_is_small() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "<&>\u{202e}".repeat(1_000));
    project.write("large.txt", "<".repeat(8 * 1024 * 1024 - 1_000));
    let (done, _) = project.exec(
        "for (let n = 0; n < 990; n++) await mcp.filesystem.read_text_file({ path: 'a.txt', head: 1 });
         for (let n = 0; n < 10; n++) await mcp.filesystem.read_text_file({ path: 'large.txt' });
         return 'x'.repeat(500000);",
    );
    success(&done);
    let page = page(&project);
    assert!(page.len() < 1_000_000, "{}", page.len());
    assert!(page.len() > 500_000, "the room is used: {}", page.len());
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    let check = &seen[0]["check"];
    assert_eq!(check[0], "partly", "{check}");
    assert!(check[1].as_str().unwrap().contains("The others are too large"), "{check}");
    let main = seen[0]["shown"].as_str().unwrap();
    for part in [
        "1000 calls: 1000 succeeded",
        " of 500002 characters are shown; `pml report --format json` has all of them.",
        " more calls are not on this page",
    ] {
        assert!(main.contains(part), "{part}");
    }
    let steps = as_json(&project)["steps"].clone();
    assert_eq!(steps.as_array().map(Vec::len), Some(1_000));
    assert_eq!(steps[999]["output"].as_str().map(str::len), Some(8 * 1024 * 1024 - 1_000));
}

/// The records of an ordinary run with as many calls as a run can have fit on its page.
#[test]
fn a_page_of_1000_calls_is_verified() {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "An ordinary line of text.\n");
    let (done, _) = project.exec(
        "for (let n = 0; n < 1000; n++) await mcp.filesystem.read_text_file({ path: 'a.txt' }); return 1",
    );
    success(&done);
    assert!(page(&project).len() < 1_000_000);
    let seen = browse(&json!({ "reports": [url(&project, "report.html")] }));
    let check = seen[0]["check"][1].as_str().unwrap();
    let verified = "Verified in this browser: all 2003 records of the run have their hashes, 2002 ";
    assert!(check.starts_with(verified), "{check}");
}
