//! Mutates the programs of the cases.

use std::path::{Path, PathBuf};

/// Choices taken from bytes, and after these from a pseudo-random generator.
pub(crate) struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
    state: u64,
}

impl<'a> Choices<'a> {
    /// Chooses by bytes.
    #[allow(dead_code, reason = "the tests choose by a seed")]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), state: bytes.len() as u64 }
    }

    /// Chooses by a seed.
    #[allow(dead_code, reason = "the targets of cargo fuzz choose by bytes")]
    pub(crate) fn seeded(state: u64) -> Self {
        Self { bytes: [].iter(), state }
    }

    fn byte(&mut self) -> u8 {
        if let Some(byte) = self.bytes.next() {
            return *byte;
        }
        // SplitMix64: small, and good enough to choose by.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as u8
    }

    fn below(&mut self, limit: usize) -> usize {
        let number = u32::from_le_bytes([self.byte(), self.byte(), self.byte(), 0]);
        number as usize % limit.max(1)
    }
}

/// Tokens that change how the surrounding text is parsed.
const PIECES: &[&str] = &[
    "mcp",
    ".",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "await ",
    "async ",
    "=>",
    "=",
    ",",
    ";",
    "\n",
    "`",
    "${",
    "\"",
    "'",
    "/",
    "//",
    "/*",
    "*/",
    "<",
    ">",
    "?",
    "?.",
    ":",
    "...",
    "if (",
    "else ",
    "for (",
    " of ",
    " in ",
    "while (",
    "do ",
    "try {",
    "catch ",
    "function ",
    "class ",
    "const ",
    "let ",
    "var ",
    "return ",
    "throw ",
    "yield ",
    "args",
    "this",
    "super",
    "new ",
    "delete ",
    "typeof ",
    "0",
    "1_0",
    "1e9",
    "#p",
    "\\u0061",
    "\\",
    "é",
    "👍",
    "\u{202e}",
    "\u{2028}",
    "\u{feff}",
    "\u{85}",
    "\0",
    "import ",
    "export ",
    "enum ",
    " as any",
    " as 'é👍'",
    "!",
    "+",
    "**",
    "&&",
    "??=",
    "static ",
    "get ",
    "set ",
    "*",
    "@",
    "declare ",
    "type ",
    "interface ",
    "abstract ",
    "<T>",
    "<T,>",
    ": T",
    " satisfies T",
    "<!--",
    "-->",
    "#!",
    "--",
    "++",
    "|",
];

/// Returns a program of the list with up to four changes.
pub(crate) fn mutated(programs: &[String], choices: &mut Choices<'_>) -> String {
    let mut text: Vec<u8> = programs[choices.below(programs.len())].clone().into_bytes();
    for _ in 0..=choices.below(4) {
        change(&mut text, programs, choices);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn change(text: &mut Vec<u8>, programs: &[String], choices: &mut Choices<'_>) {
    let at = choices.below(text.len() + 1);
    match choices.below(8) {
        // Flip a bit.
        0 => {
            if let Some(byte) = text.get_mut(at) {
                *byte ^= 1 << choices.below(8);
            }
        }
        // Insert a token.
        1 | 2 => {
            let piece = PIECES[choices.below(PIECES.len())];
            text.splice(at..at, piece.bytes());
        }
        // Delete some bytes.
        3 => {
            let end = (at + 1 + choices.below(12)).min(text.len());
            text.drain(at..end);
        }
        // Insert a part of another program.
        4 => {
            let other = programs[choices.below(programs.len())].as_bytes();
            let from = choices.below(other.len() + 1);
            let to = (from + choices.below(200)).min(other.len());
            text.splice(at..at, other[from..to].iter().copied());
        }
        // Swap two tokens.
        5 => {
            let tokens = tokens(text);
            if tokens.len() > 1 {
                let (one, other) = (choices.below(tokens.len()), choices.below(tokens.len()));
                let (first, second) = (one.min(other), one.max(other));
                let (a, b) = (tokens[first].clone(), tokens[second].clone());
                if a.end <= b.start {
                    let swapped = [
                        &text[..a.start],
                        &text[b.clone()],
                        &text[a.end..b.start],
                        &text[a.clone()],
                        &text[b.end..],
                    ];
                    *text = swapped.concat();
                }
            }
        }
        // Delete or duplicate a token.
        6 => {
            let tokens = tokens(text);
            if let Some(token) = tokens.get(choices.below(tokens.len())).cloned() {
                if choices.below(2) == 0 {
                    text.drain(token);
                } else {
                    let copy = text[token.clone()].to_vec();
                    text.splice(token.start..token.start, copy);
                }
            }
        }
        // Truncate the text.
        _ => text.truncate(at),
    }
}

/// Returns the ranges of words and of other single characters.
fn tokens(text: &[u8]) -> Vec<std::ops::Range<usize>> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let from = at;
        at += 1;
        while word(text[from]) && at < text.len() && word(text[at]) {
            at += 1;
        }
        if !text[from].is_ascii_whitespace() {
            found.push(from..at);
        }
    }
    found
}

/// Returns the programs of the cases.
pub(crate) fn programs() -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The fuzz targets are a separate package, one folder deeper.
    let tests: PathBuf = [manifest.join("tests"), manifest.join("../tests")]
        .into_iter()
        .find(|folder| folder.join("cases").is_dir())
        .expect("the cases are next to the tests");
    let mut folders = vec![tests.join("cases")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder can be listed") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ts") {
                found.push((path.clone(), std::fs::read_to_string(path).expect("it is text")));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, source)| source).collect()
}
