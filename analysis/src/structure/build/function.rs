//! Functions of the program: what they are given, what they return, when they
//! are walked.

use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    ArrowExpr, ArrowFunctionBody, Constructor, Expr, Function, ParamOrTsParamProp, Pat,
    StaticBlock, Stmt,
};

use super::control::{Chain, Control};
use super::feed::Slot;
use super::scope::{ScopeId, ScopeKind, lexical_names, pattern_names, var_names};
use super::value::{Cap, Deps, Form, FuncId, Value};
use super::{Builder, MAIN};
use crate::parse;

/// Where a function starts, and whether it is a field's.
pub(super) type FuncKey = (u32, bool);

/// The code of a function.
#[derive(Clone, Copy)]
pub(super) enum FuncBody<'a> {
    Arrow(&'a ArrowExpr),
    Function(&'a Function),
    Constructor(&'a Constructor),
    /// What a field of a class is set to.
    Field(&'a Expr),
    Static(&'a StaticBlock),
}

impl<'a> FuncBody<'a> {
    fn span(self) -> Span {
        match self {
            Self::Arrow(arrow) => arrow.span,
            Self::Function(function) => function.span,
            Self::Constructor(constructor) => constructor.span,
            Self::Field(value) => value.span(),
            Self::Static(block) => block.span,
        }
    }

    /// Returns what tells the function from all others of the program.
    fn key(self) -> FuncKey {
        // A field may be set to a function, which then starts where the field's value does.
        (self.span().lo.0, matches!(self, Self::Field(_)))
    }

    fn params(self) -> Vec<&'a Pat> {
        match self {
            Self::Arrow(arrow) => arrow.params.iter().collect(),
            Self::Function(function) => function.params.iter().map(|param| &param.pat).collect(),
            Self::Constructor(constructor) => constructor
                .params
                .iter()
                .filter_map(|param| match param {
                    ParamOrTsParamProp::Param(param) => Some(&param.pat),
                    // Refused before the walk begins.
                    ParamOrTsParamProp::TsParamProp(_) => None,
                })
                .collect(),
            Self::Field(_) | Self::Static(_) => Vec::new(),
        }
    }

    fn statements(self) -> &'a [Stmt] {
        match self {
            Self::Arrow(arrow) => match &*arrow.body {
                ArrowFunctionBody::FunctionBody(body) => &body.stmts,
                ArrowFunctionBody::Expr(_) => &[],
            },
            Self::Function(function) => function.body.as_ref().map_or(&[], |body| &body.stmts),
            Self::Constructor(constructor) => {
                constructor.body.as_ref().map_or(&[], |body| &body.stmts)
            }
            Self::Field(_) => &[],
            Self::Static(block) => &block.body.stmts,
        }
    }

    /// Returns whether it has a parameter for what is beyond the first `count` arguments.
    pub(super) fn may_be_given(self, count: usize) -> bool {
        let params = self.params();
        params.len() > count || matches!(params.last(), Some(Pat::Rest(_)))
    }

    pub(super) fn is_async(self) -> bool {
        match self {
            Self::Arrow(arrow) => arrow.is_async,
            Self::Function(function) => function.is_async,
            Self::Constructor(_) | Self::Field(_) | Self::Static(_) => false,
        }
    }
}

/// A function and what is known of its uses.
pub(super) struct Func<'a> {
    pub(super) body: FuncBody<'a>,
    /// The scope in which it is defined.
    scope: ScopeId,
    /// The function in which it is defined.
    pub(super) parent: FuncId,
    /// What each parameter may be given by calls that are understood.
    pub(super) params: Vec<Value>,
    /// What `this` may be.
    pub(super) this: Value,
    /// What it may return.
    pub(super) returned: Value,
    /// What flows into the objects that it is given.
    pub(super) feeds: Vec<(Slot, Deps)>,
    /// What governs the place where it is entered.
    pub(super) entry: Chain,
    /// What comes before its calls, and what of that decides on them.
    called_under: (Deps, Deps),
    /// What decides whether it throws, if it may.
    pub(super) throws: Option<Deps>,
    /// What flows into what it throws.
    pub(super) thrown: Deps,
    /// Code that is not understood may call it.
    escaped: bool,
    /// What such code may give it.
    pub(super) unknown: Deps,
    /// The class whose objects it makes.
    pub(super) maker_of: Option<u32>,
    /// It reads `arguments`, so every argument is out of sight.
    pub(super) reads_arguments: bool,
    /// Whether a run may skip every call of it, as far as known from the last round.
    conditional: bool,
    repeats: bool,

    // The round in progress.
    walked: bool,
    calls: u32,
    round_conditional: bool,
    round_repeats: bool,
}

impl Func<'_> {
    pub(super) fn begin_round(&mut self) {
        self.walked = false;
        self.calls = 0;
        self.round_conditional = true;
        self.round_repeats = false;
    }

    pub(super) fn is_arrow(&self) -> bool {
        matches!(self.body, FuncBody::Arrow(_))
    }
}

