//! A program as a tree of parts that can be removed.

use std::collections::BTreeSet;

/// A tool's namespace and action.
pub(crate) type Tool = (String, String);

/// A program with its expected behaviour.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// Whether the analysis must resolve all of its tools.
    pub(crate) resolvable: bool,
    pub(super) body: Vec<Part>,
}

/// A statement, or an expression that calls tools.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub(super) pieces: Vec<Piece>,
    /// The tools that every run calls here.
    pub(super) tools: Vec<Tool>,
    pub(super) constructs: Vec<&'static str>,
    /// The text that replaces the part when it is removed.
    pub(super) replacement: &'static str,
    pub(super) removed: bool,
}

#[derive(Clone)]
pub(super) enum Piece {
    Text(String),
    Parts(Vec<Part>),
}

impl Part {
    fn write(&self, out: &mut String) {
        if self.removed {
            out.push_str(self.replacement);
            return;
        }
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Parts(parts) => parts.iter().for_each(|part| part.write(out)),
            }
        }
    }

    fn visit(&self, visitor: &mut impl FnMut(&Part)) {
        if self.removed {
            return;
        }
        visitor(self);
        for piece in &self.pieces {
            if let Piece::Parts(parts) = piece {
                parts.iter().for_each(|part| part.visit(visitor));
            }
        }
    }

    /// Returns the part at an index in the order of the text. `left` counts down to it.
    fn at_index(&mut self, left: &mut usize) -> Option<&mut Part> {
        if self.removed {
            return None;
        }
        if *left == 0 {
            return Some(self);
        }
        *left -= 1;
        for piece in &mut self.pieces {
            if let Piece::Parts(parts) = piece {
                for part in parts {
                    if let Some(found) = part.at_index(left) {
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
        // Otherwise the last value would be the result, and a tool or a cycle cannot be serialized.
        out.push_str("\nreturn;");
        out
    }

    fn visit(&self, mut visitor: impl FnMut(&Part)) {
        self.body.iter().for_each(|part| part.visit(&mut visitor));
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

    /// Removes the parts without which the program still fails.
    pub(crate) fn shrunk(&self, mut fails: impl FnMut(&Program) -> bool) -> Program {
        let mut best = self.clone();
        let mut tries = 0;
        loop {
            let before = tries;
            let mut index = 0;
            let mut smaller = false;
            while tries < MAX_TRIES {
                let mut next = best.clone();
                let mut left = index;
                let found = next.body.iter_mut().find_map(|part| part.at_index(&mut left));
                let Some(part) = found else { break };
                part.removed = true;
                tries += 1;
                if fails(&next) {
                    best = next;
                    smaller = true;
                } else {
                    index += 1;
                }
            }
            if !smaller || before == tries || tries >= MAX_TRIES {
                return best;
            }
        }
    }
}

/// The most removals that are tried.
const MAX_TRIES: usize = 600;
