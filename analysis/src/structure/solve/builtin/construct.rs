//! `new` of the engine's classes, and calls that do the same.

use super::*;

impl Solver<'_> {
    /// `new name(…)`
    pub(in crate::structure::solve) fn construct_builtin(
        &mut self,
        name: NameId,
        args: &Args,
    ) -> Value {
        let text = self.dom.names.text(name);
        let first = self.arg(args, 0);
        match &*text {
            "Map" | "WeakMap" | "Set" | "WeakSet" => {
                let is_map = text.ends_with("Map");
                let made = self.make(1, if is_map { Kind::Map } else { Kind::Set });
                if !args.list.is_empty() {
                    self.fill(made, first, is_map);
                }
                made
            }
            "Array" => {
                let list = self.make(1, Kind::Array);
                let deps = self.reach_args(args);
                // A single number is the list's length, and an invalid length fails.
                let is_length = args.list.len() == 1 && self.dom.shape(first).only().is_none();
                if is_length || args.rest.is_some() {
                    self.may_fail_by(Value::computed(deps));
                }
                let item = match args.list.len() {
                    1 => Value { deps, shape: self.dom.join(first, Value::UNDEFINED).shape },
                    _ => first,
                };
                if args.list.len() == 1 {
                    self.push_some(list, item, deps);
                } else {
                    args.list.iter().for_each(|value| self.push(list, *value, false));
                }
                list
            }
            "Promise" => self.new_promise(first),
            _ if builtins::is_error(&text) => {
                let made = self.make(1, Kind::Plain);
                self.init_builtin(name, made, args);
                let above = self.dom.name(&format!("{text}.prototype").into());
                let above = self.dom.reference(Ref::Builtin(above));
                self.set_own(made, self.known.proto, above);
                made
            }
            _ if builtins::is_opaque(&text) => {
                let given = self.convert_args(args);
                let gone_over = self.iterate_args(args);
                let deps = self.dom.union(given, gone_over);
                let fields = self.take_fields(args);
                let deps = self.dom.union(deps, fields);
                let is_now = &*text == "Date" && args.list.is_empty() && args.rest.is_none();
                let deps = if is_now { self.dom.union(deps, self.time.clock) } else { deps };
                self.may_fail_by(Value::computed(deps));
                let made = self.make(1, Kind::Opaque);
                self.set_own(made, self.known.elem, Value::computed(deps));
                // It may be a view of what it is made from, such as a typed array of a buffer.
                let of = self.dom.shapes.only_refs(
                    first.shape,
                    |one| match one {
                        Ref::Obj(object) => {
                            self.heap.objects[*object as usize].kind == Kind::Opaque
                        }
                        _ => false,
                    },
                    false,
                );
                self.dom.join(made, Value { deps: first.deps, shape: of })
            }
            // `new Object(value)` returns an object unchanged.
            "Object" => first,
            "Function" => {
                self.gap(Code::DynamicEval, About::Change);
                self.unknown_call(None, args)
            }
            _ => {
                if builtins::changes_its_argument(&text) {
                    self.may_change_engine(args);
                }
                self.unknown_call(None, args)
            }
        }
    }

    /// `super(…)` in a class that extends one of the engine's.
    pub(in crate::structure::solve) fn init_builtin(
        &mut self,
        name: NameId,
        this: Value,
        args: &Args,
    ) {
        let text = self.dom.names.text(name);
        if builtins::is_error(&text) {
            let deps = self.convert_args(args);
            let of_several = usize::from(&*text == "AggregateError");
            if of_several > 0 {
                let errors = self.arg(args, 0);
                let (item, count) = self.iterated(errors);
                let list = self.list_of(2, item, count);
                let name = self.dom.name(&"errors".into());
                self.set_own(this, name, list);
            }
            let message = self.arg(args, of_several);
            let message = if self.dom.shape(message).refs.is_empty() {
                message
            } else {
                Value::computed(deps)
            };
            // Without a message, that of the class's prototype is seen.
            let has_message = match self.dom.shape(message).only() {
                Some(crate::structure::core::Scalar::Undefined) => None,
                _ => Some(!self.dom.shape(message).may_be_nothing()),
            };
            if has_message == Some(false) {
                let name = self.dom.name(&"message".into());
                for one in &self.dom.shapes.kept(this.shape).refs {
                    if let Ref::Obj(object) = one {
                        self.put_own(*object, name, message, false);
                    }
                }
            }
            for (field, value) in [
                ("message", message),
                ("stack", Value::computed(deps)),
                ("name", Value::computed(NONE)),
            ] {
                if field == "message" && has_message != Some(true) {
                    continue;
                }
                let name = self.dom.name(&field.into());
                self.set_own(this, name, value);
            }
            if args.list.len() > 1 + of_several || args.rest.is_some() {
                let options = self.arg(args, 1 + of_several);
                let cause = self.dom.name(&"cause".into());
                let key = AbstractKey { names: Some(smallvec::smallvec![cause]), deps: NONE };
                let value = self.get(options, &key, false);
                self.set_own(this, cause, value);
            }
            return;
        }
        let _ = self.unknown_call(Some(this), args);
    }
}
