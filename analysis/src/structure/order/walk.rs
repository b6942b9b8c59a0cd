//! Walks statements and expressions in evaluation order.

use swc_common::Spanned as _;
use swc_ecma_ast::{
    AssignTarget, AssignTargetPat, BinaryOp, BlockStmt, Callee, Class, ClassMember, Decl, Expr,
    ForHead, Function, MemberProp, ObjectPatProp, OptChainBase, Pat, Prop, PropName, PropOrSpread,
    SimpleAssignTarget, Stmt, VarDecl, VarDeclKind, VarDeclOrExpr,
};

use super::{Callable, Use, Walk};
use crate::wrapper::start;

impl<'a> Walk<'a, '_> {
    /// Registers the functions of a statement list that are only ever called by name.
    pub(super) fn hoist(&mut self, statements: &'a [Stmt]) {
        for statement in statements {
            match statement {
                Stmt::Decl(Decl::Fn(function))
                    if self.names.is_only_called(&function.ident.sym) =>
                {
                    if let Some(callable) = Callable::function(&function.function) {
                        self.functions.insert(function.ident.sym.clone(), callable);
                    }
                }
                Stmt::Decl(Decl::Var(variables)) if variables.kind == VarDeclKind::Const => {
                    for variable in &variables.decls {
                        if let (Pat::Ident(name), Some(value)) = (&variable.name, &variable.init)
                            && self.names.is_only_called(&name.id.sym)
                            && let Some(callable) = Callable::of(value)
                        {
                            self.functions.insert(name.id.sym.clone(), callable);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn statement(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Block(block) => self.list(&block.stmts, None),
            Stmt::Expr(value) => self.plain(&value.expr),
            Stmt::Return(value) => {
                if let Some(value) = &value.arg {
                    let uses = self.returns.clone();
                    self.expr(value, uses);
                }
            }
            Stmt::Throw(value) => self.plain(&value.arg),
            Stmt::Labeled(labeled) => self.statement(&labeled.body),
            Stmt::With(with) => {
                self.plain(&with.obj);
                self.statement(&with.body);
            }
            Stmt::If(choice) => {
                self.plain(&choice.test);
                self.branch(&choice.cons);
                // A loop: an `else if` chain may be longer than the stack is deep.
                let mut rest = choice.alt.as_deref();
                while let Some(other) = rest {
                    match other {
                        Stmt::If(next) => {
                            self.plain(&next.test);
                            self.branch(&next.cons);
                            rest = next.alt.as_deref();
                        }
                        other => {
                            self.branch(other);
                            rest = None;
                        }
                    }
                }
            }
            Stmt::Switch(choice) => {
                self.plain(&choice.discriminant);
                for case in &choice.cases {
                    if let Some(test) = &case.test {
                        self.plain(test);
                    }
                    self.steps.part();
                    self.list(&case.cons, None);
                    self.steps.part();
                }
            }
            Stmt::Try(attempt) => {
                self.list(&attempt.block.stmts, None);
                if let Some(handler) = &attempt.handler {
                    if let Some(pattern) = &handler.param {
                        self.pattern(pattern);
                    }
                    self.list(&handler.body.stmts, None);
                }
                if let Some(BlockStmt { stmts, .. }) = &attempt.finalizer {
                    self.list(stmts, None);
                }
            }
            Stmt::While(repeated) => self.looped(|walk| {
                walk.plain(&repeated.test);
                walk.branch(&repeated.body);
            }),
            Stmt::DoWhile(repeated) => self.looped(|walk| {
                walk.branch(&repeated.body);
                walk.plain(&repeated.test);
            }),
            Stmt::For(repeated) => {
                match &repeated.init {
                    Some(VarDeclOrExpr::VarDecl(variables)) => self.variables(variables),
                    Some(VarDeclOrExpr::Expr(value)) => self.plain(value),
                    None => {}
                }
                self.looped(|walk| {
                    if let Some(test) = &repeated.test {
                        walk.plain(test);
                    }
                    walk.branch(&repeated.body);
                    if let Some(update) = &repeated.update {
                        walk.plain(update);
                    }
                });
            }
            Stmt::ForIn(repeated) => {
                self.plain(&repeated.right);
                self.looped(|walk| {
                    walk.head(&repeated.left);
                    walk.branch(&repeated.body);
                });
            }
            Stmt::ForOf(repeated) => {
                self.plain(&repeated.right);
                self.looped(|walk| {
                    walk.head(&repeated.left);
                    walk.branch(&repeated.body);
                });
            }
            Stmt::Decl(declared) => match declared {
                Decl::Class(class) => self.class(&class.class),
                // A function that is only called by name is walked at its calls.
                Decl::Fn(function) if !self.names.is_only_called(&function.ident.sym) => {
                    self.indirect(&function.function);
                }
                Decl::Var(variables) => self.variables(variables),
                Decl::Using(variables) => {
                    for variable in &variables.decls {
                        self.variable(&variable.name, variable.init.as_deref());
                    }
                }
                _ => {}
            },
            Stmt::Empty(_) | Stmt::Debugger(_) | Stmt::Break(_) | Stmt::Continue(_) => {}
        }
    }

    /// Walks one of several branches; its calls share no step with those around it.
    fn branch(&mut self, statement: &'a Stmt) {
        self.steps.part();
        self.list(std::slice::from_ref(statement), None);
        self.steps.part();
    }

    fn plain(&mut self, expr: &'a Expr) {
        self.expr(expr, Use::Dropped);
    }

    /// Walks a function that the program does not call directly.
    fn indirect(&mut self, function: &'a Function) {
        if let Some(callable) = Callable::function(function) {
            self.any_time(|walk| walk.inside(callable, Use::Dropped));
        }
    }

    fn head(&mut self, head: &'a ForHead) {
        match head {
            ForHead::VarDecl(variables) => self.variables(variables),
            ForHead::UsingDecl(_) => {}
            ForHead::Pat(pattern) => self.pattern(pattern),
        }
    }

    fn variables(&mut self, variables: &'a VarDecl) {
        for variable in &variables.decls {
            self.variable(&variable.name, variable.init.as_deref());
        }
    }

    fn variable(&mut self, name: &'a Pat, value: Option<&'a Expr>) {
        let Some(value) = value else { return };
        let uses = match name {
            Pat::Ident(name) if self.names.is_only(&name.id.sym) => {
                if self.functions.contains_key(&name.id.sym) {
                    return;
                }
                Use::Named(name.id.sym.clone())
            }
            _ => Use::Dropped,
        };
        self.expr(value, uses);
        self.pattern(name);
    }

    pub(super) fn pattern(&mut self, pattern: &'a Pat) {
        match pattern {
            Pat::Array(array) => array.elems.iter().flatten().for_each(|item| self.pattern(item)),
            Pat::Rest(rest) => self.pattern(&rest.arg),
            Pat::Object(object) => {
                for prop in &object.props {
                    match prop {
                        ObjectPatProp::KeyValue(pair) => {
                            self.key(&pair.key);
                            self.pattern(&pair.value);
                        }
                        ObjectPatProp::Assign(field) => {
                            if let Some(value) = &field.value {
                                self.plain(value);
                            }
                        }
                        ObjectPatProp::Rest(rest) => self.pattern(&rest.arg),
                    }
                }
            }
            Pat::Assign(assign) => {
                self.plain(&assign.right);
                self.pattern(&assign.left);
            }
            Pat::Expr(expr) => self.plain(expr),
            Pat::Ident(_) | Pat::Invalid(_) => {}
        }
    }

    fn key(&mut self, key: &'a PropName) {
        if let PropName::Computed(computed) = key {
            self.plain(&computed.expr);
        }
    }

    fn class(&mut self, class: &'a Class) {
        if let Some(parent) = &class.super_class {
            self.plain(parent);
        }
        self.any_time(|walk| {
            for member in &class.body {
                match member {
                    ClassMember::Constructor(made) => {
                        if let Some(body) = &made.body {
                            walk.list(&body.stmts, None);
                        }
                    }
                    ClassMember::Method(method) => {
                        walk.key(&method.key);
                        walk.indirect(&method.function);
                    }
                    ClassMember::PrivateMethod(method) => walk.indirect(&method.function),
                    ClassMember::ClassProp(field) => {
                        walk.key(&field.key);
                        field.value.iter().for_each(|value| walk.plain(value));
                    }
                    ClassMember::PrivateProp(field) => {
                        field.value.iter().for_each(|value| walk.plain(value));
                    }
                    ClassMember::StaticBlock(block) => walk.list(&block.body.stmts, None),
                    _ => {}
                }
            }
        });
    }

    pub(super) fn kind(&mut self, expr: &'a Expr, uses: Use) {
        match expr {
            Expr::Paren(inner) => self.expr(&inner.expr, uses),
            Expr::TsAs(cast) => self.expr(&cast.expr, uses),
            Expr::TsSatisfies(cast) => self.expr(&cast.expr, uses),
            Expr::TsNonNull(cast) => self.expr(&cast.expr, uses),
            Expr::TsConstAssertion(cast) => self.expr(&cast.expr, uses),
            Expr::TsTypeAssertion(cast) => self.expr(&cast.expr, uses),
            Expr::TsInstantiation(cast) => self.expr(&cast.expr, uses),
            Expr::Await(awaited) => self.expr(&awaited.arg, Use::Awaited),
            Expr::Cond(choice) => {
                self.plain(&choice.test);
                self.steps.part();
                self.expr(&choice.cons, uses.clone());
                self.steps.part();
                self.expr(&choice.alt, uses);
                self.steps.part();
            }
            Expr::Bin(binary) => {
                let is_choice = matches!(
                    binary.op,
                    BinaryOp::LogicalAnd | BinaryOp::LogicalOr | BinaryOp::NullishCoalescing
                );
                // A promise on the left of `&&` is not what comes out, and there is no `null`.
                self.expr(&binary.left, Use::Dropped);
                if is_choice {
                    self.steps.part();
                    self.expr(&binary.right, uses);
                    self.steps.part();
                } else {
                    self.plain(&binary.right);
                }
            }
            Expr::Seq(sequence) => {
                let last = sequence.exprs.len().saturating_sub(1);
                for (place, item) in sequence.exprs.iter().enumerate() {
                    let uses = if place == last { uses.clone() } else { Use::Dropped };
                    self.expr(item, uses);
                }
            }
            Expr::Call(call) => match &call.callee {
                Callee::Expr(callee) => self.call(callee, &call.args, start(call.span), uses),
                _ => self.args(&call.args, None),
            },
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => {
                    self.plain(&member.obj);
                    self.member_key(&member.prop);
                }
                OptChainBase::Call(call) => {
                    self.call(&call.callee, &call.args, start(chain.span), uses);
                }
            },
            Expr::New(new) => {
                self.plain(&new.callee);
                self.args(new.args.as_deref().unwrap_or_default(), None);
                self.call_at(start(new.span), &Use::Dropped);
            }
            Expr::TaggedTpl(tagged) => {
                self.plain(&tagged.tag);
                tagged.tpl.exprs.iter().for_each(|part| self.plain(part));
                self.call_at(start(tagged.span), &uses);
            }
            Expr::Tpl(template) => template.exprs.iter().for_each(|part| self.plain(part)),
            Expr::Array(array) => {
                array.elems.iter().flatten().for_each(|item| self.plain(&item.expr));
            }
            Expr::Object(object) => object.props.iter().for_each(|prop| self.property(prop)),
            // A function that is not called here may be called at any time.
            Expr::Arrow(arrow) => {
                self.any_time(|walk| walk.inside(Callable::arrow(arrow), Use::Dropped));
            }
            Expr::Fn(function) => self.indirect(&function.function),
            Expr::Class(class) => self.class(&class.class),
            Expr::Member(member) => {
                self.plain(&member.obj);
                self.member_key(&member.prop);
            }
            Expr::Unary(unary) => self.plain(&unary.arg),
            Expr::Update(update) => self.plain(&update.arg),
            Expr::Assign(assign) => {
                self.target(&assign.left);
                self.plain(&assign.right);
            }
            Expr::Yield(yielded) => yielded.arg.iter().for_each(|value| self.plain(value)),
            Expr::SuperProp(_)
            | Expr::This(_)
            | Expr::Ident(_)
            | Expr::Lit(_)
            | Expr::MetaProp(_)
            | Expr::PrivateName(_) => {}
            // The parser refuses everything else.
            other => self.call_at(start(other.span()), &Use::Dropped),
        }
    }

    fn member_key(&mut self, key: &'a MemberProp) {
        if let MemberProp::Computed(computed) = key {
            self.plain(&computed.expr);
        }
    }

    fn target(&mut self, target: &'a AssignTarget) {
        match target {
            AssignTarget::Simple(SimpleAssignTarget::Member(member)) => {
                self.plain(&member.obj);
                self.member_key(&member.prop);
            }
            AssignTarget::Pat(AssignTargetPat::Array(array)) => {
                array.elems.iter().flatten().for_each(|item| self.pattern(item));
            }
            AssignTarget::Pat(AssignTargetPat::Object(object)) => {
                for prop in &object.props {
                    match prop {
                        ObjectPatProp::KeyValue(pair) => {
                            self.key(&pair.key);
                            self.pattern(&pair.value);
                        }
                        ObjectPatProp::Assign(field) => {
                            field.value.iter().for_each(|value| self.plain(value));
                        }
                        ObjectPatProp::Rest(rest) => self.pattern(&rest.arg),
                    }
                }
            }
            _ => {}
        }
    }

    fn property(&mut self, prop: &'a PropOrSpread) {
        let prop = match prop {
            PropOrSpread::Spread(spread) => return self.plain(&spread.expr),
            PropOrSpread::Prop(prop) => &**prop,
        };
        match prop {
            Prop::Shorthand(_) => {}
            Prop::KeyValue(pair) => {
                self.key(&pair.key);
                self.plain(&pair.value);
            }
            Prop::Assign(field) => self.plain(&field.value),
            Prop::Getter(getter) => {
                self.key(&getter.key);
                self.indirect(&getter.function);
            }
            Prop::Setter(setter) => {
                self.key(&setter.key);
                self.indirect(&setter.function);
            }
            Prop::Method(method) => {
                self.key(&method.key);
                self.indirect(&method.function);
            }
        }
    }
}
