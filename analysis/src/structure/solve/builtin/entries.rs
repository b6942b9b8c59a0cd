//! `Object.entries`, `Object.fromEntries` and `Object.assign`.

use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::{Prim, written};

impl Solver<'_> {
    /// Returns the fields of an object in order, if all of them are known.
    pub(super) fn exact_fields(&mut self, value: Value) -> Option<Vec<(NameId, Value)>> {
        let shape = self.dom.shape(value);
        let (Prim::None, [Ref::Obj(id)]) = (&shape.prim, shape.refs.as_slice()) else {
            return None;
        };
        let object = &self.heap.objects[*id as usize];
        if object.kind != Kind::Plain || object.escaped || !self.is_exact_object(*id) {
            return None;
        }
        let mut fields = Vec::new();
        let deps = self.dom.sources.used(value.deps);
        for (name, cell) in object.keys.clone() {
            let held = self.read(cell);
            if held == Value::ABSENT || held.is_never() {
                continue;
            }
            let text = self.dom.names.text(name);
            if text.starts_with("get:") || text.starts_with("set:") {
                return None;
            }
            // A name that is a number is moved to the front by the engine.
            let is_place = text.starts_with(|c: char| c.is_ascii_digit());
            let is_ordered = name != self.known.order || self.dom.shape(held).only().is_some();
            if name == self.known.elem || is_place || !is_ordered || self.dom.shape(held).absent {
                return None;
            }
            if !text.starts_with('%') {
                fields.push((name, self.dom.with(held, deps)));
            }
        }
        Some(fields)
    }

    /// Returns a list of pairs, each of which is an object of its own.
    fn exact_pairs(&mut self, of: Vec<(Scalar, Value)>) -> Value {
        let place = self.place;
        let mut pairs = Vec::new();
        for (index, (key, value)) in of.into_iter().enumerate() {
            let key = self.dom.scalar(key);
            // Each pair gets its own allocation site.
            self.place = place ^ ((index as u32 + 1) << 20) ^ (1 << 31);
            pairs.push(self.pair(6, key, value));
        }
        self.place = place;
        self.exact_list(1, pairs.into_iter())
    }

    /// `Object.entries`
    pub(super) fn entries(&mut self, of: Value) -> Value {
        if let Some(fields) = self.exact_fields(of) {
            let pairs = fields.into_iter();
            let pairs = pairs
                .map(|(name, value)| (Scalar::Text(written(self.dom.names.text(name))), value));
            let pairs = pairs.collect();
            return self.exact_pairs(pairs);
        }
        let (names, count) = self.names_in(of);
        let (item, own) = self.iterated(of);
        let item = self.got_by_getters(of, item);
        let count = self.dom.union(count, own);
        let pair = self.pair(6, names, item);
        self.list_of(1, pair, count)
    }

    /// `Object.fromEntries`
    pub(super) fn of_entries(&mut self, list: Value) -> Value {
        let made = self.make(1, Kind::Plain);
        let (item, count) = self.iterated(list);
        let deps = self.dom.union(item.deps, count);
        self.may_fail_by(Value::computed(deps));
        let place = |solver: &mut Self, index: &str| {
            let name = solver.dom.name(&index.into());
            AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE }
        };
        let (zero, one) = (place(self, "0"), place(self, "1"));
        if let Some(pairs) = self.exact_items(list) {
            for pair in pairs {
                let (key, value) = (self.get(pair, &zero, false), self.get(pair, &one, false));
                let names = self.dom.keys(key);
                let deps = self.dom.sources.used(key.deps);
                let converted = self.convert(key);
                let deps = self.dom.union(deps, converted);
                self.define(
                    made,
                    &AbstractKey { names, deps },
                    value,
                    crate::structure::core::Put::Value,
                );
            }
            return made;
        }
        let (pair, count) = self.iterated(list);
        let (key, value) = (self.get(pair, &zero, false), self.get(pair, &one, false));
        let deps = self.reach(key);
        let deps = self.dom.union(deps, count);
        let converted = self.convert(key);
        let deps = self.dom.union(deps, converted);
        let value = self.dom.with(value, deps);
        self.put(made, &AbstractKey { names: None, deps: NONE }, value);
        made
    }

    /// Copies fields as `Object.assign` does: by writes, which call setters.
    pub(super) fn assign(&mut self, to: Value, from: Value) {
        match self.exact_fields(from) {
            Some(fields) => {
                for (name, value) in fields {
                    self.put(
                        to,
                        &AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE },
                        value,
                    );
                }
            }
            None => {
                self.spread(to, from, &[]);
                if self.core.accessors && self.may_have_setters(to) {
                    // Which setters are called is not known.
                    let (item, count) = self.iterated(from);
                    let item = self.dom.with(item, count);
                    self.put(to, &AbstractKey { names: None, deps: count }, item);
                }
            }
        }
    }

    /// Returns whether writes to a value may call setters of the program.
    fn may_have_setters(&mut self, value: Value) -> bool {
        self.dom.shapes.kept(value.shape).refs.iter().any(|one| match one {
            Ref::Obj(object) => self.lineage(*object).0.into_iter().any(|object| {
                let proto = self.own(object, self.known.proto);
                let known = &self.heap.objects[object as usize];
                let is_setter = |(name, _): &(NameId, CellId)| {
                    let text = self.dom.names.get(*name);
                    text.starts_with("set:") || text.starts_with("get:")
                };
                let is_own = |one: &Ref| matches!(one, Ref::Obj(_));
                known.escaped
                    || known.keys.iter().any(is_setter)
                    || !self.dom.shape(proto).refs.iter().all(is_own)
            }),
            _ => true,
        })
    }

    /// Adds to an item what the getters of an object return whose fields are read.
    pub(super) fn got_by_getters(&mut self, of: Value, item: Value) -> Value {
        if !self.core.accessors {
            return item;
        }
        let any = self.any_of(of);
        self.dom.join(item, any)
    }
}
