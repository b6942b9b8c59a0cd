//! A program and the flows that the analysis reports for it.

use std::collections::BTreeSet;
use std::fmt;

use analysis::{Argument, Limits, PathStep, Task, analyze_with_misused_promises};

/// The maximum number of field names that are taken from a program.
const WORDS_LIMIT: usize = 12;

/// A source of data for a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// A field of `args`.
    Field(String),
    /// The results of the calls with this name.
    Calls(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, "args.{name}"),
            Self::Calls(key) => f.write_str(key),
        }
    }
}

pub(crate) struct Subject {
    /// The program as it runs: if possible, each call has a separate name.
    pub(crate) program: String,
    pub(crate) tasks: Vec<Task>,
    /// The name of the calls of each task.
    names: Vec<String>,
    /// The field names that follow a dot or occur in a pattern.
    pub(crate) words: Vec<String>,
    pub(crate) fields: Vec<String>,
}

impl Subject {
    /// Analyses a program; `None` if it is refused or dynamic.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let analysis = analyze_with_misused_promises(source, &Limits::default());
        if !analysis.can_run() || analysis.dynamic {
            return None;
        }
        let tasks: Vec<Task> = analysis.structure.tasks().cloned().collect();
        let mut lines: Vec<String> = analysis.program.split('\n').map(str::to_owned).collect();
        let mut names: Vec<String> = tasks.iter().map(|task| task.tool.to_string()).collect();
        let mut places: Vec<usize> = (0..tasks.len()).collect();
        places.sort_by_key(|place| std::cmp::Reverse((tasks[*place].line, tasks[*place].column)));
        for place in places {
            let task = &tasks[place];
            let Some(line) = lines.get_mut(task.line as usize - 1) else { continue };
            let called = format!("mcp.{}.{}(", task.tool.namespace(), task.tool.action());
            let start = line.char_indices().nth(task.column as usize - 1).map(|(at, _)| at);
            let Some(start) = start.filter(|at| line[*at..].starts_with(&called)) else { continue };
            let end = start + called.len() - 1;
            line.insert_str(end, &format!("__{}", task.task));
            names[place] = task.task.clone();
        }
        let (words, fields) = words(source);
        Some(Self { program: lines.join("\n"), tasks, names, words, fields })
    }

    /// Returns the name of a call.
    pub(crate) fn key(namespace: &str, action: &str) -> String {
        match action.rsplit_once("__t") {
            Some((_, number)) if number.parse::<u32>().is_ok() => format!("t{number}"),
            _ => format!("{namespace}:{action}"),
        }
    }

    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.names.iter().cloned().collect()
    }

    pub(crate) fn sources(&self) -> Vec<Source> {
        let fields = self.fields.iter().cloned().map(Source::Field);
        fields.chain(self.keys().into_iter().map(Source::Calls)).collect()
    }

    fn named(&self, key: &str) -> impl Iterator<Item = (usize, &Task)> {
        let tasks = self.tasks.iter().enumerate();
        tasks.filter(move |(place, _)| self.names[*place] == *key)
    }

    /// Returns whether the analysis reports a flow from a source to the calls with a name.
    pub(crate) fn flows(&self, source: &Source, key: &str) -> bool {
        self.named(key).any(|(_, task)| match source {
            Source::Field(field) => task.arguments.values().any(|one| is_from(one, field)),
            Source::Calls(from) => {
                self.named(from).any(|(_, from)| task.data_from.contains(&from.task))
            }
        })
    }

    /// Returns whether it reports such a flow, or that the source decides about the calls.
    pub(crate) fn flows_or_decides(&self, source: &Source, key: &str) -> bool {
        self.flows(source, key)
            || self.named(key).any(|(place, task)| match source {
                Source::Field(field) => {
                    task.decided_by_args.iter().any(|part| is_part(part, field))
                }
                Source::Calls(from) => self.named(from).any(|(earlier, from)| {
                    // The analysis does not report decisions of later calls about earlier ones.
                    earlier >= place || task.decided_by.contains(&from.task)
                }),
            })
    }
}

/// Returns whether a field of `args` is reported to flow into an argument.
fn is_from(argument: &Argument, field: &str) -> bool {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } => false,
        Argument::Parameter { path } => match path.first() {
            None => true,
            Some(PathStep::Field(name)) => name == field,
            Some(PathStep::Index(_)) => false,
        },
        Argument::Object { fields } => fields.values().any(|one| is_from(one, field)),
        Argument::Array { items } => items.iter().any(|one| is_from(one, field)),
        Argument::Expression { from_args, .. } => from_args.iter().any(|part| is_part(part, field)),
    }
}

/// Returns whether a reported part of `args` covers a field.
fn is_part(part: &str, field: &str) -> bool {
    part == "args" || part.strip_prefix("args.") == Some(field)
}

/// Returns the field names that a program reads, and those that it reads from `args`.
fn words(source: &str) -> (Vec<String>, Vec<String>) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words: Vec<String> = Vec::new();
    let mut fields: Vec<String> = Vec::new();
    let mut rest = source;
    let mut before = "";
    while let Some(start) = rest.find(is_part) {
        let gap = &rest[..start];
        let word = &rest[start..];
        let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let member = gap == "." || gap == "?.";
        let in_pattern =
            gap.ends_with(['{', '[', ',', ' ']) && after.starts_with([',', ' ', '}', ':']);
        if member && before == "args" && !fields.iter().any(|known| known == word) {
            fields.push(word.to_owned());
        }
        let plain = !word.starts_with(|c: char| c.is_ascii_digit())
            && !matches!(word, "then" | "length" | "constructor" | "toJSON" | "await" | "const");
        let wanted = (member && before != "mcp" && !after.starts_with('(')) || in_pattern;
        if plain && wanted && !words.iter().any(|known| known == word) && words.len() < WORDS_LIMIT
        {
            words.push(word.to_owned());
        }
        (before, rest) = (word, after);
    }
    (words, fields)
}
