//! Names: what declares them, what they mean, what they hold.

use foldhash::HashMap;

use swc_ecma_ast::{Decl, ForHead, ObjectPatProp, Pat, Stmt, VarDecl, VarDeclKind, VarDeclOrExpr};

use super::Builder;
use super::control::Chain;
use super::feed::Slot;
use super::path::Path;
use super::value::{Deps, Form, FuncId, Value};

pub(super) type ScopeId = u32;
pub(super) type BindingId = u32;

/// The names of one block or function.
#[derive(Default)]
pub(super) struct Scope<'a> {
    pub(super) parent: Option<ScopeId>,
    names: HashMap<&'a str, BindingId>,
}

/// A variable, parameter, function or class of the program.
pub(super) struct Binding {
    /// The function that it belongs to.
    pub(super) owner: FuncId,
    /// Every value ever written to it.
    summary: Value,
    /// Another function writes it, so the order of writes is not known.
    written_elsewhere: bool,
    /// It is there before its declaration is reached.
    hoisted: bool,
    /// The parameter that it is, or which part of it.
    pub(super) param_of: Option<(FuncId, Slot, Path)>,
}

/// What a scope belongs to; one piece of code may have several.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum ScopeKind {
    Params,
    Body,
    Block,
    Head,
    Name,
}

/// A declared name and whether it is `undefined` before its first write.
pub(super) type Declared<'a> = (&'a str, bool);

impl<'a> Builder<'a> {
    /// Returns the scope of a piece of code within the current one.
    pub(super) fn scope_at(
        &mut self,
        key: u32,
        kind: ScopeKind,
        declared: impl FnOnce(&mut Vec<Declared<'a>>),
    ) -> ScopeId {
        if let Some(id) = self.scope_ids.get(&(self.context, key, kind as u8)) {
            return *id;
        }
        let mut names = Vec::new();
        declared(&mut names);
        let mut scope = Scope { parent: Some(self.scope), names: HashMap::default() };
        for (name, hoisted) in names {
            if scope.names.contains_key(name) {
                continue;
            }
            let id = self.bindings.len() as BindingId;
            scope.names.insert(name, id);
            let summary = if hoisted { Value::undefined() } else { Value::never() };
            self.bindings.push(Binding {
                owner: self.func,
                summary,
                written_elsewhere: false,
                hoisted,
                param_of: None,
            });
            self.env.push(None);
            self.declared.push(Chain::default());
        }
        let id = self.scopes.len() as ScopeId;
        self.scopes.push(scope);
        self.scope_ids.insert((self.context, key, kind as u8), id);
        id
    }

    /// Walks within a scope.
    pub(super) fn within<R>(&mut self, scope: ScopeId, walk: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.scope, scope);
        let result = walk(self);
        self.scope = before;
        result
    }

    /// Returns what a name means here; `None` for a global one.
    pub(super) fn lookup(&self, name: &str) -> Option<BindingId> {
        let mut scope = Some(self.scope);
        while let Some(id) = scope {
            let Scope { parent, names } = &self.scopes[id as usize];
            if let Some(binding) = names.get(name) {
                return Some(*binding);
            }
            scope = *parent;
        }
        None
    }

    /// Returns what a variable may hold here.
    pub(super) fn read(&self, binding: BindingId) -> Value {
        let known = &self.bindings[binding as usize];
        if known.owner != self.func || known.written_elsewhere {
            return known.summary.clone();
        }
        match &self.env[binding as usize] {
            Some(value) => value.clone(),
            // Before its first write a `var` is undefined and a `let` an error.
            None if known.summary.form == Form::Never => Value::never(),
            None => Value::undefined(),
        }
    }

    /// Writes a variable.
    pub(super) fn write(&mut self, binding: BindingId, value: Value) {
        #[cfg(test)]
        if super::fault::is(super::fault::Fault::ClosureWrites)
            && self.bindings[binding as usize].owner != self.func
        {
            return;
        }
        let decided = self.decided_since(binding);
        let mut value = self.bounded(value).with_deps(&decided);
        // A container with a name can be changed by whoever knows the name.
        value.shared |= value.is_container();
        if value.shared && self.mutates {
            // Its functions may be called in each other's place.
            for func in value.parts().flat_map(|part| part.funcs().to_vec()).collect::<Vec<_>>() {
                self.open(func);
            }
        }
        let summary = self.bindings[binding as usize].summary.clone();
        let joined = self.join(&summary, &value);
        let joined = self.bounded(joined);
        let known = &mut self.bindings[binding as usize];
        if known.owner != self.func && !known.written_elsewhere {
            known.written_elsewhere = true;
            self.changed = true;
        }
        if joined != summary {
            known.summary = joined;
            self.changed = true;
        }
        self.note_in_region(binding, &value);
        self.set(binding, Some(value));
    }

    /// Returns what decides whether a write here is made, seen from where the
    /// variable is declared.
    fn decided_since(&mut self, binding: BindingId) -> Deps {
        let Binding { owner, hoisted, .. } = &self.bindings[binding as usize];
        if *owner != self.func {
            return self.control.chain.since(&self.declared[binding as usize]);
        }
        if self.env[binding as usize].is_none() {
            let place = if *hoisted { Chain::default() } else { self.control.chain.clone() };
            self.declared[binding as usize] = place;
        }
        Deps::default()
    }

