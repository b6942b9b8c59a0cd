//! The order of the calls of a program, derived from its syntax tree.
//!
//! The walk follows the program in evaluation order, into its functions at each of their calls. A call
//! that is awaited immediately is a separate step. Calls that the program starts before it waits share a
//! step, or run concurrently with later ones. Functions that the program does not call directly (stored
//! callbacks, methods, getters) can run at any time.

mod names;
mod steps;
mod walk;

use foldhash::{HashMap, HashSet};
use protocol::Step;
use swc_atoms::Atom;
use swc_ecma_ast::{
    ArrowExpr, ArrowFunctionBody, Decl, Expr, ExprOrSpread, Function, MemberProp, Pat, Stmt,
};

use self::names::{Names, awaited_by};
use self::steps::Steps;
use super::lower::bare;
use crate::wrapper::start;

/// The maximum number of expressions that are walked, counting a function at each of its calls. Beyond it
/// every call is `any_time`.
const WORK: usize = 200_000;
/// The maximum depth of nested calls that are followed.
const DEPTH: usize = 24;
/// The stack that one step of the walk may need, and the size of the stack that is allocated if less is left.
const STACK_STEP: usize = 256 * 1024;
const STACK_MORE: usize = 16 * 1024 * 1024;

/// How the promise that an expression returns is used.
#[derive(Debug, Clone, Default, PartialEq)]
enum Use {
    /// Not at all, or in a way that is not followed.
    #[default]
    Dropped,
    /// The program waits for it before it continues.
    Awaited,
    /// It is an array of promises, and the program waits for all of them.
    AllAwaited,
    /// It is assigned to a variable that never has another value.
    Named(Atom),
    /// It is added to an array of this name, which is only added to and awaited.
    Listed(Atom),
}

/// A function that the walk can enter.
#[derive(Clone, Copy)]
pub(super) struct Callable<'a> {
    at: u32,
    is_async: bool,
    is_generator: bool,
    params: Params<'a>,
    body: Body<'a>,
}

