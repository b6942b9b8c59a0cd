//! The parser corpus of the language's committee.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::FailureKind;

use crate::mcp_servers;
use crate::support::{analysed, run_all};

/// What a file of the corpus may be, and still not do as its folder says.
const EXCEPTIONS: &str = include_str!("exceptions.tsv");
/// The longest that the analysis of one file may take, also in a debug build.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The analysis and the engine take it.
    Taken,
    /// The analysis refuses it, with a numbered error.
    Refused,
    /// The analysis takes it, the engine's compiler does not.
    RefusedByEngine,
}

/// Every file of `pass` runs or is refused with a reason; of `fail` and `early`, none runs.
pub(crate) fn is_read_alike() {
    let corpus = mcp_servers::npm("test262-parser").join("node_modules/test262-parser-tests");
    let exceptions: BTreeMap<&str, &str> = EXCEPTIONS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once('\t').expect("a file and a reason"))
        .collect();
    let (mut wrong, mut excepted, mut files) = (Vec::new(), Vec::new(), 0);
    for folder in ["pass", "fail", "early"] {
        let fates = fates(&corpus.join(folder));
        let mut counts: BTreeMap<Fate, usize> = BTreeMap::new();
        for (name, source, fate, message) in &fates {
            *counts.entry(*fate).or_default() += 1;
            let right = match folder {
                // What the analysis takes must compile, or it read something else.
                "pass" => *fate != Fate::RefusedByEngine,
                _ => *fate != Fate::Taken,
            };
            let id = format!("{folder}/{name}");
            if exceptions.contains_key(&*id) {
                excepted.push(id.clone());
                assert!(!right, "`{id}` needs no exception any more");
            } else if !right {
                wrong.push(format!("{id}\t{fate:?} {source:?} {message}"));
            }
        }
        files += fates.len();
        println!("{folder}: {} files, {counts:?}", fates.len());
    }
    println!("{} of {files} files are exceptions with a reason", excepted.len());
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(excepted.len(), exceptions.len(), "an exception names no file");
    assert!(excepted.len() * 20 <= files, "more than 5 % are exceptions");
    assert!(files > 3_000, "the corpus has only {files} files");
}

/// Analyses the files of a folder and has the engine compile what the analysis takes.
fn fates(folder: &Path) -> Vec<(String, String, Fate, String)> {
    let mut found = Vec::new();
    let mut programs = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path).unwrap();
        let begun = Instant::now();
        let analysis = analysed(&source);
        assert!(begun.elapsed() < PATIENCE, "{name} took {:?}", begun.elapsed());
        match analysis.error_body() {
            Some(error) => {
                assert!(
                    error.error_code.number() >= 1_000 && analysis.program.is_empty(),
                    "{name}"
                );
                found.push((name, source, Fate::Refused, error.message));
            }
            None => {
                // It compiles as a whole, and ends before it does anything.
                programs.push(format!("return;{}", analysis.program));
                found.push((name, source, Fate::Taken, String::new()));
            }
        }
    }
    let taken = found.iter_mut().filter(|(_, _, fate, _)| *fate == Fate::Taken);
    for ((_, _, fate, message), ran) in taken.zip(run_all(programs)) {
        if let Err(failure) = ran.result {
            assert_eq!(failure.kind, FailureKind::Syntax, "{failure:?}");
            *fate = Fate::RefusedByEngine;
            *message = failure.message;
        }
    }
    found.sort();
    found
}
