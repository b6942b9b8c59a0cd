//! Turns the parser's errors into diagnostics that say how to fix the program.

use swc_common::Spanned;
use swc_ecma_parser::error::{Error, SyntaxError};

use crate::diagnostic::{Code, Finding};
use crate::wrapper::{start, wrap};

/// The maximum number of errors reported for one parse.
const ERROR_LIMIT: usize = 20;

/// The delimiter of a code block in Markdown.
pub(super) const FENCE: &str = "```";

/// Finds a line that is a Markdown code fence.
pub(super) fn fence(text: &str) -> Option<Finding> {
    let line = text.lines().find(|line| line.trim_start().starts_with(FENCE))?;
    let line = line.trim_start();
    let at = line.as_ptr() as usize - text.as_ptr() as usize;
    let message = "this is Markdown; submit only the program, without the lines that begin with three backticks and the text around them";
    Some(Finding::new(Code::UnsupportedSyntax, at as u32, message))
}

/// Turns parser errors into findings, with specific messages for JSX, Markdown, `import` and `export`.
pub(super) fn explain(found: Vec<Error>, text: &str) -> Vec<Finding> {
    if let Some(fence) = fence(text) {
        return vec![fence];
    }
    let mut findings: Vec<Finding> =
        found.into_iter().take(ERROR_LIMIT).map(|error| explain_one(error, text)).collect();
    if findings.is_empty() {
        // The parser panicked.
        let message = "the program is not valid TypeScript; look for a string, comment or bracket that is not closed";
        findings.push(Finding::new(Code::ParseError, 0, message));
    }
    findings.sort();
    // Only the first parse error is reliable; later ones are often consequences of it.
    if let Some(at) = findings.iter().position(|finding| finding.code == Code::ParseError) {
        let jsx = super::parse_module(&wrap(text), super::typescript(true)).is_ok();
        let first = findings.swap_remove(at);
        findings
            .retain(|finding| finding.code != Code::ParseError && finding.offset < first.offset);
        findings.push(if jsx {
            Finding::new(
                Code::UnsupportedSyntax,
                first.offset,
                "JSX is not supported; build the text with a template literal",
            )
        } else {
            first
        });
    }
    findings
}

fn explain_one(error: Error, text: &str) -> Finding {
    let offset = start(error.span()).min(text.len() as u32);
    let at = text.get(offset as usize..).unwrap_or_default();
    match error.kind() {
        SyntaxError::NonTopLevelImportExport | SyntaxError::ImportExportInScript => {
            module_syntax(offset, at)
        }
        SyntaxError::WithInStrict | SyntaxError::TS2410 => Finding::new(
            Code::UnsupportedSyntax,
            offset,
            "`with` is not supported; name the object at each use",
        ),
        SyntaxError::LegacyOctal | SyntaxError::TS1085 => Finding::new(
            Code::ParseError,
            offset,
            "legacy octal digits are not supported; write a number as `0o755` and a character as `\\x1b`",
        ),
        SyntaxError::LegacyCommentInModule => Finding::new(
            Code::ParseError,
            offset,
            "`<!--` and `-->` do not begin a comment; write `//`, or put spaces between the operators",
        ),
        SyntaxError::AwaitInFunction => Finding::new(
            Code::ParseError,
            offset,
            "`await` is only allowed in an `async` function; write `async` before the function",
        ),
        kind => {
            let message = message(kind);
            // The parser reports the `}` of the wrapper; for the author that is the end of the program.
            let message = if offset as usize >= text.len() {
                let expected = message.trim_end_matches(", got '<eof>'");
                format!("unexpected end of the program: {expected}")
            } else {
                message
            };
            Finding::new(Code::ParseError, offset, message)
        }
    }
}

/// Returns the parser's message in the style of ours: in lower case, without a full stop.
pub(super) fn message(kind: &SyntaxError) -> String {
    let text = kind.msg();
    let text = text.trim_end_matches('.');
    let is_name = text.starts_with("TypeScript") || text.starts_with("JavaScript");
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        // An upper-case second letter is an abbreviation, such as `JSX`.
        (Some(first), Some(second)) if !is_name && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Refuses an `import` or `export` at an offset.
fn module_syntax(offset: u32, at: &str) -> Finding {
    let message = if at.starts_with("export") {
        "`export` is not supported; return the result with `return`"
    } else {
        "`import` is not supported; call tools as `await mcp.namespace.action({ … })`"
    };
    Finding::new(Code::UnsupportedSyntax, offset, message)
}
