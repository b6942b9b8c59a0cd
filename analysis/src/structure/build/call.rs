//! Calls: of tools, of the program's own functions, of what the engine offers.

use std::rc::Rc;

use protocol::ToolId;
use swc_common::Spanned;
use swc_ecma_ast::{CallExpr, Callee, Expr, ExprOrSpread, MemberProp, OptChainBase, TaggedTpl};

use super::Builder;
use super::expr::{bare, bounds};
use super::finish::{RoundKind, RoundTask};
use super::member::Key;
use super::value::{Cap, Deps, Form, SiteId, Value};
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
struct Given {
    /// The values in their places; what a spread of unknown length gives is in `rest`.
    values: Vec<Value>,
    /// What arguments of unknown place may be.
    rest: Option<Value>,
}

impl Given {
    fn deps(&self) -> Deps {
        let mut deps = Deps::default();
        for value in self.values.iter().chain(&self.rest) {
            deps.add(&value.all_deps());
        }
        deps
    }
}

/// What an engine's method does with a function that it is given.
pub(super) enum Callback {
    /// Calls it for each item of the receiver.
    Each,
    /// Calls it with the running result and each item.
    Fold,
    /// Calls it once with what the promise gives.
    Then,
    /// Calls it once with the reason of the failure.
    Catch,
    /// Calls it once with nothing.
    Finally,
}

pub(super) fn callback(method: &str) -> Option<Callback> {
    Some(match method {
        "map" | "forEach" | "filter" | "flatMap" | "some" | "every" | "find" | "findIndex"
        | "findLast" | "findLastIndex" => Callback::Each,
        "reduce" | "reduceRight" => Callback::Fold,
        "then" => Callback::Then,
        "catch" => Callback::Catch,
        "finally" => Callback::Finally,
        _ => return None,
    })
}

/// Methods that change what they are called on.
fn changes_receiver(method: &str) -> bool {
    matches!(
        method,
        "push"
            | "unshift"
            | "splice"
            | "fill"
            | "set"
            | "add"
            | "append"
            | "pop"
            | "shift"
            | "sort"
            | "reverse"
            | "copyWithin"
            | "delete"
            | "clear"
    )
}

