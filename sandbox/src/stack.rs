//! The program's own frames, cut out of an engine's stack trace.

use std::fmt::Write;

/// The name of the program in traces.
pub(crate) const PROGRAM_FILE: &str = "program.ts";
/// What stands before the program on its first line. A module gives the strict rules under which the program
/// was analysed; a script would read `<!--` as a comment.
pub(crate) const PREFIX: &str = "export default async function(){";
/// What stands after the program.
pub(crate) const SUFFIX: &str = "\n}";

/// A trace in the program's own coordinates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The place of the innermost frame: line and column, from 1.
    pub(crate) place: Option<(u32, u32)>,
    /// One line for each frame.
    pub(crate) text: String,
}

/// Keeps the program's frames, moves the first line's columns back, and counts characters
/// where the engine counts bytes.
pub(crate) fn trim(stack: &str, source: &str) -> Trace {
    let mut trace = Trace::default();
    for line in stack.lines() {
        let Some((before, after)) = line.split_once(PROGRAM_FILE) else { continue };
        let Some(rest) = after.strip_prefix(':') else { continue };
        let mut numbers = rest.trim_end_matches(')').splitn(2, ':').map(str::parse::<u32>);
        let (Some(Ok(row)), Some(Ok(column))) = (numbers.next(), numbers.next()) else { continue };
        let shift = if row == 1 { PREFIX.len() as u32 } else { 0 };
        let column = in_characters(source, row, column.saturating_sub(shift).max(1));
        trace.place.get_or_insert((row, column));
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
    trace
}

/// Turns a column of bytes into one of characters.
fn in_characters(source: &str, row: u32, column: u32) -> u32 {
    // A frame beyond the program's text is left as it is.
    let Some(line) = row.checked_sub(1).and_then(|row| lines(source).nth(row as usize)) else {
        return column;
    };
    let before = line.floor_char_boundary((column as usize).saturating_sub(1));
    let beyond = (column as usize - 1).saturating_sub(line.len());
    (line[..before].chars().count() + beyond) as u32 + 1
}

/// Returns the lines as the engine counts them.
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
    fn only_the_programs_frames_stay() {
        let column = PREFIX.len() + 5;
        let trace = trim(
            &format!(
                "    at callTool (bootstrap.js:63:22)\n    at inner (program.ts:3:7)\n    at native\n    at default (program.ts:1:{column})\n"
            ),
            "",
        );
        assert_eq!(trace.place, Some((3, 7)));
        assert_eq!(trace.text, "    at inner (program.ts:3:7)\n    at program.ts:1:5");
    }

    #[test]
    fn a_syntax_error_has_a_bare_frame() {
        assert_eq!(trim("    at program.ts:2:9\n", "").place, Some((2, 9)));
        assert_eq!(trim("no trace at all", ""), Trace::default());
    }

    #[test]
    fn columns_count_characters() {
        let source = "漢é\r\n👍;x\u{2028}\té;x\r漢x";
        for (row, column, expected) in [(1, 4, 2), (1, 6, 3), (2, 6, 3), (3, 5, 4), (4, 4, 2)] {
            let shift = if row == 1 { PREFIX.len() as u32 } else { 0 };
            let trace = trim(&format!("    at program.ts:{row}:{}", column + shift), source);
            assert_eq!(trace.place, Some((row, expected)), "{row}:{column}");
        }
        assert_eq!(trim("at program.ts:1:900", source).place.map(|place| place.0), Some(1));
        assert_eq!(trim("at program.ts:9:3", source).place, Some((9, 3)));
    }
}
