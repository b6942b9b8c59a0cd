//! Calls, `new`, optional chains, tagged templates.

use super::super::core::{Appearance, Arg, CallForm, Extent, Put, Use, Wait};
use super::stmt::bounds;
use super::*;

impl Lower {
    pub(super) fn call(&mut self, call: &ast::CallExpr, wait: Wait) -> Slot {
        let span = call.span;
        match &call.callee {
            ast::Callee::Super(_) => {
                let callee = self.parent(span);
                let args = self.args(&call.args);
                let this = Some(self.read_own(span, "%made"));
                let to = self.fresh();
                let (form, wait) = (CallForm::Super, Wait::Now);
                self.emit(span, Op::Call { to, callee, this, args, form, wait });
                // `super(…)` constructs the object, and then this class's fields are initialized.
                self.set_this_from_super(span, to);
                self.init_fields(span);
                to
            }
            ast::Callee::Import(_) => {
                let of = self.args(&call.args).iter().map(|arg| arg.slot).collect();
                self.unknown(span, of)
            }
            ast::Callee::Expr(callee) => {
                let (on, how) = (called_on(callee, &call.args), self.promise_combinator(callee));
                let (callee, this) = self.callee(callee);
                let args = match how {
                    Some(how) => self.together(span, how, &call.args),
                    None => self.args(&call.args),
                };
                self.plain_call(span, callee, this, args, wait, on)
            }
        }
    }

    fn plain_call(
        &mut self,
        span: Span,
        callee: Slot,
        this: Option<Slot>,
        args: Vec<Arg>,
        wait: Wait,
        on: Option<Extent>,
    ) -> Slot {
        let to = self.fresh();
        self.core.called_on.extend(on.map(|on| (self.next, on)));
        self.emit(span, Op::Call { to, callee, this, args, form: CallForm::Plain, wait });
        to
    }

