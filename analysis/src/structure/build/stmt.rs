//! Statements, in evaluation order.

use swc_common::Spanned;
use swc_ecma_ast::{
    BlockStmt, Decl, Expr, IfStmt, Pat, Stmt, SwitchStmt, VarDecl, VarDeclKind, VarDeclOrExpr,
};

use super::Builder;
use super::control::{Exit, Writes};
use super::expr::{bare, bounds};
use super::finish::RoundKind;
use super::function::FuncBody;
use super::leave::FrameKind;
use super::path::Path;
use super::promise::Use;
use super::repeat::Iteration;
use super::rows::is_made_anew;
use super::scope::{ScopeKind, has_body, head_names, lexical_names};
use super::value::{Deps, Value};
use crate::parse;

impl<'a> Builder<'a> {
    /// Gives the functions that a block declares their values.
    pub(super) fn hoist_functions(&mut self, statements: &'a [Stmt]) {
        for statement in statements {
            let mut statement = statement;
            while let Stmt::Labeled(labeled) = statement {
                statement = &labeled.body;
            }
            if let Stmt::Decl(Decl::Fn(declared)) = statement
                && has_body(declared)
                && let Some(binding) = self.lookup(&declared.ident.sym)
            {
                let value = self.function(FuncBody::Function(&declared.function));
                self.write(binding, value);
            }
        }
    }

    /// Follows statements in the scope that is open.
    pub(super) fn statements(&mut self, statements: &'a [Stmt]) -> Exit {
        let before = self.control.clone();
        let mut exit = Exit::default();
        for statement in statements {
            let next = self.statement(statement);
            if !next.may() {
                continue;
            }
            exit.always |= next.always;
            exit.add(&next);
            // What follows is reached only if the jump was not taken.
            self.control.add(&next.deps);
            self.control.conditional = true;
        }
        self.control = before;
        exit
    }

    pub(super) fn block(&mut self, block: &'a BlockStmt) -> Exit {
        let scope = self.scope_at(block.span.lo.0, ScopeKind::Block, |names| {
            lexical_names(&block.stmts, names);
        });
        self.within(scope, |builder| {
            builder.hoist_functions(&block.stmts);
            builder.statements(&block.stmts)
        })
    }

    pub(super) fn statement(&mut self, statement: &'a Stmt) -> Exit {
        if self.fatal.is_some() {
            return Exit::default();
        }
        self.at = parse::start(statement.span());
        let (mut exit, thrown) = self.within_statement(|builder| {
            stacker::maybe_grow(256 * 1024, 16 * 1024 * 1024, || builder.statement_kind(statement))
        });
        if let Some(deps) = thrown {
            exit.throws = true;
            exit.deps.add(&deps);
        }
        exit
    }

