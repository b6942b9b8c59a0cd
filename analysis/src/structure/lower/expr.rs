//! Expressions.

use super::super::core::{Appearance, Made, Put, Use, Wait};
use super::stmt::bounds;
use super::*;

impl Lower {
    /// Lowers an expression and returns the slot of its value.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Slot {
        let slot = self.expr_kind(expr);
        self.set_source_text(slot, expr.span());
        slot
    }

    fn expr_kind(&mut self, expr: &ast::Expr) -> Slot {
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
                self.record_read(&key);
                self.record_member_use(&member.obj, object, &key);
                let to = self.fresh();
                self.emit(span, Op::Get { to, object, key, called: false });
                to
            }
            Expr::SuperProp(prop) => self.above(prop),
            Expr::Cond(choice) => {
                let to = self.fresh();
                let cond = self.condition(&choice.test);
                let (then, ()) = self.block(|lower| lower.value_to(&choice.cons, to));
                let (other, ()) = self.block(|lower| lower.value_to(&choice.alt, to));
                let appears = Appearance::Decision { test: bounds(choice.test.span()) };
                self.emit(span, Op::If { cond, then, other, appears });
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
            Expr::Await(awaited) => self.awaited(span, &awaited.arg, false),
            Expr::Yield(given) => {
                let from = match &given.arg {
                    Some(value) => self.expr(value),
                    None => self.undefined(span),
                };
                let to = self.fresh();
                self.emit(span, Op::Yield { to, from, all: given.delegate });
                to
            }
            Expr::MetaProp(meta) if meta.kind == ast::MetaPropKind::NewTarget => {
                self.read_own(span, "new.target")
            }
            Expr::MetaProp(_) => self.unknown(span, Vec::new()),
            // The rest is refused by the parser, or is not an expression by itself.
            _ => self.unknown(span, Vec::new()),
        }
    }

    pub(super) fn unknown(&mut self, span: Span, of: Vec<Slot>) -> Slot {
        let to = self.fresh();
        self.emit(span, Op::Unknown { to, of });
        to
    }

    pub(super) fn value_to(&mut self, value: &ast::Expr, to: Slot) {
        let from = self.expr(value);
        self.emit(value.span(), Op::Copy { to, from });
    }

    /// Lowers an expression that is awaited immediately.
    fn awaited(&mut self, span: Span, value: &ast::Expr, returned: bool) -> Slot {
        let from = match bare(value) {
            ast::Expr::Call(call) => self.call(call, Wait::Now),
            ast::Expr::OptChain(chain) => self.chain(chain, Wait::Now),
            other => self.expr(other),
        };
        let to = self.fresh();
        self.emit(span, Op::Await { to, from, returned });
        to
    }

    /// Lowers the value that a function returns; an async function awaits it.
    pub(super) fn awaited_result(&mut self, value: &ast::Expr) -> Slot {
        let frame = self.frame();
        let (is_async, is_generator) = (frame.is_async, frame.is_generator);
        if is_async {
            self.awaited(value.span(), value, !is_generator)
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
                // A string with an unpaired surrogate is not tracked as a constant.
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
                let slot = self.expr(value);
                self.record_use(value, slot, Use::Text);
                of.push(slot);
            }
        }
        self.compute(span, Sum::Text, of)
    }

    pub(super) fn array(&mut self, span: Span, items: &[Option<ast::ExprOrSpread>]) -> Slot {
        let list = self.fresh();
        self.emit(span, Op::New { to: list, made: Made::Array });
        items.iter().for_each(|item| self.item_of(span, list, item.as_ref()));
        list
    }

    /// Lowers an array literal that is passed to a promise combinator.
    pub(super) fn awaited_members(&mut self, array: &ast::ArrayLit) -> Slot {
        let (span, list) = (array.span, self.fresh());
        self.emit(span, Op::New { to: list, made: Made::Array });
        for (place, item) in array.elems.iter().enumerate() {
            let member = Branch::Member(place as u32);
            self.branch(span, member, |lower| lower.item_of(span, list, item.as_ref()));
        }
        list
    }

    fn item_of(&mut self, span: Span, list: Slot, item: Option<&ast::ExprOrSpread>) {
        let (from, spread) = match item {
            Some(item) => (self.item(item), item.spread.is_some()),
            None => (self.undefined(span), false),
        };
        let span = item.map_or(span, |item| item.expr.span());
        self.emit(span, Op::Push { list, from, spread });
    }

    fn object(&mut self, object: &ast::ObjectLit) -> Slot {
        let to = self.fresh();
        self.emit(object.span, Op::New { to, made: Made::Object });
        // Methods resolve `super` through this name.
        self.scoped(|lower| {
            let home = lower.frame().declare(&"%home".into());
            lower.emit(object.span, Op::Copy { to: home, from: to });
            for prop in &object.props {
                match prop {
                    ast::PropOrSpread::Spread(spread) => {
                        let from = lower.expr(&spread.expr);
                        lower.record_use(&spread.expr, from, Use::Spread);
                        lower.emit(
                            spread.expr.span(),
                            Op::Spread { object: to, from, but: Vec::new() },
                        );
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
                (self.defined_key(&name.sym), from, Put::Value)
            }
            ast::Prop::KeyValue(pair) => {
                // `__proto__: x` sets the prototype; the shorthand `__proto__` defines a property.
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
                (self.defined_key(&assign.key.sym), self.expr(&assign.value), Put::Value)
            }
            ast::Prop::Getter(getter) => {
                let key = self.prop_key(&getter.key);
                (key, self.function_value(&getter.function, FuncForm::Method), Put::Getter)
            }
            ast::Prop::Setter(setter) => {
                let key = self.prop_key(&setter.key);
                (key, self.function_value(&setter.function, FuncForm::Method), Put::Setter)
            }
            ast::Prop::Method(method) => {
                let key = self.prop_key(&method.key);
                (key, self.function_value(&method.function, FuncForm::Method), Put::Value)
            }
        };
        self.core.accessors |= how != Put::Value;
        let span = match prop {
            ast::Prop::KeyValue(pair) => pair.value.span(),
            _ => span,
        };
        self.emit(span, Op::Put { object, key, from, how });
    }

    pub(super) fn function_value(&mut self, function: &ast::Function, form: FuncForm) -> Slot {
        let func = self.function_of(function, form, |_| {});
        self.closure(function.span, func)
    }

    fn function_expr(&mut self, function: &ast::FnExpr) -> Slot {
        let span = function.function.span;
        let Some(name) = &function.ident else {
            return self.function_value(&function.function, FuncForm::Plain);
        };
        self.scoped(|lower| {
            let own = lower.frame().declare(&name.sym);
            let from = lower.function_value(&function.function, FuncForm::Plain);
            lower.emit(span, Op::Copy { to: own, from });
            from
        })
    }
}
