//! Erases types that can simply be replaced by spaces, using the tree that was parsed already.
//!
//! Most types in most programs are annotations, casts, type arguments and type
//! declarations between other statements. Everything else is left to SWC's
//! eraser, which parses the program again: modifiers, line breaks that would join
//! two statements, and whatever is not listed here. The result is the same as
//! that of SWC's eraser, and is checked against the tree in the same way.

use std::borrow::Cow;

use swc_common::{BytePos, Span, Spanned};
use swc_ecma_ast::{
    ArrowExpr, BinExpr, BinaryOp, BindingIdent, Class, ClassMember, ClassMethod, ClassProp,
    Constructor, Decl, Expr, Function, FunctionBody, ObjectPat, PrivateMethod, PrivateProp,
    PropName, Stmt, TsAsExpr, TsConstAssertion, TsInstantiation, TsNonNullExpr, TsSatisfiesExpr,
    TsTypeAnn, TsTypeParamDecl, TsTypeParamInstantiation, VarDeclarator,
};
use swc_ecma_visit::{Visit, VisitWith};

use crate::wrapper::offset;

/// Returns the text with spaces in place of its types, or `None` if it needs SWC's eraser.
pub(super) fn blank<'t>(program: &FunctionBody, text: &'t str) -> Option<Cow<'t, str>> {
    let mut found = Blank { text, spans: Vec::new(), semicolons: Vec::new(), needs_eraser: false };
    found.statements(&program.stmts, true);
    if found.needs_eraser {
        return None;
    }
    if found.spans.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.as_bytes().to_vec();
    for span in found.spans {
        for byte in bytes.get_mut(offset(span.lo) as usize..offset(span.hi) as usize)? {
            if !byte.is_ascii() {
                return None;
            }
            if !matches!(byte, b'\t'..=b'\r' | b' ') {
                *byte = b' ';
            }
        }
    }
    for at in found.semicolons {
        *bytes.get_mut(offset(at) as usize)? = b';';
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Collects what is to be erased.
struct Blank<'t> {
    text: &'t str,
    spans: Vec<Span>,
    /// Where a `;` separates a statement from the one before it.
    semicolons: Vec<BytePos>,
    /// The program has something that cannot be replaced by spaces.
    needs_eraser: bool,
}

impl Blank<'_> {
    fn erase(&mut self, span: Span) {
        self.spans.push(span);
    }

    fn needs_eraser_if(&mut self, holds: bool) {
        self.needs_eraser |= holds;
    }

    fn bytes(&self, from: BytePos, until: BytePos) -> &[u8] {
        let range = offset(from) as usize..offset(until) as usize;
        self.text.as_bytes().get(range).unwrap_or_default()
    }

    /// Walks a statement list; `directives` if it may begin with directives such as `'use strict'`.
    fn statements(&mut self, list: &[Stmt], mut directives: bool) {
        let mut before: Option<Span> = None;
        for statement in list {
            match statement {
                Stmt::Decl(Decl::TsInterface(_) | Decl::TsTypeAlias(_)) if !declared(statement) => {
                    let span = statement.span();
                    self.erase(span);
                    let open = before.is_some_and(|before| {
                        self.bytes(before.lo, before.hi).last() != Some(&b';')
                    });
                    if directives || open {
                        self.semicolons.push(span.lo);
                    }
                    directives = false;
                }
                _ => {
                    statement.visit_with(self);
                    directives &= statement.can_precede_directive();
                    before = Some(statement.span());
                }
            }
        }
    }

    /// Erases the suffix of an expression, such as a cast.
    fn suffix(&mut self, expression: &Expr, whole: Span) {
        expression.visit_with(self);
        self.erase(Span::new(expression.span().hi, whole.hi));
    }

    /// Erases a cast, unless the next line would then continue the expression.
    fn cast(&mut self, expression: &Expr, whole: Span) {
        self.suffix(expression, whole);
        let rest = self.text.as_bytes().get(offset(whole.hi) as usize..).unwrap_or_default();
        let mut line_break = false;
        for byte in rest {
            match byte {
                b'\n' | b'\r' => line_break = true,
                byte if byte.is_ascii_whitespace() => {}
                b'(' | b'[' | b'`' => return self.needs_eraser_if(line_break),
                // A comment, or white space beyond ASCII.
                byte => return self.needs_eraser_if(*byte == b'/' || !byte.is_ascii()),
            }
        }
    }

    /// Returns whether there may be a line break between two positions.
    fn breaks(&self, from: BytePos, until: BytePos) -> bool {
        !self
            .bytes(from, until)
            .iter()
            .all(|byte| byte.is_ascii() && !matches!(byte, b'\n' | b'\r'))
    }
}

/// Returns whether a type declaration is ambient (`declare`).
fn declared(statement: &Stmt) -> bool {
    match statement {
        Stmt::Decl(Decl::TsInterface(found)) => found.declare,
        Stmt::Decl(Decl::TsTypeAlias(found)) => found.declare,
        _ => false,
    }
}

