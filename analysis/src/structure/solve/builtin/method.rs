//! Methods of the engine, applied by the table, and their callbacks.

use super::*;
use crate::structure::solve::iterate::Which;

impl Solver<'_> {
    /// Calls a method of the engine.
    pub(in crate::structure::solve) fn method(
        &mut self,
        name: NameId,
        this: Value,
        args: &Args,
        wait: bool,
    ) -> Value {
        let text = self.dom.names.text(name);
        match &*text {
            "then" | "catch" | "finally" => return self.chain(&text, this, args, wait),
            "call" | "apply" | "bind" => return self.applied(&text, this, args, wait),
            "next" | "return" | "throw" => return self.advance(&text, this, args),
            _ if name == self.known.method => return self.some_method_of(this, args),
            _ => {}
        }
        self.set_traps(text.starts_with("__"));
        if text.starts_with("__") && self.is_of_engine(this) {
            self.lose_engine();
        }
        let Some(method) = builtins::method(&text).filter(|_| !self.engine.hooks) else {
            return self.unknown_call(Some(this), args);
        };
        // Methods of iterators are lazy; the table describes those of lists.
        if self.has_kind(this, Kind::Iterator) && &*text != "toArray" {
            return self.unknown_call(Some(this), args);
        }
        let (row, method) = method;
        let method = self.remembered(row, *method);
        let given = self.by_table(&text, method, this, args);
        if &*text != "valueOf" {
            return given;
        }
        // `valueOf` of an object is the object itself.
        let objects = self.dom.shapes.only_refs(this.shape, |_| true, false);
        self.dom.join(given, Value { deps: this.deps, shape: objects })
    }

    /// Records that a pattern with a state (`lastIndex`) has moved.
    fn move_pattern(&mut self, pattern: Value, deps: Deps) {
        let deps = self.dom.union(deps, pattern.deps);
        for one in &self.dom.shapes.kept(pattern.shape).refs {
            if let Ref::Obj(object) = one
                && self.heap.objects[*object as usize].kind == Kind::Opaque
            {
                let cell = self.heap.cell(*object, self.known.elem);
                self.write(cell, Value::computed(deps), false);
            }
        }
    }

    /// Returns whether a value may be an object of a kind.
    pub(in crate::structure::solve) fn has_kind(&self, value: Value, kind: Kind) -> bool {
        self.dom.shape(value).refs.iter().any(|one| match one {
            Ref::Obj(object) => self.heap.objects[*object as usize].kind == kind,
            _ => false,
        })
    }

    /// Applies a method's row: the conversions, then the callbacks, then the changes, then the result.
    fn by_table(&mut self, name: &str, method: Method, this: Value, args: &Args) -> Value {
        if name == "join"
            && let Some(text) = self.joined_text(this, args)
        {
            return text;
        }
        let first = self.arg(args, 0);
        let callee = match method.calls {
            Calls::Match => self.arg(args, 1),
            _ => first,
        };
        // A scalar that is made without a callback depends on everything in the receiver. All other methods see
        // its items.
        let deep = self.reach(this);
        let (item, count) = if matches!(method.gives, Gives::Computed | Gives::Data | Gives::Texts)
            && method.calls == Calls::Never
        {
            (Value::computed(deep), deep)
        } else {
            self.iterated(this)
        };
        let mut given = NONE;
        let is_each = matches!(method.calls, Calls::Each | Calls::Until);
        if !is_each {
            given = self.reach_args(args);
        }
        let sorts = method.calls == Calls::Order && self.dom.shape(callee).refs.is_empty();
        // Without a callback, sorting compares the items as strings.
        if sorts {
            let own = self.under(NONE, true, true, |solver| solver.convert(this));
            given = self.dom.union(given, own);
        }
        if matches!(method.gives, Gives::Computed | Gives::Data | Gives::Texts) {
            let own = self.convert(this);
            given = self.dom.union(given, own);
            let own = self.convert_args(args);
            if !is_each {
                given = self.dom.union(given, own);
            }
        }
        let own = self.convert_places(name, this, args);
        given = self.dom.union(given, own);
        if name.starts_with("toLocale") || name == "localeCompare" {
            let own = self.take_fields(args);
            given = self.dom.union(given, own);
            let own = self.shown_locally(this);
            given = self.dom.union(given, own);
        }
        if name == "format" {
            let own = self.iterate_args(args);
            given = self.dom.union(given, own);
        }
        let both = self.dom.union(deep, given);
        self.may_fail_by(Value::computed(both));
        if matches!(name, "match" | "matchAll" | "replace" | "replaceAll" | "search" | "split") {
            self.move_pattern(first, both);
        }
        let called = if sorts {
            Value::computed(given)
        } else {
            let matched = match method.calls {
                // The pattern decides, too, how often there is a match, and which.
                Calls::Match => {
                    let (pattern, text) = (self.reach(first), self.convert(first));
                    let pattern = self.dom.union(pattern, text);
                    self.dom.union(deep, pattern)
                }
                _ => deep,
            };
            self.callbacks(method.calls, callee, this, args, item, count, matched)
        };
        self.check_callback(name, called);
        if !self.take(name, method, this, args, called) {
            return self.unknown_call(Some(this), args);
        }
        self.gives(name, method, this, args, called, both)
    }

    /// Calls `toLocaleString` of the items of a list.
    fn shown_locally(&mut self, list: Value) -> Deps {
        let mut deps = NONE;
        if !self.has_kind(list, Kind::Array) {
            return deps;
        }
        let (item, count) = self.iterated(list);
        for one in &self.dom.shapes.kept(item.shape).refs {
            let Ref::Obj(object) = one else { continue };
            let _ = self.optionally(count, |solver| {
                let given = solver.call_named(item, *object, "toLocaleString", Value::UNDEFINED);
                if let Some(given) = given {
                    let converted = solver.convert(given);
                    let own = solver.reach(given);
                    deps = solver.dom.union(deps, own);
                    deps = solver.dom.union(deps, converted);
                }
                Value::NEVER
            });
        }
        deps
    }

    /// Converts the arguments that a method takes as indices, strings or numbers, and not as items.
    fn convert_places(&mut self, name: &str, this: Value, args: &Args) -> Deps {
        let all = 0..usize::MAX;
        let places = match name {
            "set" | "get" | "delete" | "fill" if self.has_kind(this, Kind::Opaque) => all,
            "at" | "slice" | "flat" | "copyWithin" | "append" => all,
            "fill" => 1..usize::MAX,
            "with" => 0..1,
            "splice" | "toSpliced" => 0..2,
            _ => return NONE,
        };
        let places = args.list.iter().take(places.end).skip(places.start);
        let mut deps = NONE;
        for value in places.copied().chain(args.rest) {
            let own = self.convert(value);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    /// Calls the callback of a method; returns the join of its results.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of one call")]
    pub(super) fn callbacks(
        &mut self,
        calls: Calls,
        callee: Value,
        this: Value,
        args: &Args,
        item: Value,
        count: Deps,
        deep: Deps,
    ) -> Value {
        let item = self.dom.with(item, count);
        match calls {
            Calls::Never => Value::NEVER,
            Calls::Each | Calls::Until => {
                let own = self.arg(args, 1);
                let over = (count, Some(this));
                let until = calls == Calls::Until;
                let is_keyed = self.has_kind(this, Kind::Map) || self.has_kind(this, Kind::Set);
                self.call_each(callee, Some(own), over, until, |solver, item| {
                    let (item, count) = item.unwrap_or((Value::UNDEFINED, NONE));
                    let (item, key) = if is_keyed {
                        let (value, _) = solver.parts(this, Which::Values);
                        let (key, _) = solver.parts(this, Which::Keys);
                        (solver.dom.with(value, count), solver.dom.with(key, count))
                    } else {
                        (item, Value::computed(count))
                    };
                    Args { list: smallvec::smallvec![item, key, this], rest: None }
                })
            }
            Calls::Order | Calls::Match if self.dom.shape(callee).refs.is_empty() => Value::NEVER,
            Calls::Order => {
                // The results decide which items are compared next.
                let order = self.call_each(callee, None, (count, Some(this)), true, |_, item| {
                    let (item, _) = item.unwrap_or((Value::UNDEFINED, NONE));
                    Args { list: smallvec::smallvec![item, item], rest: None }
                });
                let converted = self.convert(order);
                self.dom.with(order, converted)
            }
            Calls::Match => {
                let text = Value::computed(deep);
                let part = self.call_each(callee, None, (deep, None), false, |_, _| Args {
                    list: SmallVec::new(),
                    rest: Some(text),
                });
                let converted = self.convert(part);
                self.dom.with(part, converted)
            }
            Calls::Fold => {
                let start = match args.list.get(1) {
                    Some(start) => *start,
                    None => item,
                };
                // The accumulator: what one call returns, the next one is given. Its cell is learned over the
                // rounds.
                let key = self.object(3, Kind::Opaque);
                let cell = self.heap.cell(key, self.known.value);
                self.hold_in_object(start, key);
                self.write(cell, start, false);
                let mut last = start;
                self.repeat(count, Some(this), |solver| {
                    let (more, _) = solver.iterated(this);
                    let item = solver.dom.join(item, more);
                    let before = solver.read(cell);
                    let before = solver.present(before);
                    let before = solver.folded(key, args.list.get(1).copied(), before);
                    let list: SmallVec<[Value; 4]> =
                        smallvec::smallvec![before, item, Value::computed(count), this];
                    let Some(value) =
                        solver.call_any(callee, None, &Args { list, rest: None }, false)
                    else {
                        return false;
                    };
                    solver.folds(key, value);
                    solver.hold_in_object(value, key);
                    solver.write(cell, value, false);
                    last = solver.dom.join(last, value);
                    true
                });
                self.dom.with(last, count)
            }
        }
    }
}
