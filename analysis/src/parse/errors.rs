//! What the parser found wrong, told so that the author can put it right.

use swc_common::Spanned;
use swc_ecma_parser::error::{Error, SyntaxError};

use crate::diagnostic::{Code, Finding};

/// The most errors of one parse that are told.
const ERROR_LIMIT: usize = 20;

/// What begins and ends code in Markdown.
pub(super) const FENCE: &str = "```";

/// Finds a line that begins or ends code in Markdown.
pub(super) fn fence(text: &str) -> Option<Finding> {
    let line = text.lines().find(|line| line.trim_start().starts_with(FENCE))?;
    let line = line.trim_start();
    let at = line.as_ptr() as usize - text.as_ptr() as usize;
    let message = "this is Markdown; submit the program alone, without the lines that begin with three backticks and the text around them";
    Some(Finding::new(Code::UnsupportedSyntax, at as u32, message))
}

/// Turns parser errors into findings; JSX, Markdown, `import` and `export` get their own.
pub(super) fn explain(found: Vec<Error>, text: &str) -> Vec<Finding> {
    if let Some(fence) = fence(text) {
        return vec![fence];
    }
    let mut findings: Vec<Finding> =
        found.into_iter().take(ERROR_LIMIT).map(|error| explain_one(error, text)).collect();
    if findings.is_empty() {
        // The parser gave up without a word.
        let message = "the program is not valid TypeScript; look for a string, comment or bracket that is not closed";
        findings.push(Finding::new(Code::ParseError, 0, message));
    }
    findings.sort();
    // Only the first parse error is sure; what follows is often its echo.
    if let Some(at) = findings.iter().position(|finding| finding.code == Code::ParseError) {
        let jsx = super::parse_module(&super::wrap(text), super::typescript(true)).is_ok();
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
    let offset = super::start(error.span()).min(text.len() as u32);
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
            "old octal digits are not supported; write a number as `0o755`, a character as `\\x1b`",
        ),
        SyntaxError::LegacyCommentInModule => Finding::new(
            Code::ParseError,
            offset,
            "`<!--` and `-->` begin no comment; write `//`, or spaces between the operators",
        ),
        SyntaxError::AwaitInFunction => Finding::new(
            Code::ParseError,
            offset,
            "`await` stands in a function that is not `async`; write `async` before the function",
        ),
        kind => {
            // The end of the wrapper is the end of the program.
            let message = if offset as usize >= text.len() {
                format!("the program ends too early: {}", kind.msg())
            } else {
                kind.msg().into_owned()
            };
            Finding::new(Code::ParseError, offset, message)
        }
    }
}

/// Refuses an `import` or `export` at an offset.
fn module_syntax(offset: u32, at: &str) -> Finding {
    let message = if at.starts_with("export") {
        "`export` is not supported; a program gives its result with `return`"
    } else {
        "`import` is not supported; call tools as `await mcp.namespace.action({ … })`"
    };
    Finding::new(Code::UnsupportedSyntax, offset, message)
}
