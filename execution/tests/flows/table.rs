//! The rows: small constructs, each by its name, with holes for what is put into it.
//!
//! A row is a line with its name and an indented line with TypeScript. A value row ends in
//! `==> expression`, or is nothing but an expression. In the text,
//!
//! - `@s @n @b @l @o @j` stand for a text, number, boolean, list of texts, object and JSON text that
//!   were made from a secret, and `@v` for any value;
//! - `#`, `#s` and `#e` stand for statements, for statements in a function that is not `async`, and
//!   for an expression;
//! - `SINK` stands for a tool of a server;
//! - an identifier that ends in `_` is the row's own.

use std::collections::BTreeSet;

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Brings a value from one place to another.
    Carry,
    /// Changes an object or a variable, which is then seen by another way.
    Write,
    /// Makes 1 or 0, depending on a secret.
    Choose,
    /// Runs statements or not, or again and again.
    Decide,
    /// Throws or does not.
    Throw,
    /// Calls a server tool with a value, or after statements that may throw.
    Observe,
}

impl Kind {
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
        // A reviewer's own rows stand in for the table.
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

/// The kinds of values that a hole can ask for.
pub(crate) const HOLES: &str = "snblojv";

/// One construct.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    /// The statements, or none.
    pub(crate) statements: &'static str,
    /// The expression of a value row.
    pub(crate) value: &'static str,
}

impl Row {
    /// Returns the row's name with its kind.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name)
    }

    /// Returns the kinds of values that it asks for.
    pub(crate) fn holes(&self) -> Vec<char> {
        let is_there = |text: &str, hole: char| text.contains(&format!("@{hole}"));
        let asked = |hole: &char| is_there(self.statements, *hole) || is_there(self.value, *hole);
        HOLES.chars().filter(asked).collect()
    }

    /// Whether it has a hole for statements.
    pub(crate) fn has_body(&self) -> bool {
        matches!(self.kind, Kind::Decide | Kind::Observe) && self.statements.contains('#')
    }

    /// Whether it can stand in a function that is not `async`.
    pub(crate) fn is_sync(&self) -> bool {
        !self.statements.contains("await") && !self.value.contains("await")
    }
}

/// Returns the rows of all kinds.
pub(crate) fn rows() -> Vec<Row> {
    Kind::ALL.into_iter().flat_map(of_kind).collect()
}

/// Returns the rows of one kind.
pub(crate) fn of_kind(kind: Kind) -> Vec<Row> {
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
    assert_eq!(names.len(), rows.len(), "the names of the rows of {} differ", kind.name());
    rows
}
