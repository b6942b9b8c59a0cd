//! `threats.tsv`: every threat has a test, or a reason why it has none yet.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(group, number)| {
        matches!(
            group,
            "GW" | "AN"
                | "SB"
                | "RG"
                | "SE"
                | "CL"
                | "LM"
                | "AP"
                | "LK"
                | "PC"
                | "NP"
                | "NX"
                | "TR"
                | "RP"
                | "UP"
                | "FL"
                | "R"
        ) && number.len() == 2
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Returns the errors of a list, line by line: of an id, and its tests or the reason why it has none.
pub(super) fn faults(
    list: &str,
    is_id: impl Fn(&str) -> bool,
    has_test: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut found = Vec::new();
    for (index, line) in list.lines().enumerate() {
        let number = index + 1;
        let Some((id, entry)) = line.split_once('\t') else {
            found.push(format!("line {number}: not `ID<tab>entry`"));
            continue;
        };
        if !is_id(id) {
            found.push(format!("line {number}: `{id}` is not an id"));
        }
        if let Some(first) = seen.insert(id, number) {
            found.push(format!("line {number}: `{id}` is already on line {first}"));
        }
        let reason = ["later: ", "different: "].iter().find_map(|word| entry.strip_prefix(word));
        if let Some(reason) = reason {
            if reason.trim().len() < 8 {
                found.push(format!("line {number}: `{id}` has no test and no reason"));
            }
            continue;
        }
        if entry.trim().is_empty() {
            found.push(format!("line {number}: `{id}` has neither a test nor a reason"));
        }
        for test in entry.split_whitespace() {
            let exists = test.split_once("::").is_some_and(|(file, name)| has_test(file, name));
            if !exists {
                found.push(format!("line {number}: `{id}`: there is no test `{test}`"));
            }
        }
    }
    found
}

pub(super) fn has_test(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    text.contains(&format!("fn {name}("))
}

#[test]
fn every_threat_has_a_test_or_a_reason() {
    let list = fs::read_to_string(root().join("tests/threats.tsv")).unwrap();
    // The list only grows: removing a row would drop a promise.
    assert!(list.lines().count() >= 155, "{} rows", list.lines().count());
    let found = faults(&list, is_id, has_test);
    assert!(found.is_empty(), "{found:#?}");
}

/// Every threat id in a doc comment is in the list.
#[test]
fn every_threat_id_in_a_doc_comment_is_listed() {
    let list = fs::read_to_string(root().join("tests/threats.tsv")).unwrap();
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    let mut unlisted = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && name != "vendor" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                for line in text.lines().filter(|line| line.trim_start().starts_with("///")) {
                    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                    for id in words.filter(|word| is_id(word) && !listed.contains(word)) {
                        unlisted.push(format!("{}: {id}", path.display()));
                    }
                }
            }
        }
    }
    assert!(unlisted.is_empty(), "{unlisted:#?}");
}

/// Checks the checker: each kind of error in a made-up list is detected.
#[test]
fn errors_in_the_list_are_detected() {
    let check = |list: &str| faults(list, is_id, |file, name| (file, name) == ("a.rs", "good"));
    assert_eq!(check("GW-01\ta.rs::good\nGW-02\tlater: needs the console"), [""; 0]);
    for list in [
        "GW-01",
        "GW-01\t",
        "GW-01\ta.rs::bad",
        "GW-01\ta.rs::good b.rs::good",
        "GW-01\tlater: ",
        "XX-01\ta.rs::good",
        "GW-1\ta.rs::good",
        "GW-01\ta.rs::good\nGW-01\ta.rs::good",
    ] {
        assert_eq!(check(list).len(), 1, "{list:?}: {:?}", check(list));
    }
}
