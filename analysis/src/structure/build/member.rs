//! Parts of values: `value.name`, `value[key]`, and the items of what is iterated.

use std::rc::Rc;

use swc_atoms::Atom;

use protocol::ToolId;
use smallvec::{SmallVec, smallvec};

use super::Builder;
use super::input::Input;
use super::promise::Promised;
use super::rows::Rows;
use super::value::{Cap, Deps, Form, Scalar, Steps, Value};
use crate::diagnostic::{Code, shown};

/// A name by which a part is asked for.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// The names that it may be, when they are known for certain.
    pub(super) names: Option<SmallVec<[Atom; 1]>>,
    /// A name that it probably is: good enough to follow data, not to choose a tool.
    pub(super) hint: Option<Atom>,
    /// The tasks whose results flow into it.
    pub(super) deps: Deps,
    /// What it is in each row of a table.
    pub(super) rows: Option<Rc<Rows>>,
}

impl Key {
    /// Returns the key of a name that is known.
    pub(super) fn of(name: Atom) -> Self {
        Self {
            names: Some(smallvec![name.clone()]),
            hint: Some(name),
            deps: Deps::default(),
            rows: None,
        }
    }

    /// Returns the name, when there is just one.
    pub(super) fn only(&self) -> Option<&str> {
        self.only_name().map(|name| &**name)
    }

    /// Returns the name to keep, when there is just one.
    pub(super) fn only_name(&self) -> Option<&Atom> {
        match self.names.as_deref() {
            Some([name]) => Some(name),
            _ => None,
        }
    }
}

/// Returns the names under which the global object holds itself.
pub(super) fn is_global_object(name: &str) -> bool {
    matches!(name, "globalThis" | "self" | "window" | "global")
}

