//! Classes: their methods may be called by anybody who has an object of them.

use swc_atoms::Atom;
use swc_common::Spanned;
use swc_ecma_ast::{Class, ClassDecl, ClassExpr, ClassMember, Expr, Key as ClassKey, MethodKind};

use super::Builder;
use super::body::is_method;
use super::call::CallKind;
use super::expr::bare;
use super::feed::Slot;
use super::function::FuncBody;
use super::member::Key;
use super::scope::ScopeKind;
use super::value::{Deps, Form, FuncId, Value};

/// The fields under which a class is followed; no program can write them.
const OBJECTS: &str = "class objects";
const MAKERS: &str = "class constructor";

/// A class, by where it begins, and whether its static side is meant.
pub(super) type ClassSide = (u32, bool);

/// A method of a class, or a getter.
#[derive(Debug, Clone)]
pub(super) struct Member {
    value: Value,
    is_getter: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn class_decl(&mut self, declared: &'a ClassDecl) {
        let value = self.class(&declared.class);
        if let Some(binding) = self.lookup(&declared.ident.sym) {
            self.write(binding, value);
        }
    }

    pub(super) fn class_expr(&mut self, class: &'a ClassExpr) -> Value {
        let Some(name) = &class.ident else { return self.class(&class.class) };
        let key = class.class.span.lo.0;
        let scope = self.scope_at(key, ScopeKind::Name, |names| names.push((&name.sym, false)));
        self.within(scope, |builder| {
            let value = builder.class(&class.class);
            if let Some(binding) = builder.lookup(&name.sym) {
                builder.write(binding, value.clone());
            }
            value
        })
    }

