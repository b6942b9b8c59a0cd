//! Early errors of ECMAScript that the parser does not check.
//!
//! The engine's compiler reports them too, but possibly after a user was asked
//! to approve the program.

mod names;
mod private;

use swc_common::{BytePos, Span, Spanned};
use swc_ecma_ast::{
    ArrowExpr, ArrowFunctionBody, AwaitExpr, BlockStmt, CallExpr, Callee, CatchClause, Class,
    ClassMember, Constructor, Expr, ForHead, ForInStmt, ForOfStmt, ForStmt, Function, Ident,
    IdentName, MemberProp, Module, ObjectLit, OptChainBase, Pat, PrivateName, Prop, PropName,
    PropOrSpread, Regex, SeqExpr, Stmt, Str, SwitchStmt, TplElement, UnaryExpr, UnaryOp,
    VarDeclOrExpr,
};
use swc_ecma_visit::{Visit, VisitWith};

use crate::diagnostic::{Code, Finding};
use crate::wrapper::{PREFIX, offset, start, wrap};
use names::Names;
use private::Private;

/// Characters that the parser skips like white space, although ECMAScript does not.
const NO_SPACES: [char; 2] = ['\u{85}', '\u{200b}'];

/// Checks a program that parsed.
pub(super) fn check(module: &Module, text: &str) -> Result<(), Vec<Finding>> {
    if let Some(at) = text.find('\0') {
        let message = "a program cannot contain a NUL character; write `\\0` in a string";
        return Err(vec![Finding::new(Code::ParseError, at as u32, message)]);
    }
    let mut early = Early {
        text,
        found: Vec::new(),
        private: Private::default(),
        constructor: Call::Forbidden,
    };
    module.visit_with(&mut early);
    if text.contains(NO_SPACES) {
        early.found.extend(odd_space(module, text));
    }
    if early.found.is_empty() { Ok(()) } else { Err(early.found) }
}

/// Whether `super()` is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Forbidden,
    Allowed,
}

struct Early<'t> {
    text: &'t str,
    found: Vec<Finding>,
    private: Private,
    constructor: Call,
}

impl Early<'_> {
    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.found.push(Finding::new(Code::ParseError, start(span), message));
    }

    /// Refuses expressions that overlap: the parser reads `(a, [b] => c)` as a list whose last
    /// expression begins where the first does.
    fn disjoint(&mut self, spans: impl Iterator<Item = Span>) {
        let mut last: Option<Span> = None;
        for span in spans {
            if last.is_some_and(|last| span.lo < last.hi) {
                self.error(span, "put the parameters before `=>` in their own parentheses");
            }
            last = Some(span);
        }
    }

    fn report_duplicates(&mut self, names: Vec<&Ident>) {
        for name in names {
            let message =
                format!("`{}` is declared twice in this scope; rename one of them", name.sym);
            self.error(name.span, message);
        }
    }

    fn body<'a>(&mut self, parameters: impl Iterator<Item = &'a Pat>, statements: &'a [Stmt]) {
        let mut bound = Names::default();
        parameters.for_each(|parameter| bound.pattern(parameter));
        self.report_duplicates(bound.repeated());
        // At the top level of a function, function declarations are scoped like `var` and may be repeated.
        let own = Names::lexical(statements, false);
        if own.is_empty() {
            return;
        }
        self.report_duplicates(own.repeated());
        self.report_duplicates(own.also_in(&bound));
        self.report_duplicates(own.also_in(&Names::hoisted(statements)));
        self.report_duplicates(own.also_in(&Names::functions(statements)));
    }

    fn block(&mut self, statements: &[Stmt]) {
        let own = Names::lexical(statements, true);
        if !own.is_empty() {
            self.report_duplicates(own.repeated());
            self.report_duplicates(own.also_in(&Names::hoisted(statements)));
        }
    }

    fn head(&mut self, head: &ForHead, body: &Stmt) {
        if let ForHead::VarDecl(declared) = head {
            let own = Names::of_let(declared);
            self.report_duplicates(own.repeated());
            self.report_duplicates(own.also_in(&Names::hoisted(std::slice::from_ref(body))));
        }
    }

    /// Walks code where `super()` is or is not allowed.
    fn within(&mut self, call: Call, walk: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.constructor, call);
        walk(self);
        self.constructor = before;
    }
}

