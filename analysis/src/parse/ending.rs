//! A program without a `return` returns the value of its final expression.
//!
//! In the tree, the final expression becomes `return await (…)`, so that everything that reads the tree
//! sees what runs; [`write`] makes the same change in the text. The value is that of the last statement, not
//! counting functions and types; for an `if` or a `try`, that of the last statement of each branch.

use swc_common::util::take::Take;
use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    ArrowExpr, AwaitExpr, BlockStmt, Class, Decl, Expr, Function, FunctionBody, ReturnStmt, Stmt,
};
use swc_ecma_visit::{Visit, VisitWith};

use crate::diagnostic::{Code, Finding};
use crate::wrapper::{offset, start};

/// The text inserted before the expression; the sandbox subtracts it from the columns that it reports.
pub(crate) const RETURN: &str = "return await (";

/// Makes the program return its final expressions and returns their spans; `None` if it has a top-level `return`.
pub(super) fn end(body: &mut FunctionBody) -> Result<Option<Vec<Span>>, Vec<Finding>> {
    let mut search = Search { found: false };
    body.stmts.visit_with(&mut search);
    if search.found {
        return Ok(None);
    }
    let mut spans = Vec::new();
    if let Some(last) = last(&mut body.stmts) {
        if let Some(finding) = meant_as_object(last) {
            return Err(vec![finding]);
        }
        end_statement(last, &mut spans);
    }
    spans.sort();
    Ok(Some(spans))
}

/// Returns the last statement that does something; functions are hoisted, and types are erased.
fn last(statements: &mut [Stmt]) -> Option<&mut Stmt> {
    statements.iter_mut().rev().find(|statement| {
        !matches!(
            statement,
            Stmt::Empty(_) | Stmt::Decl(Decl::Fn(_) | Decl::TsInterface(_) | Decl::TsTypeAlias(_))
        )
    })
}

fn end_statement(statement: &mut Stmt, spans: &mut Vec<Span>) {
    match statement {
        Stmt::Expr(last) => {
            let span = last.expr.span();
            spans.push(span);
            let arg = std::mem::replace(&mut last.expr, Take::dummy());
            let awaited = Box::new(Expr::Await(AwaitExpr { span, arg }));
            *statement = Stmt::Return(ReturnStmt { span: last.span, arg: Some(awaited) });
        }
        Stmt::If(choice) => {
            // A loop: an `else if` chain may be longer than the stack is deep.
            let mut choice = choice;
            loop {
                end_branch(&mut choice.cons, spans);
                match choice.alt.as_deref_mut() {
                    Some(Stmt::If(next)) => choice = next,
                    Some(otherwise) => return end_branch(otherwise, spans),
                    None => return,
                }
            }
        }
        Stmt::Try(attempt) => {
            end_block(&mut attempt.block, spans);
            if let Some(handler) = &mut attempt.handler {
                end_block(&mut handler.body, spans);
            }
        }
        _ => {}
    }
}

fn end_branch(branch: &mut Stmt, spans: &mut Vec<Span>) {
    match branch {
        Stmt::Block(block) => end_block(block, spans),
        // An assignment in a branch sets a variable; its value is not meant as a result.
        Stmt::Expr(only) if matches!(*only.expr, Expr::Assign(_) | Expr::Update(_)) => {}
        branch => end_statement(branch, spans),
    }
}

fn end_block(block: &mut BlockStmt, spans: &mut Vec<Span>) {
    if let Some(last) = last(&mut block.stmts) {
        end_branch(last, spans);
    }
}

/// Refuses `{ a, b }` and `{ a: 1 }` at the end: they look like objects but are blocks.
fn meant_as_object(last: &Stmt) -> Option<Finding> {
    let Stmt::Block(block) = last else { return None };
    let [only] = &block.stmts[..] else { return None };
    let is_object = match only {
        Stmt::Labeled(labeled) => matches!(*labeled.body, Stmt::Expr(_)),
        Stmt::Expr(only) => match &*only.expr {
            Expr::Ident(_) => true,
            Expr::Seq(sequence) => sequence.exprs.iter().all(|one| one.is_ident()),
            _ => false,
        },
        _ => false,
    };
    let message = "this is a block, not an object; write `return { … }`";
    is_object.then(|| Finding::new(Code::UnsupportedSyntax, start(block.span), message))
}

/// Looks for a `return` that belongs to the program itself.
struct Search {
    found: bool,
}

impl Visit for Search {
    fn visit_return_stmt(&mut self, _: &ReturnStmt) {
        self.found = true;
    }

    fn visit_function(&mut self, _: &Function) {}
    fn visit_arrow_expr(&mut self, _: &ArrowExpr) {}
    fn visit_class(&mut self, _: &Class) {}
    // In an expression, only functions contain statements.
    fn visit_expr(&mut self, _: &Expr) {}
}

/// Inserts the `return`s into the erased text, and returns their offsets in it.
///
/// Up to each of them, the erased text has as many characters as the source.
pub(super) fn write(source: &str, program: &str, spans: &[Span]) -> (String, Vec<u32>) {
    let mut out = String::with_capacity(program.len() + spans.len() * (RETURN.len() + 1));
    let mut returns = Vec::with_capacity(spans.len());
    // In ASCII, offsets in bytes and in characters are the same, which saves counting.
    let is_aligned = source.len() == program.len() && source.is_ascii();
    let mut rest = program;
    let mut passed = 0;
    let mut copy_until = |at: usize, out: &mut String| {
        let at = at.clamp(passed, source.len());
        let skipped = &source[passed..at];
        let count = if is_aligned { skipped.len() } else { skipped.chars().count() };
        let end = if is_aligned {
            count
        } else {
            rest.char_indices().nth(count).map_or(rest.len(), |(end, _)| end)
        };
        out.push_str(&rest[..end]);
        rest = &rest[end..];
        passed = at;
    };
    for span in spans {
        copy_until(offset(span.lo) as usize, &mut out);
        returns.push(out.len() as u32);
        out.push_str(RETURN);
        copy_until(offset(span.hi) as usize, &mut out);
        out.push(')');
    }
    copy_until(source.len(), &mut out);
    out.push_str(rest);
    (out, returns)
}

/// Converts an offset in the written text to one in the text without the inserted `return`s.
pub(super) fn without_returns(offset: u32, returns: &[u32]) -> u32 {
    let before = returns.iter().take_while(|at| **at < offset).count() as u32;
    // Every `return` before the last one also has its closing parenthesis before the offset.
    offset.saturating_sub(before * RETURN.len() as u32 + before.saturating_sub(1))
}
