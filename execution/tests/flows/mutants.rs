//! Mutants: changes that make a right plan wrong. The oracle must detect them.
//!
//! A mutant changes the claims of a plan. An analysis without one of its rules is another
//! [`Analyser`](crate::claims::Analyser), and is detected by the rows that need the rule.

use std::collections::BTreeMap;

use analysis::Argument;

use crate::claims::{Claims, Task};
use crate::compare::observed_flows;
use crate::explore::Exploration;
use crate::judge::judge;
use crate::miss::MissKind;

struct Mutant {
    name: &'static str,
    /// A detected mutant has a miss of one of these kinds.
    detected_as: &'static [MissKind],
    /// The least share of the plans it makes wrong on which it is detected, and the least number of such plans.
    min_percent: usize,
    change: Change,
}

/// What a mutant changes.
enum Change {
    Plan(fn(&mut Claims)),
    /// Each task.
    Task(fn(&mut Task)),
    /// Each field of the arguments of each task.
    Argument(fn(&mut Argument)),
}

impl Change {
    fn apply(&self, claims: &mut Claims) {
        match self {
            Self::Plan(change) => change(claims),
            Self::Task(change) => claims.tasks.iter_mut().for_each(change),
            Self::Argument(change) => {
                for task in &mut claims.tasks {
                    if let Argument::Object { fields } = &mut task.arguments {
                        fields.values_mut().for_each(change);
                    }
                }
            }
        }
    }
}

/// How many plans each mutant made wrong, and on how many of these it was detected.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<&'static str, (usize, usize)>);

impl Tally {
    /// Applies each mutant to the plan of a program. The plan must be right, and the runs must confirm its egress.
    pub(crate) fn add(&mut self, claims: &Claims, exploration: &Exploration) {
        let flows = observed_flows(exploration);
        for mutant in MUTANTS {
            let mut wrong = claims.clone();
            mutant.change.apply(&mut wrong);
            if wrong == *claims {
                continue;
            }
            let kinds = judge(&wrong, exploration, &flows).kinds();
            let (made, detected) = self.0.entry(mutant.name).or_default();
            *made += 1;
            *detected += usize::from(mutant.detected_as.iter().any(|kind| kinds.contains(kind)));
        }
    }

    /// Describes the mutants that were never detected.
    pub(crate) fn undetected(&self) -> Vec<String> {
        self.describe(|_, (_, detected)| detected == 0)
    }

    /// Describes the mutants that were detected on too few rows, or that made too few plans wrong.
    pub(crate) fn rarely_detected(&self) -> Vec<String> {
        self.describe(|mutant, (made, detected)| {
            detected * 100 < made * mutant.min_percent || made < mutant.min_percent
        })
    }

    fn describe(&self, is_reported: impl Fn(&Mutant, (usize, usize)) -> bool) -> Vec<String> {
        let counts = |mutant: &Mutant| self.0.get(mutant.name).copied().unwrap_or_default();
        let reported = MUTANTS.iter().filter(|mutant| is_reported(mutant, counts(mutant)));
        let line = |mutant: &Mutant| {
            let (made, detected) = counts(mutant);
            format!("`{}` is detected {detected} times of {made}", mutant.name)
        };
        reported.map(line).collect()
    }
}

const fn plan(
    name: &'static str,
    detected_as: &'static [MissKind],
    min_percent: usize,
    change: fn(&mut Claims),
) -> Mutant {
    Mutant { name, detected_as, min_percent, change: Change::Plan(change) }
}

const fn task(
    name: &'static str,
    detected_as: &'static [MissKind],
    min_percent: usize,
    change: fn(&mut Task),
) -> Mutant {
    Mutant { name, detected_as, min_percent, change: Change::Task(change) }
}

const fn argument(
    name: &'static str,
    detected_as: &'static [MissKind],
    min_percent: usize,
    change: fn(&mut Argument),
) -> Mutant {
    Mutant { name, detected_as, min_percent, change: Change::Argument(change) }
}

const DECISION: &[MissKind] = &[MissKind::Decision, MissKind::DecisionAsData];
const EGRESS: &[MissKind] = &[MissKind::DataEgress, MissKind::DecisionEgress];

