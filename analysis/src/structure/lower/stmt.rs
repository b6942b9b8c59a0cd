//! Statements.

use super::super::core::{Appearance, Branch, Mark, Use};
use super::*;

impl Lower {
    pub(super) fn statements(&mut self, statements: &[ast::Stmt]) {
        for statement in statements {
            self.declare_statement(statement);
        }
        let Some(first) = statements.first() else { return };
        self.with_dead_zones(first.span(), |lower| {
            for statement in statements {
                lower.named_body(declared_name(statement), |lower| lower.hoist(statement));
            }
            for statement in statements {
                lower.statement(statement);
            }
        });
    }

    /// Lowers a function declaration, which takes effect at the start of its block.
    fn hoist(&mut self, statement: &ast::Stmt) {
        if let ast::Stmt::Decl(ast::Decl::Fn(declared)) = statement
            && declared.function.body.is_some()
        {
            let (name, span) = (&declared.ident.sym, declared.function.span);
            let func = self.function_of(&declared.function, FuncForm::Plain, |_| {});
            let from = self.closure(span, func);
            self.declaring(true, |lower| lower.write(span, name, from));
        }
    }

    /// Lowers a function that only its name gives access to.
    fn named_body<T>(&mut self, name: Option<&Atom>, make: impl FnOnce(&mut Self) -> T) -> T {
        let Some(slot) = name.and_then(|name| self.frame().own(name)) else { return make(self) };
        let around = self.frame().zones.begin_body(slot);
        let made = make(self);
        self.frame().zones.end_body(around);
        made
    }

    fn declare_statement(&mut self, statement: &ast::Stmt) {
        match statement {
            ast::Stmt::Decl(ast::Decl::Fn(declared)) if declared.function.body.is_some() => {
                self.frame().declare(&declared.ident.sym);
            }
            ast::Stmt::Decl(ast::Decl::Class(declared)) if !declared.declare => {
                let slot = self.frame().declare(&declared.ident.sym);
                self.frame().zones.begin(slot..slot + 1);
            }
            ast::Stmt::Decl(ast::Decl::Var(declared))
                if declared.kind != ast::VarDeclKind::Var && !declared.declare =>
            {
                let first = self.frame().slots;
                declared.decls.iter().for_each(|one| self.declare_pattern(&one.name, false));
                let frame = self.frame();
                if declared.kind == ast::VarDeclKind::Const {
                    frame.constants.extend(first..frame.slots);
                }
                frame.zones.begin(first..frame.slots);
            }
            ast::Stmt::Decl(ast::Decl::Using(declared)) => {
                let first = self.frame().slots;
                declared.decls.iter().for_each(|one| self.declare_pattern(&one.name, false));
                let frame = self.frame();
                frame.zones.begin(first..frame.slots);
            }
            _ => {}
        }
    }

    pub(super) fn nested(&mut self, statements: &[ast::Stmt]) {
        self.scoped(|lower| lower.statements(statements));
    }

    /// Lowers a single statement as the body of a branch or loop.
    pub(super) fn inner(&mut self, statement: &ast::Stmt) {
        self.scoped(|lower| {
            lower.declare_statement(statement);
            lower.statement(statement);
        });
    }

    pub(super) fn statement(&mut self, statement: &ast::Stmt) {
        use ast::Stmt;
        let span = statement.span();
        let labels = if matches!(statement, Stmt::Labeled(_)) {
            Vec::new()
        } else {
            std::mem::take(&mut self.frame().pending)
        };
        match statement {
            Stmt::Block(block) if labels.is_empty() => self.nested(&block.stmts),
            Stmt::Block(block) => {
                self.leavable(span, labels, false, |lower| lower.nested(&block.stmts));
            }
            Stmt::Empty(_) | Stmt::Debugger(_) => {}
            Stmt::With(with) => {
                let of = vec![self.expr(&with.obj)];
                let to = self.fresh();
                self.emit(span, Op::Unknown { to, of });
                self.inner(&with.body);
            }
            Stmt::Return(value) => {
                let from = match &value.arg {
                    Some(value) => self.awaited_result(value),
                    None => self.undefined(span),
                };
                self.emit(span, Op::Copy { to: RESULT, from });
                self.emit(span, Op::Jump { to: WHOLE });
            }
            Stmt::Labeled(labeled) => {
                self.frame().pending.push(labeled.label.sym.clone());
                self.statement(&labeled.body);
                self.frame().pending.clear();
            }
            Stmt::Break(leave) => self.leave(span, leave.label.as_ref(), false),
            Stmt::Continue(leave) => self.leave(span, leave.label.as_ref(), true),
            Stmt::If(_) if !labels.is_empty() => {
                self.leavable(span, labels, false, |lower| lower.statement(statement));
            }
            Stmt::If(choice) => {
                let cond = self.condition(&choice.test);
                let (then, ()) = self.block(|lower| lower.inner(&choice.cons));
                let (other, ()) = self.block(|lower| {
                    if let Some(alt) = &choice.alt {
                        lower.inner(alt);
                    }
                });
                let test = bounds(choice.test.span());
                self.emit(
                    span,
                    Op::If { cond, then, other, appears: Appearance::Decision { test } },
                );
            }
            Stmt::Switch(switch) => {
                self.leavable(span, labels, true, |lower| lower.switch(switch));
            }
            Stmt::Throw(thrown) => {
                let from = self.fresh();
                let (mut body, ()) = self.block(|lower| lower.value_to(&thrown.arg, from));
                // If the operand has no other effect, a failure in it leads to the same place as the `throw`.
                if is_quiet(&body, from) {
                    self.emit(span, Op::Doomed { body });
                } else {
                    self.frame().out.append(&mut body);
                }
                self.emit(span, Op::Throw { from });
            }
            Stmt::Try(attempt) if !labels.is_empty() => {
                self.leavable(span, labels, false, |lower| lower.attempt(attempt));
            }
            Stmt::Try(attempt) => self.attempt(attempt),
            Stmt::While(_) | Stmt::DoWhile(_) | Stmt::For(_) | Stmt::ForIn(_) | Stmt::ForOf(_) => {
                self.looped(statement, labels);
            }
            Stmt::Decl(declared) => self.declaration(declared),
            Stmt::Expr(value) => {
                let slot = self.expr(&value.expr);
                self.record_unused(&value.expr, slot);
            }
        }
    }

