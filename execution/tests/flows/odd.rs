//! Longer programs of several rows, in sequence and nested, unlike what people or agents write.

use crate::compose::{Body, Operand, Writer, bind, block, throwing_body, try_catch};
use crate::program::{Part, Program};
use crate::random::Random;
use crate::table::{Row, RowKind};

/// Generates a program.
pub(crate) fn program(rows: &[Row], seed: u64) -> Program {
    let mut generator = Generator {
        random: Random::new(seed),
        writer: Writer::default(),
        rows,
        in_scope: Vec::new(),
    };
    let mut parts = Vec::new();
    for _ in 0..2 {
        parts.push(generator.record());
    }
    if generator.random.chance(30) {
        generator.in_scope.push(Operand::Record("args".into()));
    }
    for _ in 0..2 + generator.random.below(4) {
        let more = generator.step(0, false);
        parts.extend(more);
    }
    let more = generator.send(false);
    parts.extend(more);
    Program { name: format!("odd {seed}"), parts }
}

struct Generator<'a> {
    random: Random,
    writer: Writer,
    rows: &'a [Row],
    /// The operands in scope.
    in_scope: Vec<Operand>,
}

/// The deepest nesting of rows.
const MAX_DEPTH: usize = 2;

/// Code that runs the statements between its two halves exactly once; `_` stands for a number.
const WRAPPERS: &[(&str, &str)] = &[
    ("await (async () => {", "})();"),
    ("const f_ = async () => {", "}; await f_();"),
    ("async function f_() {", "} await f_.call(null);"),
    ("class C_ { async run() {", "} } await new C_().run();"),
    ("class C_ { async run() { await this.step(); } async step() {", "} } await new C_().run();"),
    (
        "class B_ { async run() { await this.step(); } } class C_ extends B_ { async step() {",
        "} } await new C_().run();",
    ),
    ("const o_ = { async run() {", "} }; await o_.run();"),
    ("const l_ = [async () => {", "}]; for (const f of l_) await f();"),
    ("const m_ = new Map([[\"k\", async () => {", "}]]); await m_.get(\"k\")();"),
    ("const use_ = async (f) => { await f(); }; await use_(async () => {", "});"),
    ("await Promise.resolve().then(async () => {", "});"),
    ("await Promise.all([(async () => {", "})()]);"),
    ("await new Promise((done) => setTimeout(done, 0)).then(async () => {", "});"),
    ("async function* g_() {", "yield 1; } for await (const x of g_());"),
    ("for (const x of [1]) {", "}"),
    ("let n_ = 0; while (n_ < 1) { n_++;", "}"),
    ("switch (1) { case 1: {", "} }"),
    ("l_: {", "}"),
    ("try {", "} finally { }"),
    ("try { throw 0; } catch {", "}"),
    ("try { } finally {", "}"),
    ("if (args) {", "}"),
];

