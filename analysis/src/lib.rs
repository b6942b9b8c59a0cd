//! Reads a program before it runs: source text in; tools, structure, DAG and
//! diagnostics out.
//!
//! [`analyze`] is pure: no file, no clock, no network. It never panics, never
//! overflows the stack and never exceeds its [`Limits`]; an invalid program
//! results in diagnostics, not in an error. Every tool that any run of the program can
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
//! # What the engine must guarantee
//! [`Analysis::program`] is the body of an `async` function, read as strict
//! code, with `mcp` and `args` in a scope outside of that function. The promise
//! above holds if the engine runs it that way: strict, and with no way to create
//! code from text. Visible attempts to do so (`eval`, `Function`, `.constructor`)
//! still make a program dynamic.
//!
//! # Stack
//! The parser and the walk over the tree are recursive. `analyze` runs them on a
//! stack of at least 48 MiB, which it allocates if the caller's is smaller. A
//! scan of the text refuses programs that would need more. Processes that serve
//! many users still run it in a killable child ([`job`]), because a parser of
//! this size cannot guarantee bounds on time and memory.

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
mod wrapper;

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
    /// The maximum number of tool calls in the text of one program.
    pub tasks: usize,
    /// The maximum number of dependencies between them.
    pub edges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { source_bytes: 64 * 1024, depth: 256, chain: 5_000, tasks: 1_000, edges: 20_000 }
    }
}

/// What is known about a program before it runs.
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
    /// are replaced by spaces, so that lines and columns are those of the source, except
    /// for what `implicit_returns` inserts. Empty if the program cannot run.
    pub program: String,
    /// The byte offsets in `program` at which `return await (` was inserted before a final
    /// expression. `None` if the source has a `return` at its top level.
    #[serde(default)]
    pub implicit_returns: Option<Vec<u32>>,
    /// The hash of the program's normal form, in which white space, comments, types
    /// and the names of locals make no difference, under the rules of
    /// [`NORMAL_FORM_VERSION`]. `None` if the program cannot run.
    #[serde(default)]
    pub normal_hash: Option<Integrity>,
    /// The fields of `args` that it uses; [`Analysis::input_schema`] builds a schema from them.
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

    /// Returns whether the program can run: no diagnostic is an error.
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

    /// Returns the tools that no rule of `routing` covers, sorted.
    pub fn unknown_tools(&self, routing: &RoutingRules) -> Vec<&ToolId> {
        self.tools.iter().filter(|tool| routing.covering(tool).is_none()).collect()
    }

    /// Returns the side that runs the program, or `unknown` if `routing` does not determine it.
    pub fn side(&self, routing: &RoutingRules) -> Side {
        let side = |tool| routing.covering(tool).map_or(Side::Unknown, Side::from);
        Side::decide(self.dynamic, self.tools.iter().map(side))
    }

    /// Returns the tools without which no run can succeed: each run calls them, and ends if such a call fails.
    ///
    /// Not all of them: a program that seems to handle any failure has none.
    pub fn needed_tools(&self) -> impl Iterator<Item = &ToolId> {
        /// What a failure can be handled with. Another use of such a word does no harm.
        const HANDLING: [&str; 6] = ["any", "allSettled", "catch", "finally", "race", "then"];
        let mut words = self.program.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
        let handles = words.any(|word| HANDLING.contains(&word));
        let certain =
            self.dag.tasks.iter().filter(move |task| {
                !handles && !self.dynamic && !task.conditional && !task.repeats
            });
        certain.map(|task| &task.tool)
    }

    /// Returns the warnings to report together with the result of a run, such as calls that nothing awaits.
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
    // After the first hundred, further diagnostics do not help.
    findings.truncate(DIAGNOSTIC_LIMIT);
    findings.into_iter().map(|finding| finding.locate(source)).collect()
}

/// The maximum number of diagnostics reported for one program.
const DIAGNOSTIC_LIMIT: usize = 100;

/// The free stack that the parser needs, in bytes.
const STACK_NEEDED: usize = 48 * 1024 * 1024;
/// The size of the stack that is allocated if less is free.
const STACK_GIVEN: usize = 64 * 1024 * 1024;

/// Refuses a program that is too large, in time linear in `limits` and without
/// the parser, so that a caller need not send it to the process that analyses.
pub fn refuse_too_large(source: &str, limits: &Limits) -> Option<Analysis> {
    let finding = (source.len() > limits.source_bytes).then(|| scan::scan(source, limits).err())?;
    finding.map(|finding| Analysis::refused(vec![finding], source))
}

/// Analyses a program.
///
/// A leading byte order mark is dropped and is not counted in columns; a first
/// line that starts with `#!` is read as a comment. A program that consists only
/// of one function `async () => { … }` (or `() => { … }`, `async () => value`)
/// is read as the body of that function.
pub fn analyze(source: &str, limits: &Limits) -> Analysis {
    analyze_by(source, limits, |_| {})
}

/// Analyses a program as [`analyze`] does, but lets a program run that only misuses promises.
///
/// For tests of soundness that run programs: such a program is valid JavaScript.
#[doc(hidden)]
pub fn analyze_with_misused_promises(source: &str, limits: &Limits) -> Analysis {
    analyze_by(source, limits, forgive_misused_promise)
}

/// Analyses a program as [`analyze_with_misused_promises`] does, with one rule disabled.
///
/// For tests of the soundness tests, which must find a program that needs the rule.
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
    // All of them, not only the first: the erased program is parsed again, which would drop another one.
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
