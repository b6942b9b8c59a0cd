//! Errors and warnings about a program, with their positions.

use protocol::{ErrorCode, escape_text};
use serde::{Deserialize, Serialize};

/// The kind of a diagnostic. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The program is not valid TypeScript.
    ParseError,
    /// The program uses syntax that PML does not run.
    UnsupportedSyntax,
    /// The program exceeds a limit on nesting, chains, calls, dependencies or files.
    TooComplex,
    /// The source is over the size limit.
    SourceTooLarge,
    /// A call names a tool that cannot exist.
    InvalidToolName,
    /// An undeclared name that resembles a known one.
    UnknownName,
    /// The name of a namespace or tool is computed at run time.
    DynamicName,
    /// `mcp`, a namespace or a tool reaches code that the analysis cannot follow.
    DynamicEscape,
    /// A call at the wrong level: of `mcp`, of a namespace, or of a member of a tool.
    DynamicCall,
    /// An assignment to `mcp` or to something in it.
    DynamicWrite,
    /// The global object reaches code that the analysis cannot follow.
    DynamicGlobal,
    /// The program creates code from text.
    DynamicEval,
    /// `arguments` or `this` could give access to something outside the program.
    DynamicScope,
    /// The promise of a call is used as if it were the result of the call.
    ToolPromiseUsed,
    /// The same, in a program that elsewhere tests whether a value is a promise, or modifies a global: the use may be
    /// intended.
    ToolPromiseMaybeUsed,
    /// Nothing awaits the promise of a call.
    ToolPromiseDropped,
}

impl Code {
    /// Returns the stable name, for example `PARSE_ERROR`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParseError => "PARSE_ERROR",
            Self::UnsupportedSyntax => "UNSUPPORTED_SYNTAX",
            Self::TooComplex => "TOO_COMPLEX",
            Self::SourceTooLarge => "SOURCE_TOO_LARGE",
            Self::InvalidToolName => "INVALID_TOOL_NAME",
            Self::UnknownName => "UNKNOWN_NAME",
            Self::DynamicName => "DYNAMIC_NAME",
            Self::DynamicEscape => "DYNAMIC_ESCAPE",
            Self::DynamicCall => "DYNAMIC_CALL",
            Self::DynamicWrite => "DYNAMIC_WRITE",
            Self::DynamicGlobal => "DYNAMIC_GLOBAL",
            Self::DynamicEval => "DYNAMIC_EVAL",
            Self::DynamicScope => "DYNAMIC_SCOPE",
            Self::ToolPromiseUsed => "TOOL_PROMISE_USED",
            Self::ToolPromiseMaybeUsed => "TOOL_PROMISE_MAYBE_USED",
            Self::ToolPromiseDropped => "TOOL_PROMISE_DROPPED",
        }
    }

    /// Returns the severity: an error prevents the program from running.
    pub fn severity(self) -> Severity {
        match self {
            Self::ParseError
            | Self::UnsupportedSyntax
            | Self::TooComplex
            | Self::SourceTooLarge
            | Self::InvalidToolName
            | Self::UnknownName
            | Self::ToolPromiseUsed => Severity::Error,
            _ => Severity::Warning,
        }
    }
}

/// Whether a diagnostic prevents the program from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The program cannot run.
    Error,
    /// The program can run; most warnings make it dynamic.
    Warning,
}

impl Severity {
    /// Returns the word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One error or warning.
///
/// Lines and columns are counted from 1. A column counts code points, as the
/// engine does in its stack traces. Lines end at `\n`, `\r\n` or a lone `\r`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The kind.
    pub code: Code,
    /// Whether the program may still run.
    pub severity: Severity,
    /// What is wrong and what to write instead.
    pub message: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in code points, from 1.
    pub column: u32,
    /// The source line with a caret beneath the position; control characters and
    /// bidirectional marks are escaped.
    pub frame: String,
}

impl Diagnostic {
    /// Returns the line, shown with its number and a caret.
    pub fn code_frame(&self) -> &str {
        &self.frame
    }

    /// Returns whether this is a warning to report together with the result of a run.
    pub fn is_for_run(&self) -> bool {
        matches!(self.code, Code::ToolPromiseDropped | Code::ToolPromiseMaybeUsed)
    }

    /// Returns the error code of an execution that is refused for this reason.
    pub fn error_code(&self) -> ErrorCode {
        match self.code {
            Code::SourceTooLarge => ErrorCode::SourceTooLarge,
            Code::TooComplex => ErrorCode::TooComplex,
            Code::UnsupportedSyntax | Code::InvalidToolName | Code::UnknownName => {
                ErrorCode::UnsupportedSyntax
            }
            Code::ToolPromiseUsed => ErrorCode::PromiseNotAwaited,
            _ => ErrorCode::ParseError,
        }
    }
}

