//! Abstract values: their sources, and what they may be.
//!
//! Sets, shapes and names are interned, so that a value is two words, equal values have equal ids, and
//! joining the same two again is a look-up.

mod heap;
mod names;
mod shape;
mod sources;

use swc_atoms::Atom;

pub(super) use self::heap::{Birth, CellId, Heap, Kind, ObjId, Origin};
pub(super) use self::names::{Names, Paths, kept, written};
pub(super) use self::shape::{Prim, Promised, Ref, Shape, Shapes};
pub(super) use self::sources::{INPUT, Sources};
use super::core::Scalar;

/// A set of sources.
pub(super) type Deps = u32;
/// The empty set.
pub(super) const NONE: Deps = 0;
/// A name.
pub(super) type NameId = u32;
/// A path from a value to a part of it.
pub(super) type PathId = u32;
/// What a value may be.
pub(super) type ShapeId = u32;
/// A call of a tool, identified by its position in the source and its tool.
pub(super) type SiteId = u32;

/// An abstract value: the sources that flow into it, not counting its parts, and what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Value {
    pub(super) deps: Deps,
    pub(super) shape: ShapeId,
}

impl Value {
    /// No value: bottom, for what was never written.
    pub(super) const NEVER: Self = Self { deps: NONE, shape: Shapes::NEVER };
    /// The value of a property that does not exist.
    pub(super) const ABSENT: Self = Self { deps: NONE, shape: Shapes::ABSENT };
    pub(super) const UNDEFINED: Self = Self { deps: NONE, shape: Shapes::UNDEFINED };

    /// An unknown primitive value.
    pub(super) fn computed(deps: Deps) -> Self {
        Self { deps, shape: Shapes::ANY }
    }

    pub(super) fn is_never(self) -> bool {
        self.shape == Shapes::NEVER
    }
}

/// The tables of everything that values consist of.
#[derive(Default)]
pub(super) struct Domain {
    pub(super) sources: Sources,
    pub(super) shapes: Shapes,
    pub(super) names: Names,
    pub(super) paths: Paths,
}

impl Domain {
    #[inline]
    pub(super) fn join(&mut self, left: Value, right: Value) -> Value {
        if left == right {
            return left;
        }
        Value {
            deps: self.sources.union(left.deps, right.deps),
            shape: self.shapes.join(left.shape, right.shape),
        }
    }

    /// Returns a value with additional sources.
    pub(super) fn with(&mut self, value: Value, deps: Deps) -> Value {
        Value { deps: self.sources.union(value.deps, deps), shape: value.shape }
    }

    pub(super) fn union(&mut self, left: Deps, right: Deps) -> Deps {
        self.sources.union(left, right)
    }

    pub(super) fn scalar(&mut self, value: Scalar) -> Value {
        Value { deps: NONE, shape: self.shapes.of_scalar(value) }
    }

    pub(super) fn reference(&mut self, to: Ref) -> Value {
        Value { deps: NONE, shape: self.shapes.of_ref(to) }
    }

    pub(super) fn shape(&self, value: Value) -> &Shape {
        self.shapes.get(value.shape)
    }

    /// Returns a value with what is known about its being a promise.
    pub(super) fn promised(&mut self, value: Value, promised: Promised) -> Value {
        Value { deps: value.deps, shape: self.shapes.with_promised(value.shape, promised) }
    }

    /// Returns whether two values are equal, ignoring what is known about promises.
    pub(super) fn same(&self, left: Value, right: Value) -> bool {
        left == right
            || left.deps == right.deps
                && self.shapes.plain(left.shape) == self.shapes.plain(right.shape)
    }

    pub(super) fn name(&mut self, name: &Atom) -> NameId {
        self.names.id(name)
    }

    /// Returns the property names that a value may be as a key, if they are known.
    pub(super) fn keys(&mut self, value: Value) -> Option<smallvec::SmallVec<[NameId; 2]>> {
        let shape = self.shapes.get(value.shape);
        // An object as a key is converted by its own methods, so the name is unknown.
        if !shape.refs.is_empty() || shape.absent {
            return None;
        }
        let Prim::Consts(scalars) = &shape.prim else { return None };
        let texts: Option<smallvec::SmallVec<[Atom; 2]>> = scalars.iter().map(key_text).collect();
        Some(texts?.iter().map(|text| self.names.id(&kept(text))).collect())
    }
}

/// Returns the property name that a constant is as a key, unless its formatting is not implemented here.
pub(super) fn key_text(scalar: &Scalar) -> Option<Atom> {
    Some(match scalar {
        Scalar::Undefined => "undefined".into(),
        Scalar::Null => "null".into(),
        Scalar::Bool(value) => value.to_string().into(),
        Scalar::Number(bits) => {
            let value = f64::from_bits(*bits);
            let is_plain = value.fract() == 0.0 && value.abs() < 1e15;
            is_plain.then(|| format!("{}", value as i64))?.into()
        }
        Scalar::Text(text) => text.clone(),
    })
}
