//! Expressions that were followed already, looked at once more.

use swc_ecma_ast::{Callee, Expr, MemberProp};

use super::Builder;
use super::expr::bare;
use super::member::Key;
use super::value::{Deps, Value};

impl<'a> Builder<'a> {
    /// Follows an expression again whose calls have been counted already.
    ///
    /// Only names and members are looked at; anything else is not known.
    pub(super) fn quiet(&mut self, expr: &'a Expr) -> Value {
        match bare(expr) {
            Expr::Ident(name) => self.ident(name),
            Expr::This(_) => self.this(),
            Expr::Member(member) => {
                let object = self.quiet(&member.obj);
                match &member.prop {
                    MemberProp::Ident(name) => self.member(&object, &Key::of(name.sym.clone())),
                    _ => self.member(&object, &Key::of("".into())),
                }
            }
            _ => Value::computed(Deps::default()),
        }
    }

    /// Returns what decides which object an expression gives.
    pub(super) fn choice(&mut self, expr: &'a Expr) -> Deps {
        match bare(expr) {
            Expr::Cond(choice) => self.quiet_deps(&choice.test),
            Expr::Bin(binary) if binary.op.may_short_circuit() => self.quiet_deps(&binary.left),
            // The value of a name has what decides on it, too.
            Expr::Ident(name) => {
                self.lookup(&name.sym).map_or_else(Deps::default, |name| self.read(name).deps)
            }
            Expr::Member(member) => {
                let mut deps = self.choice(&member.obj);
                if let MemberProp::Computed(key) = &member.prop {
                    deps.add(&self.quiet_deps(&key.expr));
                }
                deps
            }
            _ => Deps::default(),
        }
    }

    /// Returns the tasks whose results flow into an expression that was followed already.
    pub(super) fn quiet_deps(&mut self, expr: &'a Expr) -> Deps {
        match bare(expr) {
            Expr::Bin(binary) => {
                let left = self.quiet_deps(&binary.left);
                left.and(&self.quiet_deps(&binary.right))
            }
            Expr::Cond(choice) => {
                let test = self.quiet_deps(&choice.test);
                test.and(&self.quiet_deps(&choice.cons)).and(&self.quiet_deps(&choice.alt))
            }
            Expr::Tpl(template) => template
                .exprs
                .iter()
                .fold(Deps::default(), |deps, expr| deps.and(&self.quiet_deps(expr))),
            Expr::Unary(unary) => self.quiet_deps(&unary.arg),
            Expr::Call(call) => {
                let mut deps = Deps::default();
                if let Callee::Expr(callee) = &call.callee {
                    deps.add(&self.quiet_deps(callee));
                }
                for arg in &call.args {
                    deps.add(&self.quiet_deps(&arg.expr));
                }
                deps
            }
            Expr::Member(member) => {
                let deps = match (bare(&member.obj), &member.prop) {
                    (Expr::Ident(name), MemberProp::Ident(_)) if &*name.sym == "args" => {
                        self.quiet(expr).all_deps()
                    }
                    (object, _) => self.quiet_deps(object),
                };
                match &member.prop {
                    MemberProp::Computed(key) => deps.and(&self.quiet_deps(&key.expr)),
                    _ => deps,
                }
            }
            Expr::Ident(name) => match self.lookup(&name.sym) {
                Some(binding) => self.read(binding).all_deps(),
                None if &*name.sym == "args" => self.quiet(expr).all_deps(),
                None => Deps::default(),
            },
            Expr::This(_) => self.this().all_deps(),
            _ => Deps::default(),
        }
    }
}
