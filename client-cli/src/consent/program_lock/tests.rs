//! Tests of the lock of a program: its file, and the difference between two.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};

use super::file::parse;
use super::*;

fn hash(of: &str) -> Integrity {
    Integrity::of(of.as_bytes())
}

/// A lock with a tool of each kind.
fn good() -> Value {
    json!({
        "version": 1,
        "program": { "normal_form": "pml-normal-2", "hash": hash("program") },
        "tools": {
            "filesystem:read_text_file":
                { "kind": "native", "runs_on": "client", "schema": hash("read") },
            "mine:add": { "kind": "configured", "runs_on": "client", "start": hash("start"), "schema": hash("add") },
            "text:shout": {
                "kind": "capability", "runs_on": "client", "fqdn": "acme.web.text.shout", "version": "0.1.0",
                "integrity": hash("shout"),
            },
            "words:count": {
                "kind": "capability", "runs_on": "server", "fqdn": "acme.web.words.count", "version": "1.2.0",
                "integrity": hash("count"), "reaches": ["math:eval"],
            },
        },
        "capabilities": {
            "acme.web.text.shout@0.1.0": {
                "integrity": hash("shout"),
                "tools": { "json:parse": { "kind": "registered", "runs_on": "server", "fqdn": "pml.mcp.json.parse" } },
            },
        },
    })
}

fn lock(value: &Value) -> ProgramLock {
    parse(value.to_string().as_bytes()).unwrap()
}

/// Returns the lock with another value at a place; `null` removes it.
fn with(place: &str, new: Value) -> Value {
    let mut value = good();
    let (parent, name) = place.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match new {
        Value::Null => drop(parent.remove(name)),
        new => drop(parent.insert(name.to_owned(), new)),
    }
    value
}

/// LK-02, LK-03: a lock that `pml lock` would not write is an error.
#[test]
fn a_malformed_lock_is_an_error() {
    assert!(parse(good().to_string().as_bytes()).is_ok());
    // White space and the order of keys say nothing: Git may change line ends.
    let pretty = format!("{:#}\n", good()).replace('\n', "\r\n");
    assert_eq!(parse(pretty.as_bytes()).unwrap(), lock(&good()));

    let text = good().to_string();
    let digest = hash("program").to_string();
    for (text, reason) in [
        (String::new(), "EOF"),
        ("{}".to_owned(), "missing field"),
        ("[]".to_owned(), "invalid"),
        ("<<<<<<< HEAD\n".to_owned(), "expected value"),
        (format!("{text} x"), "trailing characters"),
        (format!("\u{feff}{text}"), "expected value"),
        (text.replacen("\"version\":1", "\"version\":1,\"version\":1", 1), "duplicate key"),
        (text.replacen("\"mine:add\"", "\"text:shout\"", 1), "duplicate key `text:shout`"),
        (text.replacen("\"version\":1", "\"version\":2", 1), "it has version 2"),
        (text.replacen("\"version\":1", "\"version\":\"1\"", 1), "it has version \"1\""),
        (text.replacen("\"version\":1", "\"version\":1,\"more\":1", 1), "unknown field `more`"),
        (text.replacen(&digest, "", 1), "an integrity must be"),
        (text.replacen(&digest, "md5-1B2M2Y8AsgTpgAmY7PhCfg==", 1), "an integrity must be"),
        (text.replacen(&digest, &digest.to_uppercase(), 1), "an integrity must be"),
        (text.replacen("sha256-", "sha1-", 1), "an integrity must be"),
    ] {
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}\n{text}");
    }
    for (place, new, reason) in [
        ("/version", Value::Null, "missing field `version`"),
        ("/program", json!(["pml-normal-2", hash("program")]), "does not have the form"),
        ("/tools", Value::Null, "missing field `tools`"),
        ("/tools/mine:add/kind", json!("magic"), "unknown variant"),
        ("/tools/mine:add/runs_on", json!("both"), "unknown variant"),
        ("/tools/mine:add/fqdn", json!(1), "invalid type"),
        ("/tools/mine:add/more", json!(1), "unknown field"),
        ("/tools/mine", json!({ "kind": "native", "runs_on": "client" }), "not the id of a tool"),
        // The same tool as `mine:add`, under another spelling.
        (
            "/tools/mine:add@latest",
            json!({ "kind": "native", "runs_on": "client" }),
            "not the id of a tool",
        ),
        ("/capabilities", json!({}), "does not have the form"),
        (
            "/capabilities/acme.web.text.shout",
            json!({ "integrity": hash("shout"), "tools": {} }),
            "not the full name of a capability",
        ),
        (
            "/capabilities/acme.web.text@0.1.0",
            json!({ "integrity": hash("shout"), "tools": {} }),
            "not the full name of a capability",
        ),
    ] {
        let error = parse(with(place, new).to_string().as_bytes()).unwrap_err();
        assert!(error.contains(reason), "{place}: {error}");
    }
    let null = with("/tools/mine:add/fqdn", json!("x")).to_string().replace("\"x\"", "null");
    assert!(parse(null.as_bytes()).unwrap_err().contains("does not have the form"));
}

