//! Where values are put: declarations, destructuring, assignment.

use swc_common::Spanned;
use swc_ecma_ast::{
    ArrayPat, AssignTargetPat, Expr, MemberExpr, ObjectPat, ObjectPatProp, OptChainBase, Pat,
    SimpleAssignTarget,
};

use super::Builder;
use super::control::Writes;
use super::engine::is_understood_method;
use super::expr::bare;
use super::member::Key;
use super::promise::Use;
use super::value::{Cap, Deps, Form, Scalar, Value};
use crate::diagnostic::Code;
use crate::parse;

/// The most fields that are followed one by one in an object that is written to.
const FIELDS: usize = 256;

impl<'a> Builder<'a> {
    /// Puts a value into the names of a pattern.
    pub(super) fn bind(&mut self, pattern: &'a Pat, value: Value) {
        self.at = parse::start(pattern.span());
        let value = self.calmed(value);
        match pattern {
            Pat::Ident(name) => self.write_name(&name.id, value),
            Pat::Array(array) => self.bind_array(array, value),
            Pat::Object(object) => self.bind_object(object, value),
            Pat::Assign(assign) => {
                let value = self.with_default(value, &assign.right);
                self.bind(&assign.left, value);
            }
            Pat::Rest(rest) => self.bind(&rest.arg, value),
            Pat::Expr(target) => {
                let value = self.handed_on(value);
                self.assign_to(target, value);
            }
            Pat::Invalid(_) => self.escape(&value, "is put where it cannot be followed"),
        }
    }

    fn write_name(&mut self, name: &'a swc_ecma_ast::Ident, value: Value) {
        if let Some(binding) = self.lookup(&name.sym) {
            self.write(binding, value);
            return;
        }
        match &*name.sym {
            "mcp" => self.dynamic(
                Code::DynamicWrite,
                "`mcp` cannot be assigned to; use a variable of the program".into(),
            ),
            "args" if !self.args_written => {
                self.args_written = true;
                self.changed = true;
            }
            "Promise" => self.dynamic(
                Code::DynamicGlobal,
                "what the engine offers is replaced; use a variable of the program".into(),
            ),
            _ => {}
        }
        self.stir(&value);
        self.escape(&value, "is kept in a variable that the program does not declare");
    }

    fn with_default(&mut self, mut value: Value, default: &'a Expr) -> Value {
        #[cfg(test)]
        if super::fault::is(super::fault::Fault::Defaults) {
            return value;
        }
        let deps = value.all_deps();
        let none = Deps::default();
        let (default, writes) =
            self.branch(|builder| builder.under(&none, true, false, |b| b.expr(default)));
        self.merge(vec![writes, Writes::default()], &deps);
        if !value.is_nothing() && value.caps().is_empty() {
            value = value.without(|scalar| *scalar == Scalar::Undefined);
        }
        self.or_else(value, default)
    }

