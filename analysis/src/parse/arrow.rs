//! A program that consists only of an arrow function is read as the body of that function.

use swc_common::Spanned;
use swc_ecma_ast::{ArrowFunctionBody, Expr, Stmt};

use crate::diagnostic::{Code, Finding};
use crate::wrapper::offset;

/// The result of looking for a program that is one function.
pub(super) enum Unwrapped {
    /// The program is not a single function.
    No,
    /// The function's body.
    Body(Body),
    /// The program is one function that cannot be read as a body.
    Refused(Finding),
}

/// A body with spaces in place of the function's head and tail.
pub(super) struct Body {
    /// The text; every byte before `inserted` keeps its offset.
    pub(super) text: String,
    /// The offset at which one character was added.
    pub(super) inserted: Option<usize>,
}

/// Replaces `async () => {` and its `}` by spaces; everything else keeps its position.
pub(super) fn unwrap(body: &[Stmt], text: &str) -> Unwrapped {
    let mut statements = body.iter().filter(|statement| !matches!(statement, Stmt::Empty(_)));
    let (Some(Stmt::Expr(only)), None) = (statements.next(), statements.next()) else {
        return Unwrapped::No;
    };
    let mut expression = &*only.expr;
    while let Expr::Paren(inner) = expression {
        expression = &inner.expr;
    }
    let whole = only.span();
    let begin = offset(whole.lo) as usize;
    let end = offset(whole.hi) as usize;
    let arrow = match expression {
        Expr::Arrow(arrow) => arrow,
        Expr::Fn(_) => {
            return Unwrapped::Refused(refusal(
                begin,
                "the program is a function that is never called; submit only its body",
            ));
        }
        _ => return Unwrapped::No,
    };
    if !arrow.params.is_empty() {
        return Unwrapped::Refused(refusal(
            begin,
            "the program is a function with parameters; submit only its body, and read the input from `args`",
        ));
    }
    let (inner_begin, inner_end, lead) = match &*arrow.body {
        ArrowFunctionBody::FunctionBody(block) => {
            (offset(block.span.lo) as usize + 1, offset(block.span.hi) as usize - 1, "")
        }
        ArrowFunctionBody::Expr(value) => {
            (offset(value.span().lo) as usize, offset(value.span().hi) as usize, "return (")
        }
    };
    let (Some(head), Some(tail)) = (text.get(begin..inner_begin), text.get(inner_end..end)) else {
        return Unwrapped::No;
    };
    // `lead` replaces as many plain characters, so that nothing else moves.
    let is_plain = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let room = (0..=head.len().saturating_sub(lead.len()))
        .find(|at| head.as_bytes().get(*at..at + lead.len()).is_some_and(is_plain));
    let Some(room) = room else {
        return Unwrapped::Refused(refusal(
            begin,
            "the program is a function that is never called; write `return` and the value instead",
        ));
    };
    let close = if lead.is_empty() { "" } else { ")" };
    let mut out = String::with_capacity(text.len() + close.len());
    out.push_str(&text[..begin]);
    blank(&head[..room], &mut out);
    out.push_str(lead);
    blank(&head[room + lead.len()..], &mut out);
    out.push_str(&text[inner_begin..inner_end]);
    out.push_str(close);
    blank(tail, &mut out);
    out.push_str(&text[end..]);
    Unwrapped::Body(Body { text: out, inserted: (!close.is_empty()).then_some(inner_end) })
}

fn refusal(at: usize, message: &str) -> Finding {
    Finding::new(Code::UnsupportedSyntax, at as u32, message)
}

/// Writes spaces in place of `text`, with the same number of bytes and of UTF-16 units, and keeps its line ends.
fn blank(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => out.push(character),
            _ => out.push_str(match character.len_utf8() {
                1 => " ",
                2 => "\u{a0}",
                3 => "\u{3000}",
                _ => "\u{a0}\u{a0}",
            }),
        }
    }
}
