//! The rows of a table that a loop goes over, one at a time.
//!
//! Of `for (const { space, tool } of TABLE)` it is known which `space` comes with which
//! `tool`. That holds for variables that are declared within the loop, as all of them
//! have what one row gives; so it is kept for as long as a value only goes from the loop
//! into such a variable, and lost wherever else it goes ([`Builder::expr`]).

use std::rc::Rc;

use swc_atoms::Atom;

use smallvec::SmallVec;
use swc_ecma_ast::{Expr, VarDeclKind};

use super::Builder;
use super::call::Given;
use super::expr::bare;
use super::join::Lost;
use super::member::Key;
use super::value::{Cap, Deps, Form, Scalar, Value};

/// The most rows that are told apart.
const ROWS: usize = 16;
/// The most pairs of rows of two loops.
const PAIRS: usize = 64;

/// What a value is in each row.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    /// The loop, by the place of what is done for each row.
    of: u32,
    each: Rc<[Value]>,
    /// The names that lead from there to the value: most are never asked for.
    path: SmallVec<[Atom; 2]>,
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
            && self.path == other.path
            && (Rc::ptr_eq(&self.each, &other.each) || self.each == other.each)
    }
}

impl Rows {
    fn new(of: u32, each: Vec<Value>) -> Rc<Self> {
        Rc::new(Self { of, each: each.into(), path: SmallVec::new() })
    }

    /// Joins what two values are in the rows of one loop.
    pub(super) fn joined(
        left: &Option<Rc<Self>>,
        right: &Option<Rc<Self>>,
        lost: &mut Lost,
    ) -> Option<Rc<Self>> {
        let (left, right) = (left.as_ref()?, right.as_ref()?);
        if left == right {
            return Some(left.clone());
        }
        let alike = left.of == right.of && left.each.len() == right.each.len();
        if !alike || left.path != right.path {
            return None;
        }
        let each = left.each.iter().zip(&*right.each).map(|(one, other)| one.join(other, lost));
        Some(Rc::new(Self { of: left.of, each: each.collect(), path: left.path.clone() }))
    }
}

/// Returns whether a declaration makes a variable anew for each row.
pub(super) fn is_made_anew(kind: VarDeclKind) -> bool {
    kind != VarDeclKind::Var
}

impl<'a> Builder<'a> {
    /// Follows an expression with which anything may be done, in this row.
    pub(super) fn in_row(&mut self, expr: &'a Expr) -> Value {
        let value = self.follow(bare(expr));
        self.handed_on(value)
    }

    /// Returns what going over a list gives each time, with its rows.
    pub(super) fn row(&mut self, list: &Value, of: u32) -> Value {
        let mut item = self.item(list);
        if list.shared || list.inexact || list.partial {
            return item;
        }
        // A list in a row gives names that belong to the other names in that row.
        if let (Some(rows), false) = (&list.rows, item.is_container()) {
            let each = self.each(rows).iter().map(|list| self.item(list)).collect();
            item.rows = Some(Rows::new(rows.of, each));
            return item;
        }
        let each = match &list.form {
            Form::Array(items) if items.len() <= ROWS => items.to_vec(),
            Form::Items(one) => one.rows.as_ref().map_or_else(Vec::new, |rows| self.each(rows)),
            _ => Vec::new(),
        };
        item.rows = (!each.is_empty()).then(|| Rows::new(of, each));
        item
    }

    /// Returns what a value is in each row.
    fn each(&mut self, rows: &Rows) -> Vec<Value> {
        let follow = |row: &Value| {
            rows.path
                .iter()
                .fold(row.clone(), |value, name| self.member(&value, &Key::of(name.clone())))
        };
        rows.each.iter().map(follow).collect()
    }

    /// Returns what a tool is given in those rows in which it is called.
    pub(super) fn given_in_rows(&mut self, callee: &Value, tool: &Cap, given: &Given) -> Given {
        let mut given = given.clone();
        for value in given.values.iter_mut().chain(&mut given.rest) {
            let Some(rows) = value.rows.take() else { continue };
            let Some(callees) = callee.rows.as_ref().filter(|all| all.of == rows.of) else {
                continue;
            };
            // What may have been changed since is not what stands in the row.
            if value.shared || value.inexact || value.partial {
                continue;
            }
            let mut own = Value::never();
            for (callee, one) in self.each(callees).iter().zip(self.each(&rows)) {
                if callee.caps().contains(tool) {
                    own = self.join(&own, &one);
                }
            }
            own.deps.add(&value.deps);
            *value = own.spanning(value.span);
        }
        given
    }