/// A diagnostic whose byte offset has not been converted to a line and column yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The byte offset in the source.
    pub(crate) offset: u32,
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(code: Code, offset: u32, message: impl Into<String>) -> Self {
        Self { offset, code, message: message.into() }
    }

    /// Adds line, column and code frame.
    pub(crate) fn locate(self, source: &str) -> Diagnostic {
        let mut offset = (self.offset as usize).min(source.len());
        while !source.is_char_boundary(offset) {
            offset -= 1;
        }
        let (line, start) = line_of(source, offset);
        let end = source[start..].find(LINE_ENDS).map_or(source.len(), |length| start + length);
        let column = source[start..offset.max(start)].chars().count() as u32 + 1;
        let frame = frame(line, &source[start..end.max(start)], column);
        Diagnostic {
            code: self.code,
            severity: self.code.severity(),
            message: shown(&self.message, 600),
            line,
            column,
            frame,
        }
    }
}

/// Returns the line of an offset, from 1, and the offset at which that line begins.
fn line_of(source: &str, offset: usize) -> (u32, usize) {
    let before = line_starts(source).take_while(|start| *start <= offset);
    before.fold((0, 0), |(line, _), start| (line + 1, start))
}

/// Returns the offsets at which the lines of a text begin.
///
/// The engine counts lines in the same way, so positions of run-time errors agree with these.
pub(crate) fn line_starts(source: &str) -> impl Iterator<Item = usize> {
    // `\r\n` is one line terminator.
    let is_end = move |(at, end): &(usize, &str)| {
        *end != "\r" || source.as_bytes().get(at + 1) != Some(&b'\n')
    };
    let ends = source.match_indices(LINE_ENDS).filter(is_end);
    std::iter::once(0).chain(ends.map(|(at, end)| at + end.len()))
}

/// Returns the line and the column of an offset, both from 1.
pub(crate) fn position(source: &str, offset: usize) -> (u32, u32) {
    let (line, start) = line_of(source, offset);
    (line, source[start..offset.max(start)].chars().count() as u32 + 1)
}

/// Returns the offset of a line and column, if the text has that line; a column too far is the line's end.
pub(crate) fn offset_of(source: &str, line: u32, column: u32) -> Option<usize> {
    let mut start = 0;
    for _ in 1..line {
        let at = start + source[start..].find(LINE_ENDS)?;
        let is_pair = source[at..].starts_with("\r\n");
        start = at + if is_pair { 2 } else { source[at..].chars().next()?.len_utf8() };
    }
    let rest = &source[start..];
    let rest = &rest[..rest.find(LINE_ENDS).unwrap_or(rest.len())];
    let column = column.saturating_sub(1) as usize;
    Some(start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at))
}

/// The line terminators of JavaScript.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

/// The longest part of a source line that a frame shows, in characters.
const FRAME_WIDTH: usize = 100;

fn frame(line: u32, text: &str, column: u32) -> String {
    let caret = column as usize - 1;
    // A long line is cut so that the caret stays visible.
    let first = caret.saturating_sub(FRAME_WIDTH * 3 / 4);
    let mut visible = text.chars().skip(first).take(FRAME_WIDTH);
    let head: String = visible.by_ref().take(caret - first).collect();
    let (head, tail) = (escape_text(&head), escape_text(&visible.collect::<String>()));
    let cut = if first > 0 { "…" } else { "" };
    let number = line.to_string();
    let indent = " ".repeat(number.len());
    let pad = " ".repeat(cut.chars().count() + head.chars().count());
    format!("{number} | {cut}{head}{tail}\n{indent} | {pad}^")
}

/// Returns `text` safe to show, and cut to `limit` characters.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    if text.len() <= limit && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    match text.char_indices().nth(limit) {
        Some((end, _)) => escape_text(&text[..end]) + "…",
        None => escape_text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(source: &str, offset: u32) -> Diagnostic {
        Finding::new(Code::ParseError, offset, "x").locate(source)
    }

    #[test]
    fn positions_count_code_points_and_every_line_terminator() {
        let source = "a\r\nb\rc\né😀x";
        let found = at(source, source.find('x').unwrap() as u32);
        assert_eq!((found.line, found.column), (4, 3));
        assert_eq!((at(source, 3).line, at(source, 3).column), (2, 1));
        assert_eq!((at(source, 5).line, at(source, 5).column), (3, 1));
        let found = at("a\u{2028}b\u{2029} x", 9);
        assert_eq!((found.line, found.column, found.frame.as_str()), (3, 2, "3 |  x\n  |  ^"));
        assert_eq!((at("", 9).line, at("", 9).column), (1, 1));
    }

    #[test]
    fn frames_escape_control_and_bidi_characters() {
        let found = at("let a = '\u{202e}\u{1b}[31m'; b", 24);
        assert!(!found.frame.contains(['\u{202e}', '\u{1b}']), "{}", found.frame);
        assert!(found.frame.contains("\\u{202e}"), "{}", found.frame);
        // Fillers and selectors are invisible, too; what makes a symbol an emoji is kept.
        let found = at("let \u{3164} = '⚠\u{fe0f}\u{e0101}'; b", 0);
        assert_eq!(
            found.frame.lines().next(),
            Some("1 | let \\u{3164} = '⚠\u{fe0f}\\u{e0101}'; b")
        );
        assert_eq!(shown("a\u{ad}bc", 3), "a\\u{ad}b…");
        let long = format!("{}x", "é".repeat(5_000));
        assert!(at(&long, 10_000).frame.chars().count() < 300);
    }
}
