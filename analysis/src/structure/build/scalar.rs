//! Constants: texts, numbers and the like.

use swc_atoms::Atom;

/// A value that does not change and has no parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Atom),
}

impl Scalar {
    /// Returns whether it is `undefined` or `null`.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Undefined | Self::Null)
    }

    /// Returns the text that the value has as a key or in a template.
    pub(super) fn as_key(&self) -> Atom {
        match self {
            Self::Undefined => "undefined".into(),
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string().into(),
            Self::Number(value) => number_text(*value).unwrap_or_default().into(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Returns the text of a number, where Rust and JavaScript write it alike.
pub(super) fn number_text(value: f64) -> Option<String> {
    (value.fract() == 0.0 && value.abs() < 1e15).then(|| format!("{}", value as i64))
}