    fn statement_kind(&mut self, statement: &'a Stmt) -> Exit {
        #[cfg(test)]
        if super::fault::skips_statement(statement) {
            return Exit::default();
        }
        match statement {
            // Nobody gets its value.
            Stmt::Expr(expr) => {
                let value = self.follow(&expr.expr);
                self.drops(&value, &expr.expr);
            }
            Stmt::Decl(declared) => self.declaration(declared),
            Stmt::Block(block) => return self.block(block),
            Stmt::If(choice) => return self.if_chain(choice),
            Stmt::Return(returned) => {
                if let Some(value) = &returned.arg {
                    let given = self.expr(value);
                    self.gives_back(value);
                    let func = self.func;
                    self.give_back(func, given);
                }
                self.leave_by_return();
                return Exit { returns: true, always: true, ..Exit::default() };
            }
            Stmt::Throw(thrown) => {
                let value = self.expr(&thrown.arg);
                self.escape(&value, "is thrown");
                self.leave_by_throw(&value.all_deps());
                return Exit { throws: true, always: true, ..Exit::default() };
            }
            Stmt::Break(jump) => {
                let labels = jump.label.iter().map(|label| label.sym.clone()).collect();
                let breaks = jump.label.is_none();
                self.leave_by_break(jump.label.as_ref().map(|label| &*label.sym));
                return Exit { breaks, labels, always: true, ..Exit::default() };
            }
            Stmt::Continue(jump) => {
                let labels = jump.label.iter().map(|label| label.sym.clone()).collect();
                let continues = jump.label.is_none();
                self.leave_by_continue(jump.label.as_ref().map(|label| &*label.sym));
                return Exit { continues, labels, always: true, ..Exit::default() };
            }
            Stmt::Labeled(labeled) => {
                let mut exit = Exit::default();
                let kind = FrameKind::Label(labeled.label.sym.clone());
                let _ = self.framed(kind, |builder| {
                    builder.region(|builder| {
                        exit = builder.statement(&labeled.body);
                        exit.deps.clone()
                    });
                });
                let before = exit.labels.len();
                exit.labels.retain(|label| **label != *labeled.label.sym);
                exit.always &= exit.labels.len() == before;
                return exit.settle();
            }
            Stmt::Switch(switch) => {
                return self.framed(FrameKind::Switch, |builder| builder.switch(switch)).0;
            }
            Stmt::Try(attempt) => return self.attempt(attempt),
            Stmt::While(repeat) => {
                return self.repeat(statement, Some(&repeat.test), true, None, &repeat.body);
            }
            Stmt::DoWhile(repeat) => {
                return self.repeat(statement, Some(&repeat.test), false, None, &repeat.body);
            }
            Stmt::For(repeat) => {
                let scope = self.scope_at(repeat.span.lo.0, ScopeKind::Head, |names| {
                    if let Some(VarDeclOrExpr::VarDecl(declared)) = &repeat.init {
                        head_names(declared, names);
                    }
                });
                return self.within(scope, |builder| {
                    match &repeat.init {
                        Some(VarDeclOrExpr::VarDecl(declared)) => builder.variables(declared),
                        Some(VarDeclOrExpr::Expr(expr)) => {
                            let _ = builder.expr(expr);
                        }
                        None => {}
                    }
                    let (test, update) = (repeat.test.as_deref(), repeat.update.as_deref());
                    builder.repeat(statement, test, true, update, &repeat.body)
                });
            }
            Stmt::ForOf(repeat) => {
                let kind = if repeat.is_await { Iteration::Awaited } else { Iteration::Items };
                return self.iterate(statement, &repeat.left, &repeat.right, &repeat.body, kind);
            }
            Stmt::ForIn(repeat) => {
                let kind = Iteration::Names;
                return self.iterate(statement, &repeat.left, &repeat.right, &repeat.body, kind);
            }
            Stmt::With(with) => {
                // Strict code has no `with`; the parser refuses it.
                let object = self.expr(&with.obj);
                self.escape(&object, "is opened by `with`");
                return self.statement(&with.body);
            }
            Stmt::Empty(_) | Stmt::Debugger(_) => {}
        }
        Exit::default()
    }

    fn declaration(&mut self, declared: &'a Decl) {
        match declared {
            Decl::Var(declared) => self.variables(declared),
            Decl::Class(class) if !class.declare => self.class_decl(class),
            Decl::Using(using) => {
                for declarator in &using.decls {
                    if let Some(value) = &declarator.init {
                        let value = self.expr(value);
                        self.escape(&value, "is declared by `using`");
                    }
                }
            }
            _ => {}
        }
    }

    fn variables(&mut self, declared: &'a VarDecl) {
        if declared.declare {
            return;
        }
        for declarator in &declared.decls {
            let value = match &declarator.init {
                Some(init) => {
                    let mut value = self.looked_at(init);
                    value.rows = value.rows.filter(|_| is_made_anew(declared.kind));
                    value
                }
                // `var x;` does not change what `x` holds.
                None if declared.kind == VarDeclKind::Var => continue,
                None => Value::undefined(),
            };
            let written = declarator.init.as_deref().map(|init| self.thawed(bare(init)));
            match (&declarator.name, written) {
                (Pat::Ident(name), Some(Expr::Array(_) | Expr::Object(_)))
                    if let Some(binding) = self.lookup(&name.id.sym) =>
                {
                    self.at = parse::start(name.id.span);
                    self.write(binding, value);
                    if let Some(init) = declarator.init.as_deref() {
                        self.alias(binding, init, &Path::default());
                    }
                }
                _ => {
                    if let Some(init) = declarator.init.as_deref() {
                        self.alias_pattern(&declarator.name, init, &Path::default());
                    }
                    self.bind(&declarator.name, value);
                }
            }
        }
    }

