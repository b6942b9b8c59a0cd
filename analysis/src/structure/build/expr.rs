//! Expressions, in evaluation order.

use std::rc::Rc;

use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    AssignExpr, AssignOp, AssignTarget, BinExpr, BinaryOp, Expr, Ident, Lit, MemberProp,
    OptChainBase, SuperProp, Tpl, UnaryOp,
};

use super::Builder;
use super::call::CallKind;
use super::finish::RoundKind;
use super::function::FuncBody;
use super::member::Key;
use super::scope::ScopeKind;
use super::value::{Cap, Deps, Form, Scalar, Value};
use crate::diagnostic::{Code, Finding};
use crate::parse;

/// The stack that one step of the walk may need.
const STACK_STEP: usize = 256 * 1024;
/// The stack that is added when less is left.
const STACK_MORE: usize = 16 * 1024 * 1024;

impl<'a> Builder<'a> {
    /// Follows an expression and returns what is known of its value.
    pub(super) fn expr(&mut self, expr: &'a Expr) -> Value {
        if self.fatal.is_some() {
            return Value::never();
        }
        let span = expr.span();
        let before = std::mem::replace(&mut self.at, parse::start(span));
        let mut value = stacker::maybe_grow(STACK_STEP, STACK_MORE, || self.kind(expr));
        value.span = bounds(span);
        self.at = before;
        value
    }

