//! Object and array literals.

use swc_atoms::Atom;
use swc_ecma_ast::{ArrayLit, ObjectLit, Prop, PropName, PropOrSpread};

use super::Builder;
use super::function::FuncBody;
use super::member::Key;
use super::promise::Use;
use super::value::{Deps, Form, FuncId, Value};

impl<'a> Builder<'a> {
    /// Returns the key that a property is written with.
    pub(super) fn prop_key(&mut self, name: &'a PropName) -> Key {
        match name {
            PropName::Ident(name) => Key::of(name.sym.clone()),
            PropName::Str(text) => match text.value.as_str() {
                Some(text) => Key::of(text.into()),
                None => self.key_of(&Value::computed(Deps::default())),
            },
            PropName::Num(number) => {
                let value = Value::scalar(super::value::Scalar::Number(number.value));
                self.key_of(&value)
            }
            #[cfg(test)]
            PropName::Computed(_) if super::fault::is(super::fault::Fault::ComputedNames) => {
                Key::of("computed".into())
            }
            PropName::Computed(computed) => {
                let value = self.expr(&computed.expr);
                self.key_of(&value)
            }
            PropName::BigInt(_) => self.key_of(&Value::computed(Deps::default())),
        }
    }

    pub(super) fn object(&mut self, object: &'a ObjectLit) -> Value {
        let mut fields: Vec<(Atom, Value)> = Vec::with_capacity(object.props.len());
        let mut open = false;
        let mut accessors = false;
        let mut getters: Vec<FuncId> = Vec::new();
        let mut deps = Deps::default();
        let mut extra: Vec<Value> = Vec::new();
        for prop in &object.props {
            let prop = match prop {
                PropOrSpread::Spread(spread) => {
                    let value = self.expr(&spread.expr);
                    self.spread(&value, &mut fields, &mut open, &mut deps);
                    continue;
                }
                PropOrSpread::Prop(prop) => prop,
            };
            let (key, value) = match &**prop {
                Prop::Shorthand(name) => {
                    self.at = crate::parse::start(name.span);
                    (
                        Key::of(name.sym.clone()),
                        self.ident(name).spanning(super::expr::bounds(name.span)),
                    )
                }
                Prop::KeyValue(pair) => {
                    let key = self.prop_key(&pair.key);
                    let value = self.expr(&pair.value);
                    let written = !matches!(pair.key, PropName::Computed(_));
                    if written && key.only() == Some("__proto__") {
                        // This sets the prototype, where fields are found too.
                        self.escape(&value, "is made a prototype");
                        open |= !value.is_nothing();
                        // It may have getters.
                        accessors |= !value.is_nothing();
                        deps.add(&value.all_deps());
                        continue;
                    }
                    (key, value)
                }
                Prop::Method(method) => {
                    let key = self.prop_key(&method.key);
                    (key, self.function(FuncBody::Function(&method.function)))
                }
                #[cfg(test)]
                Prop::Getter(_) if super::fault::is(super::fault::Fault::Getters) => continue,
                Prop::Getter(getter) => {
                    let key = self.prop_key(&getter.key);
                    let func = self.func_of(FuncBody::Function(&getter.function));
                    getters.push(func);
                    // It runs wherever the field is read.
                    (key, self.read_by(func))
                }
                Prop::Setter(setter) => {
                    accessors = true;
                    let key = self.prop_key(&setter.key);
                    let func = self.function(FuncBody::Function(&setter.function));
                    self.sets(&key, &func);
                    extra.push(func);
                    (key, Value::computed(Deps::default()))
                }
                Prop::Assign(assign) => (Key::of(assign.key.sym.clone()), self.expr(&assign.value)),
            };
            match key.only_name() {
                Some(name) => put(&mut fields, name.clone(), value.with_deps(&key.deps)),
                None => {
                    open = true;
                    deps.add(&value.all_deps());
                    deps.add(&key.deps);
                    // What iterates the object, or turns it into text, calls it unasked.
                    deps.add(&self.returned_by([&value]));
                    self.escape(
                        &value,
                        "is kept under a name that is only known when the program runs",
                    );
                    for (_, field) in &mut fields {
                        let old = std::mem::replace(field, Value::never());
                        extra.push(old.clone());
                        *field = Value::computed(old.all_deps().and(&value.all_deps()))
                            .spanning(old.span);
                    }
                }
            }
        }
        if accessors {
            // A setter of the same name stands where the getter's value would be.
            extra.extend(getters.iter().map(|getter| Value::function(*getter)));
        }
        for value in &extra {
            self.escape(value, "is kept in an object that cannot be followed");
            for func in value.funcs().to_vec() {
                let returned = self.funcs[func as usize].returned.all_deps();
                deps.add(&returned);
            }
        }
        let mut made = Value::object(fields, open);
        made.deps = deps;
        if accessors && made.is_loaded() {
            // A setter, or a getter that is inherited, reaches the other fields through `this`.
            self.escape(&made, "is kept in an object that has setters or a prototype");
        }
        let mut made = self.bounded(made);
        // Whoever reads a field of it may run code that writes another.
        made.shared |= !getters.is_empty();
        for getter in getters {
            self.called_on(getter, &made);
        }
        made
    }