    /// Follows `if … else if … else …` without recursion along the chain.
    fn if_chain(&mut self, first: &'a IfStmt) -> Exit {
        let before = (self.control.clone(), self.parent, self.branch.clone());
        let mut exit = Exit::default();
        let mut ends: Vec<Writes> = Vec::new();
        let mut deps = Deps::default();
        let mut always = true;
        let mark = self.trail.len();
        let mut choice = first;
        loop {
            self.at = parse::start(choice.span);
            let test = self.expr(&choice.test);
            self.takes(&test, Use::Condition);
            let span = bounds(choice.test.span());
            let test = test.all_deps();
            deps.add(&test);
            let decision = self.add_node(RoundKind::Decision { test: span, deps: test.clone() });
            self.parent = Some(decision);
            self.branch = None;
            self.control.add(&test);
            self.control.conditional = true;
            let (then, writes) = self.branch(|b| b.way("then", |b| b.statement(&choice.cons)));
            exit.add(&then);
            always &= then.always;
            if !then.always {
                // Tests further up the chain may have written, too.
                ends.push(self.with_writes_since(mark, writes));
            }
            match choice.alt.as_deref() {
                Some(Stmt::If(next)) => {
                    self.branch = Some("else".into());
                    choice = next;
                }
                Some(last) => {
                    let (last, writes) = self.branch(|b| b.way("else", |b| b.statement(last)));
                    exit.add(&last);
                    always &= last.always;
                    if !last.always {
                        ends.push(self.with_writes_since(mark, writes));
                    }
                    break;
                }
                None => {
                    always = false;
                    ends.push(self.with_writes_since(mark, Writes::default()));
                    break;
                }
            }
        }
        (self.control, self.parent, self.branch) = before;
        self.merge(ends, &deps);
        exit.always = always;
        if exit.may() {
            exit.deps.add(&deps);
        }
        exit.settle()
    }

    /// Adds to a branch's writes those that the tests before it made.
    fn with_writes_since(&self, mark: usize, mut writes: Writes) -> Writes {
        for (binding, _) in &self.trail[mark.min(self.trail.len())..] {
            let now = self.env[*binding as usize].clone();
            writes.entry(*binding).or_insert(now);
        }
        writes
    }

    fn switch(&mut self, switch: &'a SwitchStmt) -> Exit {
        let value = self.expr(&switch.discriminant);
        self.takes(&value, Use::Comparison);
        let deps = value.all_deps();
        let span = bounds(switch.discriminant.span());
        let kind = RoundKind::Decision { test: span, deps: deps.clone() };
        let scope = self.scope_at(switch.span.lo.0, ScopeKind::Block, |names| {
            for case in &switch.cases {
                lexical_names(&case.cons, names);
            }
        });
        let mut exit = Exit::default();
        self.region(|builder| {
            let mut deps = deps.clone();
            builder.within(scope, |builder| {
                for case in &switch.cases {
                    builder.hoist_functions(&case.cons);
                }
                builder.node(kind, |builder| {
                    for (index, case) in switch.cases.iter().enumerate() {
                        let test = match &case.test {
                            Some(test) => builder.way("test", |b| {
                                b.under(&deps, index > 0, false, |b| b.expr(test)).all_deps()
                            }),
                            None => Deps::default(),
                        };
                        deps.add(&test);
                        let name = match &case.test {
                            Some(_) => format!("case {}", index + 1),
                            None => "default".into(),
                        };
                        // A case begins where it is chosen, or where the last one falls through.
                        let (ends, _) = builder.branch(|builder| {
                            builder.see_region_writes();
                            if case.test.is_none() {
                                // All tests come before it, also those that stand after it.
                                builder.see_carried_writes(switch.span.lo.0);
                            }
                            builder.way(&name, |builder| {
                                builder.under(&deps, true, false, |b| b.statements(&case.cons))
                            })
                        });
                        exit.add(&ends);
                    }
                });
            });
            builder.carry_writes(switch.span.lo.0);
            deps
        });
        exit.breaks = false;
        exit.deps.add(&deps);
        exit.settle()
    }
}
