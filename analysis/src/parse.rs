//! Parses source text into an SWC tree, and erases its types to get the JavaScript that runs.
//!
//! All offsets that leave this module are offsets in the source, without the
//! [wrapper](crate::wrapper) that is parsed around it.

mod arrow;
mod blank;
mod early;
mod ending;
mod errors;
mod recheck;
mod strip;
mod survey;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use protocol::Integrity;
use swc_common::comments::SingleThreadedComments;
use swc_common::{BytePos, Span, Spanned};
use swc_ecma_ast::{EsVersion, Function, Module};
use swc_ecma_parser::error::SyntaxError;
use swc_ecma_parser::{EsSyntax, Parser, StringInput, Syntax, TsSyntax, lexer::Lexer};

use crate::Limits;
use crate::diagnostic::{Code, Finding};
use crate::normal::Reading;
use crate::wrapper::{BODY_START, offset, start, wrap, wrapper, wrapper_mut};

/// A program that parsed.
pub(crate) struct Parsed {
    module: Module,
    /// The JavaScript that runs.
    pub(crate) program: String,
    /// Where a `return` was inserted; `None` if the author wrote one.
    pub(crate) implicit_returns: Option<Vec<u32>>,
    /// The hash of the program's normal form.
    pub(crate) normal_hash: Integrity,
}

impl Parsed {
    /// Returns the function whose body is the program.
    pub(crate) fn function(&self) -> Option<&Function> {
        wrapper(&self.module)
    }
}

/// Parses a program and erases its types.
pub(crate) fn parse(source: &str, limits: &Limits) -> Result<Parsed, Vec<Finding>> {
    let mut text = source.to_owned();
    if text.starts_with("#!") {
        text.replace_range(..2, "//");
    }
    // A code fence is valid JavaScript: an empty template literal as the tag of another one.
    if source.trim_start().starts_with(errors::FENCE) {
        return Err(errors::fence(source).into_iter().collect());
    }
    let mut module = parse_body(&text)?;
    survey::survey(&module, limits)?;
    let mut inserted = None;
    if let Some(body) = wrapper(&module).and_then(|function| function.body.as_ref()) {
        match arrow::unwrap(&body.stmts, &text) {
            arrow::Unwrapped::No => {}
            arrow::Unwrapped::Refused(finding) => return Err(vec![finding]),
            arrow::Unwrapped::Body(unwrapped) => {
                text = unwrapped.text;
                inserted = unwrapped.inserted;
                module = parse_body(&text)?;
                survey::survey(&module, limits)?;
            }
        }
    }
    early::check(&module, &text)?;
    let Some(body) = wrapper_mut(&mut module).and_then(|function| function.body.as_mut()) else {
        return Err(vec![unmatched_brace(0)]);
    };
    let blanked = blank::blank(body, &text);
    let ends = ending::end(body)?;
    let Some(function) = wrapper(&module) else { return Err(vec![unmatched_brace(0)]) };
    let reading = Reading::of(function);
    let normal_hash = reading.hash();
    let written = |erased: Cow<'_, str>| {
        let program = strip::by_characters(source, erased, inserted);
        match &ends {
            Some(spans) => {
                let (program, returns) = ending::write(source, &program, spans);
                (program, Some(returns))
            }
            None => (program, None),
        }
    };
    // The fast eraser first. If it declines, or its result does not mean the same, SWC's eraser decides.
    if let Some(blanked) = blanked {
        let (program, implicit_returns) = written(blanked);
        if recheck::recheck(&program, &reading).is_ok() {
            return Ok(Parsed { module, program, implicit_returns, normal_hash });
        }
    }
    let (program, implicit_returns) = written(strip::strip(&text)?.into());
    if let Err(mut findings) = recheck::recheck(&program, &reading) {
        for finding in &mut findings {
            let returns = implicit_returns.as_deref().unwrap_or_default();
            finding.offset = ending::without_returns(finding.offset, returns);
        }
        return Err(findings);
    }
    Ok(Parsed { module, program, implicit_returns, normal_hash })
}