#[derive(Clone, Copy)]
enum Params<'a> {
    Function(&'a Function),
    Arrow(&'a ArrowExpr),
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Statements(&'a [Stmt]),
    Value(&'a Expr),
}

impl<'a> Callable<'a> {
    fn function(function: &'a Function) -> Option<Self> {
        Some(Self {
            at: start(function.span),
            is_async: function.is_async,
            is_generator: function.is_generator,
            params: Params::Function(function),
            body: Body::Statements(&function.body.as_ref()?.stmts),
        })
    }

    fn arrow(arrow: &'a ArrowExpr) -> Self {
        Self {
            at: start(arrow.span),
            is_async: arrow.is_async,
            is_generator: false,
            params: Params::Arrow(arrow),
            body: match &*arrow.body {
                ArrowFunctionBody::FunctionBody(body) => Body::Statements(&body.stmts),
                ArrowFunctionBody::Expr(value) => Body::Value(value),
            },
        }
    }

    /// Returns the function if an expression is a function expression.
    fn of(expr: &'a Expr) -> Option<Self> {
        match bare(expr) {
            Expr::Arrow(arrow) => Some(Self::arrow(arrow)),
            // A named function expression could call itself.
            Expr::Fn(function) if function.ident.is_none() => Self::function(&function.function),
            _ => None,
        }
    }

    fn params(&self) -> Vec<&'a Pat> {
        match self.params {
            Params::Function(function) => function.params.iter().map(|param| &param.pat).collect(),
            Params::Arrow(arrow) => arrow.params.iter().collect(),
        }
    }
}

/// Returns the steps of a program. `sites` has the position of each task, in order; each task is in at
/// least one step.
pub(crate) fn order(main: &Function, sites: &[u32]) -> Vec<Step> {
    let mut tasks: HashMap<u32, Vec<usize>> = HashMap::default();
    for (task, at) in sites.iter().enumerate() {
        tasks.entry(*at).or_default().push(task);
    }
    let Some(body) = main.body.as_ref().filter(|_| !sites.is_empty()) else { return Vec::new() };
    let mut walk = Walk {
        names: Names::of(main),
        functions: HashMap::default(),
        steps: Steps::default(),
        tasks: &tasks,
        bound: HashMap::default(),
        within: Vec::new(),
        recursive: HashSet::default(),
        returns: Use::Awaited,
        work: WORK,
    };
    walk.body(&body.stmts);
    let lost = walk.work == 0;
    walk.steps.finish(sites.len(), lost)
}

struct Walk<'a, 't> {
    names: Names,
    /// The functions whose name is only ever called.
    functions: HashMap<Atom, Callable<'a>>,
    steps: Steps,
    tasks: &'t HashMap<u32, Vec<usize>>,
    /// The functions that are bound to parameters.
    bound: HashMap<Atom, Callable<'a>>,
    /// The functions around the current position.
    within: Vec<u32>,
    recursive: HashSet<u32>,
    /// How the return value of the current function is used.
    returns: Use,
    work: usize,
}

impl<'a> Walk<'a, '_> {
    /// Walks the top-level statements. The program ends with the value of the last one that does something,
    /// which is awaited.
    fn body(&mut self, statements: &'a [Stmt]) {
        let does_nothing =
            |statement: &Stmt| matches!(statement, Stmt::Empty(_) | Stmt::Decl(Decl::Fn(_)));
        let last = statements.iter().rposition(|statement| !does_nothing(statement));
        self.list(statements, last);
    }

    /// Walks a list of statements; the value of the one at `awaited` is awaited.
    fn list(&mut self, statements: &'a [Stmt], awaited: Option<usize>) {
        self.steps.enter_block();
        self.hoist(statements);
        for (place, statement) in statements.iter().enumerate() {
            match statement {
                Stmt::Expr(value) if awaited == Some(place) => {
                    self.expr(&value.expr, Use::Awaited);
                }
                _ => self.statement(statement),
            }
            if self.steps.has_open() {
                self.steps.close(&awaited_by(statement));
            }
        }
        self.steps.leave_block();
    }

    fn expr(&mut self, expr: &'a Expr, uses: Use) {
        if self.work == 0 {
            return;
        }
        self.work -= 1;
        stacker::maybe_grow(STACK_STEP, STACK_MORE, || self.kind(expr, uses));
    }

    /// Records a call of the tasks at a position.
    fn call_at(&mut self, at: u32, uses: &Use) {
        if let Some(tasks) = self.tasks.get(&at) {
            self.steps.add(tasks, uses);
        }
    }

    /// Walks code that is not called here and may run at any time.
    fn any_time(&mut self, walk: impl FnOnce(&mut Self)) {
        let before = self.steps.begin_any_time();
        let returns = std::mem::take(&mut self.returns);
        walk(self);
        self.returns = returns;
        self.steps.end_any_time(before);
    }

    /// Walks a function that is called here.
    fn enter(&mut self, function: Callable<'a>, given: &'a [ExprOrSpread], uses: Use) {
        if function.is_generator || self.within.len() >= DEPTH {
            // The body of a generator runs whenever its next value is requested.
            if function.is_generator {
                self.any_time(|walk| walk.inside(function, Use::Dropped));
            } else {
                // Give up: without work left, every call becomes `any_time`.
                self.work = 0;
            }
            return;
        }
        // A recursive call is not followed again.
        if self.within.contains(&function.at) {
            self.recursive.insert(function.at);
            return;
        }
        self.within.push(function.at);
        // A callback that is only called by its parameter's name is walked at those calls.
        let mut replaced = Vec::new();
        for (pattern, given) in function.params().into_iter().zip(given) {
            let Pat::Ident(name) = pattern else { continue };
            if given.spread.is_some() {
                break;
            }
            if self.names.is_only_called(&name.id.sym)
                && let Some(callback) = Callable::of(&given.expr)
            {
                let before = self.bound.insert(name.id.sym.clone(), callback);
                replaced.push((name.id.sym.clone(), before));
            }
        }
        let first = self.steps.mark();
        // All of a function that is not awaited runs concurrently with what follows.
        let is_concurrent = function.is_async && !matches!(uses, Use::Awaited | Use::AllAwaited);
        if is_concurrent {
            self.one_step(uses, false, |walk| walk.inside(function, Use::Awaited));
        } else {
            self.inside(function, uses);
        }
        for (name, before) in replaced {
            match before {
                Some(before) => self.bound.insert(name, before),
                None => self.bound.remove(&name),
            };
        }
        self.within.pop();
        // The calls of a recursive function have no fixed order.
        if self.recursive.remove(&function.at) {
            self.steps.unorder_from(first);
        }
    }

    fn inside(&mut self, function: Callable<'a>, uses: Use) {
        let returns = std::mem::replace(&mut self.returns, uses.clone());
        for pattern in function.params() {
            self.pattern(pattern);
        }
        match function.body {
            Body::Statements(statements) => self.list(statements, None),
            Body::Value(value) => {
                self.steps.enter_block();
                self.expr(value, uses);
                self.steps.leave_block();
            }
        }
        self.returns = returns;
    }

    /// Walks code whose calls are in flight together, as one step.
    fn one_step(&mut self, uses: Use, many: bool, walk: impl FnOnce(&mut Self)) {
        let opened = self.steps.begin_region(many);
        walk(self);
        self.steps.end_region(opened, &uses);
    }

    fn call(&mut self, callee: &'a Expr, args: &'a [ExprOrSpread], at: u32, uses: Use) {
        let callee = bare(callee);
        match callee {
            Expr::Ident(name) => {
                let known = self.bound.get(&name.sym).or_else(|| self.functions.get(&name.sym));
                if let Some(function) = known.copied() {
                    self.args(args, Some(function));
                    return self.enter(function, args, uses);
                }
            }
            Expr::Arrow(_) | Expr::Fn(_) => {
                if let Some(function) = Callable::of(callee) {
                    self.args(args, Some(function));
                    return self.enter(function, args, uses);
                }
            }
            Expr::Member(member) => {
                if let MemberProp::Ident(method) = &member.prop {
                    return self.method(&member.obj, &method.sym, args, at, uses);
                }
            }
            _ => {}
        }
        self.expr(callee, Use::Dropped);
        self.args(args, None);
        self.call_at(at, &uses);
    }

    fn method(
        &mut self,
        object: &'a Expr,
        method: &str,
        args: &'a [ExprOrSpread],
        at: u32,
        uses: Use,
    ) {
        let is_promise =
            matches!(bare(object), Expr::Ident(name) if self.names.is_global(&name.sym, "Promise"));
        match method {
            "all" | "allSettled" | "any" | "race" if is_promise => {
                // `any` and `race` settle with the first promise; the other calls continue.
                let waits_for_all = matches!(method, "all" | "allSettled");
                let uses = if waits_for_all { uses } else { Use::Dropped };
                self.one_step(uses, false, |walk| {
                    for arg in args {
                        walk.members(&arg.expr);
                    }
                    walk.call_at(at, &Use::Awaited);
                });
            }
            "then" | "catch" | "finally" => {
                // The chain settles when all of its callbacks have.
                let is_awaited = matches!(uses, Use::Awaited | Use::AllAwaited);
                let chain = |walk: &mut Self| {
                    walk.expr(object, Use::Awaited);
                    for arg in args {
                        match Callable::of(&arg.expr) {
                            Some(function) => walk.enter(function, &[], Use::Awaited),
                            None => walk.expr(&arg.expr, Use::Dropped),
                        }
                    }
                    // A tool that is passed as a callback has the position of the chain.
                    if args.iter().any(|arg| Callable::of(&arg.expr).is_none()) {
                        walk.call_at(at, &Use::Awaited);
                    }
                };
                if is_awaited { chain(self) } else { self.one_step(uses, false, chain) }
            }
            "push" if matches!(bare(object), Expr::Ident(name) if self.names.is_list(&name.sym)) => {
                let Expr::Ident(list) = bare(object) else { return };
                for arg in args {
                    self.expr(&arg.expr, Use::Listed(list.sym.clone()));
                }
                self.call_at(at, &Use::Dropped);
            }
            "map" | "flatMap" if args.iter().any(|arg| Callable::of(&arg.expr).is_some()) => {
                self.expr(object, Use::Dropped);
                let uses = match uses {
                    Use::AllAwaited => Use::Awaited,
                    // Here the variable has an array of promises, not a promise.
                    Use::Named(name) if self.names.is_list(&name) => Use::Listed(name),
                    _ => Use::Dropped,
                };
                self.one_step(uses, true, |walk| walk.callbacks(args));
            }
            _ => {
                self.expr(object, Use::Dropped);
                self.args(args, None);
                self.call_at(at, &uses);
            }
        }
    }

    /// Walks the argument of `Promise.all` and similar functions.
    fn members(&mut self, list: &'a Expr) {
        match bare(list) {
            Expr::Array(array) => {
                for member in array.elems.iter().flatten() {
                    let uses = if member.spread.is_some() { Use::AllAwaited } else { Use::Awaited };
                    self.expr(&member.expr, uses);
                }
            }
            other => self.expr(other, Use::AllAwaited),
        }
    }

    fn callbacks(&mut self, args: &'a [ExprOrSpread]) {
        for arg in args {
            match Callable::of(&arg.expr) {
                Some(function) => self.enter(function, &[], Use::Awaited),
                None => self.expr(&arg.expr, Use::Dropped),
            }
        }
    }

    /// Walks the arguments of a call. A function among them may be called from here on, unless it is bound
    /// to a parameter of `callee` that is only called: then it is walked at those calls.
    fn args(&mut self, args: &'a [ExprOrSpread], callee: Option<Callable<'a>>) {
        let params = callee.map(|callee| callee.params()).unwrap_or_default();
        for (place, arg) in args.iter().enumerate() {
            let Some(function) = Callable::of(&arg.expr) else {
                self.expr(&arg.expr, Use::Dropped);
                continue;
            };
            let is_bound = match params.get(place) {
                Some(Pat::Ident(name)) => {
                    self.names.is_only_called(&name.id.sym)
                        && args.iter().take(place).all(|arg| arg.spread.is_none())
                }
                _ => false,
            };
            if !is_bound {
                self.one_step(Use::Dropped, true, |walk| walk.enter(function, &[], Use::Awaited));
            }
        }
    }

    /// Walks code that may be repeated.
    fn looped(&mut self, walk: impl FnOnce(&mut Self)) {
        let first = self.steps.mark();
        walk(self);
        self.steps.repeat_from(first);
    }
}
