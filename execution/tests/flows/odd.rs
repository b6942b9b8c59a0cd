//! Odd programs: a handful of rows, one after the other and one within another.

use crate::compose::{Body, Given, Writer, block, bound, caught, thrower};
use crate::program::{Part, Program};
use crate::random::Random;
use crate::table::{Kind, Row};

/// Writes one program.
pub(crate) fn program(rows: &[Row], seed: u64) -> Program {
    let mut odd =
        Odd { random: Random::new(seed), writer: Writer::default(), rows, known: Vec::new() };
    let mut parts = Vec::new();
    for _ in 0..2 {
        parts.push(odd.record());
    }
    if odd.random.percent(30) {
        odd.known.push(Given::Record("args".into()));
    }
    for _ in 0..2 + odd.random.below(4) {
        let more = odd.step(0, false);
        parts.extend(more);
    }
    let more = odd.send(false);
    parts.extend(more);
    Program { name: format!("odd {seed}"), parts }
}

struct Odd<'a> {
    random: Random,
    writer: Writer,
    rows: &'a [Row],
    /// What can be put into holes here.
    known: Vec<Given>,
}

/// How deep rows stand within rows.
const DEPTH: usize = 2;

/// What runs the statements between it once; `_` stands for a number.
const AROUND: &[(&str, &str)] = &[
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

impl Odd<'_> {
    /// Writes a call of a tool whose result is known from then on.
    fn record(&mut self) -> Part {
        let name = format!("r{}", self.writer.number());
        let text = format!("const {name} = await {};", self.writer.source());
        self.known.push(Given::Record(name));
        Part::text(text)
    }

    fn given(&mut self) -> Given {
        // What was made last is used more often.
        let newest = self.known.len() - 1;
        let place = if self.random.percent(50) { newest } else { self.random.below(newest + 1) };
        self.known[place].clone()
    }

    fn row(&mut self, fits: impl Fn(&Row) -> bool) -> Row {
        loop {
            let row = *self.random.one(self.rows);
            if fits(&row) {
                return row;
            }
        }
    }

    /// Writes one step; a `plain` one has no `await`.
    fn step(&mut self, depth: usize, plain: bool) -> Vec<Part> {
        match self.random.below(if depth < DEPTH { 11 } else { 5 }) {
            0..4 => self.value(plain),
            10 if !plain => self.around(depth),
            4 if !plain && self.random.percent(40) => vec![self.record()],
            4 | 5 => self.send(plain),
            6 | 7 => self.decide(depth, plain),
            _ => self.attempt(depth, plain),
        }
    }

    fn value(&mut self, plain: bool) -> Vec<Part> {
        let row = self.row(|row| row.kind.is_value() && (!plain || row.is_sync()));
        let given = self.given();
        let holes = row.holes();
        let only = if let [hole] = holes[..] { Some(hole) } else { None };
        // What carries any value carries a text here, so that the next row knows what it gets.
        let only = only.map(|hole| if hole == 'v' { 's' } else { hole });
        let (parts, value) = bound(&mut self.writer, &row, &given, only);
        let value = if let Given::Value(name) = value { Given::Any(name) } else { value };
        self.known.push(value);
        parts
    }

    fn send(&mut self, plain: bool) -> Vec<Part> {
        if !plain && self.random.percent(50) {
            let row = self.row(|row| row.kind == Kind::Observe && !row.has_body());
            let given = self.given();
            return vec![self.writer.place(&row, &given, &Body::default()).0];
        }
        let sink = self.writer.sink();
        let value = self.random.percent(70).then(|| self.given());
        let text = match value {
            Some(Given::Record(name)) => format!("{name}.s"),
            Some(Given::Value(name) | Given::Any(name) | Given::Bit(name)) => name,
            None => "1".to_owned(),
        };
        let call = if plain {
            format!("{sink}({{ v: {text} }});")
        } else {
            format!("await {sink}({{ v: {text} }});")
        };
        vec![Part::text(call)]
    }

    fn decide(&mut self, depth: usize, plain: bool) -> Vec<Part> {
        let row = self.row(|row| {
            row.kind == Kind::Decide && (!plain || row.is_sync()) && !row.statements.contains("#e")
        });
        let given = self.given();
        let is_plain = plain || row.statements.contains("#s");
        let (flag, body) = self.body(depth, is_plain);
        let mut parts = vec![Part::text(format!("let {flag} = 0;"))];
        parts.push(self.writer.place(&row, &given, &body).0);
        self.known.push(Given::Bit(flag));
        parts
    }

    /// Writes statements that run once, within others.
    fn around(&mut self, depth: usize) -> Vec<Part> {
        let (before, after) = *self.random.one(AROUND);
        let number = self.writer.number().to_string();
        let (flag, body) = self.body(depth, false);
        let numbered = |text: &str| text.replace('_', &number);
        let declared = Part::text(format!("let {flag} = 0;"));
        self.known.push(Given::Bit(flag));
        vec![declared, block(&numbered(before), body.statements, &numbered(after))]
    }

    /// Writes what stands in a row, and the flag that it sets.
    fn body(&mut self, depth: usize, plain: bool) -> (String, Body) {
        let outside = self.known.len();
        let mut inner = self.step(depth + 1, plain);
        let flag = format!("w{}", self.writer.number());
        inner.push(Part::text(format!("{flag} = 1;")));
        self.known.truncate(outside);
        (flag, Body { statements: inner.clone(), plain: inner, expression: String::new() })
    }

    fn attempt(&mut self, depth: usize, plain: bool) -> Vec<Part> {
        let given = self.given();
        let thrown = if self.random.percent(80) {
            let row = self.row(|row| row.kind == Kind::Throw && (!plain || row.is_sync()));
            vec![self.writer.place(&row, &given, &Body::default()).0]
        } else {
            thrower(&given).statements
        };
        if !plain && self.random.percent(60) {
            let row = self.row(|row| row.kind == Kind::Observe && row.has_body());
            let body = Body { statements: thrown, ..Body::default() };
            return vec![self.writer.place(&row, &given, &body).0];
        }
        let (flag, body) = self.body(depth, plain);
        let ok = format!("ok{}", self.writer.number());
        let mut tried = thrown;
        tried.extend(body.statements);
        let mut parts = vec![Part::text(format!("let {flag} = 0;"))];
        parts.extend(caught(&ok, tried));
        self.known.extend([Given::Bit(flag), Given::Bit(ok)]);
        parts
    }
}
