//! Fills the holes of templates.
//!
//! A mark is `@` and a letter, often with the number of a slot that remembers what the hole was filled with:
//!
//! | mark | filled with |
//! |---|---|
//! | `@x` `@d` | an expression that calls tools and is truthy; one that is never reached |
//! | `@t1` `@u1` | a tool that is called, one that is not (yet) |
//! | `@n1` `@m1` | a namespace; `mcp` |
//! | `@s1` `@e1` | the name of a namespace; of an action in the namespace of the slot |
//! | `@v1` `@k1` | an expression whose value is such an action's name; with `@k1`, the tool is called |
//! | `@q1` | an expression whose value is a namespace's name |
//! | `@w` `@p` `@r` `@i` | the requested name, its halves, and another name, quoted |
//! | `@~u1` `@^1` | fills `@u1` without writing it; writes it here |
//! | `@!1` | nothing; the slot's tools are called here |
//! | `@T12$1` `@N1$1` `@M$1` | nothing; from here on, the variable is the slots' tools, namespace, or `mcp` |
//! | `@o` `@y` `@z` | an object; a truthy expression; a falsy one |
//! | `@S` `@G` `@D` `@B` `@L` `@C` `@R` `@U` `@W` | statements: any; without an early exit; never reached; of a function; of a loop; of a loop without `break`; of a `try` that may throw; of one that must not; of a `case` |
//! | `@[a` … `@]` | nothing; encloses an async function; `s` a plain one, `g` a generator, `h` an async generator, `d` unreachable code, `f` a `finally`, `l` the statement with the label `$9`, `.` a scope |
//! | `~await` `~yield` | the keyword; the template is used only where it is valid |
//! | `$1` | a unique name |

mod exits;
mod holes;

use super::program::{Part, Piece, Program, Tool};
use super::random::Random;
use super::{Construct, Grade, calls, changes, statements, stored, values};

/// The kind of the function that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Async,
    Generator,
    AsyncGenerator,
}

/// The code that encloses the current place.
#[derive(Clone, PartialEq, Eq)]
enum Frame {
    Function(Kind),
    /// The statements of a function, which `return` leaves.
    Body,
    /// Code that nothing may leave early.
    Guard,
    Loop {
        breaks: bool,
    },
    Switch,
    Label(String),
    /// A `try` block whose `catch` expects an error.
    Try,
    /// A `try` block that must not throw, because its `catch` expects no error.
    NoThrow,
    Finally,
    Scope,
}

/// A frame, with the state to restore when it is closed.
struct OpenFrame {
    frame: Frame,
    live: bool,
    exit: Option<usize>,
    /// The number of variables in scope.
    in_scope: usize,
}

/// The value of a variable.
#[derive(Clone)]
enum Known {
    Tools(Vec<Tool>),
    Space(String),
    Mcp,
}

/// What a hole was filled with.
#[derive(Clone, Default)]
pub(super) struct Slot {
    tools: Vec<Tool>,
    space: String,
    /// The text of a hole that was filled without writing it.
    unwritten: Vec<Piece>,
}

pub(super) struct Writer {
    random: Random,
    /// Whether constructs that may be dynamic are used.
    allows_dynamic: bool,
    /// How many more templates are chosen at random; after that, only the simplest are used.
    budget: i32,
    /// The depth of templates in templates.
    depth: u32,
    /// The number of unique names.
    names: u32,
    open: Vec<OpenFrame>,
    /// Whether every run reaches the current place.
    live: bool,
    /// The index in `open` of the frame that the code before has left. What follows is unreachable up to its end.
    exit: Option<usize>,
    /// The variables in scope.
    in_scope: Vec<(String, Known)>,
    /// The parts that are being written, the innermost last.
    pub(super) parts: Vec<Part>,
    /// The requested value of a name expression.
    requested_name: String,
    /// The construct to use the next time its table is chosen from.
    pub(super) forced: Option<&'static str>,
    /// Whether the next namespace must be a single one. Of several namespaces and several names, the analysis does not
    /// know which belong together.
    single_namespace: bool,
    /// Whether the program begins with variables that are reassigned constantly.
    has_state: bool,
}

