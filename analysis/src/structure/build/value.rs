//! What is known of a value: which tools it may be, where it comes from.

use std::rc::Rc;

use swc_atoms::Atom;

pub(super) use super::deps::Deps;
use super::few::{Few, merged, one};
pub(super) use super::form::{Form, Steps};
use super::promise::Promised;
use super::rows::Rows;
pub(super) use super::scalar::Scalar;
use super::scalar::number_text;

/// A place where a tool is called; stable over the rounds of one analysis.
pub(super) type SiteId = u32;
/// A function of the program.
pub(super) type FuncId = u32;

/// A literal of the program, by where it begins.
pub(super) type TableId = u32;

/// Something that leads to tools or around them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cap {
    /// The global object.
    Global,
    /// `mcp` itself.
    Mcp,
    /// `mcp.namespace`.
    Namespace(Atom),
    /// `mcp.namespace.action`.
    Tool(Atom, Atom),
    /// `mcp.namespace.action` with arguments that are given before those of a call.
    Bound(Atom, Atom),
    /// What makes code out of text: `eval`, `Function`.
    Evaluator,
}

// Values are moved and copied a lot; beyond this size each time is a call.
const _: () = assert!(size_of::<Value>() <= 128);

/// The most parts of a value that is tracked part by part.
const WEIGHT_LIMIT: u32 = 2_000;
/// The deepest value that is tracked part by part.
const LEVEL_LIMIT: u32 = 16;

/// What is known of a value.
#[must_use = "what a value may be must be kept, or be seen to escape"]
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    pub(super) caps: Option<Few<Cap>>,
    pub(super) funcs: Option<Few<FuncId>>,
    /// The tasks whose results flow into it, not counting its parts.
    pub(super) deps: Deps,
    pub(super) form: Form,
    /// The source text, for a computed value.
    pub(super) span: (u32, u32),
    /// The container has a name, so that other code may change what it holds.
    pub(super) shared: bool,
    /// A constant that was read out of a shared container: good enough to show,
    /// not to choose a tool by.
    pub(super) inexact: bool,
    /// It may also be something else entirely, of which nothing is known.
    pub(super) partial: bool,
    /// A substitute may stand in its place when it is not there.
    pub(super) defaulted: bool,
    /// Whether it is a promise.
    pub(super) promised: Promised,
    /// It may be a promise that fails, which these tasks decide.
    pub(super) fails: Option<Deps>,
    /// The literals that it may be, of which only parts were looked at on the way here.
    pub(super) tables: Option<Few<TableId>>,
    /// What it is in each row of the table that a loop goes over.
    pub(super) rows: Option<Rc<Rows>>,
    /// Whether it or a part of it leads to tools or is a function.
    pub(super) loaded: bool,
    /// Whether it or a part of it is a literal.
    in_table: bool,
    /// Whether anything flows into a part of it.
    parts_flow: bool,
    weight: u32,
    level: u32,
}

impl Value {
    pub(super) fn of(form: Form) -> Self {
        let Size { loaded, in_table, flows: parts_flow, weight, level } = match &form {
            Form::Object { fields, .. } => measure(fields.iter().map(|(_, value)| value)),
            Form::Array(items) => measure(items.iter()),
            Form::Items(item) => measure([&**item].into_iter()),
            _ => measure([].into_iter()),
        };
        Self {
            caps: None,
            funcs: None,
            deps: Deps::default(),
            form,
            span: (0, 0),
            shared: false,
            inexact: false,
            partial: false,
            defaulted: false,
            promised: Promised::No,
            fails: None,
            tables: None,
            rows: None,
            loaded,
            in_table,
            parts_flow,
            weight,
            level,
        }
    }

    pub(super) fn never() -> Self {
        Self::of(Form::Never)
    }

    pub(super) fn computed(deps: Deps) -> Self {
        Self { deps, ..Self::of(Form::Computed) }
    }

    pub(super) fn scalar(scalar: Scalar) -> Self {
        Self::of(Form::Const(one(scalar)))
    }

    pub(super) fn text(text: &str) -> Self {
        Self::scalar(Scalar::Text(text.into()))
    }

    pub(super) fn undefined() -> Self {
        Self::scalar(Scalar::Undefined)
    }

