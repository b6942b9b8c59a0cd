//! Tool ids, FQDNs and scopes. Only this module implements their grammar.

mod tool_id;

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use tool_id::{ToolId, is_version};

/// The longest segment of any name, in bytes.
pub(crate) const SEGMENT_LIMIT: usize = 128;

/// Why a text is not a valid name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text does not have the form that its kind requires.
    #[error("`{text}` is not a {kind}; expected {expected}")]
    Form {
        /// The text, shortened and escaped for display.
        text: String,
        /// The expected kind, for example `tool id`.
        kind: &'static str,
        /// The expected form.
        expected: &'static str,
    },
    /// One segment has a character, a length or a start that is not allowed.
    #[error("`{segment}` cannot be a {kind}: {reason}")]
    Segment {
        /// The segment, shortened and escaped for display.
        segment: String,
        /// The kind of the segment, for example `namespace`.
        kind: &'static str,
        /// The rule that it breaks.
        reason: &'static str,
    },
}

/// Returns `text` escaped and truncated for an error message.
fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        out.push('…');
    }
    out
}

fn check_segment(segment: &str, kind: &'static str) -> Result<(), NameError> {
    let reason = if segment.is_empty() {
        "it is empty"
    } else if !segment.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        "it may contain only ASCII letters, digits, `_` and `-`"
    } else if segment.len() > SEGMENT_LIMIT {
        "it is longer than 128 characters"
    } else if segment.starts_with('-') {
        "it may not start with `-`"
    } else {
        return Ok(());
    };
    Err(NameError::Segment { segment: shown(segment), kind, reason })
}

fn check_namespace(namespace: &str) -> Result<(), NameError> {
    check_segment(namespace, "namespace")?;
    // The wire name `namespace__action` is split at the first `__`.
    if namespace.contains("__") || namespace.ends_with('_') {
        return Err(NameError::Segment {
            segment: shown(namespace),
            kind: "namespace",
            reason: "it may not contain `__` or end with `_`",
        });
    }
    Ok(())
}

/// The name of a tenant: an organisation and one of its projects, `org.project`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    text: String,
    dot: usize,
}

impl Scope {
    /// Joins an organisation and a project.
    ///
    /// # Errors
    /// Returns [`NameError`] when either part breaks the grammar.
    pub fn new(org: &str, project: &str) -> Result<Self, NameError> {
        check_segment(org, "organisation")?;
        check_segment(project, "project")?;
        Ok(Self { text: format!("{org}.{project}"), dot: org.len() })
    }

    /// Returns the scope of the catalog, `pml.mcp`.
    pub fn public() -> Self {
        Self { text: "pml.mcp".into(), dot: 3 }
    }

    /// Returns the organisation.
    pub fn org(&self) -> &str {
        &self.text[..self.dot]
    }

    /// Returns the project.
    pub fn project(&self) -> &str {
        &self.text[self.dot + 1..]
    }

    /// Returns the canonical text, `org.project`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Scope {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('.') {
            Some((org, project)) => Self::new(org, project),
            None => {
                Err(NameError::Form { text: shown(text), kind: "scope", expected: "`org.project`" })
            }
        }
    }
}

/// The first four lower-case hex digits of a content hash.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortHash(String);

impl ShortHash {
    /// Returns the four digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShortHash {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let lower_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 4 && text.bytes().all(lower_hex) {
            Ok(Self(text.into()))
        } else {
            Err(NameError::Form {
                text: shown(text),
                kind: "short hash",
                expected: "four lower-case hex digits",
            })
        }
    }
}

/// The registry's full name of an entry.
///
/// `org.project.namespace` names a server; `org.project.namespace.action` names
/// a tool or capability, optionally pinned by `.<short hash>`.
///
/// ```
/// use protocol::Fqdn;
/// let fqdn: Fqdn = "pml.mcp.filesystem.read_file.7b92".parse()?;
/// assert_eq!(fqdn.tool().map(|id| id.to_string()).as_deref(), Some("filesystem:read_file"));
/// assert_eq!(fqdn.unpinned().to_string(), "pml.mcp.filesystem.read_file");
/// # Ok::<(), protocol::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fqdn {
    scope: Scope,
    namespace: String,
    action: Option<String>,
    hash: Option<ShortHash>,
}

