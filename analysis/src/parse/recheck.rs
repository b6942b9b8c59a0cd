//! Parses the erased program again, as the engine will.

use swc_common::Spanned;

use super::errors::message;
use super::{javascript, parse_module, typescript};
use crate::diagnostic::{Code, Finding};
use crate::normal::Reading;
use crate::wrapper::{start, wrap, wrapper};

/// Checks that `program` is JavaScript and has the same meaning as the source with types.
///
/// The analysis follows the tree with types, but the engine runs the text without
/// them. This detects an eraser that joins two statements or leaves an extra one.
pub(super) fn recheck(program: &str, typed: &Reading) -> Result<(), Vec<Finding>> {
    let module = parse_module(&wrap(program), javascript()).map_err(|found| {
        let first = found.first();
        let offset = first.map_or(0, |error| start(error.span()));
        let reason = first.map_or_else(String::new, |error| message(error.kind()));
        let message = format!("the program is not valid JavaScript: {reason}");
        vec![Finding::new(Code::ParseError, offset, message)]
    })?;
    let erased = wrapper(&module).map(Reading::without_meanings);
    if let Some(place) = differs(typed, erased) {
        let message = "this changes its meaning when its types are erased; write a `;` before it, or write it without types";
        return Err(vec![Finding::new(Code::UnsupportedSyntax, place, message)]);
    }
    if !has_angles(program) {
        return Ok(());
    }
    // Another tool may parse the text as TypeScript; it must mean the same there.
    let module = parse_module(&wrap(program), typescript(false)).ok();
    let again = module.as_ref().and_then(wrapper).map(Reading::without_meanings);
    match differs(typed, again) {
        Some(place) => {
            let message = "without its types, this could be parsed as type arguments; put its comparisons in parentheses";
            Err(vec![Finding::new(Code::UnsupportedSyntax, place, message)])
        }
        None => Ok(()),
    }
}

/// Returns the offset at which two readings differ; 0 if there is no second one.
fn differs(one: &Reading, other: Option<Reading>) -> Option<u32> {
    other.map_or(Some(0), |other| one.differs_at(&other))
}

/// Returns whether a `<` is followed by a `>`, as around type arguments.
fn has_angles(program: &str) -> bool {
    let after = program.split_once('<').map_or("", |(_, after)| after);
    after.match_indices('>').any(|(at, _)| !after[..at].ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::super::typescript;
    use super::*;

    fn reading(source: &str) -> Reading {
        let module = parse_module(&wrap(source), typescript(false)).unwrap();
        Reading::of(wrapper(&module).unwrap())
    }

    /// A change of meaning is reported at the statement where it begins.
    #[test]
    fn refuses_erasure_that_changes_the_meaning() {
        for (typed, erased, offset) in [
            ("a as any\n;(b)", "a       \n (b)", 0),
            ("x; type A = 1\n;(b)", "x;           \n;(c)", 15),
            ("f<A>(b)", "f<A>(b)", 0),
            ("a! ; b", "a! ; b", 1),
            ("let a: b", "let a, b", 0),
            ("class A { a?: b }", "class A { a;b  }", 0),
            ("if (a) type B = 1; else c", "if (a)           ; d     ", 0),
            ("x; a < b as T > (c)", "x; a < b      > (c)", 3),
            ("f(a < b as T, c > (d))", "f(a < b     , c > (d))", 0),
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
