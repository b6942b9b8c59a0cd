//! Fills the holes of templates.
//!
//! A mark is `@` and a letter, often with the number of the slot that stores its
//! value:
//!
//! | mark | replaced by |
//! |---|---|
//! | `@x` `@d` | an expression that calls tools and is truthy; one that is never reached |
//! | `@t1` `@u1` | a tool that is called, one that is not (yet) |
//! | `@n1` `@m1` | a namespace; `mcp` |
//! | `@s1` `@e1` | the name of a namespace; of an action in the namespace of the slot |
//! | `@v1` `@k1` | an expression for the name of such an action; with `@k1` the tool is called |
//! | `@q1` | an expression for the name of a namespace |
//! | `@w` `@p` `@r` `@i` | the requested name, its halves, and another name, quoted |
//! | `@~u1` `@^1` | nothing, but stores the text of `@u1`; the stored text |
//! | `@!1` | nothing: the slot's tool is called here |
//! | `@T12$1` `@N1$1` `@M$1` | nothing: from here on the variable is the slots' tool, the namespace, or `mcp` |
//! | `@o` `@y` `@z` | an object; a truthy expression; a falsy one |
//! | `@S` `@G` `@D` `@B` `@L` `@C` `@R` `@U` `@W` | statements: any; without an early exit; never reached; of a function; of a loop; of a loop without `break`; of a `try` that may throw; of one that does not; of a `case` |
//! | `@[a` … `@]` | encloses an async function; `s` a plain one, `g` and `h` generators, `d` unreachable code, `f` a `finally`, `l` the statement of the label `$9`, `.` a scope |
//! | `~await` `~yield` | the keyword, where it is allowed; elsewhere the template is not used |
//! | `$1` | a new name |

mod holes;

use super::program::{Part, Piece, Program, Tool};
use super::random::Random;
use super::{Construct, Grade, calls, changes, kept, statements, values};

/// The kind of the current function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Async,
    Generator,
    AsyncGenerator,
}

/// A construct around the current position.
#[derive(Clone, PartialEq, Eq)]
enum Frame {
    Function(Kind),
    /// A function's statements, up to its end.
    Body,
    /// Code without an early exit.
    Guard,
    Loop {
        breaks: bool,
    },
    Switch,
    Label(String),
    /// A block with a `catch` that expects an error.
    Try,
    /// A block that must not throw, because its `catch` expects no error.
    NoThrow,
    Finally,
    Scope,
}

struct Open {
    frame: Frame,
    live: bool,
    exit: Option<usize>,
    known: usize,
}

/// The value of a variable.
#[derive(Clone)]
enum Known {
    Tools(Vec<Tool>),
    Space(String),
    Mcp,
}

/// The value of a hole.
#[derive(Clone, Default)]
pub(super) struct Slot {
    tools: Vec<Tool>,
    space: String,
    aside: Vec<Piece>,
}

pub(super) struct Writer {
    random: Random,
    wild: bool,
    /// The number of templates left until only the simplest are used.
    budget: i32,
    depth: u32,
    names: u32,
    open: Vec<Open>,
    /// Whether every run reaches the current position.
    live: bool,
    /// The frame that an early exit leaves.
    exit: Option<usize>,
    known: Vec<(String, Known)>,
    pub(super) parts: Vec<Part>,
    /// The name that an expression must evaluate to.
    wanted: String,
    /// The construct to use at the next possible place.
    pub(super) forced: Option<&'static str>,
    /// Whether the next namespace must be a single one: the analysis does not follow which of
    /// several namespaces goes with which of several names.
    exact: bool,
    /// Whether the program begins with variables that are reassigned everywhere.
    state: bool,
}

impl Writer {
    pub(super) fn new(random: Random, wild: bool, budget: i32) -> Self {
        let mut writer = Self {
            random,
            wild,
            budget,
            depth: 0,
            names: 0,
            open: Vec::new(),
            live: true,
            exit: None,
            known: Vec::new(),
            parts: Vec::new(),
            wanted: String::new(),
            forced: None,
            state: false,
            exact: false,
        };
        writer.push(Frame::Function(Kind::Async));
        writer.push(Frame::Body);
        writer
    }
}

