//! Extracts the program's own frames from an engine's stack trace.

use std::fmt::Write;

/// The name of the program in traces.
pub(crate) const PROGRAM_FILE: &str = "program.ts";
/// The text before the program. A module has the strict-mode rules under which the program was analysed; a script
/// would read `<!--` as a comment. It is on a separate line because the engine counts some columns of the first
/// line from 0.
pub(crate) const PREFIX: &str = "export default async function(){\n";
/// What the analysis inserts before an expression whose value is the program's result.
pub(crate) const RETURN: &str = "return await (";
/// The number of lines of [`PREFIX`].
const PREFIX_LINES: u32 = 1;
/// The longest reported name of a callee, in bytes.
const CALLEE_BYTES: usize = 80;
/// The text after the program.
pub(crate) const SUFFIX: &str = "\n}";

/// A trace in the program's own coordinates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The position of the innermost frame: line and column, from 1.
    pub(crate) place: Option<(u32, u32)>,
    /// The expression that the innermost frame calls, if the program's own code failed there: `orders.map`.
    pub(crate) callee: Option<String>,
    /// One line for each frame.
    pub(crate) text: String,
}

/// Selects the program's frames, maps lines and columns back to the author's source, and counts characters where the
/// engine counts bytes. `returns` are the offsets of [`RETURN`] in `source`.
///
/// Innermost frames in which a constructor calls `super(…)` are skipped: the position of an error of the program's own
/// class is that of its `new`.
pub(crate) fn trim(stack: &str, source: &str, returns: &[u32]) -> Trace {
    let mut trace = Trace::default();
    let mut skipped = None;
    for (index, line) in stack.lines().enumerate() {
        let Some((before, after)) = line.split_once(PROGRAM_FILE) else { continue };
        let Some(rest) = after.strip_prefix(':') else { continue };
        let mut numbers = rest.trim_end_matches(')').splitn(2, ':').map(str::parse::<u32>);
        let (Some(Ok(row)), Some(Ok(byte))) = (numbers.next(), numbers.next()) else { continue };
        // A program that is stopped before its first statement is still in the wrapper.
        let Some(row) = row.checked_sub(PREFIX_LINES).filter(|row| *row > 0) else { continue };
        let column = in_characters(source, row, byte.max(1), returns);
        if trace.place.is_none() && is_super(source, row, byte) {
            skipped.get_or_insert((row, column));
            continue;
        }
        if trace.place.is_none() {
            trace.place = Some((row, column));
            // Only for the innermost frame of all: an error within a built-in function is not about
            // the callee at the program's frame.
            trace.callee = (index == 0).then(|| callee(source, row, byte)).flatten();
        }
        if !trace.text.is_empty() {
            trace.text.push('\n');
        }
        let name = before.trim().strip_prefix("at ").unwrap_or("").trim_end_matches('(').trim();
        // Writing to a string does not fail. `default` is the wrapper's own name.
        let _ = match name {
            "" | "default" => write!(trace.text, "    at {PROGRAM_FILE}:{row}:{column}"),
            name => write!(trace.text, "    at {name} ({PROGRAM_FILE}:{row}:{column})"),
        };
    }
    trace.place = trace.place.or(skipped);
    trace
}

/// Returns a line of the program, and the number of its bytes before a column.
fn line_of(source: &str, row: u32, column: u32) -> Option<(&str, usize)> {
    let line = lines(source).nth(row.checked_sub(1)? as usize)?;
    Some((line, line.floor_char_boundary((column as usize).saturating_sub(1))))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '#')
}

/// Returns whether a position is in a call of `super`, or at a class, where the engine reports an implicit
/// constructor.
fn is_super(source: &str, row: u32, column: u32) -> bool {
    let Some((line, at)) = line_of(source, row, column) else { return false };
    let before = line[..at].trim_end_matches(['(', ' ']);
    let here = &line[at..];
    here.starts_with("super(")
        || here.strip_prefix("class").is_some_and(|after| !after.starts_with(is_name))
        || before.strip_suffix("super").is_some_and(|before| !before.ends_with(is_name))
}

/// Returns the source text of the callee at a position.
fn callee(source: &str, row: u32, column: u32) -> Option<String> {
    let (line, at) = line_of(source, row, column)?;
    let end = at + line[at..].find(|c| !is_name(c))?;
    if end == at || !line[end..].trim_start().starts_with('(') {
        return None;
    }
    let start = line[..end]
        .rfind(|c: char| !is_name(c) && !matches!(c, '.' | '?'))
        .map_or(0, |before| before + line[before..].chars().next().map_or(0, char::len_utf8));
    let name = &line[start..end];
    // A name that begins with a dot follows a call or a bracket.
    (name.starts_with(|c: char| is_name(c) && !c.is_numeric()) && name.len() <= CALLEE_BYTES)
        .then(|| name.to_owned())
}

