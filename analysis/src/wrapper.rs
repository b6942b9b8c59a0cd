//! The function around a program, and positions within it.
//!
//! A program is parsed as the body of an async function, so that `await` and `return` are allowed at its top level.
//! The tree therefore counts positions from the wrapper's first byte; everything outside of the parser counts them
//! from the first byte of the source.

use swc_common::{BytePos, Span};
use swc_ecma_ast::{Decl, Function, Module, ModuleItem, Stmt};

/// The prefix that makes a program the body of a function.
pub(crate) const PREFIX: &str = "async function __program__(){";
/// The text that closes the function; on its own line, because the program may end with a line comment.
pub(crate) const SUFFIX: &str = "\n}";
/// The position of the program's first byte in the tree. SWC counts byte positions from 1.
pub(crate) const BODY_START: u32 = PREFIX.len() as u32 + 1;

/// Returns the text to parse for a program.
pub(crate) fn wrap(body: &str) -> String {
    [PREFIX, body, SUFFIX].concat()
}

/// Returns the function whose body is the program; `None` if the program closed it and continued behind it.
pub(crate) fn wrapper(module: &Module) -> Option<&Function> {
    match &module.body[..] {
        [ModuleItem::Stmt(Stmt::Decl(Decl::Fn(function)))] => Some(&function.function),
        _ => None,
    }
}

/// As [`wrapper`], to change it.
pub(crate) fn wrapper_mut(module: &mut Module) -> Option<&mut Function> {
    match &mut module.body[..] {
        [ModuleItem::Stmt(Stmt::Decl(Decl::Fn(function)))] => Some(&mut function.function),
        _ => None,
    }
}

/// Returns the byte offset in the source of a position in the tree.
pub(crate) fn offset(position: BytePos) -> u32 {
    position.0.saturating_sub(BODY_START)
}

/// Returns the offset at which a span begins.
pub(crate) fn start(span: Span) -> u32 {
    offset(span.lo)
}
