//! Lists and tables that nothing changes: what is written in them is what they hold.
//!
//! A variable is calm when it is declared with a literal and every use of it only
//! looks at its parts. Any other use hands the object on, and it is not calm.

use swc_ecma_ast::{Expr, ExprOrSpread, Pat};

use super::Builder;
use super::expr::{bare, bounds};
use super::scope::BindingId;
use super::value::{Cap, Form, Value};

/// Methods of arrays that hand the array to nobody, with the number of
/// parameters of their callback that do not see it.
fn looks_only(method: &str) -> Option<usize> {
    Some(match method {
        "map" | "forEach" | "filter" | "flatMap" | "some" | "every" | "find" | "findIndex"
        | "findLast" | "findLastIndex" => 2,
        "reduce" | "reduceRight" => 3,
        "includes" | "indexOf" | "lastIndexOf" | "join" | "at" | "slice" | "concat" | "entries"
        | "keys" | "values" => 0,
        _ => return None,
    })
}

/// Returns whether a function can only see its first `count` arguments.
fn sees_at_most(arg: &ExprOrSpread, count: usize) -> bool {
    match bare(&arg.expr) {
        Expr::Arrow(arrow) => {
            arrow.params.len() <= count
                && !arrow.params.iter().any(|param| matches!(param, Pat::Rest(_)))
        }
        Expr::Lit(_) | Expr::Tpl(_) => true,
        _ => false,
    }
}

/// Returns whether a call of a method only looks at the parts of an array.
pub(super) fn only_looks(method: Option<&str>, args: &[ExprOrSpread]) -> bool {
    let Some(count) = method.and_then(looks_only) else { return false };
    args.iter().all(|arg| arg.spread.is_none())
        && (count == 0 || args.first().is_some_and(|arg| sees_at_most(arg, count)))
}

impl<'a> Builder<'a> {
    /// Notes that the object in a variable may be handed on or changed.
    pub(super) fn stir(&mut self, binding: BindingId) {
        let known = &mut self.bindings[binding as usize];
        if !known.stirred {
            known.stirred = true;
            self.changed = true;
        }
    }

    /// Follows an expression of whose value only the parts are looked at.
    pub(super) fn looked_at(&mut self, expr: &'a Expr) -> Value {
        let Expr::Ident(name) = bare(expr) else { return self.expr(expr) };
        let Some(binding) = self.lookup(&name.sym) else { return self.expr(expr) };
        let value = self.read(binding);
        if !value.is_container() || self.bindings[binding as usize].stirred || !is_plain(&value) {
            return self.expr(expr);
        }
        let mut value = value.spanning(bounds(name.span));
        value.shared = false;
        value
    }
}

/// Returns whether no part of a value is an object that the program can change.
fn is_plain(value: &Value) -> bool {
    let closed = !matches!(value.form, Form::Object { open: true, .. });
    let plain = |part: &&Value| {
        let written = matches!(part.form, Form::Const(_));
        let tool = matches!(part.caps(), [Cap::Tool(..)]);
        part.funcs().is_empty() && (written || tool)
    };
    closed && !value.partial && value.parts().iter().all(plain)
}