impl Visit for Early<'_> {
    fn visit_function(&mut self, node: &Function) {
        if let Some(body) = &node.body {
            self.body(node.params.iter().map(|parameter| &parameter.pat), &body.stmts);
        }
        self.within(Call::Forbidden, |early| node.visit_children_with(early));
    }

    fn visit_arrow_expr(&mut self, node: &ArrowExpr) {
        let statements = match &*node.body {
            ArrowFunctionBody::FunctionBody(body) => &body.stmts[..],
            ArrowFunctionBody::Expr(_) => &[],
        };
        self.body(node.params.iter(), statements);
        let mut awaits = Awaits(Vec::new());
        node.params.visit_with(&mut awaits);
        for place in awaits.0 {
            self.error(
                place,
                "`await` is not allowed in the parameters of an arrow function; move it into the body",
            );
        }
        node.visit_children_with(self);
    }

    fn visit_constructor(&mut self, node: &Constructor) {
        if let Some(body) = &node.body {
            let parameters = node.params.iter().filter_map(|parameter| parameter.as_param());
            self.body(parameters.map(|parameter| &parameter.pat), &body.stmts);
        }
        // `visit_class` has recorded whether the class is derived.
        node.visit_children_with(self);
    }

    fn visit_block_stmt(&mut self, node: &BlockStmt) {
        self.block(&node.stmts);
        node.visit_children_with(self);
    }

    fn visit_switch_stmt(&mut self, node: &SwitchStmt) {
        let mut own = Names::default();
        let mut hoisted = Names::default();
        for case in &node.cases {
            own.add(Names::lexical(&case.cons, true));
            hoisted.add(Names::hoisted(&case.cons));
        }
        self.report_duplicates(own.repeated());
        self.report_duplicates(own.also_in(&hoisted));
        node.visit_children_with(self);
    }

    fn visit_catch_clause(&mut self, node: &CatchClause) {
        if let Some(caught) = &node.param {
            let mut bound = Names::default();
            bound.pattern(caught);
            self.report_duplicates(bound.repeated());
            self.report_duplicates(Names::lexical(&node.body.stmts, true).also_in(&bound));
            // A `var` may redeclare a plain catch parameter, but not a name of a destructured one (B.3.4).
            if !caught.is_ident() {
                self.report_duplicates(Names::hoisted(&node.body.stmts).also_in(&bound));
            }
        }
        node.visit_children_with(self);
    }

    fn visit_for_stmt(&mut self, node: &ForStmt) {
        if let Some(test) = &node.test {
            // The parser accepts `for (;test)` without the second `;`.
            let until = node.update.as_ref().map_or(node.body.span().lo, |update| update.span().lo);
            let (from, until) = (offset(test.span().hi) as usize, offset(until) as usize);
            if !self.text.get(from..until).is_some_and(has_semicolon) {
                self.error(test.span(), "the head of a `for` loop needs two `;`; add the second");
            }
        }
        if let Some(VarDeclOrExpr::VarDecl(declared)) = &node.init {
            let own = Names::of_let(declared);
            self.report_duplicates(own.repeated());
            self.report_duplicates(own.also_in(&Names::hoisted(std::slice::from_ref(&*node.body))));
        }
        node.visit_children_with(self);
    }

    fn visit_for_in_stmt(&mut self, node: &ForInStmt) {
        self.head(&node.left, &node.body);
        node.visit_children_with(self);
    }

    fn visit_for_of_stmt(&mut self, node: &ForOfStmt) {
        self.head(&node.left, &node.body);
        node.visit_children_with(self);
    }

    fn visit_class(&mut self, node: &Class) {
        // The `extends` expression is outside the class's private scope.
        node.super_class.visit_with(self);
        let repeated = self.private.open(node);
        for name in repeated {
            self.error(name.span, format!("`#{}` is declared twice in the class", name.name));
        }
        let derived = if node.super_class.is_some() { Call::Allowed } else { Call::Forbidden };
        for member in &node.body {
            let call = match member {
                ClassMember::Constructor(_) => derived,
                _ => Call::Forbidden,
            };
            if let Some(key) = static_prototype(member) {
                self.error(
                    key.span(),
                    "a static member cannot be named `prototype`; choose another name",
                );
            }
            self.within(call, |early| member.visit_with(early));
        }
        for (name, span) in self.private.close() {
            let message =
                format!("`#{name}` is not declared in an enclosing class; declare the field");
            self.error(span, message);
        }
    }

    fn visit_private_name(&mut self, node: &PrivateName) {
        if !self.private.used(node) {
            self.error(node.span, "private names are only allowed inside a class");
        }
    }

    fn visit_call_expr(&mut self, node: &CallExpr) {
        if let (Callee::Super(called), Call::Forbidden) = (&node.callee, self.constructor) {
            let message =
                "`super()` is only allowed in the constructor of a class that extends another";
            self.error(called.span, message);
        }
        self.disjoint(node.args.iter().map(Spanned::span));
        node.visit_children_with(self);
    }

    fn visit_seq_expr(&mut self, node: &SeqExpr) {
        self.disjoint(node.exprs.iter().map(Spanned::span));
        node.visit_children_with(self);
    }

    fn visit_unary_expr(&mut self, node: &UnaryExpr) {
        if node.op == UnaryOp::Delete && is_private(&node.arg) {
            self.error(node.span, "a private field cannot be deleted; set it to `undefined`");
        }
        node.visit_children_with(self);
    }

    fn visit_object_lit(&mut self, node: &ObjectLit) {
        let mut prototypes = node.props.iter().filter_map(|property| match property {
            PropOrSpread::Prop(property) => match &**property {
                Prop::KeyValue(pair) if is_named(&pair.key, "__proto__") => Some(pair.key.span()),
                _ => None,
            },
            PropOrSpread::Spread(_) => None,
        });
        let second = prototypes.nth(1);
        for property in &node.props {
            if let PropOrSpread::Prop(property) = property
                && let Prop::Assign(pair) = &**property
            {
                self.error(pair.span, "`=` is not allowed in an object literal; write `:`");
            }
        }
        if let Some(second) = second {
            self.error(second, "`__proto__` is set twice in one object literal; remove one");
        }
        node.visit_children_with(self);
    }

    fn visit_str(&mut self, node: &Str) {
        if let Some(at) = node.raw.as_deref().and_then(octal) {
            let span = Span::new(node.span.lo + BytePos(at as u32), node.span.hi);
            self.error(
                span,
                "`\\` before a digit is not allowed in a string; write `\\x` and two hex digits",
            );
        }
    }

    fn visit_regex(&mut self, node: &Regex) {
        if node.exp.contains(['\u{2028}', '\u{2029}']) {
            self.error(
                node.span,
                "a regular expression cannot contain a line terminator; write `\\u2028`",
            );
        }
    }

    fn visit_ident(&mut self, node: &Ident) {
        self.name(&node.sym, node.span);
    }

    fn visit_ident_name(&mut self, node: &IdentName) {
        self.name(&node.sym, node.span);
    }
}