    /// Sets what a variable holds, without counting it as a write.
    pub(super) fn set(&mut self, binding: BindingId, value: Option<Value>) {
        let old = std::mem::replace(&mut self.env[binding as usize], value);
        self.trail.push((binding, old));
    }
}

/// Collects the names that a pattern declares.
pub(super) fn pattern_names<'a>(pattern: &'a Pat, hoisted: bool, out: &mut Vec<Declared<'a>>) {
    match pattern {
        Pat::Ident(name) => out.push((&name.id.sym, hoisted)),
        Pat::Array(array) => {
            for item in array.elems.iter().flatten() {
                pattern_names(item, hoisted, out);
            }
        }
        Pat::Rest(rest) => pattern_names(&rest.arg, hoisted, out),
        Pat::Assign(assign) => pattern_names(&assign.left, hoisted, out),
        Pat::Object(object) => {
            for prop in &object.props {
                match prop {
                    ObjectPatProp::KeyValue(pair) => pattern_names(&pair.value, hoisted, out),
                    ObjectPatProp::Assign(name) => out.push((&name.key.id.sym, hoisted)),
                    ObjectPatProp::Rest(rest) => pattern_names(&rest.arg, hoisted, out),
                }
            }
        }
        Pat::Invalid(_) | Pat::Expr(_) => {}
    }
}

fn declared_by<'a>(declared: &'a VarDecl, hoisted: bool, out: &mut Vec<Declared<'a>>) {
    // What is only declared to the type checker does not exist when it runs.
    if !declared.declare {
        for declarator in &declared.decls {
            pattern_names(&declarator.name, hoisted, out);
        }
    }
}

/// Collects the names that a loop's head declares.
pub(super) fn head_names<'a>(declared: &'a VarDecl, out: &mut Vec<Declared<'a>>) {
    if declared.kind != VarDeclKind::Var {
        declared_by(declared, false, out);
    }
}

/// Collects the names that statements declare for their own block.
pub(super) fn lexical_names<'a>(statements: &'a [Stmt], out: &mut Vec<Declared<'a>>) {
    for statement in statements {
        let mut statement = statement;
        while let Stmt::Labeled(labeled) = statement {
            statement = &labeled.body;
        }
        match statement {
            Stmt::Decl(Decl::Var(declared)) => head_names(declared, out),
            Stmt::Decl(Decl::Fn(function)) if has_body(function) => {
                out.push((&function.ident.sym, false));
            }
            Stmt::Decl(Decl::Class(class)) if !class.declare => {
                out.push((&class.ident.sym, false));
            }
            _ => {}
        }
    }
}

/// Returns whether a function declaration exists when the program runs.
pub(super) fn has_body(function: &swc_ecma_ast::FnDecl) -> bool {
    !function.declare && function.function.body.is_some()
}

/// Collects the names that `var` declares anywhere in a function's body.
pub(super) fn var_names<'a>(statements: &'a [Stmt], out: &mut Vec<Declared<'a>>) {
    let mut open: Vec<&'a Stmt> = statements.iter().collect();
    while let Some(statement) = open.pop() {
        match statement {
            Stmt::Decl(Decl::Var(declared)) if declared.kind == VarDeclKind::Var => {
                declared_by(declared, true, out);
            }
            Stmt::Block(block) => open.extend(&block.stmts),
            Stmt::Labeled(labeled) => open.push(&labeled.body),
            Stmt::If(choice) => {
                open.push(&choice.cons);
                open.extend(choice.alt.as_deref());
            }
            Stmt::Switch(switch) => {
                open.extend(switch.cases.iter().flat_map(|case| &case.cons));
            }
            Stmt::Try(attempt) => {
                open.extend(&attempt.block.stmts);
                open.extend(attempt.handler.iter().flat_map(|handler| &handler.body.stmts));
                open.extend(attempt.finalizer.iter().flat_map(|block| &block.stmts));
            }
            Stmt::While(repeat) => open.push(&repeat.body),
            Stmt::DoWhile(repeat) => open.push(&repeat.body),
            Stmt::For(repeat) => {
                if let Some(VarDeclOrExpr::VarDecl(declared)) = &repeat.init
                    && declared.kind == VarDeclKind::Var
                {
                    declared_by(declared, true, out);
                }
                open.push(&repeat.body);
            }
            Stmt::ForIn(repeat) => {
                head_vars(&repeat.left, out);
                open.push(&repeat.body);
            }
            Stmt::ForOf(repeat) => {
                head_vars(&repeat.left, out);
                open.push(&repeat.body);
            }
            Stmt::With(with) => open.push(&with.body),
            _ => {}
        }
    }
}

fn head_vars<'a>(head: &'a ForHead, out: &mut Vec<Declared<'a>>) {
    if let ForHead::VarDecl(declared) = head
        && declared.kind == VarDeclKind::Var
    {
        declared_by(declared, true, out);
    }
}
