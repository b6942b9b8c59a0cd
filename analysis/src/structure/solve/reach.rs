//! The sources of a value and of everything that can be reached from it.

use super::*;
use crate::structure::domain::{Kind, Ref};

/// The maximum number of references for the short way of `reach_whole`.
const FEW: usize = 4;

impl Solver<'_> {
    /// Returns the sources of a value and of all its parts, transitively.
    pub(super) fn reach(&mut self, value: Value) -> Deps {
        if self.dom.shape(value).refs.is_empty() || !self.follows(Rule::Parts) {
            return self.dom.sources.used(value.deps);
        }
        if let Some(all) = self.reach_whole(value) {
            return all;
        }
        let mut seen: SmallVec<[ObjId; 16]> = SmallVec::new();
        let mut known: HashSet<ObjId> = HashSet::default();
        let mut open: SmallVec<[Value; 16]> = smallvec::smallvec![value];
        let mut all: SmallVec<[Deps; 16]> = SmallVec::new();
        while let Some(value) = open.pop() {
            all.push(value.deps);
            let shape = self.dom.shapes.kept(value.shape);
            for one in &shape.refs {
                let object = match one {
                    Ref::Obj(object) => *object,
                    Ref::Data(object, _) => *object,
                    Ref::Pool => {
                        all.push(self.escaped.deps);
                        continue;
                    }
                    _ => continue,
                };
                // A short list is searched faster than a table; further objects go into the table.
                if seen.len() < 16 {
                    if seen.contains(&object) {
                        continue;
                    }
                    seen.push(object);
                } else if seen.contains(&object) || !known.insert(object) {
                    continue;
                }
                if self.heap.objects[object as usize].escaped {
                    all.push(self.escaped.deps);
                }
                let cells: SmallVec<[(NameId, CellId); 8]> =
                    self.heap.objects[object as usize].keys.iter().copied().collect();
                let is_func = matches!(self.heap.objects[object as usize].kind, Kind::Func { .. });
                for (name, cell) in cells {
                    // A function's prototype object is code, not data, and leads back to the function.
                    if is_func && name == self.known.prototype || name == self.known.constructor {
                        continue;
                    }
                    let value = self.read(cell);
                    if !value.is_never() {
                        open.push(value);
                    }
                }
            }
        }
        // A union of all sets at once: pairwise unions would intern a set for each part.
        all.sort_unstable();
        all.dedup();
        let all = self.dom.sources.union_all(&all);
        self.dom.sources.used(all)
    }

    /// Returns the sources of a value whose objects have no properties; a short way for the common case.
    fn reach_whole(&mut self, value: Value) -> Option<Deps> {
        let mut all = value.deps;
        let shape = self.dom.shapes.kept(value.shape);
        if shape.refs.len() > FEW {
            return None;
        }
        for one in &shape.refs {
            match one {
                Ref::Obj(object) | Ref::Data(object, _) => {
                    let known = &self.heap.objects[*object as usize];
                    if !known.keys.is_empty() {
                        return None;
                    }
                    if known.escaped {
                        all = self.dom.union(all, self.escaped.deps);
                    }
                }
                Ref::Pool => all = self.dom.union(all, self.escaped.deps),
                _ => {}
            }
        }
        Some(self.dom.sources.used(all))
    }

    /// Returns the sources of what the program wrote into data from a tool or `args`.
    pub(super) fn written_into(&mut self, object: ObjId) -> Deps {
        let escaped = self.heap.objects[object as usize].escaped;
        let own = match self.heap.find(object, self.known.elem) {
            Some(cell) => {
                let value = self.read(cell);
                self.reach(value)
            }
            None => NONE,
        };
        if escaped { self.dom.union(own, self.escaped.deps) } else { own }
    }
}
