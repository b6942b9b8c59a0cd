//! How what would run now differs from a lock.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Integrity, escape_text};
use serde::Serialize;
use serde_json::Value;

use super::{Kind, LockedTool, Place, ProgramLock};

/// The difference between a lock and what would run now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// The program.
    program: ProgramChange,
    /// What changed about its tools, the program's own first.
    tools: Vec<ToolChange>,
    /// The tools whose schemas are locked, and not known on this machine.
    not_compared: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ProgramChange {
    changed: bool,
    from: Integrity,
    to: Integrity,
    /// The versions of the normal form, if they differ: then the hashes cannot be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    normal_form: Option<FromTo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FromTo {
    from: String,
    to: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ToolChange {
    #[serde(flatten)]
    place: Place,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
enum What {
    Added {
        #[serde(skip)]
        what: String,
    },
    Removed {
        #[serde(skip)]
        what: String,
    },
    Changed {
        field: &'static str,
        from: Option<Value>,
        to: Option<Value>,
    },
}

/// The tools of one program.
type Tools = BTreeMap<String, LockedTool>;

impl Difference {
    /// Compares a lock with what would run now. A schema that is not known on both sides is not compared.
    pub(crate) fn between(lock: &ProgramLock, now: &ProgramLock) -> Self {
        let (from, to) = (&lock.program, &now.program);
        let normal_form = (from.normal_form != to.normal_form)
            .then(|| FromTo { from: from.normal_form.clone(), to: to.normal_form.clone() });
        let program =
            ProgramChange { changed: from != to, from: from.hash, to: to.hash, normal_form };
        let mut difference = Self { program, tools: Vec::new(), not_compared: Vec::new() };
        difference.compare(&lock.tools, &now.tools, None);
        difference.compare_capabilities(lock, now);
        difference
    }

    /// Returns whether nothing changed.
    pub(crate) fn is_empty(&self) -> bool {
        !self.program.changed && self.tools.is_empty()
    }

    /// Returns the tools whose schemas are locked, and not known on this machine.
    pub(crate) fn not_compared(&self) -> &[Place] {
        &self.not_compared
    }

    /// Returns a line for each change, escaped for display.
    pub(crate) fn lines(&self) -> Vec<String> {
        let ProgramChange { changed, from, to, normal_form } = &self.program;
        let program = match (changed, normal_form) {
            (_, Some(FromTo { from, to })) => format!(
                "the program cannot be compared: its lock has the form `{}`, and this `pml` uses `{to}`",
                escape_text(from)
            ),
            (true, None) => format!("the program changed: {from} → {to}"),
            (false, None) => format!("the program is unchanged: {from}"),
        };
        std::iter::once(program).chain(self.tools.iter().map(ToolChange::line)).collect()
    }

    /// Compares the programs of the capabilities. One with a new version is compared with its old one.
    fn compare_capabilities(&mut self, lock: &ProgramLock, now: &ProgramLock) {
        let (old, new) = (&lock.capabilities, &now.capabilities);
        let mut replaced = BTreeSet::new();
        for (name, before) in old {
            if let Some(after) = new.get(name) {
                if before.integrity != after.integrity {
                    let place = Place { tool: name.clone(), within: None };
                    self.change(place, "integrity", &before.integrity, &after.integrity);
                }
                self.compare(&before.tools, &after.tools, Some(name));
                continue;
            }
            let successor = new.iter().find(|(other, _)| {
                base(other) == base(name) && !old.contains_key(*other) && !replaced.contains(*other)
            });
            let none = Tools::new();
            if let Some((name, _)) = successor {
                replaced.insert(name);
            }
            let after = successor.map_or(&none, |(_, after)| &after.tools);
            self.compare(&before.tools, after, Some(base(name)));
        }
        for (name, after) in new {
            if !old.contains_key(name) && !replaced.contains(name) {
                self.compare(&Tools::new(), &after.tools, Some(name));
            }
        }
    }

    fn compare(&mut self, old: &Tools, new: &Tools, within: Option<&str>) {
        let ids: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for id in ids {
            let place = Place { tool: id.clone(), within: within.map(str::to_owned) };
            match (old.get(id), new.get(id)) {
                (Some(before), Some(after)) => self.compare_tool(&place, before, after),
                (Some(before), None) => {
                    let what = What::Removed { what: before.describe() };
                    self.tools.push(ToolChange { place, what });
                }
                (None, after) => {
                    let what = after.map_or_else(String::new, LockedTool::describe);
                    self.tools.push(ToolChange { place, what: What::Added { what } });
                }
            }
        }
    }

    fn compare_tool(&mut self, place: &Place, before: &LockedTool, after: &LockedTool) {
        // Destructured, so that a new field is not forgotten.
        let LockedTool {
            kind,
            runs_on,
            fqdn,
            version,
            integrity,
            registry,
            start,
            schema,
            reaches,
        } = after;
        let mut field = |field, from: &dyn ErasedField, to: &dyn ErasedField| {
            let (from, to) = (from.value(), to.value());
            if from != to {
                let what = What::Changed { field, from, to };
                self.tools.push(ToolChange { place: place.clone(), what });
            }
        };
        field("kind", &before.kind, kind);
        field("runs_on", &before.runs_on, runs_on);
        field("fqdn", &before.fqdn, fqdn);
        field("version", &before.version, version);
        field("integrity", &before.integrity, integrity);
        field("registry", &before.registry, registry);
        field("start", &before.start, start);
        field("reaches", &before.reaches, reaches);
        match (before.schema, schema) {
            // The lists of servers of `.pml.json` are learned while they run, on each machine by itself.
            (None, _) if before.kind == Kind::Configured && before.kind == *kind => {}
            (Some(_), None) if before.kind == Kind::Configured && before.kind == *kind => {
                self.not_compared.push(place.clone());
            }
            (before, schema) => field("schema", &before, schema),
        }
    }

    fn change(&mut self, place: Place, field: &'static str, from: &Integrity, to: &Integrity) {
        let (from, to) = (from.value(), to.value());
        self.tools.push(ToolChange { place, what: What::Changed { field, from, to } });
    }
}

/// A field of a tool as JSON; `None` if it is absent.
trait ErasedField {
    fn value(&self) -> Option<Value>;
}

impl<T: Serialize> ErasedField for T {
    fn value(&self) -> Option<Value> {
        // Texts, hashes and lists of texts, which are all JSON.
        serde_json::to_value(self).ok().filter(|value| !value.is_null())
    }
}

/// Returns the full name of a capability without its version.
fn base(name: &str) -> &str {
    name.split_once('@').map_or(name, |(base, _)| base)
}

impl ToolChange {
    fn line(&self) -> String {
        let text = |value: &Option<Value>| match value {
            None => "not known".to_owned(),
            Some(Value::String(text)) => escape_text(text),
            Some(Value::Array(items)) => {
                let items: Vec<String> =
                    items.iter().filter_map(Value::as_str).map(escape_text).collect();
                items.join(", ")
            }
            Some(other) => other.to_string(),
        };
        let place = &self.place;
        match &self.what {
            What::Added { what } => format!("{place}: added, {what}"),
            What::Removed { what } => format!("{place}: removed, {what}"),
            What::Changed { field, from, to } => {
                let field = match *field {
                    "runs_on" => "runs on",
                    "fqdn" => "name",
                    "start" => "start command",
                    "schema" => "description or schema",
                    field => field,
                };
                format!("{place}: {field} {} → {}", text(from), text(to))
            }
        }
    }
}