    fn class(&mut self, class: &'a Class) -> Value {
        let key = class.span.lo.0;
        let mut deps = Deps::default();
        if let Some(parent) = &class.super_class {
            let parent = self.expr(parent);
            deps.add(&parent.all_deps());
            self.escape(&parent, "is the parent of a class");
        }
        let mut methods: Vec<(Atom, Value)> = Vec::new();
        let mut statics: Vec<(Atom, Value)> = Vec::new();
        let mut makers = Value::never();
        let mut hidden: Vec<Value> = Vec::new();
        let mut initializers: Vec<(FuncId, bool)> = Vec::new();
        for member in &class.body {
            match member {
                ClassMember::Constructor(constructor) if constructor.body.is_some() => {
                    let func = self.func_of(FuncBody::Constructor(constructor));
                    self.funcs[func as usize].maker_of = Some(key);
                    self.class_code.insert(constructor.span.lo.0, (key, false));
                    makers = Value::function(func);
                }
                ClassMember::Method(method) if method.function.body.is_some() => {
                    let side = (key, method.is_static);
                    let key = self.prop_key(&method.key);
                    deps.add(&key.deps);
                    let value = self.function(FuncBody::Function(&method.function));
                    self.class_code.insert(method.function.span.lo.0, side);
                    if let Some(name) = key.only_name() {
                        self.has_member(side, name.clone(), &value, method.kind);
                    }
                    let plain = method.kind == MethodKind::Method;
                    if method.kind == MethodKind::Setter {
                        self.sets(&key, &value);
                    }
                    match key.only_name() {
                        Some(name) if plain && method.is_static => {
                            statics.push((name.clone(), value))
                        }
                        Some(name) if plain => methods.push((name.clone(), value)),
                        _ => hidden.push(value),
                    }
                }
                ClassMember::PrivateMethod(method) => {
                    let value = self.function(FuncBody::Function(&method.function));
                    let name = Atom::from(format!("#{}", method.key.name));
                    let side = (key, method.is_static);
                    self.class_code.insert(method.function.span.lo.0, side);
                    self.has_member(side, name.clone(), &value, method.kind);
                    let plain = method.kind == MethodKind::Method;
                    if method.kind == MethodKind::Setter {
                        self.sets(&Key::of(name.clone()), &value);
                    }
                    match (plain, method.is_static) {
                        (true, true) => statics.push((name, value)),
                        (true, false) => methods.push((name, value)),
                        _ => hidden.push(value),
                    }
                }
                ClassMember::ClassProp(prop) if !prop.declare => {
                    let name = self.prop_key(&prop.key);
                    deps.add(&name.deps);
                    let side = (key, prop.is_static);
                    if let Some(value) = &prop.value {
                        self.class_code.insert(value.span().lo.0, side);
                    }
                    let value =
                        self.field(prop.value.as_deref(), prop.is_static, &mut initializers);
                    if let (Some(name), Form::Function) = (name.only_name(), &value.form) {
                        self.has_member(side, name.clone(), &value, MethodKind::Method);
                    }
                    deps.add(&value.all_deps());
                    let fields = if prop.is_static { &mut statics } else { &mut methods };
                    self.keep_tools(fields, name.only(), value);
                }
                ClassMember::PrivateProp(prop) => {
                    let name = format!("#{}", prop.key.name);
                    let value =
                        self.field(prop.value.as_deref(), prop.is_static, &mut initializers);
                    deps.add(&value.all_deps());
                    let fields = if prop.is_static { &mut statics } else { &mut methods };
                    self.keep_tools(fields, Some(&name), value);
                }
                ClassMember::AutoAccessor(prop) => {
                    if let ClassKey::Public(key) = &prop.key {
                        let name = self.prop_key(key);
                        deps.add(&name.deps);
                    }
                    let value =
                        self.field(prop.value.as_deref(), prop.is_static, &mut initializers);
                    self.escape(&value, "is kept in a field of a class");
                    deps.add(&value.all_deps());
                }
                #[cfg(test)]
                ClassMember::StaticBlock(_)
                    if super::fault::is(super::fault::Fault::StaticBlocks) => {}
                ClassMember::StaticBlock(block) => {
                    let body = FuncBody::Static(block);
                    let _ = self.initialize(body, true, &mut initializers);
                }
                _ => {}
            }
        }
        for (name, value) in self.class_fields.get(&key).cloned().unwrap_or_default() {
            self.keep_tools(&mut methods, Some(&name), value);
        }
        let named = methods.iter().chain(&statics).map(|(name, value)| (Some(name), value));
        let holds_tools = methods.iter().chain(&statics).any(|(_, value)| value.holds_only_tools());
        let mut all: Vec<(bool, FuncId)> = Vec::new();
        for (name, value) in
            named.chain([&makers].into_iter().chain(&hidden).map(|value| (None, value)))
        {
            let unasked = name.is_none_or(|name| is_called_unasked(name));
            all.extend(value.funcs().iter().map(|func| (unasked, *func)));
        }
        let code: Vec<FuncId> = all.iter().map(|(_, func)| *func).collect();
        for (unasked, func) in all {
            // A subclass, or whoever has an object of the class, may call it.
            self.open(func);
            if unasked {
                deps.add(&self.funcs[func as usize].returned.all_deps());
            }
        }
        let mut objects = Value::object(methods, true);
        objects.deps = deps.clone().and(&self.put_by(&initializers, false));
        // The constructor, a field or a getter may have put something else in the place
        // of a method.
        objects.shared = true;
        if holds_tools {
            // Also code that nobody calls by its name reaches them through `this`.
            for func in code.iter().chain(initializers.iter().map(|(func, _)| func)) {
                self.called_on(*func, &objects);
                for (_, value) in &statics {
                    if value.holds_only_tools() {
                        self.called_on(*func, &Value::object(statics.clone(), true));
                        break;
                    }
                }
            }
        }
        let mut fields = vec![(OBJECTS.into(), objects), (MAKERS.into(), makers)];
        fields.extend(statics);
        let mut made = Value::object(fields, true);
        made.deps = deps.and(&self.put_by(&initializers, true));
        made.shared = true;
        self.bounded(made)
    }

    fn has_member(&mut self, side: ClassSide, name: Atom, value: &Value, kind: MethodKind) {
        if kind != MethodKind::Setter {
            let is_getter = kind == MethodKind::Getter;
            self.class_members.insert((side, name), Member { value: value.clone(), is_getter });
        }
    }

    /// Returns whether `this.name`, or a call of it, gives a promise by how the class is written in whose code it
    /// stands.
    pub(super) fn gives_own_promise(&self, object: &Expr, key: &Key, is_called: bool) -> bool {
        let (Expr::This(_), Some(name)) = (bare(object), key.only_name()) else { return false };
        let code = self.funcs[self.arguments_owner() as usize].body.span().lo.0;
        let Some(side) = self.class_code.get(&code) else { return false };
        let Some(member) = self.class_members.get(&(*side, name.clone())) else { return false };
        member.is_getter != is_called && self.gives_promises(&member.value)
    }

