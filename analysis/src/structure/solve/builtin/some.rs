//! Unknown methods of the engine. A property of unknown name may be any of the methods that an object inherits
//! from the engine, so that a call of it is a call of some such method.

use super::*;
use crate::structure::core::Scalar;

impl Solver<'_> {
    /// Calls an unknown method of the engine.
    pub(super) fn some_method_of(&mut self, this: Value, args: &Args) -> Value {
        let mut kinds: SmallVec<[Kind; 2]> = SmallVec::new();
        for one in &self.dom.shape(this).refs {
            match one {
                Ref::Obj(object) => kinds.push(self.heap.objects[*object as usize].kind),
                _ => return self.unknown_call(Some(this), args),
            }
        }
        let is_list = |kind: &Kind| *kind == Kind::Array;
        // The methods of plain objects and lists are few, and their joint effect is modeled below; others are
        // unknown code.
        let is_plain = |kind: &Kind| matches!(kind, Kind::Plain | Kind::Array);
        // The methods of plain objects call getters by conversions only.
        let gets = self.core.accessors && !kinds.iter().all(|kind| *kind == Kind::Plain);
        let calls = self.leads_to_functions(args) || gets || self.engine.hooks;
        if !calls && self.dom.shape(this).only() == Some(&Scalar::Undefined) {
            return self.some_method_of_nothing(args);
        }
        if calls || kinds.is_empty() || !kinds.iter().all(is_plain) {
            return self.unknown_call(Some(this), args);
        }
        // It may return its receiver, an argument, or something computed from them.
        let mut deps = self.convert_args(args);
        for own in [self.reach(this), self.convert(this)] {
            deps = self.dom.union(deps, own);
        }
        self.may_fail_by(Value::computed(deps));
        let mut out = self.dom.join(this, Value::computed(deps));
        for value in args.list.iter().chain(&args.rest) {
            out = self.dom.join(out, *value);
        }
        if !kinds.iter().any(is_list) {
            return self.dom.with(out, deps);
        }
        // A method of a list may return, add or move items.
        let (item, count) = self.iterated(this);
        let given =
            args.list.iter().chain(&args.rest).fold(item, |all, one| self.dom.join(all, *one));
        let given = self.dom.with(given, deps);
        self.push_some(this, given, count);
        let pair = self.pair(6, Value::computed(count), given);
        let lists = self.without_tools(given);
        let deep = self.iterated(lists).0;
        for part in [given, pair, deep, Value::UNDEFINED] {
            out = self.dom.join(out, part);
        }
        let list = self.list_of(1, out, deps);
        let out = self.dom.join(out, list);
        self.dom.with(out, deps)
    }

    /// Calls an unknown method on `undefined`: it fails, or converts its arguments, as the function
    /// `constructor` does. It changes nothing.
    fn some_method_of_nothing(&mut self, args: &Args) -> Value {
        let deps = self.convert_args(args);
        self.may_fail_by(Value::computed(deps));
        let given = args.list.iter().chain(&args.rest);
        let out = given.fold(Value::computed(deps), |all, one| self.dom.join(all, *one));
        let list = self.list_of(1, out, deps);
        let out = self.dom.join(out, list);
        self.dom.with(out, deps)
    }

    /// Writes a property of a method of the engine, which a property of unknown name may have been.
    pub(in crate::structure::solve) fn put_on_method(
        &mut self,
        method: NameId,
        key: &AbstractKey,
        value: Value,
    ) {
        let is_own = |name: &NameId| builtins::is_offered(&self.dom.names.text(*name));
        let is_some = method == self.known.method;
        if !is_some || key.names.as_ref().is_none_or(|names| names.iter().any(is_own)) {
            self.lose_engine();
            return;
        }
        self.escape(value);
        if !self.engine.marked {
            (self.engine.marked, self.changed) = (true, true);
        }
    }

    /// Reads a property of a method of the engine.
    pub(in crate::structure::solve) fn get_of_method(&mut self, key: &AbstractKey) -> Value {
        let value = self.named(key, |solver, name| solver.dom.reference(Ref::Method(name)));
        if !self.engine.marked {
            return value;
        }
        let pooled = self.pooled();
        self.dom.join(value, pooled)
    }
}