    fn declaration(&mut self, declared: &ast::Decl) {
        match declared {
            ast::Decl::Var(declared) if !declared.declare => self.declared(declared),
            ast::Decl::Class(declared) if !declared.declare => {
                let from = self.class(&declared.class, Some(&declared.ident.sym));
                self.declaring(true, |lower| {
                    lower.write(declared.class.span, &declared.ident.sym, from);
                });
            }
            ast::Decl::Using(declared) => {
                for one in &declared.decls {
                    let Some(value) = &one.init else { continue };
                    let from = self.expr(value);
                    self.declaring(true, |lower| lower.bind(&one.name, from));
                    let to = self.fresh();
                    self.emit(one.span, Op::Unknown { to, of: vec![from] });
                }
            }
            // The rest is erased, or was refused by the parser.
            _ => {}
        }
    }

    pub(super) fn declared(&mut self, declared: &ast::VarDecl) {
        for one in &declared.decls {
            let from = match &one.init {
                Some(value) => self.initial(&one.name, value),
                None if declared.kind == ast::VarDeclKind::Var => continue,
                None => self.undefined(one.span),
            };
            self.declaring(true, |lower| lower.bind(&one.name, from));
        }
    }

    /// Lowers the initial value of a variable.
    fn initial(&mut self, pattern: &ast::Pat, value: &ast::Expr) -> Slot {
        match (pattern, bare(value)) {
            (ast::Pat::Ident(name), ast::Expr::Arrow(_) | ast::Expr::Fn(_)) => {
                self.named_body(Some(&name.id.sym), |lower| lower.expr(value))
            }
            _ => self.expr(value),
        }
    }

