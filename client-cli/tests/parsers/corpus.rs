//! The parser tests of test262, the test suite of the ECMAScript committee.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::FailureKind;

use crate::mcp_servers;
use crate::support::{analysed, run_all};

/// The files of the corpus that do not behave as their folder says, with the reason.
const EXCEPTIONS: &str = include_str!("exceptions.tsv");
/// The time limit for the analysis of one file, in a debug build too.
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// The result for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The analysis and the engine accept it.
    Accepted,
    /// The analysis refuses it, with a numbered error.
    Refused,
    /// The analysis accepts it, but the engine's compiler does not.
    RefusedByEngine,
}

/// Every file of `pass` compiles or is refused with a numbered error. No file of `fail` and `early` compiles.
pub(crate) fn is_parsed_in_the_same_way() {
    let corpus = mcp_servers::npm("test262-parser").join("node_modules/test262-parser-tests");
    let exceptions: BTreeMap<&str, &str> = EXCEPTIONS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once('\t').expect("a file and a reason"))
        .collect();
    let (mut wrong, mut excepted, mut files) = (Vec::new(), Vec::new(), 0);
    for folder in ["pass", "fail", "early"] {
        let outcomes = outcomes(&corpus.join(folder));
        let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
        for (name, source, outcome, message) in &outcomes {
            *counts.entry(*outcome).or_default() += 1;
            let is_expected = match folder {
                // If the analysis accepts a file that does not compile, it parsed something else.
                "pass" => *outcome != Outcome::RefusedByEngine,
                _ => *outcome != Outcome::Accepted,
            };
            let id = format!("{folder}/{name}");
            if exceptions.contains_key(&*id) {
                excepted.push(id.clone());
                assert!(!is_expected, "`{id}` no longer needs an exception");
            } else if !is_expected {
                wrong.push(format!("{id}\t{outcome:?} {source:?} {message}"));
            }
        }
        files += outcomes.len();
        println!("{folder}: {} files, {counts:?}", outcomes.len());
    }
    println!("{} of {files} files are exceptions with a reason", excepted.len());
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(excepted.len(), exceptions.len(), "an exception names a file that does not exist");
    assert!(excepted.len() * 20 <= files, "more than 5 % are exceptions");
    assert!(files > 3_000, "the corpus has only {files} files");
}

/// Analyses the files of a folder and compiles those that the analysis accepts.
fn outcomes(folder: &Path) -> Vec<(String, String, Outcome, String)> {
    let mut found = Vec::new();
    let mut programs = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path).unwrap();
        let begun = Instant::now();
        let analysis = analysed(&source);
        assert!(begun.elapsed() < TIME_LIMIT, "{name} took {:?}", begun.elapsed());
        match analysis.error_body() {
            Some(error) => {
                assert!(
                    error.error_code.number() >= 1_000 && analysis.program.is_empty(),
                    "{name}"
                );
                found.push((name, source, Outcome::Refused, error.message));
            }
            None => {
                // The whole text is compiled, but `return` ends the program before anything runs.
                programs.push(format!("return;{}", analysis.program));
                found.push((name, source, Outcome::Accepted, String::new()));
            }
        }
    }
    let accepted = found.iter_mut().filter(|(_, _, outcome, _)| *outcome == Outcome::Accepted);
    for ((_, _, outcome, message), ran) in accepted.zip(run_all(programs)) {
        if let Err(failure) = ran.result {
            assert_eq!(failure.kind, FailureKind::Syntax, "{failure:?}");
            *outcome = Outcome::RefusedByEngine;
            *message = failure.message;
        }
    }
    found.sort();
    found
}