/// LK-03: what is not a regular file of a moderate size is an error, and never counts as no lock.
#[test]
fn a_lock_that_is_not_a_regular_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let program = |name: &str| folder.path().join(name);
    let reason = |name: &str| LockFile::read(&program(name)).unwrap_err().message;
    assert!(LockFile::read(&program("none.ts")).unwrap().is_none());

    LockFile::write(&program("good.ts"), &lock(&good())).unwrap();
    assert_eq!(LockFile::read(&program("good.ts")).unwrap().unwrap().lock, lock(&good()));
    let written = std::fs::read_to_string(program("good.ts.lock")).unwrap();
    assert_eq!(written, format!("{:#}\n", json!(lock(&good()))));

    std::os::unix::fs::symlink("good.ts.lock", program("link.ts.lock")).unwrap();
    assert!(reason("link.ts").ends_with("it is a symbolic link"), "{}", reason("link.ts"));
    std::os::unix::fs::symlink("none", program("dangling.ts.lock")).unwrap();
    assert!(reason("dangling.ts").ends_with("it is a symbolic link"));
    std::fs::create_dir(program("folder.ts.lock")).unwrap();
    assert!(reason("folder.ts").ends_with("it is not a regular file"));
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, program("fifo.ts.lock"), FileType::Fifo, mode, 0).unwrap();
    assert!(reason("fifo.ts").ends_with("it is not a regular file"));
    std::fs::write(program("large.ts.lock"), vec![b' '; 1024 * 1024 + 1]).unwrap();
    assert!(reason("large.ts").ends_with("it is larger than 1 MiB"));
    // What it quotes cannot control a terminal.
    std::fs::write(program("odd.ts.lock"), "{\"\u{202e}\":1,\"\u{202e}\":1}").unwrap();
    assert!(!reason("odd.ts").contains('\u{202e}'), "{}", reason("odd.ts"));
    assert_eq!(LockFile::path(Path::new("a/b.ts")), Path::new("a/b.ts.lock"));
}

/// Every change is in the difference, with both values.
#[test]
fn a_difference_names_each_change() {
    let before = lock(&good());
    let unchanged = Difference::between(&before, &before);
    assert!(unchanged.is_empty());
    assert_eq!(unchanged.lines(), [format!("the program is unchanged: {}", hash("program"))]);

    let (new, shout) = (hash("new"), hash("shout"));
    let tool = json!({ "kind": "native", "runs_on": "client" });
    let tools = "/tools/words:count";
    let inner = "/capabilities/acme.web.text.shout@0.1.0";
    for (place, value, line) in [
        (
            "/program/hash".to_owned(),
            json!(new),
            format!("the program changed: {} → {new}", hash("program")),
        ),
        (
            "/program/normal_form".to_owned(),
            json!("pml-normal-3"),
            "the program cannot be compared: its lock has the form `pml-normal-2`, and this `pml` uses `pml-normal-3`"
                .to_owned(),
        ),
        (
            "/tools/git:git_log".to_owned(),
            tool.clone(),
            "`git:git_log`: added, built into `pml`, on this machine".to_owned(),
        ),
        (
            "/tools/words:count".to_owned(),
            Value::Null,
            "`words:count`: removed, capability `acme.web.words.count` 1.2.0, on the gateway".to_owned(),
        ),
        (
            format!("{tools}/kind"),
            json!("registered"),
            "`words:count`: kind capability → registered".to_owned(),
        ),
        (
            format!("{tools}/runs_on"),
            json!("client"),
            "`words:count`: runs on server → client".to_owned(),
        ),
        (
            format!("{tools}/fqdn"),
            json!("evil.web.words.count"),
            "`words:count`: name acme.web.words.count → evil.web.words.count".to_owned(),
        ),
        (
            format!("{tools}/version"),
            json!("1.2.1"),
            "`words:count`: version 1.2.0 → 1.2.1".to_owned(),
        ),
        (
            format!("{tools}/version"),
            Value::Null,
            "`words:count`: version 1.2.0 → not known".to_owned(),
        ),
        (
            format!("{tools}/integrity"),
            json!(new),
            format!("`words:count`: integrity {} → {new}", hash("count")),
        ),
        (
            format!("{tools}/reaches"),
            json!(["math:eval", "web:get"]),
            "`words:count`: reaches math:eval → math:eval, web:get".to_owned(),
        ),
        (
            "/tools/mine:add/start".to_owned(),
            json!(new),
            format!("`mine:add`: start command {} → {new}", hash("start")),
        ),
        (
            "/tools/mine:add/schema".to_owned(),
            json!(new),
            format!("`mine:add`: description or schema {} → {new}", hash("add")),
        ),
        (
            "/tools/filesystem:read_text_file/schema".to_owned(),
            Value::Null,
            format!("`filesystem:read_text_file`: description or schema {} → not known", hash("read")),
        ),
        (
            format!("{inner}/integrity"),
            json!(new),
            format!("`acme.web.text.shout@0.1.0`: integrity {shout} → {new}"),
        ),
        (
            format!("{inner}/tools/json:parse/runs_on"),
            json!("client"),
            "`json:parse` in `acme.web.text.shout@0.1.0`: runs on server → client".to_owned(),
        ),
        (
            format!("{inner}/tools/web:get"),
            tool,
            "`web:get` in `acme.web.text.shout@0.1.0`: added, built into `pml`, on this machine".to_owned(),
        ),
    ] {
        let difference = Difference::between(&before, &lock(&with(&place, value)));
        assert!(!difference.is_empty(), "{place}");
        let lines = difference.lines();
        assert!(lines.contains(&line), "{place}: {lines:#?}");
        let changes = lines.iter().filter(|line| !line.contains("is unchanged")).count();
        assert_eq!(changes, 1, "{place}: {lines:#?}");
    }
}

