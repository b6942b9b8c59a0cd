//! Functions: parameters, hoisting, the program itself.

use super::super::core::Text;
use super::*;

impl Lower {
    pub(super) fn main(&mut self, main: &ast::Function) {
        self.function_of(main, FuncForm::Plain, |_| {});
    }

    /// Emits a closure of a function and returns its slot.
    pub(super) fn closure(&mut self, span: Span, func: FuncId) -> Slot {
        let to = self.fresh();
        self.emit(span, Op::Make { to, func });
        to
    }

    /// Lowers a function; `first` emits code that runs before its parameters.
    pub(super) fn function_of(
        &mut self,
        function: &ast::Function,
        form: FuncForm,
        first: impl FnOnce(&mut Self),
    ) -> FuncId {
        let frame = Frame::new(form, function.is_async, function.is_generator);
        self.enter(offset(function.span.lo), frame, |lower| {
            first(lower);
            let params: Vec<&ast::Pat> = function.params.iter().map(|param| &param.pat).collect();
            lower.params(&params);
            if let Some(body) = &function.body {
                lower.body(&body.stmts);
            }
        })
    }

    pub(super) fn arrow(&mut self, arrow: &ast::ArrowExpr) -> FuncId {
        let frame = Frame::new(FuncForm::Arrow, arrow.is_async, arrow.is_generator);
        self.enter(offset(arrow.span.lo), frame, |lower| {
            lower.params(&arrow.params.iter().collect::<Vec<_>>());
            match &*arrow.body {
                ast::ArrowFunctionBody::FunctionBody(body) => lower.body(&body.stmts),
                ast::ArrowFunctionBody::Expr(value) => {
                    let from = lower.awaited_result(value);
                    lower.emit(value.span(), Op::Copy { to: RESULT, from });
                }
            }
        })
    }

    /// Lowers a function whose body `make` emits.
    pub(super) fn enter(
        &mut self,
        at: u32,
        mut frame: Frame,
        make: impl FnOnce(&mut Self),
    ) -> FuncId {
        frame.is_executor = self.executors.contains(&at);
        let id = self.core.functions.len() as FuncId;
        // The index is reserved first, so that a function comes before those nested in it.
        self.core.functions.push(Function {
            slots: 0,
            variables: Vec::new(),
            loops: Vec::new(),
            form: frame.form,
            is_async: frame.is_async,
            is_generator: frame.is_generator,
            uses_arguments: false,
            uses_target: false,
            asks_for_promises: false,
            body: Block::new(),
        });
        self.frames.push(frame);
        make(self);
        if let (Some(frame), Some(function)) =
            (self.frames.pop(), self.core.functions.get_mut(id as usize))
        {
            function.slots = frame.slots;
            function.variables = frame.variables;
            function.loops = frame.around;
            function.uses_arguments = frame.uses_arguments;
            function.uses_target = frame.uses_target;
            function.asks_for_promises = frame.asks_for_promises;
            function.body = frame.out;
        }
        id
    }

    pub(super) fn params(&mut self, params: &[&ast::Pat]) {
        // All names are declared first, because a default value may refer to any parameter.
        for pattern in params {
            self.declare_pattern(pattern, false);
        }
        for (index, pattern) in params.iter().enumerate() {
            let (span, index) = (pattern.span(), index as u32);
            let to = self.fresh();
            if let ast::Pat::Rest(rest) = pattern {
                self.emit(span, Op::Rest { to, index });
                self.bind(&rest.arg, to);
            } else {
                self.emit(span, Op::Param { to, index });
                self.set_text(to, Text::Given(index));
                self.bind(pattern, to);
            }
        }
    }

    pub(super) fn body(&mut self, statements: &[ast::Stmt]) {
        let mut names = Vec::new();
        for statement in statements {
            hoisted(statement, &mut names);
        }
        for name in names {
            if let Some(from) = self.frame().first_scope(&name) {
                // Closures in default values capture the parameter, not the `var` of the same name.
                if self.frame().variables[from as usize].captured {
                    let to = self.frame().redeclare_var(&name);
                    self.emit(swc_common::DUMMY_SP, Op::Copy { to, from });
                }
                continue;
            }
            let to = self.frame().declare_var(&name);
            self.emit(swc_common::DUMMY_SP, Op::Const { to, value: Scalar::Undefined });
        }
        self.statements(statements);
    }
}

/// Collects the names that `var` declares in a statement.
fn hoisted(statement: &ast::Stmt, out: &mut Vec<Atom>) {
    use ast::Stmt;
    let mut all = |statements: &[Stmt]| statements.iter().for_each(|one| hoisted(one, out));
    match statement {
        Stmt::Block(block) => all(&block.stmts),
        Stmt::If(choice) => {
            hoisted(&choice.cons, out);
            if let Some(alt) = &choice.alt {
                hoisted(alt, out);
            }
        }
        Stmt::Labeled(labeled) => hoisted(&labeled.body, out),
        Stmt::With(with) => hoisted(&with.body, out),
        Stmt::While(body) => hoisted(&body.body, out),
        Stmt::DoWhile(body) => hoisted(&body.body, out),
        Stmt::For(body) => {
            if let Some(ast::VarDeclOrExpr::VarDecl(declared)) = &body.init {
                hoisted_names(declared, out);
            }
            hoisted(&body.body, out);
        }
        Stmt::ForIn(body) => {
            hoisted_head(&body.left, out);
            hoisted(&body.body, out);
        }
        Stmt::ForOf(body) => {
            hoisted_head(&body.left, out);
            hoisted(&body.body, out);
        }
        Stmt::Switch(switch) => switch.cases.iter().for_each(|case| all(&case.cons)),
        Stmt::Try(attempt) => {
            all(&attempt.block.stmts);
            if let Some(handler) = &attempt.handler {
                all(&handler.body.stmts);
            }
            if let Some(finalizer) = &attempt.finalizer {
                all(&finalizer.stmts);
            }
        }
        Stmt::Decl(ast::Decl::Var(declared)) => hoisted_names(declared, out),
        _ => {}
    }
}

fn hoisted_head(head: &ast::ForHead, out: &mut Vec<Atom>) {
    if let ast::ForHead::VarDecl(declared) = head {
        hoisted_names(declared, out);
    }
}

fn hoisted_names(declared: &ast::VarDecl, out: &mut Vec<Atom>) {
    if declared.kind == ast::VarDeclKind::Var && !declared.declare {
        declared.decls.iter().for_each(|one| super::pattern::names(&one.name, out));
    }
}
