//! Functions of `Object` and `Promise` whose results are followed.

use swc_atoms::Atom;
use swc_ecma_ast::{Callee, Expr, ExprOrSpread, MemberProp, Prop, PropName, PropOrSpread};

use super::Builder;
use super::call::Given;
use super::engine::changes_argument;
use super::expr::bare;
use super::object::put;
use super::promise::Use;
use super::value::{Cap, Deps, Form, Scalar, Value};

/// Functions of `Object` that give back what they are given, which can be changed less.
fn only_freezes(method: &str) -> bool {
    matches!(method, "freeze" | "seal" | "preventExtensions")
}

impl<'a> Builder<'a> {
    /// Follows `Object.method(…)` or `Promise.method(…)`, if it is one that is understood.
    pub(super) fn builtin(
        &mut self,
        object: &str,
        method: &str,
        args: &'a [ExprOrSpread],
    ) -> Option<Value> {
        let only = match args {
            [ExprOrSpread { spread: None, expr }] => Some(&**expr),
            _ => None,
        };
        match (object, method, only) {
            ("Promise", "all" | "allSettled" | "race" | "any", _) => {
                Some(self.together(method, args))
            }
            ("Promise", "resolve", Some(arg)) => Some(self.resolved(arg).in_promise()),
            ("Object", "keys" | "values" | "entries", Some(arg)) => Some(self.listed(method, arg)),
            ("Object", "fromEntries", Some(arg)) => Some(self.of_entries(arg)),
            ("Object", "assign", _) if is_new(args) => Some(self.assigned(args)),
            ("Object", _, Some(arg)) if only_freezes(method) => Some(self.follow(arg)),
            ("Object" | "Reflect", _, _) if changes_argument(method) => {
                Some(self.change_argument(args))
            }
            _ => None,
        }
    }

