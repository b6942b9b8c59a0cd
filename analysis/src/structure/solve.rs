//! The fixed-point solver: an abstract interpretation of a program in the core language.
//!
//! The walk follows the instructions in execution order, into each function at each of its calls, and computes
//! an abstract value ([`Value`]: a set of sources and a shape) for every variable and property. One round walks
//! the whole program once. What a later program point passes to an earlier one (the next iteration of a loop, a
//! recursive call, concurrent code) is learned in one round and used in the next. Rounds repeat until one
//! learns nothing new. Learned facts only grow.
//!
//! The result is sound because of its default: whatever is not followed is unknown code. Unknown code depends
//! on everything that it can reach, may change all of it, may call every function in it, and may fail.
//!
//! Terms that the files of this folder use:
//!
//! - *Sources* (`Deps`): the tool results and parts of `args` that flow into something.
//! - *Label*: the sources that decide whether the current program point is reached (the program-counter label).
//!   It is a stack of [`Level`]s, one for each construct around the point.
//! - *Cell*: a variable or a property. Its `now` is the abstract value at the current program point. Its `ever`
//!   joins all writes of all rounds, for code whose order relative to a write is not known. Its `concurrent`
//!   joins the writes of concurrent code.
//! - *Turn*: one iteration of a loop.
//! - *Context*: a function, together with the call by which it was reached. An *activation* is a call that is
//!   being walked.
//! - *Object*: an allocation site in a context. It is *unique* if the site runs at most once. It is *kept* if
//!   something may hold it that outlives the turn or the call that made it. It has *escaped* if unknown code
//!   may hold it.
//! - *Concurrent* code runs while the code after it goes on: an async function that is not awaited, a timer, a
//!   callback of `then`. Each is a *thread*.
//! - *Pool*: everything that has escaped, joined into one value.

mod above;
mod attempt;
mod begin;
mod branch;
mod builtin;
mod call;
mod callback;
mod chosen;
mod compute;
mod construct;
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
use self::frame::{Activation, Context, Contexts};
use self::generator::Generators;
use self::hold::Turn;
use self::level::{Handler, Level};
use self::misuse::{CallText, Misuses};
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

/// The maximum number of rounds. Ordinary programs need two to five; nested loops may need one for each loop.
const ROUNDS: u32 = 300;
/// Widening: from this round on, a constant that still changes becomes `Prim::Any`.
const WIDEN: u32 = 6;
/// The maximum number of instructions walked over all rounds, with a function's body counted at each of its
/// calls.
const WORK: usize = 3_000_000;

/// The maximum number of calls that are walked within each other.
const NESTED_LIMIT: u32 = 400;

/// The maximum number of gaps that are reported.
const GAPS: usize = 100;
/// The result of the analysis.
pub(super) struct Solved {
    /// The sets, shapes and names to which the other fields refer by number.
    pub(super) domain: Domain,
    /// The calls of tools, each once per source position and tool.
    pub(super) tasks: Vec<FoundTask>,
    /// The choices, loops and forks around these calls.
    pub(super) nodes: Vec<FoundNode>,
    /// All tools that the program names, whether or not it calls them.
    pub(super) tools: BTreeSet<ToolId>,
    /// The places where a tool may be called that is not in `tasks`. A program with a gap has an incomplete
    /// plan.
    pub(super) gaps: Vec<Gap>,
    /// Promises that are used like the values they give, and names of tools that cannot exist.
    pub(super) misuses: Vec<Misuse>,
    /// Whether a limit (rounds, contexts or instructions) stopped the analysis before the fixed point.
    pub(super) entangled: bool,
    /// Whether everything may depend on everything: a limit was hit, or the program replaces a part of the
    /// engine.
    pub(super) lost: bool,
    /// The number of rounds that were needed.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests print it"))]
    pub(super) rounds: u32,
}

/// A place at which a tool may be called that is not among the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// The code of the diagnostic.
    pub(super) code: Code,
    /// Its position in the source.
    pub(super) at: u32,
    /// What could not be followed there.
    pub(super) about: About,
}

/// The reason for a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// A property or variable name that is only known when the program runs.
    Name,
    /// `mcp`, a namespace or a tool reaches code that is not followed.
    Value(Ref, How),
    /// The program changes `mcp` or a built-in object of the engine.
    Change,
}

/// How `mcp`, a namespace or a tool gets to where it is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As an argument of unknown code.
    Passed,
    /// By a write to something that unknown code holds.
    Kept,
    /// By a spread into an object.
    Copied,
    /// It is iterated.
    Iterated,
    /// It is awaited.
    Awaited,
    /// It is converted to a string.
    MadeText,
    /// By `return` or a callback's result.
    Returned,
    /// It is called although it is not a tool, or a property of a tool is used.
    Called,
}

