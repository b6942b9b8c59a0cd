//! Renames every local of a program.

use std::collections::{BTreeMap, BTreeSet};

use swc_common::BytePos;
use swc_ecma_ast::{
    ArrowExpr, AssignPatProp, CatchClause, ClassDecl, ClassExpr, EsVersion, FnDecl, FnExpr, Ident,
    Param, Pat, Prop, VarDeclarator,
};
use swc_ecma_parser::{Parser, StringInput, Syntax, TsSyntax, lexer::Lexer};
use swc_ecma_visit::{Visit, VisitWith};

const HEAD: &str = "async function program(){";

/// Returns the renamed program and the number of its names, or `None` if it has none.
///
/// A name is replaced by the same new name everywhere; scopes are not taken into account.
pub(crate) fn locals(source: &str) -> Option<(String, usize)> {
    let source = match source.strip_prefix("#!") {
        Some(rest) => format!("//{rest}"),
        None => source.to_owned(),
    };
    let text = [HEAD, &source, "\n}"].concat();
    let input = StringInput::new(&text, BytePos(0), BytePos(text.len() as u32));
    let syntax = Syntax::Typescript(TsSyntax::default());
    let module = Parser::new_from(Lexer::new(syntax, EsVersion::latest(), input, None))
        .parse_module()
        .ok()?;
    let mut names = Names::default();
    module.visit_with(&mut names);
    // The wrapper function, and names that a case may declare for its types only.
    for kept in ["program", "mcp", "args", "arguments"] {
        names.declared.remove(kept);
    }
    if names.declared.is_empty() {
        return None;
    }
    let mut uses = Uses { declared: &names.declared, edits: BTreeMap::new() };
    module.visit_with(&mut uses);
    let mut out = text;
    for (at, (length, other)) in uses.edits.iter().rev() {
        out.replace_range(*at..*at + *length, other);
    }
    let out = out.strip_prefix(HEAD)?.strip_suffix("\n}")?.to_owned();
    Some((out, names.declared.len()))
}

/// The names that are declared anywhere.
#[derive(Default)]
struct Names {
    declared: BTreeSet<String>,
    binding: bool,
}

impl Names {
    fn bind(&mut self, pattern: &Pat) {
        let before = std::mem::replace(&mut self.binding, true);
        pattern.visit_with(self);
        self.binding = before;
    }
}

impl Visit for Names {
    fn visit_pat(&mut self, node: &Pat) {
        if let (true, Pat::Ident(name)) = (self.binding, node) {
            self.declared.insert(name.id.sym.to_string());
        }
        node.visit_children_with(self);
    }

    fn visit_assign_pat_prop(&mut self, node: &AssignPatProp) {
        if self.binding {
            self.declared.insert(node.key.id.sym.to_string());
        }
        node.visit_children_with(self);
    }

    fn visit_expr(&mut self, node: &swc_ecma_ast::Expr) {
        let before = std::mem::replace(&mut self.binding, false);
        node.visit_children_with(self);
        self.binding = before;
    }

    fn visit_var_declarator(&mut self, node: &VarDeclarator) {
        self.bind(&node.name);
        node.init.visit_with(self);
    }

    fn visit_param(&mut self, node: &Param) {
        self.bind(&node.pat);
    }

    fn visit_arrow_expr(&mut self, node: &ArrowExpr) {
        node.params.iter().for_each(|param| self.bind(param));
        node.body.visit_with(self);
    }

    fn visit_catch_clause(&mut self, node: &CatchClause) {
        node.param.iter().for_each(|param| self.bind(param));
        node.body.visit_with(self);
    }

    fn visit_fn_decl(&mut self, node: &FnDecl) {
        self.declared.insert(node.ident.sym.to_string());
        node.visit_children_with(self);
    }

    fn visit_class_decl(&mut self, node: &ClassDecl) {
        self.declared.insert(node.ident.sym.to_string());
        node.visit_children_with(self);
    }

    fn visit_fn_expr(&mut self, node: &FnExpr) {
        self.declared.extend(node.ident.iter().map(|name| name.sym.to_string()));
        node.visit_children_with(self);
    }

    fn visit_class_expr(&mut self, node: &ClassExpr) {
        self.declared.extend(node.ident.iter().map(|name| name.sym.to_string()));
        node.visit_children_with(self);
    }
}

/// The positions of the names, and their replacements.
struct Uses<'a> {
    declared: &'a BTreeSet<String>,
    edits: BTreeMap<usize, (usize, String)>,
}

impl Uses<'_> {
    fn edit(&mut self, name: &Ident, short: bool) {
        let Some(at) = self.declared.iter().position(|declared| **declared == *name.sym) else {
            return;
        };
        let key = if short { format!("{}: ", name.sym) } else { String::new() };
        let (begin, end) = (name.span.lo.0 as usize, name.span.hi.0 as usize);
        // The span of a name with a type covers the type as well.
        let length = name.sym.len().min(end - begin);
        self.edits.insert(begin, (length, format!("{key}other_{at} /* {at} */")));
    }
}

impl Visit for Uses<'_> {
    fn visit_ident(&mut self, node: &Ident) {
        self.edit(node, false);
    }

    fn visit_prop(&mut self, node: &Prop) {
        match node {
            Prop::Shorthand(name) => self.edit(name, true),
            _ => node.visit_children_with(self),
        }
    }

    fn visit_assign_pat_prop(&mut self, node: &AssignPatProp) {
        self.edit(&node.key.id, true);
        node.value.visit_with(self);
    }
}
