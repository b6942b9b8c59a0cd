//! Expressions, in evaluation order.

use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    AssignExpr, AssignOp, AssignTarget, BinaryOp, Expr, Ident, Lit, MemberExpr, MemberProp,
    OptChainBase, SimpleAssignTarget, SuperProp,
};

use super::Builder;
use super::call::CallKind;
use super::describe::step_of;
use super::function::FuncBody;
use super::member::Key;
use super::path::Path;
use super::promise::{Promised, Use};
use super::scope::ScopeKind;
use super::value::{Deps, Scalar, Value};
use crate::diagnostic::{Code, Finding};
use crate::parse;

/// The stack that one step of the walk may need.
const STACK_STEP: usize = 256 * 1024;
/// The stack that is added when less is left.
const STACK_MORE: usize = 16 * 1024 * 1024;

impl<'a> Builder<'a> {
    /// Follows an expression and returns what is known of its value, with which
    /// anything may be done.
    pub(super) fn expr(&mut self, expr: &'a Expr) -> Value {
        let value = self.follow(expr);
        let mut value = self.handed_on(value);
        value.rows = None;
        value
    }

    /// Follows an expression and returns what is known of its value, of which only
    /// parts may be looked at.
    pub(super) fn follow(&mut self, expr: &'a Expr) -> Value {
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
        #[cfg(test)]
        if super::fault::skips(expr) {
            return Value::computed(Deps::default());
        }
        match expr {
            Expr::Paren(inner) => self.follow(&inner.expr),
            Expr::TsAs(cast) => self.follow(&cast.expr),
            Expr::TsSatisfies(cast) => self.follow(&cast.expr),
            Expr::TsNonNull(cast) => self.follow(&cast.expr),
            Expr::TsConstAssertion(cast) => self.follow(&cast.expr),
            Expr::TsTypeAssertion(cast) => self.follow(&cast.expr),
            Expr::TsInstantiation(cast) => self.follow(&cast.expr),
            Expr::Ident(name) => self.named(name),
            Expr::Lit(literal) => literal_value(literal),
            Expr::Tpl(template) => self.template(template),
            Expr::Array(array) => self.array(array),
            Expr::Object(object) => self.object(object),
            Expr::Arrow(arrow) => self.function(FuncBody::Arrow(arrow)),
            Expr::Fn(function) => self.function_expr(function),
            Expr::Class(class) => self.class_expr(class),
            Expr::This(_) => self.this(),
            Expr::Member(member) => {
                let object = self.looked_at(&member.obj);
                let key = self.member_key(&member.prop);
                self.takes_part(&object, &key);
                let mut part = self.member(&object, &key);
                if self.gives_own_promise(&member.obj, &key, false) {
                    part.promised = Promised::Declared;
                }
                part
            }
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => {
                    let object = self.looked_at(&member.obj);
                    let (deps, skips) = (object.all_deps(), object.caps().is_empty());
                    let key = self.perhaps(&deps, skips, |b| b.member_key(&member.prop));
                    self.takes_part(&object, &key);
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
                self.takes(&value, Use::Operand);
                self.escape(&value, "is counted up or down");
                let value = Value::computed(value.all_deps());
                self.assign_to(&update.arg, value.clone());
                value
            }
            Expr::Bin(binary) => self.binary(binary),
            Expr::Assign(assign) => self.assign(assign),
            Expr::Cond(choice) => {
                let test = self.expr(&choice.test);
                self.takes(&test, Use::Condition);
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
                let mut value = self.expr(&awaited.arg);
                self.awaited(&value);
                if value.is_container() && value.is_loaded() {
                    // It may have a `then`, which is called.
                    value.deps.add(&self.returned_by([&value]));
                }
                self.after_await(&mut value);
                settled(value)
            }
            Expr::Yield(yielded) => {
                let value = match &yielded.arg {
                    Some(arg) => self.expr(arg),
                    None => Value::undefined(),
                };
                self.yields(value, yielded.delegate)
            }
            Expr::SuperProp(member) => {
                let mut deps = self.this().all_deps();
                if let SuperProp::Computed(computed) = &member.prop {
                    let key = self.expr(&computed.expr);
                    deps.add(&self.key_of(&key).deps);
                }
                Value::computed(deps)
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

    /// Returns what a name holds here, with which anything may be done.
    pub(super) fn ident(&mut self, name: &'a Ident) -> Value {
        let mut value = self.named(name);
        value.rows = None;
        self.handed_on(value)
    }

    fn named(&mut self, name: &'a Ident) -> Value {
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
            return Value::computed(func.unknown.clone());
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
            MemberProp::Ident(name) => Key::of(name.sym.clone()),
            MemberProp::PrivateName(name) => Key::of(format!("#{}", name.name).into()),
            MemberProp::Computed(computed) => {
                let value = self.in_row(&computed.expr);
                self.key_of(&value)
            }
        }
    }

    fn assign(&mut self, assign: &'a AssignExpr) -> Value {
        match assign.op {
            AssignOp::Assign => {
                if let AssignTarget::Simple(target) = &assign.left
                    && let Some(member) = member_target(target)
                {
                    // What is left of `=` is looked at first.
                    let object = self.expr(&member.obj);
                    let key = self.member_key(&member.prop);
                    let value = self.expr(&assign.right);
                    self.put_member(member, object, &key, value.clone());
                    let step = step_of(&member.prop);
                    self.keeps_value(&member.obj, step, &assign.right);
                    return value;
                }
                let value = self.expr(&assign.right);
                if let AssignTarget::Simple(SimpleAssignTarget::Ident(name)) = &assign.left
                    && let Some(binding) = self.lookup(&name.id.sym)
                {
                    self.alias(binding, &assign.right, &Path::default());
                }
                match &assign.left {
                    AssignTarget::Simple(target) => self.assign_simple(target, value.clone()),
                    AssignTarget::Pat(pattern) => self.assign_pattern(pattern, value.clone()),
                }
                value
            }
            op => {
                let member = match &assign.left {
                    AssignTarget::Simple(target) => member_target(target),
                    AssignTarget::Pat(_) => None,
                };
                let member = member.map(|member| {
                    let object = self.expr(&member.obj);
                    (member, object, self.member_key(&member.prop))
                });
                let old = match (&member, &assign.left) {
                    (Some((_, object, key)), _) => self.member(object, key),
                    (None, AssignTarget::Simple(target)) => self.simple_value(target),
                    (None, AssignTarget::Pat(_)) => Value::computed(Deps::default()),
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
                match (member, &assign.left) {
                    (Some((member, object, key)), _) => {
                        self.put_member(member, object, &key, value.clone());
                    }
                    (None, AssignTarget::Simple(target)) => {
                        self.assign_simple(target, value.clone());
                    }
                    (None, AssignTarget::Pat(_)) => {}
                }
                value
            }
        }
    }
}

/// Returns the member that is assigned to, if it is one.
fn member_target(target: &SimpleAssignTarget) -> Option<&MemberExpr> {
    let target = match target {
        SimpleAssignTarget::Member(member) => return Some(member),
        SimpleAssignTarget::Paren(inner) => &inner.expr,
        SimpleAssignTarget::TsAs(cast) => &cast.expr,
        SimpleAssignTarget::TsSatisfies(cast) => &cast.expr,
        SimpleAssignTarget::TsNonNull(cast) => &cast.expr,
        SimpleAssignTarget::TsTypeAssertion(cast) => &cast.expr,
        SimpleAssignTarget::TsInstantiation(cast) => &cast.expr,
        _ => return None,
    };
    match bare(target) {
        Expr::Member(member) => Some(member),
        _ => None,
    }
}

/// Returns the member that an expression is, also as `object?.name`.
pub(super) fn member_of(expr: &Expr) -> Option<&MemberExpr> {
    match bare(expr) {
        Expr::Member(member) => Some(member),
        Expr::OptChain(chain) => match &*chain.base {
            OptChainBase::Member(member) => Some(member),
            OptChainBase::Call(_) => None,
        },
        _ => None,
    }
}

/// Returns what awaiting a value gives; an object may have a `then` that gives another.
pub(super) fn settled(value: Value) -> Value {
    if value.is_container() { value.loosened() } else { value }
}

/// Returns the offsets of a span.
pub(super) fn bounds(span: Span) -> (u32, u32) {
    (parse::offset(span.lo), parse::offset(span.hi))
}

/// Returns an expression without the brackets and casts around it.
pub(in crate::structure) fn bare(expr: &Expr) -> &Expr {
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