impl Generator<'_> {
    /// Writes a call of a source, and adds its result to the scope.
    fn record(&mut self) -> Part {
        let name = format!("r{}", self.writer.number());
        let text = format!("const {name} = await {};", self.writer.source());
        self.in_scope.push(Operand::Record(name));
        Part::text(text)
    }

    /// Returns a random operand in scope.
    fn operand(&mut self) -> Operand {
        // Prefers the newest, so that programs have long chains.
        let newest = self.in_scope.len() - 1;
        let index = if self.random.chance(50) { newest } else { self.random.below(newest + 1) };
        self.in_scope[index].clone()
    }

    /// Returns a random row among those that fit.
    fn row(&mut self, fits: impl Fn(&Row) -> bool) -> Row {
        loop {
            let row = *self.random.pick(self.rows);
            if fits(&row) {
                return row;
            }
        }
    }

    /// Writes one step; a `sync` one has no `await`.
    fn step(&mut self, depth: usize, sync: bool) -> Vec<Part> {
        match self.random.below(if depth < MAX_DEPTH { 11 } else { 5 }) {
            0..4 => self.value(sync),
            10 if !sync => self.wrap(depth),
            4 if !sync && self.random.chance(40) => vec![self.record()],
            4 | 5 => self.send(sync),
            6 | 7 => self.decide(depth, sync),
            _ => self.attempt(depth, sync),
        }
    }

    /// Writes a value row, and adds its value to the scope.
    fn value(&mut self, sync: bool) -> Vec<Part> {
        let row = self.row(|row| row.kind.is_value() && (!sync || row.is_sync()));
        let operand = self.operand();
        let holes = row.holes();
        let only_hole = if let [hole] = holes[..] { Some(hole) } else { None };
        // A row that carries any value gets a text here, so that the type of its value is known.
        let only_hole = only_hole.map(|hole| if hole == 'v' { 's' } else { hole });
        let (parts, value) = bind(&mut self.writer, &row, &operand, only_hole);
        let value = if let Operand::Value(name) = value { Operand::Any(name) } else { value };
        self.in_scope.push(value);
        parts
    }

    /// Writes a call of a sink.
    fn send(&mut self, sync: bool) -> Vec<Part> {
        if !sync && self.random.chance(50) {
            let row = self.row(|row| row.kind == RowKind::Observe && !row.has_body());
            let operand = self.operand();
            return vec![self.writer.instantiate(&row, &operand, &Body::default()).0];
        }
        let sink = self.writer.sink();
        let value = self.random.chance(70).then(|| self.operand());
        let text = match value {
            Some(Operand::Record(name)) => format!("{name}.s"),
            Some(Operand::Value(name) | Operand::Any(name) | Operand::Bit(name)) => name,
            None => "1".to_owned(),
        };
        let call = if sync {
            format!("{sink}({{ v: {text} }});")
        } else {
            format!("await {sink}({{ v: {text} }});")
        };
        vec![Part::text(call)]
    }

    /// Writes a row that runs nested steps conditionally, and adds the flag that they set to the scope.
    fn decide(&mut self, depth: usize, sync: bool) -> Vec<Part> {
        let row = self.row(|row| {
            row.kind == RowKind::Decide
                && (!sync || row.is_sync())
                && !row.statements.contains("#e")
        });
        let operand = self.operand();
        let is_sync = sync || row.statements.contains("#s");
        let (flag, body) = self.body(depth, is_sync);
        let mut parts = vec![Part::text(format!("let {flag} = 0;"))];
        parts.push(self.writer.instantiate(&row, &operand, &body).0);
        self.in_scope.push(Operand::Bit(flag));
        parts
    }

    /// Writes a wrapper with nested steps.
    fn wrap(&mut self, depth: usize) -> Vec<Part> {
        let (before, after) = *self.random.pick(WRAPPERS);
        let number = self.writer.number().to_string();
        let (flag, body) = self.body(depth, false);
        let numbered = |text: &str| text.replace('_', &number);
        let declaration = Part::text(format!("let {flag} = 0;"));
        self.in_scope.push(Operand::Bit(flag));
        vec![declaration, block(&numbered(before), body.statements, &numbered(after))]
    }

    /// Writes a nested step that sets a flag when it has ended, and returns the flag's name with it.
    fn body(&mut self, depth: usize, sync: bool) -> (String, Body) {
        let outside = self.in_scope.len();
        let mut inner = self.step(depth + 1, sync);
        let flag = format!("w{}", self.writer.number());
        inner.push(Part::text(format!("{flag} = 1;")));
        // Names that the body declares are not in scope after it.
        self.in_scope.truncate(outside);
        (flag, Body { statements: inner.clone(), sync: inner, expression: String::new() })
    }

    /// Writes statements that may throw, with something that observes it.
    fn attempt(&mut self, depth: usize, sync: bool) -> Vec<Part> {
        let operand = self.operand();
        let thrown = if self.random.chance(80) {
            let row = self.row(|row| row.kind == RowKind::Throw && (!sync || row.is_sync()));
            vec![self.writer.instantiate(&row, &operand, &Body::default()).0]
        } else {
            throwing_body(&operand).statements
        };
        if !sync && self.random.chance(60) {
            let row = self.row(|row| row.kind == RowKind::Observe && row.has_body());
            let body = Body { statements: thrown, ..Body::default() };
            return vec![self.writer.instantiate(&row, &operand, &body).0];
        }
        let (flag, body) = self.body(depth, sync);
        let ok = format!("ok{}", self.writer.number());
        let mut tried = thrown;
        tried.extend(body.statements);
        let mut parts = vec![Part::text(format!("let {flag} = 0;"))];
        parts.extend(try_catch(&ok, tried));
        self.in_scope.extend([Operand::Bit(flag), Operand::Bit(ok)]);
        parts
    }
}
