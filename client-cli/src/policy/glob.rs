//! Glob patterns over paths.

use std::fmt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// The maximum length of a pattern in bytes; a longer one is likely an attack.
const PATTERN_LIMIT: usize = 1_024;

/// The maximum number of alternatives that the braces of one pattern may expand to.
const ALTERNATIVES_LIMIT: usize = 256;

/// Compiles a pattern. `*` and `?` stand for characters of one name, `**` for any number of folders.
///
/// # Errors
/// Returns why it is no pattern, or too large.
pub(crate) fn compile(text: &str, ignore_case: bool) -> Result<GlobMatcher, String> {
    if text.len() > PATTERN_LIMIT {
        return Err("a pattern is longer than 1024 bytes".to_owned());
    }
    // Each `{` or `,` adds at most one alternative per level; nested braces multiply.
    let (braces, commas) = (text.matches('{').count(), text.matches(',').count());
    if braces > 0 && (commas + 1).saturating_pow(braces as u32) > ALTERNATIVES_LIMIT {
        return Err("a pattern has too many alternatives in braces".to_owned());
    }
    let glob = GlobBuilder::new(text)
        // By default, `*` and `?` would match `/` too.
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .case_insensitive(ignore_case)
        .build()
        .map_err(|error| format!("a pattern is not a glob: {error}"))?;
    Ok(glob.compile_matcher())
}

/// A pattern for places in the workspace.
#[derive(Debug, Clone)]
pub(crate) struct PlacePattern {
    text: String,
    matcher: GlobMatcher,
    /// For a pattern that ends with `/**`, the folder itself.
    folder: Option<GlobMatcher>,
}

impl PlacePattern {
    /// Compiles a pattern for places: paths relative to the project's folder, or absolute ones in another folder of the
    /// workspace.
    ///
    /// # Errors
    /// Returns why it is invalid, or could never match.
    pub(crate) fn new(text: &str, ignore_case: bool) -> Result<Self, String> {
        let inner = text.strip_prefix("./").unwrap_or(text);
        let refused = |reason: &str| Err(format!("the pattern `{}` {reason}", text.escape_debug()));
        if inner.is_empty() {
            return refused("is empty; `**` covers the whole workspace");
        }
        if inner.starts_with('~') || inner.split('/').any(|part| part == "..") {
            return refused("leads out of the workspace; write it relative to its folder");
        }
        // Whether an absolute pattern is in a folder of the workspace is checked when these are known.
        let parts = inner.strip_prefix('/').unwrap_or(inner);
        if parts.split('/').any(|part| part == "." || part.is_empty()) {
            return refused("has an empty part, and would match nothing");
        }
        let matcher = compile(inner, ignore_case)?;
        let folder = match inner.strip_suffix("/**") {
            Some(folder) => Some(compile(folder, ignore_case)?),
            None => None,
        };
        Ok(Self { text: text.to_owned(), matcher, folder })
    }

    /// Returns whether it covers a path.
    pub(crate) fn covers(&self, real: &Path) -> bool {
        // The workspace itself has the empty path, which `**` matches.
        self.matcher.is_match(real)
            || self.folder.as_ref().is_some_and(|folder| folder.is_match(real))
    }

    /// Returns it as written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for PlacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_debug())
    }
}
