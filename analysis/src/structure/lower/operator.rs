//! Operators, and assignments of all kinds.

use super::super::core::{Appearance, Use};
use super::pattern::Target;
use super::stmt::bounds;
use super::*;

impl Lower {
    pub(super) fn unary(&mut self, unary: &ast::UnaryExpr) -> Slot {
        let span = unary.span;
        match unary.op {
            ast::UnaryOp::Delete => {
                match bare(&unary.arg) {
                    ast::Expr::Member(member) => {
                        let (object, key) = self.member_parts(member);
                        self.emit(span, Op::Delete { object, key });
                    }
                    ast::Expr::OptChain(chain) => self.delete_in_chain(span, chain),
                    other => {
                        let _ = self.expr(other);
                    }
                }
                // In strict mode, `delete` returns `true` or throws.
                self.constant(span, Scalar::Bool(true))
            }
            ast::UnaryOp::Void => {
                let _ = self.expr(&unary.arg);
                self.undefined(span)
            }
            ast::UnaryOp::TypeOf => {
                let of = self.expr(&unary.arg);
                self.compute(span, Sum::Look, vec![of])
            }
            ast::UnaryOp::Bang => {
                let of = self.condition(&unary.arg);
                self.compute(span, Sum::Not, vec![of])
            }
            ast::UnaryOp::Minus | ast::UnaryOp::Plus | ast::UnaryOp::Tilde => {
                if let (ast::UnaryOp::Minus, ast::Expr::Lit(ast::Lit::Num(number))) =
                    (unary.op, bare(&unary.arg))
                {
                    return self.constant(span, Scalar::Number((-number.value).to_bits()));
                }
                let of = self.expr(&unary.arg);
                self.record_use(&unary.arg, of, Use::Operand);
                self.compute(span, Sum::Convert, vec![of])
            }
        }
    }

    pub(super) fn update(&mut self, update: &ast::UpdateExpr) -> Slot {
        let span = update.span;
        // The object and the key are evaluated once.
        let parts = match bare(&update.arg) {
            ast::Expr::Member(member) => Some(self.member_parts(member)),
            _ => None,
        };
        let before = match &parts {
            Some((object, key)) => {
                let to = self.fresh();
                let (object, key) = (*object, key.clone());
                self.emit(span, Op::Get { to, object, key, called: false });
                to
            }
            None => self.expr(&update.arg),
        };
        self.record_use(&update.arg, before, Use::Operand);
        let after = self.compute(span, Sum::Convert, vec![before]);
        match parts {
            Some((object, key)) => self.emit(span, Op::Set { object, key, from: after }),
            None => self.assign_to(&update.arg, after),
        }
        // A postfix operator returns the old value, converted to a number.
        if update.prefix { after } else { self.compute(update.span, Sum::Convert, vec![before]) }
    }

    pub(super) fn binary(&mut self, binary: &ast::BinExpr) -> Slot {
        use ast::BinaryOp as B;
        let span = binary.span;
        match binary.op {
            B::LogicalAnd | B::LogicalOr | B::NullishCoalescing => {
                let to = self.fresh();
                let left = self.expr(&binary.left);
                self.record_use(&binary.left, left, chooses(binary.op));
                self.emit(binary.left.span(), Op::Copy { to, from: left });
                let test = bounds(binary.left.span());
                self.otherwise(span, to, binary.op, test, |lower| {
                    lower.value_to(&binary.right, to)
                });
                to
            }
            op => {
                let left = self.expr(&binary.left);
                let right = self.expr(&binary.right);
                self.record_operands(op, (Some(&binary.left), left), (&binary.right, right));
                let how = match op {
                    B::Add => Sum::Add,
                    B::EqEqEq | B::NotEqEq => Sum::Look,
                    B::InstanceOf => Sum::Instance,
                    B::In => Sum::In,
                    _ => Sum::Convert,
                };
                self.compute(span, how, vec![left, right])
            }
        }
    }

