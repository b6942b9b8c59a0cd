//! Where a policy is written.

use std::borrow::Cow;

/// The file of a policy. Messages name it, so that a reader knows which of two files to change.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// What stands before the names of its parts.
    prefix: &'static str,
    /// The name of the file, escaped for display.
    file: Cow<'static, str>,
}

/// `.pml.json` of the project, in which the policy is a section.
impl Default for Source {
    fn default() -> Self {
        Self { prefix: "policy.", file: Cow::Borrowed(".pml.json") }
    }
}

impl Source {
    /// Returns the source of a policy that is a file of its own.
    pub(super) fn of_file(name: &str) -> Self {
        Self { prefix: "", file: protocol::escape_text(name).into() }
    }

    /// Names a part of the policy in messages.
    pub(super) fn named(&self, part: &str) -> String {
        format!("`{}{part}` in `{}`", self.prefix, self.file)
    }

    /// Returns what stands before the names of its parts.
    pub(super) fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// Returns what stands before a message about the policy as a whole, which names the file already.
    pub(super) fn opening(&self) -> &'static str {
        if self.prefix.is_empty() { "" } else { "`policy`: " }
    }
}
