//! What is known of the arguments of tool calls, for people to see: literals, references to results and to
//! `args`, or computed.

use serde_json::Value as Json;
use swc_atoms::Atom;

use super::*;
use crate::structure::core::{Extent, Scalar};
use crate::structure::domain::{INPUT, Kind, Origin, Paths, Prim, Ref, written};

/// The maximum nesting of an argument that is shown part by part.
const SHOWN_DEPTH: u32 = 8;
/// If an argument may be one of several objects: the maximum number of them that are shown.
const SHOWN_WAYS: usize = 4;

/// An argument, or a part of one.
#[derive(Debug, Clone)]
pub(in crate::structure) struct Shown {
    /// What is known of it.
    pub(in crate::structure) known: ShownAs,
    /// Where it is written.
    pub(in crate::structure) text: Extent,
}

/// How much is known of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::structure) enum ShownAs {
    /// A constant.
    Literal(Json),
    /// A part of the result of a call, unchanged: the call and the path.
    Reference(SiteId, u32),
    /// A part of `args`, unchanged: the path.
    Parameter(u32),
    /// An object.
    Object {
        /// Its fields.
        fields: Vec<(Atom, Shown)>,
        /// The sources of what may be in it under unknown names.
        rest: Option<Deps>,
    },
    /// A list, item by item.
    Array(Vec<Shown>),
    /// Anything else, with its sources.
    Computed(Deps),
}

impl PartialEq for Shown {
    /// Constants and references are equal wherever they are written, but two computed values are the same only
    /// at the same place.
    fn eq(&self, other: &Self) -> bool {
        let is_computed = matches!(self.known, ShownAs::Computed(_));
        self.known == other.known && (!is_computed || self.text == other.text)
    }
}

impl Shown {
    /// Returns an argument of which only the sources are known.
    pub(super) fn computed(deps: Deps, text: Extent) -> Self {
        Self { known: ShownAs::Computed(deps), text }
    }
}

