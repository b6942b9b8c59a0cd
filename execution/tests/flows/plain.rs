//! Programs as agents write them: blocks of `rows/plain.txt`, one after the other and one within another.
//!
//! A block is a line with its name, after `->` the variables that it declares with their types, and
//! its indented text. `{{type}}` in it stands for an expression of that type, `{{body}}` for other blocks,
//! and a name that ends in `_` is the block's own.

use crate::program::{Part, Piece, Program};
use crate::random::Random;

struct Block {
    /// The types and names that it declares.
    declares: Vec<(&'static str, &'static str)>,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in include_str!("rows/plain.txt").lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(code), Some(block)) => {
                block.text += code;
                block.text.push('\n');
            }
            _ => {
                let declared = line.split_once(" -> ").map_or("", |(_, declared)| declared);
                let pairs = declared.split(", ").filter_map(|pair| pair.split_once(' '));
                blocks.push(Block { declares: pairs.collect(), text: String::new() });
            }
        }
    }
    blocks
}

/// Writes one program.
pub(crate) fn program(seed: u64) -> Program {
    let mut writer = Writer {
        random: Random::new(seed),
        blocks: blocks(),
        known: vec![("record", "args".to_owned())],
        last: 0,
    };
    let mut parts = Vec::new();
    for _ in 0..2 {
        let sources = writer.places(|block| {
            block.text.contains("await mcp.filesystem.") && !block.text.contains("{{")
        });
        parts.push(writer.block(sources, 0));
    }
    for _ in 0..3 + writer.random.below(5) {
        let any = writer.places(|_| true);
        parts.push(writer.block(any, 0));
    }
    let ends = writer.places(|block| {
        block.text.starts_with("await mcp.slack") || block.text.starts_with("await mcp.http")
    });
    parts.push(writer.block(ends, 0));
    Program { name: format!("plain {seed}"), parts }
}

struct Writer {
    random: Random,
    blocks: Vec<Block>,
    /// The types and names of what can be used here.
    known: Vec<(&'static str, String)>,
    last: usize,
}

/// How deep blocks stand within blocks.
const DEPTH: usize = 3;

impl Writer {
    fn places(&self, fits: impl Fn(&Block) -> bool) -> Vec<usize> {
        (0..self.blocks.len()).filter(|place| fits(&self.blocks[*place])).collect()
    }

    fn block(&mut self, among: Vec<usize>, depth: usize) -> Part {
        let among: Vec<usize> = among
            .into_iter()
            .filter(|place| depth < DEPTH || !self.blocks[*place].text.contains("{{body}}"))
            .collect();
        let place = *self.random.one(&among);
        let text = self.blocks[place].text.clone();
        let declares = self.blocks[place].declares.clone();
        let mut pieces = Vec::new();
        let mut out = String::new();
        self.last += 1;
        let number = self.last;
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            // `${{{text}}}` is a hole within a template.
            let (before, after) = match after.strip_prefix('{') {
                Some(after) => (format!("{before}{{"), after),
                None => (before.to_owned(), after),
            };
            let Some((hole, after)) = after.split_once("}}") else { break };
            self.own(&before, number, &mut out);
            rest = after;
            if hole == "body" {
                pieces.push(Piece::Text(std::mem::take(&mut out)));
                pieces.push(Piece::Parts(self.body(&text, depth)));
            } else {
                out += &self.expression(hole);
            }
        }
        self.own(rest, number, &mut out);
        pieces.push(Piece::Text(out));
        for (kind, name) in declares {
            self.known.push((kind, format!("{name}{number}")));
        }
        Part { pieces }
    }

    /// Writes text, in which a name that ends in `_` gets a number: a tool one of its own.
    fn own(&mut self, text: &str, number: usize, out: &mut String) {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (gap, word) = rest.split_at(start);
            let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            *out += gap;
            *out += word;
            if word.ends_with('_') {
                let is_tool = gap == "." && after.starts_with('(') && is_tool(out);
                if is_tool {
                    self.last += 1;
                }
                *out += &(if is_tool { self.last } else { number }).to_string();
            }
            rest = after;
        }
        *out += rest;
    }

    fn body(&mut self, around: &str, depth: usize) -> Vec<Part> {
        let outside = self.known.len();
        if around.contains("const item of") {
            self.known.push(("item", "item".to_owned()));
            self.known.push(("item", "item".to_owned()));
        }
        let count = 1 + self.random.below(3);
        let parts = (0..count).map(|_| {
            let any = self.places(|_| true);
            self.block(any, depth + 1)
        });
        let parts = parts.collect();
        self.known.truncate(outside);
        parts
    }

    fn expression(&mut self, kind: &str) -> String {
        let known = |kind: &str| -> Vec<String> {
            let of_kind = self.known.iter().filter(|(known, _)| *known == kind);
            of_kind.map(|(_, name)| name.clone()).collect()
        };
        let (texts, numbers, flags) = (known("text"), known("number"), known("flag"));
        let (rows, names, records, items) =
            (known("rows"), known("names"), known("record"), known("item"));
        let mut ways: Vec<String> = Vec::new();
        let mut all = |of: &[String], write: &dyn Fn(&String) -> String| {
            ways.extend(of.iter().map(write));
        };
        match kind {
            "text" => {
                all(&texts, &Clone::clone);
                all(&texts, &Clone::clone);
                all(&items, &|name| format!("{name}.name"));
                all(&items, &|name| format!("{name}.kind"));
                all(&records, &|name| format!("{name}.text"));
                all(&records, &|name| format!("{name}.kind"));
                all(&names, &|name| format!("{name}.join(\", \")"));
                all(&numbers, &|name| format!("String({name})"));
                all(&flags, &|name| format!("({name} ? \"on\" : \"off\")"));
                all(&rows, &|name| format!("{name}.map((row) => row.name).join(\",\")"));
            }
            "number" => {
                all(&numbers, &Clone::clone);
                all(&items, &|name| format!("{name}.size"));
                all(&records, &|name| format!("{name}.count"));
                all(&texts, &|name| format!("{name}.length"));
                all(&rows, &|name| format!("{name}.length"));
                all(&names, &|name| format!("{name}.length"));
            }
            "flag" => {
                all(&flags, &Clone::clone);
                all(&flags, &Clone::clone);
                all(&items, &|name| format!("{name}.ok"));
                all(&records, &|name| format!("{name}.ok"));
                all(&numbers, &|name| format!("({name} > 2)"));
                all(&texts, &|name| format!("{name}.includes(\"error\")"));
                all(&rows, &|name| format!("({name}.length > 2)"));
                all(&names, &|name| format!("{name}.includes(\"a\")"));
            }
            "names" => {
                all(&names, &Clone::clone);
                all(&rows, &|name| format!("{name}.map((row) => row.name)"));
                all(&texts, &|name| format!("{name}.split(\"\\n\")"));
                all(&records, &|name| format!("[{name}.name]"));
            }
            "rows" => {
                all(&rows, &Clone::clone);
                all(&rows, &|name| format!("{name}.filter((row) => row.ok)"));
                all(&records, &|name| format!("{name}.rows"));
            }
            _ => all(&records, &Clone::clone),
        }
        self.random.one(&ways).clone()
    }
}

/// Whether the text ends in the name of a tool.
fn is_tool(text: &str) -> bool {
    let mut parts = text.rsplit('.');
    let (_, namespace, mcp) = (parts.next(), parts.next(), parts.next());
    let is_word = |text: &str| text.chars().all(char::is_alphanumeric);
    namespace.is_some_and(is_word) && mcp.is_some_and(|text| text.ends_with("mcp"))
}
