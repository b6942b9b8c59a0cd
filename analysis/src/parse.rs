//! Source text → SWC tree, and the JavaScript that runs.
//!
//! The program is parsed as the body of an async function, so that `await` and
//! `return` may stand at its top. The wrapper adds one prefix to the first line
//! and nothing else; all offsets handed out are those of the source.

mod arrow;
mod errors;
mod strip;
mod survey;

use swc_common::{BytePos, Span, Spanned};
use swc_ecma_ast::{Decl, EsVersion, Function, Module, ModuleItem, Stmt};
use swc_ecma_parser::{Parser, StringInput, Syntax, TsSyntax, lexer::Lexer};

use crate::Limits;
use crate::diagnostic::{Code, Finding};

/// The prefix that makes a program the body of a function.
const PREFIX: &str = "async function __program__(){";
/// What closes the function; on its own line, after a last line comment.
const SUFFIX: &str = "\n}";
/// SWC counts byte positions from 1.
const BODY_START: u32 = PREFIX.len() as u32 + 1;

/// A program that parsed.
pub(crate) struct Parsed {
    module: Module,
    /// The JavaScript that runs.
    pub(crate) program: String,
}

impl Parsed {
    /// Returns the function whose body is the program.
    pub(crate) fn function(&self) -> Option<&Function> {
        wrapper(&self.module)
    }
}

/// Returns the byte offset in the source of a position in the tree.
pub(crate) fn offset(position: BytePos) -> u32 {
    position.0.saturating_sub(BODY_START)
}

/// Parses a program and erases its types.
pub(crate) fn parse(source: &str, limits: &Limits) -> Result<Parsed, Vec<Finding>> {
    let mut text = source.to_owned();
    if text.starts_with("#!") {
        text.replace_range(..2, "//");
    }
    let mut module = parse_body(&text)?;
    survey::survey(&module, limits)?;
    if let Some(body) = wrapper(&module).and_then(|function| function.body.as_ref()) {
        match arrow::unwrap(&body.stmts, &text) {
            arrow::Unwrapped::No => {}
            arrow::Unwrapped::Refused(finding) => return Err(vec![finding]),
            arrow::Unwrapped::Body(unwrapped) => {
                text = unwrapped;
                module = parse_body(&text)?;
                survey::survey(&module, limits)?;
            }
        }
    }
    let program = strip::strip(&text)?;
    Ok(Parsed { module, program })
}

fn wrapper(module: &Module) -> Option<&Function> {
    match &module.body[..] {
        [ModuleItem::Stmt(Stmt::Decl(Decl::Fn(function)))] => Some(&function.function),
        _ => None,
    }
}

fn wrap(body: &str) -> String {
    [PREFIX, body, SUFFIX].concat()
}

/// Parses `text` as TypeScript; early errors count.
fn parse_module(text: &str, tsx: bool) -> Result<Module, Vec<swc_ecma_parser::error::Error>> {
    let syntax = Syntax::Typescript(TsSyntax { decorators: true, tsx, ..TsSyntax::default() });
    let input = StringInput::new(text, BytePos(1), BytePos(1 + text.len() as u32));
    let mut parser = Parser::new_from(Lexer::new(syntax, EsVersion::latest(), input, None));
    let parsed = parser.parse_module();
    let mut errors = parser.take_errors();
    match parsed {
        Ok(module) if errors.is_empty() => Ok(module),
        Ok(_) => Err(errors),
        Err(error) => {
            errors.push(error);
            Err(errors)
        }
    }
}

fn parse_body(text: &str) -> Result<Module, Vec<Finding>> {
    let wrapped = wrap(text);
    let module = parse_module(&wrapped, false).map_err(|found| errors::explain(found, text))?;
    // `} evil(); {` closes the wrapper and parses; the program must be inside of it.
    let whole =
        wrapper(&module).is_some_and(|function| function.span.hi.0 == 1 + wrapped.len() as u32);
    if whole {
        return Ok(module);
    }
    let end = match &module.body[..] {
        [first, ..] => offset(first.span().hi).saturating_sub(1),
        [] => 0,
    };
    Err(vec![Finding::new(
        Code::ParseError,
        end,
        "this `}` closes nothing; remove it, or open a block before it",
    )])
}

/// Returns the offset at which a span begins.
pub(crate) fn start(span: Span) -> u32 {
    offset(span.lo)
}