impl Solver<'_> {
    /// Returns what is known of the arguments of a call, by name; `data` is the set of all their sources. The
    /// name `*` stands for any argument.
    pub(super) fn shown_arguments(&mut self, args: &Args, data: Deps) -> Vec<(Atom, Shown)> {
        let text = self.sent_text();
        let whole = |shown| vec![("*".into(), shown)];
        let Some(value) = args.list.first() else {
            return match args.rest {
                Some(_) => whole(Shown::computed(data, text)),
                None => Vec::new(),
            };
        };
        match self.shown(*value, text, 0, NONE) {
            Shown { known: ShownAs::Object { mut fields, rest }, .. } => {
                fields.extend(rest.map(|deps| ("*".into(), Shown::computed(deps, text))));
                fields
            }
            other => whole(other),
        }
    }

    /// Returns where the argument of the current call is written.
    pub(super) fn sent_text(&self) -> Extent {
        match self.first_text() {
            (0, 0) => (self.at, self.end),
            text => text,
        }
    }

    /// Returns what is known of a value that is sent; `into` flows into the object that holds it.
    fn shown(&mut self, value: Value, text: Extent, depth: u32, into: Deps) -> Shown {
        let own = self.dom.union(value.deps, into);
        let known = match self.literal(value, own) {
            Some(json) => Some(ShownAs::Literal(json)),
            None => self.shown_parts(value, text, depth, into),
        };
        let known = known.unwrap_or_else(|| {
            let deps = self.reach(value);
            let deps = self.dom.union(deps, into);
            ShownAs::Computed(self.dom.sources.used(deps))
        });
        Shown { known, text }
    }

    /// Returns the JSON of a constant.
    fn literal(&mut self, value: Value, own: Deps) -> Option<Json> {
        let scalar = self.dom.shapes.kept(value.shape).only().cloned()?;
        // Which constant it is depends on a result: it is computed.
        if self.dom.sources.has_tasks(own) {
            return None;
        }
        let json = json_of(&scalar)?;
        let length = json.as_str().map_or(0, str::len);
        // Past the budget, the constant is shown as computed.
        self.literals = self.literals.checked_sub(length)?;
        Some(json)
    }

    /// Returns what is known of a value that is no constant.
    fn shown_parts(
        &mut self,
        value: Value,
        text: Extent,
        depth: u32,
        into: Deps,
    ) -> Option<ShownAs> {
        let own = self.dom.union(value.deps, into);
        let shape = self.dom.shapes.kept(value.shape);
        if shape.prim != Prim::None || shape.absent {
            return None;
        }
        let is_plain = |one: &Ref| match one {
            Ref::Obj(object) => self.heap.objects[*object as usize].kind == Kind::Plain,
            _ => false,
        };
        let ways = shape.refs.as_slice();
        if (2..=SHOWN_WAYS).contains(&ways.len()) && ways.iter().all(is_plain) {
            return Some(self.shown_ways(value, ways, text, depth, into));
        }
        let [one] = ways else { return None };
        match one {
            Ref::Data(object, path) if Paths::is_known(*path) => {
                self.shown_data(*object, *path, own)
            }
            Ref::Obj(object) if depth < SHOWN_DEPTH => {
                match self.heap.objects[*object as usize].kind {
                    Kind::Plain => self.shown_object(*object, value, depth, own),
                    Kind::Array => self.shown_list(*object, value, text, depth, own),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns which part of a result or of `args` a value is, if it is unchanged.
    fn shown_data(&mut self, object: ObjId, path: u32, own: Deps) -> Option<ShownAs> {
        let known = &self.heap.objects[object as usize];
        if !known.keys.is_empty() || known.escaped {
            return None;
        }
        match known.kind {
            Kind::Data(Origin::Task(site)) => {
                let is_alone = self.dom.sources.tasks(own).eq([site]);
                // A result from an earlier turn of a loop is not the result of this turn's call.
                let is_known = is_alone && self.tasks.has(site);
                is_known.then_some(ShownAs::Reference(site, path))
            }
            Kind::Data(Origin::Args) if !self.dom.sources.has_tasks(own) => {
                Some(ShownAs::Parameter(path))
            }
            _ => None,
        }
    }

    /// Returns what is known of a list.
    fn shown_list(
        &mut self,
        object: ObjId,
        value: Value,
        text: Extent,
        depth: u32,
        own: Deps,
    ) -> Option<ShownAs> {
        let items = self.exact_items(value)?;
        let mut out = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            let name = self.dom.name(&place.to_string().into());
            let cell = self.heap.find(object, name);
            let text = cell.map_or(text, |cell| self.heap.cells[cell as usize].span);
            out.push(self.shown(item, text, depth + 1, own));
        }
        Some(ShownAs::Array(out))
    }

    /// Returns what is known of an object.
    fn shown_object(
        &mut self,
        object: ObjId,
        value: Value,
        depth: u32,
        own: Deps,
    ) -> Option<ShownAs> {
        let known = &self.heap.objects[object as usize];
        if known.escaped {
            return None;
        }
        let count = known.keys.len();
        let any = self.own(object, self.known.elem);
        let mut fields = Vec::with_capacity(count);
        let mut rest = None;
        for place in 0..count {
            let (name, cell) = self.heap.objects[object as usize].keys[place];
            let mut held = self.read(cell);
            let text = self.dom.names.text(name);
            if held.is_never() || held == Value::ABSENT {
                continue;
            }
            let leads = !self.dom.shape(held).refs.is_empty();
            if name == self.known.proto && !leads {
                continue;
            }
            // What a getter or `toJSON` returns is sent instead.
            if text.starts_with("get:") || &*text == "toJSON" && leads || name == self.known.proto {
                return None;
            }
            if text.starts_with("set:") || name == self.known.order {
                continue;
            }
            if name == self.known.elem {
                let deps = self.reach(value);
                rest = Some(self.dom.union(deps, own));
                continue;
            }
            if !any.is_never() && !self.is_settled(object, held) {
                held = self.dom.join(held, any);
            }
            let at = self.heap.cells[cell as usize].span;
            fields.push((written(text), self.shown(held, at, depth + 1, own)));
        }
        Some(ShownAs::Object { fields, rest })
    }

    /// Returns what is known of a value that is one of several objects.
    fn shown_ways(
        &mut self,
        value: Value,
        ways: &[Ref],
        text: Extent,
        depth: u32,
        into: Deps,
    ) -> ShownAs {
        let own = self.dom.union(value.deps, into);
        let own = self.dom.sources.used(own);
        let mut all: Option<Shown> = None;
        for one in ways {
            let one = Value { deps: value.deps, shape: self.dom.shapes.of_ref(*one) };
            let shown = self.shown(one, text, depth, into);
            all = Some(match all {
                Some(before) => self.join_shown(before, shown),
                None => shown,
            });
        }
        let mut shown = all.unwrap_or_else(|| Shown::computed(own, text));
        self.add_to_shown(&mut shown, own);
        shown.known
    }

    /// Adds sources to everything that is computed in an argument.
    pub(super) fn add_to_shown(&mut self, shown: &mut Shown, own: Deps) {
        match &mut shown.known {
            ShownAs::Computed(deps) => *deps = self.dom.union(*deps, own),
            ShownAs::Object { fields, rest } => {
                for (_, field) in fields {
                    self.add_to_shown(field, own);
                }
                if let Some(deps) = rest {
                    *deps = self.dom.union(*deps, own);
                }
            }
            ShownAs::Array(items) => {
                items.iter_mut().for_each(|item| self.add_to_shown(item, own));
            }
            ShownAs::Literal(_) | ShownAs::Reference(..) | ShownAs::Parameter(_) => {}
        }
    }

    /// Joins what is known of two possible arguments: parts that differ are computed.
    pub(super) fn join_shown(&mut self, one: Shown, other: Shown) -> Shown {
        if one == other {
            return one;
        }
        let text = one.text;
        let known = match (one.known, other.known) {
            (
                ShownAs::Object { fields, rest: None },
                ShownAs::Object { fields: others, rest: None },
            ) if fields.iter().map(|(name, _)| name).eq(others.iter().map(|(name, _)| name)) => {
                let pairs = fields.into_iter().zip(others);
                let fields = pairs
                    .map(|((name, one), (_, other))| (name, self.join_shown(one, other)))
                    .collect();
                ShownAs::Object { fields, rest: None }
            }
            (ShownAs::Array(items), ShownAs::Array(others)) if items.len() == others.len() => {
                let pairs = items.into_iter().zip(others);
                ShownAs::Array(pairs.map(|(one, other)| self.join_shown(one, other)).collect())
            }
            (one, other) => {
                let (left, right) = (self.deps_of(&one), self.deps_of(&other));
                ShownAs::Computed(self.dom.union(left, right))
            }
        };
        Shown { known, text }
    }

    /// Returns the sources of an argument.
    fn deps_of(&mut self, known: &ShownAs) -> Deps {
        match known {
            ShownAs::Literal(_) => NONE,
            ShownAs::Reference(site, _) => self.dom.sources.one(*site),
            ShownAs::Parameter(path) => {
                let whole = self.dom.sources.one(INPUT);
                match self.dom.paths.first(*path) {
                    Some(name) => {
                        let text = written(self.dom.names.text(name));
                        self.dom.sources.field(whole, &text)
                    }
                    None => self.dom.sources.used(whole),
                }
            }
            ShownAs::Computed(deps) => *deps,
            ShownAs::Object { fields, rest } => {
                let rest = rest.unwrap_or(NONE);
                self.deps_of_all(fields.iter().map(|(_, field)| field), rest)
            }
            ShownAs::Array(items) => self.deps_of_all(items.iter(), NONE),
        }
    }

    /// Returns the sources of several parts.
    fn deps_of_all<'s>(&mut self, parts: impl Iterator<Item = &'s Shown>, rest: Deps) -> Deps {
        parts.fold(rest, |deps, part| {
            let own = self.deps_of(&part.known);
            self.dom.union(deps, own)
        })
    }
}

/// Returns the JSON of a constant; none for `undefined`.
fn json_of(scalar: &Scalar) -> Option<Json> {
    Some(match scalar {
        Scalar::Undefined => return None,
        Scalar::Null => Json::Null,
        Scalar::Bool(value) => Json::Bool(*value),
        Scalar::Number(bits) => {
            let value = f64::from_bits(*bits);
            let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
            if is_whole { Json::from(value as i64) } else { Json::from(value) }
        }
        Scalar::Text(text) => Json::String(text.to_string()),
    })
}
