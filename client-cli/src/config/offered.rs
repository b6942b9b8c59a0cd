//! The namespace of a server of `.pml.json`, and the tools that its entry lists.

use std::collections::BTreeSet;

use protocol::ToolId;

use super::{ConfigError, unusable};

/// What programs can call of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offered {
    /// The namespace of its tools.
    pub(super) namespace: String,
    /// The tools that can be called; `None` for all that it has.
    pub(super) tools: Option<BTreeSet<String>>,
}

impl Offered {
    /// Reads the `tools` of an entry. Without them, the namespace is the entry's name; with them, the one that they are
    /// listed in, which may spell that name with `_` instead of `-`: `internal-db` is not an identifier of a program.
    ///
    /// # Errors
    /// Returns [`ConfigError`] with what to write instead.
    pub(super) fn of(name: &str, listed: Option<Vec<String>>) -> Result<Self, ConfigError> {
        // Only the namespace is checked, but an id needs an action.
        ToolId::new(name, "x").map_err(|error| unusable(&error.to_string()))?;
        let Some(listed) = listed else {
            return Ok(Self { namespace: name.to_owned(), tools: None });
        };
        let refused = |what: String| Err(unusable(&format!("`{name}` {what}")));
        let mut namespace = None::<String>;
        let mut tools = BTreeSet::new();
        for text in &listed {
            let id = match text.parse::<ToolId>() {
                // The parser drops `@latest`, so only the text still shows it.
                Ok(id) if id.is_plain() && id.as_str() == text => id,
                parsed => {
                    let id = parsed.map(|id| id.plain()).or_else(|_| ToolId::new(name, text));
                    let right = id.map_or_else(|_| format!("{name}:ACTION"), |id| id.to_string());
                    let text = text.escape_debug();
                    return refused(format!(
                        "has `{text}` in `tools`, which is not the name of a tool; write `{right}`, or remove `tools`: then all tools of the server can be called"
                    ));
                }
            };
            let known = namespace.get_or_insert_with(|| id.namespace().to_owned());
            if folded(id.namespace()) != folded(name) {
                return refused(format!(
                    "has `{id}` in `tools`, which is in another namespace; write `{known}:{action}`, or name the entry `{}`",
                    id.namespace(),
                    known = if folded(known) == folded(name) { known } else { name },
                    action = id.action(),
                ));
            }
            if id.namespace() != known {
                return refused(format!(
                    "has `{id}` in `tools` next to tools in `{known}`; write `{known}:{}`",
                    id.action()
                ));
            }
            tools.insert(id.action().to_owned());
        }
        match namespace {
            Some(namespace) => Ok(Self { namespace, tools: Some(tools) }),
            None => refused(
                "has an empty `tools`; list the tools that can be called, or remove `tools`: then all of them can be"
                    .to_owned(),
            ),
        }
    }
}

/// Returns a name without the difference between `-` and `_`.
fn folded(name: &str) -> String {
    name.replace('-', "_")
}
