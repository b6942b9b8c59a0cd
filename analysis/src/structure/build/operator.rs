//! Operators: arithmetic, choices, templates.

use std::rc::Rc;

use swc_atoms::Atom;
use swc_common::Spanned;
use swc_ecma_ast::{BinExpr, BinaryOp, Expr, MemberExpr, MemberProp, Tpl, UnaryOp};

use super::Builder;
use super::expr::{bounds, member_of};
use super::finish::RoundKind;
use super::promise::Use;
use super::value::{Deps, Form, Scalar, Value};

impl<'a> Builder<'a> {
    pub(super) fn template(&mut self, template: &'a Tpl) -> Value {
        let mut values = Vec::with_capacity(template.exprs.len());
        let mut deps = Deps::default();
        for expr in &template.exprs {
            let value = self.in_row(expr);
            self.takes_text(&value);
            self.escape(&value, "is turned into text");
            deps.add(&value.all_deps());
            deps.add(&self.turned(&value));
            values.push(value);
        }
        self.by_row(&values, |_, values| {
            let mut texts: Option<Vec<String>> = Some(vec![String::new()]);
            for (index, quasi) in template.quasis.iter().enumerate() {
                let cooked = quasi.cooked.as_ref().and_then(|text| text.as_str());
                texts =
                    texts.zip(cooked).and_then(|(texts, cooked)| append(&texts, &[cooked.into()]));
                let Some(value) = values.get(index) else { continue };
                let choices =
                    value.exact().map(|all| all.iter().map(Scalar::as_key).collect::<Vec<_>>());
                texts = texts.zip(choices).and_then(|(texts, choices)| append(&texts, &choices));
                texts = texts.filter(|texts| texts.iter().all(|text| text.len() <= TEXT_LENGTH));
            }
            text_choice(texts, deps.clone())
        })
    }

    /// Returns what flows into the text or number of an object by its methods.
    fn turned(&self, value: &Value) -> Deps {
        if value.is_loaded() { self.returned_by([value]) } else { Deps::default() }
    }

    pub(super) fn unary(&mut self, op: UnaryOp, arg: &'a Expr) -> Value {
        let value = self.expr(arg);
        match op {
            UnaryOp::Bang => self.takes(&value, Use::Condition),
            UnaryOp::Minus | UnaryOp::Plus | UnaryOp::Tilde => self.takes(&value, Use::Operand),
            _ => {}
        }
        match op {
            UnaryOp::Bang | UnaryOp::TypeOf | UnaryOp::Void => {}
            UnaryOp::Delete => {
                self.mutate();
                if let Some(member) = member_of(arg) {
                    let object = self.quiet(&member.obj);
                    self.written_into(&member.obj, &object);
                    self.taken_out_of(member);
                }
            }
            UnaryOp::Minus => {
                if let Some(Scalar::Number(number)) = value.only()
                    && !value.inexact
                {
                    return Value::scalar(Scalar::Number(-number)).with_deps(&value.deps);
                }
                self.escape(&value, "is turned into a number");
            }
            UnaryOp::Plus | UnaryOp::Tilde => self.escape(&value, "is turned into a number"),
        }
        if op == UnaryOp::Void {
            return Value::undefined();
        }
        Value::computed(value.all_deps())
    }

    /// Lets what decides whether and which field is removed flow into its object.
    fn taken_out_of(&mut self, member: &'a MemberExpr) {
        let key = match &member.prop {
            MemberProp::Computed(computed) => self.quiet_deps(&computed.expr),
            _ => Deps::default(),
        };
        if !key.is_nothing() || !self.control.local.is_nothing() {
            self.flows_into(&member.obj, &key);
        }
    }

    pub(super) fn binary(&mut self, binary: &'a BinExpr) -> Value {
        if matches!(
            binary.op,
            BinaryOp::LogicalAnd | BinaryOp::LogicalOr | BinaryOp::NullishCoalescing
        ) {
            let left = self.expr(&binary.left);
            return self.logical(binary.op, bounds(binary.left.span()), left, |builder| {
                builder.expr(&binary.right)
            });
        }
        // Long chains lean to the left; they are walked without recursion.
        let mut chain = vec![binary];
        let mut first = &*binary.left;
        while let Expr::Bin(next) = first {
            if matches!(
                next.op,
                BinaryOp::LogicalAnd | BinaryOp::LogicalOr | BinaryOp::NullishCoalescing
            ) {
                break;
            }
            chain.push(next);
            first = &next.left;
        }
        let mut left = self.in_row(first);
        while let Some(link) = chain.pop() {
            let right = self.in_row(&link.right);
            left = self.by_row(&[left, right], |builder, both| match both {
                [left, right] => builder.operate(link.op, left, right),
                _ => Value::never(),
            });
        }
        left
    }

