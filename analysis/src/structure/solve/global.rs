//! Names that the program does not declare: `mcp`, `args` and the engine's globals.

use super::walk::AbstractKey;
use super::*;
use crate::structure::domain::{Birth, INPUT, Kind, Origin, Paths, Prim, Ref};

impl Solver<'_> {
    /// Reads a global name.
    pub(super) fn global(&mut self, name: &swc_atoms::Atom) -> Value {
        match &**name {
            "mcp" => self.dom.reference(Ref::Mcp),
            "args" => self.input(),
            "NaN" | "Infinity" => Value::computed(NONE),
            _ => {
                self.set_traps(&**name == "Proxy");
                let name = self.dom.name(name);
                self.dom.reference(Ref::Builtin(name))
            }
        }
    }

    /// Returns `args`.
    pub(super) fn input(&mut self) -> Value {
        // It exists before the program runs.
        let birth = Birth::default();
        let object = self.heap.object(0, u32::MAX, Kind::Data(Origin::Args), true, birth);
        let value = self.dom.reference(Ref::Data(object, Paths::WHOLE));
        let deps = self.dom.sources.one(INPUT);
        self.dom.with(value, deps)
    }

    /// Returns whether a value is `args` itself, into which nothing was written. That is always an object.
    pub(super) fn is_args(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        match shape.refs.as_slice() {
            [Ref::Data(object, _)] => {
                self.dom.sources.is_whole(value.deps)
                    && shape.prim == Prim::None
                    && !shape.absent
                    && self.heap.objects[*object as usize].keys.is_empty()
            }
            _ => false,
        }
    }

    /// Writes a global name.
    pub(super) fn set_global(&mut self, name: &swc_atoms::Atom, value: Value) {
        self.misuses.set_global();
        match &**name {
            "mcp" => self.gap(Code::DynamicWrite, About::Name),
            name if name != "args" && crate::structure::builtins::is_global(name) => {
                self.lose_engine();
            }
            _ => {}
        }
        if &**name == "args" {
            // From now on, `args` may also be the new value.
            let input = self.input();
            let any = AbstractKey { names: None, deps: NONE };
            self.put(input, &any, value);
        }
        self.escape_as(value, How::Kept);
    }
}