    /// Runs `make`, whose writes of variables are their declarations, or are not.
    pub(super) fn declaring<T>(&mut self, declares: bool, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.declares, declares);
        let made = make(self);
        self.declares = before;
        made
    }

    /// Lowers a statement that `break` can leave.
    fn leavable(
        &mut self,
        span: Span,
        names: Vec<Atom>,
        plain: bool,
        make: impl FnOnce(&mut Self),
    ) {
        let exit = self.region();
        self.frame().labels.push(Label { names, exit, turn: None, plain });
        let first = self.frame().slots;
        let (body, ()) = self.block(make);
        let own = first..self.frame().slots;
        self.frame().labels.pop();
        self.emit(span, Op::Block { exit, own, body });
    }

    fn leave(&mut self, span: Span, label: Option<&ast::Ident>, turn: bool) {
        let labels = &self.frame().labels;
        let found = labels.iter().rev().find(|known| match label {
            Some(label) => known.names.contains(&label.sym),
            None if turn => known.turn.is_some(),
            None => known.plain,
        });
        let to =
            found.map(|label| if turn { label.turn.unwrap_or(label.exit) } else { label.exit });
        // The parser refuses a jump without a target.
        self.emit(span, Op::Jump { to: to.unwrap_or(WHOLE) });
    }

    fn switch(&mut self, switch: &ast::SwitchStmt) {
        let span = switch.span;
        let of = self.expr(&switch.discriminant);
        self.record_use(&switch.discriminant, of, Use::Comparison { with: None });
        let test = bounds(switch.discriminant.span());
        let (body, ()) = self.block(|lower| {
            lower.scoped(|lower| {
                let statements = || switch.cases.iter().flat_map(|case| &case.cons);
                statements().for_each(|one| lower.declare_statement(one));
                lower.with_dead_zones(span, |lower| {
                    // All cases share one scope, whichever of them runs. Their functions may be called where the
                    // variables of another case are not declared, so they count as used here.
                    statements().for_each(|one| lower.hoist(one));
                    lower.cases(span, of, &switch.cases);
                });
            });
        });
        self.emit(span, Op::Marked { mark: Mark::Decision { of, test }, body });
    }

    fn cases(&mut self, span: Span, of: Slot, cases: &[ast::SwitchCase]) {
        // All tests come before all bodies, since a body can fall through into the next.
        let mut matches = Vec::new();
        for case in cases {
            let Some(test) = &case.test else { continue };
            if is_plain(test) || matches.is_empty() {
                let value = self.branch(test.span(), Branch::Test, |lower| lower.expr(test));
                matches.push(self.compute(test.span(), Sum::Look, vec![of, value]));
                continue;
            }
            // It is only evaluated if no case before it matches.
            let is_match = self.constant(test.span(), Scalar::Bool(false));
            let cond = self.compute(test.span(), Sum::Look, matches.clone());
            let (other, ()) = self.block(|lower| {
                let value = lower.expr(test);
                let from = lower.compute(test.span(), Sum::Look, vec![of, value]);
                lower.emit(test.span(), Op::Copy { to: is_match, from });
            });
            let (then, appears) = (Block::new(), Appearance::Hidden);
            self.branch(test.span(), Branch::Test, |lower| {
                lower.emit(test.span(), Op::If { cond, then, other, appears });
            });
            matches.push(is_match);
        }
        // Whether an earlier case ran and fell through.
        let fell = self.constant(span, Scalar::Bool(false));
        let mut next = matches.iter();
        for (place, case) in cases.iter().enumerate() {
            // A case runs if it matches or the one before it fell through, `default` if no case matches.
            let mut why = vec![fell];
            match case.test {
                Some(_) => why.extend(next.next()),
                None => why.extend(&matches),
            }
            let cond = self.compute(case.span, Sum::Look, why);
            let (then, ()) = self.block(|lower| {
                let mark = lower.frame().zones.mark();
                case.cons.iter().for_each(|one| lower.statement(one));
                // The next case may run without this one, and so without its declarations.
                lower.frame().zones.reopen(mark);
                let from = lower.constant(case.span, Scalar::Bool(true));
                lower.emit(case.span, Op::Copy { to: fell, from });
            });
            let way = match case.test {
                Some(_) => Branch::Case(place as u32 + 1),
                None => Branch::Default,
            };
            self.emit(
                case.span,
                Op::If { cond, then, other: Block::new(), appears: Appearance::Way(way) },
            );
        }
    }

    fn attempt(&mut self, attempt: &ast::TryStmt) {
        let (body, ()) = self.block(|lower| lower.nested(&attempt.block.stmts));
        let handler = attempt.handler.as_ref().map(|handler| {
            self.scoped(|lower| {
                let error = lower.fresh();
                let (body, ()) = lower.block(|lower| {
                    if let Some(pattern) = &handler.param {
                        lower.declare_pattern(pattern, false);
                        lower.bind(pattern, error);
                    }
                    lower.nested(&handler.body.stmts);
                });
                (error, body)
            })
        });
        let finally = attempt
            .finalizer
            .as_ref()
            .map(|finalizer| self.block(|lower| lower.nested(&finalizer.stmts)).0);
        self.emit(attempt.span, Op::Try { body, handler, finally });
    }
}

/// Returns the name of a function declaration.
fn declared_name(statement: &ast::Stmt) -> Option<&Atom> {
    match statement {
        ast::Stmt::Decl(ast::Decl::Fn(declared)) => Some(&declared.ident.sym),
        _ => None,
    }
}

/// Returns whether evaluating an expression has no effect and cannot fail.
fn is_plain(expr: &ast::Expr) -> bool {
    match bare(expr) {
        ast::Expr::Lit(_) | ast::Expr::Ident(_) => true,
        ast::Expr::Unary(unary) => is_plain(&unary.arg),
        _ => false,
    }
}

/// Returns whether code has no effect except to compute a value in slots from `first` on; it may construct objects of
/// the engine's classes.
fn is_quiet(block: &Block, first: Slot) -> bool {
    let mut engine: Vec<Slot> = Vec::new();
    block.iter().all(|inst| match &inst.op {
        Op::Global { to, .. } => {
            engine.push(*to);
            true
        }
        Op::Get { to, object, .. } => {
            if engine.contains(object) {
                engine.push(*to);
            }
            true
        }
        Op::Call { callee, .. } => engine.contains(callee),
        Op::Copy { to, .. } => *to >= first,
        Op::Const { .. }
        | Op::Outer { .. }
        | Op::New { .. }
        | Op::Put { .. }
        | Op::Push { .. }
        | Op::Spread { .. }
        | Op::Make { .. }
        | Op::Compute { .. } => true,
        _ => false,
    })
}

/// Returns the byte offsets at which a span starts and ends.
pub(super) fn bounds(span: Span) -> (u32, u32) {
    (offset(span.lo), offset(span.hi))
}