/// Converts a column in bytes to one in characters, without the inserted text.
fn in_characters(source: &str, row: u32, column: u32, returns: &[u32]) -> u32 {
    // A frame beyond the program's text is left as it is.
    let Some(line) = row.checked_sub(1).and_then(|row| lines(source).nth(row as usize)) else {
        return column;
    };
    let before = line.floor_char_boundary((column as usize).saturating_sub(1));
    let beyond = (column as usize - 1).saturating_sub(line.len());
    // The offset of the line: `line` is a slice of `source`.
    let start = line.as_ptr() as usize - source.as_ptr() as usize;
    let is_before = |at: &&u32| (start..=start + before).contains(&(**at as usize));
    let inserted: usize = returns
        .iter()
        .filter(is_before)
        // A position within the inserted text becomes its start.
        .map(|at| RETURN.len().min(start + before - *at as usize))
        .sum();
    (line[..before].chars().count() - inserted + beyond) as u32 + 1
}

/// Splits a source into lines as the engine does.
fn lines(source: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(source);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r', '\u{2028}', '\u{2029}']) else {
            rest = None;
            return Some(text);
        };
        let (line, after) = text.split_at(end);
        let mut after = after.chars();
        if after.next() == Some('\r') && after.as_str().starts_with('\n') {
            after.next();
        }
        rest = Some(after.as_str());
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_programs_frames() {
        let trace = trim(
            "    at callTool (bootstrap.js:63:22)\n    at inner (program.ts:4:7)\n    at native\n    at default (program.ts:2:5)\n",
            "",
            &[],
        );
        assert_eq!(trace.place, Some((3, 7)));
        assert_eq!(trace.text, "    at inner (program.ts:3:7)\n    at program.ts:1:5");
    }

    #[test]
    fn accepts_the_bare_frame_of_a_syntax_error() {
        assert_eq!(trim("    at program.ts:3:9\n", "", &[]).place, Some((2, 9)));
        assert_eq!(trim("no trace at all", "", &[]), Trace::default());
    }

    #[test]
    fn columns_count_characters() {
        let source = "漢é\r\n👍;x\u{2028}\té;x\r漢x";
        for (row, column, expected) in [(1, 4, 2), (1, 6, 3), (2, 6, 3), (3, 5, 4), (4, 4, 2)] {
            let trace = trim(&format!("    at program.ts:{}:{column}", row + 1), source, &[]);
            assert_eq!(trace.place, Some((row, expected)), "{row}:{column}");
        }
        assert_eq!(trim("at program.ts:2:900", source, &[]).place.map(|place| place.0), Some(1));
        assert_eq!(trim("at program.ts:10:3", source, &[]).place, Some((9, 3)));
    }

    #[test]
    fn columns_ignore_inserted_returns() {
        let source = "a;\né; return await (f())\nif (b) { return await (g()); return await (h()) }";
        let returns: Vec<u32> = source.match_indices(RETURN).map(|(at, _)| at as u32).collect();
        for (row, column, expected) in
            [(2, 1, 1), (2, 19, 4), (3, 10, 10), (3, 24, 10), (3, 44, 16)]
        {
            let trace = trim(&format!("at program.ts:{}:{column}", row + 1), source, &returns);
            assert_eq!(trace.place, Some((row, expected)), "{row}:{column}");
        }
    }

    #[test]
    fn an_error_of_a_program_class_points_at_its_new() {
        let source = "class A extends Error {\n  constructor() { super('a'); }\n}\nthrow new A();";
        let stack = "    at A (program.ts:3:24)\n    at default (program.ts:5:11)\n";
        assert_eq!(trim(stack, source, &[]).place, Some((4, 11)));
        // A parent constructor that throws is reported at its own position.
        let stack = "    at B (program.ts:2:7)\n    at A (program.ts:3:24)\n";
        assert_eq!(trim(stack, source, &[]).place, Some((1, 7)));
        assert_eq!(trim("    at A (program.ts:3:24)\n", source, &[]).place, Some((2, 24)));
    }

    #[test]
    fn names_the_callee_only_for_the_programs_own_calls() {
        for (source, column, callee) in [
            ("x = a.b?.c (1)", 10, Some("a.b?.c")),
            ("f(1)", 1, Some("f")),
            ("this.#go()", 6, Some("this.#go")),
            ("g().then(1)", 5, None),
            ("a.b + c", 3, None),
            ("1.5(2)", 3, None),
        ] {
            let trace = trim(&format!("    at default (program.ts:2:{column})"), source, &[]);
            assert_eq!(trace.callee.as_deref(), callee, "{source}");
        }
        let native = "    at map (native)\n    at default (program.ts:2:3)";
        assert_eq!(trim(native, "a.map(1)", &[]).callee, None);
    }
}