impl Visit for Blank<'_> {
    fn visit_stmts(&mut self, list: &[Stmt]) {
        self.statements(list, false);
    }

    fn visit_function_body(&mut self, body: &FunctionBody) {
        self.statements(&body.stmts, true);
    }

    fn visit_decl(&mut self, node: &Decl) {
        let needs_eraser = match node {
            Decl::Class(class) => class.declare,
            Decl::Fn(function) => function.declare,
            Decl::Var(variables) => variables.declare,
            Decl::TsInterface(_) | Decl::TsTypeAlias(_) | Decl::TsEnum(_) | Decl::TsModule(_) => {
                true
            }
            _ => false,
        };
        self.needs_eraser_if(needs_eraser);
        if !needs_eraser {
            node.visit_children_with(self);
        }
    }

    fn visit_var_declarator(&mut self, node: &VarDeclarator) {
        self.needs_eraser_if(node.definite);
        node.visit_children_with(self);
    }

    fn visit_function(&mut self, node: &Function) {
        self.needs_eraser_if(node.body.is_none() || node.this_param.is_some());
        node.visit_children_with(self);
    }

    fn visit_arrow_expr(&mut self, node: &ArrowExpr) {
        // No line break is allowed between an arrow function's parameters and its arrow.
        if node.type_params.is_some() || node.return_type.is_some() {
            self.needs_eraser_if(self.breaks(node.span.lo, node.body.span().lo));
        }
        node.visit_children_with(self);
    }

    fn visit_binding_ident(&mut self, node: &BindingIdent) {
        if node.id.optional {
            match &node.type_ann {
                Some(annotation) => {
                    let head = self.bytes(node.id.span.lo, annotation.span.lo);
                    let place = head.iter().rposition(|byte| !byte.is_ascii_whitespace());
                    match place {
                        Some(at) if head[at] == b'?' => {
                            let at = node.id.span.lo + BytePos(at as u32);
                            self.erase(Span::new(at, at + BytePos(1)));
                        }
                        _ => self.needs_eraser = true,
                    }
                }
                None => self.needs_eraser = true,
            }
        }
        node.visit_children_with(self);
    }

    fn visit_object_pat(&mut self, node: &ObjectPat) {
        self.needs_eraser_if(node.optional);
        node.visit_children_with(self);
    }

    fn visit_array_pat(&mut self, node: &swc_ecma_ast::ArrayPat) {
        self.needs_eraser_if(node.optional);
        node.visit_children_with(self);
    }

    fn visit_bin_expr(&mut self, node: &BinExpr) {
        let cast = |operand: &Expr| {
            matches!(
                operand,
                Expr::TsAs(_)
                    | Expr::TsSatisfies(_)
                    | Expr::TsConstAssertion(_)
                    | Expr::TsNonNull(_)
                    | Expr::TsInstantiation(_)
            )
        };
        self.needs_eraser_if(node.op == BinaryOp::Exp && cast(&node.left));
        node.visit_children_with(self);
    }

    fn visit_expr(&mut self, node: &Expr) {
        match node {
            Expr::Ident(_) | Expr::Lit(_) | Expr::This(_) => {}
            Expr::TsTypeAssertion(_) => self.needs_eraser = true,
            _ => node.visit_children_with(self),
        }
    }

    fn visit_ts_as_expr(&mut self, node: &TsAsExpr) {
        self.cast(&node.expr, node.span);
    }

    fn visit_ts_satisfies_expr(&mut self, node: &TsSatisfiesExpr) {
        self.cast(&node.expr, node.span);
    }

    fn visit_ts_const_assertion(&mut self, node: &TsConstAssertion) {
        self.needs_eraser_if(node.span.lo < node.expr.span().lo);
        self.cast(&node.expr, node.span);
    }

    fn visit_ts_non_null_expr(&mut self, node: &TsNonNullExpr) {
        self.suffix(&node.expr, node.span);
    }

    fn visit_ts_instantiation(&mut self, node: &TsInstantiation) {
        self.suffix(&node.expr, node.span);
    }

    fn visit_ts_type_ann(&mut self, node: &TsTypeAnn) {
        self.erase(node.span);
    }

    fn visit_ts_type_param_decl(&mut self, node: &TsTypeParamDecl) {
        self.erase(node.span);
    }

    fn visit_ts_type_param_instantiation(&mut self, node: &TsTypeParamInstantiation) {
        self.erase(node.span);
    }

    fn visit_class(&mut self, node: &Class) {
        self.needs_eraser_if(node.is_abstract || !node.implements.is_empty());
        node.visit_children_with(self);
    }

    fn visit_class_member(&mut self, node: &ClassMember) {
        let kept = matches!(
            node,
            ClassMember::Constructor(_)
                | ClassMember::Method(_)
                | ClassMember::PrivateMethod(_)
                | ClassMember::ClassProp(_)
                | ClassMember::PrivateProp(_)
                | ClassMember::StaticBlock(_)
                | ClassMember::Empty(_)
        );
        self.needs_eraser_if(!kept);
        node.visit_children_with(self);
    }

    fn visit_constructor(&mut self, node: &Constructor) {
        self.needs_eraser_if(node.accessibility.is_some() || node.body.is_none());
        node.visit_children_with(self);
    }

    fn visit_class_method(&mut self, node: &ClassMethod) {
        let modified = node.accessibility.is_some()
            || node.is_abstract
            || node.is_override
            || node.is_optional;
        self.needs_eraser_if(modified);
        node.visit_children_with(self);
    }

    fn visit_private_method(&mut self, node: &PrivateMethod) {
        let modified = node.accessibility.is_some()
            || node.is_abstract
            || node.is_override
            || node.is_optional;
        self.needs_eraser_if(modified);
        node.visit_children_with(self);
    }

    fn visit_class_prop(&mut self, node: &ClassProp) {
        let modified = node.accessibility.is_some()
            || node.is_abstract
            || node.is_override
            || node.is_optional
            || node.readonly
            || node.declare
            || node.definite;
        // Without its type, `get: T` would become the modifier of the next member.
        let word = |key: &PropName| {
            key.as_ident().is_some_and(|name| matches!(&*name.sym, "get" | "set" | "static"))
        };
        self.needs_eraser_if(modified || node.type_ann.is_some() && word(&node.key));
        node.visit_children_with(self);
    }

    fn visit_private_prop(&mut self, node: &PrivateProp) {
        let modified = node.accessibility.is_some()
            || node.is_override
            || node.is_optional
            || node.readonly
            || node.definite;
        self.needs_eraser_if(modified);
        node.visit_children_with(self);
    }

    fn visit_param_or_ts_param_prop(&mut self, node: &swc_ecma_ast::ParamOrTsParamProp) {
        self.needs_eraser_if(node.as_param().is_none());
        node.visit_children_with(self);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{parse_body, strip::strip};
    use crate::wrapper::wrapper;

    /// The results of this module and of SWC's eraser.
    fn both(text: &str) -> (Option<String>, Option<String>) {
        let Ok(module) = parse_body(text) else { return (None, None) };
        let body = wrapper(&module).and_then(|function| function.body.as_ref()).unwrap();
        (super::blank(body, text).map(Into::into), strip(text).ok())
    }

    #[test]
    fn erases_plain_types_like_the_eraser() {
        for text in [
            "let a: number = 1, { b }: { b: string } = c, [d]: [E?] = f;",
            "const f = (a: A, b?: B, c ? : C, ...d: D[]): Promise<E> => a;",
            "async function f<T extends A>(a: T = b): Promise<void> { g<T>(a); new Map<A, B>(); }",
            "const f = async <T>(a: T): Promise<T> => a; x = { m<T>(a: T): T { return a } };",
            "a as B; (a as any as B).c; a satisfies B; a!.b![c!]; [a] as const; f<A>;",
            "a as any\nb; c as any\n\n;(d)",
            "interface A { b: string /* c */ }\ntype B = A\nreturn a",
            "'use strict'\ntype A = 1\n'b'; type C = 2; d()\ntype E = 3\n(f)",
            "{ a; interface B {} c }",
            "for (const a of b as C[]) { try {} catch (e: unknown) {} }",
            "class A extends B<C> { d: E = f; g: H; #i: J; k<L>(m: L): L { return m } static n = 1 }",
            "const /* é */ a: A = 'ü', 文: B = a as\tC;",
            "no.types; get; class A { get; set; static; a() {} }",
        ] {
            let (blanked, stripped) = both(text);
            assert!(blanked.is_some(), "{text}");
            assert_eq!(blanked, stripped, "{text}");
        }
    }

    #[test]
    fn leaves_everything_else_to_the_eraser() {
        for text in [
            "a as any\n(b)",
            "a as any // c\n;(b)",
            "a satisfies B\n\n`c`",
            "const f = (a: A):\n B => a",
            "const f = async <\nT>(a: T) => a",
            "let a!: B",
            "if (a) type B = 1; else c",
            "declare const a: B; c",
            "function f(): void; function f() {}",
            "function f(this: A) {}",
            "class A { private b = 1 }",
            "class A { readonly b = 1 }",
            "class A { declare b: C }",
            "class A { get: B\n c() {} }",
            "class A { [b: string]: C }",
            "abstract class A {}",
            "class A implements B {}",
            "let a: É = b",
            "a! ** 2",
            "<A>b",
        ] {
            assert!(parse_body(text).is_ok(), "{text}");
            assert_eq!(both(text).0, None, "{text}");
        }
    }

    /// On the programs of `tests/cases`.
    #[test]
    fn erases_the_cases_like_the_eraser() {
        let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")];
        let (mut plain, mut typed) = (0, 0);
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "ts") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let (blanked, stripped) = both(&text);
                    let has_types = stripped.as_ref().is_some_and(|stripped| *stripped != text);
                    if let (Some(blanked), Some(stripped)) = (blanked, stripped) {
                        assert_eq!(blanked, stripped, "{}", path.display());
                        plain += usize::from(has_types);
                    }
                    typed += usize::from(has_types);
                }
            }
        }
        assert!(plain >= 30 && plain * 10 >= typed * 7, "{plain} of {typed} programs with types");
    }
}
