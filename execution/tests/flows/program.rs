//! A program as a tree of parts, so that it can be made smaller.

/// A program and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The rows, or the seed, that it was made of.
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
    /// Statements within the part.
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

/// Returns the parts as text, each on a line of its own.
pub(crate) fn text(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        part.write(&mut out);
        out.push('\n');
    }
    out
}

impl Program {
    pub(crate) fn source(&self) -> String {
        text(&self.parts)
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

    /// Returns programs that are a little smaller: without a part, or with what is within it instead.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let with = |parts| Self { name: self.name.clone(), parts };
        smaller(&self.parts).into_iter().map(with).collect()
    }
}

fn smaller(parts: &[Part]) -> Vec<Vec<Part>> {
    let mut found = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let put = |instead: Vec<Part>| {
            let mut parts = parts.to_vec();
            parts.splice(place..=place, instead);
            parts
        };
        found.push(put(Vec::new()));
        for (at, piece) in part.pieces.iter().enumerate() {
            let Piece::Parts(inner) = piece else { continue };
            found.push(put(inner.clone()));
            for less in smaller(inner) {
                let mut part = part.clone();
                part.pieces[at] = Piece::Parts(less);
                found.push(put(vec![part]));
            }
        }
    }
    found
}

/// Whether each numbered name of a smaller program is first named where it was before: it is still declared.
pub(crate) fn declares_the_same(whole: &str, smaller: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = smaller.split(|c| !is_part(c)).filter(|word| {
        word.ends_with(|c: char| c.is_ascii_digit())
            && word.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    let before = |text: &str, name: &str| -> Option<String> {
        let named = text.match_indices(name).find(|(at, _)| {
            let (front, back) = (&text[..*at], &text[at + name.len()..]);
            !front.ends_with(is_part) && !back.starts_with(is_part)
        });
        named.map(|(at, _)| {
            text[..at].chars().rev().filter(|c| !c.is_whitespace()).take(2).collect()
        })
    };
    let names: std::collections::BTreeSet<&str> = names.collect();
    names.into_iter().all(|name| before(whole, name) == before(smaller, name))
}
