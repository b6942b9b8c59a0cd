//! What a use reveals about the type of a value.

use serde_json::{Value, json};
use swc_ecma_ast::{Expr, Lit};

/// The JSON types that a value may have. A value from JSON only has the methods of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Default for Kinds {
    fn default() -> Self {
        Self(Self::ANY)
    }
}

impl Kinds {
    const ANY: u8 = u8::MAX;
    pub(super) const STRING: Self = Self(1);
    pub(super) const NUMBER: Self = Self(2);
    pub(super) const BOOLEAN: Self = Self(4);
    pub(super) const ARRAY: Self = Self(8);
    pub(super) const OBJECT: Self = Self(16);
    /// What `for … of` and `...` can iterate over.
    pub(super) const ITERABLE: Self = Self(Self::STRING.0 | Self::ARRAY.0);

    /// Keeps the types that another use also allows.
    pub(super) fn allow(&mut self, other: Self) {
        self.0 &= other.0;
    }

    /// Returns the schema, or `{}` if uses contradict each other, because then some of them are not reached.
    pub(super) fn schema(self) -> Value {
        let words = [
            (Self::STRING, "string"),
            (Self::NUMBER, "number"),
            (Self::BOOLEAN, "boolean"),
            (Self::ARRAY, "array"),
            (Self::OBJECT, "object"),
        ];
        let words = words.into_iter().filter(|(kind, _)| self.0 & kind.0 != 0);
        let words: Vec<&str> = words.map(|(_, word)| word).collect();
        match words.as_slice() {
            _ if self.0 == Self::ANY => json!({}),
            [] => json!({}),
            [one] => json!({ "type": one }),
            several => json!({ "type": several }),
        }
    }
}

/// Returns the types that have a method.
pub(super) fn of_method(name: &str) -> Option<Kinds> {
    Some(match name {
        "map" | "filter" | "forEach" | "reduce" | "reduceRight" | "flatMap" | "flat" | "some"
        | "every" | "find" | "findIndex" | "findLast" | "findLastIndex" | "join" | "push"
        | "pop" | "shift" | "unshift" | "splice" | "sort" | "reverse" | "fill" | "toSorted"
        | "toReversed" | "toSpliced" | "entries" | "keys" | "values" => Kinds::ARRAY,
        "toUpperCase" | "toLowerCase" | "trim" | "trimStart" | "trimEnd" | "split"
        | "startsWith" | "endsWith" | "replace" | "replaceAll" | "padStart" | "padEnd"
        | "charAt" | "charCodeAt" | "codePointAt" | "match" | "matchAll" | "search"
        | "substring" | "substr" | "repeat" | "normalize" | "localeCompare" => Kinds::STRING,
        "slice" | "includes" | "indexOf" | "lastIndexOf" | "at" | "concat" => Kinds::ITERABLE,
        "toFixed" | "toPrecision" | "toExponential" => Kinds::NUMBER,
        _ => return None,
    })
}

/// Returns the type of a default value.
pub(super) fn of_default(value: &Expr) -> Option<Kinds> {
    Some(match value {
        Expr::Lit(Lit::Str(_)) | Expr::Tpl(_) => Kinds::STRING,
        Expr::Lit(Lit::Num(_)) => Kinds::NUMBER,
        Expr::Lit(Lit::Bool(_)) => Kinds::BOOLEAN,
        Expr::Array(_) => Kinds::ARRAY,
        Expr::Object(_) => Kinds::OBJECT,
        Expr::Unary(unary) if unary.op.as_str() == "-" => of_default(&unary.arg)?,
        Expr::Paren(inner) => of_default(&inner.expr)?,
        Expr::TsAs(inner) => of_default(&inner.expr)?,
        _ => return None,
    })
}
