//! Operators, and the conversions of their operands.

use super::*;
use crate::structure::core::{Scalar, Sum};
use crate::structure::domain::{Kind, Prim, Ref, key_text};

/// The maximum length of a string constant that is concatenated; longer ones are computed.
const TEXT: usize = 4096;

impl Solver<'_> {
    /// Returns the result of an operator.
    pub(super) fn compute(&mut self, how: Sum, of: &[Value]) -> Value {
        match how {
            Sum::Look | Sum::Not => {
                let deps = self.all_own(of);
                let known = match (how, of) {
                    (Sum::Not, [one]) if deps == NONE => self.known_truth(*one),
                    _ => None,
                };
                match known {
                    Some(truth) => self.dom.scalar(Scalar::Bool(!truth)),
                    None => Value::computed(deps),
                }
            }
            Sum::True | Sum::False | Sum::There => self.left(how, of),
            Sum::IsNothing | Sum::IsUndefined => {
                let deps = self.all_own(of);
                let shape = of.first().map(|one| self.dom.shape(*one));
                let is_args = of.first().is_some_and(|one| self.is_args(*one));
                let known = match shape {
                    // `args` is always an object.
                    Some(_) if is_args => Some(false),
                    // A member of the engine may not exist in this engine.
                    Some(shape) if shape.may_be_missing() => None,
                    Some(shape) if !shape.may_be_nothing() => Some(false),
                    Some(shape) => match shape.only() {
                        Some(Scalar::Undefined) => Some(true),
                        Some(Scalar::Null) => Some(how == Sum::IsNothing),
                        _ => None,
                    },
                    None => None,
                };
                match known {
                    // The answer is the same for every value of this shape, so that no source flows into it.
                    Some(truth) => self.dom.scalar(Scalar::Bool(truth)),
                    None => Value::computed(deps),
                }
            }
            Sum::Convert | Sum::In | Sum::Instance => {
                let mut deps = self.all_own(of);
                if let (Sum::Instance, Some(class)) = (how, of.get(1)) {
                    let own = self.prototypes(*class);
                    deps = self.dom.union(deps, own);
                }
                for (place, one) in of.iter().enumerate() {
                    let given = of.get(1 - place.min(1)).copied().unwrap_or(Value::UNDEFINED);
                    let converted = match (how, place) {
                        // `left instanceof right` passes `left` to `right[Symbol.hasInstance]`.
                        (Sum::Instance, 1) => self.convert_given(*one, given),
                        _ => self.convert(*one),
                    };
                    deps = self.dom.union(deps, converted);
                }
                if let (Sum::In | Sum::Instance, [left, right]) = (how, of) {
                    self.pass_to_unknown(*left, *right, deps);
                }
                self.may_fail_by_objects(of, deps);
                Value::computed(deps)
            }
            Sum::Add | Sum::Text => self.text(how, of),
        }
    }

    /// Passes a value to the unknown code that may be behind an object: the traps of a proxy.
    fn pass_to_unknown(&mut self, given: Value, of: Value, deps: Deps) {
        for one in &self.dom.shapes.kept(of.shape).refs {
            match one {
                Ref::Obj(object) => self.pass_to_traps(*object, given, deps),
                Ref::Pool => {
                    self.touch_pool(deps);
                    self.escape(given);
                }
                _ => {}
            }
        }
    }

    /// Narrows a value after a test: `True`, `False` and `There` keep what is truthy, falsy, or neither
    /// `undefined` nor `null`.
    fn left(&mut self, how: Sum, of: &[Value]) -> Value {
        let Some(value) = of.first() else { return Value::UNDEFINED };
        let mut shape = self.dom.shape(*value).clone();
        let is_left = |scalar: &Scalar| match how {
            Sum::There => !matches!(scalar, Scalar::Undefined | Scalar::Null),
            _ => scalar.is_true() == (how == Sum::True),
        };
        shape.absent &= how == Sum::False;
        if let Prim::Consts(scalars) = &mut shape.prim {
            scalars.retain(|scalar| is_left(scalar));
            if scalars.is_empty() {
                shape.prim = Prim::None;
            }
        }
        if how == Sum::False {
            // An object of the program and `mcp` are always truthy. Data may be a falsy scalar.
            shape.refs.retain(|one| {
                !matches!(one, Ref::Obj(_) | Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..))
            });
        }
        if shape.refs.is_empty() {
            shape.promised = crate::structure::domain::Promised::No;
        }
        Value { deps: value.deps, shape: self.dom.shapes.add(shape) }
    }

    /// Returns the truth value of a value that is `undefined`, `null` or a Boolean constant.
    fn known_truth(&self, value: Value) -> Option<bool> {
        match self.dom.shape(value).only()? {
            Scalar::Undefined | Scalar::Null => Some(false),
            Scalar::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the sources of the values themselves, without those of their parts.
    fn all_own(&mut self, of: &[Value]) -> Deps {
        let mut deps = NONE;
        for one in of {
            let own = self.dom.sources.used(one.deps);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    /// Concatenates strings (`+`, templates).
    fn text(&mut self, how: Sum, of: &[Value]) -> Value {
        let mut deps = self.all_own(of);
        for one in of {
            let converted = self.convert(*one);
            deps = self.dom.union(deps, converted);
        }
        let known = self.known_texts(how, of);
        if how == Sum::Add || self.core.symbols {
            self.may_fail_by_objects(of, deps);
        } else {
            for one in of {
                // Of the scalars, only a symbol cannot be converted, and this program names none.
                if !self.dom.shape(*one).refs.is_empty() {
                    self.may_fail_by_objects(&[*one], deps);
                }
            }
        }
        let Some(texts) = known else { return Value::computed(deps) };
        let mut value = Value::NEVER;
        for text in texts {
            let one = self.dom.scalar(Scalar::Text(text.into()));
            value = self.dom.join(value, one);
        }
        self.dom.with(value, deps)
    }

    /// Returns the string that `list.join(…)` makes, if it is known.
    pub(super) fn joined_text(&mut self, list: Value, args: &Args) -> Option<Value> {
        let between = match (args.list.first(), args.rest) {
            (Some(between), _) => *between,
            (None, None) => self.dom.scalar(Scalar::Text(",".into())),
            (None, Some(_)) => return None,
        };
        let mut parts = Vec::new();
        for item in self.exact_items(list)? {
            if !parts.is_empty() {
                parts.push(between);
            }
            parts.push(item);
        }
        let is_plain = |part: &Value| match &self.dom.shape(*part).prim {
            Prim::Consts(scalars) => {
                scalars.iter().all(|one| matches!(one, Scalar::Text(_) | Scalar::Number(_)))
            }
            _ => false,
        };
        if !parts.iter().all(is_plain) {
            return None;
        }
        self.known_texts(Sum::Text, &parts)?;
        let text = self.text(Sum::Text, &parts);
        let deps = self.dom.sources.used(list.deps);
        Some(self.dom.with(text, deps))
    }

    /// Returns the strings that the parts make, if they are known.
    ///
    /// At most one part may have several constants: with two of them, it is not known which go together.
    fn known_texts(&self, how: Sum, of: &[Value]) -> Option<SmallVec<[String; 1]>> {
        let is_text = |value: &Value| match &self.dom.shape(*value).prim {
            Prim::Consts(scalars) => scalars.iter().all(|one| matches!(one, Scalar::Text(_))),
            _ => false,
        };
        if how != Sum::Text && !of.iter().any(is_text) {
            return None;
        }
        let mut texts: SmallVec<[String; 1]> = smallvec::smallvec![String::new()];
        for one in of {
            let shape = self.dom.shape(*one);
            let (Prim::Consts(scalars), true) =
                (&shape.prim, shape.refs.is_empty() && !shape.absent)
            else {
                return None;
            };
            let parts: Option<SmallVec<[swc_atoms::Atom; 1]>> =
                scalars.iter().map(key_text).collect();
            let parts = parts?;
            if texts.len() > 1 && parts.len() > 1 {
                return None;
            }
            texts = texts
                .iter()
                .flat_map(|text| parts.iter().map(move |part| format!("{text}{part}")))
                .collect();
            if texts.iter().map(String::len).sum::<usize>() > TEXT {
                return None;
            }
        }
        Some(texts)
    }

    /// Records that the conversion of objects may fail, depending on everything that flows into their converted
    /// form.
    fn may_fail_by_objects(&mut self, of: &[Value], deps: Deps) {
        if self.handlers.is_empty() {
            return;
        }
        for one in of {
            let shape = self.dom.shape(*one);
            if !shape.refs.is_empty() {
                self.may_fail_by(Value::computed(deps));
            } else if matches!(shape.prim, Prim::Any) {
                self.may_fail_by(*one);
            }
        }
    }

    /// Returns what decides which prototype objects a class and its parents have, for `instanceof`.
    fn prototypes(&mut self, class: Value) -> Deps {
        let mut deps = NONE;
        for one in &self.dom.shapes.kept(class.shape).refs {
            let Ref::Obj(object) = one else { continue };
            for above in self.lineage(*object).0 {
                let own = self.own(above, self.known.prototype);
                deps = self.dom.union(deps, own.deps);
            }
        }
        deps
    }

    /// Converts a value to a string or a number (`ToPrimitive`), which may call methods of the program. Returns
    /// the sources of the parts that flow into the result.
    pub(super) fn convert(&mut self, value: Value) -> Deps {
        // `Symbol.toPrimitive` is passed the wanted kind of result.
        self.convert_given(value, Value::computed(NONE))
    }

    /// The same, with the argument that the called methods get.
    fn convert_given(&mut self, value: Value, given: Value) -> Deps {
        if self.dom.shape(value).refs.is_empty() {
            return NONE;
        }
        let mut deps = NONE;
        let mut seen: SmallVec<[ObjId; 4]> = SmallVec::new();
        let mut open: SmallVec<[Value; 4]> = smallvec::smallvec![value];
        let mut many = false;
        while let Some(value) = open.pop() {
            for one in &self.dom.shapes.kept(value.shape).refs {
                match one {
                    Ref::Obj(object) => {
                        if seen.contains(object) {
                            continue;
                        }
                        seen.push(*object);
                        let own = self.reach(Value { deps: NONE, shape: value.shape });
                        deps = self.dom.union(deps, own);
                        self.touch(*object, value.deps);
                        // No object of the program has a method that a conversion would call.
                        if !self.engine.converts && !self.core.accessors {
                            continue;
                        }
                        let called = self.call_conversions(value, *object, given, many);
                        many = true;
                        deps = self.dom.union(deps, called);
                        // An error's string is made of its `name` and `message`, which are converted in turn.
                        for name in ["name", "message"] {
                            let held = match self.dom.names.known(&name.into()) {
                                Some(name) => self.own(*object, name),
                                None => Value::NEVER,
                            };
                            if !self.dom.shape(held).refs.is_empty() {
                                open.push(held);
                            }
                        }
                        // A list's string is that of its items, and a pattern starts at its `lastIndex`.
                        if matches!(
                            self.heap.objects[*object as usize].kind,
                            Kind::Array | Kind::Opaque | Kind::Pattern
                        ) {
                            for (_, cell) in self.heap.objects[*object as usize].keys.clone() {
                                let item = self.read(cell);
                                if !self.dom.shape(item).refs.is_empty() {
                                    open.push(item);
                                }
                            }
                        }
                    }
                    Ref::Data(object, _) => {
                        self.touch(*object, value.deps);
                        let own = self.written_into(*object);
                        deps = self.dom.union(deps, own);
                        if self.engine.converts
                            && let Some(cell) = self.heap.find(*object, self.known.elem)
                        {
                            let written = self.read(cell);
                            if !self.dom.shape(written).refs.is_empty() && !seen.contains(object) {
                                seen.push(*object);
                                let _ = self.unknown(&[written]);
                            }
                        }
                    }
                    Ref::Pool => {
                        self.touch_pool(value.deps);
                        deps = self.dom.union(deps, self.escaped.deps);
                    }
                    Ref::Mcp | Ref::Namespace(_) => self.tool_gap(*one, How::MadeText),
                    _ => {}
                }
            }
        }
        deps
    }

    /// Calls the methods of an object by which the engine may convert it. Which of them it calls depends on the
    /// operator; each is walked as optional.
    fn call_conversions(&mut self, value: Value, object: ObjId, with: Value, many: bool) -> Deps {
        let mut deps = NONE;
        if !self.follows(Rule::Conversion) {
            return deps;
        }
        let names = ["toString", "valueOf", "join", "@@toPrimitive", "@@hasInstance"];
        let is_array = self.heap.objects[object as usize].kind == Kind::Array;
        let names = if is_array { names.split_at(3).0 } else { &names[..] };
        for name in names {
            let mut given = None;
            self.fork(
                NONE,
                |solver| {
                    solver.under(NONE, true, many, |solver| {
                        given = solver.call_named(value, object, name, with);
                    });
                    true
                },
                |_| true,
            );
            if let Some(given) = given {
                let own = self.reach(given);
                deps = self.dom.union(deps, own);
            }
        }
        if self.core.accessors {
            // The default conversions read these properties, which may be getters.
            let this = Value { deps: value.deps, shape: self.dom.shapes.of_ref(Ref::Obj(object)) };
            let (lineage, above) = self.lineage(object);
            for name in ["@@toStringTag", "name", "message"] {
                let name = self.dom.name(&name.into());
                for object in &lineage {
                    let Some(getter) = self.accessor(*object, "get", name) else { continue };
                    let getter = self.present(getter);
                    let given = self.optionally(above, |solver| {
                        solver.call_value(getter, Some(this), &Args::default(), false)
                    });
                    let own = self.reach(given);
                    for own in [own, above, getter.deps] {
                        deps = self.dom.union(deps, own);
                    }
                }
            }
        }
        deps
    }

    /// Calls a method of an object, if the program defines one of this name; returns its result.
    pub(super) fn call_named(
        &mut self,
        value: Value,
        object: ObjId,
        name: &str,
        with: Value,
    ) -> Option<Value> {
        let name = self.dom.name(&name.into());
        let method = self.own_method(object, name)?;
        let this = Value { deps: value.deps, shape: self.dom.shapes.of_ref(Ref::Obj(object)) };
        let deps = method.deps;
        if self.dom.shape(method).refs.is_empty() {
            return Some(Value::computed(deps));
        }
        let args = Args { list: smallvec::smallvec![with], rest: None };
        let given = self.for_one_of(value, |solver| {
            solver.optionally_if(deps, |solver| solver.call_value(method, Some(this), &args, false))
        });
        Some(self.dom.with(given, deps))
    }
}