    /// Returns the method of `Promise` if a call combines several promises.
    fn promise_combinator(&mut self, callee: &ast::Expr) -> Option<&'static str> {
        let ast::Expr::Member(member) = bare(callee) else { return None };
        let (ast::Expr::Ident(object), ast::MemberProp::Ident(method)) =
            (bare(&member.obj), &member.prop)
        else {
            return None;
        };
        if &*object.sym != "Promise" || self.lookup(&object.sym).is_some() {
            return None;
        }
        ["all", "allSettled", "any", "race"].into_iter().find(|how| *how == &*method.sym)
    }

    /// Lowers the arguments of a promise combinator.
    fn together(&mut self, span: Span, how: &'static str, args: &[ast::ExprOrSpread]) -> Vec<Arg> {
        let list = match args {
            [only] if only.spread.is_none() => match bare(&only.expr) {
                ast::Expr::Array(array) => Some(array),
                _ => None,
            },
            _ => None,
        };
        self.marked(span, Mark::Fork { how }, |lower| match list {
            Some(array) => vec![Arg { slot: lower.awaited_members(array), spread: false }],
            None => lower.branch(span, Branch::Members, |lower| lower.args(args)),
        })
    }

    /// Lowers a callee and its `this`.
    fn callee(&mut self, callee: &ast::Expr) -> (Slot, Option<Slot>) {
        match bare(callee) {
            ast::Expr::Member(member) => {
                let (object, key) = self.member_parts(member);
                self.record_member_use(&member.obj, object, &key);
                let to = self.fresh();
                self.emit(member.span, Op::Get { to, object, key, called: true });
                (to, Some(object))
            }
            ast::Expr::SuperProp(prop) => {
                let to = self.above(prop);
                let this = self.read_own(prop.span, "this");
                (to, Some(this))
            }
            ast::Expr::OptChain(chain) => self.chain_callee(chain),
            other if self.is_symbol(other) => (self.with_symbol(|lower| lower.expr(other)), None),
            other => {
                let slot = self.expr(other);
                self.record_use(other, slot, Use::Operand);
                (slot, None)
            }
        }
    }

    pub(super) fn args(&mut self, args: &[ast::ExprOrSpread]) -> Vec<Arg> {
        let arg = |arg: &ast::ExprOrSpread| {
            let slot = self.item(arg);
            self.set_text_if_unknown(slot, arg.expr.span());
            Arg { slot, spread: arg.spread.is_some() }
        };
        args.iter().map(arg).collect()
    }

    pub(super) fn construct(&mut self, new: &ast::NewExpr) -> Slot {
        let callee = self.expr(&new.callee);
        self.record_executor(new);
        let args = self.args(new.args.as_deref().unwrap_or_default());
        let to = self.fresh();
        let (form, wait) = (CallForm::New, Wait::Other);
        self.emit(new.span, Op::Call { to, callee, this: None, args, form, wait });
        to
    }

    pub(super) fn tagged(&mut self, tagged: &ast::TaggedTpl) -> Slot {
        let span = tagged.span;
        let (callee, this) = self.callee(&tagged.tag);
        // The first argument of a tag function is the list of strings, which has the property `raw`.
        let list = self.array(span, &[]);
        for quasi in &tagged.tpl.quasis {
            let text = quasi.cooked.as_ref().and_then(|text| text.as_str()).unwrap_or_default();
            let from = self.constant(quasi.span, Scalar::Text(text.into()));
            self.emit(span, Op::Push { list, from, spread: false });
        }
        let raw = self.array(span, &[]);
        for quasi in &tagged.tpl.quasis {
            let from = self.constant(quasi.span, Scalar::Text(quasi.raw.clone()));
            self.emit(span, Op::Push { list: raw, from, spread: false });
        }
        let key = Key::Name("raw".into());
        self.emit(span, Op::Put { object: list, key, from: raw, how: Put::Value });
        let mut args = vec![Arg { slot: list, spread: false }];
        for value in &tagged.tpl.exprs {
            args.push(Arg { slot: self.expr(value), spread: false });
        }
        let to = self.fresh();
        let (form, wait) = (CallForm::Plain, Wait::Other);
        self.emit(span, Op::Call { to, callee, this, args, form, wait });
        to
    }

    /// Lowers an optional chain, from its outermost link.
    pub(super) fn chain(&mut self, chain: &ast::OptChainExpr, wait: Wait) -> Slot {
        let span = chain.span;
        // The result is `undefined` unless the chain runs to its end.
        let to = self.undefined(span);
        self.in_chain(span, |lower| {
            let value = lower.link(chain, wait, false).0;
            lower.emit(span, Op::Copy { to, from: value });
        });
        to
    }

    /// Lowers `delete a?.b`.
    pub(super) fn delete_in_chain(&mut self, span: Span, chain: &ast::OptChainExpr) {
        self.in_chain(span, |lower| {
            let ast::OptChainBase::Member(member) = &*chain.base else {
                let _ = lower.link(chain, Wait::Other, false);
                return;
            };
            let object = lower.chain_base(&member.obj);
            lower.leave_if_nothing(chain, object);
            let key = lower.outside_chain(|lower| match &member.prop {
                ast::MemberProp::Ident(name) => lower.name_key(&name.sym),
                ast::MemberProp::PrivateName(name) => Key::Name(format!("#{}", name.name).into()),
                ast::MemberProp::Computed(computed) => lower.computed_key(&computed.expr),
            });
            lower.emit(span, Op::Delete { object, key });
        });
    }

    /// Lowers the callee of `(a?.b)(…)` and its `this`.
    fn chain_callee(&mut self, chain: &ast::OptChainExpr) -> (Slot, Option<Slot>) {
        if self.frame().chain.is_some() {
            return self.link(chain, Wait::Other, true);
        }
        let (to, own) = (self.undefined(chain.span), self.undefined(chain.span));
        self.in_chain(chain.span, |lower| {
            let (value, this) = lower.link(chain, Wait::Other, true);
            lower.emit(chain.span, Op::Copy { to, from: value });
            if let Some(from) = this {
                lower.emit(chain.span, Op::Copy { to: own, from });
            }
        });
        (to, Some(own))
    }

    fn in_chain(&mut self, span: Span, make: impl FnOnce(&mut Self)) {
        let exit = self.region();
        let before = self.frame().chain.replace(exit);
        let first = self.frame().slots;
        let (body, ()) = self.block(make);
        let own = first..self.frame().slots;
        self.frame().chain = before;
        self.emit(span, Op::Block { exit, own, body });
    }

    /// Lowers the object or callee of a link in a chain.
    fn chain_base(&mut self, base: &ast::Expr) -> Slot {
        let inner = match base {
            ast::Expr::OptChain(chain) => return self.link(chain, Wait::Other, false).0,
            other => other,
        };
        // A chain nested in this expression is a different one.
        let before = self.frame().chain.take();
        let slot = self.expr(inner);
        self.frame().chain = before;
        slot
    }

    /// Lowers the last link of a chain; `called` if its value is the callee of a call.
    fn link(
        &mut self,
        chain: &ast::OptChainExpr,
        wait: Wait,
        called: bool,
    ) -> (Slot, Option<Slot>) {
        let span = chain.span;
        match &*chain.base {
            ast::OptChainBase::Member(member) => {
                let object = self.chain_base(&member.obj);
                self.leave_if_nothing(chain, object);
                let key = self.outside_chain(|lower| match &member.prop {
                    ast::MemberProp::Ident(name) => lower.name_key(&name.sym),
                    ast::MemberProp::PrivateName(name) => {
                        Key::Name(format!("#{}", name.name).into())
                    }
                    ast::MemberProp::Computed(computed) => lower.computed_key(&computed.expr),
                });
                self.record_read(&key);
                self.record_member_use(&member.obj, object, &key);
                let to = self.fresh();
                self.emit(span, Op::Get { to, object, key, called });
                self.set_source_text(to, span);
                (to, Some(object))
            }
            ast::OptChainBase::Call(call) => {
                let on = called_on(&call.callee, &call.args);
                let (callee, this) = match &*call.callee {
                    ast::Expr::OptChain(inner) => self.link(inner, Wait::Other, true),
                    ast::Expr::Member(member) => {
                        let object = self.chain_base(&member.obj);
                        let key = self.outside_chain(|lower| match &member.prop {
                            ast::MemberProp::Ident(name) => lower.name_key(&name.sym),
                            ast::MemberProp::PrivateName(name) => {
                                Key::Name(format!("#{}", name.name).into())
                            }
                            ast::MemberProp::Computed(computed) => {
                                lower.computed_key(&computed.expr)
                            }
                        });
                        self.record_member_use(&member.obj, object, &key);
                        let to = self.fresh();
                        self.emit(member.span, Op::Get { to, object, key, called: true });
                        (to, Some(object))
                    }
                    other => self.outside_chain(|lower| lower.callee(other)),
                };
                self.leave_if_nothing(chain, callee);
                let args = self.outside_chain(|lower| lower.args(&call.args));
                let to = self.plain_call(span, callee, this, args, wait, on);
                self.set_source_text(to, span);
                (to, None)
            }
        }
    }

    /// Lowers an expression within a chain that is not a link of it, such as an argument.
    fn outside_chain<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.frame().chain.take();
        let made = make(self);
        self.frame().chain = before;
        made
    }

    /// Leaves the chain if the value is `undefined` or `null`.
    fn leave_if_nothing(&mut self, chain: &ast::OptChainExpr, value: Slot) {
        let exit = self.frame().chain;
        let (true, Some(exit)) = (chain.optional, exit) else { return };
        let span = chain.span;
        let cond = self.compute(span, Sum::IsNothing, vec![value]);
        let (then, ()) = self.block(|lower| lower.emit(span, Op::Jump { to: exit }));
        self.emit(span, Op::If { cond, then, other: Block::new(), appears: Appearance::Hidden });
    }
}

/// Returns the receiver of a method call; for a static method such as `Array.from`, the first argument.
fn called_on(callee: &ast::Expr, args: &[ast::ExprOrSpread]) -> Option<Extent> {
    let of_class = |member: &ast::MemberExpr| match bare(&member.obj) {
        ast::Expr::Ident(name) => matches!(&*name.sym, "Array" | "Object" | "Map" | "Iterator"),
        _ => false,
    };
    match bare(callee) {
        ast::Expr::Member(member) if of_class(member) => {
            args.first().map(|first| bounds(first.expr.span()))
        }
        ast::Expr::Member(member) => Some(bounds(member.obj.span())),
        ast::Expr::OptChain(chain) => match &*chain.base {
            ast::OptChainBase::Member(member) => Some(bounds(member.obj.span())),
            ast::OptChainBase::Call(_) => None,
        },
        _ => None,
    }
}
