//! JSON read so that no other parser can see something else in it.
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

/// Refuses a name that some parser takes for one that is judged.
pub(super) fn plainly<E: serde::de::Error>(name: &str, judged: &[&str]) -> Result<(), E> {
    let folded: String = name
        .chars()
        .map(|letter| match letter {
            // The two letters outside of ASCII whose other case is within it.
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        })
        .collect();
    match judged.iter().find(|exact| **exact != name && exact.to_ascii_lowercase() == folded) {
        Some(exact) => Err(E::custom(format!("a member `{}` beside `{exact}`", shown(name)))),
        None => Ok(()),
    }
}

/// A name, which is mostly copied from nowhere.
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

/// Any value, of which a string is collected.
pub(super) struct Text(pub(super) Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any { keep: true }).map(Text)
    }
}

/// Any value that has no member twice.
pub(super) struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any { keep: false }).map(|_| Checked)
    }
}

/// Walks any value, and collects the strings that `keep` selects.
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
