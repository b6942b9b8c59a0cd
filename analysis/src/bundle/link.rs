//! Linking: the order of the files, the target of each import, and the name of each declaration.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::unit::{Export, Form, Import, Unit};
use crate::diagnostic::{Code, Finding};

/// An error in one of the files, by its index.
pub(super) type Fault = (usize, Finding);

/// The files of a program and all that they import; the entry is the first.
pub(super) struct Linked<'u> {
    units: &'u [Unit],
    /// The file of each edge of each unit.
    edges: &'u [Vec<usize>],
    /// The exports resolved so far.
    known: HashMap<(usize, String), Result<Target, Missing>>,
}

/// What an imported or exported name resolves to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// A declaration of a file.
    Name(usize, String),
    /// All exports of a file.
    All(usize),
    /// A type, which is erased.
    Type,
}

/// Why an export cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Missing {
    Nowhere,
    Ambiguous,
}

/// The name in the bundle of each declaration.
pub(super) type Names = HashMap<(usize, String), String>;

/// The declaration that each use in each file refers to; `None` leaves the text unchanged.
pub(super) type Meanings = Vec<Vec<Option<Meaning>>>;

/// The declaration that a use refers to.
pub(super) struct Meaning {
    /// Its file.
    pub(super) unit: usize,
    /// Its key there.
    pub(super) key: String,
    /// Whether the use covers all of `ns.name`, not only the name before the dot.
    pub(super) is_member: bool,
}

impl Meaning {
    fn of(target: Target, is_member: bool) -> Option<Self> {
        match target {
            Target::Name(unit, key) => Some(Self { unit, key, is_member }),
            Target::All(_) | Target::Type => None,
        }
    }
}

impl<'u> Linked<'u> {
    pub(super) fn new(units: &'u [Unit], edges: &'u [Vec<usize>]) -> Self {
        Self { units, edges, known: HashMap::new() }
    }

    /// Returns the files in the order in which they are evaluated, the entry last.
    pub(super) fn order(&self) -> Result<Vec<usize>, Fault> {
        let mut order = Vec::new();
        let mut state = vec![State::New; self.units.len()];
        // A depth-first search with an explicit stack of files and their next edges: import chains can be long.
        let mut stack = vec![(0, 0)];
        state[0] = State::Open;
        while let Some((unit, next)) = stack.last_mut() {
            let unit = *unit;
            let Some(&to) = self.edges[unit].get(*next) else {
                state[unit] = State::Done;
                order.push(unit);
                stack.pop();
                continue;
            };
            let at = self.units[unit].edges[*next].at;
            *next += 1;
            match state[to] {
                State::Done => {}
                State::New => {
                    state[to] = State::Open;
                    stack.push((to, 0));
                }
                State::Open => {
                    let from = stack.iter().position(|(unit, _)| *unit == to).unwrap_or(0);
                    let cycle: Vec<&str> = stack[from..]
                        .iter()
                        .map(|(unit, _)| *unit)
                        .chain([to])
                        .map(|unit| self.units[unit].path.as_str())
                        .collect();
                    let entry = &self.units[0].path;
                    let cycle: Vec<String> =
                        cycle.iter().map(|path| super::path::shown_from(entry, path)).collect();
                    let message = format!(
                        "circular import: {}; move the shared code into a separate file",
                        cycle.join(" → ")
                    );
                    return Err((unit, Finding::new(Code::UnsupportedSyntax, at, message)));
                }
            }
        }
        Ok(order)
    }

