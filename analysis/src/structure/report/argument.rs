//! The arguments of a call.

use indexmap::IndexMap;

use super::excerpt::excerpt;
use super::{Report, name};
use crate::structure::Argument;
use crate::structure::domain::Deps;
use crate::structure::solve::{FoundTask, Shown};

/// Puts the arguments of the call at a place into their form.
pub(super) struct Arguments<'a, 's> {
    pub(super) report: &'a Report<'s>,
    pub(super) place: usize,
}

impl Arguments<'_, '_> {
    pub(super) fn all(&self, found: &FoundTask) -> IndexMap<String, Argument> {
        if self.report.solved.lost {
            return IndexMap::from([("*".into(), self.computed(found.data, (found.at, found.at)))]);
        }
        let mut out: IndexMap<String, Argument> = found
            .arguments
            .iter()
            .map(|(name, shown)| (name.to_string(), self.argument(shown)))
            .collect();
        self.add_what_is_not_shown(found, &mut out);
        out
    }

    /// Adds the parts of the input that flow into the call and are in none of its arguments.
    fn add_what_is_not_shown(&self, found: &FoundTask, out: &mut IndexMap<String, Argument>) {
        let mut told = Vec::new();
        out.values().for_each(|argument| parts(argument, &mut told));
        let whole = "args".to_owned();
        let missing = self.report.inputs(found.data).into_iter();
        let missing: Vec<String> =
            missing.filter(|part| !told.contains(part) && !told.contains(&whole)).collect();
        if missing.is_empty() {
            return;
        }
        let rest = out.entry("*".into()).or_insert_with(|| self.computed(found.data, (0, 0)));
        if let Argument::Expression { from_args, .. } = rest {
            from_args.extend(
                missing.into_iter().filter(|part| !from_args.contains(part)).collect::<Vec<_>>(),
            );
        }
    }

    fn argument(&self, shown: &Shown) -> Argument {
        let domain = &self.report.solved.domain;
        match shown {
            Shown::Literal(value) => Argument::Literal { value: value.clone() },
            Shown::Reference(site, path) => match self.report.places.get(site) {
                // A graph has no place for what an earlier round of a loop hands on.
                Some(place) if *place < self.place => Argument::Reference {
                    task: name(*place),
                    path: domain.paths.told(*path, &domain.names),
                },
                _ => Argument::Expression {
                    source: String::new(),
                    depends_on: Vec::new(),
                    from_args: Vec::new(),
                },
            },
            Shown::Parameter(path) => {
                Argument::Parameter { path: domain.paths.told(*path, &domain.names) }
            }
            Shown::Object { fields, rest } => {
                let mut out: IndexMap<String, Argument> = fields
                    .iter()
                    .map(|(name, shown)| (name.to_string(), self.argument(shown)))
                    .collect();
                if let Some((deps, span)) = rest {
                    out.insert("*".into(), self.computed(*deps, *span));
                }
                Argument::Object { fields: out }
            }
            Shown::Array(items) => {
                Argument::Array { items: items.iter().map(|item| self.argument(item)).collect() }
            }
            Shown::Computed { deps, span } => self.computed(*deps, *span),
        }
    }

    fn computed(&self, deps: Deps, span: (u32, u32)) -> Argument {
        let tasks = self.report.tasks(deps);
        Argument::Expression {
            source: excerpt(self.report.source, span),
            depends_on: tasks.range(..self.place).copied().map(name).collect(),
            from_args: self.report.inputs(deps),
        }
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
