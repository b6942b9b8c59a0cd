//! Calls of tools.

use serde_json::Value as Json;
use swc_atoms::Atom;

use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::{Kind, Origin, Paths, Prim, Promised, Ref, written};

/// The deepest argument that is shown part by part.
const SHOWN_DEPTH: u32 = 8;
/// Of so many objects that an argument may be, each is shown.
const SHOWN_WAYS: usize = 4;

/// An argument, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::structure) enum Shown {
    Literal(Json),
    Reference(SiteId, u32),
    Parameter(u32),
    Object { fields: Vec<(Atom, Shown)>, rest: Option<(Deps, (u32, u32))> },
    Array(Vec<Shown>),
    Computed { deps: Deps, span: (u32, u32) },
}

/// A call of a tool, joined over all ways in which it is reached.
#[derive(Debug, Clone)]
pub(in crate::structure) struct FoundTask {
    pub(in crate::structure) site: SiteId,
    pub(in crate::structure) tool: ToolId,
    pub(in crate::structure) at: u32,
    pub(in crate::structure) arguments: Vec<(Atom, Shown)>,
    /// What flows into the arguments.
    pub(in crate::structure) data: Deps,
    /// What decides whether, or how often, it is made.
    pub(in crate::structure) decides: Deps,
    pub(in crate::structure) may: bool,
    pub(in crate::structure) many: bool,
}

/// The calls of one round.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) found: Vec<FoundTask>,
    places: HashMap<SiteId, usize>,
}