    fn kind(&mut self, expr: &'a Expr) -> Value {
        match expr {
            Expr::Paren(inner) => self.expr(&inner.expr),
            Expr::TsAs(cast) => self.expr(&cast.expr),
            Expr::TsSatisfies(cast) => self.expr(&cast.expr),
            Expr::TsNonNull(cast) => self.expr(&cast.expr),
            Expr::TsConstAssertion(cast) => self.expr(&cast.expr),
            Expr::TsTypeAssertion(cast) => self.expr(&cast.expr),
            Expr::TsInstantiation(cast) => self.expr(&cast.expr),
            Expr::Ident(name) => self.ident(name),
            Expr::Lit(literal) => literal_value(literal),
            Expr::Tpl(template) => self.template(template),
            Expr::Array(array) => self.array(array),
            Expr::Object(object) => self.object(object),
            Expr::Arrow(arrow) => self.function(FuncBody::Arrow(arrow)),
            Expr::Fn(function) => self.function_expr(function),
            Expr::Class(class) => self.class_expr(class),
            Expr::This(_) => self.this(),
            Expr::Member(member) => {
                let object = self.expr(&member.obj);
                let key = self.member_key(&member.prop);
                self.member(&object, &key)
            }
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => {
                    let object = self.expr(&member.obj);
                    let (deps, skips) = (object.all_deps(), object.caps().is_empty());
                    let key = self.under(&deps, skips, false, |b| b.member_key(&member.prop));
                    self.member(&object, &key)
                }
                OptChainBase::Call(call) => self.call(&call.callee, &call.args, CallKind::Optional),
            },
            Expr::Call(call) => self.call_expr(call),
            Expr::New(new) => {
                self.call(&new.callee, new.args.as_deref().unwrap_or_default(), CallKind::New)
            }
            Expr::TaggedTpl(tagged) => self.tagged(tagged),
            Expr::Unary(unary) => self.unary(unary.op, &unary.arg),
            Expr::Update(update) => {
                let value = self.expr(&update.arg);
                self.escape(&value, "is counted up or down");
                let value = Value::computed(value.all_deps());
                self.assign_to(&update.arg, value.clone());
                value
            }
            Expr::Bin(binary) => self.binary(binary),
            Expr::Assign(assign) => self.assign(assign),
            Expr::Cond(choice) => {
                let test = self.expr(&choice.test);
                self.choose(bounds(choice.test.span()), &test, &choice.cons, &choice.alt)
            }
            Expr::Seq(sequence) => {
                let mut last = Value::undefined();
                for expr in &sequence.exprs {
                    last = self.expr(expr);
                }
                last
            }
            Expr::Await(awaited) => {
                let value = self.expr(&awaited.arg);
                self.awaited(&value);
                value
            }
            Expr::Yield(yielded) => {
                let value = match &yielded.arg {
                    Some(arg) => self.expr(arg),
                    None => Value::undefined(),
                };
                self.escape(&value, "is yielded");
                let flows = Value::computed(value.all_deps());
                let func = self.func;
                self.give_back(func, flows);
                Value::computed(Deps::default())
            }
            Expr::SuperProp(member) => {
                if let SuperProp::Computed(computed) = &member.prop {
                    let key = self.expr(&computed.expr);
                    let _ = self.key_of(&key);
                }
                Value::computed(self.this().all_deps())
            }
            Expr::MetaProp(_) | Expr::PrivateName(_) => Value::computed(Deps::default()),
            // Refused before the walk.
            Expr::JSXMember(_)
            | Expr::JSXNamespacedName(_)
            | Expr::JSXEmpty(_)
            | Expr::JSXElement(_)
            | Expr::JSXFragment(_)
            | Expr::Invalid(_) => Value::computed(Deps::default()),
        }
    }

    /// Returns what a name holds here.
    pub(super) fn ident(&mut self, name: &'a Ident) -> Value {
        if let Some(binding) = self.lookup(&name.sym) {
            return self.read(binding);
        }
        if &*name.sym == "arguments" {
            let owner = self.arguments_owner();
            if owner == super::MAIN {
                self.dynamic(
                    Code::DynamicScope,
                    "`arguments` here is not the program's; the input of the program is `args`"
                        .into(),
                );
            }
            let func = &mut self.funcs[owner as usize];
            if !func.reads_arguments {
                func.reads_arguments = true;
                self.changed = true;
            }
        }
        if !name.sym.is_ascii() {
            // No global has such a name; `mсp` with a Cyrillic letter is not `mcp`.
            let message = format!(
                "`{}` is not declared, and has letters that look like others; write it in ASCII or declare it",
                crate::diagnostic::shown(&name.sym, 64)
            );
            self.findings.insert(Finding::new(Code::UnknownName, self.at, message));
        }
        self.global(&name.sym)
    }

    fn function_expr(&mut self, function: &'a swc_ecma_ast::FnExpr) -> Value {
        let body = FuncBody::Function(&function.function);
        let Some(name) = &function.ident else { return self.function(body) };
        let key = function.function.span.lo.0;
        let scope = self.scope_at(key, ScopeKind::Name, |names| names.push((&name.sym, false)));
        self.within(scope, |builder| {
            let value = builder.function(body);
            if let Some(binding) = builder.lookup(&name.sym) {
                builder.write(binding, value.clone());
            }
            value
        })
    }

    pub(super) fn member_key(&mut self, prop: &'a MemberProp) -> Key {
        match prop {
            MemberProp::Ident(name) => Key::name(&name.sym),
            MemberProp::PrivateName(name) => Key::name(&format!("#{}", name.name)),
            MemberProp::Computed(computed) => {
                let value = self.expr(&computed.expr);
                self.key_of(&value)
            }
        }
    }

    fn template(&mut self, template: &'a Tpl) -> Value {
        let mut texts: Option<Vec<String>> = Some(vec![String::new()]);
        let mut deps = Deps::default();
        for (index, quasi) in template.quasis.iter().enumerate() {
            let cooked = quasi.cooked.as_ref().and_then(|text| text.as_str());
            texts = texts.zip(cooked).map(|(texts, cooked)| append(&texts, &[cooked.into()]));
            let Some(expr) = template.exprs.get(index) else { continue };
            let value = self.expr(expr);
            self.escape(&value, "is turned into text");
            deps.add(&value.all_deps());
            let choices =
                value.exact().map(|all| all.iter().map(Scalar::as_key).collect::<Vec<_>>());
            texts = texts.zip(choices).map(|(texts, choices)| append(&texts, &choices));
        }
        text_choice(texts, deps)
    }

    pub(super) fn unary(&mut self, op: UnaryOp, arg: &'a Expr) -> Value {
        let value = self.expr(arg);
        match op {
            UnaryOp::Bang | UnaryOp::TypeOf | UnaryOp::Void => {}
            UnaryOp::Delete => {
                self.mutate();
                if let Expr::Member(member) = bare(arg) {
                    let object = self.quiet(&member.obj);
                    self.written_into(&member.obj, &object);
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

    fn binary(&mut self, binary: &'a BinExpr) -> Value {
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
        let mut left = self.expr(first);
        while let Some(link) = chain.pop() {
            let right = self.expr(&link.right);
            left = self.operate(link.op, &left, &right);
        }
        left
    }

    fn operate(&mut self, op: BinaryOp, left: &Value, right: &Value) -> Value {
        let deps = left.all_deps().and(&right.all_deps());
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
                    let other: Vec<Rc<str>> = other.iter().map(Scalar::as_key).collect();
                    return text_choice(Some(append(&one, &other)), deps);
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
        let deps = left.all_deps();
        let kind = RoundKind::Decision { test, deps: deps.clone() };
        let (value, writes) = self.branch(|builder| {
            builder.node(kind, |builder| {
                builder.way("then", |builder| builder.under(&deps, true, false, right))
            })
        });
        self.merge(vec![writes, super::control::Writes::new()], &deps);
        match op {
            // What is falsy leads to no tool, but a value may also be returned as it is.
            BinaryOp::LogicalAnd if left.is_loaded() => value.with_deps(&deps),
            BinaryOp::LogicalAnd => self.join(&Value::computed(deps), &value),
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
            let mut kept = value.with_deps(&other.all_deps());
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

    fn choose(
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
                let (first, one) = builder.branch(|b| b.way("then", |b| b.expr(then)));
                let (second, other) = builder.branch(|b| b.way("else", |b| b.expr(otherwise)));
                (first, second, vec![one, other])
            })
        });
        self.merge(writes, &deps);
        self.join(&first, &second).with_deps(&deps)
    }

    fn assign(&mut self, assign: &'a AssignExpr) -> Value {
        match assign.op {
            AssignOp::Assign => {
                let value = self.expr(&assign.right);
                match &assign.left {
                    AssignTarget::Simple(target) => self.assign_simple(target, value.clone()),
                    AssignTarget::Pat(pattern) => self.assign_pattern(pattern, value.clone()),
                }
                value
            }
            op => {
                let old = match &assign.left {
                    AssignTarget::Simple(target) => self.simple_value(target),
                    AssignTarget::Pat(_) => Value::computed(Deps::default()),
                };
                let logical = match op {
                    AssignOp::AndAssign => Some(BinaryOp::LogicalAnd),
                    AssignOp::OrAssign => Some(BinaryOp::LogicalOr),
                    AssignOp::NullishAssign => Some(BinaryOp::NullishCoalescing),
                    _ => None,
                };
                let value = match logical {
                    Some(op) => {
                        let span = bounds(assign.left.span());
                        self.logical(op, span, old, |builder| builder.expr(&assign.right))
                    }
                    None => {
                        let right = self.expr(&assign.right);
                        let op =
                            if op == AssignOp::AddAssign { BinaryOp::Add } else { BinaryOp::Mul };
                        self.operate(op, &old, &right)
                    }
                };
                if let AssignTarget::Simple(target) = &assign.left {
                    self.assign_simple(target, value.clone());
                }
                value
            }
        }
    }

    /// Follows an expression again whose calls have been counted already.
    ///
    /// Only names and members are looked at; anything else is not known.
    pub(super) fn quiet(&mut self, expr: &'a Expr) -> Value {
        match bare(expr) {
            Expr::Ident(name) => self.ident(name),
            Expr::This(_) => self.this(),
            Expr::Member(member) => {
                let object = self.quiet(&member.obj);
                match &member.prop {
                    MemberProp::Ident(name) => self.member(&object, &Key::name(&name.sym)),
                    _ => self.member(&object, &Key::name("")),
                }
            }
            _ => Value::computed(Deps::default()),
        }
    }

    /// Returns whether an expression names what the engine offers, or a prototype.
    fn is_of_the_engine(&self, expr: &'a Expr) -> bool {
        let mut expr = bare(expr);
        loop {
            match expr {
                Expr::Member(member) => {
                    if let MemberProp::Ident(name) = &member.prop
                        && matches!(&*name.sym, "prototype" | "__proto__")
                    {
                        return true;
                    }
                    expr = bare(&member.obj);
                }
                Expr::Ident(name) => {
                    return self.lookup(&name.sym).is_none()
                        && !matches!(&*name.sym, "args" | "mcp")
                        && !super::member::is_global_object(&name.sym);
                }
                _ => return false,
            }
        }
    }

    /// Notes that the program changes parts of values.
    pub(super) fn mutate(&mut self) {
        if !self.mutates {
            self.mutates = true;
            self.changed = true;
        }
    }

    /// Notes that a field of a value is set or removed.
    pub(super) fn written_into(&mut self, expr: &'a Expr, object: &Value) {
        self.mutate();
        if self.is_of_the_engine(expr) {
            self.dynamic(
                Code::DynamicGlobal,
                "what the engine offers is changed, so its functions may do anything; write a function of your own".into(),
            );
        }
        for cap in object.caps().to_vec() {
            match cap {
                Cap::Evaluator => {}
                Cap::Global => self.dynamic(
                    Code::DynamicGlobal,
                    "the global object is written to; use a variable of the program".into(),
                ),
                _ => self.dynamic(
                    Code::DynamicWrite,
                    "`mcp` and what is in it cannot be written to; use a variable of the program"
                        .into(),
                ),
            }
        }
    }
}

/// Methods that are understood; a program that replaces them is not.
pub(super) fn is_understood_method(name: &str) -> bool {
    super::call::callback(name).is_some()
        || matches!(
            name,
            "all" | "allSettled" | "race" | "any" | "next" | "call" | "apply" | "bind"
        )
}

/// Returns the offsets of a span.
pub(super) fn bounds(span: Span) -> (u32, u32) {
    (parse::offset(span.lo), parse::offset(span.hi))
}

/// Returns an expression without the brackets and casts around it.
pub(super) fn bare(expr: &Expr) -> &Expr {
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::Paren(inner) => &inner.expr,
            Expr::TsAs(cast) => &cast.expr,
            Expr::TsSatisfies(cast) => &cast.expr,
            Expr::TsNonNull(cast) => &cast.expr,
            Expr::TsConstAssertion(cast) => &cast.expr,
            Expr::TsTypeAssertion(cast) => &cast.expr,
            Expr::TsInstantiation(cast) => &cast.expr,
            _ => return expr,
        };
    }
}

fn literal_value(literal: &Lit) -> Value {
    match literal {
        Lit::Str(text) => match text.value.as_str() {
            Some(text) => Value::text(text),
            // A lone surrogate; no tool has it in its name.
            None => Value::computed(Deps::default()),
        },
        Lit::Bool(value) => Value::scalar(Scalar::Bool(value.value)),
        Lit::Null(_) => Value::scalar(Scalar::Null),
        Lit::Num(number) if number.value.is_finite() => Value::scalar(Scalar::Number(number.value)),
        _ => Value::computed(Deps::default()),
    }
}

/// The most texts that a template or sum may be.
const TEXT_CHOICES: usize = 16;
/// The longest text that is put together.
const TEXT_LENGTH: usize = 4 * 1024;

fn append(texts: &[String], ends: &[Rc<str>]) -> Vec<String> {
    texts
        .iter()
        .flat_map(|text| ends.iter().map(move |end| [text.as_str(), end].concat()))
        .take(TEXT_CHOICES + 1)
        .collect()
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
            Value::of(Form::Const(scalars.into())).with_deps(&deps)
        }
        _ => Value::computed(deps),
    }
}
