//! The form of expressions.

use std::io::Write as _;

use swc_atoms::Wtf8Atom;
use swc_ecma_ast::{
    ArrowFunctionBody, Callee, Expr, ExprOrSpread, Lit, MemberExpr, MemberProp, MetaPropKind,
    OptChainBase, OptChainExpr, SuperProp, SuperPropExpr, Tpl,
};

use super::Writer;

impl<'a> Writer<'a> {
    pub(super) fn maybe(&mut self, value: Option<&'a Expr>) {
        match value {
            Some(value) => self.expr(value),
            None => self.absent(),
        }
    }

    /// Writes a value assigned to the identifier just written; an anonymous function or class takes its name.
    pub(super) fn named_value(&mut self, value: &'a Expr) {
        let anonymous = match bare(value) {
            Expr::Arrow(_) => true,
            Expr::Fn(function) => function.ident.is_none(),
            Expr::Class(class) => class.ident.is_none(),
            _ => false,
        };
        if anonymous {
            self.names_function();
        }
        self.expr(value);
    }

    pub(super) fn expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Paren(inner) => self.expr(&inner.expr),
            Expr::TsTypeAssertion(cast) => self.expr(&cast.expr),
            Expr::TsConstAssertion(cast) => self.expr(&cast.expr),
            Expr::TsNonNull(cast) => self.expr(&cast.expr),
            Expr::TsAs(cast) => self.expr(&cast.expr),
            Expr::TsInstantiation(cast) => self.expr(&cast.expr),
            Expr::TsSatisfies(cast) => self.expr(&cast.expr),
            Expr::This(_) => self.word("this"),
            Expr::Ident(name) => self.name(&name.sym),
            Expr::Lit(literal) => self.literal(literal),
            Expr::Array(array) => self.node("array", |writer| {
                for item in &array.elems {
                    match item {
                        Some(item) => writer.argument(item),
                        None => writer.absent(),
                    }
                }
            }),
            Expr::Object(object) => self.node("object", |writer| writer.object(object)),
            Expr::Unary(unary) => self.node(unary.op.as_str(), |writer| {
                writer.word("unary");
                writer.expr(&unary.arg);
            }),
            Expr::Update(update) => self.node(update.op.as_str(), |writer| {
                writer.word(if update.prefix { "before" } else { "after" });
                writer.expr(&update.arg);
            }),
            Expr::Bin(binary) => self.node(binary.op.as_str(), |writer| {
                writer.expr(&binary.left);
                writer.expr(&binary.right);
            }),
            Expr::Assign(assign) => self.node(assign.op.as_str(), |writer| {
                writer.target(&assign.left);
                match assign.left.as_ident() {
                    Some(_) => writer.named_value(&assign.right),
                    None => writer.expr(&assign.right),
                }
            }),
            Expr::Member(member) => self.member(member),
            Expr::SuperProp(member) => self.super_member(member),
            Expr::Cond(choice) => self.node("?", |writer| {
                writer.expr(&choice.test);
                writer.expr(&choice.cons);
                writer.expr(&choice.alt);
            }),
            Expr::Call(call) => self.node("call", |writer| {
                match &call.callee {
                    Callee::Super(_) => writer.word("super"),
                    Callee::Import(_) => writer.word("import"),
                    Callee::Expr(callee) => writer.expr(callee),
                }
                writer.arguments(&call.args);
            }),
            Expr::New(made) => self.node("new", |writer| {
                writer.expr(&made.callee);
                // `new A` is `new A()`.
                writer.arguments(made.args.as_deref().unwrap_or_default());
            }),
            Expr::Seq(sequence) => self.node(",", |writer| {
                for one in &sequence.exprs {
                    writer.expr(one);
                }
            }),
            Expr::Tpl(template) => self.template(template, false),
            Expr::TaggedTpl(tagged) => self.node("tagged", |writer| {
                writer.expr(&tagged.tag);
                writer.template(&tagged.tpl, true);
            }),
            Expr::Fn(function) => self.node("function", |writer| {
                let own = || function.ident.iter().map(|name| &*name.sym);
                writer.scope(own, |writer| {
                    match &function.ident {
                        Some(name) => {
                            writer.name(&name.sym);
                            writer.names_function();
                        }
                        None => writer.absent(),
                    }
                    writer.function(&function.function);
                });
            }),
            Expr::Class(class) => self.node("class", |writer| {
                let own = || class.ident.iter().map(|name| &*name.sym);
                writer.scope(own, |writer| {
                    match &class.ident {
                        Some(name) => {
                            writer.name(&name.sym);
                            writer.names_function();
                        }
                        None => writer.absent(),
                    }
                    writer.class(&class.class);
                });
            }),
            Expr::Arrow(arrow) => self.node("arrow", |writer| {
                writer.flag(arrow.is_async, "async");
                writer.with_parameters(arrow.params.iter(), |writer| match &*arrow.body {
                    ArrowFunctionBody::FunctionBody(body) => writer.body(&body.stmts),
                    ArrowFunctionBody::Expr(value) => writer.expr(value),
                });
            }),
            Expr::Yield(given) => self.node("yield", |writer| {
                writer.flag(given.delegate, "all");
                writer.maybe(given.arg.as_deref());
            }),
            Expr::Await(awaited) => self.node("await", |writer| writer.expr(&awaited.arg)),
            Expr::MetaProp(meta) => self.word(match meta.kind {
                MetaPropKind::NewTarget => "new.target",
                MetaPropKind::ImportMeta => "import.meta",
            }),
            Expr::PrivateName(name) => self.private(name),
            Expr::OptChain(chain) => self.chain(chain),
            Expr::JSXMember(_)
            | Expr::JSXNamespacedName(_)
            | Expr::JSXEmpty(_)
            | Expr::JSXElement(_)
            | Expr::JSXFragment(_)
            | Expr::Invalid(_) => self.absent(),
        }
    }

    pub(super) fn member(&mut self, member: &'a MemberExpr) {
        self.node(".", |writer| writer.member_parts(member));
    }

    fn member_parts(&mut self, member: &'a MemberExpr) {
        self.expr(&member.obj);
        match &member.prop {
            MemberProp::Ident(name) => {
                self.property(&name.sym);
                self.text(&name.sym);
            }
            MemberProp::PrivateName(name) => self.private(name),
            MemberProp::Computed(computed) => self.computed(&computed.expr),
        }
    }

    pub(super) fn super_member(&mut self, member: &'a SuperPropExpr) {
        self.node("super", |writer| match &member.prop {
            SuperProp::Ident(name) => {
                writer.property(&name.sym);
                writer.text(&name.sym);
            }
            SuperProp::Computed(computed) => writer.computed(&computed.expr),
        });
    }

    /// Writes a computed key; a string literal is written like a plain name.
    fn computed(&mut self, expression: &'a Expr) {
        match bare(expression) {
            Expr::Lit(Lit::Str(text)) => {
                self.property(text.value.as_str().unwrap_or_default());
                self.string(&text.value);
            }
            _ => self.node("computed", |writer| writer.expr(expression)),
        }
    }

    pub(super) fn chain(&mut self, chain: &'a OptChainExpr) {
        self.node("chain", |writer| {
            writer.flag(chain.optional, "optional");
            match &*chain.base {
                OptChainBase::Member(member) => writer.member_parts(member),
                OptChainBase::Call(call) => {
                    writer.expr(&call.callee);
                    writer.arguments(&call.args);
                }
            }
        });
    }

    fn arguments(&mut self, arguments: &'a [ExprOrSpread]) {
        self.node("with", |writer| {
            for argument in arguments {
                writer.argument(argument);
            }
        });
    }

    fn argument(&mut self, argument: &'a ExprOrSpread) {
        if argument.spread.is_some() {
            self.node("spread", |writer| writer.expr(&argument.expr));
        } else {
            self.expr(&argument.expr);
        }
    }

    fn template(&mut self, template: &'a Tpl, tagged: bool) {
        if let (false, [only]) = (tagged, &template.quasis[..])
            && let Some(cooked) = &only.cooked
        {
            return self.node("string", |writer| writer.string(cooked));
        }
        self.node("template", |writer| {
            for (at, part) in template.quasis.iter().enumerate() {
                match &part.cooked {
                    Some(cooked) => writer.string(cooked),
                    None => writer.absent(),
                }
                if tagged {
                    // A tag function can read the raw text.
                    writer.text(&part.raw);
                }
                if let Some(value) = template.exprs.get(at) {
                    writer.expr(value);
                }
            }
        });
    }

    fn literal(&mut self, literal: &'a Lit) {
        match literal {
            Lit::Str(text) => self.node("string", |writer| writer.string(&text.value)),
            Lit::Bool(truth) => self.word(if truth.value { "true" } else { "false" }),
            Lit::Null(_) => self.word("null"),
            Lit::Num(number) => self.number(number.value),
            Lit::BigInt(number) => {
                self.node("bigint", |writer| writer.text(&number.value.to_string()));
            }
            Lit::Regex(regex) => self.node("regex", |writer| {
                writer.text(&regex.exp);
                // The order of the flags makes no difference.
                let mut flags: Vec<char> = regex.flags.chars().collect();
                flags.sort_unstable();
                writer.text(&flags.into_iter().collect::<String>());
            }),
            Lit::JSXText(_) => self.absent(),
        }
    }

    pub(super) fn number(&mut self, value: f64) {
        // Writing into a `Vec` cannot fail.
        let _ = write!(self.out, " {:x}", value.to_bits());
    }

    /// Writes the value of a string, which may contain an unpaired surrogate.
    pub(super) fn string(&mut self, value: &Wtf8Atom) {
        match value.as_str() {
            Some(text) => self.text(text),
            None => self.node("units", |writer| {
                for point in value.code_points() {
                    writer.word(&format!("{:x}", point.to_u32()));
                }
            }),
        }
    }
}

/// Returns an expression without the parentheses and casts around it.
fn bare(mut expression: &Expr) -> &Expr {
    loop {
        expression = match expression {
            Expr::Paren(inner) => &inner.expr,
            Expr::TsTypeAssertion(cast) => &cast.expr,
            Expr::TsConstAssertion(cast) => &cast.expr,
            Expr::TsNonNull(cast) => &cast.expr,
            Expr::TsAs(cast) => &cast.expr,
            Expr::TsSatisfies(cast) => &cast.expr,
            _ => return expression,
        }
    }
}
