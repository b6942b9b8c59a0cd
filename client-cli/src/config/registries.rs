//! The further registries of `.pml.json`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::origin::Origin;

/// The maximum number of registries: a name that none of them has costs a request to each.
const LIMIT: usize = 8;

/// A registry in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registry {
    /// Where it is.
    pub(crate) origin: Origin,
    /// Whether it is skipped if it cannot be asked.
    pub(crate) optional: bool,
}

/// The registries, in the order in which they are asked.
#[derive(Debug, Default)]
pub(super) struct Registries(pub(super) Vec<Registry>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    url: Origin,
    #[serde(default)]
    optional: bool,
}

impl<'de> Deserialize<'de> for Registry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        // Not an untagged enum, whose errors have neither the reason nor the position.
        impl<'de> Visitor<'de> for Form {
            type Value = Registry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, or `{ \"url\": \"https://…\", \"optional\": true }`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Registry, E> {
                let origin = text.parse().map_err(E::custom)?;
                Ok(Registry { origin, optional: false })
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Registry, A::Error> {
                let fields = Fields::deserialize(MapAccessDeserializer::new(access))?;
                Ok(Registry { origin: fields.url, optional: fields.optional })
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl<'de> Deserialize<'de> for Registries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Registries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of registries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Registries, A::Error> {
                let mut list: Vec<Registry> = Vec::new();
                // Checked one by one, so that the error is reported at the entry.
                while let Some(registry) = access.next_element::<Registry>()? {
                    if list.iter().any(|known| known.origin == registry.origin) {
                        let origin = registry.origin;
                        return Err(A::Error::custom(format!(
                            "the registry `{origin}` is listed twice"
                        )));
                    }
                    if list.len() == LIMIT {
                        return Err(A::Error::custom(format!(
                            "there are more than {LIMIT} registries"
                        )));
                    }
                    list.push(registry);
                }
                Ok(Registries(list))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, bool)>, String> {
        let read: Result<Registries, _> = serde_json::from_str(text);
        let list = read.map_err(|error| error.to_string())?.0;
        Ok(list.into_iter().map(|known| (known.origin.to_string(), known.optional)).collect())
    }

    #[test]
    fn a_registry_is_a_url_or_an_object() {
        let text = r#"["https://a.test/", { "url": "https://b.test", "optional": true }, { "url": "https://c.test" }]"#;
        let expected =
            [("https://a.test", false), ("https://b.test", true), ("https://c.test", false)];
        assert_eq!(
            read(text).unwrap(),
            expected.map(|(origin, optional)| (origin.to_owned(), optional))
        );
        assert_eq!(read("[]").unwrap(), []);
    }

    #[test]
    fn other_forms_are_refused() {
        let nine: Vec<String> = (0..9).map(|n| format!("\"https://a{n}.test\"")).collect();
        let nine = format!("[{}]", nine.join(","));
        for (text, words) in [
            (r#"["https://a.test/registry"]"#, "write `\"https://a.test\"`"),
            (r#"[{ "url": "https://a.test/registry" }]"#, "write `\"https://a.test\"`"),
            (r#"["https://a.test", { "url": "https://A.test:443" }]"#, "is listed twice"),
            (r#"[{ "optional": true }]"#, "missing field `url`"),
            (r#"[{ "url": "https://a.test", "key": "x" }]"#, "unknown field `key`"),
            (r#"[{ "url": "https://a.test", "url": "https://b.test" }]"#, "duplicate field `url`"),
            (r#"[{ "url": "https://a.test", "optional": "yes" }]"#, "expected a boolean"),
            (r#"[["https://a.test", true]]"#, "expected a URL"),
            (r#"[1]"#, "expected a URL"),
            (r#""https://a.test""#, "expected a list of registries"),
            (&nine, "more than 8 registries"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
