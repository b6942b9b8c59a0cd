//! Interned names, and interned paths to parts of values.

use foldhash::{HashMap, HashMapExt as _};
use swc_atoms::Atom;

use super::{NameId, PathId};
use crate::structure::PathStep;

/// The prefixes of names that the analysis uses internally: for hidden state, symbols, private members,
/// getters and setters.
const OWN: &[&str] = &["%", "@@", "#", "get:", "set:"];
/// The escape character before a name of the program that begins with one of these prefixes.
const OF_PROGRAM: char = '\0';

/// Returns the internal name of a property, escaped so that it cannot collide with a name of the analysis.
pub(in crate::structure) fn kept(name: &Atom) -> Atom {
    if name.starts_with(OF_PROGRAM) || OWN.iter().any(|start| name.starts_with(start)) {
        return format!("{OF_PROGRAM}{name}").into();
    }
    name.clone()
}

/// Returns an internal name as the program writes it.
pub(in crate::structure) fn written(name: Atom) -> Atom {
    match name.strip_prefix(OF_PROGRAM) {
        Some(name) => name.into(),
        None => name,
    }
}

/// The number of names of a typical program, for which capacity is reserved at the start.
const TYPICAL_NAMES: usize = 100;

/// The names found so far.
pub(in crate::structure) struct Names {
    texts: Vec<Atom>,
    ids: HashMap<Atom, NameId>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            texts: Vec::with_capacity(TYPICAL_NAMES),
            ids: HashMap::with_capacity(TYPICAL_NAMES),
        }
    }
}

impl Names {
    pub(in crate::structure) fn id(&mut self, name: &Atom) -> NameId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.texts.len() as NameId;
        self.texts.push(name.clone());
        self.ids.insert(name.clone(), id);
        id
    }

    /// Returns the id of a name if it is interned.
    pub(in crate::structure) fn known(&self, name: &Atom) -> Option<NameId> {
        self.ids.get(name).copied()
    }

    /// Returns whether a name is internal state of the analysis, not a property.
    pub(in crate::structure) fn is_own(&self, id: NameId) -> bool {
        self.texts.get(id as usize).is_none_or(|text| text.starts_with('%'))
    }

    /// Returns whether a name is that of a method which the engine calls implicitly.
    pub(in crate::structure) fn is_hook(&self, id: NameId) -> bool {
        let Some(text) = self.texts.get(id as usize) else { return false };
        let text = text.strip_prefix("get:").unwrap_or(text);
        matches!(text, "toString" | "valueOf" | "join" | "toJSON" | "then" | "return")
            || text.starts_with("@@")
    }

    /// Returns a name as text.
    pub(in crate::structure) fn get(&self, id: NameId) -> &str {
        self.texts.get(id as usize).map_or("", |text| text)
    }

    /// Returns a name as a cheap clone.
    pub(in crate::structure) fn text(&self, id: NameId) -> Atom {
        self.texts.get(id as usize).cloned().unwrap_or_default()
    }
}

/// The maximum length of a path.
const LENGTH: usize = 16;

/// Paths from a value to a part of it.
#[derive(Default)]
pub(in crate::structure) struct Paths {
    steps: Vec<(PathId, NameId)>,
    ids: HashMap<(PathId, NameId), PathId>,
}

impl Paths {
    /// The value itself.
    pub(in crate::structure) const WHOLE: PathId = 0;
    /// The bit that is set in paths to what may be a method of the engine.
    const METHOD: PathId = 1 << 31;
    /// Some part that is not a method.
    pub(in crate::structure) const SOME: PathId = !Self::METHOD;
    /// Some part or method.
    pub(in crate::structure) const LOST: PathId = PathId::MAX;

    /// Returns the path extended by a name; `is_method` if that may be a method.
    pub(in crate::structure) fn step(
        &mut self,
        from: PathId,
        name: NameId,
        is_method: bool,
    ) -> PathId {
        if !Self::is_known(from) || self.length(from) >= LENGTH {
            return if is_method { Self::LOST } else { Self::SOME };
        }
        if let Some(id) = self.ids.get(&(from, name)) {
            return *id;
        }
        self.steps.push((from, name));
        let id = self.steps.len() as PathId | if is_method { Self::METHOD } else { 0 };
        self.ids.insert((from, name), id);
        id
    }

    /// Returns whether the part that a path leads to is known.
    pub(in crate::structure) fn is_known(path: PathId) -> bool {
        path | Self::METHOD != Self::LOST
    }

    /// Returns whether a path may lead to a method of the engine.
    pub(in crate::structure) fn may_be_method(path: PathId) -> bool {
        path & Self::METHOD != 0
    }

    /// Returns the path to either of two parts.
    pub(in crate::structure) fn either(one: PathId, other: PathId) -> PathId {
        Self::SOME | (one | other) & Self::METHOD
    }

    fn length(&self, mut path: PathId) -> usize {
        let mut length = 0;
        while let Some((before, _)) = self.last(path) {
            (path, length) = (before, length + 1);
        }
        length
    }

    fn last(&self, path: PathId) -> Option<(PathId, NameId)> {
        self.steps.get(((path & !Self::METHOD) as usize).checked_sub(1)?).copied()
    }

    /// Returns the first step of a path.
    pub(in crate::structure) fn first(&self, mut path: PathId) -> Option<NameId> {
        let mut first = None;
        while let Some((before, name)) = self.last(path) {
            (path, first) = (before, Some(name));
        }
        first
    }

    /// Returns the steps of a path, as they are reported.
    pub(in crate::structure) fn steps(&self, mut path: PathId, names: &Names) -> Vec<PathStep> {
        let mut steps = Vec::new();
        while let Some((before, name)) = self.last(path) {
            steps.push(PathStep::of(&written(names.text(name))));
            path = before;
        }
        steps.reverse();
        steps
    }
}
