//! Functions of the program: what they are given, what they return, when they
//! are walked.

use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    ArrowExpr, ArrowFunctionBody, Constructor, Expr, Function, ParamOrTsParamProp, Pat,
    StaticBlock, Stmt,
};

use super::alias::Link;
use super::control::{Chain, Control};
use super::fed::Fed;
use super::feed::Slot;
use super::scope::ScopeId;
use super::value::{Cap, Deps, Form, FuncId, Value};
use super::{Builder, MAIN};

/// In which context a function is, where it starts, and whether it is a field's.
pub(super) type FuncKey = (FuncId, u32, bool);

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
    pub(super) fn span(self) -> Span {
        match self {
            Self::Arrow(arrow) => arrow.span,
            Self::Function(function) => function.span,
            Self::Constructor(constructor) => constructor.span,
            Self::Field(value) => value.span(),
            Self::Static(block) => block.span,
        }
    }

    /// Returns what tells the function from all others of the program.
    fn key(self, context: FuncId) -> FuncKey {
        // A field may be set to a function, which then starts where the field's value does.
        (context, self.span().lo.0, matches!(self, Self::Field(_)))
    }

    pub(super) fn params(self) -> Vec<&'a Pat> {
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

    pub(super) fn statements(self) -> &'a [Stmt] {
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
    pub(super) scope: ScopeId,
    /// The function in which it is defined.
    pub(super) parent: FuncId,
    /// In which context its code is walked.
    pub(super) context: FuncId,
    /// The functions that were made for some of its calls, and where those are.
    pub(super) copies: Vec<(u32, FuncId)>,
    /// Whether it is one of them.
    pub(super) is_copy: bool,
    /// Whether a tool is called in its code.
    pub(super) has_tools: bool,
    /// What each parameter may be given by calls that are understood.
    pub(super) params: Vec<Value>,
    /// What `this` may be.
    pub(super) this: Value,
    /// What it may return.
    pub(super) returned: Value,
    /// What flows into the objects that it is given.
    pub(super) feeds: Vec<Fed>,
    /// What it returns the object of.
    pub(super) gives: Vec<Link>,
    /// What governs the place where it is entered.
    pub(super) entry: Chain,
    /// What comes before its calls, and what of that decides on them.
    pub(super) called_under: (Deps, Deps),
    /// What decides whether it throws, if it may.
    pub(super) throws: Option<Deps>,
    /// What flows into what it throws.
    pub(super) thrown: Deps,
    /// Code that is not understood may call it.
    pub(super) escaped: bool,
    /// What such code may give it.
    pub(super) unknown: Deps,
    /// The class whose objects it makes.
    pub(super) maker_of: Option<u32>,
    /// It reads `arguments`, so every argument is out of sight.
    pub(super) reads_arguments: bool,
    /// Whether a run may skip every call of it, as far as known from the last round.
    pub(super) conditional: bool,
    pub(super) repeats: bool,

    // The round in progress.
    pub(super) walked: bool,
    /// Whether one of its copies is called.
    pub(super) copied: bool,
    pub(super) calls: u32,
    pub(super) round_conditional: bool,
    pub(super) round_repeats: bool,
}

impl<'a> Func<'a> {
    pub(super) fn new(body: FuncBody<'a>, scope: ScopeId, parent: FuncId, context: FuncId) -> Self {
        Self {
            body,
            scope,
            parent,
            context,
            copies: Vec::new(),
            is_copy: false,
            has_tools: false,
            params: body.params().iter().map(|_| Value::never()).collect(),
            this: Value::never(),
            returned: Value::never(),
            feeds: Vec::new(),
            gives: Vec::new(),
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
            copied: false,
            calls: 0,
            round_conditional: true,
            round_repeats: false,
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.walked = false;
        self.copied = false;
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
        self.funcs.push(Func::new(body, self.scope, parent, self.context));
        id
    }

    /// Returns the value of a function expression.
    pub(super) fn function(&mut self, body: FuncBody<'a>) -> Value {
        Value::function(self.func_of(body))
    }

    /// Returns the function at this place.
    pub(super) fn func_of(&mut self, body: FuncBody<'a>) -> FuncId {
        let parent = self.func;
        self.add_func(body.key(self.context), body, parent)
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
        let unseen =
            |func: &&mut Func| !func.walked && !func.copied && !func.escaped && !func.is_copy;
        for func in self.funcs.iter_mut().skip(1).filter(unseen) {
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
}
