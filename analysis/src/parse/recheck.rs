//! What runs is read once more, as the engine reads it.

use swc_common::Spanned;

use super::{javascript, parse_module, start, wrap, wrapper};
use crate::diagnostic::{Code, Finding};
use crate::normal::Reading;

/// Checks that `program` is JavaScript and means what was read with its types.
///
/// The analysis follows the tree with types, the engine runs the text without
/// them: an eraser that joins two statements, or leaves one more, is found here.
pub(super) fn recheck(program: &str, typed: &Reading) -> Result<(), Vec<Finding>> {
    let module = parse_module(&wrap(program), javascript()).map_err(|found| {
        let first = found.first();
        let offset = first.map_or(0, |error| start(error.span()));
        let message = first.map_or_else(String::new, |error| error.kind().msg().into_owned());
        let message = format!("the program is not valid JavaScript: {message}");
        vec![Finding::new(Code::ParseError, offset, message)]
    })?;
    let erased = wrapper(&module).map(Reading::of);
    match erased.map(|erased| typed.differs_at(&erased)) {
        Some(None) => Ok(()),
        place => Err(vec![Finding::new(
            Code::UnsupportedSyntax,
            place.flatten().unwrap_or(0),
            "this means something else once its types are erased; write a `;` before it, or write it without types",
        )]),
    }
}
