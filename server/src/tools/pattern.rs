//! Regular expressions within limits.
//!
//! The `regex` crate does not backtrack: in the worst case, a search visits every position
//! of the pattern, with its repetitions expanded, for every byte of the text. This product
//! is limited here. Iterating over all matches can still be quadratic in the text, so its
//! CPU time is limited as well.

use std::time::Duration;

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::ast::ErrorKind;
use regex_syntax::hir::{Hir, HirKind};
use rustix::time::{ClockId, clock_gettime};

use super::ToolFailure;
use super::limits::check_path;

/// The maximum memory of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// The maximum nesting depth of groups.
const MAX_NESTING: u32 = 32;

/// The maximum number of capture groups; each is copied with every state of a search.
const MAX_GROUPS: usize = 32;

/// The maximum product of the text's bytes and the pattern's positions, each about five nanoseconds at worst.
const MAX_WORK: usize = 64 * 1024 * 1024;

/// The maximum CPU time for iterating over all matches of one text.
const MAX_TIME: Duration = Duration::from_millis(300);

/// The flags of a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) ignore_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
}

/// Why a pattern was not compiled.
enum Refusal {
    /// It is not a regular expression.
    Invalid(String),
    /// It exceeds one of the limits of this module.
    Limit(ToolFailure),
}

/// A compiled pattern with the cost of a search.
pub(super) struct Pattern {
    regex: Regex,
    positions: usize,
}

impl Pattern {
    /// Compiles a pattern.
    pub(super) fn compile(pattern: &str, flags: Flags) -> Result<Self, ToolFailure> {
        check_path("pattern", pattern)?;
        Self::parse(pattern, flags).map_err(|refusal| match refusal {
            Refusal::Invalid(reason) => ToolFailure::InvalidArguments(format!(
                "`pattern` is not a regular expression: {reason}"
            )),
            Refusal::Limit(failure) => failure,
        })
    }

    /// Compiles an I-Regexp (RFC 9485), as JSONPath uses it; `None` if it is invalid.
    ///
    /// # Errors
    /// Returns an error if it exceeds a limit.
    pub(super) fn compile_iregexp(pattern: &str, whole: bool) -> Result<Option<Self>, ToolFailure> {
        // Before the translation, which makes the pattern longer.
        check_path("pattern", pattern)?;
        let translated = translate_iregexp(pattern);
        // The group keeps alternatives together: in `^a|b$`, each has only one anchor. Without the
        // flag `multi_line`, `$` matches only at the very end, not before a final line feed.
        let anchored = if whole { format!("^(?:{translated})$") } else { translated };
        match Self::parse(&anchored, Flags::default()) {
            Ok(pattern) => Ok(Some(pattern)),
            Err(Refusal::Invalid(_)) => Ok(None),
            Err(Refusal::Limit(failure)) => Err(failure),
        }
    }

    fn parse(pattern: &str, flags: Flags) -> Result<Self, Refusal> {
        // `Regex` does not expose the parsed pattern, so it is parsed here as well, to count its
        // positions. The other two flags do not change their number.
        let hir = ParserBuilder::new()
            .nest_limit(MAX_NESTING)
            .case_insensitive(flags.ignore_case)
            .build()
            .parse(pattern)
            .map_err(|error| match &error {
                regex_syntax::Error::Parse(syntax)
                    if matches!(syntax.kind(), ErrorKind::NestLimitExceeded(_)) =>
                {
                    Refusal::Limit(ToolFailure::InvalidArguments(format!(
                        "`pattern` nests deeper than {MAX_NESTING} groups"
                    )))
                }
                _ => Refusal::Invalid(error.to_string()),
            })?;
        if hir.properties().explicit_captures_len() > MAX_GROUPS {
            return Err(Refusal::Limit(ToolFailure::InvalidArguments(format!(
                "`pattern` has more than {MAX_GROUPS} groups; use `(?:` for those that need not be captured"
            ))));
        }
        // The size limit also bounds the time for compiling.
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(flags.ignore_case)
            .multi_line(flags.multi_line)
            .dot_matches_new_line(flags.dot_all)
            .nest_limit(MAX_NESTING)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => Refusal::Limit(too_large()),
                other => Refusal::Invalid(other.to_string()),
            })?;
        Ok(Self { regex, positions: positions(&hir) })
    }

    /// Returns the compiled expression for a text of this length.
    ///
    /// # Errors
    /// Returns an error if a search could take too long.
    pub(super) fn for_text(&self, bytes: usize) -> Result<&Regex, ToolFailure> {
        if self.work(bytes) > MAX_WORK {
            return Err(too_large());
        }
        Ok(&self.regex)
    }

    /// Returns the worst-case work of a search in a text of this length.
    pub(super) fn work(&self, bytes: usize) -> usize {
        self.positions.saturating_mul(bytes)
    }
}