/// A capability with a new version is compared with the old one, so that the tools which it reaches now are named.
#[test]
fn a_new_version_of_a_capability_is_compared_with_the_old_one() {
    let before = lock(&good());
    let mut value = with("/tools/text:shout/version", json!("0.1.1"));
    value["tools"]["text:shout"]["integrity"] = json!(hash("new"));
    value["capabilities"] = json!({
        "acme.web.text.shout@0.1.1": {
            "integrity": hash("new"),
            "tools": { "web:get": { "kind": "native", "runs_on": "client" } },
        },
    });
    let difference = Difference::between(&before, &lock(&value));
    assert_eq!(
        difference.lines()[1..],
        [
            "`text:shout`: version 0.1.0 → 0.1.1".to_owned(),
            format!("`text:shout`: integrity {} → {}", hash("shout"), hash("new")),
            "`json:parse` in `acme.web.text.shout`: removed, `pml.mcp.json.parse` of the registry, on the gateway"
                .to_owned(),
            "`web:get` in `acme.web.text.shout`: added, built into `pml`, on this machine".to_owned(),
        ]
    );
    let json = json!(difference);
    let expected = json!({
        "tool": "text:shout", "change": "changed", "field": "version", "from": "0.1.0", "to": "0.1.1",
    });
    assert_eq!(json["tools"][0], expected);
    assert_eq!(json["tools"][2]["within"], "acme.web.text.shout");
    assert_eq!(json["program"]["changed"], false);
}

/// The schemas of a server of `.pml.json` are compared where they are known. That they are not known is said.
#[test]
fn an_unknown_schema_is_no_change_and_is_named() {
    let (known, unknown) = (lock(&good()), lock(&with("/tools/mine:add/schema", Value::Null)));
    let learned = Difference::between(&unknown, &known);
    assert!(learned.is_empty() && learned.not_compared().is_empty());
    let forgotten = Difference::between(&known, &unknown);
    assert!(forgotten.is_empty());
    let places: Vec<String> = forgotten.not_compared().iter().map(ToString::to_string).collect();
    assert_eq!(places, ["`mine:add`"]);
    // But a tool of another kind has no such excuse.
    let replaced = with(
        "/tools/mine:add",
        json!({ "kind": "registered", "runs_on": "client", "fqdn": "acme.web.mine" }),
    );
    let lines = Difference::between(&known, &lock(&replaced)).lines();
    let schema = format!("`mine:add`: description or schema {} → not known", hash("add"));
    assert!(lines.contains(&schema), "{lines:#?}");

    let lines: Vec<String> = unknown.unknown().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "`mine:add`: schema: its server has not listed its tools on this machine",
            "`words:count`: what it reaches: the gateway says only the names of the tools that it reaches",
            "`json:parse` in `acme.web.text.shout@0.1.0`: integrity: the gateway does not say its hash",
        ]
    );
}

/// What a lock has cannot control the terminal that shows the difference.
#[test]
fn a_difference_is_escaped() {
    let odd = lock(&with("/tools/text:shout/version", json!("\u{1b}[2J\u{202e}")));
    for lines in [Difference::between(&odd, &lock(&good())).lines(), odd.lines()] {
        let text = lines.join("\n");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
}