/// Writes the program of a seed.
pub(super) fn write(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let resolvable = random.percent(90);
    if random.percent(20) {
        return kept::write(seed, random);
    }
    let budget = 10 + random.below(60) as i32;
    let mut writer = Writer::new(random, !resolvable, budget);
    let mut body = Vec::new();
    if writer.random.percent(35) {
        writer.state = true;
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
        let known = self.known.len();
        self.open.push(Open { frame, live: self.live, exit: self.exit, known });
    }

    fn pop(&mut self) {
        let closed = self.open.pop().expect("what is closed was opened");
        self.known.truncate(closed.known);
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
        (self.wild || construct.grade == Grade::Plain)
            && !(self.exact && several)
            && (awaits || !construct.text.contains("~await"))
            && (yields || !construct.text.contains("~yield"))
    }

    /// Chooses a template; the first of a table is the simplest.
    fn choose(&mut self, table: &'static [Construct]) -> &'static Construct {
        if let Some(forced) =
            self.forced.take_if(|forced| table.iter().any(|one| one.name == *forced))
        {
            return table.iter().find(|one| one.name == forced).unwrap_or(&table[0]);
        }
        // Every call has values, so most of them are simple, and they do not use the budget.
        let value = values::are(table);
        self.budget -= i32::from(!value);
        if self.budget <= 0 || self.depth > 14 || (value && self.random.percent(65)) {
            return &table[0];
        }
        for _ in 0..20 {
            let construct = self.random.one(table);
            // Wild constructs are used less often than plain ones.
            let skip = construct.grade != Grade::Plain && self.random.percent(50);
            if self.may_use(construct) && !skip {
                return construct;
            }
        }
        &table[0]
    }

    fn use_up(&mut self, construct: &'static Construct) -> Slot {
        self.parts.last_mut().expect("a part is open").constructs.push(construct.name);
        self.depth += 1;
        let slots = self.expand(construct.text);
        self.depth -= 1;
        slots.into_iter().next().unwrap_or_default()
    }

    fn state(&mut self) -> Part {
        self.parts.push(Part::default());
        let _ = self.expand(changes::STATE);
        self.text("\n");
        self.parts.pop().expect("the part was pushed above")
    }

    fn statement(&mut self) -> Part {
        self.parts.push(Part::default());
        if !(self.random.percent(8) && self.leave()) {
            let changes = self.state && self.random.percent(35);
            let table = if changes { changes::CHANGES } else { statements::STATEMENTS };
            let construct = self.choose(table);
            let _ = self.use_up(construct);
        }
        self.text("\n");
        self.parts.pop().expect("the part was pushed above")
    }

    /// Writes an early exit, if one is possible here.
    fn leave(&mut self) -> bool {
        let mut exits: Vec<(String, usize)> = Vec::new();
        let (mut throws, mut jumps) = (true, true);
        for (index, open) in self.open.iter().enumerate().rev() {
            match &open.frame {
                Frame::Body => {
                    exits.push(("return".into(), index));
                    break;
                }
                Frame::Function(_) | Frame::Guard | Frame::Finally => break,
                Frame::Loop { breaks } if jumps => {
                    exits.push(("continue".into(), index));
                    if *breaks {
                        exits.push(("break".into(), index));
                    }
                    jumps = false;
                }
                Frame::Switch if jumps => {
                    exits.push(("break".into(), index));
                    // `continue` would continue the loop around the switch.
                    jumps = false;
                }
                Frame::Label(name) => exits.push((format!("break {name}"), index)),
                Frame::Try if throws => {
                    exits.push(("throw new Error(\"left\")".into(), index));
                    throws = false;
                }
                Frame::NoThrow => throws = false,
                _ => {}
            }
        }
        if exits.is_empty() || (self.open.len() == 2 && self.budget > 8) {
            return false;
        }
        let (exit, target) = self.random.one(&exits).clone();
        let sure = self.random.one(TRUE);
        let text = match self.random.below(3) {
            0 => format!("if ({sure}) {{ {exit}; }}"),
            1 => format!("if ({sure}) {exit};"),
            _ => format!("{exit};"),
        };
        self.text(&text);
        let word = exit.split(' ').next().unwrap_or_default().to_owned();
        let names = ["return", "continue", "break", "throw"];
        let name = names.into_iter().find(|name| *name == word).unwrap_or("break");
        self.parts.last_mut().expect("a part is open").constructs.push(name);
        if self.live {
            self.live = false;
            self.exit = Some(target);
        }
        true
    }

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

    fn called(&mut self, tools: &[Tool]) {
        if self.live {
            let part = self.parts.last_mut().expect("a part is open");
            part.tools.extend(tools.iter().cloned());
        }
    }

    /// Writes a call of tools.
    fn call(&mut self, live: bool) {
        self.parts.push(Part { instead: "true", ..Part::default() });
        let before = self.live;
        self.live &= live;
        let construct = self.choose(calls::CALLS);
        let _ = self.use_up(construct);
        self.live = before;
        let part = self.parts.pop().expect("the part was pushed above");
        self.pieces(vec![Piece::Parts(vec![part])]);
    }

    fn tool(&mut self) -> Vec<Tool> {
        let known = self.known.iter().filter_map(|(name, known)| match known {
            Known::Tools(tools) => Some((name.clone(), tools.clone())),
            _ => None,
        });
        let known: Vec<_> = known.collect();
        if !known.is_empty() && self.random.percent(35) {
            let (name, tools) = self.random.one(&known).clone();
            self.text(&name);
            return tools;
        }
        let construct = self.choose(values::TOOLS);
        self.use_up(construct).tools
    }

    fn space(&mut self) -> String {
        let known = self.known.iter().filter_map(|(name, known)| match known {
            Known::Space(space) => Some((name.clone(), space.clone())),
            _ => None,
        });
        let known: Vec<_> = known.collect();
        if !known.is_empty() && !self.exact && self.random.percent(35) {
            let (name, space) = self.random.one(&known).clone();
            self.text(&name);
            return space;
        }
        let construct = self.choose(values::NAMESPACES);
        self.use_up(construct).space
    }

    fn mcp(&mut self) {
        let known = self.known.iter().filter(|(_, known)| matches!(known, Known::Mcp));
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        if !known.is_empty() && self.random.percent(35) {
            let name = self.random.one(&known).clone();
            self.text(&name);
            return;
        }
        let construct = self.choose(values::MCP);
        let _ = self.use_up(construct);
    }

    fn name(&mut self, name: &str) {
        let before = std::mem::replace(&mut self.wanted, name.to_owned());
        let construct = self.choose(values::NAMES);
        let _ = self.use_up(construct);
        self.wanted = before;
    }

    fn action(&mut self) -> String {
        format!("{}{}", self.random.one(ACTIONS), self.number())
    }

    fn quoted(&mut self, text: &str) {
        self.text(&format!("\"{text}\""));
    }
}