fn too_large() -> ToolFailure {
    ToolFailure::InvalidArguments(
        "`pattern` is too large for a text of this length; make its repetitions smaller or the text shorter"
            .to_owned(),
    )
}

/// Counts the positions of a pattern, with its repetitions expanded.
///
/// The constants for repetitions and groups were measured: a search passes through them
/// between two positions, and copies the bounds of groups.
fn positions(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A class with non-ASCII characters matches up to four bytes, each a position.
        HirKind::Class(class) => class.maximum_len().unwrap_or(1),
        HirKind::Repetition(repetition) => {
            // A repetition without a maximum is compiled to its minimum and a loop. Nested
            // repetitions multiply, so the arithmetic saturates.
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            positions(&repetition.sub).saturating_mul(times).saturating_add(2)
        }
        HirKind::Capture(capture) => positions(&capture.sub).saturating_add(3),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(positions).fold(0, usize::saturating_add)
        }
    }
}

/// Excludes carriage returns from `.`, as RFC 9485 requires.
fn translate_iregexp(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len());
    let (mut escaped, mut in_class) = (false, false);
    for character in pattern.chars() {
        if !escaped && !in_class && character == '.' {
            translated.push_str("[^\\n\\r]");
            continue;
        }
        // A class of an I-Regexp contains no other class, so a flag is enough to recognize its end.
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        translated.push(character);
    }
    translated
}

/// The end of the CPU time for iterating over the matches of one text.
///
/// A tool runs on one thread, so the CPU time of the thread is that of the tool, however
/// busy the machine is.
pub(super) struct Deadline(Duration);

impl Deadline {
    /// Starts the clock.
    pub(super) fn start() -> Self {
        Self(thread_time() + MAX_TIME)
    }

    /// Fails when the time is up.
    pub(super) fn check(&self) -> Result<(), ToolFailure> {
        if thread_time() > self.0 {
            return Err(ToolFailure::Failed(
                "`pattern` takes too long on this text; anchor it, or search a shorter text"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::limits::MAX_PATH_BYTES;

    #[test]
    fn long_texts_allow_only_smaller_patterns() {
        for (pattern, bytes, allowed) in [
            (r"\w+@\w+\.\w+", 1_000_000, true),
            ("(a|b)*abb$", 1_000_000, true),
            ("[ab]*a[ab]{1000}c", 1_000_000, false),
            ("[ab]*a[ab]{1000}c", 50_000, true),
            ("(?:a?){400}", 1_000_000, false),
            ("(?:(?:a{1,9}){1,9}){1,9}", 1_000_000, false),
            ("(?:(?:a{1,9}){1,9}){1,9}", 10_000, true),
        ] {
            let compiled = Pattern::compile(pattern, Flags::default()).expect(pattern);
            assert_eq!(compiled.for_text(bytes).is_ok(), allowed, "{pattern} on {bytes}");
        }
    }

    #[test]
    fn large_patterns_are_refused_for_any_text() {
        for pattern in [
            "(?:a{1000}){1000}".to_owned(),
            r"(?:\w{100}){100}".to_owned(),
            "(".repeat(500),
            format!("{}{}", "(".repeat(33), ")".repeat(33)),
            "(a)".repeat(33),
            "(?:(?:(?:(?:a{4294967295}){4294967295}){4294967295}){4294967295})".to_owned(),
            "a".repeat(2_000),
        ] {
            assert!(Pattern::compile(&pattern, Flags::default()).is_err(), "{pattern}");
        }
    }

    #[test]
    fn an_iregexp_beyond_a_limit_is_not_an_invalid_one() {
        let long = "a".repeat(MAX_PATH_BYTES + 1);
        let deep = format!("{}{}", "(?:".repeat(33), ")".repeat(33));
        for pattern in [&long, &deep, &"(a)".repeat(33), "(?:a{1000}){1000}"] {
            assert!(Pattern::compile_iregexp(pattern, false).is_err(), "{pattern}");
        }
        for pattern in ["(", "[", "a{2,1}", r"\"] {
            assert!(Pattern::compile_iregexp(pattern, false).unwrap().is_none(), "{pattern}");
        }
        // The limit of the length applies before the translation.
        let dots = ".".repeat(MAX_PATH_BYTES / 4);
        assert!(Pattern::compile_iregexp(&dots, true).unwrap().is_some());
    }

    #[test]
    fn a_dot_of_an_iregexp_does_not_match_line_ends() {
        let compiled = Pattern::compile_iregexp(r"a.[.]\.", true).unwrap().expect("a pattern");
        let regex = compiled.for_text(10).expect("a short text");
        assert!(regex.is_match("ab.."));
        assert!(!regex.is_match("a\r.."));
        assert!(!regex.is_match("abb."));
        assert!(!regex.is_match("xab.."));
    }
}