    /// Copies the fields of a value into an object that is being made.
    pub(super) fn spread(
        &mut self,
        value: &Value,
        fields: &mut Vec<(Atom, Value)>,
        open: &mut bool,
        deps: &mut Deps,
    ) {
        self.takes(value, Use::Spread);
        match &value.form {
            Form::Object { fields: spread, open: spread_open } if !value.partial => {
                *open |= *spread_open;
                deps.add(&value.deps);
                if *spread_open {
                    self.may_be_replaced(fields, &value.deps);
                }
                for (name, field) in spread.iter() {
                    let mut field = field.clone();
                    field.shared |= value.shared;
                    field.loosen(value.shared);
                    put(fields, name.clone(), field);
                }
            }
            _ if value.is_nothing() => {}
            _ => {
                // It may replace any field that stands before it.
                *open = true;
                deps.add(&value.all_deps());
                self.may_be_replaced(fields, &value.all_deps());
                self.escape(value, "is spread into an object");
            }
        }
    }

    /// Notes that assigning to a field of this name may call a function.
    pub(super) fn sets(&mut self, key: &Key, func: &Value) {
        // Of a name that is not known, no assignment is told apart.
        let name = key.only_name().cloned().unwrap_or_default();
        let known = self.setters.entry(name).or_default();
        for func in func.funcs() {
            if !known.contains(func) {
                known.push(*func);
                self.changed = true;
            }
        }
    }

    /// Gives what is assigned to a field to the setters of its name; returns whether
    /// there are any.
    pub(super) fn give_to_setters(&mut self, key: &Key, given: &Deps) -> bool {
        let wanted = |name: &str| name.is_empty() || key.only().is_none_or(|key| key == name);
        let setters = self.setters.iter().filter(|(name, _)| wanted(name));
        let mut setters: Vec<FuncId> = setters.flat_map(|(_, funcs)| funcs.clone()).collect();
        setters.sort_unstable();
        for func in &setters {
            self.call_from_unknown(*func, given, true, true);
        }
        !setters.is_empty()
    }

    /// Gives up on fields that a later one, whose name is not known, may replace.
    fn may_be_replaced(&mut self, fields: &mut [(Atom, Value)], deps: &Deps) {
        for (_, field) in fields {
            let old = std::mem::replace(field, Value::never());
            if old.is_loaded() {
                self.escape(&old, "may be replaced by what is spread after it");
            }
            *field = Value::computed(old.all_deps().and(deps)).spanning(old.span);
        }
    }

    pub(super) fn array(&mut self, array: &'a ArrayLit) -> Value {
        let mut items = Vec::new();
        let mut known = true;
        let mut deps = Deps::default();
        for (index, item) in array.elems.iter().enumerate() {
            let Some(item) = item else {
                // A hole shows what the prototype has there.
                items.push(Value::computed(Deps::default()));
                continue;
            };
            // Members of a fork are told apart by their place.
            let before = self.branch.take_if(|branch| branch.starts_with("member"));
            if before.is_some() {
                self.branch = Some(format!("member {index}").into());
            }
            let value = match item.spread {
                Some(_) => {
                    let mut value = self.looked_at(&item.expr);
                    self.takes(&value, Use::Spread);
                    if value.parts().any(Value::is_container) {
                        self.stir(&value);
                    }
                    value.tables = None;
                    value
                }
                None => self.expr(&item.expr),
            };
            if before.is_some() {
                self.branch = before;
            }
            if item.spread.is_none() {
                items.push(value);
                continue;
            }
            match &value.form {
                Form::Array(spread) => {
                    deps.add(&value.deps);
                    items.extend(spread.iter().cloned().map(|mut item| {
                        item.loosen(value.shared);
                        item.shared |= value.shared;
                        item
                    }));
                }
                _ => {
                    known = false;
                    let item = self.item(&value);
                    items.push(item.with_deps(&value.all_deps()));
                }
            }
        }
        let made = if known {
            Value::array(items)
        } else {
            let mut item = Value::never();
            for one in &items {
                item = self.join(&item, one);
            }
            Value::items(item)
        };
        let mut made = self.bounded(made);
        made.deps.add(&deps);
        made
    }
}

/// The most fields among which an earlier one of the same name is looked for.
const SEARCHED: usize = 256;

/// Sets a field; a later one of the same name replaces the earlier.
pub(super) fn put(fields: &mut Vec<(Atom, Value)>, name: Atom, value: Value) {
    // Looking up a field finds the last one of its name, so that an object of
    // thousands of fields need not be searched for each.
    let searched = if fields.len() > SEARCHED { 0 } else { fields.len() };
    match fields[..searched].iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = value,
        None => fields.push((name, value)),
    }
}
