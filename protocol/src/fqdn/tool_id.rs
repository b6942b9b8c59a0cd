//! Tool ids: short or full, optionally with a version or a hash.

use std::fmt;
use std::str::FromStr;

use super::{Fqdn, NameError, Scope, ShortHash, check_namespace, check_segment, shown};

/// The id of a tool: `namespace:action`, optionally with a scope, a version and a hash.
///
/// A full name has the owning scope as a prefix, `org.project.namespace:action`. Either form may have a version
/// suffix, `@1.2.0`; a full name may also have the first four hex digits of the content hash, `.7b92`. Ids are
/// case-sensitive and have one spelling. Rules match only [`ToolId::namespace`] and [`ToolId::action`], without scope
/// and version, so no spelling of a tool escapes a rule about it.
///
/// ```
/// use protocol::ToolId;
/// let id: ToolId = "acme.core.text:shout@0.1.0".parse()?;
/// assert_eq!((id.namespace(), id.action(), id.version()), ("text", "shout", Some("0.1.0")));
/// assert_eq!(id.call_form(), r#"mcp["acme.core.text"]["shout@0.1.0"]"#);
/// # Ok::<(), protocol::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    text: String,
    /// The offset of the namespace, after the scope and its dot.
    namespace: usize,
    colon: usize,
    /// The offset of the action's end.
    end: usize,
}

impl ToolId {
    /// Joins a namespace and an action, without a scope or a version.
    ///
    /// # Errors
    /// Returns [`NameError`] when either part breaks the grammar.
    pub fn new(namespace: &str, action: &str) -> Result<Self, NameError> {
        check_namespace(namespace)?;
        check_segment(action, "tool name")?;
        Ok(Self::join(None, namespace, action, ""))
    }

    /// Parses the two names of a call in a program, such as `mcp["acme.core.text"]["shout@0.1.0"]`.
    ///
    /// `@latest` is redundant, so it is omitted.
    ///
    /// # Errors
    /// Returns [`NameError`] when either part breaks the grammar.
    pub fn from_call(namespace: &str, action: &str) -> Result<Self, NameError> {
        // At the last dot, because the scope before it contains one.
        let (scope, namespace) = match namespace.rsplit_once('.') {
            Some((scope, namespace)) => (Some(scope.parse::<Scope>()?), namespace),
            None => (None, namespace),
        };
        check_namespace(namespace)?;
        // At the first `@`, so that a second one makes the version invalid.
        let (rest, version) = match action.split_once('@') {
            Some((rest, version)) => (rest, Some(version)),
            None => (action, None),
        };
        if version.is_some_and(|version| version != "latest" && !is_version(version)) {
            return Err(NameError::Form {
                text: shown(action),
                kind: "tool name with a version",
                expected: "`action@1.2.0` or `action@latest`",
            });
        }
        // Only a full name determines one entry, so only a full name can be pinned to a hash. A
        // short name with a dot fails the check of its segment below.
        let name = match (&scope, rest.split_once('.')) {
            (Some(_), Some((name, hash))) => {
                hash.parse::<ShortHash>()?;
                name
            }
            _ => rest,
        };
        check_segment(name, "tool name")?;
        let pin = match version {
            None | Some("latest") => &rest[name.len()..],
            Some(_) => &action[name.len()..],
        };
        Ok(Self::join(scope.as_ref(), namespace, name, pin))
    }

    fn join(scope: Option<&Scope>, namespace: &str, action: &str, pin: &str) -> Self {
        let scope = scope.map_or_else(String::new, |scope| format!("{scope}."));
        let colon = scope.len() + namespace.len();
        let text = [&scope, namespace, ":", action, pin].concat();
        Self { text, namespace: scope.len(), colon, end: colon + 1 + action.len() }
    }

    /// Reads any of the forms that MCP clients send: an id, the wire name `namespace__action`, or an FQDN of a tool;
    /// each with or without a version.
    ///
    /// # Errors
    /// Returns [`NameError`] when the text has none of these forms.
    pub fn from_wire(name: &str) -> Result<Self, NameError> {
        // Neither of the other forms can contain a colon.
        if name.contains(':') {
            return name.parse();
        }
        // The version comes off first: its dots would otherwise count as separators of an FQDN.
        let (unversioned, version) = match name.split_once('@') {
            Some((unversioned, _)) => (unversioned, &name[unversioned.len()..]),
            None => (name, ""),
        };
        // Every part of an FQDN except the namespace may contain `__`, so only a name without a dot
        // is a wire name.
        if let Some((namespace, action)) = unversioned.split_once("__")
            && !unversioned.contains('.')
        {
            return Self::from_call(namespace, &[action, version].concat());
        }
        let parts: Vec<&str> = unversioned.split('.').collect();
        match parts[..] {
            [org, project, namespace, action] | [org, project, namespace, action, _] => {
                let hash = parts.get(4).map_or_else(String::new, |hash| format!(".{hash}"));
                let server = format!("{org}.{project}.{namespace}");
                Self::from_call(&server, &[action, &hash, version].concat())
            }
            _ => Err(Self::form(name)),
        }
    }

