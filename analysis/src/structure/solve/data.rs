//! Reads of properties of strings, numbers and the like, and of data from tools and `args`.

use super::walk::AbstractKey;
use super::*;
use crate::structure::builtins;
use crate::structure::domain::{Paths, Ref, written};

impl Solver<'_> {
    /// Reads a property of a string, a number or the like.
    pub(super) fn get_of_text(&mut self, object: Value, key: &AbstractKey, called: bool) -> Value {
        self.gap_if_code_maker(key);
        let deps = self.dom.sources.used(object.deps);
        if key.names.is_none() {
            // Under a name that is not known there may be a method.
            let part = self.data_at(deps, Paths::LOST);
            let method = if called { self.some_method() } else { Value::NEVER };
            return self.dom.join(part, method);
        }
        self.named(key, |solver, name| {
            if called || builtins::is_engine_function(solver.dom.names.get(name)) {
                solver.dom.reference(Ref::Method(name))
            } else {
                Value::computed(deps)
            }
        })
    }

    /// Reads a part of data that came from a tool or `args`. `path` is where `object` is in the data `id`.
    pub(super) fn get_of_data(
        &mut self,
        id: ObjId,
        path: u32,
        object: Value,
        key: &AbstractKey,
        called: bool,
    ) -> Value {
        self.gap_if_code_maker(key);
        let mut out = match &key.names {
            // Data holds no functions, so what is called is a method of the engine.
            Some(names) if called => {
                let names = names.clone();
                let mut out = Value::NEVER;
                for name in names {
                    let value = self.dom.reference(Ref::Method(name));
                    out = self.dom.join(out, value);
                }
                out
            }
            Some(names) => {
                let names = names.clone();
                let mut out = Value::NEVER;
                for name in names {
                    let text = written(self.dom.names.text(name));
                    // Of `args`, the first step selects a field as the source.
                    let deps = self.dom.sources.field(object.deps, &text);
                    let is_method = builtins::is_engine_function(self.dom.names.get(name));
                    let to = self.dom.paths.step(path, name, is_method);
                    let shape = self.dom.shapes.of_ref(Ref::Data(id, to));
                    out = self.dom.join(out, Value { deps, shape });
                }
                out
            }
            None => {
                let deps = self.dom.sources.used(object.deps);
                let part =
                    Value { deps, shape: self.dom.shapes.of_ref(Ref::Data(id, Paths::LOST)) };
                let method = if called { self.some_method() } else { Value::NEVER };
                self.dom.join(part, method)
            }
        };
        // The program may have written into it. Such writes are not distinguished by their place.
        if let Some(cell) = self.heap.find(id, self.known.elem) {
            let written = self.read(cell);
            let shape = self.dom.shapes.present(written.shape);
            out = self.dom.join(out, Value { deps: written.deps, shape });
        }
        if self.heap.objects[id as usize].escaped {
            self.touch(id, object.deps);
            let pooled = self.pooled();
            out = self.dom.join(out, pooled);
        }
        out
    }
}
