//! Calls: of tools, of the program's own functions, of what the engine offers.

use foldhash::HashSet;
use swc_common::Spanned;
use swc_ecma_ast::{CallExpr, Callee, Expr, ExprOrSpread, MemberProp};

use super::Builder;
use super::calm::only_looks;
use super::expr::{bare, member_of};
use super::fed::Fed;
use super::feed::Slot;
use super::function::Func;
use super::leave::add_to;
use super::path::Path;
use super::promise::{Promised, Use};
use super::value::{Cap, Deps, Form, Value};
use crate::diagnostic::{Code, shown};

/// How a call is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    Plain,
    /// In an optional chain: what is not there is not called.
    Optional,
    New,
}

/// The arguments of a call, followed.
#[derive(Clone)]
pub(super) struct Given {
    /// The values in their places; what a spread of unknown length gives is in `rest`.
    pub(super) values: Vec<Value>,
    /// What arguments of unknown place may be.
    pub(super) rest: Option<Value>,
}

impl Given {
    pub(super) fn deps(&self) -> Deps {
        let mut deps = Deps::default();
        for value in self.values.iter().chain(&self.rest) {
            deps.add(&value.all_deps());
        }
        deps
    }
}

impl<'a> Builder<'a> {
    pub(super) fn call_expr(&mut self, call: &'a CallExpr) -> Value {
        match &call.callee {
            Callee::Expr(callee) => self.call(callee, &call.args, CallKind::Plain),
            Callee::Super(_) => {
                let given = self.given(&call.args);
                self.unknown_call(Deps::default(), &given, "is passed to a parent class")
            }
            // Refused before the walk.
            Callee::Import(_) => Value::computed(Deps::default()),
        }
    }

    /// Follows a call; inner calls come before outer ones.
    pub(super) fn call(
        &mut self,
        callee: &'a Expr,
        args: &'a [ExprOrSpread],
        kind: CallKind,
    ) -> Value {
        let taker = self.taker(callee);
        let Some(member) = member_of(callee) else {
            let value = self.expr(callee);
            self.takes(&value, Use::Operand);
            self.taker = taker;
            let is_unknown = !value.is_loaded();
            let makes_promise = kind == CallKind::New
                && matches!(bare(callee), Expr::Ident(name)
                    if &*name.sym == "Promise" && self.lookup(&name.sym).is_none());
            if let (true, Some(executor)) = (makes_promise, args.first()) {
                self.executors.insert(executor.expr.span().lo.0);
            }
            let (mut result, fed) = self.feeding(|b| b.call_value(value, None, args, kind));
            if makes_promise {
                result = result.in_promise();
            }
            if is_unknown {
                self.calls_with(callee, &Path::default(), &result.all_deps());
            }
            self.feed_given(&fed, None, args);
            return result;
        };
        if let (Expr::Ident(name), MemberProp::Ident(method)) = (bare(&member.obj), &member.prop)
            && self.lookup(&name.sym).is_none()
            && let Some(result) = self.builtin(&name.sym, &method.sym, args)
        {
            return result;
        }
        let method = match &member.prop {
            MemberProp::Ident(name) => Some(&*name.sym),
            _ => None,
        };
        let receiver = if only_looks(method, args) {
            let receiver = self.looked_at(&member.obj);
            if receiver.is_list() { receiver } else { self.handed_on(receiver) }
        } else {
            self.in_row(&member.obj)
        };
        let skips = kind == CallKind::Optional && receiver.caps().is_empty();
        let deps = if skips { receiver.all_deps() } else { Deps::default() };
        let key = self.perhaps(&deps, skips, |b| b.member_key(&member.prop));
        let is_tool = |cap: &Cap| matches!(cap, Cap::Tool(..) | Cap::Bound(..));
        let is_own = receiver.form == Form::Function && receiver.caps().is_empty();
        if (is_own || receiver.caps().iter().any(is_tool))
            && let Some(method @ ("call" | "apply" | "bind")) = key.only()
        {
            return self.perhaps(&deps, skips, |b| b.call_through(&receiver, method, args));
        }
        self.takes_part(&receiver, &key);
        let is_promise = self.gives_own_promise(&member.obj, &key, true);
        let callee = self.member(&receiver, &key);
        self.taker = taker;
        self.seen_as_this(&receiver, &key, &callee);
        if callee.is_loaded()
            && !matches!(callee.caps(), [Cap::Evaluator] if receiver.caps().is_empty())
        {
            let (mut result, fed) =
                self.feeding(|b| b.call_value(callee, Some(receiver), args, kind));
            if is_promise {
                result.promised = Promised::Declared;
            }
            let receiver = (kind != CallKind::New).then_some(&*member.obj);
            self.feed_given(&fed, receiver, args);
            // An object without a name is known by what its methods return.
            if !matches!(bare(&member.obj), Expr::Ident(_) | Expr::This(_) | Expr::Member(_)) {
                let fed = fed.iter().filter(|fed| fed.slot == Slot::This);
                return fed.fold(result, |result, fed| result.with_deps(&fed.gets()));
            }
            return result;
        }
        if matches!(callee.caps(), [Cap::Evaluator]) {
            return self.call_value(callee, None, args, kind);
        }
        let mut result = self.method(&member.obj, receiver, &key, args, skips);
        if is_promise {
            result.promised = Promised::Declared;
        }
        result
    }

