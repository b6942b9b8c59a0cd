//! Plans that tell less than they should: the oracle finds each of them.
//!
//! These change what was told. An analysis that forgets a rule is a [`Teller`](crate::told::Teller) of its
//! own, and is found by the rows that show the rule.

use std::collections::BTreeMap;

use analysis::Argument;

use crate::explore::Observed;
use crate::judge::{Kind, judge, see};
use crate::told::Told;

/// A way to tell something wrong.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The kinds of misses of which one is found.
    pub(crate) found_as: &'static [Kind],
    /// Of a hundred rows whose plans it makes wrong, it is found on so many at least.
    pub(crate) least: usize,
    pub(crate) change: fn(&mut Told),
}

/// How many plans each mutant made wrong, and how many of these were found.
#[derive(Debug, Default)]
pub(crate) struct Tried(BTreeMap<&'static str, (usize, usize)>);

impl Tried {
    /// Makes the plan of a program wrong in every way. All that it tells was right, and shown by the runs.
    pub(crate) fn on(&mut self, told: &Told, observed: &Observed) {
        let seen = see(observed);
        for mutant in MUTANTS {
            let mut wrong = told.clone();
            (mutant.change)(&mut wrong);
            if wrong == *told {
                continue;
            }
            let kinds = judge(&wrong, observed, &seen).kinds();
            let (made, found) = self.0.entry(mutant.name).or_default();
            *made += 1;
            *found += usize::from(mutant.found_as.iter().any(|kind| kinds.contains(kind)));
        }
    }

    /// Returns the mutants that were never found.
    pub(crate) fn unfound(&self) -> Vec<String> {
        self.below(|_, (_, found)| found == 0)
    }

    /// Returns the mutants that were found on too few rows.
    pub(crate) fn found_too_seldom(&self) -> Vec<String> {
        self.below(|mutant, (made, found)| found * 100 < made * mutant.least || made < mutant.least)
    }

    fn below(&self, is_below: impl Fn(&Mutant, (usize, usize)) -> bool) -> Vec<String> {
        let counts = |mutant: &Mutant| self.0.get(mutant.name).copied().unwrap_or_default();
        let below = MUTANTS.iter().filter(|mutant| is_below(mutant, counts(mutant)));
        let line = |mutant: &Mutant| {
            let (made, found) = counts(mutant);
            format!("`{}` is found {found} times of {made}", mutant.name)
        };
        below.map(line).collect()
    }
}

/// All of them.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no data",
        found_as: &[Kind::Given],
        least: 50,
        change: |told| told.tasks.iter_mut().for_each(|task| task.data_from.clear()),
    },
    Mutant {
        name: "one source of data less",
        found_as: &[Kind::Given],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                task.data_from.pop_first();
            }
        },
    },
    Mutant {
        name: "the last source of data less",
        found_as: &[Kind::Given],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                task.data_from.pop_last();
            }
        },
    },
    Mutant {
        name: "no decisions",
        found_as: &[Kind::Made, Kind::Decision],
        least: 50,
        change: |told| told.tasks.iter_mut().for_each(|task| task.decided_by.clear()),
    },
    Mutant {
        name: "no decisions by `args`",
        found_as: &[Kind::ArgsDecision],
        least: 50,
        change: |told| told.tasks.iter_mut().for_each(|task| task.decided_by_args.clear()),
    },
    Mutant {
        name: "another part of `args` decides",
        found_as: &[Kind::ArgsDecision],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                task.decided_by_args.iter_mut().for_each(|part| *part = "args.unheard".to_owned());
            }
        },
    },
    Mutant {
        name: "one decision less",
        found_as: &[Kind::Made, Kind::Decision],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                task.decided_by.pop_first();
            }
        },
    },
    Mutant {
        name: "decisions told as data",
        found_as: &[Kind::Decision],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                let decided = std::mem::take(&mut task.decided_by);
                task.data_from.extend(decided);
            }
        },
    },
    Mutant {
        name: "may is will",
        found_as: &[Kind::Will],
        least: 50,
        change: |told| told.tasks.iter_mut().for_each(|task| task.will = true),
    },
    Mutant {
        name: "many is once",
        found_as: &[Kind::Once],
        least: 30,
        change: |told| told.tasks.iter_mut().for_each(|task| task.once = true),
    },
    Mutant {
        name: "nothing leaves",
        found_as: &[Kind::Egress, Kind::Leaves],
        least: 50,
        change: |told| told.egress.clear(),
    },
    Mutant {
        name: "one pair leaves less",
        found_as: &[Kind::Egress, Kind::Leaves],
        least: 50,
        change: |told| {
            told.egress.pop_first();
        },
    },
    Mutant {
        name: "only what is next leaves",
        found_as: &[Kind::Egress, Kind::Leaves],
        least: 0,
        change: |told| {
            let tasks = &told.tasks;
            told.egress.retain(|(from, to)| {
                tasks[*to].data_from.contains(from) || tasks[*to].decided_by.contains(from)
            });
        },
    },
    Mutant {
        name: "what decides does not leave",
        found_as: &[Kind::Leaves],
        least: 50,
        change: |told| {
            let only_decide = std::mem::take(&mut told.only_decide);
            told.egress.retain(|pair| !only_decide.contains(pair));
        },
    },
    Mutant {
        name: "what leaves only decides",
        found_as: &[Kind::Egress],
        least: 50,
        change: |told| told.only_decide = told.egress.clone(),
    },
    Mutant {
        name: "no `args`",
        found_as: &[Kind::Args],
        least: 50,
        change: |told| told.tasks.iter_mut().for_each(|task| task.from_args.clear()),
    },
    Mutant {
        name: "no `args` leave",
        found_as: &[Kind::ArgsEgress],
        least: 50,
        change: |told| told.args_egress.clear(),
    },
    Mutant {
        name: "`args` that decide do not leave",
        found_as: &[Kind::ArgsLeave],
        least: 50,
        change: |told| told.args_only_decide.clear(),
    },
    Mutant {
        name: "`args` that leave only decide",
        found_as: &[Kind::ArgsEgress],
        least: 50,
        change: |told| {
            for (to, parts) in std::mem::take(&mut told.args_egress) {
                told.args_only_decide.entry(to).or_default().extend(parts);
            }
        },
    },
    Mutant {
        name: "another part of `args`",
        found_as: &[Kind::Args],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                task.from_args.iter_mut().for_each(|part| *part = "args.unheard".to_owned());
            }
        },
    },
    Mutant {
        name: "a task less",
        found_as: &[Kind::Undeclared],
        least: 50,
        change: |told| {
            told.tasks.pop();
            let left = told.tasks.len();
            told.egress.retain(|(from, to)| *from < left && *to < left);
            told.only_decide.retain(|(from, to)| *from < left && *to < left);
            for task in &mut told.tasks {
                task.data_from.retain(|place| *place < left);
                task.decided_by.retain(|place| *place < left);
            }
        },
    },
    Mutant {
        name: "what is computed is shown as known",
        found_as: &[Kind::Shown],
        least: 50,
        change: |told| told.tasks.iter_mut().for_each(|task| fix(&mut task.shown)),
    },
    Mutant {
        name: "another literal",
        found_as: &[Kind::Shown],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                let Argument::Object { fields } = &mut task.shown else { continue };
                for argument in fields.values_mut() {
                    if let Argument::Literal { value } = argument {
                        *value = "another".into();
                    }
                }
            }
        },
    },
    Mutant {
        name: "a field less is shown",
        found_as: &[Kind::Shown],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                if let Argument::Object { fields } = &mut task.shown {
                    fields.pop();
                }
            }
        },
    },
    Mutant {
        name: "the whole result for a part of it",
        found_as: &[Kind::Shown],
        least: 50,
        change: |told| {
            for task in &mut told.tasks {
                let Argument::Object { fields } = &mut task.shown else { continue };
                for argument in fields.values_mut() {
                    if let Argument::Reference { path, .. } = argument {
                        path.clear();
                    }
                }
            }
        },
    },
    Mutant {
        name: "steps the other way round",
        found_as: &[Kind::Step],
        least: 50,
        change: |told| told.order.reverse(),
    },
    Mutant {
        name: "no loop goes back",
        found_as: &[Kind::Step],
        least: 0,
        change: |told| told.order.iter_mut().for_each(|step| step.repeats_from.clear()),
    },
];

/// Shows what is computed as a text.
fn fix(argument: &mut Argument) {
    match argument {
        Argument::Object { fields } => fields.values_mut().for_each(fix),
        Argument::Array { items } => items.iter_mut().for_each(fix),
        Argument::Expression { .. } => *argument = Argument::Literal { value: "computed".into() },
        Argument::Literal { .. } | Argument::Reference { .. } | Argument::Parameter { .. } => {}
    }
}
