//! The bodies of functions: how they are entered, and what they give back.

use swc_common::Spanned;
use swc_ecma_ast::{ArrowFunctionBody, Pat, Stmt};

use super::alias::parts_by_name;
use super::control::Control;
use super::feed::Slot;
use super::function::FuncBody;
use super::path::Path;
use super::promise::Promised;
use super::scope::{ScopeKind, lexical_names, pattern_names, var_names};
use super::value::{Cap, Deps, Form, FuncId, Value};
use super::{Builder, MAIN};
use crate::parse;

/// Returns whether a value is a function of the program and nothing else.
pub(super) fn is_method(value: &Value) -> bool {
    value.form == Form::Function && value.caps().is_empty()
}

impl<'a> Builder<'a> {
    /// Counts a call, and walks the function if this is the first one.
    pub(super) fn enter(&mut self, id: FuncId, deps: &Deps, conditional: bool, repeats: bool) {
        let mut control = self.control.clone();
        control.deps.add(deps);
        control.decides.add(deps);
        control.local = Deps::default();
        control.region = Deps::default();
        control.conditional |= conditional;
        control.repeats |= repeats;
        let func = &mut self.funcs[id as usize];
        func.calls += 1;
        func.round_conditional &= control.conditional;
        func.round_repeats |= control.repeats || func.calls > 1;
        let before = func.called_under.clone();
        func.called_under.0.add(&control.deps);
        func.called_under.1.add(&control.decides);
        self.changed |= func.called_under != before;
        if func.walked {
            return;
        }
        func.walked = true;
        // The other calls, which come later, are known from the last round.
        control.conditional &= func.conditional;
        control.repeats |= func.repeats;
        control.join(&func.called_under.0, &func.called_under.1);
        self.walk_func(id, control);
    }

    pub(super) fn walk_func(&mut self, id: FuncId, control: Control) {
        let control = std::mem::replace(&mut self.control, control);
        self.funcs[id as usize].entry = self.control.chain.clone();
        self.keeping_throws(id, |builder| builder.walk_code(id));
        self.control = control;
    }

    fn walk_code(&mut self, id: FuncId) {
        let func = &mut self.funcs[id as usize];
        func.walked = true;
        let body = func.body;
        let before = (self.scope, self.func, self.context, self.at);
        self.scope = func.scope;
        self.context = func.context;
        self.func = id;
        if let FuncBody::Field(value) = body {
            let value = self.expr(value);
            if is_method(&value) {
                // Like a method: whoever has an object of the class may call it.
                for func in value.funcs().to_vec() {
                    self.open(func);
                }
            }
            if value.holds_only_tools() || is_method(&value) {
                self.give_back(id, value);
                (self.scope, self.func, self.context, self.at) = before;
                return;
            }
            self.escape(&value, "is kept in a field of a class");
            let mut deps = value.all_deps();
            for func in value.funcs() {
                deps.add(&self.funcs[*func as usize].returned.all_deps());
            }
            self.give_back(id, Value::computed(deps));
            (self.scope, self.func, self.context, self.at) = before;
            return;
        }
        let key = body.span().lo.0;
        let params = self.scope_at(key, ScopeKind::Params, |names| {
            for pattern in body.params() {
                pattern_names(pattern, false, names);
            }
        });
        self.within(params, |builder| {
            builder.bind_params(id, body);
            let statements = body.statements();
            let scope = builder.scope_at(key, ScopeKind::Body, |names| {
                var_names(statements, names);
                lexical_names(statements, names);
            });
            builder.within(scope, |builder| builder.walk_body(id, body, statements));
        });
        (self.scope, self.func, self.context, self.at) = before;
    }

