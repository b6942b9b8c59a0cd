//! What the engine offers: methods of arrays and promises, `Promise.all`.

use swc_common::Spanned;
use swc_ecma_ast::{Expr, ExprOrSpread};

use super::Builder;
use super::call::{CallKind, Given};
use super::expr::{bare, bounds};
use super::feed::Slot;
use super::finish::RoundKind;
use super::leave::add_to;
use super::member::Key;
use super::path::{Path, Step};
use super::promise::Promised;
use super::value::{Cap, Deps, Form, Value};

/// What an engine's method does with a function that it is given.
pub(super) enum Callback {
    /// Calls it for each item of the receiver.
    Each,
    /// Calls it for each item, and collects what it gives.
    Map,
    /// Calls it with the running result and each item.
    Fold,
    /// Calls it once with what the promise gives.
    Then,
    /// Calls it once with the reason of the failure.
    Catch,
    /// Calls it once with nothing.
    Finally,
}

impl Callback {
    fn is_for_items(&self) -> bool {
        matches!(self, Self::Each | Self::Map | Self::Fold)
    }
}

fn callback(method: &str) -> Option<Callback> {
    Some(match method {
        "map" => Callback::Map,
        "forEach" | "filter" | "flatMap" | "some" | "every" | "find" | "findIndex" | "findLast"
        | "findLastIndex" => Callback::Each,
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
pub(super) fn changes_argument(method: &str) -> bool {
    matches!(method, "assign" | "defineProperty" | "defineProperties" | "set" | "setPrototypeOf")
}

/// Methods that are understood; a program that replaces them is not.
pub(super) fn is_understood_method(name: &str) -> bool {
    callback(name).is_some()
        || matches!(
            name,
            "all" | "allSettled" | "race" | "any" | "next" | "call" | "apply" | "bind"
        )
}

impl<'a> Builder<'a> {
    /// Calls a method of a value that is no function of the program.
    pub(super) fn method(
        &mut self,
        object: &'a Expr,
        receiver: Value,
        key: &Key,
        args: &'a [ExprOrSpread],
        skips: bool,
    ) -> Value {
        let deps = receiver.all_deps();
        let condition = if skips { deps.clone() } else { Deps::default() };
        let name = key.only().unwrap_or_default();
        let known = callback(name);
        let folds = matches!(known, Some(Callback::Fold));
        let each = known.as_ref().is_some_and(Callback::is_for_items);
        let over = bounds(object.span());
        let (result, fed) = self.feeding(|b| {
            b.perhaps(&condition, skips, |builder| match known {
                Some(known) => builder.with_callbacks(&receiver, known, name, over, args),
                None => {
                    let given = builder.given(args);
                    if name == "join" {
                        builder.takes_text(&receiver);
                    }
                    if matches!(name, "sort" | "toSorted")
                        && let (Some(order), Some(arg)) = (given.values.first(), args.first())
                        && builder.gives_promises(order)
                    {
                        builder.cannot_use(name, bounds(arg.expr.span()).0);
                    }
                    let result = builder.unknown_call(
                        deps.clone(),
                        &given,
                        "is passed to a method that cannot be followed",
                    );
                    let handed = given.deps();
                    if !handed.is_nothing() {
                        let step = key.only_name().cloned().map_or(Step::Any, Step::Name);
                        builder.calls_with(object, &Path::of(step), &handed);
                    }
                    if name == "join"
                        && let Some(text) = builder.joined(&receiver, &given)
                    {
                        return text;
                    }
                    if key.names.is_none() || changes_receiver(name) {
                        builder.mutate();
                        builder.changed_part_of(&receiver);
                        let mut flows = handed;
                        if name == "sort" {
                            flows.add(&builder.returned_deps(&given));
                        }
                        builder.flows_into(object, &flows);
                        for arg in args {
                            builder.keeps(object, Step::Any, arg);
                        }
                        builder.fails_into(object, &result);
                    }
                    result
                }
            })
        });
        self.feed_sources(&fed, |slot| match slot {
            Slot::This => None,
            Slot::Param(0) if folds && args.len() > 1 => Some((&args[1].expr, Path::default())),
            // What a function does to an item is done to a part of the receiver.
            Slot::Param(index) | Slot::Rest(index) => {
                let is_item = each && index <= usize::from(folds);
                Some((object, if is_item { Path::of(Step::Any) } else { Path::default() }))
            }
        });
        // The method sees the receiver, and what it holds, as `this`.
        if receiver.is_list() {
            return self.given_by_list(&receiver, name, result);
        }
        if receiver.caps().is_empty() {
            self.escape(&receiver, "holds what a method that cannot be followed may reach");
        }
        result
    }

    /// Follows the functions that an array's or promise's method is given.
    fn with_callbacks(
        &mut self,
        receiver: &Value,
        kind: Callback,
        method: &str,
        over: (u32, u32),
        args: &'a [ExprOrSpread],
    ) -> Value {
        #[cfg(test)]
        if super::fault::skips_callback(&kind) {
            return Value::computed(Deps::default());
        }
        let deps = receiver.all_deps();
        let given = self.given(args);
        let repeats = matches!(kind, Callback::Each | Callback::Map | Callback::Fold);
        let conditional = matches!(kind, Callback::Catch);
        match kind {
            // The running result is an item, too, when there is nothing to begin with.
            Callback::Fold if given.values.len() < 2 => self.may_see_list(receiver, &given, 0),
            Callback::Fold => self.may_see_list(receiver, &given, 3),
            _ => self.may_see_list(receiver, &given, 2),
        }
        let whole = Value::computed(deps.clone()).spanning(receiver.span);
        let reason = receiver.fails.clone().unwrap_or_default();
        for (arg, value) in args.iter().zip(&given.values) {
            if !value.is_loaded() {
                self.calls_with(&arg.expr, &Path::default(), &deps.clone().and(&reason));
            }
        }
        let first = match kind {
            Callback::Each | Callback::Map => vec![
                self.given_row(receiver, args).spanning(receiver.span),
                Value::computed(deps.clone()),
                whole,
            ],
            Callback::Fold => {
                let start = given.values.get(1).cloned().unwrap_or_else(|| whole.clone());
                let mut flows = start.all_deps().and(&deps);
                flows.add(&self.returned_deps(&given));
                let item = self.given_row(receiver, args);
                let mut before = Value::computed(flows);
                // The first time it is what there is to begin with; a list of one is no list.
                if let ([fold, start, ..], false) = (&given.values[..], given.rest.is_some())
                    && self.gives_promises(fold)
                    && !start.is_nothing()
                    && start.promised != Promised::Perhaps
                {
                    before.promised = Promised::Declared;
                }
                vec![before, item, Value::computed(deps.clone()), whole]
            }
            Callback::Then => vec![receiver.clone().loosened().out_of_promise()],
            Callback::Catch => vec![whole.with_deps(&reason)],
            Callback::Finally => Vec::new(),
        };
        let first = Given { values: first, rest: None };
        let node = match kind {
            Callback::Each | Callback::Map | Callback::Fold => {
                Some(RoundKind::Loop { over, deps: deps.clone() })
            }
            Callback::Catch => Some(RoundKind::Decision { test: over, deps: deps.clone() }),
            Callback::Then | Callback::Finally => None,
        };
        let mut result = Value::never();
        let is_then = matches!(kind, Callback::Then);
        let mut followed = false;
        let mut passed = Deps::default();
        let mut walk = |builder: &mut Self| {
            builder.under(&deps, conditional, repeats, |builder| {
                for (index, value) in given.values.iter().enumerate() {
                    let failure = is_then && index == 1;
                    let simple = matches!(value.caps(), [Cap::Tool(..) | Cap::Bound(..)])
                        || value.form == Form::Function;
                    if simple && (index == 0 || is_then) {
                        let before = builder.at;
                        let called = if failure {
                            let none = Given {
                                values: vec![Value::computed(deps.clone()).with_deps(&reason)],
                                rest: None,
                            };
                            builder.under(&Deps::default(), true, false, |b| {
                                b.promised(value.clone(), &none)
                            })
                        } else if !repeats {
                            builder.promised(value.clone(), &first)
                        } else {
                            builder.apply(value.clone(), None, &first, CallKind::Plain)
                        };
                        builder.at = before;
                        result = builder.join(&result, &called);
                        followed = true;
                    } else {
                        passed.add(&value.all_deps());
                        passed.add(&builder.returned_by([value]));
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
            passed.add(&self.returned_by([rest]));
        }
        let is_promise = receiver.promised.is_promise();
        let at = args.first().map_or(self.at, |arg| bounds(arg.expr.span()).0);
        match (&kind, method) {
            (Callback::Each, "forEach") => self.drops_each(at, &result),
            (Callback::Each, "flatMap") if result.promised.is_promise() => {
                self.cannot_use(method, at);
            }
            (Callback::Each, "flatMap") => {}
            (Callback::Each, _) => self.decides_by(method, at, &result),
            _ => {}
        }
        let result = match kind {
            Callback::Then => {
                let caught = given.values.len() > 1;
                if let (false, Some(deps)) = (caught, &receiver.fails) {
                    add_to(&mut result.fails, deps);
                }
                let mut result = result.loosened();
                if caught || !followed {
                    result = result.with_deps(&deps).with_deps(&passed);
                }
                result
            }
            Callback::Catch => {
                let mut receiver = receiver.clone();
                receiver.fails = None;
                self.or_else(receiver, result).loosened()
            }
            Callback::Finally => receiver.clone().loosened(),
            Callback::Map if result.is_loaded() => {
                let fails = result.fails.clone();
                let mut all = Value::items(result).with_deps(&deps).with_deps(&passed).loosened();
                all.fails = fails;
                all
            }
            Callback::Each | Callback::Map | Callback::Fold => {
                self.escape(&result, "is collected by a method that cannot be followed");
                let fails = result.fails.clone();
                let each = matches!(kind, Callback::Map) && result.promised.is_promise();
                let mut all = Value::computed(deps.and(&result.all_deps()).and(&passed));
                all.fails = fails;
                if each {
                    all.promised = Promised::Each;
                } else if matches!(kind, Callback::Fold) && result.promised.is_promise() {
                    all.promised = result.promised;
                }
                all
            }
        };
        match kind {
            Callback::Then | Callback::Catch | Callback::Finally if is_promise => {
                result.in_promise()
            }
            Callback::Then | Callback::Catch | Callback::Finally => {
                let mut result = result;
                result.promised = result.promised.or(Promised::No);
                result
            }
            Callback::Each | Callback::Map | Callback::Fold => result,
        }
    }

    /// Returns the item that a function is given by a method of a list.
    fn given_row(&mut self, list: &Value, args: &'a [ExprOrSpread]) -> Value {
        match args.first().map(|arg| bare(&arg.expr)) {
            Some(Expr::Arrow(arrow)) => self.row(list, arrow.span.lo.0),
            _ => self.item(list),
        }
    }

    /// Calls a function that is given to a promise; what it throws fails the next one.
    fn promised(&mut self, callee: Value, given: &Given) -> Value {
        let (mut result, thrown) =
            self.failing(|builder| builder.apply(callee, None, given, CallKind::Plain));
        if let Some(deps) = thrown {
            add_to(&mut result.fails, &deps);
        }
        result
    }

    /// Follows `Promise.all([…])` and its like: the members are in flight together.
    pub(super) fn together(&mut self, how: &str, args: &'a [ExprOrSpread]) -> Value {
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
        if how == "all" {
            // What is awaited is asked for `then`; what is in it is not.
            for part in members.parts() {
                let is_tool = |cap: &Cap| matches!(cap, Cap::Tool(..) | Cap::Bound(..));
                if !part.funcs().is_empty() || !part.caps().iter().all(is_tool) {
                    self.escape(part, "is awaited together with others");
                }
            }
        } else if members.is_list() {
            self.escape_all_but_tools(members, "is awaited together with others");
        } else {
            self.escape(members, "is awaited together with others");
        }
        let fails = Self::all_fails(members);
        let given_list = match (how, &members.form) {
            ("all", _) => {
                let mut all = members.clone().loosened().each_awaited();
                all.fails = fails;
                all
            }
            ("allSettled", Form::Array(items)) => {
                let settled = |item: &Value| {
                    let failure = item.fails.clone().unwrap_or_default();
                    Value::computed(item.all_deps().and(&failure))
                };
                let items = items.iter().map(settled).collect();
                Value::array(items).with_deps(&members.deps)
            }
            _ => {
                let mut one = Value::computed(given.deps());
                one.fails = if how == "allSettled" { None } else { fails };
                one
            }
        };
        given_list.in_promise()
    }

    /// Follows `Object.assign(target, …)` and its like.
    pub(super) fn change_argument(&mut self, args: &'a [ExprOrSpread]) -> Value {
        self.mutate();
        let given = self.given(args);
        if let (Some(target), Some(value)) = (args.first(), given.values.first()) {
            self.written_into(&target.expr, value);
        }
        let deps = given.deps().and(&self.returned_deps(&given));
        if let Some(target) = args.first() {
            self.flows_into(&target.expr, &deps);
        }
        self.unknown_call(Deps::default(), &given, "is copied to or from")
    }

    /// Keeps that a promise which may fail was put into a variable's value.
    fn fails_into(&mut self, expr: &'a Expr, given: &Value) {
        let (Some(deps), Expr::Ident(name)) = (&given.fails, bare(expr)) else { return };
        if let Some(binding) = self.lookup(&name.sym) {
            let mut value = self.read(binding);
            add_to(&mut value.fails, deps);
            self.write(binding, value);
        }
    }
}
