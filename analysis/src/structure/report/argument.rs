//! The arguments of a call.

use indexmap::IndexMap;
use serde_json::Value as Json;

use super::Report;
use super::excerpt::excerpt;
use crate::structure::Argument;
use crate::structure::domain::Deps;
use crate::structure::solve::{FoundTask, Shown, ShownAs};

/// Converts the arguments of the call at an index.
pub(super) struct Arguments<'a, 's> {
    pub(super) report: &'a Report<'s>,
    pub(super) place: usize,
}

impl Arguments<'_, '_> {
    pub(super) fn all(&self, found: &FoundTask) -> IndexMap<String, Argument> {
        if self.report.solved.lost {
            return IndexMap::from([("*".into(), self.computed(found.data, found.text))]);
        }
        let mut out: IndexMap<String, Argument> = found
            .arguments
            .iter()
            .map(|(name, shown)| (name.to_string(), self.argument(shown)))
            .collect();
        self.add_hidden_inputs(found, &mut out);
        out
    }

    /// Adds the parts of the input that flow into the call but appear in none of its arguments.
    fn add_hidden_inputs(&self, found: &FoundTask, out: &mut IndexMap<String, Argument>) {
        let mut missing = self.report.inputs(found.data);
        if missing.is_empty() {
            return;
        }
        let mut listed = Vec::new();
        out.values().for_each(|argument| parts(argument, &mut listed));
        missing.retain(|part| !listed.iter().any(|known| known == part || known == "args"));
        if missing.is_empty() {
            return;
        }
        let rest = out.entry("*".into()).or_insert_with(|| self.computed(found.data, found.text));
        if let Argument::Expression { from_args, .. } = rest {
            from_args.extend(
                missing.into_iter().filter(|part| !from_args.contains(part)).collect::<Vec<_>>(),
            );
        }
    }

    fn argument(&self, shown: &Shown) -> Argument {
        let domain = &self.report.solved.domain;
        match &shown.known {
            ShownAs::Literal(value) => Argument::Literal { value: value.clone() },
            ShownAs::Reference(site, path) => match self.report.places.get(site) {
                // The graph is acyclic: a result from an earlier iteration of a loop is not a reference.
                Some(place) if *place < self.place => Argument::Reference {
                    task: self.report.ids[*place].clone(),
                    path: domain.paths.steps(*path, &domain.names),
                },
                _ => Argument::Expression {
                    source: excerpt(self.report.source, shown.text),
                    depends_on: Vec::new(),
                    from_args: Vec::new(),
                },
            },
            ShownAs::Parameter(path) => {
                Argument::Parameter { path: domain.paths.steps(*path, &domain.names) }
            }
            ShownAs::Object { fields, rest } => {
                let mut out: IndexMap<String, Argument> = fields
                    .iter()
                    .map(|(name, shown)| (name.to_string(), self.argument(shown)))
                    .collect();
                out.extend(rest.map(|deps| ("*".to_owned(), self.computed(deps, shown.text))));
                whole_object(out)
            }
            ShownAs::Array(items) => {
                whole_list(items.iter().map(|item| self.argument(item)).collect())
            }
            ShownAs::Computed(deps) => self.computed(*deps, shown.text),
        }
    }

    fn computed(&self, deps: Deps, span: (u32, u32)) -> Argument {
        let tasks = self.report.tasks(deps);
        Argument::Expression {
            source: excerpt(self.report.source, span),
            depends_on: self.report.ids_of(tasks.iter().filter(|of| **of < self.place)),
            from_args: self.report.inputs(deps),
        }
    }
}

/// Returns an object, as one literal if all of its fields are literals.
fn whole_object(fields: IndexMap<String, Argument>) -> Argument {
    let literal = |(name, field): (&String, &Argument)| match field {
        Argument::Literal { value } => Some((name.clone(), value.clone())),
        _ => None,
    };
    match fields.iter().map(literal).collect() {
        Some(all) => Argument::Literal { value: Json::Object(all) },
        None => Argument::Object { fields },
    }
}

/// Returns a list, as one literal if all of its items are literals.
fn whole_list(items: Vec<Argument>) -> Argument {
    let literal = |item: &Argument| match item {
        Argument::Literal { value } => Some(value.clone()),
        _ => None,
    };
    match items.iter().map(literal).collect() {
        Some(all) => Argument::Literal { value: Json::Array(all) },
        None => Argument::Array { items },
    }
}

/// Collects the fields of `args` in an argument.
fn parts(argument: &Argument, out: &mut Vec<String>) {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } => {}
        Argument::Parameter { path } => {
            out.push(crate::structure::parameter(path.get(..1).unwrap_or_default()));
        }
        Argument::Object { fields } => fields.values().for_each(|field| parts(field, out)),
        Argument::Array { items } => items.iter().for_each(|item| parts(item, out)),
        Argument::Expression { from_args, .. } => out.extend(from_args.iter().cloned()),
    }
}
