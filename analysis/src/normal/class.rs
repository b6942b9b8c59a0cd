//! The form of functions, classes and object literals.

use swc_ecma_ast::{
    Class, ClassMember, Function, FunctionBody, Key, MethodKind, ObjectLit, ParamOrTsParamProp,
    Pat, PrivateName, Prop, PropName, PropOrSpread,
};

use super::Writer;
use super::scope::{bound_by, hoisted, lexical};

impl<'a> Writer<'a> {
    pub(super) fn function(&mut self, function: &'a Function) {
        self.flag(function.is_async, "async");
        self.flag(function.is_generator, "generator");
        self.with_body(function.params.iter().map(|param| &param.pat), function.body.as_ref());
    }

    /// Writes the parameters and the body.
    fn with_body(
        &mut self,
        parameters: impl Iterator<Item = &'a Pat> + Clone,
        body: Option<&'a FunctionBody>,
    ) {
        self.with_parameters(parameters, |writer| {
            if let Some(body) = body {
                writer.body(&body.stmts);
            }
        });
    }

    /// Writes the parameters, and runs `walk` in their scope.
    pub(super) fn with_parameters(
        &mut self,
        parameters: impl Iterator<Item = &'a Pat> + Clone,
        walk: impl FnOnce(&mut Self),
    ) {
        let names = || {
            let mut names = Vec::new();
            parameters.clone().for_each(|parameter| bound_by(parameter, &mut names));
            names
        };
        self.scope(names, |writer| {
            writer.node("parameters", |writer| {
                parameters.clone().for_each(|parameter| writer.pattern(parameter));
            });
            walk(writer);
        });
    }

    pub(super) fn class(&mut self, class: &'a Class) {
        self.maybe(class.super_class.as_deref());
        for member in &class.body {
            self.class_member(member);
        }
    }

    fn class_member(&mut self, member: &'a ClassMember) {
        match member {
            ClassMember::Constructor(constructor) => {
                if let Some(body) = &constructor.body {
                    self.node("constructor", |writer| {
                        let parameters: Vec<&Pat> = constructor
                            .params
                            .iter()
                            .filter_map(|parameter| match parameter {
                                ParamOrTsParamProp::Param(parameter) => Some(&parameter.pat),
                                // Parameter properties were refused before.
                                ParamOrTsParamProp::TsParamProp(_) => None,
                            })
                            .collect();
                        writer.with_body(parameters.into_iter(), Some(body));
                    });
                }
            }
            ClassMember::Method(method) => {
                self.method(method.is_static, &method.function, method.kind, |writer| {
                    writer.key(&method.key);
                });
            }
            ClassMember::PrivateMethod(method) => {
                self.method(method.is_static, &method.function, method.kind, |writer| {
                    writer.private(&method.key);
                });
            }
            ClassMember::ClassProp(field) if field.declare || field.is_abstract => {}
            ClassMember::ClassProp(field) => self.node("field", |writer| {
                writer.flag(field.is_static, "static");
                writer.key(&field.key);
                writer.maybe(field.value.as_deref());
            }),
            ClassMember::PrivateProp(field) => self.node("field", |writer| {
                writer.flag(field.is_static, "static");
                writer.private(&field.key);
                writer.maybe(field.value.as_deref());
            }),
            ClassMember::StaticBlock(block) => self.node("static", |writer| {
                let statements = &block.body.stmts;
                writer.scope(
                    || hoisted(statements).into_iter().chain(lexical(statements)),
                    |writer| {
                        // Labels around a class are not visible inside a static block.
                        let labels = std::mem::take(&mut writer.labels);
                        writer.block(statements);
                        writer.labels = labels;
                    },
                );
            }),
            ClassMember::AutoAccessor(field) => self.node("accessor", |writer| {
                writer.flag(field.is_static, "static");
                match &field.key {
                    Key::Private(key) => writer.private(key),
                    Key::Public(key) => writer.key(key),
                }
                writer.maybe(field.value.as_deref());
            }),
            ClassMember::TsIndexSignature(_) | ClassMember::Empty(_) => {}
        }
    }

    fn method(
        &mut self,
        is_static: bool,
        function: &'a Function,
        kind: MethodKind,
        key: impl FnOnce(&mut Self),
    ) {
        // Overloads and abstract methods are erased.
        if function.body.is_none() {
            return;
        }
        let tag = match kind {
            MethodKind::Method => "method",
            MethodKind::Getter => "get",
            MethodKind::Setter => "set",
        };
        self.node(tag, |writer| {
            writer.flag(is_static, "static");
            key(writer);
            writer.function(function);
        });
    }

    pub(super) fn private(&mut self, name: &PrivateName) {
        self.node("private", |writer| writer.text(&name.name));
    }

    pub(super) fn object(&mut self, object: &'a ObjectLit) {
        for property in &object.props {
            match property {
                PropOrSpread::Spread(spread) => {
                    self.node("spread", |writer| writer.expr(&spread.expr));
                }
                PropOrSpread::Prop(property) => self.object_property(property),
            }
        }
    }

    fn object_property(&mut self, property: &'a Prop) {
        match property {
            Prop::Shorthand(name) => {
                // `{ __proto__ }` defines a property; `{ __proto__: x }` sets the prototype.
                let tag = if &*name.sym == "__proto__" { "own" } else { "put" };
                self.node(tag, |writer| {
                    writer.text(&name.sym);
                    writer.name(&name.sym);
                });
            }
            Prop::KeyValue(pair) => self.node("put", |writer| {
                writer.key(&pair.key);
                writer.expr(&pair.value);
            }),
            Prop::Getter(getter) => {
                self.method(false, &getter.function, MethodKind::Getter, |writer| {
                    writer.key(&getter.key);
                });
            }
            Prop::Setter(setter) => {
                self.method(false, &setter.function, MethodKind::Setter, |writer| {
                    writer.key(&setter.key);
                });
            }
            Prop::Method(method) => {
                self.method(false, &method.function, MethodKind::Method, |writer| {
                    writer.key(&method.key);
                });
            }
            Prop::Assign(pair) => self.node("put-default", |writer| {
                writer.text(&pair.key.sym);
                writer.expr(&pair.value);
            }),
        }
    }

    /// Writes a property name; quotes around it make no difference.
    pub(super) fn key(&mut self, key: &'a PropName) {
        match key {
            PropName::Ident(name) => {
                self.property(&name.sym);
                self.text(&name.sym);
            }
            PropName::Str(text) => {
                self.property(text.value.as_str().unwrap_or_default());
                self.string(&text.value);
            }
            PropName::Num(number) => self.number(number.value),
            PropName::BigInt(number) => {
                self.node("bigint", |writer| writer.text(&number.value.to_string()));
            }
            PropName::Computed(computed) => {
                self.node("computed", |writer| writer.expr(&computed.expr));
            }
        }
    }
}