    fn bind_object(&mut self, object: &'a ObjectPat, value: Value) {
        #[cfg(test)]
        let value = super::fault::without(super::fault::Fault::ObjectPatterns, value);
        if !object.props.is_empty() {
            self.takes(&value, Use::Parts);
        }
        let mut taken: Vec<String> = Vec::new();
        let mut all_known = true;
        let mut keys = Deps::default();
        for prop in &object.props {
            match prop {
                ObjectPatProp::KeyValue(pair) => {
                    self.at = parse::start(pair.key.span());
                    let key = self.prop_key(&pair.key);
                    keys.add(&key.deps);
                    all_known &= key.only().is_some();
                    taken.extend(key.only().map(str::to_owned));
                    let part = self.member(&value, &key);
                    self.bind(&pair.value, part);
                }
                ObjectPatProp::Assign(name) => {
                    self.at = parse::start(name.key.id.span);
                    let key = Key::of(name.key.id.sym.clone());
                    taken.push(name.key.id.sym.to_string());
                    let mut part = self.member(&value, &key);
                    if let Some(default) = &name.value {
                        part = self.with_default(part, default);
                    }
                    self.write_name(&name.key.id, part);
                }
                ObjectPatProp::Rest(rest) => {
                    self.at = parse::start(rest.span);
                    let others = match &value.form {
                        Form::Object { fields, open } if all_known && !value.partial => {
                            let left = fields
                                .iter()
                                .filter(|(name, _)| !taken.iter().any(|taken| **taken == **name))
                                .cloned()
                                .collect();
                            let mut left = Value::object(left, *open).with_deps(&value.deps);
                            left.shared = value.shared;
                            left.of_tables(&value)
                        }
                        _ => {
                            self.stir(&value);
                            self.escape(&value, "is copied by `...`");
                            Value::computed(value.all_deps())
                        }
                    };
                    if !value.caps().is_empty() {
                        self.escape(&value, "is copied by `...`");
                    }
                    #[cfg(test)]
                    let others = super::fault::without(super::fault::Fault::ObjectRest, others);
                    // What was taken out of it is missing.
                    self.bind(&rest.arg, others.with_deps(&keys));
                }
            }
        }
    }

    fn bind_array(&mut self, array: &'a ArrayPat, value: Value) {
        self.takes(&value, Use::Parts);
        let leads = value.caps().iter().any(|cap| !matches!(cap, Cap::Evaluator));
        if leads {
            self.escape(&value, "is iterated");
        }
        for (index, item) in array.elems.iter().enumerate() {
            let Some(item) = item else { continue };
            self.at = parse::start(item.span());
            if let Pat::Rest(rest) = item {
                let others = match &value.form {
                    Form::Array(items) => {
                        let left = items.iter().skip(index).cloned().collect();
                        let mut left = Value::array(left).with_deps(&value.deps);
                        left.shared = value.shared;
                        left.of_tables(&value)
                    }
                    _ => {
                        self.stir(&value);
                        self.escape(&value, "is iterated");
                        Value::computed(value.all_deps())
                    }
                };
                self.bind(&rest.arg, others);
                continue;
            }
            let part = match &value.form {
                // Any iterable can be taken apart, not only what has indices.
                Form::Object { .. } | Form::Function => self.item(&value),
                // The iterator ends where the array does.
                Form::Array(items) if index >= items.len() => Value::undefined(),
                _ if leads => Value::computed(value.all_deps()),
                _ => self.member(&value, &Key::of(index.to_string().into())),
            };
            self.bind(item, part);
        }
    }

    /// Assigns to the names and members of a pattern.
    pub(super) fn assign_pattern(&mut self, pattern: &'a AssignTargetPat, value: Value) {
        match pattern {
            AssignTargetPat::Array(array) => self.bind_array(array, value),
            AssignTargetPat::Object(object) => self.bind_object(object, value),
            AssignTargetPat::Invalid(_) => {
                self.escape(&value, "is put where it cannot be followed");
            }
        }
    }

    /// Assigns to an expression.
    pub(super) fn assign_to(&mut self, target: &'a Expr, value: Value) {
        match bare(target) {
            Expr::Ident(name) => self.write_name(name, value),
            Expr::Member(member) => self.assign_member(member, value),
            Expr::OptChain(chain) => {
                if let OptChainBase::Member(member) = &*chain.base {
                    self.assign_member(member, value);
                } else {
                    self.escape(&value, "is put where it cannot be followed");
                }
            }
            other => {
                let _ = self.expr(other);
                self.escape(&value, "is put where it cannot be followed");
            }
        }
    }

