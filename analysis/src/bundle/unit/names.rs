//! Finds the uses of a file's top-level names.

use std::collections::{BTreeSet, HashSet};

use swc_common::{GLOBALS, Globals, Mark, Span, SyntaxContext};
use swc_ecma_ast::{
    AssignPatProp, BindingIdent, Expr, Ident, ImportDecl, MemberExpr, MemberProp, Module,
    NamedExport, Pat, Prop, SimpleAssignTarget, TsEntityName, TsQualifiedName, UnaryExpr, UnaryOp,
    UpdateExpr,
};
use swc_ecma_transforms_base::resolver;
use swc_ecma_visit::{Visit, VisitMutWith, VisitWith};

use super::Unit;
use crate::wrapper;

/// One use of a top-level name.
pub(in crate::bundle) struct Use {
    pub(in crate::bundle) low: u32,
    pub(in crate::bundle) high: u32,
    pub(in crate::bundle) name: String,
    pub(in crate::bundle) form: Form,
}

/// The form of a use.
pub(in crate::bundle) enum Form {
    /// By itself.
    Plain,
    /// As the shorthand `{ name }`, which is also the key.
    Short,
    /// As `name.property`, up to `high`; `written` if it is assigned to.
    Member { property: String, high: u32, written: bool },
}

/// Finds all names of a file.
pub(super) fn collect(module: &mut Module, unit: &mut Unit, ambient: &BTreeSet<String>) {
    GLOBALS.set(&Globals::new(), || {
        // After resolution, the syntax context tells globals, top-level names and inner names apart.
        let (unresolved, top) = (Mark::new(), Mark::new());
        module.visit_mut_with(&mut resolver(unresolved, top, true));
        let mut names = Names {
            unit,
            ambient,
            top: SyntaxContext::empty().apply_mark(top),
            unresolved: SyntaxContext::empty().apply_mark(unresolved),
            written: HashSet::new(),
        };
        module.visit_with(&mut names);
    });
}

struct Names<'u> {
    unit: &'u mut Unit,
    ambient: &'u BTreeSet<String>,
    top: SyntaxContext,
    unresolved: SyntaxContext,
    /// Members that are assigned to.
    written: HashSet<Span>,
}

impl Names<'_> {
    fn note(&mut self, ident: &Ident, form: Form) {
        let name = ident.sym.to_string();
        if ident.ctxt == self.unresolved || self.ambient.contains(&name) {
            self.unit.free.insert(name);
        } else if ident.ctxt == self.top {
            if !self.unit.imports.contains_key(&name) {
                self.unit.own.insert(name.clone(), name.clone());
            }
            let low = wrapper::start(ident.span);
            // The span of some identifiers includes the type annotation after them.
            let is_plain = self.unit.text[low as usize..].starts_with(&name);
            let high =
                if is_plain { low + name.len() as u32 } else { wrapper::offset(ident.span.hi) };
            self.unit.uses.push(Use { low, high, name, form });
        } else {
            self.unit.inner.insert(name);
        }
    }

    fn is_import(&self, ident: &Ident) -> bool {
        ident.ctxt == self.top && self.unit.imports.contains_key(&*ident.sym)
    }

    /// Records the target of an assignment.
    fn target(&mut self, target: &Expr) {
        match target {
            Expr::Ident(ident) if self.is_import(ident) => {
                self.unit.written.push((wrapper::start(ident.span), ident.sym.to_string()));
            }
            Expr::Member(member) => {
                self.written.insert(member.span);
            }
            Expr::Paren(inner) => self.target(&inner.expr),
            Expr::TsAs(inner) => self.target(&inner.expr),
            Expr::TsNonNull(inner) => self.target(&inner.expr),
            Expr::TsSatisfies(inner) => self.target(&inner.expr),
            Expr::TsTypeAssertion(inner) => self.target(&inner.expr),
            _ => {}
        }
    }
}

impl Visit for Names<'_> {
    // These statements are removed, so names in them are not uses.
    fn visit_import_decl(&mut self, _: &ImportDecl) {}
    fn visit_named_export(&mut self, _: &NamedExport) {}

    fn visit_ident(&mut self, ident: &Ident) {
        self.note(ident, Form::Plain);
    }

    fn visit_prop(&mut self, property: &Prop) {
        match property {
            Prop::Shorthand(ident) => self.note(ident, Form::Short),
            other => other.visit_children_with(self),
        }
    }

    fn visit_assign_pat_prop(&mut self, property: &AssignPatProp) {
        let ident = &property.key.id;
        if self.is_import(ident) {
            self.unit.written.push((wrapper::start(ident.span), ident.sym.to_string()));
        }
        self.note(ident, Form::Short);
        property.value.visit_with(self);
    }

    fn visit_binding_ident(&mut self, binding: &BindingIdent) {
        if self.is_import(&binding.id) {
            let at = wrapper::start(binding.id.span);
            self.unit.written.push((at, binding.id.sym.to_string()));
        }
        binding.visit_children_with(self);
    }

    fn visit_member_expr(&mut self, member: &MemberExpr) {
        match (&*member.obj, &member.prop) {
            (Expr::Ident(ident), MemberProp::Ident(property)) if self.is_import(ident) => {
                let written = self.written.contains(&member.span);
                let high = wrapper::offset(property.span.hi);
                let property = property.sym.to_string();
                self.note(ident, Form::Member { property, high, written });
            }
            _ => member.visit_children_with(self),
        }
    }

    fn visit_ts_qualified_name(&mut self, name: &TsQualifiedName) {
        match &name.left {
            TsEntityName::Ident(ident) if self.is_import(ident) => {
                let (high, property) = (wrapper::offset(name.right.span.hi), &name.right.sym);
                let property = property.to_string();
                self.note(ident, Form::Member { property, high, written: false });
            }
            _ => name.visit_children_with(self),
        }
    }

    fn visit_simple_assign_target(&mut self, target: &SimpleAssignTarget) {
        match target {
            SimpleAssignTarget::Member(member) => {
                self.written.insert(member.span);
            }
            SimpleAssignTarget::Paren(inner) => self.target(&inner.expr),
            SimpleAssignTarget::TsAs(inner) => self.target(&inner.expr),
            SimpleAssignTarget::TsNonNull(inner) => self.target(&inner.expr),
            SimpleAssignTarget::TsSatisfies(inner) => self.target(&inner.expr),
            SimpleAssignTarget::TsTypeAssertion(inner) => self.target(&inner.expr),
            _ => {}
        }
        target.visit_children_with(self);
    }

    fn visit_pat(&mut self, pattern: &Pat) {
        if let Pat::Expr(target) = pattern {
            self.target(target);
        }
        pattern.visit_children_with(self);
    }

    fn visit_update_expr(&mut self, update: &UpdateExpr) {
        self.target(&update.arg);
        update.visit_children_with(self);
    }

    fn visit_unary_expr(&mut self, unary: &UnaryExpr) {
        if unary.op == UnaryOp::Delete {
            self.target(&unary.arg);
        }
        unary.visit_children_with(self);
    }
}
