//! Patterns over tool ids, used by routing rules and permissions.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{NameError, ToolId};

/// Matches tool ids: `*`, `namespace:*` or `namespace:action`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolPattern {
    /// Every tool.
    Any,
    /// Every tool of one namespace.
    Namespace(String),
    /// One tool.
    Tool(ToolId),
}

impl ToolPattern {
    /// Tells whether the pattern covers a tool.
    pub fn matches(&self, id: &ToolId) -> bool {
        match self {
            Self::Any => true,
            Self::Namespace(namespace) => namespace == id.namespace(),
            Self::Tool(tool) => tool == id,
        }
    }

    /// Returns how specific the pattern is; the greater wins.
    pub fn specificity(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Namespace(_) => 1,
            Self::Tool(_) => 2,
        }
    }
}

impl FromStr for ToolPattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_suffix(":*") {
            // `x` stands in for the action, so that the namespace is checked by the one grammar.
            Some(namespace) => {
                Ok(Self::Namespace(ToolId::new(namespace, "x")?.namespace().to_owned()))
            }
            None => text.parse().map(Self::Tool),
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Namespace(namespace) => write!(f, "{namespace}:*"),
            Self::Tool(tool) => tool.fmt(f),
        }
    }
}

impl Serialize for ToolPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ToolPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_only() {
        let id: ToolId = "git:status".parse().unwrap();
        for (pattern, expected) in [
            ("*", true),
            ("git:*", true),
            ("git:status", true),
            ("gi:*", false),
            ("git:stat", false),
            ("Git:*", false),
        ] {
            let pattern: ToolPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&id), expected, "{pattern}");
        }
        for text in ["", "git", "git*", "git:st*", "*:status", "a:b:*", " *"] {
            text.parse::<ToolPattern>().expect_err(text);
        }
    }
}
