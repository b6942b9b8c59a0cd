//! Objects that a program changes.

use swc_ecma_ast::{Expr, MemberProp};

use super::Builder;
use super::expr::bare;
use super::value::{Cap, Form, Value};
use crate::diagnostic::Code;

impl<'a> Builder<'a> {
    /// Returns whether an expression names what the engine offers, or a prototype.
    fn is_of_the_engine(&self, expr: &'a Expr) -> bool {
        let mut expr = bare(expr);
        loop {
            match expr {
                Expr::Member(member) => {
                    if let MemberProp::Ident(name) = &member.prop
                        && matches!(&*name.sym, "prototype" | "__proto__")
                    {
                        return true;
                    }
                    expr = bare(&member.obj);
                }
                Expr::Ident(name) => {
                    return self.lookup(&name.sym).is_none()
                        && !matches!(&*name.sym, "args" | "mcp")
                        && !super::member::is_global_object(&name.sym);
                }
                _ => return false,
            }
        }
    }

    /// Notes that the program changes parts of values.
    pub(super) fn mutate(&mut self) {
        if !self.mutates {
            self.mutates = true;
            self.changed = true;
        }
    }

    /// What the program puts into `args` is not what it was given.
    pub(super) fn changed_part_of(&mut self, object: &Value) {
        if matches!(object.form, Form::Param(_)) && !self.args_written {
            self.args_written = true;
            self.changed = true;
        }
    }

    /// Notes that a field of a value is set or removed.
    pub(super) fn written_into(&mut self, expr: &'a Expr, object: &Value) {
        self.mutate();
        self.changed_part_of(object);
        if self.is_of_the_engine(expr) {
            self.dynamic(
                Code::DynamicGlobal,
                "what the engine offers is changed, so its functions may do anything; write a function of your own".into(),
            );
        }
        for cap in object.caps().to_vec() {
            match cap {
                Cap::Evaluator => {}
                Cap::Global => self.dynamic(
                    Code::DynamicGlobal,
                    "the global object is written to; use a variable of the program".into(),
                ),
                _ => self.dynamic(
                    Code::DynamicWrite,
                    "`mcp` and what is in it cannot be written to; use a variable of the program"
                        .into(),
                ),
            }
        }
    }
}
