//! Interned sets of sources: results of tasks, and parts of the program's input.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt as _};
use smallvec::SmallVec;
use swc_atoms::Atom;

use super::{Deps, NONE};
use crate::structure::{PathStep, parameter};

/// The input of the program, in a value that is `args` itself.
pub(in crate::structure) const INPUT: u32 = 1 << 31;
/// Any part of the input.
pub(in crate::structure) const ANY_INPUT: u32 = INPUT + 1;
/// From here on, fields of the input.
pub(in crate::structure) const FIRST_FIELD: u32 = INPUT + 2;
/// The maximum number of fields that are distinguished.
const FIELDS: usize = 62;

/// Up to this many sets are joined one by one, because their unions are likely to be cached.
const PAIRWISE_LIMIT: usize = 6;

/// The number of unions of a typical program, for which capacity is reserved at the start.
const TYPICAL_UNIONS: usize = 100;

/// The interned sets.
pub(in crate::structure) struct Sources {
    sets: Vec<Rc<[u32]>>,
    ids: HashMap<Rc<[u32]>, Deps>,
    unions: HashMap<(Deps, Deps), Deps>,
    fields: Vec<Atom>,
}

impl Default for Sources {
    fn default() -> Self {
        let empty: Rc<[u32]> = Rc::from([]);
        let ids = std::iter::once((empty.clone(), NONE)).collect();
        Self {
            sets: vec![empty],
            ids,
            unions: HashMap::with_capacity(TYPICAL_UNIONS),
            fields: Vec::new(),
        }
    }
}

impl Sources {
    pub(in crate::structure) fn one(&mut self, source: u32) -> Deps {
        self.of(&[source])
    }

    /// Returns the set of these sources, which are sorted and unique.
    pub(in crate::structure) fn of(&mut self, sorted: &[u32]) -> Deps {
        if let Some(id) = self.ids.get(sorted) {
            return *id;
        }
        let set: Rc<[u32]> = sorted.into();
        let id = self.sets.len() as Deps;
        self.sets.push(set.clone());
        self.ids.insert(set, id);
        id
    }

    pub(in crate::structure) fn get(&self, set: Deps) -> &[u32] {
        self.sets.get(set as usize).map_or(&[], |set| set)
    }

    /// Returns the union of two sets. Most calls need no look-up, so that part is inlined.
    #[inline]
    pub(in crate::structure) fn union(&mut self, left: Deps, right: Deps) -> Deps {
        if left == right || right == NONE {
            return left;
        }
        if left == NONE {
            return right;
        }
        self.union_of_different(left, right)
    }

    fn union_of_different(&mut self, left: Deps, right: Deps) -> Deps {
        let key = (left.min(right), left.max(right));
        if let Some(known) = self.unions.get(&key) {
            return *known;
        }
        let (one, other) = (self.get(left), self.get(right));
        let all = merged(one, other);
        // If one set contains the other, the union is not a new set.
        let id = match all.len() {
            count if count == one.len() => left,
            count if count == other.len() => right,
            _ => self.of(&all),
        };
        self.unions.insert(key, id);
        id
    }

    /// Returns the union of many sets, without interning the intermediate results.
    pub(in crate::structure) fn union_all(&mut self, sets: &[Deps]) -> Deps {
        match sets {
            few if few.len() <= PAIRWISE_LIMIT => {
                few.iter().fold(NONE, |all, set| self.union(all, *set))
            }
            _ => {
                let mut all: Vec<u32> =
                    sets.iter().flat_map(|set| self.get(*set)).copied().collect();
                all.sort_unstable();
                all.dedup();
                self.of(&all)
            }
        }
    }

    /// Returns the tasks in a set.
    pub(in crate::structure) fn tasks(&self, set: Deps) -> impl Iterator<Item = u32> + '_ {
        self.get(set).iter().copied().take_while(|source| *source < INPUT)
    }

    pub(in crate::structure) fn has_tasks(&self, set: Deps) -> bool {
        self.tasks(set).next().is_some()
    }

    /// Returns whether a set consists of `args` itself only.
    pub(in crate::structure) fn is_whole(&self, set: Deps) -> bool {
        self.get(set) == [INPUT]
    }

    /// Returns the parts of the input in a set.
    pub(in crate::structure) fn inputs_of(&mut self, set: Deps) -> Deps {
        let inputs: Vec<u32> =
            self.get(set).iter().copied().filter(|source| *source >= INPUT).collect();
        let inputs = self.of(&inputs);
        self.used(inputs)
    }

    fn has(&self, set: Deps, source: u32) -> bool {
        self.get(set).binary_search(&source).is_ok()
    }

    fn without(&mut self, set: Deps, source: u32) -> Deps {
        let left: Vec<u32> = self.get(set).iter().copied().filter(|one| *one != source).collect();
        self.of(&left)
    }

    /// Returns the sources of something computed from a value: `args` itself becomes any part of it.
    #[inline]
    pub(in crate::structure) fn used(&mut self, set: Deps) -> Deps {
        // The input has the highest numbers, so a set without it ends with a task.
        match self.get(set).last() {
            Some(last) if *last >= INPUT => self.used_of_input(set),
            _ => set,
        }
    }

    fn used_of_input(&mut self, set: Deps) -> Deps {
        if !self.has(set, INPUT) {
            return set;
        }
        let (rest, any) = (self.without(set, INPUT), self.one(ANY_INPUT));
        self.union(rest, any)
    }

    /// Returns the sources of a field of a value with this set: `args` itself becomes the field.
    pub(in crate::structure) fn field(&mut self, set: Deps, name: &Atom) -> Deps {
        if !self.has(set, INPUT) {
            return set;
        }
        let place = self.fields.iter().position(|known| known == name);
        let source = match place {
            Some(place) => FIRST_FIELD + place as u32,
            None if self.fields.len() == FIELDS => ANY_INPUT,
            None => {
                self.fields.push(name.clone());
                FIRST_FIELD + self.fields.len() as u32 - 1
            }
        };
        let (rest, field) = (self.without(set, INPUT), self.one(source));
        self.union(rest, field)
    }

    /// Returns the parts of the input in a set, as a program writes them, `args` last.
    pub(in crate::structure) fn inputs(&self, set: Deps) -> Vec<String> {
        let fields = self.fields.iter().enumerate();
        let mut names: Vec<String> = fields
            .filter(|(place, _)| self.has(set, FIRST_FIELD + *place as u32))
            .map(|(_, name)| parameter(&[PathStep::of(name)]))
            .collect();
        if self.has(set, INPUT) || self.has(set, ANY_INPUT) {
            names.push(parameter(&[]));
        }
        names
    }
}

/// Merges two sorted sets.
fn merged(one: &[u32], other: &[u32]) -> SmallVec<[u32; 32]> {
    let mut all = SmallVec::with_capacity(one.len() + other.len());
    let (mut left, mut right) = (one, other);
    while let ([first, rest @ ..], [second, others @ ..]) = (left, right) {
        all.push(*first.min(second));
        if first <= second {
            left = rest;
        }
        if second <= first {
            right = others;
        }
    }
    all.extend_from_slice(left);
    all.extend_from_slice(right);
    all
}
