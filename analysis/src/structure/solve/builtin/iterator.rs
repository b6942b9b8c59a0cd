//! `next`, `return` and `throw` of iterators.

use super::*;

impl Solver<'_> {
    /// Walks a call of `next`, `return` or `throw`.
    pub(super) fn advance(&mut self, name: &str, this: Value, args: &Args) -> Value {
        let shape = self.dom.shapes.kept(this.shape);
        let sent = self.arg(args, 0);
        let known = |one: &Ref| match one {
            Ref::Obj(object) => {
                matches!(self.heap.objects[*object as usize].kind, Kind::Iterator | Kind::Array)
            }
            _ => false,
        };
        if shape.refs.is_empty() || !shape.refs.iter().all(known) {
            return self.unknown_call(Some(this), args);
        }
        let mut later = false;
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let name = if name == "throw" { self.known.raised } else { self.known.sent };
                let control = self.control_above(0);
                let sent = self.dom.with(sent, control);
                self.settle(*object, name, sent);
                later |= self.heap.find(*object, self.known.later).is_some();
            }
        }
        if name == "throw" {
            // An error that the generator does not catch is thrown here.
            let before = std::mem::replace(&mut self.tries.throwing, true);
            self.may_fail(sent.deps, sent);
            self.tries.throwing = before;
        }
        let (mut item, mut count) = self.partly(true, |solver| solver.iterated(this));
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let driven = self.partly(true, |solver| solver.drive(*object));
                count = self.dom.union(count, driven);
            }
        }
        // `return(value)` gives the value back.
        if name == "return" {
            item = self.dom.join(item, sent);
        }
        let item = self.dom.join(item, Value::UNDEFINED);
        let item = self.dom.with(item, count);
        let made = self.make(1, Kind::Plain);
        let value = self.dom.name(&"value".into());
        self.set_own(made, value, item);
        let done = self.dom.name(&"done".into());
        self.set_own(made, done, Value::computed(count));
        // An async generator returns a promise of the result instead.
        if !later {
            return made;
        }
        let promise = self.object(2, Kind::Promise);
        self.settle(promise, self.known.value, made);
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let fails = self.own(*object, self.known.fails);
                if !fails.is_never() || fails.deps != NONE {
                    self.settle(promise, self.known.fails, fails);
                }
            }
        }
        if name == "throw" {
            self.settle(promise, self.known.fails, sent);
        }
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let settlement = self.own(*object, self.known.settlement);
                self.add_settlement(promise, settlement.deps);
            }
        }
        self.dom.reference(Ref::Obj(promise))
    }
}
