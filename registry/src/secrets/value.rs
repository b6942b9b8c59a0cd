//! The types of a stored secret: name, value, owner and record.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::RegistryError;

/// The longest name of a variable, in bytes.
const NAME_LIMIT: usize = 128;
/// The longest value, in bytes.
const VALUE_LIMIT: usize = 8 * 1024;

/// The variable name of a secret: `[A-Z][A-Z0-9_]*`, at most 128 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SecretName(String);

impl SecretName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        if (1..=NAME_LIMIT).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.bytes().all(allowed)
        {
            Ok(Self(text.to_owned()))
        } else {
            // The input may be the secret's value, in the wrong field, so it is not repeated.
            Err(RegistryError::Invalid(
                "a secret's name must be a capital letter followed by up to 127 capital letters, digits or `_`"
                    .to_owned(),
            ))
        }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A secret's value: never shown, and wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Wraps a value of 1 byte to 8 KiB.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for an empty or a larger value.
    pub fn new(text: Zeroizing<String>) -> Result<Self, RegistryError> {
        if text.is_empty() || text.len() > VALUE_LIMIT {
            return Err(RegistryError::Invalid(
                "a secret's value must have 1 to 8192 bytes".to_owned(),
            ));
        }
        Ok(Self(text))
    }

    /// Returns the value in plain text, to send or encrypt it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The owner of a secret; a principal's own overrides the project's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SecretOwner {
    /// The principal that stores it; other principals can neither use nor see it.
    Me,
    /// All callers of the project.
    Project,
}

impl SecretOwner {
    /// Returns the word used on the wire and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Me => "me",
            Self::Project => "project",
        }
    }
}

/// Identifies a stored secret. Another value, another owner, or the same value stored again has a different stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretStamp {
    pub(super) owner: String,
    pub(super) version: i64,
    pub(super) updated_at: DateTime<Utc>,
}

/// A stored secret, opened for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedSecret {
    /// The secret.
    pub value: SecretValue,
    /// Its stamp.
    pub stamp: SecretStamp,
}

/// A secret's record; its value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SecretRecord {
    /// The variable.
    pub name: String,
    /// The owner: `me` or `project`.
    #[serde(rename = "for")]
    pub owner: SecretOwner,
    /// Increases with each new value.
    pub version: i64,
    /// The hosts that may receive it; if absent, only the hosts of catalog entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// When it was first stored.
    pub created_at: DateTime<Utc>,
    /// When its value was last changed.
    pub updated_at: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_of_variables_only() {
        for name in ["A", "TAVILY_API_KEY", "X9_", &"A".repeat(128)] {
            assert_eq!(name.parse::<SecretName>().unwrap().as_str(), name);
        }
        for name in ["", "a", "_A", "9A", "A-B", "A B", "A\n", "Ä", "A.B", &"A".repeat(129)] {
            let refused = name.parse::<SecretName>().expect_err(name).to_string();
            assert!(name.len() < 2 || !refused.contains(name), "{refused}");
        }
    }

    /// SE-17: a value is never shown.
    #[test]
    fn values_have_a_size_and_are_never_shown() {
        let value = |length: usize| SecretValue::new(Zeroizing::new("c".repeat(length)));
        assert_eq!(format!("{:?}", value(8_192).unwrap()), "[redacted]");
        assert_eq!(value(1).unwrap().expose(), "c");
        value(0).unwrap_err();
        value(8_193).unwrap_err();
    }
}