    /// Returns what `Object.freeze(…)` is given, or the expression itself.
    pub(super) fn thawed(&self, expr: &'a Expr) -> &'a Expr {
        if let Expr::Call(call) = expr
            && let (Callee::Expr(callee), [arg]) = (&call.callee, call.args.as_slice())
            && let Expr::Member(member) = bare(callee)
            && let (Expr::Ident(object), MemberProp::Ident(method)) =
                (bare(&member.obj), &member.prop)
            && &*object.sym == "Object"
            && self.lookup("Object").is_none()
            && only_freezes(&method.sym)
            && arg.spread.is_none()
        {
            return bare(&arg.expr);
        }
        expr
    }

    /// Gives a value to a function of the engine that is not followed with it.
    fn not_followed(&mut self, value: Value) -> Value {
        let given = Given { values: vec![self.handed_on(value)], rest: None };
        self.unknown_call(Deps::default(), &given, "is passed to a method that cannot be followed")
    }

    /// Follows `Object.keys(table)` and its like.
    fn listed(&mut self, how: &str, table: &'a Expr) -> Value {
        let value = self.looked_at(table);
        self.takes(&value, Use::Converted("Object"));
        if value.partial || !value.caps().is_empty() || !value.funcs().is_empty() {
            return self.not_followed(value);
        }
        if let Some(names) = names_of(&value) {
            let items = names.into_iter().zip(value.parts()).map(|(name, field)| match how {
                "keys" => name,
                "values" => field.clone(),
                _ => Value::array(vec![name, field.clone()]).of_tables(&value),
            });
            return Value::array(items.collect()).with_deps(&value.deps).of_tables(&value);
        }
        let value = self.handed_on(value);
        let deps = value.all_deps();
        match &value.form {
            // The names of the fields lead nowhere.
            Form::Object { .. } | Form::Array(_) | Form::Items(_) if how == "keys" => {
                Value::computed(deps)
            }
            Form::Object { open: false, .. } | Form::Array(_) | Form::Items(_)
                if value.is_loaded() =>
            {
                let item = self.any_part(&value).loosened();
                let item = match how {
                    "values" => item,
                    _ => Value::array(vec![Value::computed(deps.clone()), item]),
                };
                Value::items(item).with_deps(&deps).loosened()
            }
            _ => self.not_followed(value),
        }
    }

    /// Follows `Object.fromEntries([[name, value], …])`.
    fn of_entries(&mut self, arg: &'a Expr) -> Value {
        let list = self.expr(arg);
        let Form::Array(pairs) = &list.form else { return self.not_followed(list) };
        let mut fields = Vec::new();
        let mut deps = list.deps.clone();
        for pair in pairs.iter() {
            let (Form::Array(items), false) = (&pair.form, pair.shared || pair.partial) else {
                return self.not_followed(list);
            };
            let [name, value, ..] = items.as_slice() else { return self.not_followed(list) };
            let Some([name_text]) = name.exact() else { return self.not_followed(list) };
            deps.add(&pair.deps);
            deps.add(&name.deps);
            put(&mut fields, name_text.as_key(), value.clone());
        }
        if list.shared || list.partial {
            return self.not_followed(list);
        }
        let mut made = Value::object(fields, false);
        made.deps = deps;
        self.bounded(made)
    }

    /// Follows `Object.assign({ … }, …)`: the target is an object that nobody else has.
    fn assigned(&mut self, args: &'a [ExprOrSpread]) -> Value {
        let mut fields: Vec<(Atom, Value)> = Vec::new();
        let (mut open, mut deps) = (false, Deps::default());
        for arg in args {
            let value = self.expr(&arg.expr);
            if let Form::Object { fields, .. } = &value.form
                && fields.iter().any(|(name, _)| &**name == "__proto__")
            {
                // Unlike `...`, this sets the prototype.
                self.escape(&value, "is made a prototype");
                open = true;
            }
            self.spread(&value, &mut fields, &mut open, &mut deps);
        }
        let mut made = Value::object(fields, open);
        made.deps = deps;
        if open && made.is_loaded() {
            self.escape(&made, "is kept in an object that cannot be followed");
        }
        self.bounded(made)
    }

    /// Follows `Promise.resolve(value)`.
    fn resolved(&mut self, arg: &'a Expr) -> Value {
        let value = self.expr(arg);
        let is_tool = |cap: &Cap| matches!(cap, Cap::Tool(..) | Cap::Bound(..));
        // An object is asked for `then`, which it may have.
        let is_object = value.is_container() && !value.is_list();
        if value.is_loaded() && (is_object || !value.caps().iter().all(is_tool)) {
            return self.not_followed(value);
        }
        value.loosened()
    }

    /// Returns the text of `[…].join(separator)`, where every part of it is known.
    pub(super) fn joined(&mut self, list: &Value, given: &Given) -> Option<Value> {
        let Form::Array(items) = &list.form else { return None };
        if list.shared || list.partial || list.inexact || given.rest.is_some() {
            return None;
        }
        let text_of = |scalar: &Scalar| match scalar {
            Scalar::Undefined | Scalar::Null => "".into(),
            scalar => scalar.as_key(),
        };
        let between: Atom = match given.values.as_slice() {
            [] => ",".into(),
            [only] => match only.exact()? {
                [Scalar::Text(text)] => text.clone(),
                _ => return None,
            },
            _ => return None,
        };
        let mut parts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                parts.push(vec![between.clone()]);
            }
            parts.push(item.exact()?.iter().map(text_of).collect());
        }
        let deps = list.all_deps().and(&given.deps());
        Some(super::operator::concatenated(parts, deps))
    }
}

/// Returns whether the first argument is an object literal, all of whose fields are
/// plain ones, and no argument is spread.
fn is_new(args: &[ExprOrSpread]) -> bool {
    let plain = |prop: &PropOrSpread| match prop {
        PropOrSpread::Spread(_) => true,
        PropOrSpread::Prop(prop) => match &**prop {
            Prop::Shorthand(_) | Prop::Method(_) => true,
            Prop::KeyValue(pair) => match &pair.key {
                PropName::Ident(name) => &*name.sym != "__proto__",
                PropName::Str(name) => name.value.as_str().is_some_and(|name| name != "__proto__"),
                _ => false,
            },
            _ => false,
        },
    };
    let Some(Expr::Object(target)) = args.first().map(|arg| bare(&arg.expr)) else { return false };
    args.iter().all(|arg| arg.spread.is_none()) && target.props.iter().all(plain)
}

/// Returns the names of an object's fields, in their order, where nobody else has the
/// object and nothing was added to it.
pub(super) fn names_of(value: &Value) -> Option<Vec<Value>> {
    let Form::Object { fields, open: false } = &value.form else { return None };
    let loose = value.shared || value.partial || !value.caps().is_empty();
    if loose || fields.iter().any(|(name, _)| is_number(name)) {
        return None;
    }
    Some(fields.iter().map(|(name, _)| Value::text(name)).collect())
}

/// Returns whether a name may be a number: those come first, whatever their place
/// in the text.
fn is_number(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_digit())
}
