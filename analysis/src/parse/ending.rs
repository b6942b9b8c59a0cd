//! A program without a `return` gives the value of its final expression.
//!
//! The tree gets a `return await (…)` where the author wrote an expression, so that all who read the
//! tree see what runs; the text gets it in [`write`]. The value is that of the last statement, functions and
//! types aside; of an `if` or a `try` it is the last statement of each way through it.

use swc_common::util::take::Take;
use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    ArrowExpr, AwaitExpr, BlockStmt, Class, Decl, Expr, Function, FunctionBody, ReturnStmt, Stmt,
};
use swc_ecma_visit::{Visit, VisitWith};

use super::{offset, start};
use crate::diagnostic::{Code, Finding};

/// What is put before the expression; the sandbox takes it out of the columns that it tells.
pub(crate) const RETURN: &str = "return await (";

/// Makes the final expressions of a program what it returns; `None` if it has a `return` of its own.
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

/// Returns the last statement that does something; functions and types are there before all others.
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
            // A chain is longer than a stack is deep.
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
        // It is there to set a variable, as its sisters on the other ways are.
        Stmt::Expr(only) if matches!(*only.expr, Expr::Assign(_) | Expr::Update(_)) => {}
        branch => end_statement(branch, spans),
    }
}

fn end_block(block: &mut BlockStmt, spans: &mut Vec<Span>) {
    if let Some(last) = last(&mut block.stmts) {
        end_branch(last, spans);
    }
}

/// Refuses `{ a, b }` and `{ a: 1 }` at the end: they read like objects and are blocks.
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
    let message = "this is a block and not an object; write `return { … }`";
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
    // An expression has none but in functions.
    fn visit_expr(&mut self, _: &Expr) {}
}

/// Writes the `return`s into the erased text, and returns where they stand in it.
///
/// The text has as many characters as the source before each of them.
pub(super) fn write(source: &str, program: &str, spans: &[Span]) -> (String, Vec<u32>) {
    let mut out = String::with_capacity(program.len() + spans.len() * (RETURN.len() + 1));
    let mut returns = Vec::with_capacity(spans.len());
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

/// Returns the offset without the `return`s that were put in before it.
pub(super) fn unwritten(offset: u32, returns: &[u32]) -> u32 {
    let before = returns.iter().take_while(|at| **at < offset).count() as u32;
    // Each but the last that is open has its closing bracket, too.
    offset.saturating_sub(before * RETURN.len() as u32 + before.saturating_sub(1))
}