    /// Lowers the right side of `&&`, `||` or `??`, which runs unless the left side in `value` decides.
    fn otherwise(
        &mut self,
        span: Span,
        value: Slot,
        op: ast::BinaryOp,
        test: (u32, u32),
        make: impl FnOnce(&mut Self),
    ) {
        let cond = match op {
            ast::BinaryOp::NullishCoalescing => self.compute(span, Sum::IsNothing, vec![value]),
            _ => value,
        };
        let (body, ()) = self.block(make);
        let appears = Appearance::Either { test };
        // On the other branch the result is the left value, narrowed by the test.
        let how = match op {
            ast::BinaryOp::LogicalOr => Sum::True,
            ast::BinaryOp::LogicalAnd => Sum::False,
            _ => Sum::There,
        };
        let of = vec![value];
        let (kept, ()) = self.block(|lower| lower.emit(span, Op::Compute { to: value, how, of }));
        let (then, other) = match op {
            ast::BinaryOp::LogicalOr => (kept, body),
            _ => (body, kept),
        };
        self.emit(span, Op::If { cond, then, other, appears });
    }

    pub(super) fn assign(&mut self, assign: &ast::AssignExpr) -> Slot {
        let span = assign.span;
        let Some(op) = assign.op.to_update() else {
            return self.assign_plainly(assign);
        };
        let target = match &assign.left {
            ast::AssignTarget::Simple(target) => target,
            ast::AssignTarget::Pat(_) => return self.unknown(span, Vec::new()),
        };
        let written = bounds(target.span());
        let target = Target::of_assigned(target);
        // The object and the key are evaluated once.
        let parts = match &target {
            Target::Member(member) => Some(self.member_parts(member)),
            _ => None,
        };
        let before = match &parts {
            Some((object, key)) => {
                let to = self.fresh();
                let (object, key) = (*object, key.clone());
                self.emit(span, Op::Get { to, object, key, called: false });
                to
            }
            None => match &target {
                Target::Name(name) => self.read(name.span, &name.sym),
                Target::Above(prop) => self.above(prop),
                Target::Other(other) => self.expr(other),
                Target::Member(_) | Target::Nothing => self.undefined(span),
            },
        };
        self.set_source_text(before, assign.left.span());
        let set = |lower: &mut Self, from: Slot| match &parts {
            Some((object, key)) => {
                let (object, key) = (*object, key.clone());
                lower.emit(span, Op::Set { object, key, from });
            }
            None => lower.assign_target(&target, from),
        };
        if op.may_short_circuit() {
            let to = self.fresh();
            self.emit(span, Op::Take { of: before, how: chooses(op) });
            self.emit(span, Op::Copy { to, from: before });
            self.otherwise(span, to, op, written, |lower| {
                lower.value_to(&assign.right, to);
                set(lower, to);
            });
            return to;
        }
        let right = self.expr(&assign.right);
        self.record_operands(op, (None, before), (&assign.right, right));
        let how = if op == ast::BinaryOp::Add { Sum::Add } else { Sum::Convert };
        let to = self.compute(span, how, vec![before, right]);
        set(self, to);
        to
    }

    fn assign_plainly(&mut self, assign: &ast::AssignExpr) -> Slot {
        match &assign.left {
            ast::AssignTarget::Simple(target) => {
                let target = Target::of_assigned(target);
                if let Target::Member(member) = &target {
                    let (object, key) = self.member_parts(member);
                    let from = self.expr(&assign.right);
                    self.emit(assign.span, Op::Set { object, key, from });
                    return from;
                }
                let from = self.expr(&assign.right);
                self.assign_target(&target, from);
                from
            }
            ast::AssignTarget::Pat(pattern) => {
                let from = self.expr(&assign.right);
                match pattern {
                    ast::AssignTargetPat::Array(array) => self.bind_array(array, from),
                    ast::AssignTargetPat::Object(object) => self.bind_object(object, from),
                    ast::AssignTargetPat::Invalid(_) => {}
                }
                from
            }
        }
    }
}

/// Returns how the left side of `&&`, `||` or `??` is used.
fn chooses(op: ast::BinaryOp) -> Use {
    if op == ast::BinaryOp::LogicalAnd { Use::Condition } else { Use::Fallback }
}