impl Early<'_> {
    /// Checks that a name does not begin with an escaped digit.
    fn name(&mut self, name: &str, span: Span) {
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            self.error(span, "a name cannot begin with a digit");
        }
    }
}

fn is_private(expression: &Expr) -> bool {
    match expression {
        Expr::Paren(inner) => is_private(&inner.expr),
        Expr::TsNonNull(inner) => is_private(&inner.expr),
        Expr::TsAs(inner) => is_private(&inner.expr),
        Expr::Member(member) => matches!(member.prop, MemberProp::PrivateName(_)),
        Expr::OptChain(chain) => match &*chain.base {
            OptChainBase::Member(member) => matches!(member.prop, MemberProp::PrivateName(_)),
            OptChainBase::Call(_) => false,
        },
        _ => false,
    }
}

fn is_named(key: &PropName, wanted: &str) -> bool {
    match key {
        PropName::Ident(name) => &*name.sym == wanted,
        PropName::Str(text) => text.value.as_str() == Some(wanted),
        _ => false,
    }
}

fn static_prototype(member: &ClassMember) -> Option<&PropName> {
    let key = match member {
        ClassMember::Method(method) if method.is_static => &method.key,
        ClassMember::ClassProp(field) if field.is_static && !field.declare => &field.key,
        _ => return None,
    };
    is_named(key, "prototype").then_some(key)
}

