//! Reads a program before it runs: source text in; tools, structure, DAG and
//! diagnostics out.
//!
//! [`analyze`] is pure: no file, no clock, no network. It never panics, never
//! overflows the stack and never leaves its [`Limits`]; a program that is broken
//! gives diagnostics, not an error. Every tool that any run of the program can
//! call is in [`Analysis::tools`], or [`Analysis::dynamic`] is true.
//!
//! ```
//! let analysis = analysis::analyze(
//!     "const text = await mcp.filesystem.read_file({ path: args.path });
//!      return await mcp.json.parse({ text });",
//!     &analysis::Limits::default(),
//! );
//! assert!(analysis.can_run() && !analysis.dynamic);
//! assert_eq!(analysis.tools[0].as_str(), "filesystem:read_file");
//! assert_eq!(analysis.dag.tasks[1].depends_on, ["t1"]);
//! ```
//!
//! # What the engine must grant
//! [`Analysis::program`] is the body of an `async` function, read as strict
//! code, with `mcp` and `args` in a scope outside of that function. The promise
//! above holds if the engine runs it so: strict, and with no way to make code
//! out of text. What the text can show (`eval`, `Function`, `.constructor`) is
//! marked dynamic all the same.
//!
//! # Stack
//! The parser and the walk over the tree are recursive. `analyze` runs them on a
//! stack of at least 48 MiB, which it allocates when the caller's is smaller,
//! and refuses by a scan of the text whatever would need more. The processes
//! that serve many users still run it in a killable child ([`job`]), because a
//! parser of this size cannot promise time and memory.

mod bundle;
mod dag;
mod diagnostic;
mod job;
mod normal;
mod parameters;
mod parse;
mod plan;
mod refusal;
pub mod render;
mod scan;
mod structure;

use std::collections::BTreeSet;

use protocol::{Integrity, Routing, RoutingRules, Side, Step, ToolId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use bundle::{
    Bundle, Bundled, FILE_LIMIT, FileDiagnostic, Needed, Origin, SourceFile, Sources, bundle,
    bundle_job, candidates,
};
pub use dag::{Dag, DagTask};
pub use diagnostic::{Code, Diagnostic, Severity};
pub use job::{AnalysisError, Request, decode, job};
pub use normal::VERSION as NORMAL_FORM_VERSION;
pub use parameters::{Parameter, Parameters, description};
pub use plan::{
    Certainty, Condition, Effect, Gap, Group, Place, Plan, PlannedTask, Times, plan, plan_with,
};
pub use structure::{Argument, Node, NodeKind, PathStep, StaticStructure, Task};
#[doc(hidden)]
pub use structure::{Rule, is_engine_function};

use diagnostic::Finding;

/// The limits of one analysis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// The longest source, in bytes.
    pub source_bytes: usize,
    /// The deepest nesting of statements, expressions and types.
    pub depth: u32,
    /// The longest chain of left-associative operators, members, calls and `else if`.
    pub chain: u32,
    /// The most calls of tools in the text of one program.
    pub tasks: usize,
    /// The most dependences between them.
    pub edges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { source_bytes: 64 * 1024, depth: 256, chain: 5_000, tasks: 1_000, edges: 20_000 }
    }
}

/// What is known of a program before it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Every tool that the program can name, sorted, each once.
    pub tools: Vec<ToolId>,
    /// Whether the program may call tools that are not in `tools`.
    pub dynamic: bool,
    /// Tasks, decisions, loops, forks and joins.
    pub structure: StaticStructure,
    /// The tasks as a graph.
    pub dag: Dag,
    /// The steps in which the tasks happen.
    #[serde(default)]
    pub order: Vec<Step>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The JavaScript that runs: the body of an async function in which types
    /// are blanked out, so that lines and columns are those of the source, but for
    /// what `implicit_returns` names. Empty when the program cannot run.
    pub program: String,
    /// The byte offsets in `program` at which `return await (` stands before an expression of a
    /// source that has no `return` at its top level. `None` for one that has.
    #[serde(default)]
    pub implicit_returns: Option<Vec<u32>>,
    /// The hash of the program's normal form, in which spacing, comments, types
    /// and the names of locals make no difference, under the rules that
    /// [`NORMAL_FORM_VERSION`] names. `None` when the program cannot run.
    #[serde(default)]
    pub normal_hash: Option<Integrity>,
    /// The fields of `args` that it uses; [`Analysis::input_schema`] makes a schema of them.
    #[serde(default)]
    pub parameters: Parameters,
}

