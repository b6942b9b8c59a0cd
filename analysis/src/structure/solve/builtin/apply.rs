//! `call`, `apply` and `bind`.

use super::*;
use crate::structure::domain::Paths;

impl Solver<'_> {
    /// Walks `call`, `apply` or `bind` of the function `this`.
    pub(super) fn applied(&mut self, name: &str, this: Value, args: &Args, wait: bool) -> Value {
        let own = self.arg(args, 0);
        let mut rest = args.clone();
        if !rest.list.is_empty() {
            rest.list.remove(0);
        }
        // A part of data may be a method of the engine.
        if self.dom.shape(this).refs.iter().any(|one| matches!(one, Ref::Data(..))) {
            return self.applied_or_not(name, this, args, wait);
        }
        match name {
            "call" => self.call_any(this, Some(own), &rest, wait).unwrap_or(Value::NEVER),
            "apply" => {
                let list = self.arg(args, 1);
                let given = match self.spread_items(list) {
                    (Some(items), _) => Args { list: items.into(), rest: None },
                    (None, some) => Args { list: SmallVec::new(), rest: Some(some) },
                };
                self.call_any(this, Some(own), &given, wait).unwrap_or(Value::NEVER)
            }
            _ => {
                let bound = self.make(0, Kind::Bound);
                self.set_own(bound, self.known.target, this);
                self.set_own(bound, self.known.this, own);
                let list = self.make(1, Kind::Array);
                rest.list.iter().for_each(|value| self.push(list, *value, false));
                if let Some(some) = rest.rest {
                    self.push_some(list, some, some.deps);
                }
                self.set_own(bound, self.known.elem, list);
                bound
            }
        }
    }

    /// The same for a value that may be a function, data, or an unknown method of the engine.
    fn applied_or_not(&mut self, name: &str, this: Value, args: &Args, wait: bool) -> Value {
        let is_function = |one: &Ref| !matches!(one, Ref::Data(..));
        let functions = self.dom.shapes.only_refs(this.shape, is_function, false);
        let others = self.dom.shapes.only_refs(this.shape, |one| !is_function(one), true);
        let other = Value { deps: this.deps, shape: others };
        let is_plain =
            |one: &Ref| matches!(one, Ref::Data(_, path) if !Paths::may_be_method(*path));
        let fails = self.dom.shape(other).refs.iter().all(is_plain);
        if self.dom.shape(Value { deps: NONE, shape: functions }).refs.is_empty() {
            return self.unknown_call(Some(other), args);
        }
        let function = Value { deps: this.deps, shape: functions };
        let given = self.optionally(this.deps, |solver| solver.applied(name, function, args, wait));
        if fails {
            self.may_fail_by(other);
            return given;
        }
        let other = self.optionally(this.deps, |solver| solver.unknown_call(Some(other), args));
        self.dom.join(given, other)
    }

    /// Returns whether a method of lists, maps and the like is called on another kind of object
    /// (`Array.prototype.map.call(object)`). With `part`, the function was read from the receiver, so that only
    /// an object that itself holds the method counts.
    pub(in crate::structure::solve) fn borrows(
        &mut self,
        callee: Ref,
        this: Option<Value>,
        part: bool,
    ) -> bool {
        let (Ref::Method(name), Some(this)) = (callee, this) else { return false };
        let text = self.dom.names.get(name);
        if builtins::method(text).is_none() || builtins::is_of_objects(text) {
            return false;
        }
        self.dom.shapes.kept(this.shape).refs.iter().any(|one| {
            let Ref::Obj(object) = one else { return false };
            let kind = self.heap.objects[*object as usize].kind;
            if !matches!(kind, Kind::Plain | Kind::Func { .. }) {
                return false;
            }
            !part
                || self.lineage(*object).0.into_iter().any(|above| {
                    let cells = self.heap.objects[above as usize].keys.clone();
                    cells.into_iter().any(|(_, cell)| {
                        let held = self.read(cell);
                        self.dom.shape(held).refs.contains(&callee)
                    })
                })
        })
    }

    /// Returns the bound arguments of a function: one by one if they are known, and their join.
    pub(in crate::structure::solve) fn bound_args(
        &mut self,
        list: Value,
    ) -> (Option<Vec<Value>>, Value) {
        if self.dom.shape(list).refs.is_empty() {
            return (Some(Vec::new()), Value::NEVER);
        }
        self.spread_items(list)
    }
}