    pub(super) fn cap(cap: Cap) -> Self {
        Self { caps: Some(one(cap)), loaded: true, ..Self::of(Form::Computed) }
    }

    pub(super) fn function(id: FuncId) -> Self {
        Self { funcs: Some(one(id)), loaded: true, ..Self::of(Form::Function) }
    }

    pub(super) fn result(site: SiteId) -> Self {
        Self { deps: Deps::one(site), ..Self::of(Form::Result(site, Steps::default())) }
    }

    pub(super) fn object(fields: Vec<(Atom, Value)>, open: bool) -> Self {
        Self::of(Form::Object { fields: Rc::new(fields), open })
    }

    pub(super) fn array(items: Vec<Value>) -> Self {
        Self::of(Form::Array(Rc::new(items)))
    }

    /// Returns what gives `item` each time it is iterated, any number of times.
    pub(super) fn items(item: Value) -> Self {
        Self::of(Form::Items(Rc::new(item)))
    }

    pub(super) fn caps(&self) -> &[Cap] {
        self.caps.as_ref().map_or(&[], |caps| caps.as_slice())
    }

    pub(super) fn funcs(&self) -> &[FuncId] {
        self.funcs.as_ref().map_or(&[], |funcs| funcs.as_slice())
    }

    pub(super) fn add_cap(&mut self, cap: Cap) {
        self.loaded = true;
        self.caps = merged(&self.caps, &Some(one(cap)));
    }

    /// Takes over the tools and functions of another value.
    pub(super) fn add_load(&mut self, other: &Self) {
        self.caps = merged(&self.caps, &other.caps);
        self.funcs = merged(&self.funcs, &other.funcs);
        self.loaded |= other.loaded;
    }

    /// Returns whether the value or a part of it leads to tools or is a function.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Returns whether it leads to tools and neither is nor holds a function.
    pub(super) fn holds_only_tools(&self) -> bool {
        fn is_without_functions(value: &Value) -> bool {
            value.funcs.is_none() && value.parts().all(is_without_functions)
        }
        self.loaded && is_without_functions(self)
    }

    /// Returns whether it is too large or deep to be tracked part by part.
    pub(super) fn is_too_large(&self) -> bool {
        self.weight > WEIGHT_LIMIT || self.level > LEVEL_LIMIT
    }

