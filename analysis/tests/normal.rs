//! The hash of the normal form: which differences between programs change it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "normal/rename.rs"]
mod rename;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use analysis::{Limits, analyze};

fn hash(source: &str) -> String {
    let analysis = analyze(source, &Limits::default());
    let hash = analysis.normal_hash;
    hash.unwrap_or_else(|| panic!("{source}: {:?}", analysis.first_error())).to_string()
}

/// Reads the pairs of a file.
fn pairs(file: &str, between: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/normal").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    rows.map(|row| {
        let (one, other) = row.split_once(between).unwrap_or_else(|| panic!("no pair: {row}"));
        let program = |text: &str| text.trim().replace("\\n", "\n");
        (program(one), program(other))
    })
    .collect()
}

#[test]
fn equivalent_programs_have_the_same_hash() {
    let pairs = pairs("equal.txt", " === ");
    writeln!(std::io::stderr(), "{} pairs of programs have one hash", pairs.len()).unwrap();
    assert!(pairs.len() >= 40);
    for (one, other) in pairs {
        assert_ne!(one, other);
        assert_eq!(hash(&one), hash(&other), "\n{one}\n{other}");
    }
}

#[test]
fn different_programs_have_different_hashes() {
    let pairs = pairs("different.txt", " =/= ");
    writeln!(std::io::stderr(), "{} pairs of programs have two hashes", pairs.len()).unwrap();
    assert!(pairs.len() >= 60);
    for (one, other) in pairs {
        assert_ne!(hash(&one), hash(&other), "\n{one}\n{other}");
    }
}

/// Stored hashes are compared with new ones: these change only with the version.
#[test]
fn the_hash_is_stable() {
    for (source, expected) in [
        ("", "sha256-/ae90hZkTx7lyk4v546n3FgN7athidSd2l6CpPnFdXU="),
        (
            "const a = await mcp.fs.read({ path: args.p }); return a?.b ?? `x${a}`",
            "sha256-FAPgQx3psXKGsXolabLWtWDhnIGZTaVO3bmnvqCcOqE=",
        ),
    ] {
        assert_eq!(hash(source), expected, "{source}");
    }
}

/// For every case, with its locals renamed and a comment after each.
#[test]
fn renaming_locals_and_adding_comments_keeps_the_hash() {
    let (mut renamed, mut names) = (0, 0);
    for path in programs() {
        let source = std::fs::read_to_string(&path).unwrap();
        let source = source.strip_prefix('\u{feff}').unwrap_or(&source);
        // Refused programs have no form, and programs with these words can observe the names of their functions.
        let sees_names = ["name", "eval"].iter().any(|word| source.contains(word));
        if sees_names || !analyze(source, &Limits::default()).can_run() {
            continue;
        }
        let Some((other, count)) = rename::locals(source) else { continue };
        assert_eq!(hash(source), hash(&other), "{}\n{other}", path.display());
        renamed += 1;
        names += count;
    }
    writeln!(std::io::stderr(), "{renamed} programs keep their hash with {names} other names")
        .unwrap();
    assert!(renamed > 100 && names > 400, "{renamed} {names}");
}

fn programs() -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ts") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
