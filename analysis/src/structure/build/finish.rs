//! The last round's walk in its wire form.

use foldhash::HashMap;

use indexmap::IndexMap;
use protocol::ToolId;
use serde_json::Value as Json;
use swc_atoms::Atom;

use super::input::{Input, InputFields};
use super::scalar::number_text;
use super::stand_in::StandIns;
use super::value::{Deps, Form, Scalar, SiteId, Value};
use super::{Builder, Built};
use crate::diagnostic::{Code, Finding, shown};
use crate::structure::{Argument, Node, NodeKind, StaticStructure, Task};

/// A node as the walk meets it.
pub(super) struct RoundNode {
    parent: Option<u32>,
    branch: Option<Atom>,
    kind: RoundKind,
}

/// What a node is, before tasks have their names.
pub(super) enum RoundKind {
    /// The task of this place in the list of tasks.
    Task(usize),
    Decision {
        test: (u32, u32),
        deps: Deps,
    },
    Loop {
        over: (u32, u32),
        deps: Deps,
    },
    Fork {
        how: String,
    },
    Join {
        fork: u32,
    },
}

/// A call of a tool as the walk meets it.
pub(super) struct RoundTask {
    pub(super) site: SiteId,
    pub(super) tool: ToolId,
    pub(super) at: u32,
    pub(super) arguments: Vec<(Atom, Value)>,
    /// What flows into the object that holds the arguments, and so into each of them.
    pub(super) whole: Deps,
    /// What decides on the arguments and on whether the call is made.
    pub(super) deps: Deps,
    /// What decides on whether the call is made.
    pub(super) decides: Deps,
    /// What flows into the arguments.
    pub(super) data: Deps,
    pub(super) conditional: bool,
    pub(super) repeats: bool,
}

/// The longest excerpt of the source that stands for an expression.
const EXCERPT: usize = 120;
/// The most bytes that all literal arguments together may have; beyond it they
/// are shown as expressions.
const LITERAL_BUDGET: usize = 256 * 1024;
/// The deepest argument that is shown part by part.
const ARGUMENT_DEPTH: u32 = 8;

impl Builder<'_> {
    pub(super) fn add_node(&mut self, kind: RoundKind) -> u32 {
        let id = self.nodes.len() as u32;
        let branch = self.branch.clone();
        self.nodes.push(RoundNode { parent: self.parent, branch, kind });
        id
    }

    /// Tells a loop's node what decides how often it runs, once that is known.
    pub(super) fn loop_deps(&mut self, node: u32, known: Deps) {
        if let Some(RoundNode { kind: RoundKind::Loop { deps, .. }, .. }) =
            self.nodes.get_mut(node as usize)
        {
            deps.add(&known);
        }
    }

    /// Puts the last round into its wire form.
    pub(super) fn finish(self) -> Result<Built, Finding> {
        let mut out = Finish {
            source: self.source,
            stand_ins: self.stand_ins(),
            mutates: self.mutates,
            input_fields: self.input_fields,
            names: self
                .tasks
                .iter()
                .enumerate()
                .map(|(index, task)| (task.site, (index, format!("t{}", index + 1))))
                .collect(),
            budget: LITERAL_BUDGET,
        };
        let mut edges = 0;
        let mut tasks = Vec::new();
        let mut lines = Lines::default();
        for (index, task) in self.tasks.iter().enumerate() {
            let depends_on = out.before(&task.deps, index);
            let decided_by = out.before(&task.decides, index);
            let data_from = out.before(&task.data, usize::MAX);
            edges += depends_on.len().max(data_from.len());
            if edges > self.limits.edges {
                let message = "the tasks of this program depend on each other in too many ways; pass results on in smaller steps";
                return Err(Finding::new(Code::TooComplex, task.at, message));
            }
            let (line, column) = lines.locate(self.source, task.at);
            let whole = out.input(&task.whole);
            let arguments = out.fields(&task.arguments, index, 0, whole);
            tasks.push(Task {
                task: format!("t{}", index + 1),
                tool: task.tool.clone(),
                line,
                column,
                conditional: task.conditional,
                repeats: task.repeats,
                from_args: arguments.values().any(Argument::is_from_args),
                arguments,
                depends_on,
                decided_by,
                // The analysis of the core language tells it.
                decided_by_args: Vec::new(),
                data_from,
            });
        }
        Ok(Built {
            sites: self.tasks.iter().map(|task| task.at).collect(),
            tools: self.tools,
            dynamic: self.dynamic,
            structure: out.structure(self.nodes, tasks),
            findings: self.findings.into_iter().collect(),
        })
    }
}

