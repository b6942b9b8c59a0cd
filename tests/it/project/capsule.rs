//! `capsule.tsv`: every requirement of the Capsule document has a test, or a reason why it has none.
//!
//! An id is a part of the document with a requirement in it.

use std::collections::BTreeMap;
use std::fs;

use super::threats::{faults, has_test, root};

/// The parts of the document, in its order, with the number of their requirements.
const PARTS: &[(&str, usize)] = &[
    ("cli", 7),
    ("engine", 6),
    ("replay", 5),
    ("policy", 10),
    ("tools", 5),
    ("store", 8),
    ("report", 3),
    ("schema", 2),
    ("errors", 2),
    ("security", 4),
    ("extension", 1),
    ("technology", 2),
    ("performance", 1),
];

#[test]
fn every_requirement_has_a_test_or_a_reason() {
    let list = fs::read_to_string(root().join("tests/capsule.tsv")).unwrap();
    let part = |id: &str| id.split('.').next().unwrap_or_default().to_owned();
    let is_id = |id: &str| PARTS.iter().any(|(known, _)| *known == part(id));
    let found = faults(&list, is_id, has_test);
    assert!(found.is_empty(), "{found:#?}");
    // A removed row would drop a promise.
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for id in list.lines().filter_map(|line| line.split('\t').next()) {
        *counts.entry(part(id)).or_default() += 1;
    }
    let expected = PARTS.iter().map(|(part, count)| ((*part).to_owned(), *count));
    assert_eq!(counts, expected.collect());
}
