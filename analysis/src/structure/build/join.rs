//! Values that may be either of two.

use std::rc::Rc;

use swc_atoms::Atom;

use super::few::merged;
use super::rows::Rows;
use super::value::{Deps, Form, TableId, Value};

/// The most constants that one value may be.
const CHOICE_LIMIT: usize = 16;
/// The most fields of objects that are joined name by name.
const NAMED_LIMIT: usize = 64;

/// What is not in the join of two values.
#[derive(Default)]
pub(super) struct Lost {
    /// What leads to tools or is a function.
    pub(super) loaded: Vec<Value>,
    /// The literals of which it is no longer known who has them.
    pub(super) tables: Vec<TableId>,
}

impl Value {
    /// Returns a value that may be either. Parts that cannot be kept apart are lost.
    pub(super) fn join(&self, other: &Self, lost: &mut Lost) -> Self {
        if self.form == Form::Never && !self.has_own_load() {
            return other.clone().with_deps(&self.deps);
        }
        if other.form == Form::Never && !other.has_own_load() {
            return self.clone().with_deps(&other.deps);
        }
        if self == other {
            return self.clone();
        }
        let form = match (&self.form, &other.form) {
            (Form::Const(left), Form::Const(right)) => {
                let mut all = left.to_vec();
                for scalar in right.iter() {
                    if !all.contains(scalar) {
                        all.push(scalar.clone());
                    }
                }
                if all.len() > CHOICE_LIMIT {
                    Form::Computed
                } else {
                    Form::Const(Rc::new(all.into()))
                }
            }
            (Form::Function, Form::Function) => Form::Function,
            (Form::Function, _) if other.is_nothing() => Form::Function,
            (_, Form::Function) if self.is_nothing() => Form::Function,
            (
                Form::Object { fields: left, open: left_open },
                Form::Object { fields: right, open: right_open },
            ) if left.len() == right.len()
                && left.iter().zip(right.iter()).all(|(a, b)| a.0 == b.0) =>
            {
                let fields = left
                    .iter()
                    .zip(right.iter())
                    .map(|((name, a), (_, b))| (name.clone(), a.join(b, lost)))
                    .collect();
                Form::Object { fields: Rc::new(fields), open: *left_open || *right_open }
            }
            (
                Form::Object { fields: left, open: left_open },
                Form::Object { fields: right, open: right_open },
            ) if left_open == right_open && left.len().max(right.len()) <= NAMED_LIMIT => {
                // What is not listed in one of them may be there all the same.
                let or_any = |fields: &[(Atom, Self)], name: &str, deps: &Deps| {
                    let field = fields.iter().rev().find(|(known, _)| **known == *name);
                    match field {
                        Some((_, value)) => value.clone(),
                        None if *left_open || all_have(name) => Self::computed(deps.clone()),
                        None => Self::undefined().with_deps(deps),
                    }
                };
                let mut names: Vec<&Atom> = left.iter().map(|(name, _)| name).collect();
                for (name, _) in right.iter() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                let fields = names
                    .into_iter()
                    .map(|name| {
                        let one = or_any(left, name, &self.deps);
                        let two = or_any(right, name, &other.deps);
                        (name.clone(), one.join(&two, lost))
                    })
                    .collect();
                Form::Object { fields: Rc::new(fields), open: true }
            }
            (Form::Array(left), Form::Array(right)) if left.len() == right.len() => {
                let items = left.iter().zip(right.iter()).map(|(a, b)| a.join(b, lost)).collect();
                Form::Array(Rc::new(items))
            }
            (Form::Items(_) | Form::Array(_), Form::Items(_) | Form::Array(_)) => {
                let parts = self.parts().chain(other.parts());
                let item = parts.fold(Self::never(), |item, part| item.join(part, lost));
                Form::Items(Rc::new(item))
            }
            (left, right) if left == right => left.clone(),
            (form, _) if self.is_container() && other.is_nothing() => form.clone(),
            (_, form) if other.is_container() && self.is_nothing() => form.clone(),
            _ => Form::Computed,
        };
        let mut joined = Self::of(form);
        joined.partial = joined.is_container() && self.is_container() != other.is_container();
        joined.deps = self.deps.clone().and(&other.deps);
        if joined.form == Form::Computed {
            self.all_tables(&mut lost.tables);
            other.all_tables(&mut lost.tables);
            for part in self.parts().chain(other.parts()) {
                joined.deps.add(&part.all_deps());
                if part.is_loaded() {
                    lost.loaded.push(part.clone());
                }
            }
        }
        joined.caps = merged(&self.caps, &other.caps);
        joined.funcs = merged(&self.funcs, &other.funcs);
        joined.loaded |= joined.caps.is_some() || joined.funcs.is_some();
        joined.span = if self.span == (0, 0) { other.span } else { self.span };
        joined.shared = self.shared || other.shared;
        joined.inexact = self.inexact || other.inexact;
        joined.partial |= self.partial || other.partial;
        joined.promised = self.promised.or(other.promised);
        joined.defaulted = self.defaulted || other.defaulted;
        let tables = match (&self.tables, &other.tables) {
            (Some(_), None) if other.is_container() => {
                lost.tables.extend(self.tables.iter().flat_map(|tables| tables.iter()));
                None
            }
            (None, Some(_)) if self.is_container() => {
                lost.tables.extend(other.tables.iter().flat_map(|tables| tables.iter()));
                None
            }
            (left, right) => merged(left, right).filter(|_| joined.is_container()),
        };
        joined.set_tables(tables);
        joined.rows = Rows::joined(&self.rows, &other.rows, lost);
        joined.fails = self.fails.clone();
        if let Some(deps) = &other.fails {
            joined.fails.get_or_insert_default().add(deps);
        }
        joined
    }

    fn has_own_load(&self) -> bool {
        self.caps.is_some() || self.funcs.is_some()
    }
}

/// Returns whether objects without a field of this name have something there.
fn all_have(name: &str) -> bool {
    matches!(
        name,
        "constructor"
            | "hasOwnProperty"
            | "isPrototypeOf"
            | "propertyIsEnumerable"
            | "toLocaleString"
            | "toString"
            | "valueOf"
    ) || name.starts_with("__")
}
