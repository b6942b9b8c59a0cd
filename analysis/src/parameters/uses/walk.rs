//! Walks over the program: which uses every run makes, and what each reveals.

mod annotations;

use swc_ecma_ast::{
    ArrayLit, ArrowExpr, AssignExpr, AssignTarget, BinExpr, BinaryOp, CallExpr, Callee, Class,
    CondExpr, DoWhileStmt, Expr, ExprOrSpread, ForInStmt, ForOfStmt, ForStmt, Function,
    FunctionBody, GetterProp, IfStmt, LabeledStmt, Lit, MemberExpr, MemberProp, OptChainBase,
    OptChainExpr, Pat, Prop, PropOrSpread, ReturnStmt, SetterProp, SimpleAssignTarget, SwitchStmt,
    Tpl, TryStmt, TsType, UnaryExpr, UnaryOp, UpdateExpr, VarDeclarator, WhileStmt,
};
use swc_ecma_visit::{Visit, VisitWith};

use super::evidence::{Kinds, of_default, of_method};
use super::{Meaning, Uses};

/// Walks the body of a program.
pub(super) fn walk(body: &FunctionBody, uses: &mut Uses) {
    let mut walk = Walk { uses, skippable: 0, functions: 0, left: false };
    body.visit_children_with(&mut walk);
}

struct Walk<'u> {
    uses: &'u mut Uses,
    /// The number of tests, loops, `try` statements and functions around this place.
    skippable: u32,
    /// The number of functions among them.
    functions: u32,
    /// Some runs have returned before this place.
    left: bool,
}

/// What a use does if the field is missing.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    /// The run fails or yields `undefined`.
    Fails,
    /// It tolerates it: the use tests for the field, or has a default.
    Tolerates,
    /// It passes `undefined` on.
    PassesOn,
}

impl Walk<'_> {
    /// Walks code that a run may skip.
    fn conditionally(&mut self, walk: impl FnOnce(&mut Self)) {
        self.skippable += 1;
        walk(self);
        self.skippable -= 1;
    }

    fn in_function(&mut self, walk: impl FnOnce(&mut Self)) {
        self.functions += 1;
        self.conditionally(walk);
        self.functions -= 1;
    }

    /// Records a use of `args` or a field if the expression is one; otherwise walks it.
    fn used(&mut self, expression: &Expr, missing: Missing, kinds: Option<Kinds>) {
        let Some(meaning) = self.uses.meaning(expression) else {
            expression.visit_with(self);
            return;
        };
        self.annotations(expression);
        match meaning {
            // A test whether `args` exists is always true.
            Meaning::All if missing == Missing::Tolerates => {}
            Meaning::All => self.uses.open = true,
            Meaning::Field { name, defaulted } => self.field(&name, defaulted, missing, kinds),
        }
    }

    fn field(&mut self, name: &str, defaulted: bool, missing: Missing, kinds: Option<Kinds>) {
        let always = self.skippable == 0 && !self.left;
        let field = self.uses.field(name);
        match missing {
            Missing::Fails => field.needed |= always && !defaulted,
            Missing::Tolerates => field.tolerated = true,
            Missing::PassesOn => {}
        }
        field.tolerated |= defaulted;
        if let Some(kinds) = kinds {
            field.kinds.allow(kinds);
        }
    }

    /// Records that the field's uses say nothing about the value that the caller passes.
    fn unclear(&mut self, name: &str) {
        self.uses.field(name).unclear = true;
    }

    fn written(&mut self, target: &Expr) {
        match self.uses.meaning(target) {
            Some(Meaning::All) => self.uses.open = true,
            Some(Meaning::Field { name, .. }) => self.unclear(&name),
            None => target.visit_with(self),
        }
    }

    fn arguments(&mut self, arguments: &[ExprOrSpread], missing: Missing, kinds: Option<Kinds>) {
        for argument in arguments {
            match argument.spread {
                Some(_) => self.used(&argument.expr, Missing::Fails, Some(Kinds::ITERABLE)),
                None => self.used(&argument.expr, missing, kinds),
            }
        }
    }

    /// Follows the object of a member expression, which may be the callee of a call.
    fn object(&mut self, member: &MemberExpr, optional: bool, called: bool) {
        let kinds = match &member.prop {
            MemberProp::Ident(name) if called => of_method(&name.sym),
            _ => None,
        };
        if let MemberProp::Ident(name) = &member.prop {
            self.uses.catches |=
                matches!(&*name.sym, "catch" | "then" | "allSettled" | "race" | "any" | "finally");
        }
        let missing = if optional { Missing::Tolerates } else { Missing::Fails };
        match self.uses.meaning(&member.obj) {
            // The name of the field is computed at run time.
            Some(Meaning::All) => self.uses.open = true,
            _ => self.used(&member.obj, missing, kinds),
        }
        if let MemberProp::Computed(computed) = &member.prop {
            // The property may be `catch` or similar.
            self.uses.catches |= !matches!(&*computed.expr, Expr::Lit(Lit::Num(_)));
            computed.expr.visit_with(self);
        }
    }

    fn callee(&mut self, callee: &Expr) {
        match callee {
            Expr::Member(member) if self.uses.meaning(callee).is_none() => {
                self.object(member, false, true);
            }
            Expr::OptChain(chain) if self.uses.meaning(callee).is_none() => match &*chain.base {
                OptChainBase::Member(member) => self.object(member, chain.optional, true),
                OptChainBase::Call(_) => chain.visit_with(self),
            },
            _ => self.used(callee, Missing::Fails, None),
        }
    }
}

