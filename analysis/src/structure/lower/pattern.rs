//! Patterns: the names that they declare, and the assignment of values to them.

use super::super::core::Use;
use super::*;

/// Collects the names in a pattern.
pub(super) fn names(pattern: &ast::Pat, out: &mut Vec<Atom>) {
    match pattern {
        ast::Pat::Ident(name) => out.push(name.id.sym.clone()),
        ast::Pat::Array(array) => array.elems.iter().flatten().for_each(|item| names(item, out)),
        ast::Pat::Rest(rest) => names(&rest.arg, out),
        ast::Pat::Assign(assign) => names(&assign.left, out),
        ast::Pat::Object(object) => {
            for prop in &object.props {
                match prop {
                    ast::ObjectPatProp::KeyValue(pair) => names(&pair.value, out),
                    ast::ObjectPatProp::Assign(name) => out.push(name.key.id.sym.clone()),
                    ast::ObjectPatProp::Rest(rest) => names(&rest.arg, out),
                }
            }
        }
        ast::Pat::Invalid(_) | ast::Pat::Expr(_) => {}
    }
}

/// The target of an assignment.
pub(super) enum Target<'a> {
    Name(&'a ast::Ident),
    Member(&'a ast::MemberExpr),
    Above(&'a ast::SuperPropExpr),
    Other(&'a ast::Expr),
    Nothing,
}

impl<'a> Target<'a> {
    pub(super) fn of(expr: &'a ast::Expr) -> Self {
        match bare(expr) {
            ast::Expr::Ident(name) => Self::Name(name),
            ast::Expr::Member(member) => Self::Member(member),
            ast::Expr::SuperProp(prop) => Self::Above(prop),
            other => Self::Other(other),
        }
    }

    pub(super) fn of_assigned(target: &'a ast::SimpleAssignTarget) -> Self {
        use ast::SimpleAssignTarget as T;
        match target {
            T::Ident(name) => Self::Name(&name.id),
            T::Member(member) => Self::Member(member),
            T::SuperProp(prop) => Self::Above(prop),
            T::Paren(inner) => Self::of(&inner.expr),
            T::TsAs(inner) => Self::of(&inner.expr),
            T::TsSatisfies(inner) => Self::of(&inner.expr),
            T::TsNonNull(inner) => Self::of(&inner.expr),
            T::TsTypeAssertion(inner) => Self::of(&inner.expr),
            T::TsInstantiation(inner) => Self::of(&inner.expr),
            T::OptChain(_) | T::Invalid(_) => Self::Nothing,
        }
    }
}

impl Lower {
    /// Declares the names of a pattern.
    pub(super) fn declare_pattern(&mut self, pattern: &ast::Pat, is_var: bool) {
        let mut found = Vec::new();
        names(pattern, &mut found);
        for name in &found {
            if is_var {
                self.frame().declare_var(name);
            } else {
                self.frame().declare(name);
            }
        }
    }

    /// Assigns the value of a slot to the names or targets of a pattern.
    pub(super) fn bind(&mut self, pattern: &ast::Pat, from: Slot) {
        let span = pattern.span();
        match pattern {
            ast::Pat::Ident(name) => self.write(span, &name.id.sym, from),
            ast::Pat::Array(array) => self.bind_array(array, from),
            ast::Pat::Object(object) => self.bind_object(object, from),
            ast::Pat::Rest(rest) => self.bind(&rest.arg, from),
            ast::Pat::Assign(assign) => {
                let value = self.or_default(span, from, &assign.right);
                self.bind(&assign.left, value);
            }
            ast::Pat::Expr(target) => self.assign_to(target, from),
            ast::Pat::Invalid(_) => {}
        }
    }

    pub(super) fn bind_array(&mut self, array: &ast::ArrayPat, of: Slot) {
        self.emit(array.span, Op::Take { of, how: Use::Parts });
        for (index, item) in array.elems.iter().enumerate() {
            let Some(item) = item else { continue };
            let (to, index) = (self.fresh(), index as u32);
            if let ast::Pat::Rest(rest) = item {
                self.emit(rest.span, Op::Items { to, of, from: index });
                self.bind(&rest.arg, to);
            } else {
                self.emit(item.span(), Op::Item { to, of, index });
                self.bind(item, to);
            }
        }
    }

    pub(super) fn bind_object(&mut self, object: &ast::ObjectPat, from: Slot) {
        if object.props.is_empty() {
            // `{}` reads nothing but fails on `undefined` and `null`, which a read of any property models.
            let to = self.fresh();
            let key = Key::Name("constructor".into());
            self.emit(object.span, Op::Get { to, object: from, key, called: false });
        } else {
            self.emit(object.span, Op::Take { of: from, how: Use::Parts });
        }
        let mut taken = Vec::new();
        for prop in &object.props {
            match prop {
                ast::ObjectPatProp::KeyValue(pair) => {
                    let key = self.declaring(false, |lower| lower.prop_key(&pair.key));
                    if let Key::Name(name) = &key {
                        self.record_name_read(name);
                    }
                    taken.push(key.clone());
                    let to = self.fresh();
                    let span = pair.key.span().to(pair.value.span());
                    self.emit(span, Op::Get { to, object: from, key, called: false });
                    self.bind(&pair.value, to);
                }
                ast::ObjectPatProp::Assign(name) => {
                    let key = self.name_key(&name.key.id.sym);
                    taken.push(key.clone());
                    let to = self.fresh();
                    self.emit(name.span, Op::Get { to, object: from, key, called: false });
                    let value = match &name.value {
                        Some(value) => self.or_default(name.span, to, value),
                        None => to,
                    };
                    self.write(name.span, &name.key.id.sym, value);
                }
                ast::ObjectPatProp::Rest(rest) => {
                    let to = self.fresh();
                    self.emit(rest.span, Op::New { to, made: super::super::core::Made::Object });
                    let but = taken.clone();
                    self.emit(rest.span, Op::Spread { object: to, from, but });
                    self.bind(&rest.arg, to);
                }
            }
        }
    }

    /// Returns a slot with a value, or with a default if the value is `undefined`.
    fn or_default(&mut self, span: Span, from: Slot, other: &ast::Expr) -> Slot {
        let to = self.fresh();
        self.emit(span, Op::Copy { to, from });
        self.copy_text(to, from);
        let cond = self.compute(span, Sum::IsUndefined, vec![from]);
        let (then, ()) = self.block(|lower| {
            let value = lower.declaring(false, |lower| lower.expr(other));
            lower.emit(span, Op::Copy { to, from: value });
        });
        let appears = super::super::core::Appearance::Hidden;
        self.emit(span, Op::If { cond, then, other: Block::new(), appears });
        to
    }

    /// Assigns to an expression.
    pub(super) fn assign_to(&mut self, target: &ast::Expr, from: Slot) {
        self.assign_target(&Target::of(target), from);
    }

    pub(super) fn assign_target(&mut self, target: &Target, from: Slot) {
        match target {
            Target::Name(name) => self.write(name.span, &name.sym, from),
            Target::Member(member) => {
                let (object, key) = self.member_parts(member);
                self.emit(member.span, Op::Set { object, key, from });
            }
            Target::Above(prop) => {
                let object = self.read_own(prop.span, "this");
                let key = self.super_key(&prop.prop);
                self.emit(prop.span, Op::Set { object, key, from });
            }
            Target::Other(other) => {
                let value = self.expr(other);
                let to = self.fresh();
                self.emit(other.span(), Op::Unknown { to, of: vec![value, from] });
            }
            Target::Nothing => {}
        }
    }

    /// Lowers the object and the key of a member expression.
    pub(super) fn member_parts(&mut self, member: &ast::MemberExpr) -> (Slot, Key) {
        let names_symbol = matches!(&member.prop, ast::MemberProp::Ident(name) if !is_hook(&name.sym))
            && self.is_symbol(&member.obj);
        let object = if names_symbol {
            self.with_symbol(|lower| lower.expr(&member.obj))
        } else {
            self.expr(&member.obj)
        };
        let key = match &member.prop {
            ast::MemberProp::Ident(name) => self.name_key(&name.sym),
            ast::MemberProp::PrivateName(name) => Key::Name(format!("#{}", name.name).into()),
            ast::MemberProp::Computed(computed) => self.computed_key(&computed.expr),
        };
        (object, key)
    }

    pub(super) fn super_key(&mut self, prop: &ast::SuperProp) -> Key {
        match prop {
            ast::SuperProp::Ident(name) => self.name_key(&name.sym),
            ast::SuperProp::Computed(computed) => self.computed_key(&computed.expr),
        }
    }
}
