//! Runs one program in many worlds, of which each differs from another in one source.

use std::collections::BTreeSet;

use crate::random::Random;
use crate::runner::{End, Run, Runner};
use crate::told::Prepared;
use crate::world::{Source, Variant, World};

/// The most sources of one program that are changed.
const SOURCES: usize = 12;

/// The runs of one program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub(crate) runs: Vec<Run>,
    /// Places of runs between which nothing but this source differs.
    pub(crate) groups: Vec<(Source, Vec<usize>)>,
}

impl Observed {
    /// Returns why a run was stopped at a limit, if one was.
    pub(crate) fn cut(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| match &run.end {
            End::Cut(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

/// How thoroughly a program is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// How many changes of each source are tried; all, if there are fewer.
    pub(crate) changes: usize,
    /// How many worlds are changed, besides the first.
    pub(crate) other_worlds: usize,
    /// In how many more worlds sources are changed of which something is told that no run has shown.
    pub(crate) doubts: usize,
    /// Whether what tools return is changed, too, and not only `args`.
    pub(crate) tools: bool,
    pub(crate) seed: u64,
}

impl Effort {
    /// All changes of what a tool returns, in one world.
    pub(crate) const ROW: Self =
        Self { changes: 5, other_worlds: 0, doubts: 0, tools: true, seed: 0 };
    /// All changes of `args`, in one world.
    pub(crate) const ARGS: Self = Self { tools: false, ..Self::ROW };
}

/// Runs a program in many worlds; `fields` are those of `args` that it asks for.
pub(crate) async fn explore(
    runner: &Runner,
    prepared: &Prepared,
    fields: &[String],
    effort: Effort,
) -> Observed {
    let mut random = Random::new(effort.seed);
    let mut observed = Observed::default();
    let mut known: BTreeSet<Source> = BTreeSet::new();
    let mut bases = vec![World::default()];
    let mut place = 0;
    while place < bases.len() {
        let base = bases[place].clone();
        let first = add(&mut observed, runner.run(prepared, base.clone()).await);
        let mut sources = sources_of(&observed.runs[first], fields, effort);
        let mut next = 0;
        while next < sources.len() && next < SOURCES {
            let source = sources[next].clone();
            let mut group = vec![first];
            for variant in changes(&source, base.variant(&source), effort.changes, &mut random) {
                let world = base.with(&source, variant);
                let run = add(&mut observed, runner.run(prepared, world).await);
                // What only a changed run reaches is a source, too.
                for more in sources_of(&observed.runs[run], fields, effort) {
                    if !sources.contains(&more) {
                        sources.push(more);
                    }
                }
                group.push(run);
            }
            observed.groups.push((source, group));
            next += 1;
        }
        known.extend(sources);
        if place < effort.other_worlds {
            let mut world = World::default();
            for source in &known {
                world = world.with(source, *random.one(&Variant::LIKELY));
            }
            bases.push(world);
        }
        place += 1;
    }
    observed
}

/// Changes some sources in one more world.
pub(crate) async fn look_again(
    runner: &Runner,
    prepared: &Prepared,
    observed: &mut Observed,
    sources: &BTreeSet<Source>,
    random: &mut Random,
) {
    let mut base = World::default();
    for (source, _) in &observed.groups {
        base = base.with(source, *random.one(&Variant::LIKELY));
    }
    let first = add(observed, runner.run(prepared, base.clone()).await);
    for source in sources {
        let mut group = vec![first];
        for variant in changes(source, base.variant(source), Variant::ALL.len(), random) {
            group.push(add(observed, runner.run(prepared, base.with(source, variant)).await));
        }
        observed.groups.push((source.clone(), group));
    }
}

fn add(observed: &mut Observed, run: Run) -> usize {
    observed.runs.push(run);
    observed.runs.len() - 1
}

fn sources_of(run: &Run, fields: &[String], effort: Effort) -> Vec<Source> {
    let mut sources: Vec<Source> = fields.iter().cloned().map(Source::Args).collect();
    for call in run.calls.iter().filter(|_| effort.tools) {
        let source = Source::Tool(call.tool.clone());
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// Returns some of the other ways in which a source can be.
fn changes(source: &Source, now: Variant, count: usize, random: &mut Random) -> Vec<Variant> {
    let all: &[Variant] = match source {
        Source::Args(_) => &Variant::VALUES,
        Source::Tool(_) => &Variant::ALL,
    };
    let mut left: Vec<Variant> = all.iter().copied().filter(|one| *one != now).collect();
    // What a server answers is a source like any other, and less often the point.
    if is_sink(source) {
        left.retain(|one| matches!(one, Variant::Base | Variant::Other | Variant::Fails));
    }
    while left.len() > count {
        let place = random.below(left.len());
        left.remove(place);
    }
    left
}

fn is_sink(source: &Source) -> bool {
    matches!(source, Source::Tool(tool) if tool.starts_with("slack:post"))
}