impl Builder<'_> {
    /// Returns the key that a value is; it is turned into text.
    pub(super) fn key_of(&mut self, value: &Value) -> Key {
        self.escape(value, "is turned into text");
        let names = value.exact().map(|scalars| scalars.iter().map(Scalar::as_key).collect());
        let hint = value.only().map(Scalar::as_key);
        Key { names, hint, deps: value.all_deps(), rows: value.rows.clone() }
    }

    /// Returns a part of a value.
    pub(super) fn member(&mut self, value: &Value, key: &Key) -> Value {
        if let Some(part) = self.row_member(value, key) {
            return part;
        }
        let mut part = self.plain_member(value, key);
        let namespaces = value.caps().iter().filter(|cap| matches!(cap, Cap::Namespace(_)));
        if namespaces.count() > 1 && key.names.as_ref().is_some_and(|names| names.len() > 1) {
            self.dynamic(
                Code::DynamicName,
                "which namespace is meant with which tool is only known when the program runs; write both out, as in `mcp.filesystem.read_file(…)`, and choose between calls with `if`".into(),
            );
            return part;
        }
        for cap in value.caps.iter().flat_map(|caps| caps.iter()) {
            self.cap_member(cap, key, &mut part);
        }
        if !value.funcs().is_empty() {
            // `f.call`, `f.bind` and the like hand the function on.
            for func in value.funcs().to_vec() {
                self.call_from_unknown(func, &value.deps, true, true);
            }
        }
        let names_constructor = key.names.iter().flatten().any(|name| &**name == "constructor");
        if names_constructor && value.caps().is_empty() && !part.is_loaded() {
            part.add_cap(Cap::Evaluator);
        }
        part
    }

    pub(super) fn plain_member(&mut self, value: &Value, key: &Key) -> Value {
        let names = key.names.as_deref().or(key.hint.as_ref().map(std::slice::from_ref));
        let certain = key.names.is_some();
        let mut part = match (&value.form, names) {
            (Form::Never, _) => Value::never(),
            (Form::Object { fields, open }, Some(names)) if certain || !value.is_loaded() => {
                let mut found = Value::never();
                for name in names {
                    let field = fields.iter().rev().find(|(field, _)| field == name);
                    let field = match field {
                        Some((_, field)) if !open => field.clone(),
                        // What is spread in may come before or after the field.
                        Some((_, field)) => field.clone().with_deps(&value.deps),
                        None => Value::computed(value.deps.clone()),
                    };
                    found = self.either(found, field);
                }
                found
            }
            (Form::Array(items), Some(names)) if certain || !value.is_loaded() => {
                let mut found = Value::never();
                for name in names {
                    let item = match name.parse::<usize>() {
                        Ok(index) if is_index(name) => {
                            // Beyond its end, an array has what its prototype has.
                            let beyond = || Value::computed(value.all_deps());
                            items.get(index).cloned().unwrap_or_else(beyond)
                        }
                        _ if &**name == "length" => Value::computed(value.deps.clone()),
                        _ => Value::computed(value.all_deps()),
                    };
                    found = self.either(found, item);
                }
                found
            }
            // The name may also be one that only the prototype has.
            (Form::Items(_), Some(names)) if names.iter().all(|name| !is_index(name)) => {
                Value::computed(value.all_deps())
            }
            // It is not known whether there is an item in that place, either.
            (Form::Items(_), _) => {
                let any = self.any_part(value);
                self.join(&any, &Value::computed(value.all_deps())).loosened()
            }
            (Form::Object { .. } | Form::Array(_), _) => {
                let mut part = self.any_part(value).with_deps(&value.deps).loosened();
                if part.is_loaded() {
                    // What is called may be something else, and give something else.
                    part.promised = part.promised.or(Promised::No).or(Promised::Perhaps);
                }
                part
            }
            (Form::Result(..) | Form::Param(_), Some(names)) if names.len() == 1 => {
                let mut part =
                    value.step(&names[0]).unwrap_or_else(|| Value::computed(value.deps.clone()));
                if matches!(&value.form, Form::Param(steps) if *steps == Steps::default()) {
                    let input = self.input_fields.taken(part.deps.input(), &names[0]);
                    part.deps = part.deps.with_input(input);
                }
                part
            }
            _ => Value::computed(value.deps.clone()),
        };
        if value.promised == Promised::Each
            && names.is_some_and(|names| names.iter().all(|name| is_index(name)))
        {
            part.promised = Promised::Likely;
        }
        let container = value.is_container();
        if container && value.shared {
            part.shared = true;
            part.loosen(true);
        }
        if container {
            part.deps.add(&value.deps);
        }
        if value.partial && part.is_container() && part.is_loaded() {
            part.partial = true;
            part.loosen(true);
            part.deps.add(&value.deps);
        } else if value.partial {
            part = self.join(&part, &Value::computed(value.deps.clone()));
        }
        part.deps.add(&key.deps);
        part
    }

    /// Returns any of the parts of a container.
    pub(super) fn any_part(&mut self, value: &Value) -> Value {
        let parts: Vec<Value> = value.parts().cloned().collect();
        let mut any = Value::never();
        for part in &parts {
            any = self.join(&any, part);
        }
        if value.shared {
            any.shared = true;
            any.loosen(true);
        }
        // Rows belong to one loop.
        any.rows = None;
        any
    }

    /// Returns what iterating a value gives, each time.
    pub(super) fn item(&mut self, value: &Value) -> Value {
        match &value.form {
            Form::Array(items) if !items.is_empty() => self.any_part(value).with_deps(&value.deps),
            Form::Items(_) => self.any_part(value).with_deps(&value.deps),
            Form::Never => Value::never(),
            _ => {
                self.escape(value, "is iterated");
                let mut item = Value::computed(value.all_deps());
                item.fails = value.fails.clone();
                if value.promised == Promised::Each {
                    item.promised = Promised::Likely;
                }
                item
            }
        }
    }

    fn cap_member(&mut self, cap: &Cap, key: &Key, part: &mut Value) {
        let Some(names) = &key.names else {
            match cap {
                Cap::Mcp | Cap::Namespace(_) => self.dynamic(
                    Code::DynamicName,
                    "which tool is meant is only known when the program runs; write the name out, as in `mcp.filesystem.read_file(…)`, and choose between calls with `if`".into(),
                ),
                Cap::Global => self.dynamic(
                    Code::DynamicGlobal,
                    "which global is meant is only known when the program runs; write its name out".into(),
                ),
                Cap::Tool(..) | Cap::Bound(..) => self.below_tool(cap),
                Cap::Evaluator => part.add_cap(Cap::Evaluator),
            }
            return;
        };
        if names.is_empty() && matches!(cap, Cap::Mcp | Cap::Namespace(_) | Cap::Global) {
            // In the last round this is code that does not run, or a name that is not there.
            self.dynamic(
                Code::DynamicName,
                "no name of a tool arrives here; write it out, as in `mcp.filesystem.read_file(…)`"
                    .into(),
            );
        }
        for name in names {
            match cap {
                Cap::Mcp => part.add_cap(Cap::Namespace(name.clone())),
                Cap::Namespace(namespace) => self.add_tool(namespace, name, part),
                Cap::Tool(..) | Cap::Bound(..) => self.below_tool(cap),
                Cap::Global => {
                    let value = self.global(name);
                    part.add_load(&value);
                    part.deps.add(&value.deps);
                }
                Cap::Evaluator => {
                    if matches!(&**name, "constructor" | "call" | "apply" | "bind" | "prototype") {
                        part.add_cap(Cap::Evaluator);
                    }
                }
            }
        }
    }

    fn add_tool(&mut self, namespace: &Atom, action: &Atom, part: &mut Value) {
        match ToolId::from_call(namespace, action) {
            Ok(tool) => {
                self.tools.insert(tool);
                part.add_cap(Cap::Tool(namespace.clone(), action.clone()));
            }
            Err(error) => {
                let message = format!("this names no tool: {error}");
                let finding =
                    crate::diagnostic::Finding::new(Code::InvalidToolName, self.at, message);
                self.findings.insert(finding);
            }
        }
    }

    fn below_tool(&mut self, cap: &Cap) {
        let (Cap::Tool(namespace, action) | Cap::Bound(namespace, action)) = cap else { return };
        let message = format!(
            "a tool has no parts to name; a tool is called as `mcp.{}.{}({{ … }})`",
            shown(namespace, 64),
            shown(action, 64)
        );
        self.dynamic(Code::DynamicCall, message);
    }

    /// Returns the value of a global name.
    pub(super) fn global(&mut self, name: &str) -> Value {
        match name {
            "mcp" => self.mcp.clone(),
            "args" => {
                let whole = Value::of(Form::Param(Steps::default()));
                let value =
                    if self.args_written { Value::computed(Deps::default()) } else { whole };
                let itself = Deps::of_input(Input::ITSELF);
                value.with_deps(&itself).with_deps(&self.feeds.into_input)
            }
            "eval" | "Function" => Value::cap(Cap::Evaluator),
            "undefined" => Value::undefined(),
            _ if is_global_object(name) => Value::cap(Cap::Global),
            _ => Value::computed(Deps::default()),
        }
    }
}

/// Returns whether a name is the place of an item.
fn is_index(name: &str) -> bool {
    name.parse::<usize>().is_ok_and(|index| index.to_string() == name)
}