    fn bind_params(&mut self, id: FuncId, body: FuncBody<'a>) {
        let func = &self.funcs[id as usize];
        let (escaped, unknown) = (func.escaped, func.unknown.clone());
        for (index, pattern) in body.params().into_iter().enumerate() {
            let mut value = self.funcs[id as usize].params[index].clone();
            let is_rest = matches!(pattern, Pat::Rest(_));
            if !is_rest {
                value = self.as_given(id, Slot::Param(index), value);
                self.note_param(pattern, id, Slot::Param(index));
            } else if let Pat::Rest(rest) = pattern {
                self.note_param(&rest.arg, id, Slot::Rest(index));
            }
            if escaped {
                let anything = Value::computed(unknown.clone());
                // A reference stays one: it is better to show, and no key is made of it.
                value = if matches!(value.form, Form::Result(..) | Form::Param(_)) {
                    let mut kept = value.with_deps(&unknown);
                    kept.defaulted = true;
                    kept.promised = kept.promised.or(Promised::No);
                    kept
                } else {
                    self.join(&value, &anything)
                };
            }
            let pattern = if let Pat::Rest(rest) = pattern { &rest.arg } else { pattern };
            self.bind(pattern, value);
        }
    }

    /// Notes the names under which a function knows what it is given.
    fn note_param(&mut self, pattern: &'a Pat, id: FuncId, slot: Slot) {
        for (name, part) in parts_by_name(pattern, &Path::default()) {
            if let Some(binding) = self.lookup(name) {
                self.bindings[binding as usize].param_of = Some((id, slot, part));
            }
        }
    }

    fn walk_body(&mut self, id: FuncId, body: FuncBody<'a>, statements: &'a [Stmt]) {
        if let FuncBody::Arrow(arrow) = body
            && let ArrowFunctionBody::Expr(value) = &*arrow.body
        {
            let given = self.expr(value);
            self.gives_back(value);
            self.at = parse::start(arrow.body.span());
            self.give_back(id, given);
        } else {
            self.hoist_functions(statements);
            let exit = self.statements(statements);
            let may_end = !exit.always && !body.is_generator() && id != MAIN;
            // It matters only where a key is made of it.
            if may_end
                && matches!(self.funcs[id as usize].returned.form, Form::Never | Form::Const(_))
            {
                self.returns(id, Value::undefined());
            }
        }
        if self.funcs[id as usize].escaped {
            let returned = self.funcs[id as usize].returned.clone();
            self.escape(&returned, "is returned to code that cannot be followed");
        }
    }

    /// Returns a value from a function.
    pub(super) fn give_back(&mut self, id: FuncId, value: Value) {
        let mut value = value;
        if self.funcs[id as usize].body.is_generator() {
            self.escape(&value, "is returned from a generator");
            value = Value::items(Value::never()).with_deps(&value.all_deps());
        }
        if self.funcs[id as usize].body.is_async() {
            self.awaited(&value);
            if !self.funcs[id as usize].body.is_generator() {
                self.after_await(&mut value);
            }
            // What is given is a promise, an object that the program can change.
            value = value.loosened().out_of_promise();
        }
        if id == MAIN {
            // A tool is refused in a result; whoever writes the result could only call it as
            // `toJSON` or `then`, with what no tool takes.
            if !value.is_tool() {
                self.escape(&value, "is returned from the program");
            }
            return;
        }
        self.returns(id, value);
    }

    /// Notes that a call of a function may give a value.
    fn returns(&mut self, id: FuncId, value: Value) {
        let local = self.control.local.clone();
        let value = self.bounded(value.with_deps(&local));
        let known = self.funcs[id as usize].returned.clone();
        let joined = self.join(&known, &value);
        let joined = self.bounded(joined);
        if joined != known {
            self.funcs[id as usize].returned = joined;
            self.changed = true;
        }
    }

    /// Follows `yield`, and returns what it gives once the generator goes on.
    pub(super) fn yields(&mut self, value: Value, is_delegate: bool) -> Value {
        let deps = value.all_deps();
        let item = if is_delegate { self.item(&value) } else { value };
        let func = self.func;
        if self.funcs[func as usize].body.is_async() {
            self.awaited(&item);
        }
        self.returns(func, Value::items(item).loosened());
        Value::computed(if is_delegate { deps } else { Deps::default() })
    }

    /// Awaiting a namespace asks it for a tool named `then`.
    pub(super) fn awaited(&mut self, value: &Value) {
        if value.caps().iter().any(|cap| matches!(cap, Cap::Mcp | Cap::Namespace(_))) {
            self.escape(value, "is awaited");
        }
    }
}
