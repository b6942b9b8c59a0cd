//! The visibility of a registry entry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who may see an entry, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Visibility {
    /// The principal that published it.
    Private,
    /// Its project.
    Project,
    /// Its organisation.
    Org,
    /// Everybody.
    Public,
}

/// A word that is not a visibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a visibility must be `private`, `project`, `org` or `public`")]
pub struct UnknownVisibility;

impl Visibility {
    /// All visibilities, narrowest first.
    pub const ALL: [Self; 4] = [Self::Private, Self::Project, Self::Org, Self::Public];

    /// Returns the word used on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Project => "project",
            Self::Org => "org",
            Self::Public => "public",
        }
    }
}

impl FromStr for Visibility {
    type Err = UnknownVisibility;

    fn from_str(word: &str) -> Result<Self, UnknownVisibility> {
        Self::ALL.into_iter().find(|one| one.as_str() == word).ok_or(UnknownVisibility)
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_the_four_words() {
        for visibility in Visibility::ALL {
            assert_eq!(visibility.as_str().parse(), Ok(visibility));
            assert_eq!(serde_json::to_value(visibility).unwrap(), visibility.as_str());
        }
        for word in ["", "Public", "PUBLIC", "everybody", "public "] {
            assert_eq!(word.parse::<Visibility>(), Err(UnknownVisibility), "{word}");
        }
    }
}
