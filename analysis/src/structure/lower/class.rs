//! Classes: a constructor, a prototype, and a function that initializes the fields of new objects.

use super::super::core::{Arg, CallForm, Made, Put, Wait};
use super::*;

/// The internal property of a class that holds the function which initializes the fields.
const FIELDS: &str = "%fields";
/// The property of a class that holds what it extends.
const PARENT: &str = "%proto";

impl Lower {
    pub(super) fn class(&mut self, class: &ast::Class, name: Option<&Atom>) -> Slot {
        let span = class.span;
        self.scoped(|lower| {
            let parent = class.super_class.as_ref().map(|parent| lower.expr(parent));
            let home = lower.frame().declare(&"%home".into());
            let own = lower.frame().declare(&"%class".into());
            let named = name.map(|name| lower.frame().declare(name));
            lower.emit(span, Op::New { to: home, made: Made::Object });
            let func = lower.constructor(class);
            let made = lower.closure(span, func);
            lower.emit(span, Op::Copy { to: own, from: made });
            if let Some(to) = named {
                lower.emit(span, Op::Copy { to, from: made });
            }
            lower.emit(span, Op::Class { class: made, prototype: home, parent });
            lower.members(class, made, home);
            made
        })
    }

    fn constructor(&mut self, class: &ast::Class) -> FuncId {
        let derived = class.super_class.is_some();
        let form = FuncForm::Constructor { derived };
        let written = class.body.iter().find_map(|member| match member {
            ast::ClassMember::Constructor(constructor) if constructor.body.is_some() => {
                Some(constructor)
            }
            _ => None,
        });
        let span = written.map_or(class.span, |constructor| constructor.span);
        let frame = Frame::new(form, false, false);
        self.enter(offset(span.lo), frame, |lower| {
            // A base class initializes its fields before the constructor body, a derived class after `super(…)`.
            if !derived {
                lower.init_fields(span);
            }
            match written {
                Some(constructor) => {
                    let params: Vec<ast::Pat> =
                        constructor.params.iter().map(constructor_param).collect();
                    lower.params(&params.iter().collect::<Vec<_>>());
                    lower.set_param_props(&constructor.params);
                    if let Some(body) = &constructor.body {
                        lower.body(&body.stmts);
                    }
                }
                None if derived => {
                    let rest = lower.fresh();
                    lower.emit(span, Op::Rest { to: rest, index: 0 });
                    let callee = lower.parent(span);
                    let this = Some(MADE);
                    let args = vec![Arg { slot: rest, spread: true }];
                    let to = lower.fresh();
                    let (form, wait) = (CallForm::Super, Wait::Now);
                    lower.emit(span, Op::Call { to, callee, this, args, form, wait });
                    lower.set_this_from_super(span, to);
                    lower.init_fields(span);
                }
                None => {}
            }
        })
    }

    /// Sets the fields that parameter properties such as `constructor(private x)` declare.
    fn set_param_props(&mut self, params: &[ast::ParamOrTsParamProp]) {
        for param in params {
            let ast::ParamOrTsParamProp::TsParamProp(prop) = param else { continue };
            let name = match &prop.param {
                ast::TsParamPropParam::Ident(name) => &name.id.sym,
                ast::TsParamPropParam::Assign(assign) => match &*assign.left {
                    ast::Pat::Ident(name) => &name.id.sym,
                    _ => continue,
                },
            };
            let from = self.read(prop.span, name);
            let key = self.defined_key(name);
            self.emit(prop.span, Op::Set { object: THIS, key, from });
        }
    }

    /// Reads the constructor that `super(…)` calls: the prototype of the class at the time of the call.
    pub(super) fn parent(&mut self, span: Span) -> Slot {
        let object = self.read_own(span, "%class");
        let to = self.fresh();
        self.emit(span, Op::Get { to, object, key: Key::Name(PARENT.into()), called: true });
        to
    }

    /// Makes the result of `super(…)` the new object.
    pub(super) fn set_this_from_super(&mut self, span: Span, from: Slot) {
        self.write(span, &"this".into(), from);
        if matches!(self.frame().form, FuncForm::Constructor { .. }) {
            self.emit(span, Op::Copy { to: RESULT, from });
        }
    }

    /// Calls the function that initializes the fields of a new object.
    pub(super) fn init_fields(&mut self, span: Span) {
        let object = self.read_own(span, "%class");
        let callee = self.fresh();
        let key = Key::Name(FIELDS.into());
        self.emit(span, Op::Get { to: callee, object, key, called: true });
        let this = Some(self.read_own(span, "this"));
        let to = self.fresh();
        let (form, wait) = (CallForm::Plain, Wait::Now);
        self.emit(span, Op::Call { to, callee, this, args: Vec::new(), form, wait });
    }

