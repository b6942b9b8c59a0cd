//! The table of rows: small named constructs with holes.
//!
//! A row is a line with its name and an indented line with TypeScript. A value row ends in `==> expression`, or is
//! only an expression. In the text,
//!
//! - `@s @n @b @l @o @j` stand for a text, number, boolean, list of texts, object and JSON text that depend on a
//!   source, and `@v` for any such value;
//! - `#`, `#s` and `#e` stand for statements, for statements in a function that is not `async`, and for an
//!   expression;
//! - `SINK` stands for a tool on the server, `SOURCE` for a call of a tool on the user's machine; each occurrence is
//!   another tool;
//! - an identifier that ends in `_` is local to the row.

use std::collections::BTreeSet;

/// What a row does with its holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RowKind {
    /// Carries a value from one place to another.
    Carry,
    /// Changes an object or a variable that is then read in another way.
    Write,
    /// Computes 1 or 0, depending on a source.
    Choose,
    /// Runs statements conditionally or repeatedly.
    Decide,
    /// Throws conditionally.
    Throw,
    /// Calls a tool on the server with a value, or after statements that may throw.
    Observe,
}

impl RowKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Carry, Self::Write, Self::Choose, Self::Decide, Self::Throw, Self::Observe];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Carry => "carry",
            Self::Write => "write",
            Self::Choose => "choose",
            Self::Decide => "decide",
            Self::Throw => "throw",
            Self::Observe => "observe",
        }
    }

    fn text(self) -> &'static str {
        // Lets a reviewer test other rows without a change of the table.
        if let Some(folder) = std::env::var_os("PML_TEST_ROWS") {
            let path = std::path::Path::new(&folder).join(format!("{}.txt", self.name()));
            return std::fs::read_to_string(path).unwrap_or_default().leak();
        }
        match self {
            Self::Carry => include_str!("rows/carry.txt"),
            Self::Write => include_str!("rows/write.txt"),
            Self::Choose => include_str!("rows/choose.txt"),
            Self::Decide => include_str!("rows/decide.txt"),
            Self::Throw => include_str!("rows/throw.txt"),
            Self::Observe => include_str!("rows/observe.txt"),
        }
    }

    /// Whether a row of this kind has a value.
    pub(crate) fn is_value(self) -> bool {
        matches!(self, Self::Carry | Self::Write | Self::Choose)
    }
}

/// The types of value holes. The order is the one that `Row::holes` returns.
const HOLES: &str = "snblojv";

/// One construct.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) kind: RowKind,
    pub(crate) name: &'static str,
    /// The statements; empty if the row is only an expression.
    pub(crate) statements: &'static str,
    /// The expression of a value row; otherwise empty.
    pub(crate) value: &'static str,
}

impl Row {
    /// Returns the name with its kind.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name)
    }

    /// Returns the types of its value holes.
    pub(crate) fn holes(&self) -> Vec<char> {
        let is_in = |text: &str, hole: char| text.contains(&format!("@{hole}"));
        let has = |hole: &char| is_in(self.statements, *hole) || is_in(self.value, *hole);
        HOLES.chars().filter(has).collect()
    }

    /// Whether it has a hole for statements or an expression.
    pub(crate) fn has_body(&self) -> bool {
        matches!(self.kind, RowKind::Decide | RowKind::Observe) && self.statements.contains('#')
    }

    /// Whether it is valid in a function that is not `async`.
    pub(crate) fn is_sync(&self) -> bool {
        !self.statements.contains("await") && !self.value.contains("await")
    }
}

/// Returns the rows of all kinds.
pub(crate) fn rows() -> Vec<Row> {
    RowKind::ALL.into_iter().flat_map(of_kind).collect()
}

/// Returns the rows of one kind.
fn of_kind(kind: RowKind) -> Vec<Row> {
    let lines: Vec<&'static str> = kind.text().lines().collect();
    let read = |pair: &[&'static str]| {
        let [name, code] = pair else { panic!("a name without a row: {pair:?}") };
        let code = code.trim();
        let (statements, value) = match code.split_once("==>") {
            Some((statements, value)) => (statements.trim(), value.trim()),
            None if kind.is_value() => ("", code),
            None => (code, ""),
        };
        Row { kind, name, statements, value }
    };
    let rows: Vec<Row> = lines.chunks(2).map(read).collect();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len(), "two rows of {} have the same name", kind.name());
    rows
}
