//! Follows a program in the core language to a fixed point.
//!
//! The walk goes through the instructions in the order in which they run, into functions at each of
//! their calls, and follows values. Each round goes through everything once; what a later place hands
//! to an earlier one (the next round of a loop, a recursive call, code that runs beside) is learned
//! in one round and used in the next, until a round learns nothing new. What is learned only grows.
//!
//! What makes the result sound is the default: whatever is not followed is unknown code, which
//! depends on all it can reach, may change all it can reach, may call any function that it can
//! reach, and may fail.

mod above;
mod attempt;
mod begin;
mod branch;
mod builtin;
mod call;
mod callback;
mod chosen;
mod compute;
mod control;
mod cut;
mod data;
mod define;
mod frame;
mod generator;
mod global;
mod handed;
mod hang;
mod hold;
mod items;
mod iterate;
mod level;
mod misuse;
mod named;
mod nodes;
mod object;
mod promised;
mod put;
mod reach;
mod rule;
mod shared;
mod shown;
mod state;
mod takes;
mod task;
mod thread;
mod unknown;
mod wait;
mod walk;

use std::collections::BTreeSet;

use foldhash::{HashMap, HashSet};
use protocol::ToolId;
use smallvec::SmallVec;

use self::attempt::Tries;
use self::branch::RegionState;
use self::builtin::Engine;
use self::chosen::Chosen;
use self::frame::{Act, Context, Contexts};
use self::generator::Generators;
use self::hold::Turn;
use self::level::{Handler, Level};
use self::misuse::{Misuses, Written};
use self::named::{NamedTools, ToolNumber};
use self::nodes::Nodes;
use self::shared::Functions;
use self::state::Trail;
use self::task::Tasks;
use self::thread::{Threads, Time};
use self::unknown::Escaped;
use self::wait::Promises;
use super::core::{Core, FuncId};
use super::domain::{Birth, CellId, Deps, Domain, Heap, NONE, NameId, ObjId, Ref, SiteId, Value};
use crate::Limits;
use crate::diagnostic::{Code, Finding};

pub(super) use self::misuse::{Misuse, Wrong};
pub(super) use self::nodes::{FoundKind, FoundNode};
pub use self::rule::Rule;
pub(crate) use self::rule::forgetting;
pub(super) use self::shown::{Shown, ShownAs};
pub(super) use self::task::FoundTask;

/// The most rounds. Ordinary programs need two to five; loops in loops may need one for each.
const ROUNDS: u32 = 300;
/// From this round on, constants that change are forgotten.
const WIDEN: u32 = 6;
/// The most instructions that are followed in all rounds, functions counted at each of their calls.
const WORK: usize = 3_000_000;

/// The most gaps that are told.
const GAPS: usize = 100;
/// What the analysis found.
pub(super) struct Solved {
    pub(super) domain: Domain,
    pub(super) tasks: Vec<FoundTask>,
    pub(super) nodes: Vec<FoundNode>,
    /// All tools that the program names.
    pub(super) tools: BTreeSet<ToolId>,
    /// Places at which a tool may be called that is not among the tasks.
    pub(super) gaps: Vec<Gap>,
    /// Promises that are taken for what they will give, and names of tools that cannot exist.
    pub(super) misuses: Vec<Misuse>,
    /// Whether the values are too entangled to be followed.
    pub(super) entangled: bool,
    /// Whether everything may depend on everything.
    pub(super) lost: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests print it"))]
    pub(super) rounds: u32,
}

/// A place at which a tool may be called that is not among the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) code: Code,
    pub(super) at: u32,
    pub(super) about: About,
}

/// What cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// A name that is not known.
    Name,
    /// Something that leads to tools, and what is done with it.
    Value(Ref, How),
    /// What `mcp` or the engine offers is changed.
    Change,
}

/// How what leads to tools gets to where it cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Passed,
    Kept,
    Copied,
    Iterated,
    Awaited,
    MadeText,
    Returned,
    /// It is called, or a part of it is.
    Called,
}

/// What a loop hands to its next turn.
#[derive(Default)]
struct LoopState {
    cells: HashMap<CellId, Value>,
    deps: Deps,
    may: bool,
}

/// Names that the solver itself uses.
struct Known {
    elem: NameId,
    /// What was written under a name that is not known, where items are kept apart.
    any: NameId,
    keys: NameId,
    proto: NameId,
    length: NameId,
    prototype: NameId,
    value: NameId,
    fails: NameId,
    ends: NameId,
    target: NameId,
    this: NameId,
    sent: NameId,
    fields: NameId,
    constructor: NameId,
    /// The order in which the properties of an object were added.
    order: NameId,
    /// What a generator is thrown.
    raised: NameId,
    /// What decides when a promise is settled, and where it is.
    when: NameId,
    settles: NameId,
    /// Whether a promise is settled, and what decides whether it ever is.
    done: NameId,
    comes: NameId,
    /// Which parts of its target an iterator gives.
    which: NameId,
    /// An iterator that gives promises.
    later: NameId,
    /// What a promise fails with.
    error: NameId,
    /// A method of the engine of which it is not known which.
    method: NameId,
    length_text: NameId,
    proto_text: NameId,
}

