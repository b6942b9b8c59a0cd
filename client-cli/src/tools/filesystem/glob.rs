//! Glob patterns with the semantics of the reference server.

use globset::GlobMatcher;

use super::invalid;
use crate::policy::glob;
use crate::tools::NativeError;

/// A compiled pattern over paths relative to the searched folder.
///
/// A pattern is matched only against paths that the walk found, so it cannot reach outside the workspace.
pub(super) struct Pattern {
    matcher: GlobMatcher,
    negated: bool,
}

impl Pattern {
    /// Compiles a pattern.
    pub(super) fn new(tool: &str, text: &str) -> Result<Self, NativeError> {
        let positive = text.trim_start_matches('!');
        // Each leading `!` negates the pattern, so two cancel out, as in `minimatch`.
        let negated = (text.len() - positive.len()) % 2 == 1;
        let matcher = glob::compile(positive, false).map_err(|reason| invalid(tool, &reason))?;
        Ok(Self { matcher, negated })
    }

    /// Returns whether the pattern covers a relative path.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.matcher.is_match(path) != self.negated
    }
}

/// Compiles the patterns of a list.
pub(super) fn all(tool: &str, texts: &[String]) -> Result<Vec<Pattern>, NativeError> {
    if texts.len() > 100 {
        return Err(invalid(tool, "more than 100 patterns"));
    }
    texts.iter().map(|text| Pattern::new(tool, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_the_reference_server() {
        for (pattern, path, expected) in [
            ("*.txt", "a.txt", true),
            ("*.txt", ".txt", true),
            ("*.txt", "d/a.txt", false),
            ("**/*.txt", "a.txt", true),
            ("**/*.txt", "d/e/a.txt", true),
            ("d/**", "d/e/f", true),
            ("d/**", "d", false),
            ("{a,b}.md", "b.md", true),
            ("[!a].md", "b.md", true),
            ("!*.md", "b.txt", true),
            ("!*.md", "b.md", false),
            ("?.md", "ab.md", false),
            ("**/../..", "a", false),
            ("{a,../b}", "b", false),
        ] {
            let compiled = Pattern::new("search_files", pattern).unwrap();
            assert_eq!(compiled.matches(path), expected, "{pattern} on {path}");
        }
    }

    /// PC-11: patterns that would expand exponentially are refused before they are compiled.
    #[test]
    fn expansion_bombs_are_refused() {
        for pattern in ["{a,b}".repeat(40), "*".repeat(2_000), "{".repeat(500), "[".to_owned()] {
            assert!(Pattern::new("search_files", &pattern).is_err(), "{pattern}");
        }
    }
}