impl Analysis {
    fn refused(findings: Vec<Finding>, source: &str) -> Self {
        Self {
            tools: Vec::new(),
            dynamic: false,
            structure: StaticStructure::default(),
            dag: Dag::default(),
            order: Vec::new(),
            diagnostics: located(findings, source),
            program: String::new(),
            implicit_returns: None,
            normal_hash: None,
            parameters: Parameters::default(),
        }
    }

    /// Returns whether the program may run: no diagnostic is an error.
    pub fn can_run(&self) -> bool {
        self.first_error().is_none()
    }

    /// Returns the first error, if there is one.
    pub fn first_error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|found| found.severity == Severity::Error)
    }

    /// Returns the tools that run on the client under `routing`, sorted.
    pub fn client_tools(&self, routing: &RoutingRules) -> Vec<&ToolId> {
        self.tools.iter().filter(|tool| routing.route(tool) == Routing::Client).collect()
    }

    /// Returns the tools that `routing` says nothing of, sorted.
    pub fn unknown_tools(&self, routing: &RoutingRules) -> Vec<&ToolId> {
        self.tools.iter().filter(|tool| routing.covering(tool).is_none()).collect()
    }

    /// Returns the side that runs the program, as far as `routing` says.
    pub fn side(&self, routing: &RoutingRules) -> Side {
        let side = |tool| routing.covering(tool).map_or(Side::Unknown, Side::from);
        Side::decide(self.dynamic, self.tools.iter().map(side))
    }

    /// Returns what whoever runs the program should be told besides its result: calls that nothing awaits.
    pub fn run_warnings(&self) -> Vec<String> {
        self.diagnostics
            .iter()
            .filter(|found| found.is_for_run())
            .map(|found| format!("line {}, column {}: {}", found.line, found.column, found.message))
            .collect()
    }

    /// Returns the side that runs the program under `routing`.
    pub fn routing(&self, routing: &RoutingRules) -> Routing {
        RoutingRules::decide(self.dynamic, self.tools.iter().map(|tool| routing.route(tool)))
    }

    /// Returns the JSON that `pml analyze --json` prints.
    pub fn to_json(&self, routing: &RoutingRules) -> Value {
        let diagnostics: Vec<Value> = self
            .diagnostics
            .iter()
            .map(|found| {
                json!({
                    "code": found.code.as_str(),
                    "severity": found.severity.as_str(),
                    "message": found.message,
                    "line": found.line,
                    "column": found.column,
                })
            })
            .collect();
        let is_covered = |tool: &&ToolId| routing.covering(tool).is_some();
        let client_tools = self.client_tools(routing).into_iter().filter(is_covered);
        json!({
            "tools": self.tools,
            "client_tools": client_tools.collect::<Vec<_>>(),
            "unknown_tools": self.unknown_tools(routing),
            "routing": self.side(routing).as_str(),
            "dynamic": self.dynamic,
            "dag": self.dag,
            "diagnostics": diagnostics,
        })
    }
}

fn located(mut findings: Vec<Finding>, source: &str) -> Vec<Diagnostic> {
    findings.sort();
    findings.dedup();
    // A program with thousands of faults is told about the first of them.
    findings.truncate(DIAGNOSTIC_LIMIT);
    findings.into_iter().map(|finding| finding.locate(source)).collect()
}