/// Returns the offset of an octal escape, `\8` or `\9` in the raw text of a string.
fn octal(raw: &str) -> Option<usize> {
    let bytes = raw.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let next = bytes.get(at + 2).is_some_and(u8::is_ascii_digit);
        if matches!(bytes[at + 1], b'1'..=b'9') || (bytes[at + 1] == b'0' && next) {
            return Some(at);
        }
        at += 2;
    }
    None
}

/// Returns whether the text between two expressions has a `;` outside of comments.
fn has_semicolon(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find([';', '/']) {
        rest = match &rest[at..] {
            found if found.starts_with(';') => return true,
            found if found.starts_with("//") => found
                .split_once(['\n', '\r', '\u{2028}', '\u{2029}'])
                .map_or("", |(_, after)| after),
            found => found[1..].split_once("*/").map_or("", |(_, after)| after),
        };
    }
    false
}

/// Finds a character in code that only looks like a space.
fn odd_space(module: &Module, text: &str) -> Option<Finding> {
    let mut texts = Texts::default();
    module.visit_with(&mut texts);
    // The tree does not contain comments.
    let comments = super::comments(&wrap(text));
    let within = |at: usize| {
        let at = (PREFIX.len() + at + 1) as u32;
        texts.0.iter().chain(&comments).any(|span| span.lo.0 <= at && at < span.hi.0)
    };
    let (at, found) = text.match_indices(NO_SPACES).find(|(at, _)| !within(*at))?;
    let point = found.chars().next().map_or(0, u32::from);
    let message =
        format!("the character U+{point:04X} is not a space in JavaScript; write a plain space");
    Some(Finding::new(Code::ParseError, at as u32, message))
}

/// The spans of `await` outside of nested functions.
struct Awaits(Vec<Span>);

impl Visit for Awaits {
    fn visit_await_expr(&mut self, node: &AwaitExpr) {
        self.0.push(node.span);
    }

    fn visit_function(&mut self, _: &Function) {}

    fn visit_arrow_expr(&mut self, _: &ArrowExpr) {}
}

/// The spans of strings, templates and regular expressions.
#[derive(Default)]
struct Texts(Vec<Span>);

impl Visit for Texts {
    fn visit_str(&mut self, node: &Str) {
        self.0.push(node.span);
    }

    fn visit_tpl_element(&mut self, node: &TplElement) {
        self.0.push(node.span);
    }

    fn visit_regex(&mut self, node: &Regex) {
        self.0.push(node.span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_comments_do_not_count() {
        for (text, expected) in [
            (" ; ", true),
            (") ", false),
            (" /* ; */ ", false),
            (" /* ; */ ; ", true),
            (" // ;\n", false),
            (" // ;\n ; ", true),
            ("", false),
        ] {
            assert_eq!(has_semicolon(text), expected, "{text:?}");
        }
    }
}