    /// Returns what static code of a class puts into the class, or what its fields, and
    /// the functions in them, put into its objects.
    fn put_by(&self, initializers: &[(FuncId, bool)], statically: bool) -> Deps {
        let mut deps = Deps::default();
        for (func, _) in initializers.iter().filter(|(_, is_static)| *is_static == statically) {
            for fed in &self.funcs[*func as usize].feeds {
                if fed.slot == Slot::This {
                    deps.add(&fed.gets());
                }
            }
        }
        deps
    }

    /// Follows what a field is set to when an object is made.
    fn field(
        &mut self,
        value: Option<&'a swc_ecma_ast::Expr>,
        is_static: bool,
        initializers: &mut Vec<(FuncId, bool)>,
    ) -> Value {
        #[cfg(test)]
        let value = value.filter(|_| !super::fault::is(super::fault::Fault::ClassFields));
        let Some(value) = value else { return Value::undefined() };
        self.initialize(FuncBody::Field(value), is_static, initializers)
    }

    /// Keeps track of the tools in a field. Whatever else leads to tools escapes
    /// when it is put into a field, so that nothing unseen can take their place.
    fn keep_tools(&mut self, fields: &mut Vec<(Atom, Value)>, name: Option<&str>, value: Value) {
        let Some(name) = name else {
            self.escape(&value, "is kept in a field of a class");
            return;
        };
        if !value.holds_only_tools() && !is_method(&value) {
            return;
        }
        let value = match fields.iter().position(|(known, _)| **known == *name) {
            Some(at) => {
                let (_, known) = fields.remove(at);
                self.join(&known, &value)
            }
            None => value,
        };
        fields.push((name.into(), value));
    }

    /// Keeps the tools that a constructor puts into the object it makes; returns
    /// whether they are kept track of.
    pub(super) fn put_by_maker(&mut self, name: &str, value: &Value) -> bool {
        let owner = self.arguments_owner();
        let Some(class) = self.funcs[owner as usize].maker_of else { return false };
        if !value.holds_only_tools() {
            return false;
        }
        let known = self.class_fields.entry(class).or_default();
        let at = known.iter().position(|(field, _)| **field == *name);
        let before = at.map(|at| known[at].1.clone());
        let joined = match &before {
            Some(before) => self.join(before, value),
            None => value.clone(),
        };
        let joined = self.bounded(joined);
        if before.as_ref() != Some(&joined) {
            let known = self.class_fields.entry(class).or_default();
            match at {
                Some(at) => known[at].1 = joined,
                None => known.push((name.into(), joined)),
            }
            self.changed = true;
        }
        true
    }

    /// Follows code that runs after all keys of the class, or with each of its objects:
    /// like a function, it sees the variables around it as they are by then.
    fn initialize(
        &mut self,
        body: FuncBody<'a>,
        is_static: bool,
        initializers: &mut Vec<(FuncId, bool)>,
    ) -> Value {
        let func = self.func_of(body);
        initializers.push((func, is_static));
        self.call_from_unknown(func, &Deps::default(), !is_static, !is_static);
        self.funcs[func as usize].returned.clone()
    }

    /// Returns the object that a call of a class makes, and what the call runs.
    pub(super) fn constructed(
        &mut self,
        callee: &Value,
        kind: CallKind,
    ) -> (Option<Value>, Vec<FuncId>) {
        let mut funcs = callee.funcs().to_vec();
        let mut made = None;
        if let (Form::Object { fields, .. }, CallKind::New, false) =
            (&callee.form, kind, callee.partial)
        {
            let find = |wanted: &str| fields.iter().find(|(name, _)| &**name == wanted);
            made = find(OBJECTS).map(|(_, objects)| objects.clone().with_deps(&callee.deps));
            funcs.extend(find(MAKERS).iter().flat_map(|(_, maker)| maker.funcs().to_vec()));
        }
        (made, funcs)
    }
}

/// Returns the constructors of a class.
pub(super) fn makers(class: &Value) -> Vec<FuncId> {
    match &class.form {
        Form::Object { fields, .. } => {
            let maker = fields.iter().find(|(name, _)| &**name == MAKERS);
            maker.map_or_else(Vec::new, |(_, maker)| maker.funcs().to_vec())
        }
        _ => Vec::new(),
    }
}

/// Returns whether the engine calls a method of this name where a value is turned
/// into another.
fn is_called_unasked(name: &str) -> bool {
    matches!(name, "toString" | "valueOf" | "toJSON" | "then")
}
