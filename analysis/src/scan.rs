//! A scan of the text that protects the parser.
//!
//! The parser is recursive: a few thousand nested brackets, prefix operators or
//! arrows would overflow the stack, and some constructs cost time or memory far
//! beyond their size. The scan refuses these before the parser sees them. It
//! tokenizes only approximately, so it is a first defence, not a guarantee: the
//! depth of the tree is checked after parsing, and the process that runs the
//! analysis can be killed.

mod level;
mod literal;
mod token;

use crate::Limits;
use crate::diagnostic::{Code, Finding};
use level::Level;

/// The maximum number of consecutive labels: the parser's memory grows with their square.
const LABEL_LIMIT: u32 = 8;
/// The maximum number of bytes that the parser reads, those included that it reads again.
const READ_LIMIT: u64 = 4 << 20;

/// Refuses a source text that is too large or too complex for the parser.
///
/// A text that is too large is scanned up to the limit: if that part is too complex,
/// this is the error that is reported, because a shorter text would still have it.
pub(crate) fn scan(source: &str, limits: &Limits) -> Result<(), Finding> {
    let head = &source[..source.floor_char_boundary(limits.source_bytes)];
    scan_tokens(head, limits)?;
    if head.len() == source.len() {
        return Ok(());
    }
    Err(Finding::new(
        Code::SourceTooLarge,
        limits.source_bytes as u32,
        format!(
            "the program has {} bytes, over the limit of {}; pass data as `args`, or read it with a tool",
            source.len(),
            limits.source_bytes
        ),
    ))
}

fn scan_tokens(source: &str, limits: &Limits) -> Result<(), Finding> {
    Scanner {
        bytes: source.as_bytes(),
        at: 0,
        limits,
        levels: vec![Level::default()],
        right_total: 0,
        fork_total: 0,
        shadow_total: 0,
        cast_total: 0,
        angles: 0,
        labels: 0,
        read: 0,
        previous: Previous::Start,
        boundary: true,
    }
    .run()
}

/// The kind of the last token, as far as the next one depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Previous {
    Start,
    /// A name, number, string, closing bracket: an operator may follow.
    Value,
    /// The `)` of `if (…)` and similar: a statement follows.
    Head,
    /// A closing brace.
    Brace,
    /// A keyword before a parenthesized head: `if`, `for`, `while`, `with`.
    HeadWord,
    /// An operator, or a keyword before a value.
    Operator,
    /// `else`: an `if` after it continues the chain.
    Else,
    /// A dot: a property name follows.
    Dot,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    limits: &'a Limits,
    levels: Vec<Level>,
    right_total: u32,
    fork_total: u32,
    shadow_total: u32,
    cast_total: u32,
    angles: u32,
    labels: u32,
    /// An upper estimate of the bytes that the parser has read.
    read: u64,
    previous: Previous,
    /// A statement or list item ended; the next token begins a new one.
    boundary: bool,
}

