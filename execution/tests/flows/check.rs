//! Checks programs: analyses, explores and judges several of them concurrently.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;

use crate::claims::{Analyser, Prepared};
use crate::compare::observed_flows;
use crate::explore::{Effort, Exploration, explore, explore_again};
use crate::inputs::Source;
use crate::judge::{Verdict, judge};
use crate::program::Program;
use crate::random::Random;
use crate::runner::{Run, Runner};

/// The number of programs that are checked concurrently.
const CONCURRENCY: usize = 4;
/// The number of checked programs that are kept in memory.
const CHUNK: usize = 64;
/// How often the runs that show a miss are repeated. A miss must occur each time.
const REPEATS: usize = 4;

/// A program with its plan, its runs and the verdict.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) program: Program,
    /// The analysed program, or why the analysis refuses it.
    pub(crate) prepared: Result<Prepared, String>,
    pub(crate) exploration: Exploration,
    pub(crate) verdict: Verdict,
}

/// Checks programs against the plans of one analysis.
#[derive(Clone)]
pub(crate) struct Checker {
    runtime: Arc<tokio::runtime::Runtime>,
    runner: Runner,
    analyser: Analyser,
}

impl Checker {
    pub(crate) fn start(analyser: Analyser) -> Result<Self, Box<dyn std::error::Error>> {
        let runtime = tokio::runtime::Runtime::new()?;
        let runner = {
            let _inside = runtime.enter();
            Runner::start()?
        };
        Ok(Self { runtime: Arc::new(runtime), runner, analyser })
    }

    /// Checks programs and passes each to `on_checked`, in the order of the programs.
    pub(crate) fn check_all(
        &self,
        programs: impl Iterator<Item = (Program, Effort)>,
        mut on_checked: impl FnMut(Checked),
    ) {
        let mut programs = programs.fuse();
        loop {
            let chunk: Vec<(Program, Effort)> = programs.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return;
            }
            let checks = chunk.into_iter().map(|(program, effort)| {
                let check = check(self.runner.clone(), self.analyser.clone(), program, effort);
                let handle = self.runtime.handle().clone();
                async move { handle.spawn(check).await.expect("no check panics") }
            });
            let checks =
                futures::stream::iter(checks).buffered(CONCURRENCY).collect::<Vec<Checked>>();
            self.runtime.block_on(checks).into_iter().for_each(&mut on_checked);
        }
    }

    /// Runs a program again with the inputs of earlier runs; none if the analysis refuses it.
    pub(crate) fn rerun(&self, program: &Program, runs: &[Run]) -> Option<(Prepared, Vec<Run>)> {
        let prepared = (self.analyser)(&program.source()).ok()?;
        let again = runs.iter().map(|run| self.runner.run(&prepared, run.inputs.clone()));
        let again = self.runtime.block_on(futures::future::join_all(again));
        Some((prepared, again))
    }
}

async fn check(runner: Runner, analyser: Analyser, program: Program, effort: Effort) -> Checked {
    let prepared = analyser(&program.source());
    let (mut exploration, mut verdict) = (Exploration::default(), Verdict::default());
    if let Ok(prepared) = &prepared {
        exploration = explore(&runner, prepared, &program.fields_of_args(), effort).await;
        verdict = judge(&prepared.claims, &exploration, &observed_flows(&exploration));
        let claimed = prepared.claims.egress_tools();
        // `explore` uses the seed itself; these inputs must differ from those.
        let mut random = Random::new(effort.seed ^ 1);
        for _ in 0..effort.confirmation_rounds {
            let unconfirmed = claimed.difference(&verdict.reached);
            let sources: BTreeSet<Source> =
                unconfirmed.map(|(from, _)| Source::Tool(from.clone())).collect();
            if sources.is_empty() {
                break;
            }
            explore_again(&runner, prepared, &mut exploration, &sources, &mut random).await;
            verdict = judge(&prepared.claims, &exploration, &observed_flows(&exploration));
        }
        drop_unrepeatable(&runner, prepared, &exploration, &mut verdict).await;
    }
    Checked { program, prepared, exploration, verdict }
}

/// Drops misses that do not occur again when the same runs are repeated.
///
/// Timers and calls race in real time. On a busy machine, a timer can fire before a call returns in only one of two
/// compared runs. Time is not a source, so such a difference is not a flow from the source that was changed.
async fn drop_unrepeatable(
    runner: &Runner,
    prepared: &Prepared,
    exploration: &Exploration,
    verdict: &mut Verdict,
) {
    for _ in 0..REPEATS {
        if verdict.misses.is_empty() {
            return;
        }
        let mut again = Exploration { runs: Vec::new(), groups: exploration.groups.clone() };
        for run in &exploration.runs {
            again.runs.push(runner.run(prepared, run.inputs.clone()).await);
        }
        let repeated = judge(&prepared.claims, &again, &observed_flows(&again)).misses;
        verdict.misses.retain(|miss| repeated.iter().any(|other| other.is_same(miss)));
    }
}
