//! A program as a tree of parts that can be left out.

use std::collections::BTreeSet;

/// A tool's namespace and action.
pub(crate) type Tool = (String, String);

/// A program and what is known about it.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// Whether the analysis is expected to follow everything in it.
    pub(crate) resolvable: bool,
    pub(super) body: Vec<Part>,
}

/// A statement, or an expression that calls tools.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub(super) pieces: Vec<Piece>,
    /// The tools that are called here in every run.
    pub(super) tools: Vec<Tool>,
    pub(super) constructs: Vec<&'static str>,
    /// The text in place of the part if it is left out.
    pub(super) instead: &'static str,
    pub(super) left_out: bool,
}

#[derive(Clone)]
pub(super) enum Piece {
    Text(String),
    Parts(Vec<Part>),
}

impl Part {
    fn write(&self, out: &mut String) {
        if self.left_out {
            out.push_str(self.instead);
            return;
        }
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Parts(parts) => parts.iter().for_each(|part| part.write(out)),
            }
        }
    }

    fn visit(&self, look: &mut impl FnMut(&Part)) {
        if self.left_out {
            return;
        }
        look(self);
        for piece in &self.pieces {
            if let Piece::Parts(parts) = piece {
                parts.iter().for_each(|part| part.visit(look));
            }
        }
    }

    /// Returns the part with a number, counting from zero in source order.
    fn numbered(&mut self, left: &mut usize) -> Option<&mut Part> {
        if self.left_out {
            return None;
        }
        if *left == 0 {
            return Some(self);
        }
        *left -= 1;
        for piece in &mut self.pieces {
            if let Piece::Parts(parts) = piece {
                for part in parts {
                    if let Some(found) = part.numbered(left) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }
}

impl Program {
    pub(crate) fn source(&self) -> String {
        let mut out = String::new();
        self.body.iter().for_each(|part| part.write(&mut out));
        // Without `return`, the last value would be the result, and a tool or a cycle cannot be serialized.
        out.push_str("\nreturn;");
        out
    }

    fn visit(&self, mut look: impl FnMut(&Part)) {
        self.body.iter().for_each(|part| part.visit(&mut look));
    }

    /// Returns the tools that every run calls, as `namespace:action`.
    pub(crate) fn called(&self) -> BTreeSet<String> {
        let mut called = BTreeSet::new();
        self.visit(|part| {
            called.extend(part.tools.iter().map(|(space, action)| format!("{space}:{action}")));
        });
        called
    }

    /// Returns the names of its constructs.
    pub(crate) fn constructs(&self) -> BTreeSet<&'static str> {
        let mut names = BTreeSet::new();
        self.visit(|part| names.extend(&part.constructs));
        names
    }

    /// Returns the name of its first construct.
    pub(crate) fn first_construct(&self) -> &'static str {
        self.body.first().and_then(|part| part.constructs.first()).copied().unwrap_or_default()
    }

    /// Removes parts that are not needed for the program to fail.
    pub(crate) fn shrunk(&self, mut fails: impl FnMut(&Program) -> bool) -> Program {
        let mut best = self.clone();
        let mut tries = 0;
        loop {
            let before = tries;
            let mut number = 0;
            let mut smaller = false;
            while tries < TRIES {
                let mut next = best.clone();
                let mut left = number;
                let found = next.body.iter_mut().find_map(|part| part.numbered(&mut left));
                let Some(part) = found else { break };
                part.left_out = true;
                tries += 1;
                if fails(&next) {
                    best = next;
                    smaller = true;
                } else {
                    number += 1;
                }
            }
            if !smaller || before == tries || tries >= TRIES {
                return best;
            }
        }
    }
}

/// The maximum number of smaller programs that are tried.
const TRIES: usize = 600;
