//! The rights of keys and members.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RegistryError;

/// A right of a key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Run programs and call tools.
    Execute,
    /// Read the tenant's entries and records.
    Read,
    /// Publish entries.
    Publish,
    /// Manage keys and settings of the tenant.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 4] = [Self::Execute, Self::Read, Self::Publish, Self::Admin];

    /// Returns the word used on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Publish => "publish",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Right {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        Self::ALL.into_iter().find(|right| right.as_str() == text).ok_or_else(|| {
            RegistryError::Invalid(format!(
                "`{}` is not a right; use `execute`, `read`, `publish` or `admin`",
                text.escape_debug()
            ))
        })
    }
}

/// A set of rights; written as a list, `execute,read`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rights(Vec<Right>);

impl Rights {
    /// Returns whether the set contains a right.
    pub fn contains(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

    /// Returns whether the set is a subset of another.
    pub fn is_subset(&self, others: &Self) -> bool {
        self.0.iter().all(|right| others.contains(*right))
    }

    /// Returns the intersection with another set.
    #[must_use]
    pub fn within(&self, others: &Self) -> Self {
        self.0.iter().copied().filter(|right| others.contains(*right)).collect()
    }

    /// Returns the rights, in order.
    pub fn iter(&self) -> impl Iterator<Item = Right> {
        self.0.iter().copied()
    }

    pub(crate) fn of_words(words: &[String]) -> Result<Self, RegistryError> {
        words.iter().map(|word| word.parse()).collect()
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.0.iter().map(|right| right.as_str().to_owned()).collect()
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        // Equal sets must be equal as values and as text, in whatever order and however often a
        // right is named.
        let mut all: Vec<Right> = rights.into_iter().collect();
        all.sort();
        all.dedup();
        Self(all)
    }
}

impl FromStr for Rights {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        text.split(',').map(|word| word.trim().parse()).collect()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(","))
    }
}
