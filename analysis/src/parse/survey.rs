//! Checks the depth of the tree, and refuses syntax that PML does not run.

use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    AutoAccessor, Callee, ClassDecl, Decl, Decorator, Expr, FnDecl, MemberProp, MetaPropExpr,
    MetaPropKind, Module, OptChainBase, ParamOrTsParamProp, Pat, Stmt, TsEnumDecl, TsModuleDecl,
    TsType, UsingDecl, VarDecl,
};
use swc_ecma_visit::{Visit, VisitWith};

use crate::Limits;
use crate::diagnostic::{Code, Finding};
use crate::wrapper::start;

/// Refuses a tree that is too deep, or that has syntax PML does not run.
pub(super) fn survey(module: &Module, limits: &Limits) -> Result<(), Vec<Finding>> {
    let mut survey = Survey {
        limits,
        // The wrapper function does not count.
        depth: 0,
        chain: 0,
        on_chain: false,
        ambient: false,
        too_deep: None,
        findings: Vec::new(),
    };
    module.visit_with(&mut survey);
    if let Some(finding) = survey.too_deep {
        return Err(vec![finding]);
    }
    if survey.findings.is_empty() { Ok(()) } else { Err(survey.findings) }
}

struct Survey<'l> {
    limits: &'l Limits,
    depth: u32,
    /// The number of links of the current chain above this node.
    chain: u32,
    /// Whether the next node is a link of the current chain rather than a new level.
    on_chain: bool,
    /// Whether the walk is within `declare`, which is erased.
    ambient: bool,
    too_deep: Option<Finding>,
    findings: Vec<Finding>,
}

impl Survey<'_> {
    fn refuse(&mut self, span: Span, message: &str) {
        if !self.ambient {
            self.findings.push(Finding::new(Code::UnsupportedSyntax, start(span), message));
        }
    }

    /// Walks one level deeper or one link further, unless that exceeds the limits.
    fn level(&mut self, span: Span, walk: impl FnOnce(&mut Self)) {
        let (depth, chain) = (self.depth, self.chain);
        if std::mem::take(&mut self.on_chain) {
            self.chain += 1;
        } else {
            self.depth += 1;
            self.chain = 0;
        }
        let message = if self.depth > self.limits.depth {
            Some(format!("the program is nested more than {} levels deep here", self.limits.depth))
        } else if self.chain > self.limits.chain {
            Some(format!("the chain has more than {} links", self.limits.chain))
        } else {
            None
        };
        match message {
            Some(message) => {
                self.too_deep.get_or_insert(Finding::new(
                    Code::TooComplex,
                    start(span),
                    format!("{message}; split the program into more statements with named values"),
                ));
            }
            None if self.too_deep.is_none() => walk(self),
            None => {}
        }
        (self.depth, self.chain) = (depth, chain);
    }

    fn link(&mut self, expression: &Expr) {
        self.on_chain = true;
        self.visit_expr(expression);
    }

    fn member_prop(&mut self, prop: &MemberProp) {
        if let MemberProp::Computed(computed) = prop {
            self.visit_expr(&computed.expr);
        }
    }

    fn ambient(&mut self, ambient: bool, walk: impl FnOnce(&mut Self)) {
        let before = self.ambient;
        self.ambient |= ambient;
        walk(self);
        self.ambient = before;
    }
}

