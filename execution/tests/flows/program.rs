//! A program as a tree of parts, so that it can be reduced.

/// A program with its origin.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The rows, or the seed, that it was generated from.
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
}

/// One or a few statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a part.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(String),
    /// Nested statements.
    Parts(Vec<Part>),
}

impl Part {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Text(text.into())] }
    }

    fn write(&self, out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Parts(parts) => {
                    for part in parts {
                        out.push(' ');
                        part.write(out);
                    }
                    out.push(' ');
                }
            }
        }
    }
}

impl Program {
    /// Returns the text, with each top-level part on a separate line.
    pub(crate) fn source(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            part.write(&mut out);
            out.push('\n');
        }
        out
    }

    /// Returns the fields of `args` that the text names.
    pub(crate) fn fields_of_args(&self) -> Vec<String> {
        let source = self.source();
        let mut fields: Vec<String> = Vec::new();
        for rest in source.split("args.").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let field = rest[..end].to_owned();
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        fields
    }

    /// Returns all programs that are one step smaller: a part is removed or replaced by the parts nested in it.
    pub(crate) fn reductions(&self) -> Vec<Self> {
        let with = |parts| Self { name: self.name.clone(), parts };
        reductions(&self.parts).into_iter().map(with).collect()
    }
}

fn reductions(parts: &[Part]) -> Vec<Vec<Part>> {
    let mut found = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let replaced_by = |replacement: Vec<Part>| {
            let mut parts = parts.to_vec();
            parts.splice(index..=index, replacement);
            parts
        };
        found.push(replaced_by(Vec::new()));
        for (at, piece) in part.pieces.iter().enumerate() {
            let Piece::Parts(inner) = piece else { continue };
            found.push(replaced_by(inner.clone()));
            for reduced in reductions(inner) {
                let mut part = part.clone();
                part.pieces[at] = Piece::Parts(reduced);
                found.push(replaced_by(vec![part]));
            }
        }
    }
    found
}

/// Whether a reduced program still declares every name that it uses.
///
/// A generated name ends in a digit. It is still declared if the two characters before its first occurrence are
/// the same as in the whole program.
pub(crate) fn keeps_declarations(whole: &str, reduced: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names = reduced.split(|c| !is_word(c)).filter(|word| {
        word.ends_with(|c: char| c.is_ascii_digit())
            && word.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    let before_first = |text: &str, name: &str| -> Option<String> {
        let first = text.match_indices(name).find(|(at, _)| {
            let (front, back) = (&text[..*at], &text[at + name.len()..]);
            !front.ends_with(is_word) && !back.starts_with(is_word)
        });
        first.map(|(at, _)| {
            text[..at].chars().rev().filter(|c| !c.is_whitespace()).take(2).collect()
        })
    };
    let names: std::collections::BTreeSet<&str> = names.collect();
    names.into_iter().all(|name| before_first(whole, name) == before_first(reduced, name))
}
