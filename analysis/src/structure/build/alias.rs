//! Which names have one object, and which hold it.

use foldhash::{HashMap, HashSet};
use swc_common::Spanned;
use swc_ecma_ast::{Expr, ExprOrSpread, ObjectPatProp, Pat};

use super::Builder;
use super::describe::step_to;
use super::feed::Slot;
use super::path::{Path, Step};
use super::scope::BindingId;
use super::value::FuncId;

/// What an expression gets its object from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Root {
    /// What a function is called on.
    This(FuncId),
    Name(BindingId),
    /// `args`
    Input,
    /// A function of the program.
    Func(FuncId),
}

/// A part of something.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) root: Root,
    pub(super) path: Path,
}

/// That one part of an object is a part of another, too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) own: Path,
    /// It is a copy, of which only the parts are the same.
    pub(super) copied: bool,
    pub(super) to: Place,
}

impl Link {
    /// Returns what else a part of the object is.
    pub(super) fn follow(&self, path: &Path) -> Option<Place> {
        let left = path.beyond(&self.own)?;
        if self.copied && left.is_whole() {
            return None;
        }
        Some(Place { root: self.to.root, path: self.to.path.and(&left) })
    }

    /// Returns the link of a part of the object.
    pub(super) fn of_part(&self, part: &Path) -> Option<Self> {
        let (own, path) = ways_of_part(&self.own, &self.to.path, part)?;
        // What is in a copy is the same.
        let copied = self.copied && (path == self.to.path || !own.is_whole());
        Some(Self { own, copied, to: Place { root: self.to.root, path } })
    }
}

/// The links of everything.
#[derive(Default)]
pub(super) struct Links {
    names: Vec<Vec<Link>>,
    others: HashMap<Root, Vec<Link>>,
    /// The links of those who have many.
    known: HashSet<(Root, Link)>,
}

/// So many links are searched one by one.
const FEW: usize = 8;

impl Links {
    pub(super) fn of(&self, root: Root) -> &[Link] {
        let links = match root {
            Root::Name(binding) => self.names.get(binding as usize),
            other => self.others.get(&other),
        };
        links.map_or(&[], |links| links)
    }

    /// Adds a link; returns whether it is new.
    fn add(&mut self, root: Root, link: Link) -> bool {
        let links = match root {
            Root::Name(binding) => {
                let at = binding as usize;
                if self.names.len() <= at {
                    self.names.resize_with(at + 1, Vec::new);
                }
                &mut self.names[at]
            }
            other => self.others.entry(other).or_default(),
        };
        if links.len() < FEW {
            if links.contains(&link) {
                return false;
            }
        } else {
            if links.len() == FEW {
                self.known.extend(links.iter().map(|link| (root, link.clone())));
            }
            if !self.known.insert((root, link.clone())) {
                return false;
            }
        }
        // Most have one, and there are thousands of them.
        if links.is_empty() {
            links.reserve_exact(1);
        }
        links.push(link);
        true
    }
}

/// Returns what a part of an object has, given that at `own` it has the part at `path`
/// of something.
pub(super) fn ways_of_part(own: &Path, path: &Path, part: &Path) -> Option<(Path, Path)> {
    if let Some(left) = part.beyond(own) {
        return Some((Path::default(), path.and(&left)));
    }
    Some((own.beyond(part)?, path.clone()))
}
impl<'a> Builder<'a> {
    /// Returns which part of what a function is given a place in it is, if it is one.
    pub(super) fn slot_of(&self, func: FuncId, place: &Place) -> Option<(Slot, Path)> {
        match place.root {
            Root::This(owner) if owner == func => Some((Slot::This, place.path.clone())),
            Root::Name(binding) => match &self.bindings[binding as usize].param_of {
                Some((owner, slot, path)) if *owner == func => Some((*slot, path.and(&place.path))),
                _ => None,
            },
            _ => None,
        }
    }

    /// Notes what the function in progress returns the object of.
    pub(super) fn gives_back(&mut self, expr: &'a Expr) {
        let func = self.func;
        for link in self.describe(expr, Path::default()) {
            // A variable of its own is another one in each call; what that has is not.
            for place in self.beyond_own(func, &link.to) {
                let link = Link { to: place, ..link.clone() };
                let known = &mut self.funcs[func as usize].gives;
                if !known.contains(&link) {
                    known.push(link);
                    self.changed = true;
                }
            }
        }
    }

    /// Returns the places outside of a function, or given to it, that a place is.
    fn beyond_own(&self, func: FuncId, place: &Place) -> Vec<Place> {
        let mut found = Vec::new();
        let mut open = vec![place.clone()];
        let mut seen: Vec<Place> = Vec::new();
        while let Some(place) = open.pop() {
            if seen.len() >= SEEN || seen.contains(&place) {
                continue;
            }
            seen.push(place.clone());
            match place.root {
                Root::Name(binding) if self.is_own(func, binding) => {
                    let links = self.feeds.links.of(place.root).iter();
                    open.extend(links.filter_map(|link| link.follow(&place.path)));
                }
                _ => found.push(place),
            }
        }
        found
    }

