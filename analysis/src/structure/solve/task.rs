//! Calls of tools.

use swc_atoms::Atom;

use super::*;
use crate::structure::core::Extent;
use crate::structure::domain::{Kind, Origin, Paths, Promised, Ref};

/// A call of a tool, joined over all paths on which it is reached.
#[derive(Debug, Clone)]
pub(in crate::structure) struct FoundTask {
    /// Its number: also the source that its result is.
    pub(in crate::structure) site: SiteId,
    /// The tool.
    pub(in crate::structure) tool: ToolId,
    /// Its position in the source.
    pub(in crate::structure) at: u32,
    /// Where its argument is written.
    pub(in crate::structure) text: Extent,
    /// What is known of its arguments, by name.
    pub(in crate::structure) arguments: Vec<(Atom, Shown)>,
    /// The sources of its arguments.
    pub(in crate::structure) data: Deps,
    /// What decides whether, or how often, it is made.
    pub(in crate::structure) decides: Deps,
    /// Whether a run may end without it.
    pub(in crate::structure) may: bool,
    /// Whether a run may make it more than once.
    pub(in crate::structure) many: bool,
}

/// The calls of one round.
#[derive(Default)]
pub(super) struct Tasks {
    /// The calls, in the order in which they were found.
    pub(super) found: Vec<FoundTask>,
    /// The index of each call in `found`.
    places: HashMap<SiteId, usize>,
}

impl Tasks {
    /// Returns whether a call was found in this round.
    pub(super) fn has(&self, site: SiteId) -> bool {
        self.places.contains_key(&site)
    }

    /// Records that every run makes a call, unless `may`.
    pub(super) fn narrow_may(&mut self, site: SiteId, may: bool) {
        if let Some(place) = self.places.get(&site) {
            self.found[*place].may &= may;
        }
    }
}

impl Solver<'_> {
    /// Walks a call of a tool and returns its result, or the promise of it.
    pub(super) fn task(
        &mut self,
        namespace: NameId,
        action: NameId,
        args: &Args,
        wait: bool,
    ) -> Value {
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
        let Ok(number) = self.tool_ids.number(&self.dom.names, namespace, action) else {
            // No tool can have this name; that was reported where it is named.
            return Value::computed(data);
        };
        let Some(tool) = self.tool_ids.get(number).cloned() else { return Value::computed(data) };
        let next = self.sites.len() as SiteId;
        let site = *self.sites.entry((self.at, number)).or_insert(next);
        if self.tasks.found.len() >= self.limits.tasks && !self.tasks.places.contains_key(&site) {
            let limit = self.limits.tasks;
            let message = format!("the program has more than {limit} calls of tools; use a loop");
            let at = self.at;
            self.refused.get_or_insert_with(|| Finding::new(Code::TooComplex, at, message));
        }
        let arguments = if rewritten {
            // `toJSON` or a getter replaces what is written here.
            vec![("*".into(), Shown::computed(data, self.sent_text()))]
        } else {
            self.shown_arguments(args, data)
        };
        let decides = self.control_above(0);
        let decides = if self.threads.concurrent > 0 {
            self.dom.union(decides, self.time.when)
        } else {
            decides
        };
        // The program may end while this code waits, or before the call is sent.
        let cut = self.cut_here();
        let unsent = self.note_call(site, wait);
        let returns = self.either(cut, unsent);
        let decides = self.dom.union(decides, returns.unwrap_or(NONE));
        self.threads.effects += 1;
        let (may, many) = (self.may_above(0) || returns.is_some(), self.is_repeated());
        self.found_with_item(site);
        let (at, text) = (self.at, self.sent_text());
        let found = FoundTask { site, tool, at, text, arguments, data, decides, may, many };
        let place = self.tasks.places.get(&site).copied();
        self.note_task(place.unwrap_or(self.tasks.found.len()));
        match place {
            None => {
                self.tasks.places.insert(site, self.tasks.found.len());
                self.tasks.found.push(found);
            }
            Some(place) => self.join_task(place, found),
        }
        let object = self.object(0, Kind::Data(Origin::Task(site)));
        let deps = self.dom.sources.one(site);
        let value = Value { deps, shape: self.dom.shapes.of_ref(Ref::Data(object, Paths::WHOLE)) };
        // Without a wait, the call fails where its promise is awaited.
        if wait {
            // Here, and not where the caller waits, it is known what decides whether it waits.
            self.takes_time(value);
            self.may_fail(deps, Value::computed(deps));
            return value;
        }
        self.dom.promised(value, Promised::Surely)
    }

    /// Joins a call with what was found of it on other paths.
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
            vec![("*".into(), Shown::computed(data, new.text))]
        };
        let mut arguments = arguments;
        let mut data = data;
        // The paths send different arguments, so that what decides between the paths flows into them. The
        // results among it are already in `decides`; parts of `args` must be named for the arguments, too.
        if self.tasks.found[place].arguments != arguments {
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
        // Found twice in one walk of the program: on two paths, or from two calls of a function. Both may be in
        // one run, unless the same code was walked twice on purpose.
        old.many |= new.many || self.tries.replays == 0;
    }

    /// Calls what runs when a value is converted to JSON to be sent: `toJSON` and getters. Returns the sources
    /// of what is sent instead, if anything is replaced.
    pub(super) fn serialise(&mut self, value: Value) -> Option<Deps> {
        let mut rewritten = None;
        let is_plain = !self.engine.converts && !self.core.accessors && !self.engine.traps;
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
                // `toJSON` is passed the key under which the value is held.
                let name = Value::computed(value.deps);
                if let Some(given) = self.call_named(value, *object, "toJSON", name) {
                    let own = self.reach(given);
                    rewritten = Some(self.dom.union(rewritten.unwrap_or(NONE), own));
                    open.push(given);
                }
                for (name, cell) in self.heap.objects[*object as usize].keys.clone() {
                    let held = self.read(cell);
                    if self.dom.names.text(name).starts_with("get:") {
                        let given = self.for_one_of(value, |solver| {
                            solver.call_value(held, Some(value), &Args::default(), false)
                        });
                        // The getter's result is held in the object under an internal name, so that `reach`
                        // finds it.
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

    /// Calls the own and inherited getters of a value and of its parts; returns the sources of their results.
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
}
