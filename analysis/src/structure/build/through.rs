//! Calls by way of something else: `call`, `apply`, `bind`, and tagged templates.

use swc_ecma_ast::{Expr, ExprOrSpread, TaggedTpl};

use super::Builder;
use super::call::{CallKind, Given};
use super::expr::{bare, bounds};
use super::feed::Slot;
use super::member::Key;
use super::path::{Path, Step};
use super::value::{Cap, Deps, Form, Value};

impl<'a> Builder<'a> {
    /// Notes that a method which cannot be followed may see what it is called on.
    pub(super) fn seen_as_this(&mut self, receiver: &Value, key: &Key, method: &Value) {
        if !receiver.is_container() || !receiver.is_loaded() {
            return;
        }
        // It may be a method that all objects have, which gives the object away.
        let any = key.names.is_none();
        let unknown = method.is_loaded() && method.form != Form::Function && !method.is_tool();
        // What may be another object has that one's method, then.
        let of_another = receiver.partial && self.is_own_function(receiver, key);
        if any || unknown && !of_another {
            self.escape_all_but_tools(receiver, "is in an object of which any method is called");
        }
    }

    fn is_own_function(&mut self, receiver: &Value, key: &Key) -> bool {
        let mut own = receiver.clone();
        own.partial = false;
        self.plain_member(&own, key).form == Form::Function
    }

    /// Follows `tool.call(this, input)` and its like, of a tool or a function.
    pub(super) fn call_through(
        &mut self,
        callee: &Value,
        method: &str,
        args: &'a [ExprOrSpread],
    ) -> Value {
        let Given { mut values, mut rest } = self.given(args);
        let this = if values.is_empty() { Value::undefined() } else { values.remove(0) };
        let is_own = callee.form == Form::Function;
        if !is_own {
            self.escape(&this, "is passed to a tool");
        }
        match method {
            "bind" => return self.bound(callee, this, Given { values, rest }),
            "apply" => {
                if let Some(list) = values.first().cloned() {
                    (values, rest) = self.applied(&list, is_own);
                }
            }
            _ => {}
        }
        let given = Given { values, rest };
        let this = is_own.then_some(this);
        let (result, fed) =
            self.feeding(|b| b.apply(callee.clone(), this, &given, CallKind::Plain));
        self.feed_sources(&fed, |slot| {
            let (at, part) = match (slot, method) {
                (Slot::This, _) => (0, Path::default()),
                (Slot::Param(index) | Slot::Rest(index), "call") => (index + 1, Path::default()),
                (Slot::Param(index) | Slot::Rest(index), _) => {
                    (1, Path::of(Step::name(&index.to_string())))
                }
            };
            args.get(at).map(|arg| (&*arg.expr, part))
        });
        result
    }

    /// Returns the arguments that `apply` takes out of a list.
    fn applied(&mut self, list: &Value, is_own: bool) -> (Vec<Value>, Option<Value>) {
        // Without a list there are no arguments at all.
        if let (Form::Array(items), false) = (&list.form, list.partial) {
            let place = |mut item: Value| {
                item.loosen(list.shared);
                item.with_deps(&list.deps)
            };
            return (items.iter().cloned().map(place).collect(), None);
        }
        self.escape(list, "is passed in a list of unknown length");
        let all = Value::computed(list.all_deps()).spanning(list.span);
        if is_own { (Vec::new(), Some(all)) } else { (vec![all], None) }
    }

    /// Follows `tool.bind(this, …)` and `function.bind(this, …)`.
    fn bound(&mut self, callee: &Value, this: Value, given: Given) -> Value {
        let nothing = given.values.is_empty() && given.rest.is_none();
        if callee.form == Form::Function {
            for func in callee.funcs().to_vec() {
                self.called_on(func, &this);
                if !nothing {
                    self.call_from_unknown(func, &given.deps(), true, true);
                }
            }
            if nothing {
                return callee.clone();
            }
        }
        if nothing {
            return callee.clone();
        }
        self.escape_given(&given, &Deps::default(), "is bound to a function");
        let mut bound = Value::computed(callee.deps.clone().and(&given.deps()));
        for cap in callee.caps() {
            match cap {
                Cap::Tool(namespace, action) | Cap::Bound(namespace, action) => {
                    bound.add_cap(Cap::Bound(namespace.clone(), action.clone()));
                }
                _ => self.escape(&Value::cap(cap.clone()), "is bound to arguments"),
            }
        }
        for func in callee.funcs() {
            bound.deps.add(&self.funcs[*func as usize].returned.all_deps());
        }
        bound
    }

    /// Follows a tagged template, which is a call.
    pub(super) fn tagged(&mut self, tagged: &'a TaggedTpl) -> Value {
        let (callee, this) = match bare(&tagged.tag) {
            Expr::Member(member) => {
                let receiver = self.expr(&member.obj);
                let key = self.member_key(&member.prop);
                let callee = self.member(&receiver, &key);
                self.seen_as_this(&receiver, &key, &callee);
                (callee, Some(receiver))
            }
            _ => (self.expr(&tagged.tag), None),
        };
        let mut values = vec![Value::computed(Deps::default()).spanning(bounds(tagged.tpl.span))];
        for expr in &tagged.tpl.exprs {
            values.push(self.expr(expr));
        }
        if let (Some(this), false) = (&this, callee.is_loaded()) {
            self.escape(this, "holds what a tag that cannot be followed may reach");
        }
        let deps = values.iter().fold(Deps::default(), |deps, value| deps.and(&value.all_deps()));
        values[0].deps.add(&deps);
        let given = Given { values, rest: None };
        let (result, fed) = self.feeding(|b| b.apply(callee, this, &given, CallKind::Plain));
        self.feed_sources(&fed, |slot| {
            let given = match (slot, bare(&tagged.tag)) {
                (Slot::This, Expr::Member(member)) => Some(&member.obj),
                (Slot::This, _) => None,
                // The texts of the template are given first.
                (Slot::Param(index) | Slot::Rest(index), _) => {
                    index.checked_sub(1).and_then(|at| tagged.tpl.exprs.get(at))
                }
            };
            given.map(|expr| (&**expr, Path::default()))
        });
        result
    }
}