impl<'a> Builder<'a> {
    /// Returns the function at a place, new or known from an earlier round.
    pub(super) fn add_func(&mut self, key: FuncKey, body: FuncBody<'a>, parent: FuncId) -> FuncId {
        if let Some(id) = self.func_ids.get(&key) {
            return *id;
        }
        let id = self.funcs.len() as FuncId;
        self.func_ids.insert(key, id);
        self.funcs.push(Func {
            body,
            scope: self.scope,
            parent,
            params: body.params().iter().map(|_| Value::never()).collect(),
            this: Value::never(),
            returned: Value::never(),
            feeds: Vec::new(),
            entry: Chain::default(),
            called_under: Default::default(),
            throws: None,
            thrown: Deps::default(),
            escaped: false,
            unknown: Deps::default(),
            maker_of: None,
            reads_arguments: false,
            conditional: true,
            repeats: false,
            walked: false,
            calls: 0,
            round_conditional: true,
            round_repeats: false,
        });
        id
    }

    /// Returns the value of a function expression.
    pub(super) fn function(&mut self, body: FuncBody<'a>) -> Value {
        Value::function(self.func_of(body))
    }

    /// Returns the function at this place.
    pub(super) fn func_of(&mut self, body: FuncBody<'a>) -> FuncId {
        let parent = self.func;
        self.add_func(body.key(), body, parent)
    }

    /// Returns what `this` is here.
    pub(super) fn this(&mut self) -> Value {
        let mut id = self.func;
        loop {
            let func = &self.funcs[id as usize];
            if id == MAIN {
                // What the engine wraps the program in may have the global object here.
                return Value::cap(Cap::Global);
            }
            if !func.is_arrow() {
                if func.this.form == Form::Never {
                    return Value::computed(func.unknown.clone());
                }
                let mut this = func.this.clone();
                this.partial |= func.escaped;
                this.inexact |= func.escaped;
                return self.as_given(id, Slot::This, this);
            }
            id = func.parent;
        }
    }

    /// Returns the function whose `arguments` are meant here.
    pub(super) fn arguments_owner(&self) -> FuncId {
        let mut id = self.func;
        while self.funcs[id as usize].is_arrow() {
            id = self.funcs[id as usize].parent;
        }
        id
    }

    /// Walks the program itself.
    pub(super) fn walk_main(&mut self) {
        self.walk_func(MAIN, Control::default());
        // What only unknown code calls is walked last.
        while self.fatal.is_none() {
            let next = self.funcs.iter().position(|func| func.escaped && !func.walked);
            let Some(id) = next else { break };
            self.call_from_unknown(id as FuncId, &Deps::default(), true, true);
        }
        for func in &mut self.funcs {
            let (conditional, repeats) = (func.round_conditional, func.round_repeats);
            if func.conditional != conditional || func.repeats != repeats {
                (func.conditional, func.repeats) = (conditional, repeats);
                self.changed = true;
            }
        }
    }

    /// Takes every function of which no call was seen as one that anybody calls.
    pub(super) fn give_up_on_unseen(&mut self) {
        for func in self.funcs.iter_mut().skip(1).filter(|func| !func.walked && !func.escaped) {
            func.escaped = true;
            self.changed = true;
        }
    }

    /// Lets anybody call a function, without saying that somebody does here.
    pub(super) fn open(&mut self, id: FuncId) {
        let func = &mut self.funcs[id as usize];
        if !func.escaped {
            func.escaped = true;
            self.changed = true;
        }
    }

    /// Lets code that is not understood call a function.
    pub(super) fn call_from_unknown(
        &mut self,
        id: FuncId,
        given: &Deps,
        conditional: bool,
        repeats: bool,
    ) {
        let func = &mut self.funcs[id as usize];
        let unknown = func.unknown.clone().and(given);
        if !func.escaped || unknown != func.unknown {
            func.escaped = true;
            func.unknown = unknown;
            self.changed = true;
        }
        self.enter(id, given, conditional, repeats);
    }