const MUTANTS: &[Mutant] = &[
    task("no data", &[MissKind::Data], 50, |task| task.data_from.clear()),
    task("first data source missing", &[MissKind::Data], 50, |task| {
        task.data_from.pop_first();
    }),
    task("last data source missing", &[MissKind::Data], 50, |task| {
        task.data_from.pop_last();
    }),
    task("no decisions", DECISION, 50, |task| task.decided_by.clear()),
    task("first decision missing", DECISION, 50, |task| {
        task.decided_by.pop_first();
    }),
    task("decisions as data", &[MissKind::DecisionAsData], 50, |task| {
        task.data_from.append(&mut task.decided_by);
    }),
    task("no decisions by `args`", &[MissKind::ArgsDecision], 50, |task| {
        task.decided_by_args.clear();
    }),
    task("decisions by another part of `args`", &[MissKind::ArgsDecision], 50, |task| {
        rename_parts(&mut task.decided_by_args);
    }),
    task("no `args`", &[MissKind::ArgsData], 50, |task| task.from_args.clear()),
    task("another part of `args`", &[MissKind::ArgsData], 50, |task| {
        rename_parts(&mut task.from_args);
    }),
    task("will instead of may", &[MissKind::Will], 50, |task| task.will = true),
    task("once instead of many", &[MissKind::Once], 30, |task| task.once = true),
    plan("no egress", EGRESS, 50, |claims| claims.egress.clear()),
    plan("first egress missing", EGRESS, 50, |claims| {
        claims.egress.pop_first();
    }),
    plan("direct egress only", EGRESS, 0, |claims| {
        let tasks = &claims.tasks;
        claims.egress.retain(|(from, to)| {
            tasks[*to].data_from.contains(from) || tasks[*to].decided_by.contains(from)
        });
    }),
    plan("no egress by decisions", &[MissKind::DecisionEgress], 50, |claims| {
        let only_decide = std::mem::take(&mut claims.only_decide);
        claims.egress.retain(|pair| !only_decide.contains(pair));
    }),
    plan("all egress by decisions", &[MissKind::DataEgress], 50, |claims| {
        claims.only_decide = claims.egress.clone();
    }),
    plan("no egress of `args`", &[MissKind::ArgsDataEgress], 50, |claims| {
        claims.args_egress.clear();
    }),
    plan("no egress by decisions of `args`", &[MissKind::ArgsDecisionEgress], 50, |claims| {
        claims.args_only_decide.clear();
    }),
    plan("all egress of `args` by decisions", &[MissKind::ArgsDataEgress], 50, |claims| {
        for (to, parts) in std::mem::take(&mut claims.args_egress) {
            claims.args_only_decide.entry(to).or_default().extend(parts);
        }
    }),
    plan("last task missing", &[MissKind::Undeclared], 50, |claims| {
        claims.tasks.pop();
        let left = claims.tasks.len();
        claims.egress.retain(|(from, to)| *from < left && *to < left);
        claims.only_decide.retain(|(from, to)| *from < left && *to < left);
        for task in &mut claims.tasks {
            task.data_from.retain(|index| *index < left);
            task.decided_by.retain(|index| *index < left);
        }
    }),
    argument("expressions displayed as literals", &[MissKind::Argument], 50, fix_expressions),
    argument("another literal", &[MissKind::Argument], 50, |argument| {
        if let Argument::Literal { value } = argument {
            *value = "another".into();
        }
    }),
    argument("the whole result instead of a part", &[MissKind::Argument], 50, |argument| {
        if let Argument::Reference { path, .. } = argument {
            path.clear();
        }
    }),
    task("last field missing", &[MissKind::Argument], 50, |task| {
        if let Argument::Object { fields } = &mut task.arguments {
            fields.pop();
        }
    }),
    plan("steps reversed", &[MissKind::Step], 50, |claims| claims.order.reverse()),
    plan("no repeated steps", &[MissKind::Step], 0, |claims| {
        claims.order.iter_mut().for_each(|step| step.repeats_from.clear());
    }),
];

/// Replaces parts of `args` by one that no program reads.
fn rename_parts(parts: &mut [String]) {
    parts.iter_mut().for_each(|part| *part = "args.unused".to_owned());
}

/// Displays expressions as a literal.
fn fix_expressions(argument: &mut Argument) {
    match argument {
        Argument::Object { fields } => fields.values_mut().for_each(fix_expressions),
        Argument::Array { items } => items.iter_mut().for_each(fix_expressions),
        Argument::Expression { .. } => *argument = Argument::Literal { value: "computed".into() },
        Argument::Literal { .. } | Argument::Reference { .. } | Argument::Parameter { .. } => {}
    }
}
