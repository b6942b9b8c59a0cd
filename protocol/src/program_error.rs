//! The error body of a failed program, identical on gateway and CLI.

use serde_json::{Map, Value};

use crate::{CallLog, ErrorBody, ErrorCode};

/// The sandbox's report of a failed program.
#[derive(Debug, Clone)]
pub struct ProgramFailure<'a> {
    /// The error code for the sandbox's kind of failure.
    pub code: ErrorCode,
    /// The error's `name`, for example `TypeError`.
    pub name: &'a str,
    /// The error's `message`.
    pub message: &'a str,
    /// The error's own `code`, which the program can set to anything.
    pub thrown_code: Option<&'a str>,
    /// One-based line of the user's source.
    pub line: Option<u32>,
    /// One-based column of the user's source.
    pub column: Option<u32>,
    /// The stack, with positions in the user's source.
    pub stack: Option<&'a str>,
    /// The index of the call whose error this is, if it is one.
    pub call: Option<u64>,
}

/// Builds the error of a failed run.
///
/// `calls` are those of this run. If the program throws an error with a code, the code is used only if one of these
/// calls failed with it: a program can throw any text, and must not be able to claim, for example, that the user
/// refused something.
pub fn program_error(failure: &ProgramFailure<'_>, source: &str, calls: &CallLog) -> ErrorBody {
    let thrown = failure
        .thrown_code
        .and_then(|code| code.parse().ok())
        // A failure that the sandbox classified itself, such as a limit, keeps its code whatever
        // the error claims.
        .filter(|code| failure.code == ErrorCode::ProgramFailed && calls.issued().contains(code));
    let message = match (failure.name, failure.message) {
        ("", message) => message.to_owned(),
        (name, "") => name.to_owned(),
        (name, message) => format!("{name}: {message}"),
    };
    let mut details = Map::new();
    details.insert("name".into(), failure.name.into());
    if let Some(line) = failure.line {
        details.insert("line".into(), line.into());
        details.insert("column".into(), failure.column.into());
        if let Some(frame) = code_frame(source, line, failure.column.unwrap_or(1)) {
            details.insert("code_frame".into(), frame.into());
        }
    }
    if let Some(stack) = failure.stack {
        details.insert("stack".into(), stack.into());
    }
    if let Some(tool) = failure.call.and_then(|call| calls.tool(call)) {
        details.insert("tool".into(), tool.into());
        details.insert("call_index".into(), failure.call.into());
    }
    ErrorBody::new(thrown.unwrap_or(failure.code), message).with_details(Value::Object(details))
}

/// Renders a position in a source: the numbered line, and a caret beneath the column.
///
/// Control and bidirectional characters are escaped, so that a terminal shows the frame as it is in the source.
/// Returns `None` past the last line.
pub fn code_frame(source: &str, line: u32, column: u32) -> Option<String> {
    const WIDTH: usize = 160;
    // JavaScript has more line terminators than `str::lines` recognizes.
    let source = source.replace("\r\n", "\n");
    let ends = ['\n', '\r', '\u{2028}', '\u{2029}'];
    let text = source.split(ends).nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    // The engine may report a column past the end of the line.
    let before = usize::try_from(column).ok()?.saturating_sub(1).min(text.chars().count());
    // A long line is shown around the column.
    let start = before.saturating_sub(WIDTH / 2);
    let forms = || escaped(text).skip(start).map(|(_, shown)| shown);
    let shown: String = forms().take(WIDTH).collect();
    // An escaped character takes more than one column.
    let caret: usize = forms().take(before - start).map(|shown| shown.chars().count()).sum();
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    Some(format!("{number} | {shown}\n{margin} | {}^", " ".repeat(caret)))
}

/// Iterates over the characters of a text, each with its form for display: controls, and characters that are invisible
/// or change the text's direction, are escaped. A selector that makes the symbol before it an emoji is kept.
pub(crate) fn escaped(text: &str) -> impl Iterator<Item = (char, String)> {
    text.char_indices().map(|(at, c)| {
        let is_kept = c == EMOJI_SELECTOR && selects_emoji(&text[..at], &text[at + c.len_utf8()..]);
        (c, if is_kept { c.to_string() } else { escape(c) })
    })
}