    /// Returns the parts that are tracked.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Value> {
        let (fields, items, item) = match &self.form {
            Form::Object { fields, .. } => (&fields[..], &[][..], None),
            Form::Array(items) => (&[][..], &items[..], None),
            Form::Items(item) => (&[][..], &[][..], Some(&**item)),
            _ => (&[][..], &[][..], None),
        };
        fields.iter().map(|(_, value)| value).chain(items).chain(item)
    }

    /// Returns whether it leads to nothing but calls of tools that the program names.
    pub(super) fn is_tool(&self) -> bool {
        let is_tool = |cap: &Cap| matches!(cap, Cap::Tool(..) | Cap::Bound(..));
        self.funcs.is_none() && self.caps().iter().all(is_tool) && self.parts().all(Self::is_tool)
    }

    /// Returns whether it is a list, and nothing else.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.form, Form::Array(_) | Form::Items(_)) && self.caps.is_none()
    }

    /// Returns whether it has parts that are tracked.
    pub(super) fn is_container(&self) -> bool {
        matches!(self.form, Form::Object { .. } | Form::Array(_) | Form::Items(_))
    }

    /// Returns the constants that it is known to be one of, fit to choose a tool by.
    pub(super) fn exact(&self) -> Option<&[Scalar]> {
        let has_text = |scalar: &Scalar| match scalar {
            Scalar::Number(number) => number_text(*number).is_some(),
            _ => true,
        };
        match &self.form {
            Form::Const(scalars) if !self.inexact && scalars.iter().all(has_text) => Some(scalars),
            Form::Never => Some(&[]),
            _ => None,
        }
    }

    /// Returns the one constant that it is, also when only fit to be shown.
    pub(super) fn only(&self) -> Option<&Scalar> {
        match &self.form {
            Form::Const(scalars) if scalars.len() == 1 => scalars.first(),
            _ => None,
        }
    }

    fn has_stand_ins(&self) -> bool {
        let own = self.deps.has_stand_ins();
        own || self.fails.as_ref().is_some_and(Deps::has_stand_ins)
            || self.parts().any(Self::has_stand_ins)
    }

    /// Returns the value with other tasks in the place of its own.
    pub(super) fn map_deps(mut self, map: &impl Fn(&Deps) -> Deps) -> Self {
        if !self.has_stand_ins() {
            return self;
        }
        self.deps = map(&self.deps);
        self.fails = self.fails.as_ref().map(map);
        self.form = match self.form {
            Form::Object { fields, open } => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone().map_deps(map)))
                    .collect();
                Form::Object { fields: Rc::new(fields), open }
            }
            Form::Array(items) => {
                let items = items.iter().map(|item| item.clone().map_deps(map)).collect();
                Form::Array(Rc::new(items))
            }
            Form::Items(item) => Form::Items(Rc::new((*item).clone().map_deps(map))),
            form => form,
        };
        self
    }

    /// Returns all that flows into the value or its parts, and so into what is made
    /// from it.
    pub(super) fn all_deps(&self) -> Deps {
        let mut deps = self.deps.clone();
        if self.parts_flow {
            for part in self.parts() {
                deps.add(&part.all_deps());
            }
        }
        let input = deps.input().used();
        deps.with_input(input)
    }

    /// Returns whether it is `undefined` or `null`.
    pub(super) fn is_nothing(&self) -> bool {
        self.only().is_some_and(Scalar::is_nothing)
    }

    /// Returns the value after code ran on it that may have put another in its place:
    /// good enough to show, not to choose a tool by.
    pub(super) fn loosened(mut self) -> Self {
        self.loosen(true);
        self.shared |= self.is_container();
        self
    }

    /// Returns the value as one that is made of the parts of another.
    pub(super) fn of_tables(mut self, other: &Self) -> Self {
        self.set_tables(other.tables.clone());
        self
    }

    /// Sets which literals it may be.
    pub(super) fn set_tables(&mut self, tables: Option<Few<TableId>>) {
        self.in_table |= tables.is_some();
        self.tables = tables;
    }

    /// Returns whether it or a part of it is a literal.
    pub(super) fn is_in_table(&self) -> bool {
        self.in_table
    }

    /// Collects the literals that it and its parts may be.
    pub(super) fn all_tables(&self, out: &mut Vec<TableId>) {
        if self.in_table {
            out.extend(self.tables.iter().flat_map(|tables| tables.iter()));
            self.parts().for_each(|part| part.all_tables(out));
        }
    }

    /// Returns the value without the constants that `gone` takes away.
    pub(super) fn without(mut self, gone: impl Fn(&Scalar) -> bool) -> Self {
        if let Form::Const(scalars) = &self.form
            && scalars.iter().any(&gone)
        {
            let left: Vec<Scalar> = scalars.iter().filter(|one| !gone(one)).cloned().collect();
            self.form =
                if left.is_empty() { Form::Never } else { Form::Const(Rc::new(left.into())) };
        }
        self
    }

    pub(super) fn with_deps(mut self, deps: &Deps) -> Self {
        self.deps.add(deps);
        self
    }

    pub(super) fn spanning(mut self, span: (u32, u32)) -> Self {
        self.span = span;
        self
    }

    /// Returns a reference one step further, when there is one.
    pub(super) fn step(&self, name: &Atom) -> Option<Self> {
        let form = match &self.form {
            Form::Result(site, steps) => Form::Result(*site, steps.and(name)?),
            Form::Param(steps) => Form::Param(steps.and(name)?),
            _ => return None,
        };
        Some(Self { deps: self.deps.clone(), defaulted: self.defaulted, ..Self::of(form) })
    }
}

/// What is known of the parts of a value together.
struct Size {
    loaded: bool,
    in_table: bool,
    flows: bool,
    weight: u32,
    level: u32,
}

fn measure<'v>(parts: impl Iterator<Item = &'v Value>) -> Size {
    let mut size = Size { loaded: false, in_table: false, flows: false, weight: 1, level: 0 };
    for part in parts {
        size.loaded |= part.loaded;
        size.in_table |= part.in_table;
        size.flows |= part.parts_flow || !part.deps.is_nothing();
        size.weight = size.weight.saturating_add(part.weight);
        size.level = size.level.max(part.level + 1);
    }
    size
}
