//! Which names have one object, and which hold it.

use swc_ecma_ast::{Callee, Expr, MemberProp, Pat, Prop, PropOrSpread};

use super::Builder;
use super::expr::bare;
use super::scope::{BindingId, pattern_names};

/// What an expression gets its object from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Root {
    This,
    Name(BindingId),
    /// `args`
    Input,
}

/// Methods that give the object they are called on, or a part of it.
fn gives_part(method: &str) -> bool {
    matches!(
        method,
        "get"
            | "at"
            | "find"
            | "findLast"
            | "pop"
            | "shift"
            | "sort"
            | "reverse"
            | "fill"
            | "set"
            | "add"
    )
}

/// Methods that give a list of the parts of what they are called on.
fn gives_parts(method: &str) -> bool {
    matches!(
        method,
        "filter"
            | "slice"
            | "concat"
            | "flat"
            | "splice"
            | "toSorted"
            | "toReversed"
            | "values"
            | "entries"
            | "keys"
    )
}

impl<'a> Builder<'a> {
    /// Returns what an expression may get its object from.
    pub(super) fn roots(&self, expr: &'a Expr, of_items: bool) -> Vec<Root> {
        let mut found = Vec::new();
        let mut open = Vec::new();
        let mut next = Some((expr, of_items));
        while let Some((expr, of_items)) = next.take().or_else(|| open.pop()) {
            match bare(expr) {
                Expr::This(_) => found.push(Root::This),
                Expr::Ident(name) => match self.lookup(&name.sym) {
                    Some(binding) => found.push(Root::Name(binding)),
                    None if &*name.sym == "args" => found.push(Root::Input),
                    None => {}
                },
                Expr::Member(member) => next = Some((&member.obj, true)),
                Expr::Await(awaited) => next = Some((&awaited.arg, of_items)),
                Expr::Assign(assign) => next = Some((&assign.right, of_items)),
                Expr::Array(array) if of_items => {
                    let items = array.elems.iter().flatten();
                    open.extend(items.map(|item| (&*item.expr, item.spread.is_some())));
                }
                Expr::Cond(choice) => {
                    open.extend([(&*choice.cons, of_items), (&*choice.alt, of_items)])
                }
                Expr::Bin(binary) if binary.op.may_short_circuit() => {
                    open.extend([(&*binary.left, of_items), (&*binary.right, of_items)]);
                }
                Expr::Call(call) => {
                    let Callee::Expr(callee) = &call.callee else { continue };
                    let Expr::Member(member) = bare(callee) else { continue };
                    let MemberProp::Ident(method) = &member.prop else { continue };
                    if gives_part(&method.sym) || of_items && gives_parts(&method.sym) {
                        next = Some((&member.obj, true));
                    }
                    if let Expr::Ident(name) = bare(&member.obj)
                        && &*name.sym == "Object"
                        && matches!(&*method.sym, "values" | "entries" | "assign" | "freeze")
                    {
                        open.extend(call.args.first().map(|arg| (&*arg.expr, true)));
                    }
                }
                Expr::OptChain(chain) => {
                    if let swc_ecma_ast::OptChainBase::Member(member) = &*chain.base {
                        next = Some((&member.obj, true));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Notes that a variable has an object that others have, too, or a part of it.
    pub(super) fn alias(&mut self, binding: BindingId, expr: &'a Expr, of_items: bool) {
        let whole = matches!(bare(expr), Expr::Ident(_)) && !of_items;
        for root in self.roots(expr, of_items) {
            let known = &mut self.bindings[binding as usize].aliases;
            if root != Root::Name(binding) && !known.contains(&root) {
                known.push(root);
                self.changed = true;
            }
            let back = Root::Name(binding);
            let known = match root {
                Root::Name(other) if whole => &mut self.bindings[other as usize].aliases,
                Root::Input if whole => &mut self.feeds.names_of_input,
                _ => continue,
            };
            if root != back && !known.contains(&back) {
                known.push(back);
                self.changed = true;
            }
        }
    }

    /// Notes that the object of a variable holds what an expression names: whoever
    /// changes that changes a part of the object.
    pub(super) fn holds(&mut self, binding: BindingId, expr: &'a Expr) {
        let mut open = vec![expr];
        while let Some(expr) = open.pop() {
            match bare(expr) {
                Expr::Ident(name) => self.holds_name(binding, &name.sym),
                Expr::Array(array) => {
                    open.extend(array.elems.iter().flatten().map(|item| &*item.expr));
                }
                Expr::Object(object) => {
                    for prop in &object.props {
                        match prop {
                            PropOrSpread::Spread(_) => {}
                            PropOrSpread::Prop(prop) => match &**prop {
                                Prop::KeyValue(pair) => open.push(&pair.value),
                                Prop::Shorthand(name) => self.holds_name(binding, &name.sym),
                                _ => {}
                            },
                        }
                    }
                }
                Expr::New(new) => {
                    open.extend(new.args.iter().flatten().map(|arg| &*arg.expr));
                }
                _ => {}
            }
        }
    }

    fn holds_name(&mut self, binding: BindingId, name: &str) {
        let Some(held) = self.lookup(name) else { return };
        let known = &mut self.bindings[held as usize].aliases;
        if held != binding && !known.contains(&Root::Name(binding)) {
            known.push(Root::Name(binding));
            self.changed = true;
        }
    }

    /// Notes the same for the object that an expression gives.
    pub(super) fn keeps(&mut self, object: &'a Expr, part: &'a Expr) {
        for root in self.roots(object, true) {
            if let Root::Name(binding) = root {
                self.holds(binding, part);
            }
        }
    }

    /// Notes the same for the names of a pattern.
    pub(super) fn alias_pattern(&mut self, pattern: &'a Pat, expr: &'a Expr, of_items: bool) {
        if let Pat::Ident(name) = pattern {
            if let Some(binding) = self.lookup(&name.id.sym) {
                self.alias(binding, expr, of_items);
            }
            return;
        }
        let mut names = Vec::new();
        pattern_names(pattern, false, &mut names);
        for (name, _) in names {
            if let Some(binding) = self.lookup(name) {
                self.alias(binding, expr, true);
            }
        }
    }
}
