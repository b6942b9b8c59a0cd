//! `pml runs export` and `pml verify`: a run leaves its machine in a signed file, and is verified on another one.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};

/// Returns a project with a run that has replaced a file with a large content.
fn recorded() -> Project {
    let project = Project::offline().allow(&["filesystem:*"]);
    project.write("a.txt", "before ".repeat(4000));
    let (ran, code) = project.exec(
        "await mcp.filesystem.write_file({ path: 'a.txt', content: 'after' });
         return (await mcp.filesystem.read_text_file({ path: 'b.txt' }).catch(() => 'none')).repeat(args.n ?? 2)",
    );
    assert_eq!((code, &ran["result"]), (0, &json!("nonenone")), "{ran:#}");
    project
}

/// Runs `pml`; it must succeed.
#[track_caller]
fn done(project: &Project, arguments: &[&str]) -> String {
    let output = project.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Exports the last run into the workspace of a reader.
fn export(project: &Project, reader: &Project, options: &[&str]) -> Value {
    let file = reader.path("run.json");
    let mut arguments = vec!["runs", "export", "last", "--output", file.to_str().unwrap()];
    arguments.extend(options);
    done(project, &arguments);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    serde_json::from_str(&reader.read("run.json")).unwrap()
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr)
}

/// A run is exported in one home and workspace, and verified in another, whose user decides which key to trust.
#[test]
fn a_run_is_verified_on_another_machine() {
    let (project, reader) = (recorded(), Project::offline());
    let envelope = export(&project, &reader, &[]);
    assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
    let id = envelope["signatures"][0]["keyid"].as_str().unwrap().to_owned();
    // Nobody trusts a key because a file names it.
    let said = refused(&reader.run(&["verify", "run.json"]));
    assert!(said.contains(&format!("names the key {id}, which is not trusted")), "{said}");
    assert!(!reader.home().join(".local/state/pml/signing-key").exists(), "a reader needs no key");
    let key = done(&project, &["runs", "key"]);
    reader.write("ana.pem", &key);
    reader.write("other.pem", done(&recorded(), &["runs", "key"]));
    let said = refused(&reader.run(&["verify", "run.json", "--key", "other.pem"]));
    assert!(said.contains(&id), "{said}");
    let said = done(&reader, &["verify", "run.json", "--key", "other.pem", "--key", "ana.pem"]);
    assert!(said.starts_with(&format!("The export is what the key {id} signed.\n")), "{said}");
    // Trusted for this command only.
    refused(&reader.run(&["verify", "run.json"]));
    assert!(done(&reader, &["verify", "--trust-key", "ana.pem"]).contains(&id));
    let said = done(&reader, &["verify", "run.json", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&report["ok"], &report["signed_by"]), (&json!(true), &json!(id)), "{report:#}");
    let facts = (&report["calls"], &report["status"], &report["store_verified"], &report["absent"]);
    assert_eq!(facts, (&json!(2), &json!("completed"), &json!(true), &json!([])), "{report:#}");
    done(&reader, &["verify", "run.json", "--key", &id]);
    let output = reader.run(&["verify", "run.json", "--key", &"0".repeat(64)]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    // The machine that exported it trusts its own key.
    project.write("run.json", reader.read("run.json"));
    done(&project, &["verify", "run.json"]);
    // `openssl` computes the same id, where it is there.
    let openssl = std::process::Command::new("sh")
        .args(["-c", "openssl pkey -pubin -in \"$0\" -outform DER | sha256sum"])
        .arg(reader.path("ana.pem"))
        .output()
        .unwrap();
    let computed = text(&openssl.stdout);
    assert!(computed.starts_with(&id) || !openssl.stderr.is_empty(), "{computed}");
}

/// Large values can be left out. Their hashes stay, and the reader is told.
#[test]
fn contents_can_be_left_out() {
    let (project, reader) = (recorded(), Project::offline());
    let whole = export(&project, &reader, &[]);
    reader.write("ana.pem", done(&project, &["runs", "key"]));
    done(&reader, &["verify", "--trust-key", "ana.pem"]);
    let without = export(&project, &reader, &["--without-contents"]);
    let length = |envelope: &Value| envelope["payload"].as_str().unwrap().len();
    assert!(length(&without) + 28_000 < length(&whole), "{} {}", length(&without), length(&whole));
    let said = done(&reader, &["verify", "run.json"]);
    assert!(said.contains("1 content is not in the file; their hashes are:\n  sha256-"), "{said}");
}

/// Whatever is done to a file, it is refused, and the reason is named.
#[test]
fn an_edited_file_is_refused() {
    let (project, reader) = (recorded(), Project::offline());
    export(&project, &reader, &["--without-contents"]);
    reader.write("ana.pem", done(&project, &["runs", "key"]));
    done(&reader, &["verify", "--trust-key", "ana.pem"]);
    let original = reader.read("run.json").into_bytes();
    let refuse = |edited: &[u8]| {
        reader.write("edited.json", edited);
        let said = refused(&reader.run(&["verify", "edited.json"]));
        assert!(
            said.starts_with("error: the ") && said.contains("[4002 INTEGRITY_MISMATCH]"),
            "{said}"
        );
    };
    for part in 0..24 {
        let place = part * original.len() / 24;
        let mut edited = original.clone();
        edited[place] = if edited[place] == b'A' { b'B' } else { b'A' };
        refuse(&edited);
        refuse(&original[..place]);
    }
    refuse(&[&original[..], b"\n"].concat());
    // Another key signs another run, and the file gets its signature.
    let other = recorded();
    let stranger = Project::offline();
    let signed = export(&other, &stranger, &[]);
    let mut mixed: Value = serde_json::from_slice(&original).unwrap();
    mixed["signatures"] = signed["signatures"].clone();
    refuse((mixed.to_string() + "\n").as_bytes());
    refuse((signed.to_string() + "\n").as_bytes());
    // Far too large, without using space on the disk.
    let large = std::fs::File::create(reader.path("edited.json")).unwrap();
    large.set_len(1 << 40).unwrap();
    let said = refused(&reader.run(&["verify", "edited.json"]));
    assert!(said.contains("it is larger than 256 MiB"), "{said}");
    for missing in ["none.json", "."] {
        assert_eq!(reader.run(&["verify", missing]).status.code(), Some(2), "{missing}");
    }
}

/// A store with a fault is not exported, unless the user knows of it. The file says so then.
#[test]
fn a_doubtful_store_is_exported_only_on_request() {
    let (project, reader) = (recorded(), Project::offline());
    // As it comes from somebody else: nobody knows its end here.
    let mine = Project::offline();
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a").arg(project.path(".pml")).arg(mine.workspace());
    assert!(copy.status().unwrap().success());
    let output = mine.run(&["runs", "export", "last"]);
    let said = refused(&output);
    assert!(said.contains("the store was copied here") && said.contains("--unverified"), "{said}");
    export(&mine, &reader, &["--unverified"]);
    reader.write("mine.pem", done(&mine, &["runs", "key"]));
    let said = done(&reader, &["verify", "run.json", "--key", "mine.pem"]);
    assert!(said.contains("The store had a fault when the run was exported"), "{said}");
}