    fn form(text: &str) -> NameError {
        NameError::Form { text: shown(text), kind: "tool id", expected: "`namespace:action`" }
    }

    /// Returns the namespace, without a scope.
    pub fn namespace(&self) -> &str {
        &self.text[self.namespace..self.colon]
    }

    /// Returns the action, without a version.
    pub fn action(&self) -> &str {
        &self.text[self.colon + 1..self.end]
    }

    /// Returns the scope, if the id is a full name.
    pub fn scope(&self) -> Option<Scope> {
        self.text[..self.namespace].strip_suffix('.')?.parse().ok()
    }

    /// Returns the version, if the id has one.
    pub fn version(&self) -> Option<&str> {
        self.text[self.end..].split_once('@').map(|(_, version)| version)
    }

    /// Returns the content hash, if the id is pinned to one.
    pub fn hash(&self) -> Option<ShortHash> {
        let pin = self.text[self.end..].strip_prefix('.')?;
        pin.split('@').next()?.parse().ok()
    }

    /// Returns whether it is just `namespace:action`.
    pub fn is_plain(&self) -> bool {
        self.namespace == 0 && self.end == self.text.len()
    }

    /// Returns it as just `namespace:action`.
    pub fn plain(&self) -> Self {
        Self::join(None, self.namespace(), self.action(), "")
    }

    /// Returns it without version and hash, with the scope if it has one.
    pub fn unversioned(&self) -> Self {
        Self::join(self.scope().as_ref(), self.namespace(), self.action(), "")
    }

    /// Returns its full name in a scope, with the version and hash of the id.
    pub fn within(&self, scope: &Scope) -> Self {
        Self::join(Some(scope), self.namespace(), self.action(), &self.text[self.end..])
    }

    /// Returns the same tool with a version, which consists of three numbers.
    ///
    /// # Errors
    /// Returns [`NameError`] for an invalid version.
    pub fn at(&self, version: &str) -> Result<Self, NameError> {
        Self::from_call(self.program_namespace(), &format!("{}@{version}", self.action()))
    }

    /// Returns whether the id can resolve to an FQDN: the same names, and the same scope and hash if the id has them.
    pub fn can_be(&self, fqdn: &Fqdn) -> bool {
        // An FQDN has no version. Callers compare that of the entry separately.
        fqdn.namespace() == self.namespace()
            && fqdn.action() == Some(self.action())
            && self.scope().is_none_or(|scope| scope == *fqdn.scope())
            && self.hash().is_none_or(|hash| fqdn.hash() == Some(&hash))
    }

    /// Returns the canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the first of the two names of a call in a program, with the scope if there is one.
    pub fn program_namespace(&self) -> &str {
        &self.text[..self.colon]
    }

    /// Returns the second of the two names of a call in a program, with the version if there is one.
    pub fn program_action(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    /// Returns the call as a program writes it: `mcp.namespace.action`, with brackets around names that are not
    /// identifiers.
    pub fn call_form(&self) -> String {
        let member = |name: &str| {
            let identifier = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !name.starts_with(|c: char| c.is_ascii_digit());
            if identifier { format!(".{name}") } else { format!("[\"{name}\"]") }
        };
        format!("mcp{}{}", member(self.program_namespace()), member(self.program_action()))
    }

    /// Returns the MCP tool name: `namespace__action`, or the FQDN of a full name.
    pub fn wire_name(&self) -> String {
        let joint = if self.namespace == 0 { "__" } else { "." };
        [self.program_namespace(), joint, self.program_action()].concat()
    }
}

/// Returns whether a text is a version: three numbers without leading zeros.
pub fn is_version(text: &str) -> bool {
    let number = |part: &str| {
        // Nine digits fit into Postgres's 32-bit integers, by which the registry sorts versions.
        (1..=9).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    text.split('.').count() == 3 && text.split('.').all(number)
}

impl FromStr for ToolId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (namespace, action) = text.split_once(':').ok_or_else(|| Self::form(text))?;
        Self::from_call(namespace, action)
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