    /// Returns whether a variable is one of a function, and no parameter.
    fn is_own(&self, func: FuncId, binding: BindingId) -> bool {
        let known = &self.bindings[binding as usize];
        known.owner == func && known.param_of.is_none()
    }

    /// Notes that a part of something is what a link says.
    pub(super) fn link(&mut self, root: Root, part: &Path, link: &Link) {
        let own = part.and(&link.own);
        let back = Link {
            own: link.to.path.clone(),
            copied: link.copied,
            to: Place { root, path: own.clone() },
        };
        let there = Link { own, copied: link.copied, to: link.to.clone() };
        if (root, &there.own) == (there.to.root, &there.to.path) {
            return;
        }
        let (func, owner) = (self.func, self.arguments_owner());
        for (root, link) in [(link.to.root, back), (root, there)] {
            self.joined_within(func, root, &link);
            if owner != func {
                self.joined_within(owner, root, &link);
            }
            self.changed |= self.feeds.links.add(root, link);
        }
    }

    /// Notes that a variable has the object of an expression, or a part of it.
    pub(super) fn alias(&mut self, binding: BindingId, expr: &'a Expr, part: &Path) {
        let key = (binding, expr.span().lo.0);
        if self.feeds.described.contains(&key) {
            return;
        }
        self.feeds.by_functions = false;
        let links = self.describe(expr, part.clone());
        if !self.feeds.by_functions {
            self.feeds.described.insert(key);
        }
        for link in links {
            self.link(Root::Name(binding), &Path::default(), &link);
        }
    }

    /// Notes that the object of an expression holds that of another.
    pub(super) fn keeps(&mut self, object: &'a Expr, step: Step, part: &'a ExprOrSpread) {
        let links = match part.spread {
            Some(_) => self.describe(&part.expr, Path::of(Step::Any)),
            None => self.describe(&part.expr, Path::default()),
        };
        self.holds(object, step, &links);
    }

    /// Notes the same for what is assigned to a part of it.
    pub(super) fn keeps_value(&mut self, object: &'a Expr, step: Step, value: &'a Expr) {
        let links = self.describe(value, Path::default());
        self.holds(object, step, &links);
    }

    fn holds(&mut self, object: &'a Expr, step: Step, links: &[Link]) {
        if links.is_empty() {
            return;
        }
        for place in self.places(object, &Path::of(step)) {
            for link in links {
                self.link(place.root, &place.path, link);
            }
        }
    }

    /// Notes which parts of the object of an expression the names of a pattern have.
    pub(super) fn alias_pattern(&mut self, pattern: &'a Pat, expr: &'a Expr, part: &Path) {
        if let Pat::Ident(name) = pattern {
            if let Some(binding) = self.lookup(&name.id.sym) {
                self.alias(binding, expr, part);
            }
            return;
        }
        for (name, path) in parts_by_name(pattern, part) {
            if let Some(binding) = self.lookup(name) {
                self.alias(binding, expr, &path);
            }
        }
    }
}

/// The most places that are looked at for what a function returns.
const SEEN: usize = 64;

/// Returns the names of a pattern, each with the part that it gets.
pub(super) fn parts_by_name<'a>(pattern: &'a Pat, part: &Path) -> Vec<(&'a str, Path)> {
    let mut found = Vec::new();
    let mut open = vec![(pattern, part.clone())];
    while let Some((pattern, part)) = open.pop() {
        match pattern {
            Pat::Ident(name) => found.push((&*name.id.sym, part)),
            Pat::Assign(assign) => open.push((&assign.left, part)),
            // What is left over is a copy.
            Pat::Rest(rest) => open.push((&rest.arg, part.then(Step::Deep))),
            Pat::Array(array) => {
                for (index, item) in array.elems.iter().enumerate() {
                    let Some(item) = item else { continue };
                    let is_rest = matches!(item, Pat::Rest(_));
                    let step = Step::name(&index.to_string());
                    open.push((item, if is_rest { part.clone() } else { part.then(step) }));
                }
            }
            Pat::Object(object) => {
                for prop in &object.props {
                    match prop {
                        ObjectPatProp::KeyValue(pair) => {
                            open.push((&pair.value, part.then(step_to(&pair.key))));
                        }
                        ObjectPatProp::Assign(name) => {
                            found.push((
                                &*name.key.id.sym,
                                part.then(Step::Name(name.key.id.sym.clone())),
                            ));
                        }
                        ObjectPatProp::Rest(rest) => open.push((&rest.arg, part.then(Step::Deep))),
                    }
                }
            }
            Pat::Invalid(_) | Pat::Expr(_) => {}
        }
    }
    found
}
