//! What two analyses know of one argument: it is shown as it stands only if both say so.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::{join, name, place_of};
use crate::structure::{Argument, parameter};

/// Merges what is told of the arguments of one task.
pub(super) struct Merge<'a> {
    /// The places of the tasks of the other analysis.
    pub(super) of_new: &'a [Option<usize>],
    /// The place of the task.
    pub(super) place: usize,
}

/// Stands for the part of an argument that has no name.
const REST: &str = "*";

impl Merge<'_> {
    /// Merges all arguments of a call; `inputs` are the parts of `args` in them.
    pub(super) fn all(
        &self,
        known: &mut IndexMap<String, Argument>,
        new: &IndexMap<String, Argument>,
        inputs: &[String],
    ) {
        if !self.fields(known, new) {
            // What is sent has other names than it seems.
            known.clear();
            known.extend(new.iter().map(|(name, new)| (name.clone(), self.renamed(new))));
        }
        let told: BTreeSet<String> = known.values().flat_map(parts).collect();
        let missing = inputs.iter().filter(|part| !told.contains(*part) && !told.contains("args"));
        let missing: Vec<String> = missing.cloned().collect();
        if missing.is_empty() {
            return;
        }
        let rest = known.entry(REST.into()).or_insert_with(|| computed(&[], &[]));
        add_inputs(rest, &missing);
    }

    /// Merges arguments of the same names; returns whether they have the same ones.
    fn fields(
        &self,
        known: &mut IndexMap<String, Argument>,
        new: &IndexMap<String, Argument>,
    ) -> bool {
        if !known.contains_key(REST) && new.keys().any(|name| !known.contains_key(name)) {
            return false;
        }
        let has_rest = new.contains_key(REST);
        if !has_rest && known.keys().any(|name| name != REST && !new.contains_key(name)) {
            return false;
        }
        for (name, argument) in known.iter_mut() {
            if let Some(new) = new.get(name).or_else(|| new.get(REST)) {
                self.argument(argument, new);
            }
        }
        true
    }

    fn argument(&self, known: &mut Argument, new: &Argument) {
        match (&mut *known, new) {
            (Argument::Expression { depends_on, from_args, .. }, new) => {
                join(depends_on, &self.tasks(new));
                for part in parts(new) {
                    if !from_args.contains(&part) && !from_args.iter().any(|one| one == "args") {
                        from_args.push(part);
                    }
                }
                return;
            }
            (Argument::Object { fields }, Argument::Object { fields: new }) => {
                let is_merged = self.fields(fields, new);
                if is_merged {
                    return;
                }
            }
            (Argument::Array { items }, Argument::Array { items: new })
                if items.len() == new.len() =>
            {
                for (item, new) in items.iter_mut().zip(new) {
                    self.argument(item, new);
                }
                return;
            }
            (known, new) if *known == self.renamed(new) => return,
            // The other one lost the way to the part, but nothing else is in it.
            (
                known @ (Argument::Reference { .. } | Argument::Parameter { .. }),
                Argument::Expression { .. },
            ) if self.is_within(new, known) => return,
            _ => {}
        }
        *known = self.both(known, new);
    }

    /// Returns whether nothing flows into one argument that does not flow into another.
    fn is_within(&self, new: &Argument, known: &Argument) -> bool {
        let mut tasks = BTreeSet::new();
        own_tasks(known, &mut tasks);
        let inputs = parts(known);
        self.tasks(new).is_subset(&tasks) && parts(new).iter().all(|part| inputs.contains(part))
    }

    /// Returns an argument of which only is known what flows into it.
    fn both(&self, known: &Argument, new: &Argument) -> Argument {
        let mut tasks = BTreeSet::new();
        own_tasks(known, &mut tasks);
        tasks.extend(self.tasks(new));
        let tasks: Vec<String> = tasks.into_iter().map(name).collect();
        let mut inputs = parts(known);
        inputs.extend(parts(new));
        inputs.dedup();
        let mut both = computed(&tasks, &inputs);
        if let (Argument::Expression { source, .. }, Argument::Expression { source: text, .. }) =
            (&mut both, new)
        {
            source.clone_from(text);
        }
        both
    }

    /// Returns the earlier tasks in an argument of the other analysis.
    fn tasks(&self, new: &Argument) -> BTreeSet<usize> {
        let mut tasks = BTreeSet::new();
        own_tasks(new, &mut tasks);
        let known = tasks.into_iter().filter_map(|new| self.of_new.get(new).copied().flatten());
        known.filter(|place| *place < self.place).collect()
    }

    /// Returns an argument of the other analysis with the names that tasks have here.
    fn renamed(&self, new: &Argument) -> Argument {
        match new {
            Argument::Literal { .. } | Argument::Parameter { .. } => new.clone(),
            Argument::Reference { path, .. } => match self.tasks(new).first() {
                Some(place) => Argument::Reference { task: name(*place), path: path.clone() },
                None => computed(&[], &[]),
            },
            Argument::Object { fields } => Argument::Object {
                fields: fields
                    .iter()
                    .map(|(name, new)| (name.clone(), self.renamed(new)))
                    .collect(),
            },
            Argument::Array { items } => {
                Argument::Array { items: items.iter().map(|item| self.renamed(item)).collect() }
            }
            Argument::Expression { source, from_args, .. } => Argument::Expression {
                source: source.clone(),
                depends_on: self.tasks(new).into_iter().map(name).collect(),
                from_args: from_args.clone(),
            },
        }
    }
}

fn computed(depends_on: &[String], from_args: &[String]) -> Argument {
    Argument::Expression {
        source: String::new(),
        depends_on: depends_on.to_vec(),
        from_args: from_args.to_vec(),
    }
}

fn add_inputs(argument: &mut Argument, more: &[String]) {
    if let Argument::Expression { from_args, .. } = argument {
        from_args.extend(more.iter().cloned());
        return;
    }
    let mut tasks = BTreeSet::new();
    own_tasks(argument, &mut tasks);
    let tasks: Vec<String> = tasks.into_iter().map(name).collect();
    let mut inputs = parts(argument);
    inputs.extend(more.iter().cloned());
    *argument = computed(&tasks, &inputs);
}

/// Collects the tasks in an argument.
fn own_tasks(argument: &Argument, out: &mut BTreeSet<usize>) {
    match argument {
        Argument::Literal { .. } | Argument::Parameter { .. } => {}
        Argument::Reference { task, .. } => out.extend(place_of(task)),
        Argument::Object { fields } => fields.values().for_each(|field| own_tasks(field, out)),
        Argument::Array { items } => items.iter().for_each(|item| own_tasks(item, out)),
        Argument::Expression { depends_on, .. } => {
            out.extend(depends_on.iter().filter_map(|name| place_of(name)));
        }
    }
}

/// Returns the fields of `args` in an argument.
fn parts(argument: &Argument) -> Vec<String> {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } => Vec::new(),
        Argument::Parameter { path } => vec![parameter(path.get(..1).unwrap_or_default())],
        Argument::Object { fields } => fields.values().flat_map(parts).collect(),
        Argument::Array { items } => items.iter().flat_map(parts).collect(),
        Argument::Expression { from_args, .. } => from_args.clone(),
    }
}
