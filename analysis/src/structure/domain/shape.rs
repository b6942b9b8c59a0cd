//! Shapes: what values may be.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt as _};
use smallvec::{SmallVec, smallvec};

use super::{NameId, ObjId, PathId, Paths, ShapeId};
use crate::structure::core::Scalar;

/// The maximum number of constants that a shape distinguishes.
const CONST_LIMIT: usize = 16;

/// The number of shapes of a typical program, for which capacity is reserved at the start.
const TYPICAL_SHAPES: usize = 100;

/// Something that a value may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::structure) enum Ref {
    /// An object of the program.
    Obj(ObjId),
    /// A part of external data: a string, a number, an object, anything except a function.
    Data(ObjId, PathId),
    /// A method of the engine, by its name.
    Method(NameId),
    /// A function or an object of the engine, by its name.
    Builtin(NameId),
    /// `mcp`
    Mcp,
    /// `mcp.namespace`
    Namespace(NameId),
    /// `mcp.namespace.action`
    Tool(NameId, NameId),
    /// Anything that escaped.
    Pool,
}

/// One word instead of one for the kind and one for each id: a shape of a thousand references is hashed
/// whenever one more is joined to it.
impl Hash for Ref {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (kind, one, other) = match *self {
            Self::Obj(object) => (0, object, 0),
            Self::Data(object, path) => (1, object, path),
            Self::Method(name) => (2, name, 0),
            Self::Builtin(name) => (3, name, 0),
            Self::Mcp => (4, 0, 0),
            Self::Namespace(name) => (5, name, 0),
            Self::Tool(namespace, action) => (6, namespace, action),
            Self::Pool => (7, 0, 0),
        };
        state.write_u64((kind << 61) ^ (u64::from(one) << 32) ^ u64::from(other));
    }
}

/// What is known about a value if it is a primitive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::structure) enum Prim {
    None,
    /// One of these constants, sorted.
    Consts(SmallVec<[Scalar; 1]>),
    /// Any primitive.
    Any,
}

/// Whether a value is a promise that has not been awaited yet.
///
/// This is for messages only: a call has the same data whether it is awaited or not, so flows do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(in crate::structure) enum Promised {
    /// No, as far as is known.
    #[default]
    No,
    /// No: it is the result of `await`.
    Awaited,
    /// On some paths.
    Perhaps,
    /// Yes, if it exists: an item of a list of promises, or what other code sets.
    Likely,
    /// Yes.
    Surely,
}

impl Promised {
    /// Returns what holds for a value that is either of two.
    pub(in crate::structure) fn or(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            _ if self.is_promise() && other.is_promise() => Self::Likely,
            (Self::No | Self::Awaited, Self::No | Self::Awaited) => Self::No,
            _ => Self::Perhaps,
        }
    }

    pub(in crate::structure) fn is_promise(self) -> bool {
        matches!(self, Self::Surely | Self::Likely)
    }
}

/// What a value may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::structure) struct Shape {
    pub(in crate::structure) prim: Prim,
    /// Whether it may not exist; only for properties.
    pub(in crate::structure) absent: bool,
    /// Sorted.
    pub(in crate::structure) refs: SmallVec<[Ref; 2]>,
    pub(in crate::structure) promised: Promised,
}

impl Shape {
    /// Returns the constant, if it is known to be exactly one.
    pub(in crate::structure) fn only(&self) -> Option<&Scalar> {
        match (&self.prim, self.refs.is_empty() && !self.absent) {
            (Prim::Consts(scalars), true) if scalars.len() == 1 => scalars.first(),
            _ => None,
        }
    }

    /// Returns whether it has neither primitives nor references.
    pub(in crate::structure) fn is_empty(&self) -> bool {
        self.prim == Prim::None && self.refs.is_empty()
    }

    /// Returns whether it may be `undefined` or `null`.
    pub(in crate::structure) fn may_be_nothing(&self) -> bool {
        let is_nothing = |scalar: &Scalar| matches!(scalar, Scalar::Undefined | Scalar::Null);
        self.absent
            || self.refs.iter().any(|one| matches!(one, Ref::Data(..) | Ref::Pool))
            || match &self.prim {
                Prim::None => false,
                Prim::Consts(scalars) => scalars.iter().any(is_nothing),
                Prim::Any => true,
            }
    }
}