    fn members(&mut self, class: &ast::Class, made: Slot, proto: Slot) {
        let mut fields: Vec<(Key, Option<&ast::Expr>, Span)> = Vec::new();
        // All computed keys are evaluated before any static initializer runs.
        let mut statics: Vec<(Option<Key>, &ast::ClassMember)> = Vec::new();
        for member in &class.body {
            match member {
                // A signature without a body is erased. Its parameters, defaults and key never run.
                ast::ClassMember::Method(ast::ClassMethod { function, .. })
                | ast::ClassMember::PrivateMethod(ast::PrivateMethod { function, .. })
                    if function.body.is_none() => {}
                ast::ClassMember::Method(method) => {
                    let key = self.prop_key(&method.key);
                    let target = if method.is_static { made } else { proto };
                    self.method(target, key, &method.function, method.kind, method.span);
                }
                ast::ClassMember::PrivateMethod(method) => {
                    let key = Key::Name(format!("#{}", method.key.name).into());
                    let target = if method.is_static { made } else { proto };
                    self.method(target, key, &method.function, method.kind, method.span);
                }
                ast::ClassMember::ClassProp(prop) if !prop.declare && !prop.is_abstract => {
                    let key = self.prop_key(&prop.key);
                    let key = self.kept_key(key, prop.span);
                    if prop.is_static {
                        statics.push((Some(key), member));
                    } else {
                        fields.push((key, prop.value.as_deref(), prop.span));
                    }
                }
                ast::ClassMember::PrivateProp(prop) => {
                    let key = Key::Name(format!("#{}", prop.key.name).into());
                    if prop.is_static {
                        statics.push((Some(key), member));
                    } else {
                        fields.push((key, prop.value.as_deref(), prop.span));
                    }
                }
                ast::ClassMember::StaticBlock(_) => statics.push((None, member)),
                ast::ClassMember::AutoAccessor(accessor) => {
                    self.unknown(accessor.span, vec![made]);
                }
                _ => {}
            }
        }
        self.set_fields(class.span, made, &fields);
        self.with_home(made, class.span, |lower| {
            for (key, member) in statics {
                lower.static_member(made, key, member);
            }
        });
    }

    /// Stores a computed key for the function that initializes the fields.
    fn kept_key(&mut self, key: Key, span: Span) -> Key {
        let Key::Slot(from) = key else { return key };
        let name: Atom = format!("%key{}", offset(span.lo)).into();
        let to = self.frame().declare(&name);
        self.emit(span, Op::Copy { to, from });
        Key::Slot(to)
    }

    fn method(
        &mut self,
        object: Slot,
        key: Key,
        function: &ast::Function,
        kind: ast::MethodKind,
        span: Span,
    ) {
        let how = match kind {
            ast::MethodKind::Method => Put::Value,
            ast::MethodKind::Getter => Put::Getter,
            ast::MethodKind::Setter => Put::Setter,
        };
        self.core.accessors |= how != Put::Value;
        let from =
            self.with_home(object, span, |lower| lower.function_value(function, FuncForm::Method));
        self.emit(span, Op::Put { object, key, from, how });
    }

    /// Lowers code in which `super` refers to the prototype of `object`.
    fn with_home<T>(&mut self, object: Slot, span: Span, make: impl FnOnce(&mut Self) -> T) -> T {
        self.scoped(|lower| {
            let home = lower.frame().declare(&"%home".into());
            lower.emit(span, Op::Copy { to: home, from: object });
            make(lower)
        })
    }

    fn set_fields(&mut self, span: Span, made: Slot, fields: &[(Key, Option<&ast::Expr>, Span)]) {
        let frame = Frame::new(FuncForm::Plain, false, false);
        let func = self.enter(offset(span.lo), frame, |lower| {
            for (key, value, span) in fields {
                let key = match key {
                    Key::Slot(_) => {
                        Key::Slot(lower.read_own(*span, &format!("%key{}", offset(span.lo))))
                    }
                    key => key.clone(),
                };
                let from = match value {
                    Some(value) => lower.expr(value),
                    None => lower.undefined(*span),
                };
                lower.emit(*span, Op::Put { object: THIS, key, from, how: Put::Value });
            }
        });
        let from = self.closure(span, func);
        let key = Key::Name(FIELDS.into());
        self.emit(span, Op::Put { object: made, key, from, how: Put::Value });
    }

    /// Runs a static initializer or block, with the class as `this`.
    fn static_member(&mut self, made: Slot, key: Option<Key>, member: &ast::ClassMember) {
        let span = member.span();
        let frame = Frame::new(FuncForm::Plain, false, false);
        let func = self.enter(offset(span.lo), frame, |lower| match member {
            ast::ClassMember::StaticBlock(block) => lower.body(&block.body.stmts),
            ast::ClassMember::ClassProp(ast::ClassProp { value: Some(value), .. })
            | ast::ClassMember::PrivateProp(ast::PrivateProp { value: Some(value), .. }) => {
                lower.value_to(value, RESULT);
            }
            _ => {}
        });
        let callee = self.closure(span, func);
        let to = self.fresh();
        let (this, form, wait) = (Some(made), CallForm::Plain, Wait::Now);
        self.emit(span, Op::Call { to, callee, this, args: Vec::new(), form, wait });
        if let Some(key) = key {
            self.emit(span, Op::Put { object: made, key, from: to, how: Put::Value });
        }
    }

    /// Lowers `super.key`.
    pub(super) fn above(&mut self, prop: &ast::SuperPropExpr) -> Slot {
        let home = self.read_own(prop.span, "%home");
        let this = self.read_own(prop.span, "this");
        let key = self.super_key(&prop.prop);
        let to = self.fresh();
        self.emit(prop.span, Op::Above { to, home, this, key });
        to
    }
}

fn constructor_param(param: &ast::ParamOrTsParamProp) -> ast::Pat {
    match param {
        ast::ParamOrTsParamProp::Param(param) => param.pat.clone(),
        ast::ParamOrTsParamProp::TsParamProp(prop) => match &prop.param {
            ast::TsParamPropParam::Ident(name) => ast::Pat::Ident(name.clone()),
            ast::TsParamPropParam::Assign(assign) => ast::Pat::Assign(assign.clone()),
        },
    }
}
