//! Loops.

use super::super::core::{Appearance, Use};
use super::stmt::bounds;
use super::*;

impl Lower {
    pub(super) fn looped(&mut self, statement: &ast::Stmt, names: Vec<Atom>) {
        let (exit, turn) = (self.region(), self.region());
        self.frame().labels.push(Label { names, exit, turn: Some(turn), plain: true });
        self.scoped(|lower| match statement {
            ast::Stmt::While(looped) => {
                let (serial, around) = lower.frame().begin_loop();
                let test = Some(&*looped.test);
                lower.turns(statement, serial, (exit, turn), test, None, &looped.body);
                lower.frame().within = around;
            }
            ast::Stmt::For(looped) => {
                let (serial, around) = lower.frame().begin_loop();
                lower.frame().within = around;
                match &looped.init {
                    Some(ast::VarDeclOrExpr::VarDecl(declared)) => {
                        if declared.kind != ast::VarDeclKind::Var {
                            // Each iteration has its own copy, initialized from the previous iteration.
                            let first = lower.frame().slots as usize;
                            for one in &declared.decls {
                                lower.declare_pattern(&one.name, false);
                            }
                            for variable in &mut lower.frame().variables[first..] {
                                variable.per_turn = true;
                            }
                        }
                        lower.declared(declared);
                    }
                    Some(ast::VarDeclOrExpr::Expr(value)) => {
                        let _ = lower.expr(value);
                    }
                    None => {}
                }
                // The initializer above runs once, before the loop; everything below is in the loop.
                lower.frame().within = serial;
                let (test, update) = (looped.test.as_deref(), looped.update.as_deref());
                lower.turns(statement, serial, (exit, turn), test, update, &looped.body);
                lower.frame().within = around;
            }
            ast::Stmt::DoWhile(looped) => {
                let over = bounds(looped.test.span());
                let (serial, around) = lower.frame().begin_loop();
                let (body, ()) = lower.block(|lower| lower.inner(&looped.body));
                let (after, ()) = lower.block(|lower| lower.test(&looped.test, exit));
                lower.frame().within = around;
                let tests_last = true;
                lower.emit(
                    looped.span,
                    Op::Loop { serial, exit, turn, over, tests_last, body, after },
                );
            }
            ast::Stmt::ForIn(looped) => {
                let head = (&looped.left, &*looped.right);
                lower.each(looped.span, (exit, turn), head, &looped.body, true, false);
            }
            ast::Stmt::ForOf(looped) => {
                let head = (&looped.left, &*looped.right);
                lower.each(looped.span, (exit, turn), head, &looped.body, false, looped.is_await);
            }
            _ => {}
        });
        self.frame().labels.pop();
    }

    /// Leaves a loop unless its test holds.
    fn test(&mut self, test: &ast::Expr, exit: Region) {
        if matches!(bare(test), ast::Expr::Lit(ast::Lit::Bool(lit)) if lit.value) {
            return;
        }
        let cond = self.condition(test);
        let (other, ()) = self.block(|lower| lower.emit(test.span(), Op::Jump { to: exit }));
        self.emit(
            test.span(),
            Op::If { cond, then: Block::new(), other, appears: Appearance::Test },
        );
    }

    fn turns(
        &mut self,
        statement: &ast::Stmt,
        serial: u32,
        (exit, turn): (Region, Region),
        test: Option<&ast::Expr>,
        update: Option<&ast::Expr>,
        inner: &ast::Stmt,
    ) {
        let span = statement.span();
        let over = bounds(test.map_or(span, Spanned::span));
        let (body, ()) = self.block(|lower| {
            if let Some(test) = test {
                lower.test(test, exit);
            }
            lower.inner(inner);
        });
        let (after, ()) = self.block(|lower| {
            if let Some(update) = update {
                let _ = lower.expr(update);
            }
        });
        let tests_last = false;
        self.emit(span, Op::Loop { serial, exit, turn, over, tests_last, body, after });
    }

    fn each(
        &mut self,
        span: Span,
        (exit, turn): (Region, Region),
        (head, list): (&ast::ForHead, &ast::Expr),
        inner: &ast::Stmt,
        names: bool,
        waits: bool,
    ) {
        self.core.orders |= names;
        let of = self.expr(list);
        self.record_use(list, of, Use::List);
        let (serial, around) = self.frame().begin_loop();
        let item = self.fresh();
        self.copy_text(item, of);
        let (body, ()) = self.block(|lower| {
            match head {
                ast::ForHead::VarDecl(declared) => {
                    let is_var = declared.kind == ast::VarDeclKind::Var;
                    for one in &declared.decls {
                        lower.declare_pattern(&one.name, is_var);
                        lower.bind(&one.name, item);
                    }
                }
                ast::ForHead::UsingDecl(declared) => {
                    for one in &declared.decls {
                        lower.declare_pattern(&one.name, false);
                        lower.bind(&one.name, item);
                        let to = lower.fresh();
                        lower.emit(one.span, Op::Unknown { to, of: vec![item] });
                    }
                }
                ast::ForHead::Pat(pattern) => lower.bind(pattern, item),
            }
            lower.inner(inner);
        });
        self.frame().within = around;
        let over = bounds(list.span());
        self.emit(span, Op::Each { serial, exit, turn, of, item, names, waits, over, body });
    }
}
