//! Classes: their methods may be called by anybody who has an object of them.

use std::rc::Rc;

use swc_ecma_ast::{Class, ClassDecl, ClassExpr, ClassMember, Key as ClassKey, PropName};

use super::Builder;
use super::call::CallKind;
use super::function::FuncBody;
use super::scope::ScopeKind;
use super::value::{Deps, Form, FuncId, Value};

/// The fields under which a class is followed; no program can write them.
const OBJECTS: &str = "class objects";
const MAKERS: &str = "class constructor";

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
        let mut deps = Deps::default();
        if let Some(parent) = &class.super_class {
            let parent = self.expr(parent);
            deps.add(&parent.all_deps());
            self.escape(&parent, "is the parent of a class");
        }
        let mut methods: Vec<(Rc<str>, Value)> = Vec::new();
        let mut statics: Vec<(Rc<str>, Value)> = Vec::new();
        let mut makers = Value::never();
        let mut hidden: Vec<Value> = Vec::new();
        for member in &class.body {
            match member {
                ClassMember::Constructor(constructor) if constructor.body.is_some() => {
                    makers = self.function(FuncBody::Constructor(constructor));
                }
                ClassMember::Method(method) if method.function.body.is_some() => {
                    let key = self.prop_key(&method.key);
                    let value = self.function(FuncBody::Function(&method.function));
                    let plain = method.kind == swc_ecma_ast::MethodKind::Method;
                    match key.only() {
                        Some(name) if plain && method.is_static => {
                            statics.push((name.into(), value))
                        }
                        Some(name) if plain => methods.push((name.into(), value)),
                        _ => hidden.push(value),
                    }
                }
                ClassMember::PrivateMethod(method) => {
                    let value = self.function(FuncBody::Function(&method.function));
                    let name = format!("#{}", method.key.name);
                    let plain = method.kind == swc_ecma_ast::MethodKind::Method;
                    match (plain, method.is_static) {
                        (true, true) => statics.push((name.as_str().into(), value)),
                        (true, false) => methods.push((name.as_str().into(), value)),
                        _ => hidden.push(value),
                    }
                }
                ClassMember::ClassProp(prop) if !prop.declare => {
                    if let PropName::Computed(_) = &prop.key {
                        let _ = self.prop_key(&prop.key);
                    }
                    deps.add(&self.field(prop.value.as_deref(), prop.is_static));
                }
                ClassMember::PrivateProp(prop) => {
                    deps.add(&self.field(prop.value.as_deref(), prop.is_static));
                }
                ClassMember::AutoAccessor(prop) => {
                    if let ClassKey::Public(key) = &prop.key {
                        let _ = self.prop_key(key);
                    }
                    deps.add(&self.field(prop.value.as_deref(), prop.is_static));
                }
                ClassMember::StaticBlock(block) => {
                    let body = FuncBody::Static(block);
                    let _ = self.initialize(body, true);
                }
                _ => {}
            }
        }
        let all: Vec<Value> = methods
            .iter()
            .chain(&statics)
            .map(|(_, value)| value.clone())
            .chain([makers.clone()])
            .chain(hidden)
            .collect();
        for value in &all {
            // A subclass, or whoever has an object of the class, may call it.
            for func in value.funcs().to_vec() {
                self.open(func);
                deps.add(&self.funcs[func as usize].returned.all_deps());
            }
        }
        let mut objects = Value::object(methods, true);
        objects.deps = deps.clone();
        // The constructor, a field or a getter may have put something else in the place
        // of a method.
        objects.shared = true;
        let mut fields = vec![(OBJECTS.into(), objects), (MAKERS.into(), makers)];
        fields.extend(statics);
        let mut made = Value::object(fields, true);
        made.deps = deps;
        made.shared = true;
        self.bounded(made)
    }

    /// Follows what a field is set to when an object is made.
    fn field(&mut self, value: Option<&'a swc_ecma_ast::Expr>, is_static: bool) -> Deps {
        let Some(value) = value else { return Deps::default() };
        self.initialize(FuncBody::Field(value), is_static)
    }

    /// Follows code that runs after all keys of the class, or with each of its objects:
    /// like a function, it sees the variables around it as they are by then.
    fn initialize(&mut self, body: FuncBody<'a>, is_static: bool) -> Deps {
        let func = self.func_of(body);
        self.call_from_unknown(func, &Deps::default(), !is_static, !is_static);
        self.funcs[func as usize].returned.all_deps()
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
