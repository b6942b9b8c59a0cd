//! Longer programs like those that agents write: blocks of `rows/plain.txt`, in sequence and nested.
//!
//! A block is a line with its name and, after `->`, the types and names of the variables that it declares, followed
//! by its indented text. In the text, `{{type}}` stands for an expression of that type, `{{body}}` for nested blocks,
//! and a name that ends in `_` is local to the block.

use crate::program::{Part, Piece, Program};
use crate::random::Random;

struct Block {
    /// The types and names of the variables that it declares.
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
                let declarations = line.split_once(" -> ").map_or("", |(_, after)| after);
                let pairs = declarations.split(", ").filter_map(|pair| pair.split_once(' '));
                blocks.push(Block { declares: pairs.collect(), text: String::new() });
            }
        }
    }
    blocks
}

/// Generates a program.
pub(crate) fn program(seed: u64) -> Program {
    let mut generator = Generator {
        random: Random::new(seed),
        blocks: blocks(),
        in_scope: vec![("record", "args".to_owned())],
        last: 0,
    };
    let mut parts = Vec::new();
    for _ in 0..2 {
        let sources = generator.blocks_where(|block| {
            block.text.contains("await mcp.filesystem.") && !block.text.contains("{{")
        });
        parts.push(generator.block(&sources, 0));
    }
    for _ in 0..3 + generator.random.below(5) {
        let any = generator.blocks_where(|_| true);
        parts.push(generator.block(&any, 0));
    }
    let sinks = generator.blocks_where(|block| {
        block.text.starts_with("await mcp.slack") || block.text.starts_with("await mcp.http")
    });
    parts.push(generator.block(&sinks, 0));
    Program { name: format!("plain {seed}"), parts }
}

struct Generator {
    random: Random,
    blocks: Vec<Block>,
    /// The types and names of the variables in scope.
    in_scope: Vec<(&'static str, String)>,
    /// The last number in a name.
    last: usize,
}

/// The deepest nesting of blocks.
const MAX_DEPTH: usize = 3;

impl Generator {
    /// Returns the indices of the blocks that fit.
    fn blocks_where(&self, fits: impl Fn(&Block) -> bool) -> Vec<usize> {
        (0..self.blocks.len()).filter(|index| fits(&self.blocks[*index])).collect()
    }

    /// Writes a random block among these, and adds its variables to the scope.
    fn block(&mut self, among: &[usize], depth: usize) -> Part {
        let fits =
            |index: &usize| depth < MAX_DEPTH || !self.blocks[*index].text.contains("{{body}}");
        let among: Vec<usize> = among.iter().copied().filter(fits).collect();
        let index = *self.random.pick(&among);
        let text = self.blocks[index].text.clone();
        let declares = self.blocks[index].declares.clone();
        let mut pieces = Vec::new();
        let mut out = String::new();
        self.last += 1;
        let number = self.last;
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            // `${{{text}}}` is a hole in a template: the first brace belongs to the template.
            let (before, after) = match after.strip_prefix('{') {
                Some(after) => (format!("{before}{{"), after),
                None => (before.to_owned(), after),
            };
            let Some((hole, after)) = after.split_once("}}") else { break };
            self.write_numbered(&before, number, &mut out);
            rest = after;
            if hole == "body" {
                pieces.push(Piece::Text(std::mem::take(&mut out)));
                pieces.push(Piece::Parts(self.body(&text, depth)));
            } else {
                out += &self.expression(hole);
            }
        }
        self.write_numbered(rest, number, &mut out);
        pieces.push(Piece::Text(out));
        for (kind, name) in declares {
            self.in_scope.push((kind, format!("{name}{number}")));
        }
        Part { pieces }
    }

    /// Writes text with a number after each name that ends in `_`: the block's number, or a new one for each tool.
    fn write_numbered(&mut self, text: &str, number: usize, out: &mut String) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut rest = text;
        while let Some(start) = rest.find(is_word) {
            let (gap, word) = rest.split_at(start);
            let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
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

    /// Writes one to three nested blocks for a hole in the text of `outer`.
    fn body(&mut self, outer: &str, depth: usize) -> Vec<Part> {
        let outside = self.in_scope.len();
        if outer.contains("const item of") {
            // Twice, so that expressions use it more often.
            self.in_scope.push(("item", "item".to_owned()));
            self.in_scope.push(("item", "item".to_owned()));
        }
        let count = 1 + self.random.below(3);
        let parts = (0..count).map(|_| {
            let any = self.blocks_where(|_| true);
            self.block(&any, depth + 1)
        });
        let parts = parts.collect();
        self.in_scope.truncate(outside);
        parts
    }

    /// Writes an expression of a type, made of a variable in scope.
    fn expression(&mut self, kind: &str) -> String {
        let known = |kind: &str| -> Vec<String> {
            let of_kind = self.in_scope.iter().filter(|(known, _)| *known == kind);
            of_kind.map(|(_, name)| name.clone()).collect()
        };
        let (texts, numbers, flags) = (known("text"), known("number"), known("flag"));
        let (rows, names, records, items) =
            (known("rows"), known("names"), known("record"), known("item"));
        // Doubled lines double the share of a variable that needs no conversion.
        let mut candidates: Vec<String> = Vec::new();
        let mut all = |of: &[String], write: &dyn Fn(&String) -> String| {
            candidates.extend(of.iter().map(write));
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
        self.random.pick(&candidates).clone()
    }
}

/// Whether the text ends in the name of a tool.
fn is_tool(text: &str) -> bool {
    let mut parts = text.rsplit('.');
    let (_, namespace, mcp) = (parts.next(), parts.next(), parts.next());
    let is_word = |text: &str| text.chars().all(char::is_alphanumeric);
    namespace.is_some_and(is_word) && mcp.is_some_and(|text| text.ends_with("mcp"))
}
