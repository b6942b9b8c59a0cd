//! Runs one program with many inputs, in groups between whose runs only one source differs.

use std::collections::BTreeSet;

use crate::claims::Prepared;
use crate::inputs::{Inputs, Source, Variant};
use crate::random::Random;
use crate::runner::{End, Run, Runner};

/// The most sources of one program that are changed.
const MAX_SOURCES: usize = 12;

/// The runs of one program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exploration {
    pub(crate) runs: Vec<Run>,
    /// The indices of runs between which only this source differs.
    pub(crate) groups: Vec<(Source, Vec<usize>)>,
}

impl Exploration {
    /// Returns the limit that a run reached, if one did.
    pub(crate) fn limit_reached(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| match &run.end {
            End::LimitReached(limit) => Some(limit.as_str()),
            _ => None,
        })
    }

    /// Adds a run and returns its index.
    fn add(&mut self, run: Run) -> usize {
        self.runs.push(run);
        self.runs.len() - 1
    }
}

/// How thoroughly a program is explored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// The most variants of each source that are tried.
    pub(crate) variants: usize,
    /// The number of random inputs whose sources are changed, in addition to the base inputs.
    pub(crate) random_inputs: usize,
    /// The most further random inputs that are tried while the plan claims egress that no run has confirmed.
    pub(crate) confirmation_rounds: usize,
    /// Whether results of tools are changed, and not only `args`.
    pub(crate) changes_tools: bool,
    pub(crate) seed: u64,
}

impl Effort {
    /// All variants of each tool's results, from the base inputs.
    pub(crate) const ROW: Self = Self {
        variants: 5,
        random_inputs: 0,
        confirmation_rounds: 0,
        changes_tools: true,
        seed: 0,
    };
    /// All variants of `args`, from the base inputs.
    pub(crate) const ARGS: Self = Self { changes_tools: false, ..Self::ROW };
}

/// Runs a program with many inputs. `fields` are the fields of `args` that it reads.
pub(crate) async fn explore(
    runner: &Runner,
    prepared: &Prepared,
    fields: &[String],
    effort: Effort,
) -> Exploration {
    let mut random = Random::new(effort.seed);
    let mut exploration = Exploration::default();
    let mut known: BTreeSet<Source> = BTreeSet::new();
    let mut bases = vec![Inputs::default()];
    let mut index = 0;
    while index < bases.len() {
        let base = bases[index].clone();
        let first = exploration.add(runner.run(prepared, base.clone()).await);
        let mut sources = sources_of(&exploration.runs[first], fields, effort);
        let mut next = 0;
        while next < sources.len() && next < MAX_SOURCES {
            let source = sources[next].clone();
            let mut group = vec![first];
            for variant in variants(&source, base.variant(&source), effort.variants, &mut random) {
                let inputs = base.with(&source, variant);
                let run = exploration.add(runner.run(prepared, inputs).await);
                // A tool that only a changed run calls is a source, too.
                for more in sources_of(&exploration.runs[run], fields, effort) {
                    if !sources.contains(&more) {
                        sources.push(more);
                    }
                }
                group.push(run);
            }
            exploration.groups.push((source, group));
            next += 1;
        }
        known.extend(sources);
        if index < effort.random_inputs {
            let mut inputs = Inputs::default();
            for source in &known {
                inputs = inputs.with(source, *random.pick(&Variant::LIKELY));
            }
            bases.push(inputs);
        }
        index += 1;
    }
    exploration
}

/// Changes some sources again, from one more set of random inputs.
pub(crate) async fn explore_again(
    runner: &Runner,
    prepared: &Prepared,
    exploration: &mut Exploration,
    sources: &BTreeSet<Source>,
    random: &mut Random,
) {
    let mut base = Inputs::default();
    for (source, _) in &exploration.groups {
        base = base.with(source, *random.pick(&Variant::LIKELY));
    }
    let first = exploration.add(runner.run(prepared, base.clone()).await);
    for source in sources {
        let mut group = vec![first];
        for variant in variants(source, base.variant(source), Variant::ALL.len(), random) {
            group.push(exploration.add(runner.run(prepared, base.with(source, variant)).await));
        }
        exploration.groups.push((source.clone(), group));
    }
}

/// Returns the sources that a run may depend on: the fields of `args`, and the tools that it called.
fn sources_of(run: &Run, fields: &[String], effort: Effort) -> Vec<Source> {
    let mut sources: Vec<Source> = fields.iter().cloned().map(Source::Args).collect();
    for call in run.calls.iter().filter(|_| effort.changes_tools) {
        let source = Source::Tool(call.tool.clone());
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// Returns at most `count` variants of a source other than `current`.
fn variants(source: &Source, current: Variant, count: usize, random: &mut Random) -> Vec<Variant> {
    let all: &[Variant] = match source {
        Source::Args(_) => &Variant::VALUES,
        Source::Tool(_) => &Variant::ALL,
    };
    let mut left: Vec<Variant> = all.iter().copied().filter(|one| *one != current).collect();
    // Programs rarely use the results of sinks, so these get fewer variants.
    if is_sink(source) {
        left.retain(|one| matches!(one, Variant::Base | Variant::Other | Variant::Fails));
    }
    while left.len() > count {
        let index = random.below(left.len());
        left.remove(index);
    }
    left
}

fn is_sink(source: &Source) -> bool {
    matches!(source, Source::Tool(tool) if tool.starts_with("slack:post"))
}
