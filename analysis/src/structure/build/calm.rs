//! Lists and tables that nothing changes: what is written in them is what they hold.
//!
//! A literal is calm as long as every expression that gives it, or a list or table in
//! it, only looks at the parts: [`Builder::looked_at`]. All others hand the object on
//! ([`Builder::handed_on`]), and then no name of a tool is taken from it.

use std::rc::Rc;

use swc_atoms::Atom;
use swc_common::Spanned;
use swc_ecma_ast::{ArrayLit, Expr, ExprOrSpread, ObjectLit, Pat, Prop, PropName, PropOrSpread};

use super::Builder;
use super::expr::bare;
use super::few::{Few, one};
use super::value::{Cap, Form, TableId, Value};

/// Methods of arrays that hand the array to nobody, with the number of
/// parameters of their callback that do not see it.
fn looks_only(method: &str) -> Option<usize> {
    Some(match method {
        "map" | "forEach" | "filter" | "flatMap" | "some" | "every" | "find" | "findIndex"
        | "findLast" | "findLastIndex" => 2,
        "reduce" | "reduceRight" => 3,
        "includes" | "indexOf" | "lastIndexOf" | "join" | "at" | "slice" | "concat" | "entries"
        | "keys" | "values" => 0,
        _ => return None,
    })
}

/// Returns whether a function can only see its first `count` arguments.
fn sees_at_most(arg: &ExprOrSpread, count: usize) -> bool {
    match bare(&arg.expr) {
        Expr::Arrow(arrow) => {
            arrow.params.len() <= count
                && !arrow.params.iter().any(|param| matches!(param, Pat::Rest(_)))
        }
        Expr::Lit(_) | Expr::Tpl(_) => true,
        _ => false,
    }
}

/// Returns whether a call of a method only looks at the parts of an array.
pub(super) fn only_looks(method: Option<&str>, args: &[ExprOrSpread]) -> bool {
    let Some(count) = method.and_then(looks_only) else { return false };
    // With nothing to begin with, the running result is an item, too.
    let folds = count == 3;
    args.iter().all(|arg| arg.spread.is_none())
        && (count == 0 || args.first().is_some_and(|arg| sees_at_most(arg, count)))
        && (!folds || args.len() > 1)
}

impl<'a> Builder<'a> {
    /// Notes that somebody may change what is in some literals.
    pub(super) fn stir_all(&mut self, tables: Vec<TableId>) {
        for table in tables {
            self.changed |= self.stirred.insert(table);
        }
    }

    /// Notes that somebody may change a value and what is in it.
    pub(super) fn stir(&mut self, value: &Value) {
        if !value.is_in_table() {
            return;
        }
        let own = value.tables.iter().flat_map(|tables| tables.iter().copied()).collect();
        self.stir_all(own);
        // The same list is handed on again and again.
        let content = value.form.content();
        if content.as_ref().is_some_and(|content| self.stirred_contents.contains_key(content)) {
            return;
        }
        let mut tables = Vec::new();
        value.all_tables(&mut tables);
        self.stir_all(tables);
        if let Some(content) = content {
            // Kept, so that nothing else comes to lie there.
            self.stirred_contents.insert(content, value.form.clone());
        }
    }

    /// Returns a value with which anything may be done.
    pub(super) fn handed_on(&mut self, value: Value) -> Value {
        self.stir(&value);
        value
    }

    /// Follows an expression of whose value only the parts are looked at.
    pub(super) fn looked_at(&mut self, expr: &'a Expr) -> Value {
        let value = self.follow(expr);
        // Most lists that are written out are empty, and filled later.
        if !value.is_container() || value.parts().next().is_none() {
            return value;
        }
        let value = self.written(self.thawed(bare(expr)), value);
        self.calmed(value)
    }

    /// Follows an expression of whose value somebody gets a copy.
    pub(super) fn copied(&mut self, expr: &'a Expr) -> Value {
        let value = self.follow(expr);
        self.calmed(value)
    }