/// The most diagnostics of one program.
const DIAGNOSTIC_LIMIT: usize = 100;

/// The stack that must be free before the parser starts, in bytes.
const STACK_NEEDED: usize = 48 * 1024 * 1024;
/// The stack that is allocated when there is less.
const STACK_GIVEN: usize = 64 * 1024 * 1024;

/// Refuses a program that is too large, in time linear in `limits` and without
/// the parser; who runs the analysis elsewhere need not send it there.
pub fn refuse_too_large(source: &str, limits: &Limits) -> Option<Analysis> {
    let finding = (source.len() > limits.source_bytes).then(|| scan::scan(source, limits).err())?;
    finding.map(|finding| Analysis::refused(vec![finding], source))
}

/// Analyses a program.
///
/// A leading byte order mark is dropped and is not counted in columns; a first
/// line that starts with `#!` is read as a comment. A program that is nothing
/// but one function `async () => { … }` (or `() => { … }`, `async () => value`)
/// is read as the body of that function.
pub fn analyze(source: &str, limits: &Limits) -> Analysis {
    analyze_by(source, limits, |_| {})
}

/// Analyses a program as [`analyze`] does, and lets one run that only misuses promises.
///
/// For tests that run what the analysis must be sound about: such a program is valid.
#[doc(hidden)]
pub fn analyze_with_misused_promises(source: &str, limits: &Limits) -> Analysis {
    analyze_by(source, limits, forgive_misused_promise)
}

/// Analyses a program as [`analyze_with_misused_promises`] does, and forgets a rule.
///
/// For tests of the tests: they find a program that shows the rule.
#[doc(hidden)]
pub fn analyze_forgetting(source: &str, limits: &Limits, rule: Rule) -> Analysis {
    structure::forgetting(rule, || analyze_with_misused_promises(source, limits))
}

fn forgive_misused_promise(found: &mut Diagnostic) {
    if found.code == Code::ToolPromiseUsed {
        found.severity = Severity::Warning;
    }
}

fn analyze_by(source: &str, limits: &Limits, judge: impl FnMut(&mut Diagnostic)) -> Analysis {
    // Two byte order marks are odd, but what runs is read again, and must not lose another one then.
    let source = source.trim_start_matches('\u{feff}');
    if let Err(finding) = scan::scan(source, limits) {
        return Analysis::refused(vec![finding], source);
    }
    stacker::maybe_grow(STACK_NEEDED, STACK_GIVEN, || built_by(source, limits, judge))
}

fn built_by(source: &str, limits: &Limits, judge: impl FnMut(&mut Diagnostic)) -> Analysis {
    let parsed = match parse::parse(source, limits) {
        Ok(parsed) => parsed,
        Err(findings) => return Analysis::refused(findings, source),
    };
    let built = match structure::build(&parsed, source, limits) {
        Ok(built) => built,
        Err(finding) => return Analysis::refused(vec![finding], source),
    };
    let dag = Dag::of(&built.structure);
    let order = parsed.function().map(|main| structure::order(main, &built.sites));
    let tools: BTreeSet<ToolId> = built.tools;
    let mut analysis = Analysis {
        tools: tools.into_iter().collect(),
        dynamic: built.dynamic,
        structure: built.structure,
        dag,
        order: order.unwrap_or_default(),
        diagnostics: located(built.findings, source),
        normal_hash: Some(parsed.normal_hash),
        parameters: parsed
            .function()
            .map(|function| parameters::parameters(function, source))
            .unwrap_or_default(),
        program: parsed.program,
        implicit_returns: parsed.implicit_returns,
    };
    analysis.diagnostics.iter_mut().for_each(judge);
    if !analysis.can_run() {
        analysis.program = String::new();
        analysis.implicit_returns = None;
        analysis.normal_hash = None;
    }
    analysis
}
