//! Composes programs of rows: fills their holes, and numbers their names and tools.

use crate::program::{Part, Piece};
use crate::table::{Row, RowKind};

/// What fills the value holes of a row.
#[derive(Debug, Clone)]
pub(crate) enum Operand {
    /// The name of a tool's result, or `args`: it has a field for each type of hole.
    Record(String),
    /// The name of a value of the hole's type.
    Value(String),
    /// The name of a value of any type that depends on a text.
    Any(String),
    /// The name of a variable that is 1 or 0.
    Bit(String),
}

impl Operand {
    /// Returns an expression of the hole's type that depends on the operand.
    pub(crate) fn fill(&self, hole: char) -> String {
        const OBJECTS: &str = "[null, { k: \"one\", d: { e: 1 } }]";
        const TEXTS: &str = "[\"{\", \"{}\"]";
        match self {
            Self::Record(name) if hole == 'v' => format!("{name}.s"),
            Self::Record(name) => format!("{name}.{hole}"),
            Self::Value(name) => name.clone(),
            Self::Any(name) => {
                let text = format!("String(JSON.stringify({name}))");
                let bit = format!("{text}.includes(\"alpha\")");
                match hole {
                    's' => text,
                    'n' => format!("{text}.length"),
                    'b' => bit,
                    'l' => format!("{text}.split(\"p\")"),
                    'o' => format!("{OBJECTS}[Number({bit})]"),
                    'j' => format!("{TEXTS}[Number({bit})]"),
                    _ => name.clone(),
                }
            }
            Self::Bit(name) => match hole {
                's' => format!("String([\"beta\", \"alpha\"][{name}])"),
                'n' => format!("({name} * 3)"),
                'b' => format!("({name} === 1)"),
                'l' => format!("[\"p\", \"q\"].slice({name})"),
                'o' => format!("{OBJECTS}[{name}]"),
                'j' => format!("{TEXTS}[{name}]"),
                _ => name.clone(),
            },
        }
    }
}

/// What fills the holes for statements and expressions of a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub(crate) statements: Vec<Part>,
    /// The statements in a function that is not `async`.
    pub(crate) sync: Vec<Part>,
    pub(crate) expression: String,
}

/// Writes rows with tools and names that are numbered uniquely.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    last: usize,
}

impl Writer {
    /// Returns a number that is not yet used.
    pub(crate) fn number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// Returns a tool on the server that nothing else calls.
    pub(crate) fn sink(&mut self) -> String {
        format!("mcp.slack.post_{}", self.number())
    }

    /// Returns a call of a tool on the user's machine that nothing else calls.
    pub(crate) fn source(&mut self) -> String {
        format!("mcp.filesystem.read_{}({{ path: \"a\" }})", self.number())
    }

    /// Returns a body that calls a tool on the server.
    pub(crate) fn call_body(&mut self) -> Body {
        let sink = self.sink();
        Body {
            statements: vec![Part::text(format!("await {sink}({{}});"))],
            sync: vec![Part::text(format!("{sink}({{}});"))],
            expression: format!("(await {sink}({{}}))"),
        }
    }

    /// Returns a body that sets a variable to 1.
    pub(crate) fn assignment_body(name: &str) -> Body {
        let statement = vec![Part::text(format!("{name} = 1;"))];
        Body { statements: statement.clone(), sync: statement, expression: format!("({name} = 1)") }
    }

    /// Returns a row's statements and its value, with the holes filled.
    pub(crate) fn instantiate(
        &mut self,
        row: &Row,
        operand: &Operand,
        body: &Body,
    ) -> (Part, String) {
        let number = self.number();
        let pieces = self.fill_holes(row, row.statements, number, operand, body);
        let value = self.fill_holes(row, row.value, number, operand, body);
        let value = value.into_iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Parts(_) => String::new(),
        });
        (Part { pieces }, value.collect())
    }

    /// Fills the holes of a row's text, and appends the row's number to its local names.
    fn fill_holes(
        &mut self,
        row: &Row,
        text: &str,
        number: usize,
        operand: &Operand,
        body: &Body,
    ) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut out = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let word: usize = rest.chars().take_while(|c| is_word(*c)).map(char::len_utf8).sum();
            if word > 0 {
                let (name, after) = rest.split_at(word);
                rest = after;
                match name {
                    "SINK" => out += &self.sink(),
                    "SOURCE" => out += &self.source(),
                    _ if name.ends_with('_') && !name.ends_with("__") => {
                        out += &format!("{name}{number}");
                    }
                    _ => out += name,
                }
                continue;
            }
            let hole = rest[first.len_utf8()..].chars().next();
            match (first, hole) {
                ('@', Some(hole)) => {
                    out += &operand.fill(hole);
                    rest = &rest[2..];
                }
                ('#', hole) if row.has_body() => {
                    rest = &rest[1..];
                    let inner = match hole {
                        Some('e') => {
                            out += &body.expression;
                            rest = &rest[1..];
                            continue;
                        }
                        Some('s') => {
                            rest = &rest[1..];
                            &body.sync
                        }
                        _ => &body.statements,
                    };
                    pieces.push(Piece::Text(std::mem::take(&mut out)));
                    pieces.push(Piece::Parts(inner.clone()));
                }
                _ => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        if !out.is_empty() {
            pieces.push(Piece::Text(out));
        }
        pieces
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns a `try` statement that sets the variable `name` to 0 if the tried statements throw, and to 1 otherwise.
pub(crate) fn try_catch(name: &str, tried: Vec<Part>) -> Vec<Part> {
    let pieces = vec![
        Piece::Text("try {".into()),
        Piece::Parts(tried),
        Piece::Text(format!("}} catch {{ {name} = 0; }}")),
    ];
    vec![Part::text(format!("let {name} = 1;")), Part { pieces }]
}

/// Returns a part with nested parts.
pub(crate) fn block(before: &str, inner: Vec<Part>, after: &str) -> Part {
    let pieces =
        vec![Piece::Text(before.to_owned()), Piece::Parts(inner), Piece::Text(after.to_owned())];
    Part { pieces }
}

/// Returns a body that throws, depending on the operand.
pub(crate) fn throwing_body(operand: &Operand) -> Body {
    let text = format!("if ({}) throw new Error({});", operand.fill('b'), operand.fill('s'));
    Body { statements: vec![Part::text(text)], ..Body::default() }
}

/// Returns statements that bind the value of a row to a name, and that name as an operand for the next row.
///
/// `hole` is the type that the next row takes, if it takes only one.
pub(crate) fn bind(
    writer: &mut Writer,
    row: &Row,
    operand: &Operand,
    hole: Option<char>,
) -> (Vec<Part>, Operand) {
    // A row that carries any value can carry one of the type that the next row takes.
    let carried = hole.filter(|_| row.kind == RowKind::Carry && row.holes() == ['v']);
    let input = match carried {
        Some(hole) => Operand::Value(operand.fill(hole)),
        None => operand.clone(),
    };
    let (statements, value) = writer.instantiate(row, &input, &Body::default());
    let name = format!("v{}", writer.number());
    let parts = vec![statements, Part::text(format!("const {name} = {value};"))];
    let operand = match (carried, row.kind) {
        (Some(_), _) => Operand::Value(name),
        (None, RowKind::Choose) => Operand::Bit(name),
        (None, _) => Operand::Any(name),
    };
    (parts, operand)
}
