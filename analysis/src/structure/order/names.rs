//! How the names of a program are used, as far as the order of its calls depends on it.

use foldhash::HashMap;
use swc_atoms::Atom;
use swc_ecma_ast::{
    BindingIdent, CallExpr, Callee, ClassDecl, ClassExpr, Decl, Expr, ExprOrSpread, FnDecl, FnExpr,
    Function, Ident, MemberProp, Prop, Stmt,
};
use swc_ecma_visit::{Visit, VisitWith};

use crate::structure::lower::bare;

#[derive(Default)]
struct Name {
    /// How often it is declared or assigned to.
    bound: u32,
    /// How often it occurs in an expression.
    used: u32,
    /// How often it occurs as the callee of a call.
    called: u32,
    /// How often it occurs as an array that is added to or awaited as a whole.
    listed: u32,
}

/// The names of a program. A name that is declared twice, anywhere, is not followed.
#[derive(Default)]
pub(super) struct Names {
    names: HashMap<Atom, Name>,
}

impl Names {
    pub(super) fn of(main: &Function) -> Self {
        let mut names = Self::default();
        main.visit_with(&mut names);
        names
    }

    fn name(&self, name: &Atom) -> Option<&Name> {
        self.names.get(name)
    }

    /// Returns whether a name has only one value in the whole program.
    pub(super) fn is_only(&self, name: &Atom) -> bool {
        self.name(name).is_some_and(|name| name.bound == 1)
    }

    /// Returns whether a name has only one value, and is only ever called.
    pub(super) fn is_only_called(&self, name: &Atom) -> bool {
        self.is_only(name) && self.name(name).is_some_and(|name| name.used == name.called)
    }

    /// Returns whether a name has only one value, an array that is only added to and awaited.
    pub(super) fn is_list(&self, name: &Atom) -> bool {
        self.is_only(name) && self.name(name).is_some_and(|name| name.used == name.listed)
    }

    /// Returns whether a name refers to a global of the engine.
    pub(super) fn is_global(&self, name: &Atom, global: &str) -> bool {
        &**name == global && self.name(name).is_none_or(|name| name.bound == 0)
    }

    fn entry(&mut self, name: &Atom) -> &mut Name {
        self.names.entry(name.clone()).or_default()
    }

    fn bind(&mut self, name: &Ident) {
        self.entry(&name.sym).bound += 1;
    }
}

impl Visit for Names {
    fn visit_binding_ident(&mut self, name: &BindingIdent) {
        self.bind(&name.id);
    }

    fn visit_fn_decl(&mut self, function: &FnDecl) {
        self.bind(&function.ident);
        function.function.visit_with(self);
    }

    fn visit_fn_expr(&mut self, function: &FnExpr) {
        function.ident.iter().for_each(|name| self.bind(name));
        function.function.visit_with(self);
    }

    fn visit_class_decl(&mut self, class: &ClassDecl) {
        self.bind(&class.ident);
        class.class.visit_with(self);
    }

    fn visit_class_expr(&mut self, class: &ClassExpr) {
        class.ident.iter().for_each(|name| self.bind(name));
        class.class.visit_with(self);
    }

    fn visit_prop(&mut self, prop: &Prop) {
        if let Prop::Shorthand(name) = prop {
            self.entry(&name.sym).used += 1;
        }
        prop.visit_children_with(self);
    }

    fn visit_expr(&mut self, expr: &Expr) {
        if let Expr::Ident(name) = expr {
            self.entry(&name.sym).used += 1;
        }
        expr.visit_children_with(self);
    }

    fn visit_call_expr(&mut self, call: &CallExpr) {
        if let Callee::Expr(callee) = &call.callee {
            match bare(callee) {
                Expr::Ident(name) => self.entry(&name.sym).called += 1,
                Expr::Member(member) => {
                    if let (Expr::Ident(list), MemberProp::Ident(method)) =
                        (bare(&member.obj), &member.prop)
                        && &*method.sym == "push"
                    {
                        self.entry(&list.sym).listed += 1;
                    }
                }
                _ => {}
            }
        }
        if let Some(list) = awaited_list(call) {
            lists(list, &mut |list| self.entry(list).listed += 1);
        }
        call.visit_children_with(self);
    }
}

/// Returns the argument of `Promise.all(…)` or `Promise.allSettled(…)`.
fn awaited_list(call: &CallExpr) -> Option<&Expr> {
    let Callee::Expr(callee) = &call.callee else { return None };
    let Expr::Member(member) = bare(callee) else { return None };
    let (Expr::Ident(object), MemberProp::Ident(method)) = (bare(&member.obj), &member.prop) else {
        return None;
    };
    let waits = &*object.sym == "Promise" && matches!(&*method.sym, "all" | "allSettled");
    match call.args.as_slice() {
        [ExprOrSpread { spread: None, expr }] if waits => Some(bare(expr)),
        _ => None,
    }
}

/// Finds the arrays that are awaited as a whole: `list`, or `...list` in an array.
fn lists(list: &Expr, found: &mut impl FnMut(&Atom)) {
    match list {
        Expr::Ident(name) => found(&name.sym),
        Expr::Array(array) => {
            for item in array.elems.iter().flatten() {
                if let (Some(_), Expr::Ident(name)) = (item.spread, bare(&item.expr)) {
                    found(&name.sym);
                }
            }
        }
        _ => {}
    }
}

/// What a statement awaits in any case.
#[derive(Default)]
pub(super) struct Awaited {
    /// The names of promises.
    pub(super) promises: Vec<Atom>,
    /// The names of arrays of promises.
    pub(super) lists: Vec<Atom>,
}

/// Returns the names that a statement awaits on every path.
pub(super) fn awaited_by(statement: &Stmt) -> Awaited {
    let mut awaited = Awaited::default();
    match statement {
        Stmt::Expr(value) => in_any_case(&value.expr, &mut awaited),
        Stmt::Return(value) => {
            value.arg.iter().for_each(|value| in_any_case(value, &mut awaited));
        }
        Stmt::Decl(Decl::Var(variables)) => {
            let values = variables.decls.iter().filter_map(|variable| variable.init.as_ref());
            values.for_each(|value| in_any_case(value, &mut awaited));
        }
        _ => {}
    }
    awaited
}

fn in_any_case(expr: &Expr, out: &mut Awaited) {
    match bare(expr) {
        Expr::Assign(assign) => in_any_case(&assign.right, out),
        Expr::Await(awaited) => match bare(&awaited.arg) {
            Expr::Ident(name) => out.promises.push(name.sym.clone()),
            Expr::Call(call) => {
                if let Some(list) = awaited_list(call) {
                    lists(list, &mut |name| out.lists.push(name.clone()));
                    if let Expr::Array(array) = list {
                        for item in array.elems.iter().flatten() {
                            if let (None, Expr::Ident(name)) = (item.spread, bare(&item.expr)) {
                                out.promises.push(name.sym.clone());
                            }
                        }
                    }
                }
            }
            other => in_any_case(other, out),
        },
        _ => {}
    }
}
