//! The solver's initial state, and the reset at the beginning of each round.

use super::*;

/// The maximum number of bytes of all literal arguments together; beyond it, arguments are shown as computed.
const LITERALS: usize = 256 * 1024;

/// The length of the undo log of a typical program, for which capacity is reserved at the start.
const TYPICAL_LOG: usize = 256;

impl<'a> Solver<'a> {
    /// Returns a solver that knows nothing about the program yet.
    pub(super) fn new(core: &'a Core, limits: &'a Limits) -> Self {
        let mut dom = Domain::default();
        let mut name = |text: &str| dom.name(&text.into());
        let known = Known {
            elem: name("%elem"),
            any: name("%any"),
            keys: name("%keys"),
            proto: name("%proto"),
            length: name("%length"),
            prototype: name("prototype"),
            value: name("%value"),
            fails: name("%fails"),
            ends: name("%ends"),
            target: name("%target"),
            this: name("%this"),
            sent: name("%sent"),
            fields: name("%fields"),
            constructor: name("constructor"),
            order: name("%order"),
            raised: name("%raised"),
            when: name("%when"),
            settles: name("%settles"),
            done: name("%done"),
            settlement: name("%settlement"),
            which: name("%which"),
            later: name("%later"),
            error: name("%error"),
            method: name("%method"),
            length_text: name("length"),
            proto_text: name("__proto__"),
        };
        Self {
            core,
            forgotten: rule::forgotten(),
            limits,
            dom,
            heap: Heap::default(),
            known,
            contexts: Vec::new(),
            context_ids: Contexts::default(),
            loops: HashMap::default(),
            tool_ids: NamedTools::default(),
            sites: HashMap::default(),
            escaped: Escaped::default(),
            functions: Functions::default(),
            promises: Promises::default(),
            generators: Generators::default(),
            // Some hooks are known from the text alone; the walk may find more.
            engine: Engine { converts: core.converts, hooks: core.hooks, ..Engine::default() },
            time: Time::default(),
            misuses: Misuses::default(),
            chosen: Chosen::default(),
            changed: false,
            round: 0,
            work: 0,
            entangled: false,
            nested: 0,
            bound: Vec::new(),
            refused: None,
            trail: Trail { changes: Vec::with_capacity(TYPICAL_LOG), ..Trail::default() },
            levels: Vec::new(),
            turns: Vec::new(),
            next_level: 0,
            regions: Vec::new(),
            handlers: Vec::new(),
            recorders: Vec::new(),
            activations: Vec::new(),
            target: Value::UNDEFINED,
            threads: Threads::default(),
            tries: Tries::default(),
            made: 0,
            tasks: Tasks::default(),
            nodes: Nodes::default(),
            gaps: Vec::new(),
            written: CallText::Nowhere,
            named_tools: HashSet::default(),
            literals: 0,
            at: 0,
            end: 0,
            place: 0,
        }
    }

    /// Resets the state of a round. What was learned about contexts, loops, cells (`ever`, `concurrent`) and
    /// objects stays.
    pub(super) fn begin_round(&mut self) {
        self.changed = false;
        self.heap.begin_round();
        self.trail.changes.clear();
        self.trail.tracking = 0;
        self.levels.clear();
        self.turns.clear();
        self.next_level = 0;
        self.regions.clear();
        self.handlers.clear();
        self.recorders.clear();
        self.activations.clear();
        self.target = Value::UNDEFINED;
        self.nested = 0;
        self.bound.clear();
        self.escaped.begin_round();
        self.functions.begin_round();
        self.promises.begin_round();
        self.generators.partly = 0;
        self.threads.begin_round();
        self.tries.begin_round();
        // The other fields of `Time` are learned over the rounds.
        self.time.when = NONE;
        self.tasks = Tasks::default();
        self.nodes = Nodes::default();
        self.gaps.clear();
        self.named_tools.clear();
        self.literals = LITERALS;
        self.misuses.begin_round();
        self.chosen.begin_round();
        self.written = CallText::Nowhere;
        self.at = 0;
    }
}