impl Visit for Survey<'_> {
    fn visit_expr(&mut self, node: &Expr) {
        self.level(node.span(), |survey| match node {
            Expr::Bin(binary) => {
                survey.link(&binary.left);
                survey.visit_expr(&binary.right);
            }
            Expr::Member(member) => {
                survey.link(&member.obj);
                survey.member_prop(&member.prop);
            }
            Expr::Call(call) => {
                match &call.callee {
                    Callee::Expr(callee) => survey.link(callee),
                    Callee::Import(import) => survey.refuse(
                        import.span,
                        "`import()` is not supported; call tools as `await mcp.namespace.action({ … })`",
                    ),
                    Callee::Super(_) => {}
                }
                call.args.visit_with(survey);
                call.type_args.visit_with(survey);
            }
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => {
                    survey.link(&member.obj);
                    survey.member_prop(&member.prop);
                }
                OptChainBase::Call(call) => {
                    survey.link(&call.callee);
                    call.args.visit_with(survey);
                    call.type_args.visit_with(survey);
                }
            },
            Expr::TaggedTpl(tagged) => {
                survey.link(&tagged.tag);
                tagged.tpl.visit_with(survey);
                tagged.type_params.visit_with(survey);
            }
            Expr::TsNonNull(inner) => survey.link(&inner.expr),
            Expr::TsAs(cast) => {
                survey.link(&cast.expr);
                cast.type_ann.visit_with(survey);
            }
            Expr::TsSatisfies(cast) => {
                survey.link(&cast.expr);
                cast.type_ann.visit_with(survey);
            }
            Expr::JSXElement(_)
            | Expr::JSXFragment(_)
            | Expr::JSXMember(_)
            | Expr::JSXNamespacedName(_)
            | Expr::JSXEmpty(_) => survey.refuse(
                node.span(),
                "JSX is not supported; build the text with a template literal",
            ),
            _ => node.visit_children_with(survey),
        });
    }

    fn visit_stmt(&mut self, node: &Stmt) {
        self.level(node.span(), |survey| match node {
            Stmt::If(choice) => {
                survey.visit_expr(&choice.test);
                survey.visit_stmt(&choice.cons);
                if let Some(alternative) = &choice.alt {
                    survey.on_chain = matches!(**alternative, Stmt::If(_));
                    survey.visit_stmt(alternative);
                }
            }
            _ => node.visit_children_with(survey),
        });
    }

    fn visit_pat(&mut self, node: &Pat) {
        self.level(node.span(), |survey| node.visit_children_with(survey));
    }

    fn visit_ts_type(&mut self, node: &TsType) {
        self.level(node.span(), |survey| node.visit_children_with(survey));
    }

    fn visit_decl(&mut self, node: &Decl) {
        let ambient = match node {
            Decl::TsInterface(_) | Decl::TsTypeAlias(_) => true,
            Decl::TsEnum(declared) => declared.declare,
            Decl::TsModule(declared) => declared.declare,
            _ => false,
        };
        self.ambient(ambient, |survey| node.visit_children_with(survey));
    }

    fn visit_fn_decl(&mut self, node: &FnDecl) {
        self.ambient(node.declare, |survey| node.visit_children_with(survey));
    }

    fn visit_class_decl(&mut self, node: &ClassDecl) {
        self.ambient(node.declare, |survey| node.visit_children_with(survey));
    }

    fn visit_var_decl(&mut self, node: &VarDecl) {
        self.ambient(node.declare, |survey| node.visit_children_with(survey));
    }

    fn visit_ts_enum_decl(&mut self, node: &TsEnumDecl) {
        let message = "`enum` is not supported; write `const Name = { A: \"a\" } as const`";
        self.refuse(node.span, message);
        node.visit_children_with(self);
    }

    fn visit_ts_module_decl(&mut self, node: &TsModuleDecl) {
        let message =
            "`namespace` and `module` are not supported; write an object or plain functions";
        self.refuse(node.span, message);
        node.visit_children_with(self);
    }

    fn visit_param_or_ts_param_prop(&mut self, node: &ParamOrTsParamProp) {
        if let ParamOrTsParamProp::TsParamProp(property) = node {
            let message = "parameter properties are not supported; declare the field and assign it in the constructor";
            self.refuse(property.span, message);
        }
        node.visit_children_with(self);
    }

    fn visit_decorator(&mut self, node: &Decorator) {
        self.refuse(node.span, "decorators are not supported; call the function yourself");
        node.visit_children_with(self);
    }

    fn visit_auto_accessor(&mut self, node: &AutoAccessor) {
        self.refuse(node.span, "`accessor` fields are not supported; write a getter and a setter");
        node.visit_children_with(self);
    }

    fn visit_using_decl(&mut self, node: &UsingDecl) {
        self.refuse(node.span, "`using` is not supported; write `try { … } finally { … }`");
        node.visit_children_with(self);
    }

    fn visit_meta_prop_expr(&mut self, node: &MetaPropExpr) {
        if node.kind == MetaPropKind::ImportMeta {
            self.refuse(node.span, "`import.meta` is not supported; a program has no file");
        }
    }
}
