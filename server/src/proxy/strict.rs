//! Strict parsing of JSON: refuses texts that another parser could read differently.
//!
//! A duplicate member is refused at any depth, and so is one that differs only in case from a checked one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The names of an object's members, to detect duplicates.
#[derive(Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// Returns the next name, or `None` at the end of the object.
    pub(super) fn next<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
    ) -> Result<Option<String>, A::Error> {
        // Compared after decoding, so that `n\u0061me` is a duplicate of `name`.
        let Some(Name(name)) = map.next_key::<Name<'de>>()? else { return Ok(None) };
        if !self.0.insert(name.clone().into_owned()) {
            return Err(A::Error::custom(format!("duplicate member `{}`", shown(&name))));
        }
        Ok(Some(name.into_owned()))
    }
}

/// Returns a name shortened and escaped for a message.
pub(super) fn shown(name: &str) -> String {
    protocol::escape_text(&name.chars().take(64).collect::<String>()).to_string()
}

/// Refuses a name that differs from one of `exact_names` only in case: a parser that ignores case takes it for that
/// one.
pub(super) fn refuse_variant<E: serde::de::Error>(
    name: &str,
    exact_names: &[&str],
) -> Result<(), E> {
    let folded: String = name
        .chars()
        .map(|letter| match letter {
            // The only two letters outside of ASCII that fold to ASCII: long s and the Kelvin sign.
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        })
        .collect();
    match exact_names.iter().find(|exact| **exact != name && exact.to_ascii_lowercase() == folded) {
        Some(exact) => {
            Err(E::custom(format!("member `{}` differs from `{exact}` only in case", shown(name))))
        }
        None => Ok(()),
    }
}

/// A member's name, borrowed from the input unless it contains escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

/// Any value; contains the text if it is a string. Nested members are checked for duplicates.
pub(super) struct Text(pub(super) Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any { keep: true }).map(Text)
    }
}

/// Any value without duplicate members.
pub(super) struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any { keep: false }).map(|_| Checked)
    }
}

/// Visits any value, refuses duplicate members, and returns the text of a string if `keep` is set.
struct Any {
    keep: bool,
}

impl<'de> Visitor<'de> for Any {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.keep.then(|| text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        // Not `IgnoredAny`: an element may be an object with duplicate members.
        while items.next_element::<Checked>()?.is_some() {}
        Ok(None)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut names = Names::default();
        while names.next(&mut map)?.is_some() {
            map.next_value::<Checked>()?;
        }
        Ok(None)
    }
}
