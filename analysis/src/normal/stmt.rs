//! The form of statements.

use swc_common::Spanned;
use swc_ecma_ast::{Decl, ForHead, Ident, Stmt, TryStmt, VarDecl, VarDeclKind, VarDeclOrExpr};

use super::Writer;
use super::scope::{bound_by, declared_by, hoisted, lexical};

impl<'a> Writer<'a> {
    /// Writes the statements of the program itself.
    pub(super) fn program(&mut self, statements: &'a [Stmt]) {
        self.scope(
            || hoisted(statements).into_iter().chain(lexical(statements)),
            |writer| {
                for statement in statements {
                    let start = crate::wrapper::start(statement.span());
                    writer.statements.push((writer.out.len(), start));
                    writer.statement(statement);
                }
            },
        );
    }

    /// Writes the statements of a function's body. The scope of its parameters is open.
    pub(super) fn body(&mut self, statements: &'a [Stmt]) {
        // Labels around a function are not visible inside of it.
        let labels = std::mem::take(&mut self.labels);
        if let Some(scopes) = &mut self.scopes {
            scopes.open_body(hoisted(statements).into_iter().chain(lexical(statements)));
        }
        self.node("body", |writer| writer.list(statements));
        if let Some(scopes) = &mut self.scopes {
            scopes.close();
        }
        self.labels = labels;
    }

    fn list(&mut self, statements: &'a [Stmt]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    pub(super) fn block(&mut self, statements: &'a [Stmt]) {
        self.scope(
            || lexical(statements),
            |writer| writer.node("block", |writer| writer.list(statements)),
        );
    }

