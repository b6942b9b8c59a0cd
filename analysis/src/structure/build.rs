//! Builds the structure by running the program on what is known of its values.
//!
//! The walk goes through the tree in evaluation order and follows values instead
//! of computing them: which tools a value may be, which tasks' results flow into
//! it, which part of them it is. Within one function a variable has the value of
//! its last write; read from another function, or when another function writes
//! it, it may have any value ever written to it. Since such writes can stand
//! anywhere, the walk is repeated until nothing new is learned.
//!
//! The rule that makes the result sound: a value that leads to tools is either
//! kept track of, or it *escapes*, and then the program is dynamic. Everything
//! that is not understood lets its operands escape.

mod alias;
mod attempt;
mod body;
mod builtin;
mod call;
mod calm;
mod changed;
mod class;
mod context;
mod control;
mod deps;
mod describe;
mod engine;
mod escape;
mod expr;
#[cfg(test)]
mod fault;
mod fed;
mod feed;
mod few;
mod finish;
mod form;
mod function;
mod input;
mod join;
mod leave;
mod list;
mod member;
mod object;
mod operator;
mod path;
mod pattern;
mod promise;
mod quiet;
mod repeat;
mod rows;
mod scalar;
mod scope;
mod stand_in;
mod stmt;
mod task;
mod through;
mod value;

use std::collections::BTreeSet;

use foldhash::{HashMap, HashSet};
use protocol::ToolId;
use swc_atoms::Atom;

use self::class::{ClassSide, Member};
use self::control::{Chain, Control};
pub(super) use self::expr::bare;
use self::feed::Feeds;
pub(super) use self::finish::excerpt;
use self::finish::{RoundNode, RoundTask};
use self::function::{Func, FuncBody, FuncKey};
use self::input::InputFields;
use self::join::Lost;
use self::leave::Jumps;
use self::scope::{Binding, BindingId, Scope, ScopeId};
use self::value::{Cap, Deps, Form, FuncId, SiteId, TableId, Value};
use super::StaticStructure;
use crate::Limits;
use crate::diagnostic::{Code, Finding};
use crate::parse::Parsed;

/// What the walk found.
pub(crate) struct Built {
    pub(crate) tools: BTreeSet<ToolId>,
    pub(crate) dynamic: bool,
    pub(crate) structure: StaticStructure,
    pub(crate) findings: Vec<Finding>,
    /// The places of the tasks, in their order.
    pub(crate) sites: Vec<u32>,
}

/// The most rounds; ordinary programs need two to four.
const ROUND_LIMIT: u32 = 24;

/// The function that the program is the body of.
const MAIN: FuncId = 0;

/// Builds the structure of a parsed program by a walk over its tree alone.
pub(crate) fn build_by_tree(
    parsed: &Parsed,
    source: &str,
    limits: &Limits,
) -> Result<Built, Finding> {
    let Some(main) = parsed.function() else {
        return Err(Finding::new(Code::ParseError, 0, "the program is not the body of a function"));
    };
    let mut builder = Builder::new(source, limits);
    builder.scopes.push(Scope::default());
    builder.add_func((MAIN, 0, false), FuncBody::Function(main), MAIN);
    for round in 0.. {
        builder.begin_round();
        builder.walk_main();
        if let Some(finding) = builder.fatal.take() {
            return Err(finding);
        }
        if !builder.changed {
            builder.give_up_on_unseen();
        }
        if !builder.changed {
            break;
        }
        if round == ROUND_LIMIT {
            builder.dynamic = true;
            let message = "the values of this program are too entangled to be followed; call tools directly, from fewer functions";
            builder.findings.insert(Finding::new(Code::DynamicEscape, 0, message));
            break;
        }
    }
    builder.doubt_promises();
    builder.finish()
}