impl Shape {
    /// Returns whether it may be a member of the engine that does not exist.
    pub(in crate::structure) fn may_be_missing(&self) -> bool {
        self.refs.iter().any(|one| matches!(one, Ref::Method(_) | Ref::Builtin(_)))
    }
}

/// The interned shapes.
pub(in crate::structure) struct Shapes {
    shapes: Vec<Rc<Shape>>,
    /// For each shape, the same shape with nothing known about promises.
    plain: Vec<ShapeId>,
    ids: HashMap<Rc<Shape>, ShapeId>,
    joins: HashMap<(ShapeId, ShapeId), ShapeId>,
    /// The shapes of a single reference, and of a single constant.
    refs: HashMap<Ref, ShapeId>,
    scalars: HashMap<Scalar, ShapeId>,
    /// Shapes that are derived from others.
    presents: HashMap<ShapeId, ShapeId>,
    promises: HashMap<(ShapeId, Promised), ShapeId>,
}

impl Default for Shapes {
    fn default() -> Self {
        let mut shapes = Self {
            shapes: Vec::with_capacity(TYPICAL_SHAPES),
            plain: Vec::with_capacity(TYPICAL_SHAPES),
            ids: HashMap::with_capacity(TYPICAL_SHAPES),
            joins: HashMap::with_capacity(TYPICAL_SHAPES / 2),
            refs: HashMap::with_capacity(TYPICAL_SHAPES),
            scalars: HashMap::default(),
            presents: HashMap::default(),
            promises: HashMap::default(),
        };
        let plain =
            |prim, absent| Shape { prim, absent, refs: SmallVec::new(), promised: Promised::No };
        // In the order of the numbers below.
        shapes.add(plain(Prim::None, false));
        shapes.add(plain(Prim::None, true));
        shapes.add(plain(Prim::Consts(smallvec![Scalar::Undefined]), false));
        shapes.add(plain(Prim::Any, false));
        shapes
    }
}

impl Shapes {
    pub(in crate::structure) const NEVER: ShapeId = 0;
    pub(in crate::structure) const ABSENT: ShapeId = 1;
    pub(in crate::structure) const UNDEFINED: ShapeId = 2;
    pub(in crate::structure) const ANY: ShapeId = 3;

    pub(in crate::structure) fn get(&self, id: ShapeId) -> &Shape {
        &self.shapes[id as usize]
    }

    /// Returns a shared pointer to a shape, which stays valid while others are added.
    pub(in crate::structure) fn kept(&self, id: ShapeId) -> Rc<Shape> {
        self.shapes[id as usize].clone()
    }

    pub(in crate::structure) fn add(&mut self, shape: Shape) -> ShapeId {
        if let Some(id) = self.ids.get(&shape) {
            return *id;
        }
        let plain = match shape.promised {
            Promised::No => None,
            _ => Some(self.add(Shape { promised: Promised::No, ..shape.clone() })),
        };
        let id = self.shapes.len() as ShapeId;
        let shape = Rc::new(shape);
        self.shapes.push(shape.clone());
        self.plain.push(plain.unwrap_or(id));
        self.ids.insert(shape, id);
        id
    }

    /// Returns a shape with what is known about its being a promise.
    pub(in crate::structure) fn with_promised(
        &mut self,
        id: ShapeId,
        promised: Promised,
    ) -> ShapeId {
        let shape = self.get(id);
        // Only a reference can be a promise.
        if shape.promised == promised || shape.refs.is_empty() {
            return id;
        }
        if let Some(known) = self.promises.get(&(id, promised)) {
            return *known;
        }
        let shape = Shape { promised, ..shape.clone() };
        let made = self.add(shape);
        self.promises.insert((id, promised), made);
        made
    }

    /// Returns a shape with nothing known about promises.
    pub(in crate::structure) fn plain(&self, id: ShapeId) -> ShapeId {
        self.plain[id as usize]
    }

