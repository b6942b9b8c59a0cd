//! Merges a program of several files into one text.
//!
//! [`bundle`] is pure: it returns which files it still needs, and the caller reads
//! them. The files are concatenated, imported files first, so that their top
//! levels become the top level of the program. Names that collide get a number.
//! The result is a program like any other: this text is analysed, shown, hashed
//! and run.
//!
//! ```
//! use analysis::{Bundled, SourceFile, Sources, bundle};
//!
//! let mut sources = Sources::new("main.ts", "import { twice } from './lib'\nreturn twice(args.n);\n");
//! let limits = analysis::Limits::default();
//! let Bundled::Needs(needed) = bundle(&sources, &limits) else { panic!() };
//! assert_eq!(needed[0].path, "lib");
//! sources.add("lib", "lib.ts", "export const twice = (n: number) => 2 * n;\n");
//! let Bundled::Whole(program) = bundle(&sources, &limits) else { panic!() };
//! assert_eq!(
//!     program.code,
//!     "// ./lib.ts\nconst twice = (n: number) => 2 * n;\n// ./main.ts\nreturn twice(args.n);\n",
//! );
//! # let _ = SourceFile { path: String::new(), text: String::new() };
//! ```

mod link;
mod path;
mod unit;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnostic::{Code, Diagnostic, Finding, offset_of, position};
use crate::{Limits, STACK_GIVEN, STACK_NEEDED};
use link::Linked;
pub use path::candidates;
use unit::Unit;
use write::Writer;

/// The maximum number of files of one program.
pub const FILE_LIMIT: usize = 200;

/// One file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its path relative to the folder that contains all files, separated by `/`.
    pub path: String,
    /// Its contents.
    pub text: String,
}

/// The files of a program that have been read so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The files, the entry first, each once.
    files: Vec<SourceFile>,
    /// The file that each imported path resolves to.
    found: BTreeMap<String, String>,
}

impl Sources {
    /// Starts with the entry file.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let entry = SourceFile { path: path.into(), text: text.into() };
        let found = BTreeMap::from([(entry.path.clone(), entry.path.clone())]);
        Self { files: vec![entry], found }
    }

    /// Adds the file that a needed path resolves to. A file that is present already only gets another path.
    pub fn add(
        &mut self,
        needed: impl Into<String>,
        path: impl Into<String>,
        text: impl Into<String>,
    ) {
        let file = SourceFile { path: path.into(), text: text.into() };
        self.found.insert(needed.into(), file.path.clone());
        if !self.files.iter().any(|known| known.path == file.path) {
            self.found.insert(file.path.clone(), file.path.clone());
            self.files.push(file);
        }
    }

    /// Returns the total size of the files, in bytes.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }
}

/// An error or warning in one file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiagnostic {
    /// The file, relative to the folder of the entry file: `./lib/x.ts`.
    pub file: String,
    /// The error or warning.
    pub diagnostic: Diagnostic,
}

/// A file that is needed and has not been added yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// The imported path, relative to the common folder. [`candidates`] lists the files that it may mean.
    pub path: String,
    /// The import, with the message to report if there is no such file.
    pub import: FileDiagnostic,
}

/// The result of bundling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bundled {
    /// These files are missing.
    Needs(Vec<Needed>),
    /// The program is complete.
    Whole(Bundle),
    /// The files cannot be bundled.
    Refused(Vec<FileDiagnostic>),
}

/// A program of several files as one text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The program.
    pub code: String,
    /// The files in it, the entry first, relative to the entry's folder. Empty if the code is one unchanged text.
    pub files: Vec<String>,
    chunks: Vec<Chunk>,
}

/// A part of a bundle that was copied unchanged from a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    /// Where it begins in the bundle, in bytes.
    start: usize,
    /// Where it ends there.
    end: usize,
    /// Its file.
    file: usize,
    /// The line in the file.
    line: u32,
    /// The column in that line.
    column: u32,
}

/// The position in a file from which a part of a bundle comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin<'b> {
    /// The file, relative to the folder of the entry.
    pub file: &'b str,
    /// The line, from 1.
    pub line: u32,
    /// The column in code points, from 1.
    pub column: u32,
}

impl Bundle {
    /// Makes a bundle from one text, unchanged.
    pub fn of_one(code: impl Into<String>) -> Self {
        Self { code: code.into(), files: Vec::new(), chunks: Vec::new() }
    }

    /// Returns whether it consists of more than one file.
    pub fn has_imports(&self) -> bool {
        self.files.len() > 1
    }

    /// Returns the file and position of a line and column of the bundle.
    pub fn origin(&self, line: u32, column: u32) -> Option<Origin<'_>> {
        let offset = offset_of(&self.code, line, column)?;
        // A renamed identifier lies between chunks and is attributed to the chunk before it.
        let chunk = self.chunks.iter().rev().find(|chunk| chunk.start <= offset)?;
        let (down, right) = position(&self.code[chunk.start..], offset - chunk.start);
        Some(Origin {
            file: self.files.get(chunk.file)?,
            line: chunk.line + down - 1,
            column: if down == 1 { chunk.column + right - 1 } else { right },
        })
    }
}

