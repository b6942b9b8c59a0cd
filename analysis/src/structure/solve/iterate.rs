//! Iteration: over lists, maps, generators and data, and over the names of properties.
//!
//! An iteration is described by two things: the join of what it gives, and the sources that decide how often it
//! does (the *count*). The count is a flow of its own: a list's length may depend on a result on which none of
//! its items depends.

use super::walk::AbstractKey;
use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::{Kind, Origin, PathId, Paths, Prim, Ref, written};

/// What an iterator gives of a list, a map or a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The items or values.
    Values,
    /// The indices or keys.
    Keys,
    /// Lists of a key and a value.
    Pairs,
}

/// The maximum number of items of a list whose pairs are kept apart.
const PAIRS: usize = 16;

impl Solver<'_> {
    /// Returns the join of the values, keys or pairs of a value, and what decides how many there are.
    pub(super) fn parts(&mut self, of: Value, which: Which) -> (Value, Deps) {
        let (item, count) = self.iterated(of);
        let shape = self.dom.shapes.kept(of.shape);
        let is_keyed = |one: &Ref| match one {
            Ref::Obj(object) => {
                matches!(self.heap.objects[*object as usize].kind, Kind::Map | Kind::Set)
            }
            _ => false,
        };
        if !shape.refs.iter().any(is_keyed) {
            let key = Value::computed(count);
            let part = match which {
                Which::Values => item,
                Which::Keys => key,
                Which::Pairs => self.pairs_of(of).unwrap_or_else(|| self.pair(6, key, item)),
            };
            return (part, count);
        }
        let (mut keys, mut values) = (Value::NEVER, Value::NEVER);
        for one in &shape.refs {
            let (key, value) = match one {
                Ref::Obj(object) => match self.heap.objects[*object as usize].kind {
                    Kind::Map => {
                        (self.own(*object, self.known.keys), self.own(*object, self.known.elem))
                    }
                    Kind::Set => {
                        let value = self.own(*object, self.known.elem);
                        (value, value)
                    }
                    _ => (Value::computed(count), item),
                },
                _ => (Value::computed(count), item),
            };
            keys = self.dom.join(keys, key);
            values = self.dom.join(values, value);
            if let Ref::Obj(object) = one
                && self.heap.objects[*object as usize].escaped
            {
                let pooled = self.pooled();
                keys = self.dom.join(keys, pooled);
                values = self.dom.join(values, pooled);
            }
        }
        let part = match which {
            Which::Values => values,
            Which::Keys => keys,
            Which::Pairs => self.pair(6, keys, values),
        };
        (part, count)
    }

    /// Returns the `[index, item]` pairs of an exact list, each an object of its own.
    fn pairs_of(&mut self, list: Value) -> Option<Value> {
        let items = self.exact_items(list).filter(|items| (1..=PAIRS).contains(&items.len()))?;
        let place = self.place;
        let mut out = Value::NEVER;
        for (index, item) in items.into_iter().enumerate() {
            let key = self.dom.scalar(Scalar::Number((index as f64).to_bits()));
            // Each pair gets its own allocation site.
            self.place = place ^ ((index as u32 + 1) << 20) ^ (1 << 31);
            let pair = self.pair(6, key, item);
            out = self.dom.join(out, pair);
        }
        self.place = place;
        Some(out)
    }

    /// Returns what a built-in iterator (`list.values()`) gives, read from its target now.
    fn parts_of_target(&mut self, iterator: ObjId) -> (Value, Deps) {
        let target = self.own(iterator, self.known.target);
        let which = self.own(iterator, self.known.which);
        let number = match self.dom.shape(which).only() {
            Some(Scalar::Number(bits)) => Some(f64::from_bits(*bits)),
            _ => None,
        };
        let (mut out, mut count) = (Value::NEVER, NONE);
        for which in [Which::Values, Which::Keys, Which::Pairs] {
            if number.is_none_or(|number| number == f64::from(which as u8)) {
                let (part, own) = self.parts(target, which);
                out = self.dom.join(out, part);
                count = self.dom.union(count, own);
            }
        }
        (out, count)
    }

    /// Returns the join of what iterating a value gives, and what decides how often.
    pub(super) fn iterated(&mut self, list: Value) -> (Value, Deps) {
        let shape = self.dom.shapes.kept(list.shape);
        let mut count = self.dom.sources.used(list.deps);
        let mut out = Value::NEVER;
        if shape.prim != Prim::None {
            out = Value::computed(count);
        }
        for one in &shape.refs {
            let value = match one {
                Ref::Obj(object) => {
                    let (value, own) = self.iterated_object(*object, list);
                    count = self.dom.union(count, own);
                    value
                }
                Ref::Data(object, _) => {
                    let written = self.written_into(*object);
                    count = self.dom.union(count, written);
                    let any = AbstractKey { names: None, deps: NONE };
                    self.get_of(*one, list, &any, false)
                }
                Ref::Pool => {
                    self.touch_pool(list.deps);
                    count = self.dom.union(count, self.escaped.deps);
                    self.pooled()
                }
                Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                    self.tool_gap(*one, How::Iterated);
                    Value::computed(NONE)
                }
                Ref::Builtin(name) => {
                    self.escape_builtin(*name);
                    Value::computed(NONE)
                }
                Ref::Method(_) => Value::computed(NONE),
            };
            out = self.dom.join(out, value);
        }
        (out, count)
    }

    /// The same for an object: all of its items, values and properties.
    fn iterated_object(&mut self, object: ObjId, list: Value) -> (Value, Deps) {
        let mut count = NONE;
        let mut out = Value::NEVER;
        let cells: SmallVec<[(NameId, CellId); 8]> =
            self.heap.objects[object as usize].keys.iter().copied().collect();
        for (name, cell) in cells {
            let value = self.read(cell);
            if name == self.known.length || name == self.known.order {
                count = self.dom.union(count, value.deps);
            } else if name == self.known.proto
                || name == self.known.keys
                || name == self.known.target
                || name == self.known.which
                || value.is_never()
            {
                continue;
            } else {
                let kind = self.heap.objects[object as usize].kind;
                // Whether an item of a list exists is covered by the list's length.
                let is_listed =
                    name == self.known.elem && matches!(kind, Kind::Array | Kind::Iterator);
                if self.dom.shape(value).absent && !is_listed {
                    count = self.dom.union(count, value.deps);
                }
                if name == self.known.elem && !matches!(kind, Kind::Array | Kind::Iterator) {
                    count = self.dom.union(count, value.deps);
                }
                let value = self.present(value);
                out = self.dom.join(out, value);
            }
        }
        out = self.if_all_are_set(out, object);
        match self.heap.objects[object as usize].kind {
            Kind::Map => {
                let keys = self.own(object, self.known.keys);
                count = self.dom.union(count, keys.deps);
                out = self.pair(6, keys, out);
            }
            Kind::Iterator => {
                let driven = self.drive(object);
                count = self.dom.union(count, driven);
                // The target may have changed since the iterator was made.
                if self.heap.find(object, self.known.target).is_some() {
                    let (value, own) = self.parts_of_target(object);
                    count = self.dom.union(count, own);
                    out = self.dom.join(out, value);
                }
            }
            Kind::Opaque => {
                let own = self.reach(list);
                count = self.dom.union(count, own);
                out = self.dom.join(out, Value::computed(own));
            }
            _ => {}
        }
        if self.engine.converts {
            let this = self.dom.reference(Ref::Obj(object));
            // An iteration that the program defines itself is followed by `iterable`; what is left here is
            // unknown code.
            for name in ["@@iterator", "@@asyncIterator"] {
                if let Some(given) = self.call_named(this, object, name, Value::UNDEFINED) {
                    let unknown = self.unknown(&[given, this]);
                    count = self.dom.union(count, unknown.deps);
                    out = self.dom.join(out, unknown);
                }
            }
        }
        if self.heap.objects[object as usize].escaped {
            self.touch(object, list.deps);
            count = self.dom.union(count, self.escaped.deps);
            let pooled = self.pooled();
            out = self.dom.join(out, pooled);
        }
        (out, count)
    }

    /// Returns what is iterated in place of a value: the generator, where `Symbol.iterator` of an object of the
    /// program returns one.
    pub(super) fn iterable(&mut self, value: Value) -> Value {
        if !self.engine.converts {
            return value;
        }
        let shape = self.dom.shapes.kept(value.shape);
        let name = self.dom.name(&"@@iterator".into());
        let mut out = value;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            let known = &self.heap.objects[*object as usize];
            if known.kind == Kind::Iterator
                || known.escaped
                || self.own_method(*object, name).is_none()
            {
                continue;
            }
            let this = Value { deps: value.deps, shape: self.dom.shapes.of_ref(*one) };
            let Some(given) = self.call_named(this, *object, "@@iterator", Value::UNDEFINED) else {
                continue;
            };
            if self.is_generator(given) {
                let others = self.dom.shapes.only_refs(out.shape, |other| other != one, true);
                out = self.dom.join(Value { deps: out.deps, shape: others }, given);
            }
        }
        out
    }

    /// Returns whether a value can only be generators that unknown code does not hold.
    fn is_generator(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        let is_own = |one: &Ref| match one {
            Ref::Obj(object) => {
                let known = &self.heap.objects[*object as usize];
                known.kind == Kind::Iterator && !known.escaped
            }
            _ => false,
        };
        shape.prim == Prim::None
            && !shape.absent
            && !shape.refs.is_empty()
            && shape.refs.iter().all(is_own)
    }

    /// Returns the names of the own properties of a value, and what decides how many there are.
    pub(super) fn names_in(&mut self, value: Value) -> (Value, Deps) {
        let shape = self.dom.shapes.kept(value.shape);
        let mut out = Value::computed(NONE);
        let mut known = true;
        let mut names = Value::NEVER;
        for one in &shape.refs {
            let Ref::Obj(object) = one else {
                known = false;
                continue;
            };
            let has = &self.heap.objects[*object as usize];
            // The names are known one by one only for plain objects whose properties are few and in a known
            // order.
            known &= has.kind == Kind::Plain && !has.escaped && has.keys.len() <= 16;
            for (name, cell) in has.keys.clone() {
                let text = self.dom.names.text(name);
                if text.starts_with('%') {
                    if name == self.known.order {
                        let order = self.read(cell);
                        known &= self.dom.shape(order).only().is_some();
                    } else {
                        known &= name == self.known.proto;
                    }
                    continue;
                }
                if self.now(cell).is_never() || self.now(cell) == Value::ABSENT {
                    continue;
                }
                let name = self.dom.scalar(Scalar::Text(written(text)));
                names = self.dom.join(names, name);
            }
        }
        if known && !shape.refs.is_empty() && shape.prim == Prim::None && !names.is_never() {
            out = names;
        }
        let (_, count) = self.iterated(value);
        let own = self.dom.sources.used(value.deps);
        let out = self.dom.with(out, own);
        let count = self.dom.union(count, own);
        (if known { out } else { self.dom.with(out, count) }, count)
    }

    /// Returns the names that `for … in` gives: own and inherited ones.
    pub(super) fn names_within(&mut self, value: Value) -> (Value, Deps) {
        let (mut names, mut count) = self.names_in(value);
        for one in &self.dom.shapes.kept(value.shape).refs {
            let Ref::Obj(object) = one else { continue };
            self.pass_to_traps(*object, Value::UNDEFINED, value.deps);
            let (lineage, decides) = self.lineage(*object);
            count = self.dom.union(count, decides);
            for above in lineage.iter().copied() {
                let proto = self.own(above, self.known.proto);
                let shape = self.dom.shape(proto);
                // A prototype that is no object of the program has unknown properties.
                if shape.prim == Prim::Any
                    || shape.refs.iter().any(|one| matches!(one, Ref::Data(..) | Ref::Pool))
                {
                    names = Value::computed(names.deps);
                }
            }
            for above in lineage.into_iter().skip(1) {
                let above = self.dom.reference(Ref::Obj(above));
                let (more, own) = self.names_in(above);
                count = self.dom.union(count, own);
                names = self.dom.join(names, more);
            }
        }
        (self.dom.with(names, count), count)
    }

    /// Returns data that is computed from other values, as by `JSON.parse`.
    pub(super) fn data(&mut self, deps: Deps) -> Value {
        self.data_at(deps, Paths::SOME)
    }

    /// Returns a part of such data.
    pub(super) fn data_at(&mut self, deps: Deps, path: PathId) -> Value {
        let object = self.object(5, Kind::Data(Origin::Other));
        let deps = self.dom.sources.used(deps);
        Value { deps, shape: self.dom.shapes.of_ref(Ref::Data(object, path)) }
    }
}