impl Solver<'_> {
    /// Follows a call of a tool.
    pub(super) fn task(
        &mut self,
        namespace: NameId,
        action: NameId,
        args: &Args,
        wait: bool,
    ) -> Value {
        let text = |name| written(self.dom.names.text(name));
        let (namespace, action) = (text(namespace), text(action));
        let mut data = NONE;
        let mut rewritten = false;
        for value in args.list.iter().chain(&args.rest) {
            if let Some(own) = self.serialise(*value) {
                data = self.dom.union(data, own);
                rewritten = true;
            }
            let own = self.reach(*value);
            data = self.dom.union(data, own);
        }
        let Ok(tool) = ToolId::from_call(&namespace, &action) else {
            return Value::computed(data);
        };
        let next = self.sites.len() as SiteId;
        let site = *self.sites.entry((self.at, tool.clone())).or_insert(next);
        if self.tasks.found.len() >= self.limits.tasks && !self.tasks.places.contains_key(&site) {
            let limit = self.limits.tasks;
            let message = format!("the program has more than {limit} calls of tools; use a loop");
            let at = self.at;
            self.refused.get_or_insert_with(|| Finding::new(Code::TooComplex, at, message));
        }
        let arguments = if rewritten {
            // Something else is sent than what is written here.
            vec![("*".into(), Shown::Computed { deps: data, span: (self.at, self.end) })]
        } else {
            self.shown_arguments(args, data)
        };
        let decides = self.control_above(0);
        let decides = if self.beside > 0 { self.dom.union(decides, self.when) } else { decides };
        self.effects += 1;
        let (may, many) = (self.may_above(0), self.is_repeated());
        let found = FoundTask { site, tool, at: self.at, arguments, data, decides, may, many };
        match self.tasks.places.get(&site) {
            None => {
                self.tasks.places.insert(site, self.tasks.found.len());
                self.nodes.task(self.tasks.found.len());
                self.tasks.found.push(found);
            }
            Some(place) => {
                let place = *place;
                self.join_task(place, found);
            }
        }
        let object = self.object(0, Kind::Data(Origin::Task(site)));
        let deps = self.dom.sources.one(site);
        let value = Value { deps, shape: self.dom.shapes.of_ref(Ref::Data(object, Paths::WHOLE)) };
        // Else it fails where the promise is waited for.
        if wait {
            self.may_fail(deps, Value::computed(deps));
            return value;
        }
        self.dom.promised(value, Promised::Surely)
    }

    fn join_task(&mut self, place: usize, new: FoundTask) {
        let old = &self.tasks.found[place];
        let (data, decides) = (old.data, old.decides);
        let data = self.dom.union(data, new.data);
        let decides = self.dom.union(decides, new.decides);
        let same_names = old.arguments.len() == new.arguments.len()
            && old.arguments.iter().zip(&new.arguments).all(|((one, _), (other, _))| one == other);
        let arguments = if same_names {
            let pairs: Vec<((Atom, Shown), Shown)> = old
                .arguments
                .iter()
                .cloned()
                .zip(new.arguments.iter().map(|(_, shown)| shown.clone()))
                .collect();
            pairs
                .into_iter()
                .map(|((name, one), other)| {
                    let joined = self.join_shown(one, other);
                    (name, joined)
                })
                .collect()
        } else {
            vec![("*".into(), Shown::Computed { deps: data, span: (new.at, new.at) })]
        };
        let mut arguments = arguments;
        let mut data = data;
        if self.tasks.found[place].arguments != arguments {
            // Which of the arguments are sent is in what decides that the call is made.
            let inputs = self.dom.sources.inputs_of(decides);
            data = self.dom.union(data, inputs);
            for (_, argument) in &mut arguments {
                self.add_to_shown(argument, inputs);
            }
        }
        let old = &mut self.tasks.found[place];
        old.arguments = arguments;
        (old.data, old.decides) = (data, decides);
        old.may &= new.may;
        old.many |= new.many || self.replays == 0;
    }

    fn join_shown(&mut self, one: Shown, other: Shown) -> Shown {
        if one == other {
            return one;
        }
        let (one, other) = match (one, other) {
            (
                Shown::Object { fields, rest: None },
                Shown::Object { fields: others, rest: None },
            ) if fields.iter().map(|(name, _)| name).eq(others.iter().map(|(name, _)| name)) => {
                let pairs = fields.into_iter().zip(others);
                let fields = pairs
                    .map(|((name, one), (_, other))| (name, self.join_shown(one, other)))
                    .collect();
                return Shown::Object { fields, rest: None };
            }
            (Shown::Array(items), Shown::Array(others)) if items.len() == others.len() => {
                let pairs = items.into_iter().zip(others);
                return Shown::Array(
                    pairs.map(|(one, other)| self.join_shown(one, other)).collect(),
                );
            }
            both => both,
        };
        let left = self.deps_of(&one);
        let right = self.deps_of(&other);
        let deps = self.dom.union(left, right);
        let span = match (&one, &other) {
            (Shown::Computed { span, .. }, _) | (_, Shown::Computed { span, .. }) => *span,
            _ => (0, 0),
        };
        Shown::Computed { deps, span }
    }

    fn deps_of(&mut self, shown: &Shown) -> Deps {
        match shown {
            Shown::Literal(_) => NONE,
            Shown::Reference(site, _) => self.dom.sources.one(*site),
            Shown::Parameter(path) => {
                let whole = self.dom.sources.one(crate::structure::domain::INPUT);
                match self.dom.paths.first(*path) {
                    Some(name) => {
                        let text = written(self.dom.names.text(name));
                        self.dom.sources.field(whole, &text)
                    }
                    None => self.dom.sources.used(whole),
                }
            }
            Shown::Computed { deps, .. } => *deps,
            Shown::Object { fields, rest } => {
                let mut deps = rest.map_or(NONE, |(deps, _)| deps);
                for (_, field) in fields {
                    let own = self.deps_of(field);
                    deps = self.dom.union(deps, own);
                }
                deps
            }
            Shown::Array(items) => {
                let mut deps = NONE;
                for item in items {
                    let own = self.deps_of(item);
                    deps = self.dom.union(deps, own);
                }
                deps
            }
        }
    }

    /// Calls what runs when a value is made text, to be sent; returns what flows into what is sent in
    /// its place, if anything is.
    pub(super) fn serialise(&mut self, value: Value) -> Option<Deps> {
        let mut rewritten = None;
        let is_plain = !self.converts && !self.core.accessors && !self.traps;
        if is_plain || !self.follows(Rule::Serialised) {
            return None;
        }
        let mut open: Vec<Value> = vec![value];
        let mut seen: HashSet<ObjId> = HashSet::default();
        while let Some(value) = open.pop() {
            let shape = self.dom.shapes.kept(value.shape);
            for one in &shape.refs {
                let Ref::Obj(object) = one else { continue };
                if !seen.insert(*object) {
                    continue;
                }
                self.touch(*object, value.deps);
                if let Some(given) = self.call_named(value, *object, "toJSON") {
                    let own = self.reach(given);
                    rewritten = Some(self.dom.union(rewritten.unwrap_or(NONE), own));
                    open.push(given);
                }
                for (name, cell) in self.heap.objects[*object as usize].keys.clone() {
                    let held = self.read(cell);
                    if self.dom.names.text(name).starts_with("get:") {
                        let given = self.chosen(value, |solver| {
                            solver.call_value(held, Some(value), &Args::default(), false)
                        });
                        let real = self.dom.names.text(name).replacen("get:", "%got:", 1);
                        let name = self.dom.name(&real.into());
                        self.put_own(*object, name, given, false);
                        open.push(given);
                    } else if !held.is_never() {
                        open.push(held);
                    }
                }
            }
        }
        rewritten
    }

    /// Calls the getters that a value and its parts have or inherit; returns what flows into what they give.
    pub(super) fn got_deep(&mut self, value: Value) -> Deps {
        let mut deps = NONE;
        if !self.core.accessors {
            return deps;
        }
        let mut open: Vec<Value> = vec![value];
        let mut seen: HashSet<ObjId> = HashSet::default();
        while let Some(value) = open.pop() {
            for one in &self.dom.shapes.kept(value.shape).refs {
                let Ref::Obj(object) = one else { continue };
                if !seen.insert(*object) {
                    continue;
                }
                let own = self.dom.reference(*one);
                let any = self.any_of(own);
                deps = self.dom.union(deps, any.deps);
                open.push(any);
            }
        }
        deps
    }

    fn shown_arguments(&mut self, args: &Args, data: Deps) -> Vec<(Atom, Shown)> {
        let span = (self.at, self.end);
        match (args.list.first(), args.rest) {
            (Some(value), _) => match self.shown(*value, span, 0, NONE) {
                Shown::Object { mut fields, rest } => {
                    fields.extend(
                        rest.map(|(deps, span)| ("*".into(), Shown::Computed { deps, span })),
                    );
                    fields
                }
                Shown::Literal(Json::Object(fields)) => fields
                    .into_iter()
                    .map(|(name, value)| (name.into(), Shown::Literal(value)))
                    .collect(),
                other => vec![("*".into(), other)],
            },
            (None, Some(_)) => vec![("*".into(), Shown::Computed { deps: data, span })],
            (None, None) => Vec::new(),
        }
    }

    /// Returns what is known of a value that is sent; `into` flows into what holds it.
    fn shown(&mut self, value: Value, span: (u32, u32), depth: u32, into: Deps) -> Shown {
        let own = self.dom.union(value.deps, into);
        let shape = self.dom.shapes.kept(value.shape);
        let computed = |solver: &mut Self| {
            let deps = solver.reach(value);
            let deps = solver.dom.union(deps, into);
            Shown::Computed { deps: solver.dom.sources.used(deps), span }
        };
        if let Some(scalar) = shape.only()
            && !self.dom.sources.has_tasks(own)
            && let Some(json) = json_of(scalar)
            && let Some(left) = self.literals.checked_sub(json.as_str().map_or(0, str::len))
        {
            self.literals = left;
            return Shown::Literal(json);
        }
        let is_plain = |one: &Ref| match one {
            Ref::Obj(object) => self.heap.objects[*object as usize].kind == Kind::Plain,
            _ => false,
        };
        if shape.refs.len() > 1
            && shape.refs.len() <= SHOWN_WAYS
            && shape.prim == Prim::None
            && !shape.absent
            && shape.refs.iter().all(is_plain)
        {
            return self.shown_ways(value, &shape.refs, span, depth, into);
        }
        let (Prim::None, [one], false) = (&shape.prim, shape.refs.as_slice(), shape.absent) else {
            return computed(self);
        };
        match one {
            Ref::Data(object, path) if *path != Paths::LOST => {
                let is_whole = self.heap.objects[*object as usize].keys.is_empty()
                    && !self.heap.objects[*object as usize].escaped;
                match self.heap.objects[*object as usize].kind {
                    // What an earlier round of a loop hands on is no plain reference.
                    Kind::Data(Origin::Task(site))
                        if is_whole
                            && self.dom.sources.tasks(own).eq([site])
                            && self.tasks.places.contains_key(&site) =>
                    {
                        Shown::Reference(site, *path)
                    }
                    Kind::Data(Origin::Args) if is_whole && !self.dom.sources.has_tasks(own) => {
                        Shown::Parameter(*path)
                    }
                    _ => computed(self),
                }
            }
            Ref::Obj(object) if depth < SHOWN_DEPTH => {
                match self.heap.objects[*object as usize].kind {
                    Kind::Plain => self
                        .shown_object(*object, value, span, depth, own)
                        .unwrap_or_else(|| computed(self)),
                    Kind::Array => match self.exact_items(value) {
                        Some(items) => {
                            let mut out = Vec::new();
                            for (place, item) in items.into_iter().enumerate() {
                                let name = self.dom.name(&place.to_string().into());
                                let span = self
                                    .heap
                                    .find(*object, name)
                                    .map_or(span, |cell| self.heap.cells[cell as usize].span);
                                out.push(self.shown(item, span, depth + 1, own));
                            }
                            whole_list(out)
                        }
                        None => computed(self),
                    },
                    _ => computed(self),
                }
            }
            _ => computed(self),
        }
    }

    /// Returns what is known of one of several objects.
    fn shown_ways(
        &mut self,
        value: Value,
        ways: &[Ref],
        span: (u32, u32),
        depth: u32,
        into: Deps,
    ) -> Shown {
        let own = self.dom.union(value.deps, into);
        let own = self.dom.sources.used(own);
        let mut all: Option<Shown> = None;
        for one in ways {
            let one = Value { deps: value.deps, shape: self.dom.shapes.of_ref(*one) };
            let shown = self.shown(one, span, depth, into);
            all = Some(match all {
                Some(before) => self.join_shown(before, shown),
                None => shown,
            });
        }
        let mut shown = all.unwrap_or(Shown::Computed { deps: own, span });
        self.add_to_shown(&mut shown, own);
        shown
    }

    /// Adds what flows into all that is computed in an argument.
    fn add_to_shown(&mut self, shown: &mut Shown, own: Deps) {
        match shown {
            Shown::Computed { deps, .. } => *deps = self.dom.union(*deps, own),
            Shown::Object { fields, rest } => {
                for (_, field) in fields {
                    self.add_to_shown(field, own);
                }
                if let Some((deps, _)) = rest {
                    *deps = self.dom.union(*deps, own);
                }
            }
            Shown::Array(items) => {
                items.iter_mut().for_each(|item| self.add_to_shown(item, own));
            }
            Shown::Literal(_) | Shown::Reference(..) | Shown::Parameter(_) => {}
        }
    }

    fn shown_object(
        &mut self,
        object: ObjId,
        value: Value,
        span: (u32, u32),
        depth: u32,
        own: Deps,
    ) -> Option<Shown> {
        let known = &self.heap.objects[object as usize];
        if known.escaped {
            return None;
        }
        let mut fields = Vec::new();
        let mut rest = None;
        for (name, cell) in known.keys.clone() {
            let held = self.read(cell);
            let text = self.dom.names.text(name);
            if held.is_never() || held == Value::ABSENT {
                continue;
            }
            let leads = !self.dom.shape(held).refs.is_empty();
            if name == self.known.proto && !leads {
                continue;
            }
            if text.starts_with("get:") || &*text == "toJSON" && leads || name == self.known.proto {
                return None;
            }
            if text.starts_with("set:") || name == self.known.order {
                continue;
            }
            if name == self.known.elem {
                let deps = self.reach(value);
                let deps = self.dom.union(deps, own);
                rest = Some((deps, span));
                continue;
            }
            let span = self.heap.cells[cell as usize].span;
            fields.push((written(text), self.shown(held, span, depth + 1, own)));
        }
        let is_literal =
            rest.is_none() && fields.iter().all(|(_, field)| matches!(field, Shown::Literal(_)));
        if is_literal && depth > 0 {
            let fields = fields.into_iter().filter_map(|(name, field)| match field {
                Shown::Literal(json) => Some((name.to_string(), json)),
                _ => None,
            });
            return Some(Shown::Literal(Json::Object(fields.collect())));
        }
        Some(Shown::Object { fields, rest })
    }
}

fn whole_list(items: Vec<Shown>) -> Shown {
    if !items.iter().all(|item| matches!(item, Shown::Literal(_))) {
        return Shown::Array(items);
    }
    let items = items.into_iter().filter_map(|item| match item {
        Shown::Literal(json) => Some(json),
        _ => None,
    });
    Shown::Literal(Json::Array(items.collect()))
}

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