/// What the turns of a loop pass to the next turn (the loop's entry state), learned over the rounds.
#[derive(Default)]
struct LoopState {
    /// The values that cells may have at the start of a later turn.
    cells: HashMap<CellId, Value>,
    /// What decides whether there is a next turn.
    deps: Deps,
}

/// The names of properties that the solver itself uses. Most of them begin with `%`, which no name of a program
/// does (`domain::kept` escapes it): they are internal slots, kept in the same table as the object's
/// properties.
struct Known {
    /// What an object holds under no particular name: the items of a list, the values of a map or a set, what a
    /// generator yields, what was written under an unknown name, the promises of `Promise.all`, the bound
    /// arguments.
    elem: NameId,
    /// What was written under an unknown name to an object whose `elem` has the items alone: a list, map, set,
    /// promise or iterator.
    any: NameId,
    /// The keys of a map.
    keys: NameId,
    /// The prototype, `[[Prototype]]`.
    proto: NameId,
    /// The number of items: a constant, or computed with the sources that decide how many there are.
    length: NameId,
    /// The property `prototype` of a function.
    prototype: NameId,
    /// What a promise is fulfilled with; also the accumulator of a call of `reduce`.
    value: NameId,
    /// Its sources decide whether a promise is rejected, or whether a generator throws.
    fails: NameId,
    /// Its sources decide whether an async function throws by `throw`. Such a failure ends the program if
    /// nothing handles it.
    ends: NameId,
    /// The function that a bound function calls, or what an iterator iterates. On a promise it is a mark: the
    /// first of several promises settles it (`race`, `any`).
    target: NameId,
    /// The `this` of a bound function.
    this: NameId,
    /// What `next(value)` passes into a generator.
    sent: NameId,
    /// Never set; copies of an object skip it.
    fields: NameId,
    /// The property `constructor` of a prototype.
    constructor: NameId,
    /// The order in which the properties of an object were added: a constant (a hash of their names in order)
    /// while the order is known.
    order: NameId,
    /// What `throw(value)` raises inside a generator.
    raised: NameId,
    /// Its sources decide when a promise is settled.
    when: NameId,
    /// The instruction that settles a promise. If it is no constant, several compete, and its sources decide
    /// which is first.
    settles: NameId,
    /// Whether a promise with resolvers is settled: `true` or `false`, with the sources that decide it.
    done: NameId,
    /// Its sources decide whether a promise is ever settled.
    settlement: NameId,
    /// The [`iterate::Which`] of a built-in iterator, as a number.
    which: NameId,
    /// A mark: the generator is async, so that `next` gives promises.
    later: NameId,
    /// The reason with which a promise is rejected.
    error: NameId,
    /// The name of an engine's method whose real name is not known.
    method: NameId,
    /// `length`, as programs write it. The number of items is in `length` above.
    length_text: NameId,
    /// `__proto__`, as programs write it.
    proto_text: NameId,
}

