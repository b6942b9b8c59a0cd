//! Unambiguous JSON: structs must be written as objects, and keys must be unique.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Checks that a JSON text has no duplicate keys.
pub(crate) fn check_unique(content: &[u8]) -> Result<(), String> {
    serde_json::from_slice::<Unambiguous>(content).map(drop).map_err(|error| error.to_string())
}

/// A value that must be written as an object. Without this, serde would accept an array as the fields in their order,
/// and `[]` as a file without rules.
#[derive(Debug, Default)]
pub(crate) struct Strict<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Strict<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(access)).map(Strict)
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

impl<T: Serialize> Serialize for Strict<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// A map that refuses duplicate keys, because two readers could use different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UniqueMap<V>(pub(crate) BTreeMap<String, V>);

impl<V> Default for UniqueMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unique<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some(key) = access.next_key::<String>()? {
                    // Checked before the value is read, so that the error is reported at the key.
                    if map.contains_key(&key) {
                        let key = key.escape_debug();
                        return Err(A::Error::custom(format!("duplicate key `{key}`")));
                    }
                    map.insert(key, access.next_value()?);
                }
                Ok(UniqueMap(map))
            }
        }
        deserializer.deserialize_map(Unique(PhantomData))
    }
}

impl<V: Serialize> Serialize for UniqueMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Any JSON without duplicate keys.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The recursion is bounded: `serde_json` refuses text with more than 128 levels.
        deserializer.deserialize_any(AnyUnambiguous)
    }
}

struct AnyUnambiguous;

impl<'de> Visitor<'de> for AnyUnambiguous {
    type Value = Unambiguous;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Unambiguous, A::Error> {
        while access.next_element::<Unambiguous>()?.is_some() {}
        Ok(Unambiguous)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Unambiguous, A::Error> {
        UniqueMap::<Unambiguous>::deserialize(MapAccessDeserializer::new(access))?;
        Ok(Unambiguous)
    }
}
