//! Properties that literals and classes define (as opposed to writes, which call setters), and spreads.

use super::walk::AbstractKey;
use super::*;
use crate::structure::core::Put;
use crate::structure::domain::{Kind, Prim, Ref};

impl Solver<'_> {
    /// Defines a property of an object literal or a class.
    pub(super) fn define(&mut self, object: Value, key: &AbstractKey, value: Value, how: Put) {
        let value = self.dom.with(value, key.deps);
        let shape = self.dom.shapes.kept(object.shape);
        let is_one = shape.refs.len() == 1;
        for one in &shape.refs {
            let Ref::Obj(id) = one else {
                self.put(object, key, value);
                continue;
            };
            match (how, &key.names) {
                (Put::Prototype, _) => self.put_own(*id, self.known.proto, value, is_one),
                (Put::Getter | Put::Setter, None) => {
                    // An accessor of unknown name: any property of the object may call it.
                    let own = self.dom.reference(*one);
                    let _ = self.unknown(&[own, value]);
                }
                (_, None) => self.put_any(*id, value),
                (how, Some(names)) => {
                    let names = names.clone();
                    let strong = is_one && names.len() == 1;
                    for name in names {
                        let name = match how {
                            Put::Getter => self.accessor_name("get", name),
                            Put::Setter => self.accessor_name("set", name),
                            _ => name,
                        };
                        self.put_own(*id, name, value, strong);
                    }
                }
            }
        }
    }

    /// Returns the internal name under which a getter (`get:x`) or setter (`set:x`) is stored.
    fn accessor_name(&mut self, kind: &str, name: NameId) -> NameId {
        let text = self.dom.names.text(name);
        self.dom.name(&format!("{kind}:{text}").into())
    }

    /// Sets a property of an object that was just made, without calling setters.
    pub(super) fn set_own(&mut self, object: Value, name: NameId, value: Value) {
        let shape = self.dom.shapes.kept(object.shape);
        for one in &shape.refs {
            if let Ref::Obj(id) = one {
                self.put_own(*id, name, value, true);
            }
        }
    }

    /// Copies the own properties of a value into an object, except for `but` (`{ ...from }`, and the rest of a
    /// pattern).
    pub(super) fn spread(&mut self, object: Value, from: Value, but: &[AbstractKey]) {
        let shape = self.dom.shapes.kept(from.shape);
        let mut deps = self.dom.sources.used(from.deps);
        for key in but {
            deps = self.dom.union(deps, key.deps);
        }
        let left_out = |name: NameId| {
            but.iter().any(|key| {
                key.names.as_ref().is_some_and(|names| names.len() == 1 && names[0] == name)
            })
        };
        // Only one object can be copied, so its properties are certainly set.
        let only = shape.refs.len() == 1 && shape.prim == Prim::None;
        for one in &shape.refs {
            match one {
                Ref::Obj(id) if matches!(self.heap.objects[*id as usize].kind, Kind::Plain) => {
                    let cells: Vec<(NameId, CellId)> = self.heap.objects[*id as usize].keys.clone();
                    let escaped = self.heap.objects[*id as usize].escaped;
                    for (name, cell) in cells {
                        let text = self.dom.names.text(name);
                        if left_out(name) || name == self.known.proto || name == self.known.fields {
                            continue;
                        }
                        // The copy adds properties in the same order.
                        if name == self.known.order {
                            self.spread_order(object, cell, deps);
                            continue;
                        }
                        let value = self.read(cell);
                        if value.is_never() || value == Value::ABSENT {
                            continue;
                        }
                        let may_lack = self.dom.shape(value).absent;
                        let value = self.dom.with(value, deps);
                        if let Some(real) = text.strip_prefix("get:") {
                            // Copying calls the getter.
                            let walk = |solver: &mut Self| {
                                solver.call_value(value, Some(from), &Args::default(), false)
                            };
                            let given = if only && !may_lack {
                                walk(self)
                            } else {
                                self.optionally(deps, walk)
                            };
                            let given = self.dom.with(given, deps);
                            let name = self.dom.name(&real.into());
                            self.copy_field(object, name, given, only);
                        // Written under an unknown name: it may be copied under any.
                        } else if name == self.known.elem {
                            self.put(object, &AbstractKey { names: None, deps: NONE }, value);
                        } else if !text.starts_with("set:") {
                            self.copy_field(object, name, value, only && !may_lack);
                        }
                    }
                    if escaped {
                        self.touch(*id, deps);
                        let pooled = self.pooled();
                        self.put(object, &AbstractKey { names: None, deps: NONE }, pooled);
                    }
                }
                Ref::Builtin(_) | Ref::Method(_) | Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                    if let Ref::Builtin(name) = one {
                        self.escape_builtin(*name);
                    }
                    if matches!(one, Ref::Mcp | Ref::Namespace(_)) {
                        self.tool_gap(*one, How::Copied);
                    }
                }
                other => {
                    // Lists, data and the pool: their items or parts, under unknown names.
                    let one = Value { deps, shape: self.dom.shapes.of_ref(*other) };
                    let (value, count) = self.iterated(one);
                    let value = self.dom.with(value, count);
                    self.put(object, &AbstractKey { names: None, deps: NONE }, value);
                }
            }
        }
        // Spreading a string copies its characters.
        if shape.prim != Prim::None && deps != NONE {
            self.put(object, &AbstractKey { names: None, deps: NONE }, Value::computed(deps));
        }
    }

    /// Adds to the order of an object's properties what decides the order of those copied into it.
    fn spread_order(&mut self, object: Value, order: CellId, deps: Deps) {
        let order = self.read(order);
        if order.deps == NONE && self.dom.shape(order).only().is_some() {
            return;
        }
        let deps = self.dom.union(order.deps, deps);
        for one in &self.dom.shapes.kept(object.shape).refs {
            if let Ref::Obj(id) = one {
                let cell = self.heap.cell(*id, self.known.order);
                self.write(cell, Value::computed(deps), false);
            }
        }
    }

    /// Sets a copied property; with `strong`, it certainly replaces one of that name.
    fn copy_field(&mut self, object: Value, name: NameId, value: Value, strong: bool) {
        if strong {
            let key = AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE };
            self.define(object, &key, value, Put::Value);
            return;
        }
        let shape = self.dom.shapes.kept(object.shape);
        for one in &shape.refs {
            if let Ref::Obj(id) = one {
                self.put_own(*id, name, value, false);
            }
        }
    }
}
