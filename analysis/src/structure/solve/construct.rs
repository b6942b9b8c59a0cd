//! `new` and `super(…)`: what a value constructs.

use super::*;
use crate::structure::builtins;
use crate::structure::domain::{Kind, Paths, Ref};

impl Solver<'_> {
    /// `new callee(…)`
    pub(super) fn construct_any(&mut self, callee: Value, args: &Args) -> Option<Value> {
        if !self.may_nest() {
            return None;
        }
        let shape = self.dom.shapes.kept(callee.shape);
        if shape.may_be_nothing() || shape.prim != crate::structure::domain::Prim::None {
            self.may_fail_by(callee);
        }
        self.nested += 1;
        let made =
            self.each_way(callee.deps, &shape.refs, |solver, one| solver.construct_one(one, args));
        self.nested -= 1;
        made
    }

    /// Constructs an object by one callee.
    fn construct_one(&mut self, callee: Ref, args: &Args) -> Option<Value> {
        match callee {
            Ref::Obj(object) => match self.heap.objects[object as usize].kind {
                Kind::Func { func, .. } if !self.function(func).constructs() => {
                    self.may_fail(NONE, Value::computed(NONE));
                    None
                }
                Kind::Func { func, env } => {
                    let made = self.make(0, Kind::Plain);
                    self.prototype_of(object);
                    let prototype = self.own(object, self.known.prototype);
                    self.set_own(made, self.known.proto, prototype);
                    let target = self.dom.reference(callee);
                    let before = std::mem::replace(&mut self.target, target);
                    let given = self.invoke(object, func, env, Some(made), args, true);
                    self.target = before;
                    let given = given?;
                    // A constructor's result counts only if it is an object; it then replaces the new object.
                    let refs = self.dom.shapes.only_refs(given.shape, |_| true, false);
                    let given = Value { deps: given.deps, shape: refs };
                    if given.is_never() { Some(made) } else { Some(self.dom.join(made, given)) }
                }
                _ => Some(self.unknown_callee(callee, None, args)),
            },
            Ref::Tool(namespace, action) => Some(self.task(namespace, action, args, true)),
            Ref::Builtin(name) => Some(self.construct_builtin(name, args)),
            Ref::Pool => Some(self.unknown_call(None, args)),
            // A tool's result holds no class either.
            Ref::Data(_, path) if !Paths::may_be_method(path) => None,
            _ => {
                self.gap_if_leads(callee);
                Some(self.unknown_call(None, args))
            }
        }
    }

    /// Returns whether a value is surely a constructor.
    pub(super) fn constructs(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        let is_scalar =
            shape.may_be_nothing() || shape.prim != crate::structure::domain::Prim::None;
        !is_scalar
            && shape.refs.iter().all(|one| match one {
                Ref::Obj(object) => match self.heap.objects[*object as usize].kind {
                    Kind::Func { func, .. } => self.function(func).constructs(),
                    _ => false,
                },
                Ref::Builtin(name) => builtins::is_class(self.dom.names.get(*name)),
                _ => false,
            })
    }

    /// `super(…)`
    pub(super) fn call_parent(
        &mut self,
        parent: Value,
        this: Option<Value>,
        args: &Args,
    ) -> Option<Value> {
        let shape = self.dom.shapes.kept(parent.shape);
        let given = self.each_way(parent.deps, &shape.refs, |solver, one| match one {
            Ref::Obj(object) => match solver.heap.objects[object as usize].kind {
                Kind::Func { func, env } => {
                    let act = solver.activations.last();
                    // `super(…)` passes `new.target` on.
                    let target = act.map_or(Value::UNDEFINED, |act| act.target);
                    let before = std::mem::replace(&mut solver.target, target);
                    let given = solver.invoke(object, func, env, this, args, true);
                    solver.target = before;
                    given
                }
                _ => Some(solver.unknown_callee(one, this, args)),
            },
            Ref::Builtin(name) => {
                solver.init_builtin(name, this.unwrap_or(Value::UNDEFINED), args);
                Some(Value::UNDEFINED)
            }
            _ => Some(solver.unknown_callee(one, this, args)),
        })?;
        // A constructor may give another object than the one that was made.
        let refs = self.dom.shapes.only_refs(given.shape, |_| true, false);
        let given = Value { deps: given.deps, shape: refs };
        let this = this.unwrap_or(Value::UNDEFINED);
        Some(if given.is_never() { this } else { self.dom.join(this, given) })
    }
}