impl Fqdn {
    /// Names a server within a scope.
    ///
    /// # Errors
    /// Returns [`NameError`] when the namespace breaks the grammar.
    pub fn server(scope: Scope, namespace: &str) -> Result<Self, NameError> {
        check_namespace(namespace)?;
        Ok(Self { scope, namespace: namespace.into(), action: None, hash: None })
    }

    /// Returns the name of the server that a tool belongs to.
    pub fn to_server(&self) -> Self {
        Self { action: None, hash: None, ..self.clone() }
    }

    /// Names a tool or capability within a scope.
    pub fn of_tool(scope: Scope, tool: &ToolId) -> Self {
        Self {
            scope,
            namespace: tool.namespace().into(),
            action: Some(tool.action().into()),
            hash: None,
        }
    }

    /// Returns the same name pinned to a content hash.
    pub fn pinned(mut self, hash: ShortHash) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Returns the same name without its pin.
    pub fn unpinned(&self) -> Self {
        Self { hash: None, ..self.clone() }
    }

    /// Returns the scope that owns the entry.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the action, or `None` for a server.
    pub fn action(&self) -> Option<&str> {
        self.action.as_deref()
    }

    /// Returns the pin, if there is one.
    pub fn hash(&self) -> Option<&ShortHash> {
        self.hash.as_ref()
    }

    /// Returns the tool id, or `None` for a server.
    pub fn tool(&self) -> Option<ToolId> {
        let action = self.action.as_deref()?;
        // Both parts were checked when the name was built, so this never fails for a tool.
        ToolId::new(&self.namespace, action).ok()
    }

    /// Returns the full name of the tool as programs write it, or `None` for a server.
    pub fn full_tool(&self) -> Option<ToolId> {
        self.tool().map(|id| id.within(&self.scope))
    }
}

impl fmt::Display for Fqdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.scope.text, self.namespace)?;
        if let Some(action) = &self.action {
            write!(f, ".{action}")?;
        }
        match &self.hash {
            Some(hash) => write!(f, ".{}", hash.0),
            None => Ok(()),
        }
    }
}

impl FromStr for Fqdn {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parts: Vec<&str> = text.split('.').collect();
        let (org, project, namespace, action, hash) = match parts[..] {
            [org, project, namespace] => (org, project, namespace, None, None),
            [org, project, namespace, action] => (org, project, namespace, Some(action), None),
            [org, project, namespace, action, hash] => {
                (org, project, namespace, Some(action), Some(hash))
            }
            _ => {
                return Err(NameError::Form {
                    text: shown(text),
                    kind: "FQDN",
                    expected: "`org.project.namespace[.action[.hash]]`",
                });
            }
        };
        let scope = Scope::new(org, project)?;
        let mut fqdn = match action {
            None => Self::server(scope, namespace)?,
            Some(action) => Self::of_tool(scope, &ToolId::new(namespace, action)?),
        };
        fqdn.hash = hash.map(str::parse).transpose()?;
        Ok(fqdn)
    }
}

