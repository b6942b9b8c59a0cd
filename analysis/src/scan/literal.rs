//! Comments, strings, regular expressions and the text of templates.

use super::Scanner;
use super::level::Level;
use crate::diagnostic::Finding;

impl Scanner<'_> {
    pub(super) fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n' && byte != b'\r') {
            self.at += 1;
        }
    }

    pub(super) fn block_comment(&mut self) {
        self.at += 2;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == b'*' && self.peek(0) == Some(b'/') {
                self.at += 1;
                return;
            }
        }
    }

    pub(super) fn string(&mut self, quote: u8) {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.at += 2,
                b'\n' => return,
                _ => {
                    self.at += 1;
                    if byte == quote {
                        return;
                    }
                }
            }
        }
    }

    pub(super) fn regex(&mut self) {
        self.at += 1;
        let mut class = false;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.at += 2,
                b'\n' => return,
                _ => {
                    self.at += 1;
                    match byte {
                        b'[' => class = true,
                        b']' => class = false,
                        b'/' if !class => return,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Reads the text of a template up to its end or its next `${`.
    pub(super) fn template(&mut self) -> Result<(), Finding> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.at += 2,
                b'`' => {
                    self.at += 1;
                    self.value();
                    return Ok(());
                }
                b'$' if self.peek(1) == Some(b'{') => {
                    self.at += 2;
                    self.operator();
                    return self.open(Level { hole: true, ..Level::default() });
                }
                _ => self.at += 1,
            }
        }
        Ok(())
    }
}