struct Builder<'a> {
    source: &'a str,
    limits: &'a Limits,

    /// `mcp`, of which most programs speak often.
    mcp: Value,

    // What is learned over the rounds; it only grows.
    scopes: Vec<Scope<'a>>,
    scope_ids: HashMap<(FuncId, u32, u8), ScopeId>,
    bindings: Vec<Binding>,
    funcs: Vec<Func<'a>>,
    /// How many of them are copies.
    copies: usize,
    func_ids: HashMap<FuncKey, FuncId>,
    sites: HashMap<(u32, Atom, Atom), SiteId>,
    /// What a loop writes, for those who read it earlier in the same loop.
    loop_writes: HashMap<(FuncId, u32), HashMap<BindingId, Value>>,
    /// What ends a loop, for those who stand earlier in it.
    loop_exits: HashMap<(FuncId, u32), Deps>,
    /// The tools that the constructor of a class puts into its objects.
    class_fields: HashMap<u32, Vec<(Atom, Value)>>,
    /// The class in whose body code stands, by where the code begins, and whether it belongs to the class itself.
    class_code: HashMap<u32, ClassSide>,
    /// What the methods and getters of a class are.
    class_members: HashMap<(ClassSide, Atom), Member>,
    /// The functions that `new Promise(…)` is given, by where they begin.
    executors: HashSet<u32>,
    /// The literals whose parts may be changed, or be handed to whoever may do that.
    stirred: HashSet<TableId>,
    /// The contents that were stirred with all that is in them, in this round.
    stirred_contents: HashMap<usize, Form>,
    /// The setters of a name; whoever assigns to a field of that name may call them.
    setters: HashMap<Atom, Vec<FuncId>>,
    /// The fields of `args` that are asked for.
    input_fields: InputFields,
    /// What is called, and looks at the arguments that are followed next.
    taker: Option<promise::Taker>,
    /// Whether the program assigns to `args`.
    args_written: bool,
    /// Whether the program changes parts of objects or arrays.
    mutates: bool,
    changed: bool,

    // The round in progress.
    env: Vec<Option<Value>>,
    /// What governs the place where each variable is declared.
    declared: Vec<Chain>,
    /// What each write replaced, for taking back one branch before the next.
    trail: Vec<(BindingId, Option<Value>)>,
    /// Every write within each open region that can be left in its middle.
    regions: Vec<HashMap<BindingId, Value>>,
    scope: ScopeId,
    func: FuncId,
    /// The function that was made for one of its calls and whose code is walked.
    context: FuncId,
    control: Control,
    jumps: Jumps,
    feeds: Feeds,
    nodes: Vec<RoundNode>,
    tasks: Vec<RoundTask>,
    parent: Option<u32>,
    branch: Option<Atom>,
    /// Where the walk is, for findings about values that have no place.
    at: u32,
    tools: BTreeSet<ToolId>,
    findings: BTreeSet<Finding>,
    dynamic: bool,
    fatal: Option<Finding>,
}

impl<'a> Builder<'a> {
    fn new(source: &'a str, limits: &'a Limits) -> Self {
        Self {
            source,
            limits,
            mcp: Value::cap(Cap::Mcp),
            scopes: Vec::new(),
            scope_ids: HashMap::default(),
            bindings: Vec::new(),
            funcs: Vec::new(),
            copies: 0,
            func_ids: HashMap::default(),
            sites: HashMap::default(),
            loop_writes: HashMap::default(),
            loop_exits: HashMap::default(),
            class_fields: HashMap::default(),
            class_code: HashMap::default(),
            class_members: HashMap::default(),
            executors: HashSet::default(),
            stirred: HashSet::default(),
            stirred_contents: HashMap::default(),
            setters: HashMap::default(),
            input_fields: InputFields::default(),
            taker: None,
            args_written: false,
            mutates: false,
            changed: false,
            env: Vec::new(),
            declared: Vec::new(),
            trail: Vec::new(),
            regions: Vec::new(),
            scope: 0,
            func: MAIN,
            context: MAIN,
            control: Control::default(),
            jumps: Jumps::default(),
            feeds: Feeds::default(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            parent: None,
            branch: None,
            at: 0,
            tools: BTreeSet::new(),
            findings: BTreeSet::new(),
            dynamic: false,
            fatal: None,
        }
    }

    fn begin_round(&mut self) {
        self.changed = false;
        self.env.iter_mut().for_each(|value| *value = None);
        self.declared.iter_mut().for_each(|place| *place = Chain::default());
        self.trail.clear();
        self.regions.clear();
        self.scope = 0;
        self.func = MAIN;
        self.context = MAIN;
        self.control = Control::default();
        self.jumps = Jumps::default();
        self.stirred_contents.clear();
        self.feeds.fed.clear();
        self.feeds.flows = 0;
        self.nodes.clear();
        self.tasks.clear();
        self.parent = None;
        self.branch = None;
        self.findings.clear();
        self.dynamic = false;
        self.tools.clear();
        for func in &mut self.funcs {
            func.begin_round();
        }
    }

    /// Stops the walk; the program is refused.
    fn refuse(&mut self, code: Code, message: &str) {
        let at = self.at;
        self.fatal.get_or_insert_with(|| Finding::new(code, at, message));
    }

    /// Notes something that makes the program dynamic.
    fn dynamic(&mut self, code: Code, message: String) {
        self.dynamic = true;
        self.findings.insert(Finding::new(code, self.at, message));
    }

    /// Returns a value that may be either of two.
    fn join(&mut self, left: &Value, right: &Value) -> Value {
        let mut lost = Lost::default();
        let joined = left.join(right, &mut lost);
        for part in lost.loaded {
            self.escape(&part, "is kept in a value that may be one of several");
        }
        self.stir_all(lost.tables);
        joined
    }

    /// Returns a value that may be either of two, of which nothing else is kept.
    fn either(&mut self, left: Value, right: Value) -> Value {
        if left == Value::never() { right } else { self.join(&left, &right) }
    }

    /// Gives up on the parts of a value that has become too large to follow.
    fn bounded(&mut self, value: Value) -> Value {
        if !value.is_too_large() {
            return value;
        }
        self.escape(&value, "is kept in a very large value");
        self.stir(&value);
        Value::computed(value.all_deps())
    }
}