impl Scanner<'_> {
    fn run(mut self) -> Result<(), Finding> {
        if self.bytes.starts_with(b"#!") {
            self.line_comment();
        }
        while let Some(byte) = self.peek(0) {
            let (before, times) = (self.at, self.times_read());
            match byte {
                b'\n' | b'\r' => {
                    self.at += 1;
                    if matches!(self.previous, Previous::Value | Previous::Brace) {
                        self.after_line_break();
                    }
                }
                b' ' | b'\t' => self.at += 1,
                b'/' if self.peek(1) == Some(b'/') => self.line_comment(),
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(),
                // Where a value cannot be divided, `/` begins a regular expression.
                b'/' if !self.ends_value() => {
                    self.begin_token();
                    self.regex();
                    self.value();
                }
                b'"' | b'\'' => {
                    self.begin_token();
                    self.string(byte);
                    self.value();
                }
                b'`' => {
                    // A template after a value is tagged: one more link of the chain.
                    if self.previous == Previous::Value {
                        self.chain()?;
                    }
                    self.begin_token();
                    self.at += 1;
                    self.template()?;
                }
                _ if is_word(byte) => self.word()?,
                _ => self.punctuation(byte)?,
            }
            self.read += (self.at - before) as u64 * times;
            if self.read > READ_LIMIT {
                return Err(self.too_complex("the parser would read this part too many times"));
            }
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn ends_value(&self) -> bool {
        self.previous == Previous::Value
    }

    fn too_complex(&self, what: &str) -> Finding {
        Finding::new(
            Code::TooComplex,
            self.at as u32,
            format!(
                "{what}; split the program into more statements with named values, or pass data as `args`"
            ),
        )
    }

    /// Applies a pending boundary, unless the token continues what it ended.
    fn begin_token(&mut self) {
        if std::mem::take(&mut self.boundary) {
            self.reset();
        }
    }

    fn value(&mut self) {
        self.previous = Previous::Value;
    }

    fn operator(&mut self) {
        self.labels = 0;
        self.previous = Previous::Operator;
    }

    /// Ends the statement if the next line starts with another value.
    fn after_line_break(&mut self) {
        let mut at = self.at;
        while self.bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let length = self.bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
        let word = &self.bytes[at..at + length];
        let continues: [&[u8]; 7] =
            [b"in", b"instanceof", b"as", b"satisfies", b"else", b"extends", b"is"];
        if length > 0 && !continues.contains(&word) {
            self.boundary = true;
            self.end_types();
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'$' | b'#' | b'\\' | b'@')
        || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> bool {
        scan(source, &Limits::default()).is_err_and(|finding| finding.code == Code::TooComplex)
    }

    #[test]
    fn refuses_deep_nesting() {
        for (head, tail) in [
            ("(", ")"),
            ("[", "]"),
            ("{a:", "}"),
            ("`${", "}`"),
            ("!", ""),
            ("- ", ""),
            ("a=>", ""),
            ("a=", ""),
            ("a?b:", ""),
            ("if(1)", ""),
            ("if(1)\n", ""),
            ("for(;;)", ""),
            ("new ", ""),
            ("await ", ""),
            ("a:", ""),
            ("1**", ""),
            ("<a>", ""),
            ("a<", ""),
        ] {
            let source = format!("x={}0{}", head.repeat(1_100), tail.repeat(1_100));
            assert!(refused(&source), "{head}");
        }
    }

    /// Each of these makes the parser read the rest of the text more than once.
    #[test]
    fn refuses_nested_backtracking() {
        for head in [
            "a?(b):c=>",
            "(a?(b):c=>",
            "`${a?(b) : c=>",
            "a?(b)/**/:c=>{return ",
            "a?async(b):c=>",
            "a?<T>(b):c=>",
            "a?await(b):{c:d}=>",
            "a?(b):c<d,e> =>",
            "a?(b):c<d,\ne> =>",
            "a?(b):c is\nd=>",
            "[<T>",
            "<T,U>",
            "(<T>",
            "{a:<{b:",
            "(a)=>{[a<",
            "a<[b<{",
            "{[a<b\nextends [",
        ] {
            assert!(refused(&format!("x={}", head.repeat(8))), "{head}");
        }
    }

    /// The same constructs in sequence, and nested as deeply as real programs do.
    #[test]
    fn accepts_occasional_backtracking() {
        for line in [
            "const a = b ? (c) : d => e;",
            "const a = b ? (c) : d\nconst f = (g) => h\n",
            "f(a ? (b) : c, d => e),",
            "x = a ? (b) : c ? (d) : e ? (f) : g ? (h) : i ? (j) : k ? (l) : m;",
            "const a = <T>(b: T) => b;",
            "if (a < b && c < d && e < f && g < h && i < j && k < l && m < n) { o([p]) }",
            "if (a < b) { while (c < d) { for (let i = 0; i < e; i++) { f([g(h({ i }))]) } } }",
            "const a: Map<string, Array<Map<string, Array<[b: Set<c>]>>>> = new Map<d, e>();",
            "x = a < b\ny = [c]\n",
        ] {
            let source = line.repeat(30);
            assert_eq!(scan(&source, &Limits::default()), Ok(()), "{line}");
        }
    }

    #[test]
    fn refuses_long_chains() {
        for (link, count) in
            [("+1", 5_002), (".a", 5_002), ("()", 5_002), (" else if(1) b;", 5_002), ("|1", 5_002)]
        {
            let source = format!("if(1) b;{}", link.repeat(count));
            let limits = Limits { source_bytes: 1 << 20, ..Limits::default() };
            assert!(scan(&source, &limits).is_err(), "{link}");
        }
    }

    /// With and without semicolons, up to the size limit.
    #[test]
    fn accepts_long_flat_programs() {
        for line in [
            "const value = await mcp.a.b({ path: 'x', list: [1, 2] });\n",
            "const value = a ? b : !c\n",
            "values.push(await mcp.a.b({ x: `${a} + ${b}` }))\n",
            "if (a) { b() } else if (c) { d() } else { e() }\n",
            "for (const x of y) z(x)\n",
            "const half = (a + b) / 2, other = \"a/b\"\n",
            "const clean = text.replace(/[\"'`({[]/g, '')\n",
            "type A = { a: string; b?: Array<number> }\n",
        ] {
            let source = line.repeat(64 * 1024 / line.len());
            if line.contains('<') {
                continue;
            }
            assert_eq!(scan(&source, &Limits::default()), Ok(()), "{line}");
        }
    }
}
