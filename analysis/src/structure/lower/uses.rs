//! Records uses of values that are mistakes if the value is a promise.

use super::super::core::{Text, Use};
use super::stmt::bounds;
use super::*;

impl Lower {
    /// Records the source text of a slot's value.
    pub(super) fn set_source_text(&mut self, slot: Slot, span: Span) {
        self.set_text(slot, Text::Written(bounds(span)));
    }

    pub(super) fn set_text(&mut self, slot: Slot, text: Text) {
        if let Some(variable) = self.frame().variables.get_mut(slot as usize) {
            variable.text = text;
        }
    }

    /// Records the source text of a slot's value, if none is known.
    pub(super) fn set_text_if_unknown(&mut self, slot: Slot, span: Span) {
        if let Some(variable) = self.frame().variables.get_mut(slot as usize)
            && variable.text == Text::Unknown
        {
            variable.text = Text::Written(bounds(span));
        }
    }

    pub(super) fn copy_text(&mut self, slot: Slot, other: Slot) {
        let text = self.frame().variables.get(other as usize).map(|variable| variable.text);
        self.set_text(slot, text.unwrap_or_default());
    }

    /// Records a use of an expression whose value is in a slot.
    pub(super) fn record_use(&mut self, expr: &ast::Expr, of: Slot, how: Use) {
        if !self.is_no_promise(expr) {
            self.emit(expr.span(), Op::Take { of, how });
        }
    }

    /// Lowers a condition.
    pub(super) fn condition(&mut self, test: &ast::Expr) -> Slot {
        let cond = self.expr(test);
        self.record_use(test, cond, Use::Condition);
        cond
    }

    /// Lowers an item of a list or an argument, which may be spread.
    pub(super) fn item(&mut self, item: &ast::ExprOrSpread) -> Slot {
        let slot = self.expr(&item.expr);
        if item.spread.is_some() {
            self.record_use(&item.expr, slot, Use::Spread);
        }
        slot
    }

    pub(super) fn record_member_use(&mut self, expr: &ast::Expr, object: Slot, key: &Key) {
        let is_of_promises = |name: &Atom| {
            matches!(&**name, "then" | "catch" | "finally" | "constructor")
                || name.starts_with(['#', '@', '%'])
        };
        if !matches!(key, Key::Name(name) if is_of_promises(name)) {
            self.record_use(expr, object, Use::Field(key.clone()));
        }
    }

    /// Records that a property is read without being called.
    pub(super) fn record_read(&mut self, key: &Key) {
        self.frame().asks_for_promises |= matches!(key, Key::Name(name) if &**name == "then");
    }

    /// Records the uses of both operands of an operator; the left one may not be an expression.
    pub(super) fn record_operands(
        &mut self,
        op: ast::BinaryOp,
        (left, one): (Option<&ast::Expr>, Slot),
        (right, other): (&ast::Expr, Slot),
    ) {
        use ast::BinaryOp as B;
        let is_promise = |expr: &ast::Expr| matches!(bare(expr), ast::Expr::Ident(name) if &*name.sym == "Promise");
        self.frame().asks_for_promises |= op == B::InstanceOf && is_promise(right);
        let (first, second) = match op {
            B::InstanceOf => (None, None),
            B::EqEqEq | B::NotEqEq | B::EqEq | B::NotEq => (
                Some(Use::Comparison { with: Some(other) }),
                Some(Use::Comparison { with: Some(one) }),
            ),
            B::Add => (Some(Use::Text), Some(Use::Text)),
            B::In => (None, Some(Use::Operand)),
            _ => (Some(Use::Operand), Some(Use::Operand)),
        };
        match (left, first) {
            (Some(left), Some(how)) => self.record_use(left, one, how),
            (None, Some(how)) => self.emit(right.span(), Op::Take { of: one, how }),
            (_, None) => {}
        }
        if let Some(how) = second {
            self.record_use(right, other, how);
        }
    }

    /// Records that the value of an expression statement is unused.
    pub(super) fn record_unused(&mut self, expr: &ast::Expr, of: Slot) {
        let inner = bare(expr);
        // In `new Promise(…)`, a call that passes on its failure is reported through the new promise.
        let is_forwarded = self.frame().is_executor && handles_failure(inner);
        if !is_forwarded && !matches!(inner, ast::Expr::Assign(_)) {
            let chosen = matches!(inner, ast::Expr::Bin(_));
            let is_choice = |op: ast::BinaryOp| {
                use ast::BinaryOp as B;
                matches!(op, B::LogicalAnd | B::LogicalOr | B::NullishCoalescing)
            };
            if !matches!(inner, ast::Expr::Bin(binary) if !is_choice(binary.op)) {
                self.emit(expr.span(), Op::Take { of, how: Use::Dropped { chosen } });
            }
        }
    }

    /// Records the executor of `new Promise(…)`.
    pub(super) fn record_executor(&mut self, new: &ast::NewExpr) {
        let is_promise = matches!(bare(&new.callee), ast::Expr::Ident(name) if &*name.sym == "Promise")
            && self.lookup(&"Promise".into()).is_none();
        if let (true, Some(executor)) = (is_promise, new.args.iter().flatten().next()) {
            self.executors.push(offset(bare(&executor.expr).span().lo));
        }
    }

    /// Returns whether an expression can be neither a promise nor a list of promises.
    fn is_no_promise(&mut self, expr: &ast::Expr) -> bool {
        use ast::BinaryOp as B;
        match bare(expr) {
            ast::Expr::Lit(_)
            | ast::Expr::Tpl(_)
            | ast::Expr::Fn(_)
            | ast::Expr::Arrow(_)
            | ast::Expr::Class(_)
            | ast::Expr::Object(_)
            | ast::Expr::Unary(_)
            | ast::Expr::Update(_)
            | ast::Expr::This(_) => true,
            ast::Expr::Bin(binary) => {
                !matches!(binary.op, B::LogicalAnd | B::LogicalOr | B::NullishCoalescing)
            }
            ast::Expr::Ident(name) => {
                matches!(
                    &*name.sym,
                    "mcp" | "args" | "JSON" | "Math" | "Object" | "Promise" | "console"
                ) && self.lookup(&name.sym).is_none()
            }
            _ => false,
        }
    }
}

/// Returns whether an expression is `p.catch(f)` or `p.then(f, g)`, which in `new Promise(…)` forwards the outcome of
/// the call.
fn handles_failure(expr: &ast::Expr) -> bool {
    let ast::Expr::Call(call) = expr else { return false };
    let ast::Callee::Expr(callee) = &call.callee else { return false };
    let ast::Expr::Member(member) = bare(callee) else { return false };
    match &member.prop {
        ast::MemberProp::Ident(name) => match &*name.sym {
            "catch" => !call.args.is_empty(),
            "then" => call.args.len() > 1,
            "finally" => handles_failure(bare(&member.obj)),
            _ => false,
        },
        _ => false,
    }
}
