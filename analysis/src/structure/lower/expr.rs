//! Expressions.

use super::super::core::{Made, Put, Told, Wait};
use super::pattern::Target;
use super::stmt::bounds;
use super::*;

impl Lower {
    /// Lowers an expression and returns the slot that has its value.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Slot {
        use ast::Expr;
        let expr = bare(expr);
        let span = expr.span();
        match expr {
            Expr::This(_) => self.read_own(span, "this"),
            Expr::Ident(name) => self.read(span, &name.sym),
            Expr::Lit(lit) => self.literal(span, lit),
            Expr::Tpl(template) => self.template(span, template),
            Expr::Array(array) => self.array(span, &array.elems),
            Expr::Object(object) => self.object(object),
            Expr::Fn(function) => self.function_expr(function),
            Expr::Arrow(arrow) => {
                let func = self.arrow(arrow);
                self.closure(span, func)
            }
            Expr::Class(class) => {
                self.class(&class.class, class.ident.as_ref().map(|name| &name.sym))
            }
            Expr::Unary(unary) => self.unary(unary),
            Expr::Update(update) => self.update(update),
            Expr::Bin(binary) => self.binary(binary),
            Expr::Assign(assign) => self.assign(assign),
            Expr::Member(member) => {
                let (object, key) = self.member_parts(member);
                let to = self.fresh();
                self.emit(span, Op::Get { to, object, key, called: false });
                to
            }
            Expr::SuperProp(prop) => self.above(prop),
            Expr::Cond(choice) => {
                let to = self.fresh();
                let cond = self.expr(&choice.test);
                let (then, ()) = self.block(|lower| lower.into_slot(&choice.cons, to));
                let (other, ()) = self.block(|lower| lower.into_slot(&choice.alt, to));
                let told = Told::Decision { test: bounds(choice.test.span()) };
                self.emit(span, Op::If { cond, then, other, told });
                to
            }
            Expr::Seq(sequence) => {
                let mut last = None;
                for one in &sequence.exprs {
                    last = Some(self.expr(one));
                }
                last.unwrap_or_else(|| self.undefined(span))
            }
            Expr::Call(call) => self.call(call, Wait::Other),
            Expr::New(new) => self.construct(new),
            Expr::TaggedTpl(tagged) => self.tagged(tagged),
            Expr::OptChain(chain) => self.chain(chain, Wait::Other),
            Expr::Await(awaited) => self.awaited(span, &awaited.arg),
            Expr::Yield(given) => {
                let from = match &given.arg {
                    Some(value) => self.expr(value),
                    None => self.undefined(span),
                };
                let to = self.fresh();
                self.emit(span, Op::Yield { to, from, all: given.delegate });
                to
            }
            Expr::MetaProp(_) => self.unknown(span, Vec::new()),
            // What is left is refused by the parser, or has no meaning alone.
            _ => self.unknown(span, Vec::new()),
        }
    }

    pub(super) fn unknown(&mut self, span: Span, of: Vec<Slot>) -> Slot {
        let to = self.fresh();
        self.emit(span, Op::Unknown { to, of });
        to
    }

    pub(super) fn into_slot(&mut self, value: &ast::Expr, to: Slot) {
        let from = self.expr(value);
        self.emit(value.span(), Op::Copy { to, from });
    }

    /// Lowers an expression whose value is waited for at once.
    pub(super) fn awaited(&mut self, span: Span, value: &ast::Expr) -> Slot {
        let from = match bare(value) {
            ast::Expr::Call(call) => self.call(call, Wait::Now),
            ast::Expr::OptChain(chain) => self.chain(chain, Wait::Now),
            other => self.expr(other),
        };
        let to = self.fresh();
        self.emit(span, Op::Await { to, from });
        to
    }

    /// Lowers what a function returns; an async one waits for it.
    pub(super) fn awaited_result(&mut self, value: &ast::Expr) -> Slot {
        let frame = self.frame();
        if frame.is_async && !frame.is_generator {
            self.awaited(value.span(), value)
        } else {
            match bare(value) {
                ast::Expr::Call(call) => self.call(call, Wait::Tail),
                ast::Expr::OptChain(chain) => self.chain(chain, Wait::Tail),
                other => self.expr(other),
            }
        }
    }

    fn literal(&mut self, span: Span, lit: &ast::Lit) -> Slot {
        let value = match lit {
            ast::Lit::Str(text) => match text.value.as_str() {
                Some(text) => {
                    self.core.converts |= is_called_by_engine(text);
                    Scalar::Text(text.into())
                }
                None => {
                    let text = self.undefined(span);
                    return self.compute(span, Sum::Look, vec![text]);
                }
            },
            ast::Lit::Bool(lit) => Scalar::Bool(lit.value),
            ast::Lit::Null(_) => Scalar::Null,
            ast::Lit::Num(number) => Scalar::Number(number.value.to_bits()),
            ast::Lit::BigInt(_) => {
                let text = self.undefined(span);
                return self.compute(span, Sum::Look, vec![text]);
            }
            ast::Lit::Regex(regex) => {
                let to = self.fresh();
                let goes_on = regex.flags.contains(['g', 'y']);
                self.emit(span, Op::New { to, made: Made::Pattern { goes_on } });
                return to;
            }
            ast::Lit::JSXText(_) => return self.unknown(span, Vec::new()),
        };
        self.constant(span, value)
    }

    fn template(&mut self, span: Span, template: &ast::Tpl) -> Slot {
        let mut of = Vec::new();
        for (place, quasi) in template.quasis.iter().enumerate() {
            let text = quasi.cooked.as_ref().and_then(|text| text.as_str()).unwrap_or_default();
            if !text.is_empty() || template.exprs.is_empty() {
                of.push(self.constant(quasi.span, Scalar::Text(text.into())));
            }
            if let Some(value) = template.exprs.get(place) {
                of.push(self.expr(value));
            }
        }
        self.compute(span, Sum::Text, of)
    }

    pub(super) fn array(&mut self, span: Span, items: &[Option<ast::ExprOrSpread>]) -> Slot {
        let list = self.fresh();
        self.emit(span, Op::New { to: list, made: Made::Array });
        for item in items {
            let (from, spread) = match item {
                Some(item) => (self.expr(&item.expr), item.spread.is_some()),
                None => (self.undefined(span), false),
            };
            let span = item.as_ref().map_or(span, |item| item.expr.span());
            self.emit(span, Op::Push { list, from, spread });
        }
        list
    }

    fn object(&mut self, object: &ast::ObjectLit) -> Slot {
        let to = self.fresh();
        self.emit(object.span, Op::New { to, made: Made::Object });
        // Methods find what `super` means by this name.
        self.scoped(|lower| {
            let home = lower.frame().declare(&"%home".into());
            lower.emit(object.span, Op::Copy { to: home, from: to });
            for prop in &object.props {
                match prop {
                    ast::PropOrSpread::Spread(spread) => {
                        let from = lower.expr(&spread.expr);
                        lower.emit(spread.expr.span(), Op::Spread { object: to, from, but: Vec::new() });
                    }
                    ast::PropOrSpread::Prop(prop) => lower.prop(to, prop),
                }
            }
        });
        to
    }

    fn prop(&mut self, object: Slot, prop: &ast::Prop) {
        let span = prop.span();
        let (key, from, how) = match prop {
            ast::Prop::Shorthand(name) => {
                let from = self.read(name.span, &name.sym);
                (self.name_key(&name.sym), from, Put::Value)
            }
            ast::Prop::KeyValue(pair) => {
                let is_proto = match &pair.key {
                    ast::PropName::Ident(name) => &*name.sym == "__proto__",
                    ast::PropName::Str(name) => name.value.as_str() == Some("__proto__"),
                    _ => false,
                };
                let key = self.prop_key(&pair.key);
                let from = self.expr(&pair.value);
                (key, from, if is_proto { Put::Prototype } else { Put::Value })
            }
            ast::Prop::Assign(assign) => {
                (self.name_key(&assign.key.sym), self.expr(&assign.value), Put::Value)
            }
            ast::Prop::Getter(getter) => {
                let key = self.prop_key(&getter.key);
                (key, self.method_value(&getter.function), Put::Getter)
            }
            ast::Prop::Setter(setter) => {
                let key = self.prop_key(&setter.key);
                (key, self.method_value(&setter.function), Put::Setter)
            }
            ast::Prop::Method(method) => {
                let key = self.prop_key(&method.key);
                (key, self.method_value(&method.function), Put::Value)
            }
        };
        self.core.accessors |= how != Put::Value;
        let span = match prop {
            ast::Prop::KeyValue(pair) => pair.value.span(),
            _ => span,
        };
        self.emit(span, Op::Put { object, key, from, how });
    }

    pub(super) fn method_value(&mut self, function: &ast::Function) -> Slot {
        let func = self.function_of(function, FuncForm::Plain, |_| {});
        self.closure(function.span, func)
    }

    fn function_expr(&mut self, function: &ast::FnExpr) -> Slot {
        let span = function.function.span;
        let Some(name) = &function.ident else {
            return self.method_value(&function.function);
        };
        self.scoped(|lower| {
            let own = lower.frame().declare(&name.sym);
            let from = lower.method_value(&function.function);
            lower.emit(span, Op::Copy { to: own, from });
            from
        })
    }

    fn unary(&mut self, unary: &ast::UnaryExpr) -> Slot {
        let span = unary.span;
        match unary.op {
            ast::UnaryOp::Delete => {
                match bare(&unary.arg) {
                    ast::Expr::Member(member) => {
                        let (object, key) = self.member_parts(member);
                        self.emit(span, Op::Delete { object, key });
                    }
                    ast::Expr::OptChain(chain) => {
                        let of = self.chain(chain, Wait::Other);
                        return self.unknown(span, vec![of]);
                    }
                    other => {
                        let _ = self.expr(other);
                    }
                }
                self.constant(span, Scalar::Bool(true))
            }
            ast::UnaryOp::Void => {
                let _ = self.expr(&unary.arg);
                self.undefined(span)
            }
            ast::UnaryOp::TypeOf => {
                let of = self.expr(&unary.arg);
                self.compute(span, Sum::Look, vec![of])
            }
            ast::UnaryOp::Bang => {
                let of = self.expr(&unary.arg);
                self.compute(span, Sum::Not, vec![of])
            }
            ast::UnaryOp::Minus | ast::UnaryOp::Plus | ast::UnaryOp::Tilde => {
                if let (ast::UnaryOp::Minus, ast::Expr::Lit(ast::Lit::Num(number))) =
                    (unary.op, bare(&unary.arg))
                {
                    return self.constant(span, Scalar::Number((-number.value).to_bits()));
                }
                let of = self.expr(&unary.arg);
                self.compute(span, Sum::Convert, vec![of])
            }
        }
    }

    fn update(&mut self, update: &ast::UpdateExpr) -> Slot {
        let before = self.expr(&update.arg);
        let after = self.compute(update.span, Sum::Convert, vec![before]);
        self.assign_to(&update.arg, after);
        if update.prefix { after } else { self.compute(update.span, Sum::Convert, vec![before]) }
    }

    fn binary(&mut self, binary: &ast::BinExpr) -> Slot {
        use ast::BinaryOp as B;
        let span = binary.span;
        match binary.op {
            B::LogicalAnd | B::LogicalOr | B::NullishCoalescing => {
                let to = self.fresh();
                self.into_slot(&binary.left, to);
                let test = bounds(binary.left.span());
                self.otherwise(span, to, binary.op, test, |lower| lower.into_slot(&binary.right, to));
                to
            }
            op => {
                let left = self.expr(&binary.left);
                let right = self.expr(&binary.right);
                let how = match op {
                    B::Add => Sum::Add,
                    B::EqEqEq | B::NotEqEq => Sum::Look,
                    _ => Sum::Convert,
                };
                self.compute(span, how, vec![left, right])
            }
        }
    }

    /// Lowers what happens unless `&&`, `||` or `??` is satisfied with what is in `value`.
    fn otherwise(
        &mut self,
        span: Span,
        value: Slot,
        op: ast::BinaryOp,
        test: (u32, u32),
        make: impl FnOnce(&mut Self),
    ) {
        let cond = match op {
            ast::BinaryOp::NullishCoalescing => {
                self.compute(span, Sum::IsNothing, vec![value])
            }
            _ => value,
        };
        let (body, ()) = self.block(make);
        let told = Told::Decision { test };
        let (then, other) = match op {
            ast::BinaryOp::LogicalOr => (Block::new(), body),
            _ => (body, Block::new()),
        };
        self.emit(span, Op::If { cond, then, other, told });
    }

    fn assign(&mut self, assign: &ast::AssignExpr) -> Slot {
        let span = assign.span;
        let Some(op) = assign.op.to_update() else {
            return self.assign_plainly(assign);
        };
        let target = match &assign.left {
            ast::AssignTarget::Simple(target) => target,
            ast::AssignTarget::Pat(_) => return self.unknown(span, Vec::new()),
        };
        let written = bounds(target.span());
        let target = Target::of_assigned(target);
        // The object and the key are computed once.
        let parts = match &target {
            Target::Member(member) => Some(self.member_parts(member)),
            _ => None,
        };
        let before = match &parts {
            Some((object, key)) => {
                let to = self.fresh();
                let (object, key) = (*object, key.clone());
                self.emit(span, Op::Get { to, object, key, called: false });
                to
            }
            None => match &target {
                Target::Name(name) => self.read(name.span, &name.sym),
                Target::Above(prop) => self.above(prop),
                Target::Other(other) => self.expr(other),
                Target::Member(_) | Target::Nothing => self.undefined(span),
            },
        };
        let set = |lower: &mut Self, from: Slot| match &parts {
            Some((object, key)) => {
                let (object, key) = (*object, key.clone());
                lower.emit(span, Op::Set { object, key, from });
            }
            None => lower.assign_target(&target, from),
        };
        if op.may_short_circuit() {
            let to = self.fresh();
            self.emit(span, Op::Copy { to, from: before });
            self.otherwise(span, to, op, written, |lower| {
                lower.into_slot(&assign.right, to);
                set(lower, to);
            });
            return to;
        }
        let right = self.expr(&assign.right);
        let how = if op == ast::BinaryOp::Add { Sum::Add } else { Sum::Convert };
        let to = self.compute(span, how, vec![before, right]);
        set(self, to);
        to
    }

    fn assign_plainly(&mut self, assign: &ast::AssignExpr) -> Slot {
        match &assign.left {
            ast::AssignTarget::Simple(target) => {
                let target = Target::of_assigned(target);
                if let Target::Member(member) = &target {
                    let (object, key) = self.member_parts(member);
                    let from = self.expr(&assign.right);
                    self.emit(assign.span, Op::Set { object, key, from });
                    return from;
                }
                let from = self.expr(&assign.right);
                self.assign_target(&target, from);
                from
            }
            ast::AssignTarget::Pat(pattern) => {
                let from = self.expr(&assign.right);
                match pattern {
                    ast::AssignTargetPat::Array(array) => self.bind_array(array, from),
                    ast::AssignTargetPat::Object(object) => self.bind_object(object, from),
                    ast::AssignTargetPat::Invalid(_) => {}
                }
                from
            }
        }
    }
}