    /// Calls a function with values that are known.
    pub(super) fn call_known(
        &mut self,
        id: FuncId,
        this: Option<&Value>,
        given: &[Value],
    ) -> Value {
        let count = self.funcs[id as usize].params.len();
        let patterns = self.funcs[id as usize].body.params();
        let has_rest = matches!(patterns.last(), Some(Pat::Rest(_)));
        for index in 0..count {
            let value = if has_rest && index + 1 == count {
                Value::array(given.get(index..).unwrap_or_default().to_vec())
            } else {
                given.get(index).cloned().unwrap_or_else(Value::undefined)
            };
            let mut value = self.bounded(value);
            value.shared = true;
            let known = self.funcs[id as usize].params[index].clone();
            let joined = self.join(&known, &value);
            let joined = self.bounded(joined);
            if joined != known {
                self.funcs[id as usize].params[index] = joined;
                self.changed = true;
            }
        }
        let beyond = if has_rest { given.len() } else { count.min(given.len()) };
        let hidden = if self.funcs[id as usize].reads_arguments { 0 } else { beyond };
        for value in &given[hidden..] {
            let unknown = self.funcs[id as usize].unknown.clone().and(&value.all_deps());
            if self.funcs[id as usize].reads_arguments && unknown != self.funcs[id as usize].unknown
            {
                self.funcs[id as usize].unknown = unknown;
                self.changed = true;
            }
            self.escape(value, "is passed to a function that has no parameter for it");
        }
        if let Some(this) = this {
            self.called_on(id, this);
        }
        self.enter(id, &Deps::default(), false, false);
        self.given_back(id, this, given)
    }

    /// Notes what `this` may be in a function.
    pub(super) fn called_on(&mut self, id: FuncId, this: &Value) {
        let mut this = this.clone();
        // The function can change what it is called on.
        this.shared |= this.is_container();
        let known = self.funcs[id as usize].this.clone();
        let joined = self.join(&known, &this);
        let joined = self.bounded(joined);
        if joined != known {
            self.funcs[id as usize].this = joined;
            self.changed = true;
        }
    }

    /// Returns what a field has that a function is the getter of.
    pub(super) fn read_by(&mut self, id: FuncId) -> Value {
        self.enter(id, &Deps::default(), true, true);
        self.funcs[id as usize].returned.clone().loosened()
    }

    /// Counts a call, and walks the function if this is the first one.
    fn enter(&mut self, id: FuncId, deps: &Deps, conditional: bool, repeats: bool) {
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

    fn walk_func(&mut self, id: FuncId, control: Control) {
        let control = std::mem::replace(&mut self.control, control);
        self.funcs[id as usize].entry = self.control.chain.clone();
        self.keeping_throws(id, |builder| builder.walk_code(id));
        self.control = control;
    }

    fn walk_code(&mut self, id: FuncId) {
        let func = &mut self.funcs[id as usize];
        func.walked = true;
        let body = func.body;
        let before = (self.scope, self.func, self.at);
        self.scope = func.scope;
        self.func = id;
        if let FuncBody::Field(value) = body {
            let value = self.expr(value);
            if value.holds_only_tools() {
                self.give_back(id, value);
                (self.scope, self.func, self.at) = before;
                return;
            }
            self.escape(&value, "is kept in a field of a class");
            let mut deps = value.all_deps();
            for func in value.funcs() {
                deps.add(&self.funcs[*func as usize].returned.all_deps());
            }
            self.give_back(id, Value::computed(deps));
            (self.scope, self.func, self.at) = before;
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
        (self.scope, self.func, self.at) = before;
    }

    fn bind_params(&mut self, id: FuncId, body: FuncBody<'a>) {
        let func = &self.funcs[id as usize];
        let (escaped, unknown) = (func.escaped, func.unknown.clone());
        for (index, pattern) in body.params().into_iter().enumerate() {
            let mut value = self.funcs[id as usize].params[index].clone();
            let is_rest = matches!(pattern, Pat::Rest(_));
            if !is_rest {
                value = self.as_given(id, Slot::Param(index), value);
                self.note_param(pattern, id, index);
            }
            if escaped {
                let anything = Value::computed(unknown.clone());
                // A reference stays one: it is better to show, and no key is made of it.
                value = if value.step(crate::structure::PathStep::Index(0)).is_some() {
                    let mut kept = value.with_deps(&unknown);
                    kept.defaulted = true;
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
    fn note_param(&mut self, pattern: &'a Pat, id: FuncId, index: usize) {
        let mut names = Vec::new();
        pattern_names(pattern, false, &mut names);
        for (name, _) in names {
            if let Some(binding) = self.lookup(name) {
                self.bindings[binding as usize].param_of = Some((id, index));
            }
        }
    }

    fn walk_body(&mut self, id: FuncId, body: FuncBody<'a>, statements: &'a [Stmt]) {
        if let FuncBody::Arrow(arrow) = body
            && let ArrowFunctionBody::Expr(value) = &*arrow.body
        {
            let value = self.expr(value);
            self.at = parse::start(arrow.body.span());
            self.give_back(id, value);
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
            value = value.loosened();
        }
        if id == MAIN {
            self.escape(&value, "is returned from the program");
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
