//! Patterns over tool ids, used by routing rules and permissions.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{NameError, ToolId};

/// A pattern for tool ids: `*`, `namespace:*` or `namespace:action`, the last two also with the owning scope,
/// `org.project.namespace:action`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolPattern {
    /// Every tool.
    Any,
    /// Every tool of one namespace, which may be prefixed with a scope.
    Namespace(String),
    /// One tool, in every version.
    Tool(ToolId),
}

impl ToolPattern {
    /// Returns whether the pattern covers a tool with any version and, if the pattern has no scope, under any full name.
    pub fn matches(&self, id: &ToolId) -> bool {
        match self {
            Self::Any => true,
            Self::Namespace(namespace) => {
                // A pattern with a scope contains dots, so it never equals a bare namespace.
                namespace == id.namespace() || namespace == id.program_namespace()
            }
            Self::Tool(tool) => {
                (tool.namespace(), tool.action()) == (id.namespace(), id.action())
                    && (tool.scope().is_none() || tool.scope() == id.scope())
            }
        }
    }

    /// Returns whether the pattern restricts a tool, in any spelling: as [`matches`](Self::matches), and with `-` and `_`
    /// as the same character. A server may be written `internal-db` where its tools are `internal_db:query`, and a rule
    /// that denies must not depend on which of the two its author saw.
    pub fn restricts(&self, id: &ToolId) -> bool {
        match self {
            Self::Any => true,
            Self::Namespace(namespace) => {
                alike(namespace, id.namespace()) || alike(namespace, id.program_namespace())
            }
            Self::Tool(tool) => {
                alike(tool.namespace(), id.namespace())
                    && alike(tool.action(), id.action())
                    && (tool.scope().is_none() || tool.scope() == id.scope())
            }
        }
    }

    /// Returns whether the pattern grants a tool. A pattern without a scope applies to short names only. It does not
    /// grant a tool that a program names in full, because the author of the pattern did not mean another
    /// organisation's tool of that name.
    pub fn grants(&self, id: &ToolId) -> bool {
        let same_scope = match self {
            // Whoever writes `*` means the tools of every organisation, so no foreign tool is
            // granted by mistake.
            Self::Any => true,
            Self::Namespace(namespace) => namespace == id.program_namespace(),
            Self::Tool(tool) => tool.scope() == id.scope(),
        };
        same_scope && self.matches(id)
    }

    /// Returns whether the pattern names the scope that owns its tools.
    pub fn has_scope(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Namespace(namespace) => namespace.contains('.'),
            Self::Tool(tool) => tool.scope().is_some(),
        }
    }

    /// Returns the specificity of the pattern; the most specific one applies.
    pub fn specificity(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Namespace(_) => 1,
            Self::Tool(_) => 2,
        }
    }
}

/// Returns whether two names differ in nothing but `-` and `_`.
fn alike(a: &str, b: &str) -> bool {
    let folded = |name: &str| {
        name.bytes().map(|byte| if byte == b'-' { b'_' } else { byte }).collect::<Vec<u8>>()
    };
    a == b || a.len() == b.len() && folded(a) == folded(b)
}

impl FromStr for ToolPattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(namespace) = text.strip_suffix(":*") {
            // `x` replaces the action, so that the namespace is checked by the same grammar.
            let tool = ToolId::from_call(namespace, "x")?;
            return Ok(Self::Namespace(tool.program_namespace().to_owned()));
        }
        let tool: ToolId = text.parse()?;
        // The parser drops `@latest`, so only the text still shows it.
        if tool != tool.unversioned() || text.contains('@') {
            return Err(NameError::Form {
                text: text.chars().take(64).flat_map(char::escape_debug).collect(),
                kind: "pattern",
                expected: "`namespace:action` without a version: a rule matches all versions",
            });
        }
        Ok(Self::Tool(tool))
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
        for text in [
            "",
            "git",
            "git*",
            "git:st*",
            "*:status",
            "a:b:*",
            " *",
            "git:status@1.2.3",
            "git:status@latest",
            "git:*@1.2.3",
            "a.b.git:status.7b92",
            "a.git:*",
            "*.*.git:*",
        ] {
            text.parse::<ToolPattern>().expect_err(text);
        }
    }

    /// A restriction covers both spellings of a name, a grant the written one.
    #[test]
    fn a_restriction_covers_hyphens_and_underscores() {
        for (pattern, id, restricts, grants) in [
            ("a-b:*", "a-b:x", true, true),
            ("a-b:*", "a_b:x", true, false),
            ("a_b:*", "a-b:x", true, false),
            ("a_b:x-y", "a-b:x_y", true, false),
            ("a-b:*", "acme.core.a_b:x@1.0.0", true, false),
            ("acme.core.a-b:*", "acme.core.a_b:x", true, false),
            ("acme.core.a-b:x", "evil.web.a_b:x", false, false),
            ("a-b:*", "ab:x", false, false),
            ("a-b:*", "a-c:x", false, false),
            ("*", "a-b:x", true, true),
        ] {
            let (pattern, id) = (pattern.parse::<ToolPattern>().unwrap(), id.parse().unwrap());
            assert_eq!(
                (pattern.restricts(&id), pattern.grants(&id)),
                (restricts, grants),
                "{pattern} {id}"
            );
            assert!(pattern.restricts(&id) || !pattern.matches(&id), "{pattern} {id}");
        }
    }

    /// `matches` covers every version and scope; `grants` only the names that the pattern's author meant.
    #[test]
    fn matches_every_scope_but_grants_only_the_named_one() {
        let covers = |pattern: &str, id: &str| {
            let (pattern, id) = (pattern.parse::<ToolPattern>().unwrap(), id.parse().unwrap());
            (pattern.matches(&id), pattern.grants(&id))
        };
        for pattern in ["text:*", "text:shout"] {
            assert_eq!(covers(pattern, "text:shout@0.1.0"), (true, true));
            assert_eq!(covers(pattern, "evil.web.text:shout"), (true, false));
            assert_eq!(covers(pattern, "evil.web.text:shout.7b92@0.1.0"), (true, false));
        }
        assert_eq!(covers("*", "evil.web.text:shout"), (true, true));
        for pattern in ["acme.core.text:*", "acme.core.text:shout"] {
            assert_eq!(covers(pattern, "acme.core.text:shout.7b92@0.1.0"), (true, true));
            assert_eq!(covers(pattern, "evil.web.text:shout"), (false, false));
            assert_eq!(covers(pattern, "text:shout"), (false, false));
        }
    }
}
