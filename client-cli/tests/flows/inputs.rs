//! The input of the programs: results and `args` with every field that a program reads.

use serde_json::{Map, Value, json};

/// The type of the field values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Flavour {
    Texts,
    Numbers,
    Lists,
    /// The answer itself is a list.
    Rows,
    /// The answer itself is a string.
    Plain,
}

impl Flavour {
    pub(crate) const ALL: &[Self] =
        &[Self::Texts, Self::Numbers, Self::Lists, Self::Rows, Self::Plain];
}

/// How an answer is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// Other values of the same kind.
    Other,
    /// Empty values: zero, an empty string or list.
    Nothing,
}

impl Change {
    pub(crate) const ALL: &[Self] = &[Self::Other, Self::Nothing];
}

fn leaf(flavour: Flavour, word: &str, who: &str, change: Option<Change>) -> Value {
    match (flavour, change) {
        (Flavour::Numbers, None) => json!(2),
        (Flavour::Numbers, Some(Change::Other)) => json!(3),
        (Flavour::Numbers, Some(Change::Nothing)) => json!(0),
        (_, None) => json!(format!("{who} {word}\nand more")),
        (_, Some(Change::Other)) => json!(format!("{who} else {word}\nand others\nand more")),
        (_, Some(Change::Nothing)) => json!(""),
    }
}

fn object(flavour: Flavour, words: &[String], who: &str, change: Option<Change>) -> Value {
    let fields = words.iter().map(|word| (word.clone(), leaf(flavour, word, who, change)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn list(words: &[String], who: &str, change: Option<Change>) -> Value {
    let row = |number: u32| object(Flavour::Texts, words, &format!("{who}{number}"), change);
    match change {
        None => json!([row(1), row(2)]),
        Some(Change::Other) => json!([row(1), row(2), row(3)]),
        Some(Change::Nothing) => json!([]),
    }
}

/// Returns a field of `args`.
pub(crate) fn field(
    flavour: Flavour,
    words: &[String],
    name: &str,
    who: &str,
    change: Option<Change>,
) -> Value {
    match flavour {
        Flavour::Lists | Flavour::Rows => list(words, who, change),
        flavour => leaf(flavour, name, who, change),
    }
}

/// Returns the answer of a call.
pub(crate) fn answer(
    flavour: Flavour,
    words: &[String],
    who: &str,
    change: Option<Change>,
) -> Value {
    match flavour {
        Flavour::Texts | Flavour::Numbers => object(flavour, words, who, change),
        Flavour::Lists => {
            let fields = words.iter().map(|word| (word.clone(), list(words, who, change)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Flavour::Rows => list(words, who, change),
        Flavour::Plain => leaf(flavour, "", who, change),
    }
}