impl Writer {
    pub(super) fn new(random: Random, allows_dynamic: bool, budget: i32) -> Self {
        let mut writer = Self {
            random,
            allows_dynamic,
            budget,
            depth: 0,
            names: 0,
            open: Vec::new(),
            live: true,
            exit: None,
            in_scope: Vec::new(),
            parts: Vec::new(),
            requested_name: String::new(),
            forced: None,
            has_state: false,
            single_namespace: false,
        };
        writer.push(Frame::Function(Kind::Async));
        writer.push(Frame::Body);
        writer
    }
}

/// Generates the program of a seed.
pub(super) fn write(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let resolvable = random.chance(90);
    if random.chance(20) {
        return stored::write(seed, random);
    }
    let budget = 10 + random.below(60) as i32;
    let mut writer = Writer::new(random, !resolvable, budget);
    let mut body = Vec::new();
    if writer.random.chance(35) {
        writer.has_state = true;
        body.push(writer.state());
    }
    while body.is_empty() || writer.budget > 0 {
        body.push(writer.statement());
    }
    Program { seed, resolvable, body }
}

const SPACES: &[&str] = &["fs", "git", "web", "db", "mail", "shell", "json", "math"];
const ACTIONS: &[&str] = &["read", "write", "list_all", "find", "send", "run", "add", "count"];
const OBJECTS: &[&str] = &["{}", "{}", "{ a: 1 }", "{ v: args.n, w: [args.text] }", "{ ...args }"];
const TRUE: &[&str] = &["args.on", "args.n > 1", "args.list.length === 2", "args[\"on\"]", "true"];
const FALSE: &[&str] = &["args.off", "args.n > 5", "!args.on", "args.missing", "args.n === 0"];