/// Finds lines without counting from the start each time.
#[derive(Default)]
struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn locate(&mut self, source: &str, offset: u32) -> (u32, u32) {
        if self.starts.is_empty() {
            let bytes = source.as_bytes();
            self.starts.push(0);
            for (at, byte) in bytes.iter().enumerate() {
                if *byte == b'\n' || (*byte == b'\r' && bytes.get(at + 1) != Some(&b'\n')) {
                    self.starts.push(at + 1);
                }
            }
        }
        let offset = (offset as usize).min(source.len());
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let column = source.get(start..offset).map_or(0, |text| text.chars().count());
        (line as u32, column as u32 + 1)
    }
}

struct Finish<'a> {
    source: &'a str,
    stand_ins: StandIns,
    /// The program changes parts of values, so a part may not be what it was.
    mutates: bool,
    input_fields: InputFields,
    names: HashMap<SiteId, (usize, String)>,
    budget: usize,
}

impl Finish<'_> {
    /// Returns the names of those tasks that stand before the one at `index`.
    ///
    /// A loop can hand a later task's result to an earlier one of its next
    /// round; a graph without cycles has no place for that.
    fn before(&self, deps: &Deps, index: usize) -> Vec<String> {
        if deps.has_no_sites() {
            return Vec::new();
        }
        let deps = self.stand_ins.resolve(deps);
        let mut found: Vec<&(usize, String)> = deps
            .iter()
            .filter_map(|site| self.names.get(&site))
            .filter(|(place, _)| *place < index)
            .collect();
        found.sort();
        found.dedup();
        found.into_iter().map(|(_, name)| name.clone()).collect()
    }

    fn fields(
        &mut self,
        fields: &[(Atom, Value)],
        index: usize,
        depth: u32,
        input: Input,
    ) -> IndexMap<String, Argument> {
        fields
            .iter()
            .map(|(name, value)| (name.to_string(), self.argument(value, index, depth, input)))
            .collect()
    }

    /// Returns where an argument comes from; `input` says whether the input flows
    /// into what holds it.
    fn argument(&mut self, value: &Value, index: usize, depth: u32, input: Input) -> Argument {
        if let Some(value) = self.literal(value, depth) {
            return Argument::Literal { value };
        }
        match &value.form {
            Form::Result(site, path) if !value.defaulted => {
                let earlier = self.names.get(site).filter(|(place, _)| *place < index);
                // A value that may come from elsewhere too is no plain reference.
                if let Some((_, task)) = earlier
                    && self.stand_ins.resolve(&value.deps).without_input() == Deps::one(*site)
                {
                    return Argument::Reference { task: task.clone(), path: path.told() };
                }
            }
            Form::Param(path)
                if self.stand_ins.resolve(&value.deps).has_no_sites() && !value.defaulted =>
            {
                return Argument::Parameter { path: path.told() };
            }
            Form::Object { .. } | Form::Array(_) | Form::Items(_)
                if value.partial || (self.mutates && value.shared) => {}
            Form::Object { fields, open } if depth < ARGUMENT_DEPTH => {
                let input = self.input(&value.deps.clone().and(&Deps::of_input(input)));
                let mut fields = self.fields(fields, index, depth + 1, input);
                if *open {
                    fields.insert("*".into(), self.expression(value, index, input));
                }
                return Argument::Object { fields };
            }
            Form::Array(items) if depth < ARGUMENT_DEPTH => {
                let input = self.input(&value.deps.clone().and(&Deps::of_input(input)));
                let items =
                    items.iter().map(|item| self.argument(item, index, depth + 1, input)).collect();
                return Argument::Array { items };
            }
            _ => {}
        }
        self.expression(value, index, input)
    }

    fn expression(&mut self, value: &Value, index: usize, input: Input) -> Argument {
        let deps = value.all_deps().and(&Deps::of_input(input));
        Argument::Expression {
            source: self.excerpt(value.span),
            depends_on: self.before(&deps, index),
            from_args: self.input_fields.names(self.input(&deps)),
        }
    }

    fn input(&self, deps: &Deps) -> Input {
        if deps.has_stand_ins() { self.stand_ins.resolve(deps).input() } else { deps.input() }
    }

    /// Returns the JSON of a value that is written in the program as a whole.
    fn literal(&mut self, value: &Value, depth: u32) -> Option<Json> {
        if value.partial || self.mutates && (value.inexact || value.shared) {
            return None;
        }
        let json = match &value.form {
            Form::Const(_) => match value.only()? {
                Scalar::Undefined => return None,
                Scalar::Null => Json::Null,
                Scalar::Bool(value) => Json::Bool(*value),
                Scalar::Number(value) => match number_text(*value) {
                    Some(_) => Json::from(*value as i64),
                    None => Json::from(*value),
                },
                Scalar::Text(text) => {
                    self.budget = self.budget.checked_sub(text.len())?;
                    Json::String(text.to_string())
                }
            },
            Form::Object { fields, open: false } if depth < ARGUMENT_DEPTH => {
                let mut out = serde_json::Map::new();
                for (name, value) in fields.iter() {
                    out.insert(name.to_string(), self.literal(value, depth + 1)?);
                }
                Json::Object(out)
            }
            Form::Array(items) if depth < ARGUMENT_DEPTH => {
                let mut out = Vec::new();
                for item in items.iter() {
                    out.push(self.literal(item, depth + 1)?);
                }
                Json::Array(out)
            }
            _ => return None,
        };
        // A constant that was chosen by a task's result is not simply known.
        self.stand_ins.resolve(&value.deps).has_no_sites().then_some(json)
    }

    fn excerpt(&self, (low, high): (u32, u32)) -> String {
        excerpt(self.source.get(low as usize..high as usize).unwrap_or_default())
    }

    /// Drops the nodes that govern no task, and numbers the rest.
    fn structure(&mut self, nodes: Vec<RoundNode>, tasks: Vec<Task>) -> StaticStructure {
        let mut kept = vec![false; nodes.len()];
        for at in (0..nodes.len()).rev() {
            if matches!(nodes[at].kind, RoundKind::Task(_)) {
                kept[at] = true;
            }
            if let (true, Some(parent)) = (kept[at], nodes[at].parent) {
                kept[parent as usize] = true;
            }
        }
        let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
        let mut numbers: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
        let mut out = Vec::new();
        let count = tasks.len();
        for (at, node) in nodes.into_iter().enumerate() {
            let keep = match &node.kind {
                // A join stands after its fork, whose number is known.
                RoundKind::Join { fork } => kept[*fork as usize],
                _ => kept[at],
            };
            numbers.push(keep.then_some(out.len() as u32));
            if !keep {
                continue;
            }
            let number = |id: u32| numbers.get(id as usize).copied().flatten();
            let kind = match node.kind {
                RoundKind::Task(index) => match tasks.get_mut(index).and_then(Option::take) {
                    Some(task) => NodeKind::Task(task),
                    None => continue,
                },
                RoundKind::Decision { test, deps } => NodeKind::Decision {
                    test: self.excerpt(test),
                    depends_on: self.before(&deps, count),
                },
                RoundKind::Loop { over, deps } => NodeKind::Loop {
                    over: self.excerpt(over),
                    depends_on: self.before(&deps, count),
                },
                RoundKind::Fork { how } => NodeKind::Fork { how },
                RoundKind::Join { fork } => NodeKind::Join { fork: number(fork).unwrap_or(0) },
            };
            out.push(Node {
                id: out.len() as u32,
                parent: node.parent.and_then(number),
                branch: node.branch.map(|name| name.to_string()),
                kind,
            });
        }
        StaticStructure { nodes: out }
    }
}

/// Returns an expression of the source on one line, shortened.
pub(in crate::structure) fn excerpt(text: &str) -> String {
    let mut flat = String::with_capacity(text.len().min(EXCERPT * 8));
    for word in text.split_whitespace() {
        if !flat.is_empty() {
            flat.push(' ');
        }
        flat.push_str(word);
        if flat.len() > EXCERPT * 4 {
            break;
        }
    }
    shown(&flat, EXCERPT)
}
