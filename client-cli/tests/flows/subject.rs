//! A program and what is said of its flows.

use std::collections::BTreeSet;
use std::fmt;

use analysis::{Argument, Limits, PathStep, Task, analyze_with_misused_promises};

/// Words that a program looks for in what it is given, at most.
const WORDS: usize = 12;

/// What a program is given something by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// A field of `args`.
    Field(String),
    /// The calls of this name.
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
    /// The program as it is run: where it can be, each call has a name of its own.
    pub(crate) program: String,
    pub(crate) tasks: Vec<Task>,
    /// The name under which the calls of each task are seen.
    names: Vec<String>,
    /// The names that stand after a dot or in a pattern.
    pub(crate) words: Vec<String>,
    pub(crate) fields: Vec<String>,
}

impl Subject {
    /// Returns `None` for what is refused, or says of itself that it is not understood.
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

    /// Returns the name under which a call is seen.
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

    /// Whether a source is said to flow to the calls of a name.
    pub(crate) fn flows(&self, source: &Source, key: &str) -> bool {
        self.named(key).any(|(_, task)| match source {
            Source::Field(field) => task.arguments.values().any(|one| is_from(one, field)),
            Source::Calls(from) => {
                self.named(from).any(|(_, from)| task.data_from.contains(&from.task))
            }
        })
    }

    /// Whether it is said to flow there, or may decide on the calls.
    pub(crate) fn flows_or_decides(&self, source: &Source, key: &str) -> bool {
        self.flows(source, key)
            || self.named(key).any(|(place, task)| match source {
                Source::Field(field) => {
                    task.decided_by_args.iter().any(|part| is_part(part, field))
                }
                Source::Calls(from) => self.named(from).any(|(earlier, from)| {
                    // What a later call decides on is not told.
                    earlier >= place || task.decided_by.contains(&from.task)
                }),
            })
    }
}

/// Whether a field of `args` is said to flow into an argument.
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

/// Whether a part of `args`, as it is told, may be a field.
fn is_part(part: &str, field: &str) -> bool {
    part == "args" || part.strip_prefix("args.") == Some(field)
}

/// Returns the names that a program asks for, and those that it asks `args` for.
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
        if plain && wanted && !words.iter().any(|known| known == word) && words.len() < WORDS {
            words.push(word.to_owned());
        }
        (before, rest) = (word, after);
    }
    (words, fields)
}
