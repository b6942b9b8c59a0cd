//! Puts rows together: each alone, and one within another.

use crate::program::{Part, Piece, Program};
use crate::random::Random;
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
    fn of(&self, hole: char) -> String {
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

fn block(before: &str, inner: Vec<Part>, after: &str) -> Part {
    let pieces =
        vec![Piece::Text(before.to_owned()), Piece::Parts(inner), Piece::Text(after.to_owned())];
    Part { pieces }
}

/// Returns the programs in which a row stands alone. `args` is the secret of the second half.
pub(crate) fn alone(row: &Row) -> Vec<Program> {
    let of_tool = forms(row, true).into_iter();
    let asks = row.holes().is_empty();
    let of_args = if asks { Vec::new() } else { forms(row, false) };
    of_tool.chain(of_args).collect()
}

fn forms(row: &Row, of_tool: bool) -> Vec<Program> {
    let mut programs = Vec::new();
    let mut add = |form: &str, build: &dyn Fn(&mut Writer, &Given) -> Vec<Part>| {
        let mut writer = Writer::default();
        let mut parts = Vec::new();
        let given = if of_tool {
            parts.push(Part::text(format!("const r = await {};", writer.source())));
            Given::Record("r".into())
        } else {
            // What runs where the user is.
            parts.push(Part::text(format!("await {};", writer.source())));
            Given::Record("args".into())
        };
        parts.extend(build(&mut writer, &given));
        let mut name = row.full_name();
        for more in [form, if of_tool { "" } else { "args" }] {
            if !more.is_empty() {
                name += &format!(" ({more})");
            }
        }
        programs.push(Program { name, parts });
    };
    match row.kind {
        Kind::Carry | Kind::Write | Kind::Choose => add("", &|writer, given| {
            let (statements, value) = writer.place(row, given, &Body::default());
            let sink = writer.sink();
            vec![statements, Part::text(format!("await {sink}({{ v: {value} }});"))]
        }),
        Kind::Decide => {
            add("", &|writer, given| {
                let body = writer.calling();
                vec![writer.place(row, given, &body).0]
            });
            add("set", &|writer, given| {
                let body = Writer::setting("w");
                let decided = writer.place(row, given, &body).0;
                let sink = writer.sink();
                vec![
                    Part::text("let w = 0;"),
                    decided,
                    Part::text(format!("await {sink}({{ w }});")),
                ]
            });
        }
        Kind::Throw => {
            add("", &|writer, given| {
                let thrown = writer.place(row, given, &Body::default()).0;
                let sink = writer.sink();
                let then = Part::text(format!("await {sink}({{}});"));
                vec![block("try {", vec![thrown, then], "} catch {}")]
            });
            add("caught", &|writer, given| {
                let thrown = writer.place(row, given, &Body::default()).0;
                let mut parts = caught("ok", vec![thrown]);
                parts.push(Part::text(format!("await {}({{ ok }});", writer.sink())));
                parts
            });
        }
        Kind::Observe if row.has_body() => {
            add("", &|writer, given| vec![writer.place(row, given, &thrower(given)).0]);
            add("parse", &|writer, given| {
                let parse = Part::text(format!("JSON.parse({});", given.of('j')));
                let body = Body { statements: vec![parse], ..Body::default() };
                vec![writer.place(row, given, &body).0]
            });
        }
        Kind::Observe => {
            add("", &|writer, given| vec![writer.place(row, given, &Body::default()).0])
        }
    }
    programs
}

/// Returns a body that throws.
pub(crate) fn thrower(given: &Given) -> Body {
    let text = format!("if ({}) throw new Error({});", given.of('b'), given.of('s'));
    Body { statements: vec![Part::text(text)], ..Body::default() }
}

/// Returns a program in which one row stands within another.
pub(crate) fn crossed(rows: &[Row], seed: u64) -> Program {
    let mut random = Random::new(seed);
    let mut writer = Writer::default();
    let mut parts = vec![Part::text(format!("const r = await {};", writer.source()))];
    let record = Given::Record("r".into());
    let mut row = || {
        // Each kind is as frequent as the others, however many rows it has.
        let kind = *random.one(&Kind::ALL);
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        **random.one(&of_kind)
    };
    loop {
        let (outer, inner, between) = (row(), row(), row());
        let mut name = inner.full_name();
        let built = if inner.kind.is_value() && !outer.holes().is_empty() {
            // Some have a third row between them.
            let is_third = between.kind.is_value() && seed.is_multiple_of(2);
            let chain = if is_third { vec![inner, between] } else { vec![inner] };
            if is_third {
                name += &format!(" in {}", between.full_name());
            }
            Some(within_value(&mut writer, &outer, &chain, &record))
        } else if outer.has_body() {
            within_body(&mut writer, &outer, &inner, &record)
        } else {
            None
        };
        if let Some(more) = built {
            parts.extend(more);
            name += &format!(" in {}", outer.full_name());
            return Program { name, parts };
        }
    }
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

fn within_value(writer: &mut Writer, outer: &Row, chain: &[Row], record: &Given) -> Vec<Part> {
    let holes = outer.holes();
    let only = if let [hole] = holes[..] { Some(hole) } else { None };
    let (mut parts, mut given) = (Vec::new(), record.clone());
    for inner in chain {
        let (more, next) = bound(writer, inner, &given, only);
        parts.extend(more);
        given = next;
    }
    match outer.kind {
        Kind::Carry | Kind::Write | Kind::Choose => {
            let (statements, value) = writer.place(outer, &given, &Body::default());
            parts.push(statements);
            parts.push(Part::text(format!("await {}({{ v: {value} }});", writer.sink())));
        }
        Kind::Decide => {
            let body = writer.calling();
            parts.push(writer.place(outer, &given, &body).0);
        }
        Kind::Throw => {
            let thrown = writer.place(outer, &given, &Body::default()).0;
            parts.extend(caught("ok", vec![thrown]));
            parts.push(Part::text(format!("await {}({{ ok }});", writer.sink())));
        }
        Kind::Observe => {
            let body = thrower(record);
            parts.push(writer.place(outer, &given, &body).0);
        }
    }
    parts
}

fn within_body(writer: &mut Writer, outer: &Row, inner: &Row, record: &Given) -> Option<Vec<Part>> {
    let is_plain = outer.statements.contains("#s");
    if outer.statements.contains("#e") || (is_plain && !inner.is_sync()) {
        return None;
    }
    let second = Given::Record("q".into());
    let mut parts = vec![Part::text(format!("const q = await {};", writer.source()))];
    let sink = writer.sink();
    let call =
        if is_plain { format!("{sink}({{ w }});") } else { format!("await {sink}({{ w }});") };
    let (inside, after) = match inner.kind {
        Kind::Carry | Kind::Write | Kind::Choose => {
            let (statements, value) = writer.place(inner, &second, &Body::default());
            (vec![statements, Part::text(format!("w = {value};"))], true)
        }
        Kind::Decide => {
            let body = Writer::setting("w");
            (vec![writer.place(inner, &second, &body).0], true)
        }
        Kind::Throw if outer.kind == Kind::Observe => {
            (vec![writer.place(inner, &second, &Body::default()).0], false)
        }
        Kind::Throw => {
            let thrown = writer.place(inner, &second, &Body::default()).0;
            let call = Part::text(call.clone());
            (vec![block("try {", vec![thrown, call], "} catch {}")], false)
        }
        Kind::Observe if is_plain => return None,
        Kind::Observe => (vec![writer.place(inner, &second, &thrower(&second)).0], false),
    };
    parts.push(Part::text("let w = 0;"));
    let body = Body { statements: inside.clone(), plain: inside, expression: String::new() };
    parts.push(writer.place(outer, record, &body).0);
    if after {
        parts.push(Part::text(format!("await {sink}({{ w }});")));
    }
    Some(parts)
}