/// Returns what a built-in function does if the field is missing, and the type that it requires.
fn of_builtin(callee: &Expr) -> Option<(Missing, Option<Kinds>)> {
    let Expr::Member(member) = callee else { return None };
    let (Expr::Ident(object), MemberProp::Ident(name)) = (&*member.obj, &member.prop) else {
        return None;
    };
    match (&*object.sym, &*name.sym) {
        ("JSON", "parse") => Some((Missing::Fails, Some(Kinds::STRING))),
        ("Math", _) => Some((Missing::Fails, Some(Kinds::NUMBER))),
        _ => None,
    }
}

/// Returns the field whose type a call tests.
fn type_tested(callee: &Expr, arguments: &[ExprOrSpread], uses: &Uses) -> Option<String> {
    let Expr::Member(member) = callee else { return None };
    let (Expr::Ident(object), MemberProp::Ident(name)) = (&*member.obj, &member.prop) else {
        return None;
    };
    let tests = match &*object.sym {
        "Array" => &*name.sym == "isArray",
        "Number" => name.sym.starts_with("is"),
        _ => false,
    };
    match uses.meaning(&arguments.first()?.expr) {
        Some(Meaning::Field { name, .. }) if tests => Some(name),
        _ => None,
    }
}

impl Visit for Walk<'_> {
    // Types are erased and use nothing.
    fn visit_ts_type(&mut self, _: &TsType) {}

    fn visit_expr(&mut self, node: &Expr) {
        if self.uses.meaning(node).is_some() {
            self.used(node, Missing::PassesOn, None);
            return;
        }
        if let Expr::Ident(name) = node {
            // These give access to `args` without naming it.
            self.uses.open |= matches!(&*name.sym, "globalThis" | "eval" | "Function");
        }
        node.visit_children_with(self);
    }

    fn visit_var_declarator(&mut self, node: &VarDeclarator) {
        match node.init.as_ref().and_then(|init| Some((init, self.uses.meaning(init)?))) {
            Some((init, meaning)) => {
                self.annotations(init);
                self.bound(&node.name, &meaning);
            }
            None => {
                node.init.visit_with(self);
                node.name.visit_with(self);
            }
        }
    }

    fn visit_pat(&mut self, node: &Pat) {
        match node {
            Pat::Assign(assign) => {
                assign.left.visit_with(self);
                self.conditionally(|walk| assign.right.visit_with(walk));
            }
            Pat::Expr(target) => self.written(target),
            _ => node.visit_children_with(self),
        }
    }

    fn visit_member_expr(&mut self, node: &MemberExpr) {
        self.object(node, false, false);
    }

    fn visit_opt_chain_expr(&mut self, node: &OptChainExpr) {
        match &*node.base {
            OptChainBase::Member(member) => self.object(member, node.optional, false),
            OptChainBase::Call(call) => {
                self.callee(&call.callee);
                self.conditionally(|walk| walk.arguments(&call.args, Missing::PassesOn, None));
            }
        }
    }

    fn visit_call_expr(&mut self, node: &CallExpr) {
        let Callee::Expr(callee) = &node.callee else {
            node.visit_children_with(self);
            return;
        };
        self.callee(callee);
        if let Some(tested) = type_tested(callee, &node.args, self.uses) {
            self.unclear(&tested);
            return;
        }
        let (missing, kinds) = of_builtin(callee).unwrap_or((Missing::PassesOn, None));
        self.arguments(&node.args, missing, kinds);
    }

    fn visit_bin_expr(&mut self, node: &BinExpr) {
        let number = Some(Kinds::NUMBER);
        match node.op {
            BinaryOp::NullishCoalescing | BinaryOp::LogicalOr | BinaryOp::LogicalAnd => {
                let fills = node.op != BinaryOp::LogicalAnd;
                let kinds = if fills { of_default(&node.right) } else { None };
                self.used(&node.left, Missing::Tolerates, kinds);
                self.conditionally(|walk| walk.used(&node.right, Missing::PassesOn, None));
            }
            BinaryOp::EqEq | BinaryOp::NotEq | BinaryOp::EqEqEq | BinaryOp::NotEqEq => {
                self.used(&node.left, Missing::Tolerates, None);
                self.used(&node.right, Missing::Tolerates, None);
            }
            BinaryOp::In => {
                if let (Expr::Lit(Lit::Str(name)), Some(Meaning::All)) =
                    (&*node.left, self.uses.meaning(&node.right))
                    && let Some(name) = name.value.as_str()
                {
                    self.field(name, false, Missing::Tolerates, None);
                    return;
                }
                self.used(&node.left, Missing::Fails, None);
                self.used(&node.right, Missing::Fails, None);
            }
            BinaryOp::InstanceOf => {
                if let Some(Meaning::Field { name, .. }) = self.uses.meaning(&node.left) {
                    self.unclear(&name);
                } else {
                    node.left.visit_with(self);
                }
                node.right.visit_with(self);
            }
            BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod | BinaryOp::Exp => {
                self.used(&node.left, Missing::Fails, number);
                self.used(&node.right, Missing::Fails, number);
            }
            _ => {
                self.used(&node.left, Missing::Fails, None);
                self.used(&node.right, Missing::Fails, None);
            }
        }
    }

    fn visit_unary_expr(&mut self, node: &UnaryExpr) {
        match (node.op, self.uses.meaning(&node.arg)) {
            (UnaryOp::TypeOf | UnaryOp::Delete, Some(Meaning::Field { name, .. })) => {
                self.unclear(&name);
            }
            (UnaryOp::Bang | UnaryOp::Void | UnaryOp::TypeOf, _) => {
                self.used(&node.arg, Missing::Tolerates, None);
            }
            (UnaryOp::Minus, _) => self.used(&node.arg, Missing::Fails, Some(Kinds::NUMBER)),
            (UnaryOp::Plus | UnaryOp::Tilde, _) => self.used(&node.arg, Missing::Fails, None),
            (UnaryOp::Delete, _) => node.arg.visit_with(self),
        }
    }

    fn visit_update_expr(&mut self, node: &UpdateExpr) {
        self.written(&node.arg);
    }

    fn visit_assign_expr(&mut self, node: &AssignExpr) {
        match &node.left {
            AssignTarget::Simple(SimpleAssignTarget::Member(member)) => {
                match self.uses.member(member) {
                    Some(Meaning::Field { name, .. }) => self.unclear(&name),
                    _ => member.visit_with(self),
                }
            }
            target => target.visit_with(self),
        }
        node.right.visit_with(self);
    }

    fn visit_cond_expr(&mut self, node: &CondExpr) {
        self.used(&node.test, Missing::Tolerates, None);
        self.conditionally(|walk| {
            node.cons.visit_with(walk);
            node.alt.visit_with(walk);
        });
    }

    fn visit_tpl(&mut self, node: &Tpl) {
        for part in &node.exprs {
            self.used(part, Missing::Fails, None);
        }
    }

    fn visit_array_lit(&mut self, node: &ArrayLit) {
        for item in node.elems.iter().flatten() {
            self.arguments(std::slice::from_ref(item), Missing::PassesOn, None);
        }
    }

    fn visit_prop_or_spread(&mut self, node: &PropOrSpread) {
        match node {
            PropOrSpread::Spread(spread) => self.used(&spread.expr, Missing::PassesOn, None),
            PropOrSpread::Prop(prop) => match &**prop {
                Prop::Shorthand(name) => {
                    self.used(&Expr::Ident(name.clone()), Missing::PassesOn, None);
                }
                _ => prop.visit_children_with(self),
            },
        }
    }

    fn visit_if_stmt(&mut self, node: &IfStmt) {
        self.used(&node.test, Missing::Tolerates, None);
        self.conditionally(|walk| {
            node.cons.visit_with(walk);
            node.alt.visit_with(walk);
        });
    }

    fn visit_return_stmt(&mut self, node: &ReturnStmt) {
        node.visit_children_with(self);
        // After a top-level `return`, a run may not reach later uses.
        self.left |= self.functions == 0;
    }

    fn visit_for_of_stmt(&mut self, node: &ForOfStmt) {
        self.used(&node.right, Missing::Fails, Some(Kinds::ITERABLE));
        self.conditionally(|walk| {
            node.left.visit_with(walk);
            node.body.visit_with(walk);
        });
    }

    fn visit_for_in_stmt(&mut self, node: &ForInStmt) {
        self.used(&node.right, Missing::Tolerates, None);
        self.conditionally(|walk| {
            node.left.visit_with(walk);
            node.body.visit_with(walk);
        });
    }

    fn visit_for_stmt(&mut self, node: &ForStmt) {
        node.init.visit_with(self);
        if let Some(test) = &node.test {
            self.used(test, Missing::Tolerates, None);
        }
        self.conditionally(|walk| {
            node.update.visit_with(walk);
            node.body.visit_with(walk);
        });
    }

    fn visit_while_stmt(&mut self, node: &WhileStmt) {
        self.used(&node.test, Missing::Tolerates, None);
        self.conditionally(|walk| node.body.visit_with(walk));
    }

    fn visit_do_while_stmt(&mut self, node: &DoWhileStmt) {
        self.conditionally(|walk| {
            node.body.visit_with(walk);
            walk.used(&node.test, Missing::Tolerates, None);
        });
    }

    fn visit_switch_stmt(&mut self, node: &SwitchStmt) {
        self.used(&node.discriminant, Missing::Tolerates, None);
        self.conditionally(|walk| node.cases.visit_with(walk));
    }

    fn visit_try_stmt(&mut self, node: &TryStmt) {
        self.uses.catches = true;
        self.conditionally(|walk| node.visit_children_with(walk));
    }

    fn visit_labeled_stmt(&mut self, node: &LabeledStmt) {
        self.conditionally(|walk| node.visit_children_with(walk));
    }

    fn visit_arrow_expr(&mut self, node: &ArrowExpr) {
        self.in_function(|walk| node.visit_children_with(walk));
    }

    fn visit_function(&mut self, node: &Function) {
        self.in_function(|walk| node.visit_children_with(walk));
    }

    fn visit_class(&mut self, node: &Class) {
        self.in_function(|walk| node.visit_children_with(walk));
    }

    fn visit_getter_prop(&mut self, node: &GetterProp) {
        self.in_function(|walk| node.visit_children_with(walk));
    }

    fn visit_setter_prop(&mut self, node: &SetterProp) {
        self.in_function(|walk| node.visit_children_with(walk));
    }
}
