//! The names that one scope declares, with their positions.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use swc_ecma_ast::{
    Decl, ForHead, Ident, ObjectPatProp, Pat, Stmt, VarDecl, VarDeclKind, VarDeclOrExpr,
};

/// Names in source order.
#[derive(Default)]
pub(super) struct Names<'a>(Vec<&'a Ident>);

impl<'a> Names<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the second and later declarations of a name.
    pub(super) fn repeated(&self) -> Vec<&'a Ident> {
        if self.0.len() < 2 {
            return Vec::new();
        }
        let mut seen = HashSet::with_capacity_and_hasher(self.0.len(), RandomState::default());
        self.0.iter().filter(|name| !seen.insert(&*name.sym)).copied().collect()
    }

    /// Returns the names that both have: the later declaration of each.
    pub(super) fn also_in(&self, other: &Self) -> Vec<&'a Ident> {
        if self.0.is_empty() || other.0.is_empty() {
            return Vec::new();
        }
        let there: HashMap<&str, &'a Ident, RandomState> =
            other.0.iter().map(|name| (&*name.sym, *name)).collect();
        let both = self.0.iter().filter_map(|name| {
            let twin = there.get(&*name.sym)?;
            Some(if twin.span.lo > name.span.lo { *twin } else { *name })
        });
        both.collect()
    }

    /// The names of `let`, `const` and classes in a list, and in a block also those of functions.
    pub(super) fn lexical(statements: &'a [Stmt], block: bool) -> Self {
        let mut names = Self::default();
        for statement in statements {
            match statement {
                Stmt::Decl(Decl::Class(class)) if !class.declare => names.0.push(&class.ident),
                Stmt::Decl(Decl::Fn(function)) if block && function.function.body.is_some() => {
                    names.0.push(&function.ident);
                }
                Stmt::Decl(Decl::Var(declared)) => names.add(Self::of_let(declared)),
                _ => {}
            }
        }
        names
    }

    /// The names of the functions in a list.
    pub(super) fn functions(statements: &'a [Stmt]) -> Self {
        let functions = statements.iter().filter_map(|statement| match statement {
            Stmt::Decl(Decl::Fn(function)) if function.function.body.is_some() => {
                Some(&function.ident)
            }
            _ => None,
        });
        Self(functions.collect())
    }

    /// The names of a declaration, unless it is a `var`.
    pub(super) fn of_let(declared: &'a VarDecl) -> Self {
        let mut names = Self::default();
        if declared.kind != VarDeclKind::Var && !declared.declare {
            names.declared(declared);
        }
        names
    }

    /// The names that `var` declares anywhere in the statements of one function.
    pub(super) fn hoisted(statements: &'a [Stmt]) -> Self {
        let mut names = Self::default();
        statements.iter().for_each(|statement| names.hoist(statement));
        names
    }

    fn var(&mut self, declared: &'a VarDecl) {
        if declared.kind == VarDeclKind::Var && !declared.declare {
            self.declared(declared);
        }
    }

    fn head(&mut self, head: &'a ForHead) {
        if let ForHead::VarDecl(declared) = head {
            self.var(declared);
        }
    }

    fn hoist(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Decl(Decl::Var(declared)) => self.var(declared),
            Stmt::Block(block) => block.stmts.iter().for_each(|inner| self.hoist(inner)),
            Stmt::Labeled(labeled) => self.hoist(&labeled.body),
            Stmt::If(choice) => {
                self.hoist(&choice.cons);
                choice.alt.iter().for_each(|other| self.hoist(other));
            }
            Stmt::Switch(switch) => {
                switch.cases.iter().flat_map(|case| &case.cons).for_each(|inner| self.hoist(inner));
            }
            Stmt::Try(tried) => {
                let handler = tried.handler.iter().flat_map(|handler| &handler.body.stmts);
                let last = tried.finalizer.iter().flat_map(|block| &block.stmts);
                tried.block.stmts.iter().chain(handler).chain(last).for_each(|one| self.hoist(one));
            }
            Stmt::While(round) => self.hoist(&round.body),
            Stmt::DoWhile(round) => self.hoist(&round.body),
            Stmt::For(round) => {
                if let Some(VarDeclOrExpr::VarDecl(declared)) = &round.init {
                    self.var(declared);
                }
                self.hoist(&round.body);
            }
            Stmt::ForIn(round) => {
                self.head(&round.left);
                self.hoist(&round.body);
            }
            Stmt::ForOf(round) => {
                self.head(&round.left);
                self.hoist(&round.body);
            }
            _ => {}
        }
    }

    fn declared(&mut self, declared: &'a VarDecl) {
        declared.decls.iter().for_each(|declarator| self.pattern(&declarator.name));
    }

    /// Adds the names that a pattern binds.
    pub(super) fn pattern(&mut self, pattern: &'a Pat) {
        match pattern {
            Pat::Ident(name) => self.0.push(&name.id),
            Pat::Array(array) => array.elems.iter().flatten().for_each(|item| self.pattern(item)),
            Pat::Rest(rest) => self.pattern(&rest.arg),
            Pat::Object(object) => {
                for property in &object.props {
                    match property {
                        ObjectPatProp::KeyValue(pair) => self.pattern(&pair.value),
                        ObjectPatProp::Assign(short) => self.0.push(&short.key.id),
                        ObjectPatProp::Rest(rest) => self.pattern(&rest.arg),
                    }
                }
            }
            Pat::Assign(assign) => self.pattern(&assign.left),
            Pat::Invalid(_) | Pat::Expr(_) => {}
        }
    }
}
