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
    let erased = wrapper(&module).map(Reading::without_meanings);
    match erased.map(|erased| typed.differs_at(&erased)) {
        Some(None) => Ok(()),
        place => Err(vec![Finding::new(
            Code::UnsupportedSyntax,
            place.flatten().unwrap_or(0),
            "this means something else once its types are erased; write a `;` before it, or write it without types",
        )]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::typescript;
    use super::*;

    fn reading(source: &str) -> Reading {
        let module = parse_module(&wrap(source), typescript(false)).unwrap();
        Reading::of(wrapper(&module).unwrap())
    }

    /// What a wrong eraser could leave is told at the statement where it begins.
    #[test]
    fn another_meaning_is_refused() {
        for (typed, erased, offset) in [
            ("a as any\n;(b)", "a       \n (b)", 0),
            ("x; type A = 1\n;(b)", "x;           \n;(c)", 15),
            ("f<A>(b)", "f<A>(b)", 0),
            ("a! ; b", "a! ; b", 1),
            ("let a: b", "let a, b", 0),
            ("class A { a?: b }", "class A { a;b  }", 0),
            ("if (a) type B = 1; else c", "if (a)           ; d     ", 0),
        ] {
            let refused = recheck(erased, &reading(typed)).expect_err(typed);
            assert_eq!(refused[0].offset, offset, "{typed}: {refused:?}");
        }
        for (typed, erased) in [
            ("a as any\n;(b)", "a       \n;(b)"),
            ("f<A>(b)", "f   (b)"),
            ("class A { declare a: b; c!: d }", "class A {              ; c    }"),
            ("a!.b!?.c", "a .b ?.c"),
            ("function f(): void; function f(this: A, b?: C) {}", "function f(b) {}"),
        ] {
            assert_eq!(recheck(erased, &reading(typed)), Ok(()), "{typed}");
        }
    }
}