/// Merges the files of a program into one text, or returns which are missing.
///
/// A program that imports nothing is returned unchanged.
pub fn bundle(sources: &Sources, limits: &Limits) -> Bundled {
    let Some(entry) = sources.files.first() else { return Bundled::Refused(Vec::new()) };
    if !may_import(&entry.text) {
        return Bundled::Whole(Bundle::of_one(&*entry.text));
    }
    stacker::maybe_grow(STACK_NEEDED, STACK_GIVEN, || on_large_stack(sources, entry, limits))
}

/// Returns whether a text may contain an `import`, without parsing it.
fn may_import(text: &str) -> bool {
    text.contains("import")
}

fn on_large_stack(sources: &Sources, entry: &SourceFile, limits: &Limits) -> Bundled {
    let refuse = |file: &SourceFile, findings: Vec<Finding>| {
        let text = file.text.trim_start_matches('\u{feff}');
        Bundled::Refused(
            crate::located(findings, text)
                .into_iter()
                .map(|diagnostic| FileDiagnostic {
                    file: path::shown_from(&entry.path, &file.path),
                    diagnostic,
                })
                .collect(),
        )
    };
    let mut units: Vec<Unit> = Vec::new();
    for (index, file) in sources.files.iter().enumerate() {
        match unit::read(&file.path, &file.text, index == 0, limits) {
            Ok(unit) => units.push(unit),
            // The analysis of a single file has the better error messages.
            Err(_) if index == 0 && !begins_with_import(&file.text) => {
                return Bundled::Whole(Bundle::of_one(&*file.text));
            }
            Err(findings) => return refuse(file, findings),
        }
    }
    if units[0].imports.is_empty() && units[0].edges.is_empty() && units[0].edits.is_empty() {
        return Bundled::Whole(Bundle::of_one(&*entry.text));
    }
    let (edges, needed) = connect(sources, &units);
    // This bounds the work here; the analysis checks the exact size of the bundle.
    let max_bytes = 4 * limits.source_bytes;
    if needed.len() + units.len() > FILE_LIMIT || sources.bytes() > max_bytes {
        let message = format!(
            "too many files or too much source text; at most {FILE_LIMIT} files and {max_bytes} bytes in total"
        );
        return refuse(entry, vec![Finding::new(Code::TooComplex, units[0].body, message)]);
    }
    if !needed.is_empty() {
        let needs = needed.into_iter().map(|(path, (unit, at))| {
            let named = crate::diagnostic::shown(&path, 200);
            let message = format!("file `{named}` not found");
            let finding = Finding::new(Code::UnsupportedSyntax, at, message);
            let import = FileDiagnostic {
                file: path::shown_from(&entry.path, &units[unit].path),
                diagnostic: finding.locate(&units[unit].text),
            };
            Needed { path, import }
        });
        return Bundled::Needs(needs.collect());
    }
    let mut linked = Linked::new(&units, &edges);
    let order = match linked.order() {
        Ok(order) => order,
        Err((unit, finding)) => return refuse(&sources.files[unit], vec![finding]),
    };
    let meanings = match linked.meanings() {
        Ok(meanings) => meanings,
        Err(mut faults) => {
            let first = faults.first().map_or(0, |(unit, _)| *unit);
            faults.retain(|(unit, _)| *unit == first);
            let findings = faults.into_iter().map(|(_, finding)| finding).collect();
            return refuse(&sources.files[first], findings);
        }
    };
    // The entry chooses its names first, so that it keeps them where possible.
    let mut naming_order: Vec<usize> = vec![0];
    naming_order.extend(order.iter().filter(|unit| **unit != 0));
    let names = linked.names(&naming_order, &meanings);
    let Writer { code, chunks } = Writer::write(&units, &order, &meanings, &names);
    let files = units.iter().map(|unit| path::shown_from(&entry.path, &unit.path)).collect();
    Bundled::Whole(Bundle { code, files, chunks })
}

/// Returns whether a text that does not parse seems to contain imports.
fn begins_with_import(text: &str) -> bool {
    text.lines().any(|line| {
        line.trim_start_matches('\u{feff}')
            .trim_start()
            .strip_prefix("import")
            .is_some_and(|rest| rest.starts_with([' ', '\t', '{', '*', '"', '\'']))
    })
}

/// The paths without a known file, each with the unit and the offset of its first import.
type Unknown = BTreeMap<String, (usize, u32)>;

/// Returns the file of each edge, and the paths without a known file.
fn connect(sources: &Sources, units: &[Unit]) -> (Vec<Vec<usize>>, Unknown) {
    let by_path: BTreeMap<&str, usize> =
        units.iter().enumerate().map(|(index, unit)| (unit.path.as_str(), index)).collect();
    let mut needed = BTreeMap::new();
    let mut edges = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let mut of_unit = Vec::new();
        for edge in &unit.edges {
            let file = sources.found.get(&edge.path).and_then(|path| by_path.get(path.as_str()));
            match file {
                Some(file) => of_unit.push(*file),
                None => {
                    needed.entry(edge.path.clone()).or_insert((index, edge.at));
                }
            }
        }
        edges.push(of_unit);
    }
    (edges, needed)
}

/// Bundles the files of an encoded [`Sources`] and returns the encoded [`Bundled`], as a sealed job.
///
/// The parser is third-party code and the text is untrusted, so this runs in a process that can be killed.
pub fn bundle_job(input: &[u8]) -> Vec<u8> {
    let Ok(sources) = serde_json::from_slice::<Sources>(input) else { return Vec::new() };
    serde_json::to_vec(&bundle(&sources, &Limits::default())).unwrap_or_default()
}
