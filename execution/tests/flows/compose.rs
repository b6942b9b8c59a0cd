//! Puts a row into a program: fills its holes, and numbers its names and tools.

use crate::program::{Part, Piece};
use crate::table::{Kind, Row};

/// What is put into the holes for values.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// What a tool returned, or `args`: it has a field for each hole.
    Record(String),
    /// A value of the kind that is asked for.
    Value(String),
    /// Any value that was made from a text.
    Any(String),
    /// 1 or 0.
    Bit(String),
}

impl Given {
    /// Returns the expression for a hole.
    pub(crate) fn of(&self, hole: char) -> String {
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

/// What is put into the holes for statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub(crate) statements: Vec<Part>,
    /// For a function that is not `async`.
    pub(crate) plain: Vec<Part>,
    pub(crate) expression: String,
}

/// Numbers tools and names.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    last: usize,
}

impl Writer {
    pub(crate) fn number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// Returns a tool of a server that nothing else calls.
    pub(crate) fn sink(&mut self) -> String {
        format!("mcp.slack.post_{}", self.number())
    }

    /// Returns a call of a tool on the user's machine that nothing else calls.
    pub(crate) fn source(&mut self) -> String {
        format!("mcp.filesystem.read_{}({{ path: \"a\" }})", self.number())
    }

    /// Returns a body that calls a server tool.
    pub(crate) fn calling(&mut self) -> Body {
        let sink = self.sink();
        Body {
            statements: vec![Part::text(format!("await {sink}({{}});"))],
            plain: vec![Part::text(format!("{sink}({{}});"))],
            expression: format!("(await {sink}({{}}))"),
        }
    }

    /// Returns a body that sets a variable.
    pub(crate) fn setting(name: &str) -> Body {
        let statement = vec![Part::text(format!("{name} = 1;"))];
        Body {
            statements: statement.clone(),
            plain: statement,
            expression: format!("({name} = 1)"),
        }
    }

    /// Returns a row's statements and its value.
    pub(crate) fn place(&mut self, row: &Row, given: &Given, body: &Body) -> (Part, String) {
        let number = self.number();
        let pieces = self.fill(row, row.statements, number, given, body);
        let value = self.fill(row, row.value, number, given, body);
        let value = value.into_iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Parts(_) => String::new(),
        });
        (Part { pieces }, value.collect())
    }

    fn fill(
        &mut self,
        row: &Row,
        text: &str,
        number: usize,
        given: &Given,
        body: &Body,
    ) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut out = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let word: usize = rest.chars().take_while(|c| is_part(*c)).map(char::len_utf8).sum();
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
                    out += &given.of(hole);
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
                            &body.plain
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

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns statements after which `name` tells whether others threw.
pub(crate) fn caught(name: &str, tried: Vec<Part>) -> Vec<Part> {
    let pieces = vec![
        Piece::Text("try {".into()),
        Piece::Parts(tried),
        Piece::Text(format!("}} catch {{ {name} = 0; }}")),
    ];
    vec![Part::text(format!("let {name} = 1;")), Part { pieces }]
}

/// Returns a part with others within it.
pub(crate) fn block(before: &str, inner: Vec<Part>, after: &str) -> Part {
    let pieces =
        vec![Piece::Text(before.to_owned()), Piece::Parts(inner), Piece::Text(after.to_owned())];
    Part { pieces }
}

/// Returns a body that throws.
pub(crate) fn thrower(given: &Given) -> Body {
    let text = format!("if ({}) throw new Error({});", given.of('b'), given.of('s'));
    Body { statements: vec![Part::text(text)], ..Body::default() }
}

/// The value of a row, bound to a name.
pub(crate) fn bound(
    writer: &mut Writer,
    row: &Row,
    given: &Given,
    hole: Option<char>,
) -> (Vec<Part>, Given) {
    // What only carries can carry any kind of value.
    let asked = hole.filter(|_| row.kind == Kind::Carry && row.holes() == ['v']);
    let input = match (asked, given) {
        (Some(hole), given) => Given::Value(given.of(hole)),
        (None, given) => given.clone(),
    };
    let (statements, value) = writer.place(row, &input, &Body::default());
    let name = format!("v{}", writer.number());
    let parts = vec![statements, Part::text(format!("const {name} = {value};"))];
    let given = match (asked, row.kind) {
        (Some(_), _) => Given::Value(name),
        (None, Kind::Choose) => Given::Bit(name),
        (None, _) => Given::Any(name),
    };
    (parts, given)
}
