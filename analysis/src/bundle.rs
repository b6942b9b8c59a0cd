//! A program of several files, made one text.
//!
//! [`bundle`] is pure: it says which files it still needs, and who calls it reads
//! them. The files are written one after the other, what is imported first, so
//! that their top levels become the top level of the program. Names that clash
//! get a number. What comes out is a program like any other: it is analysed as
//! one, and shown, hashed and run as it stands.
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

/// The most files of one program.
pub const FILE_LIMIT: usize = 200;

/// One file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its path from the folder that all files lie beneath, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The files of a program, as far as they were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The files, the entry first, each once.
    files: Vec<SourceFile>,
    /// Which file stands where an import names a path.
    found: BTreeMap<String, String>,
}

impl Sources {
    /// Begins with the entry file.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let entry = SourceFile { path: path.into(), text: text.into() };
        let found = BTreeMap::from([(entry.path.clone(), entry.path.clone())]);
        Self { files: vec![entry], found }
    }

    /// Adds the file that a needed path stands for; a file that is there already is only named once more.
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

    /// Returns the size of all files, in bytes.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }
}

/// A remark about one file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiagnostic {
    /// The file, from the folder of the entry file: `./lib/x.ts`.
    pub file: String,
    /// What is wrong and where.
    pub diagnostic: Diagnostic,
}

/// A file that is needed and not there yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// The path that the import names, from the common folder. [`candidates`] says which files it may mean.
    pub path: String,
    /// Where it is imported; the message is for who finds no such file.
    pub import: FileDiagnostic,
}

/// What became of the files of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bundled {
    /// These files are missing.
    Needs(Vec<Needed>),
    /// The program is whole.
    Whole(Bundle),
    /// It cannot be made one text.
    Refused(Vec<FileDiagnostic>),
}

/// A program of several files as one text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The program.
    pub code: String,
    /// The files in it, the entry first, from the folder of the entry. One alone is the text as it was given.
    pub files: Vec<String>,
    chunks: Vec<Chunk>,
}

/// A part of a bundle that stands so in a file.
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

/// Where a part of a bundle comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin<'b> {
    /// The file, from the folder of the entry.
    pub file: &'b str,
    /// The line, from 1.
    pub line: u32,
    /// The column in code points, from 1.
    pub column: u32,
}

impl Bundle {
    /// Makes a bundle of one text, as it is.
    pub fn of_one(code: impl Into<String>) -> Self {
        Self { code: code.into(), files: Vec::new(), chunks: Vec::new() }
    }

    /// Returns whether it is made of more than one file.
    pub fn has_imports(&self) -> bool {
        self.files.len() > 1
    }

    /// Returns which place of which file stands at a line and column of the bundle.
    pub fn origin(&self, line: u32, column: u32) -> Option<Origin<'_>> {
        let offset = offset_of(&self.code, line, column)?;
        // A name that was changed belongs to what stands before it.
        let chunk = self.chunks.iter().rev().find(|chunk| chunk.start <= offset)?;
        let (down, right) = position(&self.code[chunk.start..], offset - chunk.start);
        Some(Origin {
            file: self.files.get(chunk.file)?,
            line: chunk.line + down - 1,
            column: if down == 1 { chunk.column + right - 1 } else { right },
        })
    }
}

/// Makes one text of the files of a program, or says which are missing.
///
/// A program that imports nothing is the very text that was given.
pub fn bundle(sources: &Sources, limits: &Limits) -> Bundled {
    let Some(entry) = sources.files.first() else { return Bundled::Refused(Vec::new()) };
    if !may_import(&entry.text) {
        return Bundled::Whole(Bundle::of_one(&*entry.text));
    }
    stacker::maybe_grow(STACK_NEEDED, STACK_GIVEN, || on_large_stack(sources, entry, limits))
}

/// Tells whether a text may have an `import`, by its words alone.
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
            // The analysis tells best what is wrong with a program of one file.
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
    if needed.len() + units.len() > FILE_LIMIT || sources.bytes() > 4 * limits.source_bytes {
        let message = format!(
            "the program has too many files or too much text; at most {FILE_LIMIT} files, and {} bytes in all",
            limits.source_bytes
        );
        return refuse(entry, vec![Finding::new(Code::TooComplex, units[0].body, message)]);
    }
    if !needed.is_empty() {
        let needs = needed.into_iter().map(|(path, (unit, at))| {
            let named = crate::diagnostic::shown(&path, 200);
            let message = format!("there is no file `{named}`");
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
    // The entry keeps its names, as far as that is possible.
    let mut by_right: Vec<usize> = vec![0];
    by_right.extend(order.iter().filter(|unit| **unit != 0));
    let names = linked.names(&by_right, &meanings);
    let Writer { code, chunks } = Writer::write(&units, &order, &meanings, &names);
    let files = units.iter().map(|unit| path::shown_from(&entry.path, &unit.path)).collect();
    Bundled::Whole(Bundle { code, files, chunks })
}

/// Tells whether a text that does not parse looks like one that imports.
fn begins_with_import(text: &str) -> bool {
    text.lines().any(|line| {
        line.trim_start_matches('\u{feff}')
            .trim_start()
            .strip_prefix("import")
            .is_some_and(|rest| rest.starts_with([' ', '\t', '{', '*', '"', '\'']))
    })
}

/// The paths that no file is known for, each with the unit and the offset where it is named first.
type Unknown = BTreeMap<String, (usize, u32)>;

/// Returns the file of each edge, and the paths that no file is known for.
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
/// Both the parser and the text are strangers'; so this runs where it can be killed.
pub fn bundle_job(input: &[u8]) -> Vec<u8> {
    let Ok(sources) = serde_json::from_slice::<Sources>(input) else { return Vec::new() };
    serde_json::to_vec(&bundle(&sources, &Limits::default())).unwrap_or_default()
}
