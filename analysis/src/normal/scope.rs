//! Resolves names to declarations.

use foldhash::HashMap;

use swc_ecma_ast::{Decl, ForHead, ObjectPatProp, Pat, Stmt, VarDecl, VarDeclKind, VarDeclOrExpr};

/// The open scopes.
#[derive(Default)]
pub(super) struct Scopes<'a> {
    /// The declaration of each name in the current scope.
    meanings: HashMap<&'a str, Meaning>,
    /// The meanings that the open scopes shadow, the innermost last.
    hidden: Vec<(&'a str, Option<Meaning>)>,
    /// The length of `hidden` when each scope was opened.
    open: Vec<usize>,
    /// The number of each declaration, assigned at its first use.
    numbers: Vec<Option<u32>>,
    next: u32,
}

/// A declaration and the depth of its scope.
#[derive(Clone, Copy)]
struct Meaning {
    declaration: usize,
    depth: usize,
}

impl<'a> Scopes<'a> {
    /// Opens a scope that declares `names`.
    pub(super) fn open(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.open.push(self.hidden.len());
        for name in names {
            self.declare(name, None);
        }
    }

    /// Opens the scope of a function's body, where a `var` with the name of a parameter is that parameter.
    pub(super) fn open_body(&mut self, names: impl IntoIterator<Item = &'a str>) {
        // The depth of the scope around this one, which has the parameters.
        let parameters = self.open.len();
        self.open.push(self.hidden.len());
        for name in names {
            self.declare(name, Some(parameters));
        }
    }

    /// Closes the innermost scope.
    pub(super) fn close(&mut self) {
        let Some(from) = self.open.pop() else { return };
        for (name, before) in self.hidden.drain(from..).rev() {
            match before {
                Some(before) => self.meanings.insert(name, before),
                None => self.meanings.remove(name),
            };
        }
    }

    /// Declares a name, unless it is already declared in this scope or at depth `shared`.
    fn declare(&mut self, name: &'a str, shared: Option<usize>) {
        let depth = self.open.len();
        let before = self.meanings.get(name).copied();
        if before.is_some_and(|known| known.depth == depth || Some(known.depth) == shared) {
            return;
        }
        self.meanings.insert(name, Meaning { declaration: self.numbers.len(), depth });
        self.numbers.push(None);
        self.hidden.push((name, before));
    }

    /// Returns the number of the declaration of `name`, or `None` if the program does not declare it.
    pub(super) fn number(&mut self, name: &str) -> Option<u32> {
        let number = &mut self.numbers[self.meanings.get(name)?.declaration];
        if number.is_none() {
            *number = Some(self.next);
            self.next += 1;
        }
        *number
    }
}

/// Returns the names whose scope is the statement list: `let`, `const`, classes, functions.
pub(super) fn lexical(statements: &[Stmt]) -> Vec<&str> {
    let mut names = Vec::new();
    for statement in statements {
        if let Stmt::Decl(declared) = statement {
            match declared {
                Decl::Class(class) if !class.declare => names.push(&*class.ident.sym),
                Decl::Fn(function) if function.function.body.is_some() => {
                    names.push(&*function.ident.sym);
                }
                Decl::Var(var) if var.kind != VarDeclKind::Var && !var.declare => {
                    declared_by(var, &mut names);
                }
                _ => {}
            }
        }
    }
    names
}

/// Returns the names that `var` declares anywhere in the statements of one function.
pub(super) fn hoisted(statements: &[Stmt]) -> Vec<&str> {
    let mut names = Vec::new();
    for statement in statements {
        hoist(statement, &mut names);
    }
    names
}

fn hoist<'a>(statement: &'a Stmt, names: &mut Vec<&'a str>) {
    let mut var = |declared: &'a VarDecl| {
        if declared.kind == VarDeclKind::Var && !declared.declare {
            declared_by(declared, names);
        }
    };
    let head = |head: &'a ForHead, var: &mut dyn FnMut(&'a VarDecl)| {
        if let ForHead::VarDecl(declared) = head {
            var(declared);
        }
    };
    match statement {
        Stmt::Decl(Decl::Var(declared)) => var(declared),
        Stmt::Block(block) => block.stmts.iter().for_each(|inner| hoist(inner, names)),
        Stmt::Labeled(labeled) => hoist(&labeled.body, names),
        Stmt::With(with) => hoist(&with.body, names),
        Stmt::If(choice) => {
            hoist(&choice.cons, names);
            if let Some(other) = &choice.alt {
                hoist(other, names);
            }
        }
        Stmt::Switch(switch) => {
            for inner in switch.cases.iter().flat_map(|case| &case.cons) {
                hoist(inner, names);
            }
        }
        Stmt::Try(tried) => {
            let handler = tried.handler.iter().flat_map(|handler| &handler.body.stmts);
            let last = tried.finalizer.iter().flat_map(|block| &block.stmts);
            tried.block.stmts.iter().chain(handler).chain(last).for_each(|one| hoist(one, names));
        }
        Stmt::While(round) => hoist(&round.body, names),
        Stmt::DoWhile(round) => hoist(&round.body, names),
        Stmt::For(round) => {
            if let Some(VarDeclOrExpr::VarDecl(declared)) = &round.init {
                var(declared);
            }
            hoist(&round.body, names);
        }
        Stmt::ForIn(round) => {
            head(&round.left, &mut var);
            hoist(&round.body, names);
        }
        Stmt::ForOf(round) => {
            head(&round.left, &mut var);
            hoist(&round.body, names);
        }
        _ => {}
    }
}

/// Adds the names of a declaration.
pub(super) fn declared_by<'a>(declared: &'a VarDecl, names: &mut Vec<&'a str>) {
    for declarator in &declared.decls {
        bound_by(&declarator.name, names);
    }
}

/// Adds the names that a pattern binds.
pub(crate) fn bound_by<'a>(pattern: &'a Pat, names: &mut Vec<&'a str>) {
    match pattern {
        Pat::Ident(name) => names.push(&name.id.sym),
        Pat::Array(array) => array.elems.iter().flatten().for_each(|item| bound_by(item, names)),
        Pat::Rest(rest) => bound_by(&rest.arg, names),
        Pat::Object(object) => {
            for property in &object.props {
                match property {
                    ObjectPatProp::KeyValue(pair) => bound_by(&pair.value, names),
                    ObjectPatProp::Assign(short) => names.push(&short.key.id.sym),
                    ObjectPatProp::Rest(rest) => bound_by(&rest.arg, names),
                }
            }
        }
        Pat::Assign(assign) => bound_by(&assign.left, names),
        Pat::Invalid(_) | Pat::Expr(_) => {}
    }
}
