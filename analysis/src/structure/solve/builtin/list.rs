//! Lists, maps and sets: what methods put into them, and what they return.

use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::Prim;
use crate::structure::solve::iterate::Which;

impl Solver<'_> {
    /// Applies what a method changes in its receiver. Returns false if that is not understood.
    pub(super) fn take(
        &mut self,
        name: &str,
        method: Method,
        this: Value,
        args: &Args,
        called: Value,
    ) -> bool {
        if method.takes == Takes::Nothing && !method.moves {
            return true;
        }
        // A pattern without a state is not changed by its use.
        if matches!(name, "test" | "exec") && self.is_kind(this, Kind::Pattern) {
            return true;
        }
        let shape = self.dom.shapes.kept(this.shape);
        if shape.refs.is_empty() {
            return true;
        }
        let some = args
            .list
            .iter()
            .chain(&args.rest)
            .fold(Value::NEVER, |all, one| self.dom.join(all, *one));
        let ordered = self.reach(called);
        let all_own = |solver: &Self, wanted: &[Kind]| {
            shape.refs.iter().all(|one| match one {
                Ref::Obj(object) => wanted.contains(&solver.heap.objects[*object as usize].kind),
                Ref::Data(..) => true,
                _ => false,
            })
        };
        // On a plain object, the method is one that the program borrowed from lists.
        if self.has_kind(this, Kind::Plain) || shape.refs.contains(&Ref::Pool) {
            return false;
        }
        match method.takes {
            // One by one, so that an exact list stays exact.
            Takes::All if name == "push" => {
                args.list.iter().for_each(|value| self.push(this, *value, false));
                if let Some(rest) = args.rest {
                    self.push_some(this, rest, rest.deps);
                }
                return true;
            }
            Takes::All => self.push_some(this, some, some.deps),
            Takes::From(place) => {
                let taken: SmallVec<[Value; 4]> =
                    args.list.iter().skip(place).copied().chain(args.rest).collect();
                let some = taken.iter().fold(Value::NEVER, |all, one| self.dom.join(all, *one));
                self.push_some(this, some, some.deps);
            }
            Takes::Pair => {
                let (key, value) = (self.arg(args, 0), self.arg(args, 1));
                if !all_own(self, &[Kind::Map, Kind::Opaque]) {
                    return false;
                }
                self.set_pair(this, key, value);
                return true;
            }
            Takes::Nothing => {}
        }
        // From here on: the items are moved, so that any item may be at any index.
        if !method.moves || !self.follows(Rule::Moved) {
            return true;
        }
        // Any item may be at any place now.
        for one in &shape.refs {
            if let Ref::Data(object, _) = one {
                let given = self.reach_args(args);
                let deps = self.dom.union(ordered, given);
                self.put_any(*object, Value { deps, shape: Value::NEVER.shape });
                continue;
            }
            let Ref::Obj(object) = one else { continue };
            self.changed |= self.promises.emptied.insert(*object);
            let own = self.dom.reference(*one);
            let (item, count) = self.iterated(own);
            let control = self.reach_args(args);
            let deps = self.dom.union(ordered, count);
            let deps = self.dom.union(deps, control);
            match self.heap.objects[*object as usize].kind {
                Kind::Array => {
                    let item = self.dom.with(item, deps);
                    let item = self.dom.join(item, Value::UNDEFINED);
                    self.add_some(*object, item, deps);
                }
                _ => {
                    let cell = self.heap.cell(*object, self.known.elem);
                    self.write(cell, Value { deps, shape: Value::NEVER.shape }, false);
                }
            }
        }
        true
    }

    /// Puts a key and a value into a map.
    fn set_pair(&mut self, this: Value, key: Value, value: Value) {
        let shape = self.dom.shapes.kept(this.shape);
        let chosen = if shape.refs.len() > 1 { self.dom.sources.used(this.deps) } else { NONE };
        let own = self.dom.sources.used(key.deps);
        let deps = self.dom.union(chosen, own);
        let value = self.dom.with(value, deps);
        let key = self.dom.with(key, deps);
        for one in &shape.refs {
            match one {
                Ref::Obj(object) => {
                    self.put_any(*object, value);
                    self.escape_into(*object, key);
                    self.hold_in_object(key, *object);
                    let cell = self.heap.cell(*object, self.known.keys);
                    self.write(cell, key, false);
                }
                Ref::Data(object, _) => self.put_any(*object, value),
                _ => self.escape_here(value),
            }
        }
    }

    /// Returns the result of a method. `called` is the join of its callback's results; `both` are the sources
    /// of the receiver and the arguments.
    pub(super) fn gives(
        &mut self,
        name: &str,
        method: Method,
        this: Value,
        args: &Args,
        called: Value,
        both: Deps,
    ) -> Value {
        let decided = self.reach(called);
        match method.gives {
            Gives::Undefined => Value::UNDEFINED,
            Gives::Computed => {
                let deps = if matches!(method.calls, Calls::Each | Calls::Until) {
                    let (_, count) = self.iterated(this);
                    self.dom.union(count, decided)
                } else {
                    self.dom.union(both, decided)
                };
                Value::computed(deps)
            }
            Gives::Data => self.data(both),
            Gives::Texts if name == "matchAll" => {
                let data = self.data(both);
                let list = self.list_of(1, data, both);
                self.iterator_over(list, Which::Values)
            }
            Gives::Texts => {
                let text = Value::computed(both);
                self.list_of(1, text, both)
            }
            Gives::Itself => this,
            Gives::Part => {
                let (item, count) = match self.part_under(name, this, args) {
                    Some(part) => part,
                    None => self.held(this),
                };
                let given = self.key_deps(method, args);
                let item = self.dom.join(item, Value::UNDEFINED);
                let item = self.dom.with(item, count);
                let item = self.dom.with(item, given);
                self.dom.with(item, decided)
            }
            Gives::Parts => {
                let (mut item, mut count) = self.held(this);
                if method.calls == Calls::Never {
                    for value in args.list.iter().chain(&args.rest) {
                        let list = self.without_tools(*value);
                        let (other, own) = self.iterated(list);
                        let whole = self.dom.join(other, *value);
                        item = if name == "concat" || name == "with" || name == "toSpliced" {
                            self.dom.join(item, whole)
                        } else {
                            item
                        };
                        count = self.dom.union(count, own);
                    }
                    if name == "flat" {
                        let (deep, own) = self.flattened(item, args);
                        item = self.dom.join(item, deep);
                        count = self.dom.union(count, own);
                    }
                }
                let count = self.dom.union(count, decided);
                if self.is_text(this) {
                    return Value::computed(both);
                }
                match name {
                    "values" => self.iterator_over(this, Which::Values),
                    _ => {
                        let list = self.list_of(1, item, count);
                        // `slice` and `concat` exist for strings, too.
                        let is_data = |one: &Ref| matches!(one, Ref::Data(..) | Ref::Pool);
                        let shape = self.dom.shape(this);
                        let may_be_text = matches!(name, "slice" | "concat")
                            && (shape.prim != Prim::None || shape.refs.iter().any(is_data));
                        if may_be_text { self.dom.join(list, Value::computed(both)) } else { list }
                    }
                }
            }
            Gives::Pairs => self.iterator_over(this, Which::Pairs),
            Gives::Keys => self.iterator_over(this, Which::Keys),
            Gives::Mapped => {
                let (_, count) = self.iterated(this);
                self.list_of(1, called, count)
            }
            Gives::Flat => {
                let (_, count) = self.iterated(this);
                let list = self.without_tools(called);
                let (deep, own) = self.iterated(list);
                let item = self.dom.join(called, deep);
                let count = self.dom.union(count, own);
                self.list_of(1, item, count)
            }
            Gives::Folded => called,
        }
    }

    /// Returns what `flat` makes of an item, and what decides how many items that are.
    fn flattened(&mut self, item: Value, args: &Args) -> (Value, Deps) {
        let list = self.without_tools(item);
        let (mut item, mut count) = self.iterated(list);
        if args.list.is_empty() && args.rest.is_none() {
            return (item, count);
        }
        // The depth argument is not evaluated: nested items are added until no new ones are found.
        loop {
            let list = self.without_tools(item);
            let (deep, own) = self.iterated(list);
            let all = self.dom.join(item, deep);
            count = self.dom.union(count, own);
            if all == item {
                return (item, count);
            }
            item = all;
        }
    }

    /// Returns the part of a value that may be a list to be flattened: `mcp`, namespaces and tools are none.
    pub(super) fn without_tools(&mut self, value: Value) -> Value {
        let keep = |one: &Ref| !matches!(one, Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..));
        Value { deps: value.deps, shape: self.dom.shapes.only_refs(value.shape, keep, true) }
    }

    /// Makes an iterator over a list, a map or a set. It reads them when it is used, since they may change
    /// until then.
    fn iterator_over(&mut self, of: Value, which: Which) -> Value {
        let made = self.make(2, Kind::Iterator);
        self.set_own(made, self.known.target, of);
        let number = Scalar::Number(f64::from(which as u8).to_bits());
        let which = self.dom.scalar(number);
        self.set_own(made, self.known.which, which);
        made
    }

    /// Returns what selects among the items: the arguments, unless a callback does.
    fn key_deps(&mut self, method: Method, args: &Args) -> Deps {
        if method.calls == Calls::Never { self.reach_args(args) } else { NONE }
    }

    /// Returns the item of an exact list that `at` selects by a constant.
    fn part_under(&mut self, name: &str, this: Value, args: &Args) -> Option<(Value, Deps)> {
        if name == "at" {
            let items = self.exact_items(this)?;
            let place = self.arg(args, 0);
            let Scalar::Number(bits) = self.dom.shape(place).only()? else { return None };
            let place = f64::from_bits(*bits);
            let place = if place < 0.0 { place + items.len() as f64 } else { place };
            let own = self.dom.sources.used(this.deps);
            return Some((items.get(place as usize).copied()?, own));
        }
        None
    }

    /// Returns the join of what a list, a map or a set holds, and what decides how much. Unlike `iterated`, it
    /// gives the values of a map, and not its pairs.
    pub(in crate::structure::solve) fn held(&mut self, this: Value) -> (Value, Deps) {
        if !self.has_kind(this, Kind::Map) {
            return self.iterated(this);
        }
        let mut out = Value::NEVER;
        let mut count = self.dom.sources.used(this.deps);
        for one in &self.dom.shapes.kept(this.shape).refs {
            let map = match one {
                Ref::Obj(object) if self.heap.objects[*object as usize].kind == Kind::Map => {
                    *object
                }
                other => {
                    let other = Value { deps: this.deps, shape: self.dom.shapes.of_ref(*other) };
                    let (item, own) = self.iterated(other);
                    out = self.dom.join(out, item);
                    count = self.dom.union(count, own);
                    continue;
                }
            };
            let own = self.own(map, self.known.elem);
            out = self.dom.join(out, own);
            let keys = self.own(map, self.known.keys);
            count = self.dom.union(count, keys.deps);
            if self.heap.objects[map as usize].escaped {
                let pooled = self.pooled();
                out = self.dom.join(out, pooled);
            }
        }
        (out, count)
    }

    /// Returns whether a value can only be objects of a kind.
    fn is_kind(&self, value: Value, kind: Kind) -> bool {
        let shape = self.dom.shape(value);
        !shape.refs.is_empty()
            && shape.refs.iter().all(|one| match one {
                Ref::Obj(object) => self.heap.objects[*object as usize].kind == kind,
                _ => false,
            })
    }

    /// Returns whether a value can only be a string or another scalar.
    fn is_text(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        shape.refs.is_empty() && shape.prim != Prim::None
    }

    /// Makes a list of any number of items, which `count` decides.
    pub(super) fn list_of(&mut self, part: u32, item: Value, count: Deps) -> Value {
        let object = self.object(part, Kind::Array);
        let item = self.dom.with(item, count);
        if item.shape != Value::NEVER.shape {
            let item = Value { deps: item.deps, shape: self.dom.shapes.present(item.shape) };
            self.put_any(object, item);
        }
        let cell = self.heap.cell(object, self.known.length);
        self.write(cell, Value::computed(count), false);
        self.dom.reference(Ref::Obj(object))
    }

    /// Makes a list of known items.
    pub(super) fn exact_list(&mut self, part: u32, items: impl Iterator<Item = Value>) -> Value {
        let list = self.make(part, Kind::Array);
        for item in items {
            self.push(list, item, false);
        }
        list
    }

    /// `Array.from`
    pub(super) fn array_from(&mut self, args: &Args) -> Value {
        let from = self.arg(args, 0);
        let (mut item, mut count) = self.iterated(from);
        // Of an object with a `length`, `Array.from({ length: n })` makes as many items.
        let length = self.dom.name(&"length".into());
        let said = self.get(
            from,
            &AbstractKey { names: Some(smallvec::smallvec![length]), deps: NONE },
            false,
        );
        count = self.dom.union(count, said.deps);
        let converted = self.convert(said);
        count = self.dom.union(count, converted);
        // A length can be too large, and a value may be nothing that has items.
        let (mut fails, error) = self.fails_to_iterate(from);
        if !error.is_never() {
            fails = self.dom.union(fails, said.deps);
            fails = self.dom.union(fails, converted);
            if fails != NONE {
                self.may_fail_by(Value::computed(fails));
            }
        }
        item = self.dom.join(item, Value::UNDEFINED);
        let item = self.dom.with(item, count);
        match args.list.get(1) {
            None => match self.exact_items(from) {
                Some(items) => self.exact_list(1, items.into_iter()),
                None => self.list_of(1, item, count),
            },
            Some(callee) => {
                let list: SmallVec<[Value; 4]> = smallvec::smallvec![item, Value::computed(count)];
                let this = args.list.get(2).copied();
                let called = self.call_each(*callee, this, (count, None), false, |_, _| Args {
                    list: list.clone(),
                    rest: None,
                });
                self.list_of(1, called, count)
            }
        }
    }

    /// Fills a new map or set from an iterable.
    pub(super) fn fill(&mut self, made: Value, from: Value, is_map: bool) {
        self.may_fail_by(from);
        let shape = self.dom.shape(from);
        if shape.only().is_some_and(|one| matches!(one, Scalar::Undefined | Scalar::Null)) {
            return;
        }
        let (item, count) = self.iterated(from);
        let item = self.dom.with(item, count);
        if is_map {
            let (zero, one) = (self.dom.name(&"0".into()), self.dom.name(&"1".into()));
            let key = self.get(
                item,
                &AbstractKey { names: Some(smallvec::smallvec![zero]), deps: NONE },
                false,
            );
            let value = self.get(
                item,
                &AbstractKey { names: Some(smallvec::smallvec![one]), deps: NONE },
                false,
            );
            let (key, value) = (self.dom.with(key, count), self.dom.with(value, count));
            self.set_pair(made, key, value);
        } else {
            self.push_some(made, item, item.deps);
        }
    }
}