/// The syntax of the source.
fn typescript(tsx: bool) -> Syntax {
    Syntax::Typescript(TsSyntax { decorators: true, tsx, ..TsSyntax::default() })
}

/// The syntax that the engine accepts.
fn javascript() -> Syntax {
    Syntax::Es(EsSyntax::default())
}

/// Parses a file that may have `import` and `export`. Offsets are those of `text`.
///
/// Returns the tree, and the offset of the first top-level `return`, if there is one.
pub(crate) fn parse_file(
    text: &str,
    limits: &Limits,
) -> Result<(Module, Option<u32>), Vec<Finding>> {
    let (module, mut errors) = parse_from(text, typescript(false), BODY_START);
    let mut returns = None;
    errors.retain(|error| {
        let is_return = matches!(error.kind(), SyntaxError::ReturnNotAllowed);
        if is_return && returns.is_none() {
            returns = Some(start(error.span()));
        }
        !is_return
    });
    match module.filter(|_| errors.is_empty()) {
        Some(module) => {
            survey::survey(&module, limits)?;
            Ok((module, returns))
        }
        None => Err(errors::explain(errors, text)),
    }
}

/// Parses `text`; early errors are errors. The list of errors is empty if the parser panicked, which
/// happens for some invalid programs.
fn parse_module(text: &str, syntax: Syntax) -> Result<Module, Vec<swc_ecma_parser::error::Error>> {
    match parse_from(text, syntax, 1) {
        (Some(module), errors) if errors.is_empty() => Ok(module),
        (_, errors) => Err(errors),
    }
}

/// Parses `text`, whose first byte has the position `first`, and returns the tree, if any, and all errors.
fn parse_from(
    text: &str,
    syntax: Syntax,
    first: u32,
) -> (Option<Module>, Vec<swc_ecma_parser::error::Error>) {
    let input = StringInput::new(text, BytePos(first), BytePos(first + text.len() as u32));
    // SWC panics on some invalid programs.
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let mut parser = Parser::new_from(Lexer::new(syntax, EsVersion::latest(), input, None));
        let parsed = parser.parse_module();
        (parsed, parser.take_errors())
    }));
    match parsed {
        Ok((Ok(module), errors)) => (Some(module), errors),
        Ok((Err(error), mut errors)) => {
            errors.push(error);
            (None, errors)
        }
        Err(_) => (None, Vec::new()),
    }
}

/// Returns the spans of the comments in a valid program.
fn comments(text: &str) -> Vec<Span> {
    let found = SingleThreadedComments::default();
    let input = StringInput::new(text, BytePos(1), BytePos(1 + text.len() as u32));
    let lexer = Lexer::new(typescript(false), EsVersion::latest(), input, Some(&found));
    let _ = Parser::new_from(lexer).parse_module();
    let (leading, trailing) = found.take_all();
    let (leading, trailing) = (leading.take(), trailing.take());
    leading.values().chain(trailing.values()).flatten().map(|comment| comment.span).collect()
}

fn parse_body(text: &str) -> Result<Module, Vec<Finding>> {
    let wrapped = wrap(text);
    let module =
        parse_module(&wrapped, typescript(false)).map_err(|found| errors::explain(found, text))?;
    // `} evil(); {` closes the wrapper and still parses. The wrapper must extend to the end of the text.
    let whole =
        wrapper(&module).is_some_and(|function| function.span.hi.0 == 1 + wrapped.len() as u32);
    if whole {
        return Ok(module);
    }
    let end = match &module.body[..] {
        [first, ..] => offset(first.span().hi).saturating_sub(1),
        [] => 0,
    };
    Err(vec![unmatched_brace(end)])
}

fn unmatched_brace(at: u32) -> Finding {
    let message = "this `}` has no matching `{`; remove it, or add the `{`";
    Finding::new(Code::ParseError, at, message)
}
