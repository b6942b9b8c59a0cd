//! What a solver has before it walks: at first, and at the beginning of each round.

use super::*;

/// The most bytes that all literal arguments together may have; beyond it they are shown as computed.
const LITERALS: usize = 256 * 1024;

impl<'a> Solver<'a> {
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
            comes: name("%comes"),
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
            pool: Vec::new(),
            pool_deps: NONE,
            partly: 0,
            handed: HashSet::default(),
            filling: HashSet::default(),
            fills: false,
            filled: Vec::new(),
            drives: HashMap::default(),
            caught: HashSet::default(),
            awaited: HashSet::default(),
            stocked: HashSet::default(),
            emptied: HashSet::default(),
            frozen: HashSet::default(),
            changed: false,
            round: 0,
            work: 0,
            entangled: false,
            lost: false,
            refused: None,
            trail: Vec::new(),
            tracking: 0,
            seen: Vec::new(),
            epoch: 0,
            levels: Vec::new(),
            turns: Vec::new(),
            next_level: 0,
            regions: Vec::new(),
            handlers: Vec::new(),
            recorders: Vec::new(),
            acts: Vec::new(),
            target: Value::UNDEFINED,
            beside: 0,
            threads: false,
            running: HashMap::default(),
            made: 0,
            effects: 0,
            when: NONE,
            since: Birth::default(),
            thread: 0,
            hangs: NONE,
            settling: None,
            finals: 0,
            finallies: Vec::new(),
            doomed: 0,
            replays: 0,
            jumps: 0,
            futile: HashSet::default(),
            rethrows: 0,
            throwing: false,
            unseen: Vec::new(),
            roots: HashSet::default(),
            waiting: Vec::new(),
            called: HashSet::default(),
            driven: HashSet::default(),
            inlined: 0,
            tasks: Tasks::default(),
            nodes: Nodes::default(),
            gaps: Vec::new(),
            marked: false,
            misuses: Misuses::default(),
            chosen: Chosen::default(),
            written: Written::Nowhere,
            named_tools: HashSet::default(),
            literals: 0,
            at: 0,
            end: 0,
            place: 0,
            cancels: NONE,
            timers: NONE,
            clock: NONE,
            chance: NONE,
            converts: core.converts,
            traps: false,
            unwaited: HashSet::default(),
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.changed = false;
        self.heap.begin_round();
        self.trail.clear();
        self.tracking = 0;
        self.levels.clear();
        self.turns.clear();
        self.next_level = 0;
        self.regions.clear();
        self.handlers.clear();
        self.recorders.clear();
        self.acts.clear();
        self.target = Value::UNDEFINED;
        self.beside = 0;
        self.threads = false;
        self.running.clear();
        self.when = NONE;
        self.stocked.clear();
        self.partly = 0;
        (self.thread, self.hangs, self.settling) = (0, NONE, None);
        self.finals = 0;
        self.finallies.clear();
        self.doomed = 0;
        self.replays = 0;
        self.rethrows = 0;
        self.inlined = 0;
        self.tasks = Tasks::default();
        self.nodes = Nodes::default();
        self.gaps.clear();
        self.handed.clear();
        self.filling.clear();
        self.filled.clear();
        self.waiting.clear();
        self.named_tools.clear();
        self.literals = LITERALS;
        self.awaited.clear();
        self.unwaited.clear();
        self.misuses.begin_round();
        self.chosen.begin_round();
        self.written = Written::Nowhere;
        self.at = 0;
    }
}