    /// Follows the arguments of a call, in order.
    pub(super) fn given(&mut self, args: &'a [ExprOrSpread]) -> Given {
        self.given_each(args, Self::expr)
    }

    fn given_each(
        &mut self,
        args: &'a [ExprOrSpread],
        follow: impl Fn(&mut Self, &'a Expr) -> Value,
    ) -> Given {
        let mut given = Given { values: Vec::with_capacity(args.len()), rest: None };
        let taker = self.taker.take();
        for arg in args {
            let value = follow(self, &arg.expr);
            match (&arg.spread, &value.form) {
                (None, _) => self.give(&mut given, value),
                (Some(_), Form::Array(items)) => {
                    for item in items.iter() {
                        let mut item = item.clone().with_deps(&value.deps);
                        item.loosen(value.shared);
                        self.give(&mut given, item);
                    }
                }
                (Some(_), _) => {
                    self.takes(&value, Use::Spread);
                    let item = self.item(&value).spanning(value.span);
                    let known = given.rest.take().unwrap_or_else(Value::never);
                    given.rest = Some(self.join(&known, &item));
                }
            }
        }
        if let Some(taker) = taker {
            self.taken_by(taker, &given.values);
        }
        given
    }

    /// Adds an argument; behind one of unknown place it has none, either.
    fn give(&mut self, given: &mut Given, value: Value) {
        match given.rest.take() {
            None => given.values.push(value),
            Some(any) => given.rest = Some(self.join(&any, &value)),
        }
    }

    /// Calls a value with arguments that are still to be followed.
    fn call_value(
        &mut self,
        callee: Value,
        this: Option<Value>,
        args: &'a [ExprOrSpread],
        kind: CallKind,
    ) -> Value {
        let skips = kind == CallKind::Optional && callee.caps().is_empty();
        let deps = callee.all_deps();
        // A tool gets a copy of what it is given.
        let only_tools = !callee.caps().is_empty() && callee.is_tool();
        let follow = if only_tools { Self::copied } else { Self::expr };
        let given = if skips {
            self.perhaps(&deps, true, |builder| builder.given_each(args, follow))
        } else {
            self.given_each(args, follow)
        };
        self.apply(callee, this, &given, kind)
    }

    pub(super) fn apply(
        &mut self,
        callee: Value,
        this: Option<Value>,
        given: &Given,
        kind: CallKind,
    ) -> Value {
        let mut result = Value::never();
        let caps = callee.caps.clone();
        let caps = caps.as_deref().map_or(&[][..], |caps| caps);
        let is_tool = |cap: &&Cap| matches!(cap, Cap::Tool(..) | Cap::Bound(..));
        let tools = caps.iter().filter(is_tool).count();
        let one_of = tools + callee.funcs().len() > 1;
        let mut understood = callee.form == Form::Function && caps.is_empty();
        for cap in caps {
            match cap {
                Cap::Tool(namespace, action) => {
                    self.escape_given(given, &Deps::default(), "is passed to a tool");
                    let deps = callee.deps.clone();
                    let given = self.given_in_rows(&callee, cap, given);
                    let called =
                        self.under(&deps, one_of, false, |b| b.task(namespace, action, &given));
                    result = self.either(result, called);
                }
                Cap::Bound(namespace, action) => {
                    self.escape_given(given, &Deps::default(), "is passed to a tool");
                    // What was bound comes before what is given here.
                    let deps = callee.deps.clone().and(&given.deps());
                    let all = Value::computed(deps.clone()).spanning(callee.span);
                    let all = Given { values: vec![all], rest: None };
                    let called = self
                        .under(&callee.deps, one_of, false, |b| b.task(namespace, action, &all));
                    result = self.either(result, called);
                }
                Cap::Evaluator => self.dynamic(
                    Code::DynamicEval,
                    "this makes code out of text; write the code into the program".into(),
                ),
                Cap::Mcp => self.not_a_tool("mcp"),
                Cap::Namespace(namespace) => {
                    self.not_a_tool(&format!("mcp.{}", shown(namespace, 64)));
                }
                Cap::Global => self.dynamic(
                    Code::DynamicGlobal,
                    "the global object is called; name what you need of it".into(),
                ),
            }
        }
        // A class is called through the methods that its objects get.
        let (made, funcs) = self.constructed(&callee, kind);
        understood |= made.is_some();
        for func in funcs {
            let this = match kind {
                CallKind::New => made.clone(),
                _ => this.clone(),
            };
            let mut returned = self.call_own(func, this.as_ref(), given, one_of);
            let body = self.funcs[func as usize].body;
            if kind != CallKind::New && body.is_async() && !body.is_generator() {
                returned = returned.in_promise();
                // Whoever can change the container may have put another function there.
                returned.loosen(callee.inexact);
            }
            result = self.either(result, returned);
        }
        if let Some(made) = made {
            let mut deps = given.deps();
            for fed in &self.feeds.fed {
                if fed.slot == Slot::This {
                    deps.add(&fed.gets());
                }
            }
            return made.with_deps(&deps).with_deps(&result.all_deps());
        }
        if understood && callee.inexact {
            // Whoever can change the container may have put another function there.
            for value in given.values.iter().chain(&given.rest).filter(|value| !value.is_tool()) {
                self.escape(value, "is passed to a function that may be replaced");
            }
        }
        if callee.inexact && !callee.funcs().is_empty() {
            result = result.loosened();
        }
        if understood && kind != CallKind::New {
            return result.with_deps(&callee.deps);
        }
        if callee.promised == Promised::Perhaps {
            result.promised = Promised::Perhaps;
        }
        if !caps.is_empty() && callee.funcs().is_empty() && tools == caps.len() {
            return result;
        }
        let other = self.unknown_call(
            callee.all_deps(),
            given,
            "is passed to code that cannot be followed",
        );
        self.join(&result, &other)
    }

    fn not_a_tool(&mut self, name: &str) {
        let message =
            format!("`{name}` is not a tool; a tool is called as `mcp.namespace.action({{ … }})`");
        self.dynamic(Code::DynamicCall, message);
    }

    /// Calls a function of the program.
    fn call_own(&mut self, func: u32, this: Option<&Value>, given: &Given, one_of: bool) -> Value {
        let func = self.in_context(func, given);
        let Some(rest) = &given.rest else {
            return self.under(&Deps::default(), one_of, false, |b| {
                b.call_known(func, this, &given.values)
            });
        };
        // Any parameter may get any of the arguments that have no place.
        self.escape(rest, "is passed in a list of unknown length");
        let deps = given.deps();
        self.under(&Deps::default(), one_of, false, |builder| {
            builder.call_from_unknown(func, &deps, false, false);
            builder.call_known(func, this, &given.values)
        })
    }

    pub(super) fn escape_given(&mut self, given: &Given, deps: &Deps, how: &str) {
        for value in given.values.iter().chain(&given.rest) {
            self.escape_to(value, how, deps, true);
        }
    }

    /// Calls code that cannot be followed.
    pub(super) fn unknown_call(&mut self, callee: Deps, given: &Given, how: &str) -> Value {
        let deps = callee.and(&given.deps());
        self.escape_given(given, &deps, how);
        let mut result = Value::computed(deps.and(&self.returned_deps(given)));
        for value in given.values.iter().chain(&given.rest) {
            if let Some(deps) = Self::all_fails(value) {
                add_to(&mut result.fails, &deps);
            }
            for func in value.funcs().to_vec() {
                let Func { throws, thrown, feeds, .. } = &self.funcs[func as usize];
                let (throws, thrown) = (throws.clone(), thrown.clone());
                // What is made with it may be a promise, and end as it says.
                let handed = feeds
                    .iter()
                    .map(Fed::hands_out)
                    .fold(Deps::default(), |all, one| all.and(&one));
                if !handed.is_nothing() {
                    add_to(&mut result.fails, &handed);
                }
                self.after_call(func, throws, &thrown, &mut result);
            }
        }
        result
    }

    /// Returns the tasks whose results the given functions return.
    pub(super) fn returned_deps(&self, given: &Given) -> Deps {
        self.returned_by(given.values.iter().chain(&given.rest))
    }

    /// Returns what the functions in some values give to whoever calls them: what
    /// they return, and what they put into what they are given.
    pub(super) fn returned_by<'v>(&self, values: impl IntoIterator<Item = &'v Value>) -> Deps {
        let mut deps = Deps::default();
        let mut seen = HashSet::default();
        let mut open: Vec<Value> =
            values.into_iter().filter(|one| one.is_loaded()).cloned().collect();
        while let Some(value) = open.pop() {
            for id in value.funcs() {
                if seen.insert(*id) {
                    let func = &self.funcs[*id as usize];
                    deps.add(&func.returned.all_deps());
                    for fed in &func.feeds {
                        deps.add(&fed.hands_out());
                    }
                    // An iterator, for one, is an object with functions.
                    open.push(func.returned.clone());
                }
            }
            open.extend(value.parts().filter(|part| part.is_loaded()).cloned());
        }
        deps
    }
}