fn escape(c: char) -> String {
    match c {
        '\t' => " ".into(),
        c if c.is_control() || is_hidden(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    }
}

/// Returns whether a character is invisible or changes the text's direction.
fn is_hidden(c: char) -> bool {
    matches!(c,
        // Unicode's `Default_Ignorable_Code_Point`: joiners, direction marks, fillers, variation selectors, and tags,
        // which mirror ASCII.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
        // Line separators and interlinear annotations.
        | '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}')
}

/// The variation selector for emoji presentation.
const EMOJI_SELECTOR: char = '\u{fe0f}';

/// Returns whether a selector between these texts has the effect that it is meant for: after a symbol, or in a keycap.
fn selects_emoji(before: &str, after: &str) -> bool {
    let is_symbol = |c| {
        matches!(c,
            '©' | '®' | '‼' | '⁉' | '\u{2100}'..='\u{2bff}' | '〰' | '〽' | '㊗' | '㊙'
            | '\u{1f000}'..='\u{1faff}')
    };
    let is_key = |c: char| c.is_ascii_digit() || c == '#' || c == '*';
    before.ends_with(is_symbol) || before.ends_with(is_key) && after.starts_with('\u{20e3}')
}

/// Escapes a text for display to a human: control, bidirectional and invisible characters, and line ends.
pub fn escape_text(text: &str) -> String {
    escaped(text).map(|(_, shown)| shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallNote, Routing};

    fn failure<'a>(code: ErrorCode, thrown: Option<&'a str>) -> ProgramFailure<'a> {
        ProgramFailure {
            code,
            name: "Error",
            message: "no",
            thrown_code: thrown,
            line: Some(2),
            column: Some(3),
            stack: None,
            call: None,
        }
    }

    /// The log of a run whose second call failed.
    fn calls() -> CallLog {
        let mut log = CallLog::default();
        for (index, tool, code) in
            [(1, "a:first", None), (2, "a:second", Some(ErrorCode::ToolFailed))]
        {
            let note = CallNote {
                tool: tool.to_owned(),
                routing: Routing::Server,
                ok: code.is_none(),
                duration_ms: 0.0,
                through: Vec::new(),
            };
            log.record(index, note, code);
        }
        log
    }

    #[test]
    fn a_program_cannot_forge_an_error_code() {
        let calls = calls();
        let code = |thrown, code| program_error(&failure(code, thrown), "", &calls).error_code;
        assert_eq!(code(Some("TOOL_FAILED"), ErrorCode::ProgramFailed), ErrorCode::ToolFailed);
        assert_eq!(
            code(Some("APPROVAL_DENIED"), ErrorCode::ProgramFailed),
            ErrorCode::ProgramFailed
        );
        assert_eq!(code(Some("TOOL_FAILED"), ErrorCode::TimeLimit), ErrorCode::TimeLimit);
        assert_eq!(code(None, ErrorCode::ProgramFailed), ErrorCode::ProgramFailed);
    }

    #[test]
    fn names_the_failed_call() {
        let details = |call| {
            let failure = ProgramFailure { call, ..failure(ErrorCode::ProgramFailed, None) };
            program_error(&failure, "", &calls()).details
        };
        assert_eq!(
            (&details(Some(2))["tool"], &details(Some(2))["call_index"]),
            (&"a:second".into(), &2.into())
        );
        assert!(details(None).get("tool").is_none() && details(Some(3)).get("tool").is_none());
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let hidden = "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{180b}\u{180e}\u{200b}\u{200d}\u{2028}\u{202e}\u{2060}\u{3164}\u{fe00}\u{fe0e}\u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{1bca0}\u{1d173}\u{e0001}\u{e0041}\u{e0100}\u{e01ef}";
        for c in hidden.chars() {
            let name = c.escape_unicode();
            assert_eq!(escape_text(&format!("a{c}b")), format!("a{name}b"));
        }
        for shown in ["é漢 한 ह", "⚠\u{fe0f} ❤\u{fe0f}", "1\u{fe0f}\u{20e3}.", "🏷\u{fe0f}"]
        {
            assert_eq!(escape_text(shown), shown);
        }
        // A selector has no effect at the start, after a letter, or after another one.
        for (text, shown) in [
            ("\u{fe0f}", "\\u{fe0f}"),
            ("1\u{fe0f}", "1\\u{fe0f}"),
            ("⚠\u{fe0f}\u{fe0f}", "⚠\u{fe0f}\\u{fe0f}"),
        ] {
            assert_eq!(escape_text(text), shown);
        }
    }

    #[test]
    fn a_frame_points_at_the_column() {
        assert_eq!(code_frame("a\n  b\n", 2, 3).unwrap(), "2 |   b\n  |   ^");
        assert_eq!(code_frame("é\u{202e}x", 1, 3).unwrap(), "1 | é\\u{202e}x\n  |          ^");
        for source in ["a\rb\n", "a\r\nb", "a\u{2028}b\u{2029}"] {
            assert_eq!(code_frame(source, 2, 1).unwrap(), "2 | b\n  | ^");
        }
        assert_eq!(code_frame("a", 2, 1), None);
        assert_eq!(code_frame("a", 0, 1), None);
        let long = format!("{}!{}", "x".repeat(5_000), "y".repeat(5_000));
        let frame = code_frame(&long, 1, 5_001).unwrap();
        assert!(frame.len() < 400);
        let (top, bottom) = frame.split_once('\n').unwrap();
        assert_eq!(top.find('!'), bottom.find('^'));
    }
}