    /// Resolves every use in every file.
    pub(super) fn meanings(&mut self) -> Result<Meanings, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut all = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            let mut imports = BTreeMap::new();
            for (local, import) in &unit.imports {
                match self.import(index, import) {
                    Ok(target) => {
                        imports.insert(local.as_str(), target);
                    }
                    Err(finding) => faults.push((index, finding)),
                }
            }
            for (name, export) in &unit.exports {
                if let Err(finding) = self.check_export(index, name, export) {
                    faults.push((index, finding));
                }
            }
            let mut meanings = Vec::new();
            let mut fault = |at, message: String| {
                faults.push((index, Finding::new(Code::UnsupportedSyntax, at, message)));
            };
            for (at, name) in &unit.written {
                if imports.get(name.as_str()).is_some_and(|target| *target != Target::Type) {
                    fault(
                        *at,
                        format!(
                            "`{name}` is imported and cannot be assigned to; assign it in its own file, in an exported function"
                        ),
                    );
                }
            }
            for place in &unit.uses {
                let name = place.name.as_str();
                if !unit.imports.contains_key(name) {
                    meanings.push(Meaning::of(Target::Name(index, name.to_owned()), false));
                    continue;
                }
                let meaning = match (imports.get(name), &place.form) {
                    // Reported above.
                    (None, _) => None,
                    (Some(Target::Type), _) => None,
                    (Some(Target::All(of)), Form::Member { property, written, .. }) => {
                        if *written {
                            fault(
                                place.low,
                                format!(
                                    "`{name}.{property}` is imported and cannot be assigned to; assign it in its own file, in an exported function"
                                ),
                            );
                        }
                        match self.export(*of, property) {
                            Ok(Target::All(_)) => {
                                fault(place.low, namespace_as_value(&format!("{name}.{property}")));
                                None
                            }
                            Ok(target) => Meaning::of(target, true),
                            Err(missing) => {
                                fault(place.low, self.missing_export(*of, property, missing));
                                None
                            }
                        }
                    }
                    (Some(Target::All(_)), _) => {
                        fault(place.low, namespace_as_value(name));
                        None
                    }
                    (Some(target), _) => Meaning::of(target.clone(), false),
                };
                meanings.push(meaning);
            }
            all.push(meanings);
        }
        if faults.is_empty() { Ok(all) } else { Err(faults) }
    }

    fn import(&mut self, unit: usize, import: &Import) -> Result<Target, Finding> {
        match import {
            Import::Type => Ok(Target::Type),
            Import::TypeOf { edge, name } => {
                Ok(self.export(self.edges[unit][*edge], name).unwrap_or(Target::Type))
            }
            Import::All { edge } => Ok(Target::All(self.edges[unit][*edge])),
            Import::Name { edge, name, at } => {
                let of = self.edges[unit][*edge];
                self.export(of, name).map_err(|missing| {
                    let message = self.missing_export(of, name, missing);
                    Finding::new(Code::UnsupportedSyntax, *at, message)
                })
            }
        }
    }

    /// Checks that what a file exports exists.
    fn check_export(&mut self, unit: usize, name: &str, export: &Export) -> Result<(), Finding> {
        let (Export::Own { at, name: of } | Export::From { at, name: of, .. }) = export else {
            return Ok(());
        };
        self.export(unit, name).map(drop).map_err(|missing| {
            let from = match export {
                Export::From { edge, .. } => self.edges[unit][*edge],
                _ => unit,
            };
            Finding::new(Code::UnsupportedSyntax, *at, self.missing_export(from, of, missing))
        })
    }

    fn missing_export(&self, of: usize, name: &str, missing: Missing) -> String {
        let file = super::path::shown_from(&self.units[0].path, &self.units[of].path);
        let name = crate::diagnostic::shown(name, 100);
        match missing {
            Missing::Nowhere if name == "default" => {
                format!(
                    "`{file}` has no default export; import a name, as in `import {{ name }} from …`"
                )
            }
            Missing::Nowhere => format!("`{file}` has no export `{name}`"),
            Missing::Ambiguous => {
                format!(
                    "`{file}` has two exports `{name}`, from two `export *`; export one of them by name"
                )
            }
        }
    }

    /// Resolves an export. `order` has refused cycles, so this terminates.
    fn export(&mut self, unit: usize, name: &str) -> Result<Target, Missing> {
        let key = (unit, name.to_owned());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.find_export(unit, name);
        self.known.insert(key, found.clone());
        found
    }

    fn find_export(&mut self, unit: usize, name: &str) -> Result<Target, Missing> {
        let file = &self.units[unit];
        match file.exports.get(name) {
            Some(Export::Type) => Ok(Target::Type),
            Some(Export::All { edge }) => Ok(Target::All(self.edges[unit][*edge])),
            Some(Export::From { edge, name, .. }) => self.export(self.edges[unit][*edge], name),
            Some(Export::Own { name, .. }) => match file.imports.get(name) {
                None if file.own.contains_key(name) => Ok(Target::Name(unit, name.clone())),
                None => Err(Missing::Nowhere),
                Some(Import::Type) => Ok(Target::Type),
                Some(Import::All { edge }) => Ok(Target::All(self.edges[unit][*edge])),
                Some(Import::Name { edge, name, .. } | Import::TypeOf { edge, name }) => {
                    self.export(self.edges[unit][*edge], name)
                }
            },
            // `export *` re-exports everything except the default.
            None if name == "default" => Err(Missing::Nowhere),
            None => {
                let mut found = Err(Missing::Nowhere);
                for edge in &file.stars {
                    match (self.export(self.edges[unit][*edge], name), &found) {
                        (Err(Missing::Ambiguous), _) => return Err(Missing::Ambiguous),
                        (Ok(target), Ok(before)) if target != *before => {
                            return Err(Missing::Ambiguous);
                        }
                        (Ok(target), _) => found = Ok(target),
                        (Err(Missing::Nowhere), _) => {}
                    }
                }
                found
            }
        }
    }

    /// Gives each declaration a name that is unambiguous in the bundle. The first in `order` keep theirs.
    pub(super) fn names(&self, order: &[usize], meanings: &Meanings) -> Names {
        // The files that use a declaration under another name.
        let mut users: HashMap<(usize, &str), BTreeSet<usize>> = HashMap::new();
        // All names that occur anywhere, and those that no file declares.
        let mut all: BTreeSet<&str> = BTreeSet::new();
        let mut free: BTreeSet<&str> = BTreeSet::new();
        for (index, unit) in self.units.iter().enumerate() {
            free.extend(unit.free.iter().map(String::as_str));
            all.extend(unit.inner.iter().chain(unit.own.keys()).map(String::as_str));
            for (place, meaning) in unit.uses.iter().zip(&meanings[index]) {
                match meaning {
                    Some(means) if means.unit != index && means.key != place.name => {
                        users.entry((means.unit, &means.key)).or_default().insert(index);
                    }
                    Some(_) => {}
                    // The name of an erased type must not become the name of a value.
                    None => {
                        free.insert(&place.name);
                    }
                }
            }
        }
        all.extend(&free);
        let mut names = Names::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for &index in order {
            for (key, preferred) in &self.units[index].own {
                // A declaration keeps its name unless that is a global somewhere, is taken, hides `mcp` or `args`, was
                // made up for a default export and occurs elsewhere, or is hidden in a file that uses the declaration.
                let is_kept = !free.contains(preferred.as_str())
                    && !taken.contains(preferred)
                    && (index == 0 || !matches!(preferred.as_str(), "mcp" | "args"))
                    && (key == preferred || !all.contains(preferred.as_str()))
                    && users.get(&(index, key.as_str())).is_none_or(|users| {
                        users.iter().all(|user| !self.units[*user].inner.contains(preferred))
                    });
                let name = if is_kept {
                    preferred.clone()
                } else {
                    (2..)
                        .map(|number| format!("{preferred}_{number}"))
                        .find(|name| !all.contains(name.as_str()) && !taken.contains(name))
                        .unwrap_or_default()
                };
                taken.insert(name.clone());
                names.insert((index, key.clone()), name);
            }
        }
        names
    }
}

fn namespace_as_value(name: &str) -> String {
    format!(
        "`{name}` is a module namespace and cannot be used as a value; write `{name}.` and the name of an export, or import the export by name"
    )
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}