    pub(in crate::structure) fn of_scalar(&mut self, value: Scalar) -> ShapeId {
        if let Some(known) = self.scalars.get(&value) {
            return *known;
        }
        let prim = Prim::Consts(smallvec![value.clone()]);
        let refs = SmallVec::new();
        let made = self.add(Shape { prim, absent: false, refs, promised: Promised::No });
        self.scalars.insert(value, made);
        made
    }

    pub(in crate::structure) fn of_ref(&mut self, to: Ref) -> ShapeId {
        if let Some(known) = self.refs.get(&to) {
            return *known;
        }
        let refs = smallvec![to];
        let made =
            self.add(Shape { prim: Prim::None, absent: false, refs, promised: Promised::No });
        self.refs.insert(to, made);
        made
    }

    /// Returns a shape with only the references that `keep` accepts, and its primitives if `prim`.
    pub(in crate::structure) fn only_refs(
        &mut self,
        id: ShapeId,
        keep: impl Fn(&Ref) -> bool,
        prim: bool,
    ) -> ShapeId {
        let mut shape = self.get(id).clone();
        shape.refs.retain(|one| keep(one));
        if !prim {
            (shape.prim, shape.absent) = (Prim::None, false);
        }
        if shape.refs.is_empty() {
            shape.promised = Promised::No;
        }
        self.add(shape)
    }

    /// Returns a shape that is not absent.
    pub(in crate::structure) fn present(&mut self, id: ShapeId) -> ShapeId {
        let shape = self.get(id);
        if !shape.absent {
            return id;
        }
        if let Some(known) = self.presents.get(&id) {
            return *known;
        }
        let mut shape = shape.clone();
        shape.absent = false;
        let made = self.add(shape);
        self.presents.insert(id, made);
        made
    }

    /// Returns a shape with its constants replaced by any primitive.
    pub(in crate::structure) fn widened(&mut self, id: ShapeId) -> ShapeId {
        let shape = self.get(id);
        if !matches!(&shape.prim, Prim::Consts(_)) {
            return id;
        }
        let mut shape = shape.clone();
        shape.prim = Prim::Any;
        self.add(shape)
    }

    /// Returns the join of two shapes. Most calls need no look-up, so that part is inlined.
    #[inline]
    pub(in crate::structure) fn join(&mut self, left: ShapeId, right: ShapeId) -> ShapeId {
        if left == right || right == Self::NEVER {
            return left;
        }
        if left == Self::NEVER {
            return right;
        }
        self.join_of_different(left, right)
    }

    fn join_of_different(&mut self, left: ShapeId, right: ShapeId) -> ShapeId {
        let key = (left.min(right), left.max(right));
        if let Some(known) = self.joins.get(&key) {
            return *known;
        }
        let joined = joined(self.get(left), self.get(right));
        let id = self.add(joined);
        self.joins.insert(key, id);
        id
    }
}

fn joined(left: &Shape, right: &Shape) -> Shape {
    let prim = match (&left.prim, &right.prim) {
        (Prim::None, other) | (other, Prim::None) => other.clone(),
        (Prim::Any, _) | (_, Prim::Any) => Prim::Any,
        (Prim::Consts(left), Prim::Consts(right)) => {
            let mut all: SmallVec<[Scalar; 1]> = left.iter().chain(right).cloned().collect();
            all.sort();
            all.dedup();
            if all.len() > CONST_LIMIT { Prim::Any } else { Prim::Consts(all) }
        }
    };
    let mut refs: SmallVec<[Ref; 2]> = left.refs.iter().chain(&right.refs).copied().collect();
    refs.sort();
    refs.dedup();
    // Two different parts of the same data become an unknown part of it.
    let mut lost: SmallVec<[Ref; 2]> = SmallVec::new();
    for one in refs {
        match (lost.last_mut(), one) {
            (Some(Ref::Data(last, path)), Ref::Data(obj, other)) if *last == obj => {
                *path = Paths::either(*path, other);
            }
            _ => lost.push(one),
        }
    }
    let promised = match (left.is_empty(), right.is_empty()) {
        (true, _) => right.promised,
        (_, true) => left.promised,
        _ => left.promised.or(right.promised),
    };
    Shape { prim, absent: left.absent || right.absent, refs: lost, promised }
}