impl Writer {
    fn text(&mut self, text: &str) {
        let part = self.parts.last_mut().expect("text is written into a part");
        match part.pieces.last_mut() {
            Some(Piece::Text(known)) => known.push_str(text),
            _ => part.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn pieces(&mut self, pieces: Vec<Piece>) {
        self.parts.last_mut().expect("pieces are written into a part").pieces.extend(pieces);
    }

    fn number(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn push(&mut self, frame: Frame) {
        let in_scope = self.in_scope.len();
        self.open.push(OpenFrame { frame, live: self.live, exit: self.exit, in_scope });
    }

    fn pop(&mut self) {
        let closed = self.open.pop().expect("each `]` closes a `[`");
        self.in_scope.truncate(closed.in_scope);
        // A `finally` block runs on every exit. After it, the code is as reachable as before it.
        if closed.frame == Frame::Finally {
            (self.live, self.exit) = (closed.live, closed.exit);
        } else if self.exit.is_none() || self.exit == Some(self.open.len()) {
            (self.live, self.exit) = (closed.live, None);
        }
    }

    fn kind(&self) -> Kind {
        let kinds = self.open.iter().rev().filter_map(|open| match open.frame {
            Frame::Function(kind) => Some(kind),
            _ => None,
        });
        kinds.into_iter().next().unwrap_or(Kind::Async)
    }

    fn may_use(&self, construct: &Construct) -> bool {
        let kind = self.kind();
        let awaits = matches!(kind, Kind::Async | Kind::AsyncGenerator);
        let yields = matches!(kind, Kind::Generator | Kind::AsyncGenerator);
        let several = construct.text.contains("@n1") || construct.text.contains("@i");
        (self.allows_dynamic || construct.grade == Grade::Plain)
            && !(self.single_namespace && several)
            && (awaits || !construct.text.contains("~await"))
            && (yields || !construct.text.contains("~yield"))
    }

    /// Chooses a template. The first of a table is the simplest.
    fn choose(&mut self, table: &'static [Construct]) -> &'static Construct {
        if let Some(forced) =
            self.forced.take_if(|forced| table.iter().any(|one| one.name == *forced))
        {
            return table.iter().find(|one| one.name == forced).unwrap_or(&table[0]);
        }
        // Every call needs a value, so most values are the simplest, and they are not charged.
        let is_value = values::are(table);
        self.budget -= i32::from(!is_value);
        if self.budget <= 0 || self.depth > 14 || (is_value && self.random.chance(65)) {
            return &table[0];
        }
        for _ in 0..20 {
            let construct = self.random.pick(table);
            // Constructs that may be dynamic are less frequent.
            let skip = construct.grade != Grade::Plain && self.random.chance(50);
            if self.may_use(construct) && !skip {
                return construct;
            }
        }
        &table[0]
    }

    /// Writes a construct, and returns its slot without a number.
    fn write_construct(&mut self, construct: &'static Construct) -> Slot {
        self.parts.last_mut().expect("a part is open").constructs.push(construct.name);
        self.depth += 1;
        let slots = self.expand(construct.text);
        self.depth -= 1;
        slots.into_iter().next().unwrap_or_default()
    }

    /// Writes the variables that are reassigned constantly.
    fn state(&mut self) -> Part {
        self.parts.push(Part::default());
        let _ = self.expand(changes::STATE);
        self.text("\n");
        self.parts.pop().expect("the part was pushed above")
    }

    fn statement(&mut self) -> Part {
        self.parts.push(Part::default());
        if !(self.random.chance(8) && self.exit_early()) {
            let changes = self.has_state && self.random.chance(35);
            let table = if changes { changes::CHANGES } else { statements::STATEMENTS };
            let construct = self.choose(table);
            let _ = self.write_construct(construct);
        }
        self.text("\n");
        self.parts.pop().expect("the part was pushed above")
    }

    /// Writes statements within frames; `live` is false if no run reaches them.
    fn block(&mut self, frames: &[Frame], live: bool) {
        let before = self.live;
        let exit = self.exit;
        if !live {
            self.live = false;
        }
        for frame in frames {
            self.push(frame.clone());
        }
        let count = if self.budget <= 0 { 1 } else { 1 + self.random.below(3) };
        let parts: Vec<Part> = (0..count).map(|_| self.statement()).collect();
        self.pieces(vec![Piece::Text("\n".into()), Piece::Parts(parts)]);
        for _ in frames {
            self.pop();
        }
        if !live {
            (self.live, self.exit) = (before, exit);
        }
    }

    /// Notes that tools are called here.
    fn called(&mut self, tools: &[Tool]) {
        if self.live {
            let part = self.parts.last_mut().expect("a part is open");
            part.tools.extend(tools.iter().cloned());
        }
    }

    /// Writes an expression that calls tools.
    fn call(&mut self, live: bool) {
        self.parts.push(Part { replacement: "true", ..Part::default() });
        let before = self.live;
        self.live &= live;
        let construct = self.choose(calls::CALLS);
        let _ = self.write_construct(construct);
        self.live = before;
        let part = self.parts.pop().expect("the part was pushed above");
        self.pieces(vec![Piece::Parts(vec![part])]);
    }

    /// Writes an expression whose value is a tool, and returns the tools that it may be.
    fn tool(&mut self) -> Vec<Tool> {
        let known = self.in_scope.iter().filter_map(|(name, known)| match known {
            Known::Tools(tools) => Some((name.clone(), tools.clone())),
            _ => None,
        });
        let known: Vec<_> = known.collect();
        if !known.is_empty() && self.random.chance(35) {
            let (name, tools) = self.random.pick(&known).clone();
            self.text(&name);
            return tools;
        }
        let construct = self.choose(values::TOOLS);
        self.write_construct(construct).tools
    }

    /// Writes an expression whose value is a namespace, and returns its name.
    fn space(&mut self) -> String {
        let known = self.in_scope.iter().filter_map(|(name, known)| match known {
            Known::Space(space) => Some((name.clone(), space.clone())),
            _ => None,
        });
        let known: Vec<_> = known.collect();
        if !known.is_empty() && !self.single_namespace && self.random.chance(35) {
            let (name, space) = self.random.pick(&known).clone();
            self.text(&name);
            return space;
        }
        let construct = self.choose(values::NAMESPACES);
        self.write_construct(construct).space
    }

    /// Writes an expression whose value is `mcp`.
    fn mcp(&mut self) {
        let known = self.in_scope.iter().filter(|(_, known)| matches!(known, Known::Mcp));
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        if !known.is_empty() && self.random.chance(35) {
            let name = self.random.pick(&known).clone();
            self.text(&name);
            return;
        }
        let construct = self.choose(values::MCP);
        let _ = self.write_construct(construct);
    }

    /// Writes an expression whose value is a name.
    fn name(&mut self, name: &str) {
        let before = std::mem::replace(&mut self.requested_name, name.to_owned());
        let construct = self.choose(values::NAMES);
        let _ = self.write_construct(construct);
        self.requested_name = before;
    }

    /// Returns a unique name of an action.
    fn action(&mut self) -> String {
        format!("{}{}", self.random.pick(ACTIONS), self.number())
    }

    fn quoted(&mut self, text: &str) {
        self.text(&format!("\"{text}\""));
    }
}