    /// Returns what is made of some values, where they have rows also in each row.
    pub(super) fn by_row(
        &mut self,
        values: &[Value],
        mut make: impl FnMut(&mut Self, &[Value]) -> Value,
    ) -> Value {
        let mut all = values.iter().filter_map(|value| value.rows.as_ref());
        let first = all.next().filter(|first| {
            all.all(|rows| rows.of == first.of && rows.each.len() == first.each.len())
        });
        // Of several that are chosen otherwise it is not known which row each belongs to.
        let is_sure = |value: &Value| {
            value.rows.is_some() || value.exact().is_none_or(|choices| choices.len() < 2)
        };
        let Some(rows) = first.filter(|_| values.iter().all(is_sure)) else {
            return make(self, values);
        };
        let of = rows.of;
        let values_in: Vec<Option<Vec<Value>>> =
            values.iter().map(|value| value.rows.as_ref().map(|rows| self.each(rows))).collect();
        let mut made = Value::never();
        let mut each = Vec::new();
        for row in 0..rows.each.len() {
            let in_row = |(value, rows): (&Value, &Option<Vec<Value>>)| match rows {
                Some(rows) => rows[row].clone(),
                None => value.clone(),
            };
            let values: Vec<Value> = values.iter().zip(&values_in).map(in_row).collect();
            let one = make(self, &values);
            made = self.join(&made, &one);
            each.push(one);
        }
        for value in values {
            made.deps.add(&value.all_deps());
        }
        made.rows = Some(Rows::new(of, each));
        made
    }

    /// Returns what `list.entries()` gives each time, with its rows.
    pub(super) fn pair(&mut self, list: &Value) -> Value {
        let pair_of = |item: Value| {
            Value::array(vec![Value::computed(Deps::default()), item]).of_tables(list)
        };
        let item = self.row(list, 0);
        let rows = item.rows.as_ref().map(|rows| self.each(rows));
        let mut pair = pair_of(item);
        pair.rows = rows.map(|rows| Rows::new(0, rows.into_iter().map(pair_of).collect()));
        pair
    }

    /// Returns a part of a value, where it is known in each row.
    pub(super) fn row_member(&mut self, value: &Value, key: &Key) -> Option<Value> {
        if value.shared || value.inexact || value.partial || key.names.is_none() {
            return None;
        }
        let of = value.rows.as_ref().or(key.rows.as_ref())?.of;
        if let (Some(rows), None, Some(name)) = (&value.rows, &key.rows, key.only_name())
            && value.caps().is_empty()
        {
            let mut path = rows.path.clone();
            path.push(name.clone());
            let rows = Rows { path, ..(**rows).clone() };
            let mut plain = value.clone();
            plain.rows = None;
            let mut part = self.member(&plain, key);
            part.rows = Some(Rc::new(rows));
            return Some(part);
        }
        let keys: Option<Vec<Key>> = key
            .rows
            .as_ref()
            .and_then(|rows| self.each(rows).iter().map(|one| key.in_row(one)).collect());
        let spaces = value.caps().iter().filter(|cap| matches!(cap, Cap::Namespace(_))).count();
        let is_mcp = value.caps().contains(&Cap::Mcp);
        let values = value.rows.as_ref().map(|rows| (rows.of, self.each(rows)));
        let pairs: Vec<(Value, Key)> = match (values, &key.rows, keys) {
            (Some((of, values)), Some(rows), Some(keys)) if of == rows.of => {
                values.into_iter().zip(keys).collect()
            }
            // Of two loops, one in the other, each row meets each.
            (Some((_, values)), Some(_), Some(keys)) if values.len() * keys.len() <= PAIRS => {
                let with_all = |value: &Value| {
                    keys.iter().map(|key| (value.clone(), key.clone())).collect::<Vec<_>>()
                };
                values.iter().flat_map(with_all).collect()
            }
            (Some((_, values)), ..) if spaces == 0 || key.only().is_some() => {
                values.into_iter().map(|value| (value, key.clone())).collect()
            }
            (None, _, Some(keys)) if is_mcp || spaces == 1 => {
                keys.into_iter().map(|key| (value.clone(), key)).collect()
            }
            _ => return None,
        };
        let of_one_loop =
            value.rows.is_none() || key.rows.as_ref().is_none_or(|rows| rows.of == of);
        let mut part = Value::never();
        let mut each = Vec::new();
        for (mut value, key) in pairs {
            value.rows = None;
            let one = self.member(&value, &key);
            part = self.join(&part, &one);
            each.push(one);
        }
        part.rows = of_one_loop.then(|| Rows::new(of, each));
        part.deps.add(&value.deps);
        part.deps.add(&key.deps);
        Some(part)
    }
}

impl Key {
    /// Returns the key in a row where it is `value`.
    fn in_row(&self, value: &Value) -> Option<Self> {
        let names = value.exact()?.iter().map(Scalar::as_key).collect();
        Some(Self { names: Some(names), hint: None, deps: self.deps.clone(), rows: None })
    }
}
