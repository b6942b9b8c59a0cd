//! One parsed file: its imports, its exports, and the positions of its top-level names.

mod form;
mod names;
mod reader;

use std::collections::{BTreeMap, BTreeSet};

use swc_common::Spanned;

use crate::Limits;
use crate::diagnostic::{Code, Finding};
use crate::{parse, scan, wrapper};
use reader::Reader;

pub(super) use names::{Form, Use};

/// The key of an anonymous default export.
pub(super) const DEFAULT: &str = "*default*";

/// One file. Offsets are bytes in its text.
pub(super) struct Unit {
    pub(super) path: String,
    pub(super) text: String,
    /// The files that it imports, in source order.
    pub(super) edges: Vec<Edge>,
    /// The meaning of each imported name.
    pub(super) imports: BTreeMap<String, Import>,
    pub(super) exports: BTreeMap<String, Export>,
    /// The edges of `export * from`.
    pub(super) stars: Vec<usize>,
    /// The names that its top level declares, each with its preferred name in the bundle.
    pub(super) own: BTreeMap<String, String>,
    /// The names that it uses and does not declare.
    pub(super) free: BTreeSet<String>,
    /// The names that its functions and blocks declare.
    pub(super) inner: BTreeSet<String>,
    /// The uses of its top-level names.
    pub(super) uses: Vec<Use>,
    /// Imported names that it assigns to.
    pub(super) written: Vec<(u32, String)>,
    /// The changes that remove `import` and `export`.
    pub(super) edits: Vec<Edit>,
    /// The offset of its first statement.
    pub(super) body: u32,
    /// Whether its first line began with `#!`, which is `//` in `text`.
    pub(super) has_shebang: bool,
}

/// A file that another one imports.
pub(super) struct Edge {
    /// The imported path, relative to the common folder.
    pub(super) path: String,
    /// The offset of the specifier.
    pub(super) at: u32,
}

/// The meaning of an imported name.
pub(super) enum Import {
    /// An export of a file.
    Name { edge: usize, name: String, at: u32 },
    /// All exports of a file.
    All { edge: usize },
    /// A type of a file that is imported anyway.
    TypeOf { edge: usize, name: String },
    /// A type, which is erased.
    Type,
}

/// The meaning of an exported name.
pub(super) enum Export {
    /// A name of this file, declared or imported.
    Own { name: String, at: u32 },
    /// An export of another file.
    From { edge: usize, name: String, at: u32 },
    /// All exports of another file.
    All { edge: usize },
    /// A type, which is erased.
    Type,
}

/// A replacement of a part of the text.
pub(super) struct Edit {
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) to: New,
}

/// The text that a replacement inserts.
pub(super) enum New {
    Text(String),
    /// `const NAME = `, for an anonymous default export.
    Default,
}

/// Reads a file. The entry may `return` at its top level.
pub(super) fn read(
    path: &str,
    text: &str,
    is_entry: bool,
    limits: &Limits,
) -> Result<Unit, Vec<Finding>> {
    let mut text = text.trim_start_matches('\u{feff}').to_owned();
    scan::scan(&text, limits).map_err(|finding| vec![finding])?;
    let has_shebang = text.starts_with("#!");
    if has_shebang {
        text.replace_range(..2, "//");
    }
    let (mut module, returns) = parse::parse_file(&text, limits)?;
    if let Some(at) = returns.filter(|_| !is_entry) {
        let message =
            "top-level `return` is allowed only in the entry file; use `export` in this file";
        return Err(vec![Finding::new(Code::UnsupportedSyntax, at, message)]);
    }
    let body = module.body.first().map_or(text.len() as u32, |item| wrapper::start(item.span()));
    let mut reader = Reader {
        is_entry,
        findings: Vec::new(),
        ambient: BTreeSet::new(),
        unit: Unit {
            path: path.to_owned(),
            text,
            edges: Vec::new(),
            imports: BTreeMap::new(),
            exports: BTreeMap::new(),
            stars: Vec::new(),
            own: BTreeMap::new(),
            free: BTreeSet::new(),
            inner: BTreeSet::new(),
            uses: Vec::new(),
            written: Vec::new(),
            edits: Vec::new(),
            body,
            has_shebang,
        },
    };
    reader.items(&module);
    if !reader.findings.is_empty() {
        return Err(reader.findings);
    }
    let Reader { mut unit, ambient, .. } = reader;
    names::collect(&mut module, &mut unit, &ambient);
    Ok(unit)
}
