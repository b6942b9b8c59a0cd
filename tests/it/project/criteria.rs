//! `criteria.tsv`: every acceptance criterion of the stories 14.1 to 14.11 has a test, or a reason why it has none.
//!
//! An id is a story with the number of the criterion in it.

use std::fs;

use super::threats::{faults, has_test, root};

/// The stories, with the number of their criteria.
const STORIES: &[(&str, usize)] = &[
    ("14.1", 7),
    ("14.2", 5),
    ("14.3", 8),
    ("14.3b", 7),
    ("14.4", 11),
    ("14.5", 5),
    ("14.6", 7),
    ("14.7", 8),
    ("14.8", 5),
    ("14.9", 4),
    ("14.10", 8),
    ("14.11", 7),
];

#[test]
fn every_criterion_has_a_test_or_a_reason() {
    let list = fs::read_to_string(root().join("tests/criteria.tsv")).unwrap();
    let ids: Vec<String> = STORIES
        .iter()
        .flat_map(|(story, count)| (1..=*count).map(move |number| format!("{story}.{number}")))
        .collect();
    let found = faults(&list, |id| ids.iter().any(|known| known == id), has_test);
    assert!(found.is_empty(), "{found:#?}");
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(listed, ids);
}