    /// Returns a value that has a name as one that nobody else has, if nobody changes it.
    pub(super) fn calmed(&self, mut value: Value) -> Value {
        let is_calm =
            |tables: &Few<TableId>| !tables.iter().any(|table| self.stirred.contains(table));
        // What may be missing may also be something that all objects have.
        if !value.inexact && value.tables.as_ref().is_some_and(is_calm) {
            value.shared = false;
        }
        value
    }

    /// Returns the value of an expression with the literals that it is made of.
    fn written(&self, expr: &Expr, mut value: Value) -> Value {
        let table = expr.span().lo.0;
        if !value.is_container() || value.partial || self.stirred.contains(&table) {
            return value;
        }
        match (expr, &value.form) {
            // What is in it has no parts of its own to be told apart.
            (Expr::Array(_), Form::Array(items)) if !items.iter().any(Value::is_container) => {
                if !items.iter().all(is_data_or_tool) {
                    return value;
                }
            }
            (Expr::Array(list), Form::Array(items)) => {
                let Some(items) = self.written_items(list, items) else { return value };
                value.form = Form::Array(Rc::new(items));
            }
            (Expr::Object(object), Form::Object { fields, open: false }) => {
                let Some(fields) = self.written_fields(object, fields) else { return value };
                value.form = Form::Object { fields: Rc::new(fields), open: false };
            }
            _ => return value,
        }
        value.set_tables(Some(one(table)));
        value
    }

    fn written_items(&self, list: &ArrayLit, items: &[Value]) -> Option<Vec<Value>> {
        let item = |(written, item): (&Option<ExprOrSpread>, &Value)| match written {
            Some(written) if written.spread.is_some() => None,
            Some(written) => self.written_part(&written.expr, item),
            None => Some(item.clone()),
        };
        let alike = list.elems.len() == items.len();
        alike.then(|| list.elems.iter().zip(items).map(item).collect())?
    }

    fn written_fields(
        &self,
        object: &ObjectLit,
        fields: &[(Atom, Value)],
    ) -> Option<Vec<(Atom, Value)>> {
        // A field that is there twice is not what it was first.
        let mut all = fields.len() == object.props.len();
        let mut fields = fields.to_vec();
        for prop in &object.props {
            let PropOrSpread::Prop(prop) = prop else {
                all = false;
                continue;
            };
            match &**prop {
                Prop::Shorthand(_) => {}
                Prop::KeyValue(pair) => {
                    let name = match &pair.key {
                        PropName::Ident(name) => Some(&*name.sym),
                        PropName::Str(name) => name.value.as_str(),
                        _ => None,
                    };
                    let field = fields.iter_mut().find(|(known, _)| Some(&**known) == name);
                    match field {
                        Some((_, field)) if all => {
                            *field = self.written_part(&pair.value, field)?
                        }
                        _ => all = false,
                    }
                }
                // They can change the object through `this`.
                Prop::Getter(_) | Prop::Setter(_) | Prop::Method(_) => return None,
                Prop::Assign(_) => all = false,
            }
        }
        let plain =
            |(_, field): &(Atom, Value)| is_data_or_tool(field) && (all || !field.is_container());
        fields.iter().all(plain).then_some(fields)
    }

    /// Returns a part of a literal, if nobody has it but who has the literal.
    fn written_part(&self, expr: &Expr, part: &Value) -> Option<Value> {
        if !part.is_container() {
            return is_data_or_tool(part).then(|| part.clone());
        }
        let mut part = self.written(bare(expr), part.clone());
        // Of one that is changed, it is known only that nobody else has the others.
        part.shared |= self.stirred.contains(&bare(expr).span().lo.0);
        (part.tables.is_some() || part.shared).then_some(part)
    }
}

/// Returns whether a part of a literal leads to nothing that could change the literal.
fn is_data_or_tool(part: &Value) -> bool {
    let tool = matches!(part.caps(), [Cap::Tool(..)]);
    part.funcs().is_empty() && (tool || part.caps().is_empty())
}