/// The state of the analysis.
pub(super) struct Solver<'a> {
    /// The program.
    core: &'a Core,
    /// The rule that a mutation test disables.
    forgotten: Option<Rule>,
    /// The limits on the program.
    limits: &'a Limits,
    /// The interned sets of sources, shapes, names and paths.
    dom: Domain,
    /// The abstract objects and all cells.
    heap: Heap,
    /// The names of the internal slots.
    known: Known,

    // Learned over the rounds; only grows.
    /// The contexts; the first is that of the program itself.
    contexts: Vec<Context>,
    /// The context of each call.
    context_ids: Contexts,
    /// The entry state of each loop, by context and instruction.
    loops: HashMap<(u32, u32), LoopState>,
    /// The tool ids, each parsed once.
    tool_ids: NamedTools,
    /// The calls of tools, by position and tool.
    sites: HashMap<(u32, ToolNumber), SiteId>,
    /// What unknown code holds.
    escaped: Escaped,
    /// Which functions are called, and those that share a context.
    functions: Functions,
    /// Facts about promises that are not in their slots.
    promises: Promises,
    /// Facts about generators that are not in their slots.
    generators: Generators,
    /// Which assumptions about the engine hold.
    engine: Engine,
    /// What decides when the current code runs, and the engine's hidden state.
    time: Time,
    /// The faults found in this round, and facts about promises from earlier rounds.
    misuses: Misuses,
    /// The loops over names of tools.
    chosen: Chosen,
    /// Whether this round has learned something, so that another one is needed.
    changed: bool,
    /// The number of the round.
    round: u32,
    /// The instructions walked so far, over all rounds.
    work: usize,
    /// Whether a limit was hit.
    entangled: bool,
    /// The number of calls around the current one that are being walked.
    nested: u32,
    /// The bound functions that call the current callee directly, the outermost first, with their arguments.
    bound: Vec<(ObjId, Args)>,
    /// Why the program is refused: too many calls of tools.
    refused: Option<Finding>,

    // The state of the round in progress.
    /// The undo log of the cells.
    trail: Trail,
    /// The program-counter label, outermost level first.
    levels: Vec<Level>,
    /// The loop iterations around the current program point.
    turns: Vec<Turn>,
    /// The id of the newest level. Ids grow over a round, so that an id also tells which of two levels began
    /// first.
    next_level: u32,
    /// The regions around the current program point, over all functions that are being walked.
    regions: Vec<RegionState>,
    /// The failure handlers in force, innermost last. If it is empty, a failure ends the program.
    handlers: Vec<Handler>,
    /// For each open `try`: the join of all values that each written cell has had in it. A failure may happen
    /// between any two writes, so this is the state in which the handler starts.
    recorders: Vec<HashMap<CellId, Value>>,
    /// The call stack of the walk.
    activations: Vec<Activation<'a>>,
    /// `new.target` of the function that is called next.
    target: Value,
    /// The concurrent code of this round.
    threads: Threads,
    /// The `try` statements of this round.
    tries: Tries,
    /// How many objects were made in this round, as a time stamp.
    made: u32,
    /// The calls of tools found in this round.
    tasks: Tasks,
    /// The parts of the program around these calls.
    nodes: Nodes,
    /// The gaps found in this round.
    gaps: Vec<Gap>,
    /// How the call that is being walked is written in the source.
    written: CallText<'a>,
    /// The tools that the program names.
    named_tools: HashSet<(NameId, NameId)>,
    /// The bytes of literal arguments that may still be shown.
    literals: usize,
    /// The start of the current instruction in the source.
    at: u32,
    /// The end of the current instruction in the source.
    end: u32,
    /// The current instruction's number times eight. The low three bits tell apart the objects that one
    /// instruction makes; code that handles items one by one also varies the high bits.
    place: u32,
}

/// The arguments of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Args {
    /// The arguments at known positions.
    list: SmallVec<[Value; 4]>,
    /// The join of any number of further arguments, after a spread of unknown length.
    rest: Option<Value>,
}

/// Analyses a program.
///
/// # Errors If the program calls more tools than `limits` permits.
pub(super) fn solve(core: &Core, limits: &Limits) -> Result<Solved, Finding> {
    let mut solver = Solver::new(core, limits);
    while solver.round < ROUNDS && !solver.entangled {
        solver.begin_round();
        solver.walk_main();
        if let Some(finding) = solver.refused.take() {
            return Err(finding);
        }
        // A fixed point is reached optimistically: promises are taken to be awaited, uncalled functions to be
        // dead, and nothing to be cut off by the end of the program. Each `recheck_…` drops one such assumption
        // where the fixed point does not confirm it, and returns whether that needs another round. They run one
        // after the other because each one relies on the facts of those before it being stable.
        let is_done = !solver.changed && !solver.recheck_promises() && !solver.recheck_functions();
        if is_done && !solver.recheck_ends() {
            break;
        }
        solver.round += 1;
    }
    let entangled = solver.entangled || solver.round >= ROUNDS;
    let misuses = solver.found_misuses(entangled);
    let gaps = solver.all_gaps();
    let Solver { dom, tool_ids, named_tools, .. } = &mut solver;
    // A name without a valid tool id was reported as a misuse.
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
    /// Records that a tool may be called here that is not among the tasks.
    fn gap(&mut self, code: Code, about: About) {
        let gap = Gap { code, at: self.at, about };
        let gaps = if self.escaped.fills { &mut self.escaped.gaps } else { &mut self.gaps };
        if gaps.len() < GAPS && !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }

    /// Records a gap: `mcp`, a namespace or a tool gets to where it is not followed.
    fn tool_gap(&mut self, one: Ref, how: How) {
        self.gap(Code::DynamicEscape, About::Value(one, how));
    }

    /// Returns all gaps. A gap found while filling an object that escapes elsewhere is left out if the same
    /// tool is already reported where the object escapes.
    fn all_gaps(&mut self) -> Vec<Gap> {
        let mut gaps = std::mem::take(&mut self.gaps);
        let reported = gaps.clone();
        let is_reported = |gap: &Gap| {
            reported.iter().any(|one| match (one.about, gap.about) {
                (About::Value(one, _), About::Value(other, _)) => one == other,
                (one, other) => one == other,
            })
        };
        gaps.extend(self.escaped.gaps.iter().filter(|gap| !is_reported(gap)));
        gaps
    }

    /// Returns the code of a function.
    fn function(&self, id: FuncId) -> &'a super::core::Function {
        let core: &'a Core = self.core;
        &core.functions[id as usize]
    }
}