pub(super) struct Solver<'a> {
    core: &'a Core,
    /// The rule that a test makes it forget.
    forgotten: Option<Rule>,
    limits: &'a Limits,
    dom: Domain,
    heap: Heap,
    known: Known,

    // What is learned over the rounds; it only grows.
    contexts: Vec<Context>,
    context_ids: Contexts,
    loops: HashMap<(u32, u32), LoopState>,
    tool_ids: NamedTools,
    sites: HashMap<(u32, ToolNumber), SiteId>,
    escaped: Escaped,
    functions: Functions,
    promises: Promises,
    generators: Generators,
    engine: Engine,
    time: Time,
    misuses: Misuses,
    chosen: Chosen,
    changed: bool,
    round: u32,
    work: usize,
    entangled: bool,
    /// Why the program is refused.
    refused: Option<Finding>,

    // The round in progress.
    trail: Trail,
    levels: Vec<Level>,
    turns: Vec<Turn>,
    next_level: u32,
    regions: Vec<RegionState>,
    handlers: Vec<Handler>,
    recorders: Vec<HashMap<CellId, Value>>,
    acts: Vec<Act<'a>>,
    /// `new.target` of the function that is called next.
    target: Value,
    threads: Threads,
    tries: Tries,
    /// How many objects were made in this round.
    made: u32,
    tasks: Tasks,
    nodes: Nodes,
    gaps: Vec<Gap>,
    /// How the call that is followed is written.
    written: Written<'a>,
    /// The tools that the program names.
    named_tools: HashSet<(NameId, NameId)>,
    /// The bytes of literals that may still be shown.
    literals: usize,
    /// The place of the instruction that is followed, and its number, eightfold.
    at: u32,
    end: u32,
    place: u32,
}

/// What a call is given.
#[derive(Debug, Clone, Default)]
struct Args {
    list: SmallVec<[Value; 4]>,
    /// What may follow, any number of times.
    rest: Option<Value>,
}

/// Follows a program.
///
/// # Errors
/// A program that calls more tools than `limits` has room for.
pub(super) fn solve(core: &Core, limits: &Limits) -> Result<Solved, Finding> {
    let mut solver = Solver::new(core, limits);
    while solver.round < ROUNDS && !solver.entangled {
        solver.begin_round();
        solver.walk_main();
        if let Some(finding) = solver.refused.take() {
            return Err(finding);
        }
        let is_done = !solver.changed && !solver.doubt_promises() && !solver.doubt_functions();
        if is_done && !solver.doubt_ends() {
            break;
        }
        solver.round += 1;
    }
    let entangled = solver.entangled || solver.round >= ROUNDS;
    let misuses = solver.found_misuses(entangled);
    let gaps = solver.all_gaps();
    let Solver { dom, tool_ids, named_tools, .. } = &mut solver;
    let named = named_tools.iter().filter_map(|(namespace, action)| {
        let number = tool_ids.number(&dom.names, *namespace, *action).ok()?;
        tool_ids.get(number).cloned()
    });
    let tools = named.collect();
    Ok(Solved {
        misuses,
        tools,
        tasks: solver.tasks.found,
        nodes: solver.nodes.found,
        domain: solver.dom,
        gaps,
        entangled,
        lost: entangled || solver.engine.lost,
        rounds: solver.round + 1,
    })
}

impl<'a> Solver<'a> {
    /// Notes that a tool may be called that is not among the tasks.
    fn gap(&mut self, code: Code, about: About) {
        let gap = Gap { code, at: self.at, about };
        let gaps = if self.escaped.fills { &mut self.escaped.gaps } else { &mut self.gaps };
        if gaps.len() < GAPS && !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }

    /// Notes that what leads to tools gets to where it cannot be followed.
    fn reaches(&mut self, one: Ref, how: How) {
        self.gap(Code::DynamicEscape, About::Value(one, how));
    }

    /// Returns all gaps; of what fills something that is handed over elsewhere, those alone of which
    /// nothing is told there.
    fn all_gaps(&mut self) -> Vec<Gap> {
        let mut gaps = std::mem::take(&mut self.gaps);
        let told = gaps.clone();
        let is_told = |gap: &Gap| {
            told.iter().any(|one| match (one.about, gap.about) {
                (About::Value(one, _), About::Value(other, _)) => one == other,
                (one, other) => one == other,
            })
        };
        gaps.extend(self.escaped.gaps.iter().filter(|gap| !is_told(gap)));
        gaps
    }

    fn function(&self, id: FuncId) -> &'a super::core::Function {
        let core: &'a Core = self.core;
        &core.functions[id as usize]
    }
}