/// Functions of `Object` and `Reflect` that change their first argument.
fn changes_argument(method: &str) -> bool {
    matches!(method, "assign" | "defineProperty" | "defineProperties" | "set" | "setPrototypeOf")
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
        let member = match bare(callee) {
            Expr::Member(member) => Some(member),
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => Some(member),
                OptChainBase::Call(_) => None,
            },
            _ => None,
        };
        let Some(member) = member else {
            let callee = self.expr(callee);
            return self.call_value(callee, None, args, kind);
        };
        if let (Expr::Ident(name), MemberProp::Ident(method)) = (bare(&member.obj), &member.prop)
            && self.lookup(&name.sym).is_none()
        {
            if &*name.sym == "Promise"
                && matches!(&*method.sym, "all" | "allSettled" | "race" | "any")
            {
                return self.together(&method.sym, args);
            }
            if matches!(&*name.sym, "Object" | "Reflect") && changes_argument(&method.sym) {
                return self.change_argument(args);
            }
        }
        let receiver = self.expr(&member.obj);
        let skips = kind == CallKind::Optional && receiver.caps().is_empty();
        let deps = if skips { receiver.all_deps() } else { Deps::default() };
        let key = self.under(&deps, skips, false, |b| b.member_key(&member.prop));
        if receiver.caps().iter().any(|cap| matches!(cap, Cap::Tool(..)))
            && let Some(method @ ("call" | "apply" | "bind")) = key.only()
        {
            return self.call_through(&receiver, method, args);
        }
        let callee = self.member(&receiver, &key);
        if callee.is_loaded()
            && !matches!(callee.caps(), [Cap::Evaluator] if receiver.caps().is_empty())
        {
            return self.call_value(callee, Some(receiver), args, kind);
        }
        if matches!(callee.caps(), [Cap::Evaluator]) {
            return self.call_value(callee, None, args, kind);
        }
        self.method(&member.obj, receiver, &key, args, skips)
    }

    /// Follows the arguments of a call, in order.
    fn given(&mut self, args: &'a [ExprOrSpread]) -> Given {
        let mut values = Vec::new();
        let mut rest: Option<Value> = None;
        for arg in args {
            let value = self.expr(&arg.expr);
            let mut new = Vec::new();
            match (&arg.spread, &value.form) {
                (None, _) => new.push(value),
                (Some(_), Form::Array(items)) => {
                    new.extend(items.iter().cloned().map(|mut item| {
                        item.inexact |= value.shared;
                        item.with_deps(&value.deps)
                    }));
                }
                (Some(_), _) => {
                    let item = self.item(&value).spanning(value.span);
                    let known = rest.take().unwrap_or_else(Value::never);
                    rest = Some(self.join(&known, &item));
                }
            }
            match rest.take() {
                None => values.extend(new),
                Some(mut any) => {
                    for value in &new {
                        any = self.join(&any, value);
                    }
                    rest = Some(any);
                }
            }
        }
        Given { values, rest }
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
        let given = if skips {
            self.under(&deps, true, false, |builder| builder.given(args))
        } else {
            self.given(args)
        };
        self.apply(callee, this, &given, kind)
    }

    fn apply(
        &mut self,
        callee: Value,
        this: Option<Value>,
        given: &Given,
        kind: CallKind,
    ) -> Value {
        let mut result = Value::never();
        let caps = callee.caps().to_vec();
        let tools = caps.iter().filter(|cap| matches!(cap, Cap::Tool(..))).count();
        let one_of = tools + callee.funcs().len() > 1;
        let mut understood = callee.form == Form::Function && caps.is_empty();
        for cap in &caps {
            match cap {
                Cap::Tool(namespace, action) => {
                    self.escape_given(given, &Deps::default(), "is passed to a tool");
                    let deps = callee.deps.clone();
                    let called =
                        self.under(&deps, one_of, false, |b| b.task(namespace, action, given));
                    result = self.join(&result, &called);
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
            let returned = self.call_own(func, this.as_ref(), given, one_of);
            result = self.join(&result, &returned);
        }
        if let Some(made) = made {
            let deps = given.deps();
            return made.with_deps(&deps).with_deps(&result.all_deps());
        }
        if understood && callee.inexact {
            // Whoever can change the container may have put another function there.
            self.escape_given(
                given,
                &Deps::default(),
                "is passed to a function that may be replaced",
            );
        }
        if understood && kind != CallKind::New {
            return result.with_deps(&callee.deps);
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

    fn escape_given(&mut self, given: &Given, deps: &Deps, how: &str) {
        for value in given.values.iter().chain(&given.rest) {
            self.escape_to(value, how, deps, true);
        }
    }

    /// Calls code that cannot be followed.
    fn unknown_call(&mut self, callee: Deps, given: &Given, how: &str) -> Value {
        let deps = callee.and(&given.deps());
        self.escape_given(given, &deps, how);
        Value::computed(deps.and(&self.returned_deps(given)))
    }

    /// Returns the tasks whose results the given functions return.
    fn returned_deps(&self, given: &Given) -> Deps {
        let mut deps = Deps::default();
        let mut open: Vec<&Value> = given.values.iter().chain(&given.rest).collect();
        while let Some(value) = open.pop() {
            for func in value.funcs() {
                deps.add(&self.funcs[*func as usize].returned.all_deps());
            }
            open.extend(value.parts());
        }
        deps
    }

    /// Notes the call of a tool.
    fn task(&mut self, namespace: &Rc<str>, action: &Rc<str>, given: &Given) -> Value {
        let mut arguments: Vec<(String, Value)> = Vec::new();
        match (given.values.first(), &given.rest) {
            (Some(value), _) => match &value.form {
                Form::Object { fields, open } if !value.partial => {
                    for (name, field) in fields.iter() {
                        let mut field = field.clone();
                        field.shared |= value.shared;
                        field.inexact |= value.shared;
                        arguments.push((name.to_string(), field));
                    }
                    if *open {
                        let mut rest = Value::computed(value.all_deps());
                        rest.span = value.span;
                        arguments.push(("*".into(), rest));
                    }
                }
                _ => arguments.push(("*".into(), value.clone())),
            },
            (None, Some(rest)) => arguments.push(("*".into(), rest.clone())),
            (None, None) => {}
        }
        self.add_task(namespace, action, arguments, given.deps())
    }

    fn add_task(
        &mut self,
        namespace: &Rc<str>,
        action: &Rc<str>,
        arguments: Vec<(String, Value)>,
        deps: Deps,
    ) -> Value {
        let Ok(tool) = ToolId::new(namespace, action) else {
            return Value::computed(deps);
        };
        if self.tasks.len() >= self.limits.tasks {
            let message = format!(
                "the program has more than {} calls of tools; use a loop",
                self.limits.tasks
            );
            self.refuse(Code::TooComplex, &message);
            return Value::never();
        }
        let next = self.sites.len() as SiteId;
        let site = (self.at, namespace.clone(), action.clone());
        let site = *self.sites.entry(site).or_insert(next);
        self.add_node(RoundKind::Task(self.tasks.len()));
        self.tasks.push(RoundTask {
            site,
            tool,
            at: self.at,
            arguments,
            deps: deps.and(&self.control.deps),
            conditional: self.control.conditional,
            repeats: self.control.repeats,
        });
        Value::result(site)
    }

    /// Follows `tool.call(this, input)` and its like.
    fn call_through(&mut self, tool: &Value, method: &str, args: &'a [ExprOrSpread]) -> Value {
        let given = self.given(args);
        let Given { mut values, rest } = given;
        if !values.is_empty() {
            let this = values.remove(0);
            self.escape(&this, "is passed to a tool");
        }
        match method {
            "bind" if values.is_empty() && rest.is_none() => return tool.clone(),
            "bind" => {
                // What is bound would be missing from the arguments shown.
                self.escape(tool, "is bound to arguments");
                return Value::computed(tool.all_deps());
            }
            "apply" => match values.first().map(|value| value.form.clone()) {
                Some(Form::Array(items)) => values = items.to_vec(),
                Some(_) => {
                    let all = values.remove(0);
                    self.escape(&all, "is passed to a tool");
                    values = vec![Value::computed(all.all_deps()).spanning(all.span)];
                }
                None => {}
            },
            _ => {}
        }
        self.apply(tool.clone(), None, &Given { values, rest }, CallKind::Plain)
    }

    /// Calls a method of a value that is no function of the program.
    fn method(
        &mut self,
        object: &'a Expr,
        receiver: Value,
        key: &Key,
        args: &'a [ExprOrSpread],
        skips: bool,
    ) -> Value {
        let deps = receiver.all_deps();
        let condition = if skips { deps.clone() } else { Deps::default() };
        let name = key.only().unwrap_or_default().to_owned();
        let known = callback(&name);
        let over = bounds(object.span());
        let result = self.under(&condition, skips, false, |builder| match known {
            Some(known) => builder.with_callbacks(&receiver, known, over, args),
            None => {
                let given = builder.given(args);
                let result = builder.unknown_call(
                    deps.clone(),
                    &given,
                    "is passed to a method that cannot be followed",
                );
                if key.names.is_none() || changes_receiver(&name) {
                    builder.mutate();
                    let flows = given.deps();
                    builder.flows_into(object, &flows);
                }
                result
            }
        });
        // The method sees the receiver, and what it holds, as `this`.
        if receiver.caps().is_empty() && !matches!(receiver.form, Form::Array(_)) {
            self.escape(&receiver, "holds what a method that cannot be followed may reach");
        }
        result
    }

    /// Follows the functions that an array's or promise's method is given.
    fn with_callbacks(
        &mut self,
        receiver: &Value,
        kind: Callback,
        over: (u32, u32),
        args: &'a [ExprOrSpread],
    ) -> Value {
        let deps = receiver.all_deps();
        let given = self.given(args);
        let repeats = matches!(kind, Callback::Each | Callback::Fold);
        let conditional = matches!(kind, Callback::Catch);
        let whole = Value::computed(deps.clone()).spanning(receiver.span);
        let first = match kind {
            Callback::Each => vec![
                self.item(receiver).spanning(receiver.span),
                Value::computed(deps.clone()),
                whole,
            ],
            Callback::Fold => {
                let start = given.values.get(1).cloned().unwrap_or_else(|| whole.clone());
                let mut flows = start.all_deps().and(&deps);
                flows.add(&self.returned_deps(&given));
                let item = self.item(receiver);
                vec![Value::computed(flows), item, Value::computed(deps.clone()), whole]
            }
            Callback::Then => vec![receiver.clone()],
            Callback::Catch => vec![whole],
            Callback::Finally => Vec::new(),
        };
        let first = Given { values: first, rest: None };
        let node = match kind {
            Callback::Each | Callback::Fold => Some(RoundKind::Loop { over, deps: deps.clone() }),
            Callback::Catch => Some(RoundKind::Decision { test: over, deps: deps.clone() }),
            Callback::Then | Callback::Finally => None,
        };
        let mut result = Value::never();
        let is_then = matches!(kind, Callback::Then);
        let mut passed = Deps::default();
        let mut walk = |builder: &mut Self| {
            builder.under(&deps, conditional, repeats, |builder| {
                for (index, value) in given.values.iter().enumerate() {
                    let failure = is_then && index == 1;
                    let simple =
                        matches!(value.caps(), [Cap::Tool(..)]) || value.form == Form::Function;
                    if simple && (index == 0 || is_then) {
                        let before = builder.at;
                        let called = if failure {
                            let none =
                                Given { values: vec![Value::computed(deps.clone())], rest: None };
                            builder.under(&Deps::default(), true, false, |b| {
                                b.apply(value.clone(), None, &none, CallKind::Plain)
                            })
                        } else {
                            builder.apply(value.clone(), None, &first, CallKind::Plain)
                        };
                        builder.at = before;
                        result = builder.join(&result, &called);
                    } else {
                        passed.add(&value.all_deps());
                        builder.escape_to(
                            value,
                            "is passed to a method that cannot be followed",
                            &deps,
                            repeats,
                        );
                    }
                }
            });
        };
        match node {
            Some(node) => self.node(node, walk),
            None => walk(self),
        }
        if let Some(rest) = &given.rest {
            self.escape(rest, "is passed in a list of unknown length");
            passed.add(&rest.all_deps());
        }
        passed.add(&self.returned_deps(&given));
        match kind {
            Callback::Then => result.with_deps(&deps).with_deps(&passed),
            Callback::Catch => self.or_else(receiver.clone(), result),
            Callback::Finally => receiver.clone(),
            Callback::Each | Callback::Fold => {
                self.escape(&result, "is collected by a method that cannot be followed");
                Value::computed(deps.and(&result.all_deps()).and(&passed))
            }
        }
    }

    /// Follows `Promise.all([…])` and its like: the members are in flight together.
    fn together(&mut self, how: &str, args: &'a [ExprOrSpread]) -> Value {
        let fork = self.add_node(RoundKind::Fork { how: how.to_owned() });
        let (parent, branch) = (self.parent, self.branch.take());
        self.parent = Some(fork);
        let listed = matches!(args, [only] if only.spread.is_none() && matches!(bare(&only.expr), Expr::Array(_)));
        self.branch = Some(if listed { "member".into() } else { "members".into() });
        let given = self.given(args);
        (self.parent, self.branch) = (parent, branch);
        self.add_node(RoundKind::Join { fork });
        let Some(members) = given.values.first() else {
            return self.unknown_call(Deps::default(), &given, "is awaited together with others");
        };
        for part in members.parts() {
            if !part.caps().is_empty() || !part.funcs().is_empty() {
                self.escape(part, "is awaited together with others");
            }
        }
        match (how, &members.form) {
            ("all", _) => members.clone(),
            ("allSettled", Form::Array(items)) => {
                let items = items.iter().map(|item| Value::computed(item.all_deps())).collect();
                Value::array(items).with_deps(&members.deps)
            }
            _ => Value::computed(given.deps()),
        }
    }

    /// Follows `Object.assign(target, …)` and its like.
    fn change_argument(&mut self, args: &'a [ExprOrSpread]) -> Value {
        self.mutate();
        let given = self.given(args);
        if let (Some(target), Some(value)) = (args.first(), given.values.first()) {
            self.written_into(&target.expr, value);
        }
        let deps = given.deps();
        if let Some(target) = args.first() {
            self.flows_into(&target.expr, &deps);
        }
        self.unknown_call(Deps::default(), &given, "is copied to or from")
    }

    /// Lets results flow into the variable that an expression begins with.
    pub(super) fn flows_into(&mut self, expr: &'a Expr, deps: &Deps) {
        let mut root = bare(expr);
        while let Expr::Member(member) = root {
            root = bare(&member.obj);
        }
        let Expr::Ident(name) = root else { return };
        let Some(binding) = self.lookup(&name.sym) else { return };
        let deps = deps.clone().and(&self.control.local);
        let value = self.read(binding);
        let form = match &value.form {
            // What was added to a list is not in its place any more.
            Form::Array(_) | Form::Object { .. } | Form::Result(..) | Form::Param(_) => {
                for part in value.parts().into_iter().cloned().collect::<Vec<_>>() {
                    self.escape(&part, "is kept in a value that is changed");
                }
                Form::Computed
            }
            form => form.clone(),
        };
        let mut changed = Value::of(form).with_deps(&value.all_deps()).with_deps(&deps);
        if !value.caps().is_empty() || !value.funcs().is_empty() {
            changed = value.with_deps(&deps);
        }
        self.write(binding, changed);
    }

    /// Follows a tagged template, which is a call.
    pub(super) fn tagged(&mut self, tagged: &'a TaggedTpl) -> Value {
        let (callee, this) = match bare(&tagged.tag) {
            Expr::Member(member) => {
                let receiver = self.expr(&member.obj);
                let key = self.member_key(&member.prop);
                (self.member(&receiver, &key), Some(receiver))
            }
            _ => (self.expr(&tagged.tag), None),
        };
        let mut values = vec![Value::computed(Deps::default()).spanning(bounds(tagged.tpl.span))];
        for expr in &tagged.tpl.exprs {
            values.push(self.expr(expr));
        }
        if let (Some(this), false) = (&this, callee.is_loaded()) {
            self.escape(this, "holds what a tag that cannot be followed may reach");
        }
        let deps = values.iter().fold(Deps::default(), |deps, value| deps.and(&value.all_deps()));
        values[0].deps.add(&deps);
        self.apply(callee, this, &Given { values, rest: None }, CallKind::Plain)
    }
}