/// Implements the text form of a name type, on the wire and in messages.
macro_rules! text_form {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // Not `&str`, which fails for a string with escapes and for an owned `Value`.
                let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
text_form!(ToolId, Scope, ShortHash, Fqdn);

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_form_uses_brackets_where_needed() {
        let form = |text: &str| text.parse::<ToolId>().unwrap().call_form();
        assert_eq!(form("filesystem:read_file"), "mcp.filesystem.read_file");
        assert_eq!(form("sequential-thinking:think"), "mcp[\"sequential-thinking\"].think");
        assert_eq!(form("3d:turn-left"), "mcp[\"3d\"][\"turn-left\"]");
    }

    #[test]
    fn an_id_matches_an_fqdn_with_its_names_scope_and_hash() {
        let matches = |id: &str, fqdn: &str| {
            id.parse::<ToolId>().unwrap().can_be(&fqdn.parse::<Fqdn>().unwrap())
        };
        assert!(matches("text:shout@0.1.0", "acme.core.text.shout.7b92"));
        assert!(matches("acme.core.text:shout.7b92", "acme.core.text.shout.7b92"));
        for (id, fqdn) in [
            ("text:shout", "acme.core.text.shut"),
            ("text:shout", "acme.core.text"),
            ("acme.web.text:shout", "acme.core.text.shout"),
            ("acme.core.text:shout.7b93", "acme.core.text.shout.7b92"),
            ("acme.core.text:shout.7b92", "acme.core.text.shout"),
        ] {
            assert!(!matches(id, fqdn), "{id} {fqdn}");
        }
    }

    #[test]
    fn canonical_names_round_trip() {
        for text in
            ["filesystem:read_file", "sequential-thinking:sequentialthinking", "a:__proto__"]
        {
            assert_eq!(text.parse::<ToolId>().unwrap().to_string(), text);
        }
        for text in [
            "text:shout@0.1.0",
            "acme.core.text:shout",
            "acme.core.text:shout@0.10.0",
            "acme.core.text:shout.7b92",
            "acme.core.text:shout.7b92@0.10.0",
        ] {
            let id: ToolId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!((id.namespace(), id.action(), id.is_plain()), ("text", "shout", false));
            assert_eq!(id.plain().as_str(), "text:shout");
            assert_eq!(ToolId::from_wire(&id.wire_name()).unwrap(), id);
        }
        for text in ["pml.mcp.json", "pml.mcp.json.parse", "acme.web.db.query.0a9f"] {
            assert_eq!(text.parse::<Fqdn>().unwrap().to_string(), text);
        }
        assert_eq!("local.default".parse::<Scope>().unwrap().org(), "local");
    }

    /// AN-13: only the canonical spelling of a name is accepted.
    #[test]
    fn refuses_spellings_that_are_not_canonical() {
        let long = format!("{}:x", "a".repeat(65_536));
        let wrong = [
            "",
            ":",
            "a:",
            ":b",
            "a",
            "a::b",
            "a:b:c",
            " a:b",
            "a:b ",
            "a:b.",
            "a:b\0",
            "a:..",
            "a:b/c",
            "a:%2e",
            "a:b@",
            "a:b@1",
            "a:b@1.2",
            "a:b@1.2.3.4",
            "a:b@01.2.3",
            "a:b@../x",
            "a:b@1.2.3@latest",
            "a:b@1.2.3 ",
            "a:@1.2.3",
            "a@1.2.3:b",
            "a:b.7b92",
            "o.a:b",
            "o.p.q.a:b",
            "o..a:b",
            "o.p.a:b.7B92",
            "o.p.a:b.7b92.7b92",
            "o.p.a:b@1.2.3.7b92",
            "o.p.a__b:c",
            "a__b:c",
            "a_:c",
            "é:b",
            "e\u{301}:b",
            "-a:b",
            "a:-b",
            "ａ:b",
            &long,
        ];
        for text in wrong {
            let error = text.parse::<ToolId>().expect_err(text);
            assert!(error.to_string().len() < 300, "{error}");
        }
        let error = format!("{}:x", "é".repeat(65)).parse::<ToolId>().unwrap_err();
        assert!(error.to_string().contains("only ASCII letters"), "{error}");
        let wrong = [
            "",
            "a",
            "a.b",
            "a.b.c.d.e.f",
            "a..c",
            ".a.b.c",
            "a.b.c.",
            "pml.mcp.json.parse.XYZ1",
            "pml.mcp.json.parse.7B92",
            "pml.mcp.a__b",
            "pml.mcp.json:parse",
            "pml.mcp.json.%70arse",
        ];
        for text in wrong {
            text.parse::<Fqdn>().expect_err(text);
        }
    }

    #[test]
    fn the_wire_name_splits_at_the_first_double_underscore() {
        for (wire, id) in [
            ("filesystem__read_file", "filesystem:read_file"),
            ("git__git__x", "git:git__x"),
            ("filesystem:read_file", "filesystem:read_file"),
            ("text__shout@0.1.0", "text:shout@0.1.0"),
            ("text:shout@latest", "text:shout"),
            ("acme.core.text.shout", "acme.core.text:shout"),
            ("acme.core.text.shout.7b92@0.1.0", "acme.core.text:shout.7b92@0.1.0"),
            ("acme.core.text.a__b@latest", "acme.core.text:a__b"),
            ("a__b.core.text.shout", "a__b.core.text:shout"),
        ] {
            assert_eq!(ToolId::from_wire(wire).unwrap().as_str(), id);
        }
        for text in [
            "read_file",
            "acme.core.text",
            "text@0.1.0",
            "a.b.c.d.7b92.e",
            "a.b.c.d@",
            "text__shout@1",
        ] {
            ToolId::from_wire(text).expect_err(text);
        }
    }
}