    pub(super) fn operate(&mut self, op: BinaryOp, left: &Value, right: &Value) -> Value {
        let mut deps = left.all_deps().and(&right.all_deps());
        deps.add(&self.turned(left));
        deps.add(&self.turned(right));
        match op {
            BinaryOp::InstanceOf => {}
            BinaryOp::EqEqEq | BinaryOp::NotEqEq | BinaryOp::EqEq | BinaryOp::NotEq => {
                self.compares(left, right);
            }
            BinaryOp::Add => {
                self.takes_text(left);
                self.takes_text(right);
            }
            BinaryOp::In => self.takes(right, Use::Operand),
            _ => {
                self.takes(left, Use::Operand);
                self.takes(right, Use::Operand);
            }
        }
        match op {
            BinaryOp::EqEqEq | BinaryOp::NotEqEq | BinaryOp::InstanceOf => {}
            BinaryOp::EqEq | BinaryOp::NotEq if left.is_nothing() || right.is_nothing() => {}
            BinaryOp::Add => {
                let is_text = |value: &Value| {
                    value.exact().is_some_and(|all| {
                        !all.is_empty() && all.iter().all(|one| matches!(one, Scalar::Text(_)))
                    })
                };
                if let (Some(one), Some(other)) = (left.exact(), right.exact())
                    && (is_text(left) || is_text(right))
                {
                    let one: Vec<String> =
                        one.iter().map(|scalar| scalar.as_key().to_string()).collect();
                    let other: Vec<Atom> = other.iter().map(Scalar::as_key).collect();
                    return text_choice(append(&one, &other), deps);
                }
                self.escape(left, "is turned into text");
                self.escape(right, "is turned into text");
            }
            _ => {
                self.escape(left, "is an operand");
                self.escape(right, "is an operand");
            }
        }
        Value::computed(deps)
    }

    /// Follows `left && right` and its like; the right side may not be reached.
    pub(super) fn logical(
        &mut self,
        op: BinaryOp,
        test: (u32, u32),
        left: Value,
        right: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        #[cfg(test)]
        if super::fault::is(super::fault::Fault::Logical) {
            return left;
        }
        let how = if op == BinaryOp::LogicalAnd { Use::Condition } else { Use::Fallback };
        self.takes(&left, how);
        let deps = left.all_deps();
        let kind = RoundKind::Decision { test, deps: deps.clone() };
        let (value, writes) = self.branch(|builder| {
            builder.node(kind, |builder| {
                builder.way("then", |builder| builder.under(&deps, true, false, right))
            })
        });
        self.merge(vec![writes, super::control::Writes::default()], &deps);
        match op {
            // What is falsy leads to no tool, but a value may also be returned as it is.
            BinaryOp::LogicalAnd if left.is_loaded() => value.with_deps(&deps),
            BinaryOp::LogicalAnd => self.join(&Value::computed(deps), &value),
            BinaryOp::NullishCoalescing => {
                let is_there = left.is_nothing() || !left.caps().is_empty();
                let left = if is_there { left } else { left.without(Scalar::is_nothing) };
                self.or_else(left, value)
            }
            _ => self.or_else(left, value),
        }
    }

    /// Returns a value that is used when it is there, and a substitute otherwise.
    pub(super) fn or_else(&mut self, value: Value, other: Value) -> Value {
        if value.is_nothing() {
            return other.with_deps(&value.deps);
        }
        // A reference stays one: that is where the value comes from when it is there.
        if matches!(value.form, Form::Result(..) | Form::Param(_)) {
            let promised = value.promised.or(other.promised);
            let mut kept = value.with_deps(&other.all_deps());
            kept.defaulted = true;
            kept.promised = promised;
            if other.is_loaded() {
                kept.add_load(&other);
                for part in other.parts() {
                    self.escape(part, "is kept in a value that may be one of several");
                }
            }
            return kept;
        }
        self.join(&value, &other)
    }

    pub(super) fn choose(
        &mut self,
        span: (u32, u32),
        test: &Value,
        then: &'a Expr,
        otherwise: &'a Expr,
    ) -> Value {
        let deps = test.all_deps();
        let kind = RoundKind::Decision { test: span, deps: deps.clone() };
        let (first, second, writes) = self.node(kind, |builder| {
            builder.under(&deps, true, false, |builder| {
                let (first, one) = builder.branch(|b| b.way("then", |b| b.looked_at(then)));
                let (second, other) = builder.branch(|b| b.way("else", |b| b.looked_at(otherwise)));
                (first, second, vec![one, other])
            })
        });
        self.merge(writes, &deps);
        self.join(&first, &second).with_deps(&deps)
    }
}

/// The most texts that a template or sum may be.
const TEXT_CHOICES: usize = 16;
/// The longest text that is put together.
const TEXT_LENGTH: usize = 4 * 1024;

/// Puts one of several ends to one of several texts.
///
/// Of two that are chosen it is not known which are chosen together: a call that
/// gives `low` and `er`, and another that gives `up` and `per`, make no `lowper`.
fn append(texts: &[String], ends: &[Atom]) -> Option<Vec<String>> {
    if texts.len() > 1 && ends.len() > 1 {
        return None;
    }
    let put = |text: &String| ends.iter().map(move |end| [text.as_str(), end].concat()).collect();
    Some(
        texts.iter().flat_map(|text| -> Vec<String> { put(text) }).take(TEXT_CHOICES + 1).collect(),
    )
}

/// Returns the text that parts give one after the other; each part is one of several.
pub(super) fn concatenated(parts: Vec<Vec<Atom>>, deps: Deps) -> Value {
    let mut texts = Some(vec![String::new()]);
    for ends in &parts {
        texts = texts.and_then(|texts| append(&texts, ends));
        // A long text is not copied once for each of its parts.
        texts = texts.filter(|texts| texts.iter().all(|text| text.len() <= TEXT_LENGTH));
    }
    text_choice(texts, deps)
}

fn text_choice(texts: Option<Vec<String>>, deps: Deps) -> Value {
    match texts {
        Some(texts) if texts.is_empty() => Value::never().with_deps(&deps),
        Some(texts)
            if texts.len() <= TEXT_CHOICES
                && texts.iter().all(|text| text.len() <= TEXT_LENGTH) =>
        {
            let scalars: Vec<Scalar> =
                texts.into_iter().map(|text| Scalar::Text(text.into())).collect();
            Value::of(Form::Const(Rc::new(scalars.into()))).with_deps(&deps)
        }
        _ => Value::computed(deps),
    }
}
