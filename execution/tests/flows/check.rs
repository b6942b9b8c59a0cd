//! Checks programs, several at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;

use crate::explore::{Effort, Observed, explore, look_again};
use crate::judge::{Miss, Verdict, judge, see};
use crate::program::Program;
use crate::random::Random;
use crate::runner::{Run, Runner};
use crate::told::{Prepared, Teller};
use crate::world::Source;

/// Programs that are checked at the same time.
const AT_ONCE: usize = 4;
/// Programs that are kept in memory until all of them are checked.
const CHUNK: usize = 64;
/// How often the runs that show a miss are repeated; a miss has to occur each time.
const REPEATS: usize = 4;

/// A program with what was told of it and what it did.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) program: Program,
    /// What was told, or why it cannot run.
    pub(crate) prepared: Result<Prepared, String>,
    pub(crate) observed: Observed,
    pub(crate) verdict: Verdict,
}

/// Runs programs and asks one teller about them.
#[derive(Clone)]
pub(crate) struct Checker {
    runtime: Arc<tokio::runtime::Runtime>,
    runner: Runner,
    teller: Teller,
}

impl Checker {
    pub(crate) fn start(teller: Teller) -> Result<Self, Box<dyn std::error::Error>> {
        let runtime = tokio::runtime::Runtime::new()?;
        let runner = {
            let _inside = runtime.enter();
            Runner::start()?
        };
        Ok(Self { runtime: Arc::new(runtime), runner, teller })
    }

    /// Checks programs and hands each to `seen`, in their order.
    pub(crate) fn each(
        &self,
        programs: impl Iterator<Item = (Program, Effort)>,
        mut seen: impl FnMut(Checked),
    ) {
        let mut programs = programs.fuse();
        loop {
            let chunk: Vec<(Program, Effort)> = programs.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return;
            }
            let checks = chunk.into_iter().map(|(program, effort)| {
                let check = check(self.runner.clone(), self.teller.clone(), program, effort);
                let handle = self.runtime.handle().clone();
                async move { handle.spawn(check).await.expect("no check panics") }
            });
            let checks = futures::stream::iter(checks).buffered(AT_ONCE).collect::<Vec<Checked>>();
            self.runtime.block_on(checks).into_iter().for_each(&mut seen);
        }
    }

    /// Tells what a program does in some worlds, if it can run.
    pub(crate) fn runs(&self, program: &Program, runs: &[Run]) -> Option<(Prepared, Vec<Run>)> {
        let prepared = (self.teller)(&program.source()).ok()?;
        let again = runs.iter().map(|run| self.runner.run(&prepared, run.world.clone()));
        let again = self.runtime.block_on(futures::future::join_all(again));
        Some((prepared, again))
    }
}

async fn check(runner: Runner, teller: Teller, program: Program, effort: Effort) -> Checked {
    let prepared = teller(&program.source());
    let (mut observed, mut verdict) = (Observed::default(), Verdict::default());
    if let Ok(prepared) = &prepared {
        observed = explore(&runner, prepared, &program.fields_of_args(), effort).await;
        verdict = judge(&prepared.told, &observed, &see(&observed));
        let told = prepared.told.pairs();
        let mut random = Random::new(effort.seed ^ 1);
        for _ in 0..effort.doubts {
            let doubted = told.difference(&verdict.reached);
            let sources: BTreeSet<Source> =
                doubted.map(|(from, _)| Source::Tool(from.clone())).collect();
            if sources.is_empty() {
                break;
            }
            look_again(&runner, prepared, &mut observed, &sources, &mut random).await;
            verdict = judge(&prepared.told, &observed, &see(&observed));
        }
        confirm(&runner, prepared, &observed, &mut verdict).await;
    }
    Checked { program, prepared, observed, verdict }
}

/// Drops misses that do not occur again when the same runs are repeated.
///
/// Timers and calls race in real time. On a busy machine a timer can fire before a call returns, in one of two runs that
/// are compared. Time is not a source, and such a difference is not the effect of the one that was changed.
async fn confirm(runner: &Runner, prepared: &Prepared, observed: &Observed, verdict: &mut Verdict) {
    for _ in 0..REPEATS {
        if verdict.misses.is_empty() {
            return;
        }
        let mut again = Observed { runs: Vec::new(), groups: observed.groups.clone() };
        for run in &observed.runs {
            again.runs.push(runner.run(prepared, run.world.clone()).await);
        }
        let repeated = judge(&prepared.told, &again, &see(&again)).misses;
        let is_same = |one: &Miss, other: &Miss| {
            (one.kind, &one.from, &one.to) == (other.kind, &other.from, &other.to)
        };
        verdict.misses.retain(|miss| repeated.iter().any(|other| is_same(miss, other)));
    }
}