    /// Assigns to the left side of `=`.
    pub(super) fn assign_simple(&mut self, target: &'a SimpleAssignTarget, value: Value) {
        match target {
            SimpleAssignTarget::Ident(name) => self.write_name(&name.id, value),
            SimpleAssignTarget::Member(member) => self.assign_member(member, value),
            SimpleAssignTarget::Paren(inner) => self.assign_to(&inner.expr, value),
            SimpleAssignTarget::TsAs(cast) => self.assign_to(&cast.expr, value),
            SimpleAssignTarget::TsSatisfies(cast) => self.assign_to(&cast.expr, value),
            SimpleAssignTarget::TsNonNull(cast) => self.assign_to(&cast.expr, value),
            SimpleAssignTarget::TsTypeAssertion(cast) => self.assign_to(&cast.expr, value),
            SimpleAssignTarget::TsInstantiation(cast) => self.assign_to(&cast.expr, value),
            SimpleAssignTarget::SuperProp(_)
            | SimpleAssignTarget::OptChain(_)
            | SimpleAssignTarget::Invalid(_) => {
                self.mutate();
                self.escape(&value, "is put where it cannot be followed");
            }
        }
    }

    /// Returns the value that the left side of `+=` has before.
    pub(super) fn simple_value(&mut self, target: &'a SimpleAssignTarget) -> Value {
        match target {
            SimpleAssignTarget::Ident(name) => self.ident(&name.id),
            SimpleAssignTarget::Paren(inner) => self.quiet(&inner.expr),
            SimpleAssignTarget::TsAs(cast) => self.quiet(&cast.expr),
            SimpleAssignTarget::TsNonNull(cast) => self.quiet(&cast.expr),
            SimpleAssignTarget::TsSatisfies(cast) => self.quiet(&cast.expr),
            SimpleAssignTarget::TsTypeAssertion(cast) => self.quiet(&cast.expr),
            _ => Value::computed(Deps::default()),
        }
    }

    fn assign_member(&mut self, member: &'a MemberExpr, value: Value) {
        let object = self.expr(&member.obj);
        let key = self.member_key(&member.prop);
        self.put_member(member, object, &key, value);
    }

    /// Assigns to a part of a value that has been followed already.
    pub(super) fn put_member(
        &mut self,
        member: &'a MemberExpr,
        object: Value,
        key: &Key,
        value: Value,
    ) {
        self.written_into(&member.obj, &object);
        // A tool's result is data; only a function can take the place of one.
        let may_be_function = |builder: &Self| {
            let unknown = value.form == Form::Computed && !builder.means_tasks(&value.deps);
            unknown || !value.funcs().is_empty()
        };
        if key.only().is_some_and(is_understood_method) && may_be_function(self) {
            self.dynamic(
                Code::DynamicGlobal,
                "this replaces a method that the engine offers; give the field another name".into(),
            );
        }
        let root = bare(&member.obj);
        let by_maker = matches!(root, Expr::This(_))
            && key.only().is_some_and(|name| self.put_by_maker(name, &value));
        if !by_maker {
            self.escape(&value, "is kept in a field");
        }
        // What is right of `=` may have changed it meanwhile.
        let object = match root {
            Expr::Ident(name) => self.ident(name),
            _ => object,
        };
        let is_set = self.give_to_setters(key, &value.all_deps().and(&key.deps));
        let direct = match (root, &object.form, key.only()) {
            (Expr::Ident(name), Form::Object { fields, open }, Some(field))
                if !object.partial && !is_set && fields.len() < FIELDS =>
            {
                self.lookup(&name.sym)
                    .map(|binding| (binding, fields.clone(), *open, field.to_owned()))
            }
            _ => None,
        };
        // Where it is put is known to whoever finds it there.
        let value = value.with_deps(&key.deps);
        let deps = value.all_deps();
        let Some((binding, fields, open, field)) = direct else {
            self.flows_into(&member.obj, &deps);
            return;
        };
        let local = self.control.local.clone();
        let value = value.with_deps(&local);
        let mut fields = fields.to_vec();
        match fields.iter_mut().rev().find(|(name, _)| **name == *field) {
            Some((_, known)) => *known = value,
            None => fields.push((field.as_str().into(), value)),
        }
        let mut changed = Value::object(fields, open).with_deps(&object.deps);
        changed.add_load(&object);
        self.write(binding, changed);
        self.flows_on(binding, &deps);
    }
}