    /// Writes the body of a branch or loop; braces around it make no difference.
    fn nested(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Block(block) => self.block(&block.stmts),
            other => self.block(std::slice::from_ref(other)),
        }
    }

    fn statement(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Empty(_) => {}
            Stmt::Block(block) => self.block(&block.stmts),
            Stmt::Debugger(_) => self.node("debugger", |_| {}),
            Stmt::With(with) => self.node("with", |writer| {
                writer.expr(&with.obj);
                writer.nested(&with.body);
            }),
            Stmt::Return(back) => self.node("return", |writer| writer.maybe(back.arg.as_deref())),
            Stmt::Throw(thrown) => self.node("throw", |writer| writer.expr(&thrown.arg)),
            Stmt::Labeled(labeled) => self.node("label", |writer| {
                writer.labels.push(&labeled.label.sym);
                // `break` can leave a labelled block, so the block is kept.
                writer.statement(&labeled.body);
                writer.labels.pop();
            }),
            Stmt::Break(leave) => {
                self.node("break", |writer| writer.label(leave.label.as_ref()));
            }
            Stmt::Continue(again) => {
                self.node("continue", |writer| writer.label(again.label.as_ref()));
            }
            Stmt::If(choice) => self.node("if", |writer| {
                writer.expr(&choice.test);
                writer.nested(&choice.cons);
                if let Some(other) = &choice.alt {
                    match &**other {
                        // `else if` is the same as an `if` within an `else` block.
                        Stmt::If(_) => writer.node("block", |writer| writer.statement(other)),
                        _ => writer.nested(other),
                    }
                } else {
                    writer.absent();
                }
            }),
            Stmt::Switch(switch) => self.node("switch", |writer| {
                writer.expr(&switch.discriminant);
                let inside = || switch.cases.iter().flat_map(|case| lexical(&case.cons));
                writer.scope(inside, |writer| {
                    for case in &switch.cases {
                        writer.node("case", |writer| {
                            writer.maybe(case.test.as_deref());
                            writer.list(&case.cons);
                        });
                    }
                });
            }),
            Stmt::Try(tried) => self.node("try", |writer| writer.try_statement(tried)),
            Stmt::While(round) => self.node("while", |writer| {
                writer.expr(&round.test);
                writer.nested(&round.body);
            }),
            Stmt::DoWhile(round) => self.node("do", |writer| {
                writer.nested(&round.body);
                writer.expr(&round.test);
            }),
            Stmt::For(round) => self.node("for", |writer| {
                let names = || match &round.init {
                    Some(VarDeclOrExpr::VarDecl(declared)) => head_names(declared),
                    _ => Vec::new(),
                };
                writer.scope(names, |writer| {
                    match &round.init {
                        Some(VarDeclOrExpr::VarDecl(declared)) => writer.variables(declared),
                        Some(VarDeclOrExpr::Expr(value)) => writer.expr(value),
                        None => writer.absent(),
                    }
                    writer.maybe(round.test.as_deref());
                    writer.maybe(round.update.as_deref());
                    writer.nested(&round.body);
                });
            }),
            Stmt::ForIn(round) => self.node("for-in", |writer| {
                writer.for_each(&round.left, &round.right, &round.body);
            }),
            Stmt::ForOf(round) => {
                self.node(if round.is_await { "for-await" } else { "for-of" }, |writer| {
                    writer.for_each(&round.left, &round.right, &round.body);
                });
            }
            Stmt::Decl(declared) => self.declaration(declared),
            Stmt::Expr(value) => self.node("do-expr", |writer| writer.expr(&value.expr)),
        }
    }

    fn for_each(&mut self, head: &'a ForHead, over: &'a swc_ecma_ast::Expr, body: &'a Stmt) {
        let names = || match head {
            ForHead::VarDecl(declared) => head_names(declared),
            _ => Vec::new(),
        };
        self.scope(names, |writer| {
            match head {
                ForHead::VarDecl(declared) => writer.variables(declared),
                ForHead::UsingDecl(_) => writer.absent(),
                ForHead::Pat(pattern) => writer.pattern(pattern),
            }
            writer.expr(over);
            writer.nested(body);
        });
    }

    fn try_statement(&mut self, tried: &'a TryStmt) {
        self.block(&tried.block.stmts);
        match &tried.handler {
            Some(handler) => {
                let names = || {
                    let mut names = Vec::new();
                    handler.param.iter().for_each(|caught| bound_by(caught, &mut names));
                    names
                };
                self.scope(names, |writer| {
                    writer.maybe_pattern(handler.param.as_ref());
                    writer.block(&handler.body.stmts);
                });
            }
            None => self.absent(),
        }
        match &tried.finalizer {
            Some(block) => self.block(&block.stmts),
            None => self.absent(),
        }
    }

    fn label(&mut self, label: Option<&'a Ident>) {
        let Some(label) = label else { return };
        match self.labels.iter().rposition(|open| *open == &*label.sym) {
            Some(at) => self.word(&at.to_string()),
            None => self.text(&label.sym),
        }
    }

    fn declaration(&mut self, declared: &'a Decl) {
        match declared {
            Decl::Class(class) if !class.declare => {
                self.node("class-decl", |writer| {
                    writer.name(&class.ident.sym);
                    writer.names_function();
                    writer.class(&class.class);
                });
            }
            Decl::Fn(function) if function.function.body.is_some() => {
                self.node("function-decl", |writer| {
                    writer.name(&function.ident.sym);
                    writer.names_function();
                    writer.function(&function.function);
                });
            }
            Decl::Var(var) if !var.declare => self.variables(var),
            // `using` was refused; the others are erased.
            _ => {}
        }
    }

    fn variables(&mut self, declared: &'a VarDecl) {
        self.node(declared.kind.as_str(), |writer| {
            for declarator in &declared.decls {
                writer.node("is", |writer| {
                    writer.pattern(&declarator.name);
                    match &declarator.init {
                        Some(value) => {
                            if declarator.name.is_ident() {
                                writer.named_value(value);
                            } else {
                                writer.expr(value);
                            }
                        }
                        None => writer.absent(),
                    }
                });
            }
        });
    }
}

/// Returns the names that the head of a loop declares for each iteration.
fn head_names(declared: &VarDecl) -> Vec<&str> {
    let mut names = Vec::new();
    if declared.kind != VarDeclKind::Var {
        declared_by(declared, &mut names);
    }
    names
}
