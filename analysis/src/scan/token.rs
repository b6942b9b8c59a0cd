//! Words and punctuation: which of them nest, and which lengthen a chain.

use super::level::Level;
use super::{LABEL_LIMIT, Previous, Scanner, is_word};
use crate::diagnostic::Finding;

impl Scanner<'_> {
    pub(super) fn word(&mut self) -> Result<(), Finding> {
        let start = self.at;
        while self.peek(0).is_some_and(is_word) {
            self.at += 1;
        }
        let word = &self.bytes[start..self.at];
        if self.previous == Previous::Dot {
            self.value();
            return Ok(());
        }
        if word == b"else" {
            // `a; else` continues the chain that the `;` seemed to end.
            self.boundary = false;
            self.chain()?;
            self.operator();
            self.previous = Previous::Else;
            return Ok(());
        }
        if self.previous == Previous::Brace {
            self.boundary = true;
        }
        self.begin_token();
        match word {
            b"if" | b"for" | b"while" | b"with" => {
                if self.previous != Previous::Else {
                    self.nest()?;
                }
                self.operator();
                self.previous = Previous::HeadWord;
            }
            b"do" | b"typeof" | b"void" | b"delete" | b"await" | b"new" | b"yield" | b"throw"
            | b"keyof" | b"async" => {
                // The `(` of `for await (` still begins a head.
                if self.previous != Previous::HeadWord {
                    self.nest()?;
                    self.operator();
                }
            }
            b"return" | b"case" => self.operator(),
            // In a type, the operand of these may be on the next line.
            b"is" | b"readonly" | b"unique" | b"infer" | b"abstract"
                if self.levels.last().is_some_and(|level| level.fork) =>
            {
                self.operator();
            }
            b"in" | b"instanceof" | b"as" | b"satisfies" | b"of" | b"extends" => {
                self.chain()?;
                self.operator();
            }
            _ => self.value(),
        }
        Ok(())
    }

    pub(super) fn punctuation(&mut self, byte: u8) -> Result<(), Finding> {
        let next = self.peek(1);
        let previous = self.previous;
        match byte {
            b'(' | b'[' => {
                self.begin_token();
                if matches!(previous, Previous::Value | Previous::Dot) {
                    self.chain()?;
                }
                self.at += 1;
                let head = byte == b'(' && previous == Previous::HeadWord;
                self.operator();
                return self.open(Level { head, ..Level::default() });
            }
            b'{' => {
                self.begin_token();
                self.at += 1;
                self.operator();
                self.boundary = true;
                return self.open(Level::default());
            }
            b')' | b']' => {
                self.at += 1;
                self.boundary = false;
                let head = self.close().head;
                self.labels = 0;
                self.previous = if head { Previous::Head } else { Previous::Value };
                // `? (…) :` may be the parameters and the return type of an arrow function.
                let colon = self.is_followed_by_colon();
                if let Some(around) = self.levels.last_mut() {
                    around.fork |= around.choice && colon;
                }
            }
            b'}' => {
                self.at += 1;
                self.boundary = false;
                self.labels = 0;
                // The `}` of `${…}` continues the text of the template.
                if self.close().hole {
                    return self.template();
                }
                self.previous = Previous::Brace;
            }
            b';' | b',' => {
                self.at += 1;
                if byte == b';' {
                    self.end_types();
                }
                self.operator();
                self.boundary = true;
            }
            b'.' => {
                self.begin_token();
                self.at += 1;
                self.chain()?;
                self.labels = 0;
                self.previous = Previous::Dot;
            }
            b':' => {
                self.at += 1;
                self.nest()?;
                if previous == Previous::Value {
                    self.labels += 1;
                    if self.labels > LABEL_LIMIT {
                        return Err(self.too_complex("too many labels in a row"));
                    }
                } else {
                    self.labels = 0;
                }
                self.previous = Previous::Operator;
            }
            b'=' if next == Some(b'>') => {
                self.at += 2;
                self.nest()?;
                self.arrow()?;
                self.operator();
            }
            b'<' => {
                self.begin_token();
                self.at += 1;
                self.angle(previous != Previous::Value)?;
                if previous == Previous::Value {
                    self.chain()?
                } else {
                    self.nest()?
                }
                self.operator();
            }
            // A prefix `++` nests what follows, a postfix one does not.
            b'+' | b'-' if next == Some(byte) => {
                self.begin_token();
                self.at += 2;
                if previous != Previous::Value {
                    self.nest()?;
                    self.operator();
                }
            }
            // TypeScript's non-null assertion is a link of the chain.
            b'!' if previous == Previous::Value && next != Some(b'=') => {
                self.at += 1;
                self.chain()?;
            }
            b'?' if next == Some(b'.') => {
                self.at += 2;
                self.chain()?;
                self.labels = 0;
                self.previous = Previous::Dot;
            }
            // `**` is right-associative, so it nests.
            b'*' if next == Some(b'*') => {
                self.at += 2;
                self.nest()?;
                self.operator();
            }
            b'=' | b'!' if next == Some(b'=') => {
                while self.peek(0) == Some(b'=') || self.peek(0) == Some(b'!') {
                    self.at += 1;
                }
                self.chain()?;
                self.operator();
            }
            b'&' | b'|' | b'?' if next == Some(byte) => {
                self.at += 2;
                self.chain()?;
                self.operator();
            }
            // A shift or a comparison, or the end of nested type arguments.
            b'>' if matches!(next, Some(b'=' | b'>')) => {
                while let Some(byte @ (b'>' | b'=')) = self.peek(0) {
                    self.at += 1;
                    if byte == b'>' {
                        self.close_angle();
                    }
                }
                self.chain()?;
                self.operator();
            }
            b'=' | b'?' | b'~' | b'!' => {
                self.begin_token();
                self.at += 1;
                self.nest()?;
                self.operator();
                if let (b'?', Some(level)) = (byte, self.levels.last_mut()) {
                    level.choice = true;
                }
            }
            b'+' | b'-' | b'*' | b'/' | b'%' | b'&' | b'|' | b'^' | b'>' => {
                self.begin_token();
                self.at += 1;
                if byte == b'>' {
                    self.close_angle();
                }
                if previous == Previous::Value {
                    self.chain()?
                } else {
                    self.nest()?
                }
                self.operator();
            }
            _ => {
                self.begin_token();
                self.at += 1;
            }
        }
        Ok(())
    }

    /// Returns whether a colon comes next, or a comment that may hide one.
    fn is_followed_by_colon(&self) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        next.is_some_and(|byte| matches!(byte, b':' | b'/') || !byte.is_ascii())
    }
}
