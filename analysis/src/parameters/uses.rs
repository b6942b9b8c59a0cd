//! Finds the uses of `args` in the syntax tree.
//!
//! Scopes are replaced by counting: a name that is declared once and never
//! assigned to means the same everywhere. All other names are not followed.

mod evidence;
mod walk;

use std::collections::BTreeMap;

use foldhash::HashMap;
use serde_json::{Value, json};
use swc_atoms::Atom;
use swc_ecma_ast::{
    BindingIdent, ClassDecl, ClassExpr, Expr, FnDecl, FnExpr, Function, Lit, MemberExpr,
    MemberProp, ObjectPatProp, OptChainBase, Pat, PropName, UpdateExpr, VarDeclarator,
};
use swc_ecma_visit::{Visit, VisitWith};

use self::evidence::Kinds;
use super::types::Named;
use super::{FIELD_LIMIT, Parameter, Parameters, doc};

/// Returns the fields of `args` that a program uses.
pub(crate) fn parameters(program: &Function, source: &str) -> Parameters {
    if !source.contains("args") && !source.contains("globalThis") {
        return Parameters::default();
    }
    let mut names = Names::default();
    program.visit_with(&mut names);
    if names.declared.contains_key(&Atom::from("args")) {
        // Another declaration shadows `args` somewhere; which one each use means is not tracked.
        return Parameters { open: true, ..Parameters::default() };
    }
    // A keyword may be written with an escape.
    let may_name_types = ["type", "interface", "\\u"].iter().any(|part| source.contains(part));
    let named = if may_name_types { Named::of(program) } else { Named::default() };
    let mut uses = Uses::new(named, names.declared);
    program.visit_with(&mut Aliases(&mut uses));
    if let Some(body) = &program.body {
        walk::walk(body, &mut uses);
    }
    uses.finish(source)
}

/// Counts how often each name is declared or assigned to.
#[derive(Default)]
struct Names {
    declared: HashMap<Atom, usize>,
}

impl Names {
    fn count(&mut self, name: &Atom) {
        *self.declared.entry(name.clone()).or_default() += 1;
    }
}

impl Visit for Names {
    // The target of an assignment is a binding identifier too.
    fn visit_binding_ident(&mut self, node: &BindingIdent) {
        self.count(&node.id.sym);
        node.type_ann.visit_with(self);
    }

    fn visit_update_expr(&mut self, node: &UpdateExpr) {
        if let Expr::Ident(name) = &*node.arg {
            self.count(&name.sym);
        }
        node.visit_children_with(self);
    }

    fn visit_fn_decl(&mut self, node: &FnDecl) {
        self.count(&node.ident.sym);
        node.visit_children_with(self);
    }

    fn visit_fn_expr(&mut self, node: &FnExpr) {
        node.ident.iter().for_each(|name| self.count(&name.sym));
        node.visit_children_with(self);
    }

    fn visit_class_decl(&mut self, node: &ClassDecl) {
        self.count(&node.ident.sym);
        node.visit_children_with(self);
    }

    fn visit_class_expr(&mut self, node: &ClassExpr) {
        node.ident.iter().for_each(|name| self.count(&name.sym));
        node.visit_children_with(self);
    }
}

/// What an expression or a name means.
#[derive(Debug, Clone, PartialEq)]
enum Meaning {
    /// `args`.
    All,
    /// A field of it; with a default it is never missing.
    Field { name: String, defaulted: bool },
}

/// What is known about one field.
#[derive(Default)]
struct Field {
    /// No run can succeed without it.
    needed: bool,
    /// Some use tolerates that it is missing.
    tolerated: bool,
    /// The program assigns to it or tests its type, so its uses reveal nothing.
    unclear: bool,
    /// The kinds that all uses allow.
    kinds: Kinds,
    /// The schema of its type annotation, and whether it is optional there.
    annotated: Option<(Value, bool)>,
}

/// What is known about all uses.
struct Uses {
    named: Named,
    declared: HashMap<Atom, usize>,
    aliases: HashMap<Atom, Meaning>,
    fields: BTreeMap<String, Field>,
    open: bool,
    catches: bool,
}

impl Uses {
    fn new(named: Named, declared: HashMap<Atom, usize>) -> Self {
        let aliases = HashMap::from_iter([("args".into(), Meaning::All)]);
        Self { named, declared, aliases, fields: BTreeMap::new(), open: false, catches: false }
    }

    fn field(&mut self, name: &str) -> &mut Field {
        self.fields.entry(name.to_owned()).or_default()
    }

    fn is_constant(&self, name: &Atom) -> bool {
        self.declared.get(name) == Some(&1)
    }

    /// Returns what an expression means, if it is `args` or a field of it.
    fn meaning(&self, mut expression: &Expr) -> Option<Meaning> {
        loop {
            match expression {
                Expr::Paren(inner) => expression = &inner.expr,
                Expr::TsAs(inner) => expression = &inner.expr,
                Expr::TsSatisfies(inner) => expression = &inner.expr,
                Expr::TsNonNull(inner) => expression = &inner.expr,
                Expr::TsTypeAssertion(inner) => expression = &inner.expr,
                Expr::TsConstAssertion(inner) => expression = &inner.expr,
                Expr::Ident(name) => return self.aliases.get(&name.sym).cloned(),
                Expr::Member(member) => return self.member(member),
                Expr::OptChain(chain) => {
                    let OptChainBase::Member(member) = &*chain.base else { return None };
                    return self.member(member);
                }
                // `args` always exists, so `args ?? {}` is `args`.
                Expr::Bin(either)
                    if matches!(either.op.as_str(), "??" | "||")
                        && matches!(&*either.right, Expr::Object(empty) if empty.props.is_empty()) =>
                {
                    let left = self.meaning(&either.left)?;
                    return (left == Meaning::All).then_some(left);
                }
                _ => return None,
            }
        }
    }

    fn member(&self, member: &MemberExpr) -> Option<Meaning> {
        if self.meaning(&member.obj)? != Meaning::All {
            return None;
        }
        let name = match &member.prop {
            MemberProp::Ident(name) => name.sym.to_string(),
            MemberProp::Computed(computed) => match &*computed.expr {
                Expr::Lit(Lit::Str(name)) => name.value.as_str()?.to_owned(),
                _ => return None,
            },
            MemberProp::PrivateName(_) => return None,
        };
        Some(Meaning::Field { name, defaulted: false })
    }

    fn finish(self, source: &str) -> Parameters {
        let mut documented = doc::params(source);
        let mut open = self.open;
        let mut fields = BTreeMap::new();
        for (name, field) in self.fields {
            let param = documented.remove(&name);
            let declared_needed = match (&field.annotated, &param) {
                (Some((_, optional)), _) => !optional,
                (None, Some(param)) => !param.optional && param.schema.get("type").is_some(),
                (None, None) => false,
            };
            let required = (field.needed && !field.unclear)
                || (declared_needed && !field.tolerated && !field.unclear);
            let described =
                param.as_ref().and_then(|param| param.schema.get("description").cloned());
            let inferred = if field.unclear { json!({}) } else { field.kinds.schema() };
            let choices = [
                field.annotated.map(|(schema, _)| schema),
                param.map(|param| without_description(param.schema)),
            ];
            let chosen = choices.into_iter().flatten().find(|schema| *schema != json!({}));
            let mut schema = chosen.unwrap_or(inferred);
            if let (Some(text), Some(schema)) = (described, schema.as_object_mut()) {
                schema.insert("description".into(), text);
            }
            fields.insert(name, Parameter { required, schema });
        }
        // A documented field without a visible use may be used where `args` is used as a whole.
        if open {
            for (name, param) in documented {
                fields.insert(name, Parameter { required: false, schema: param.schema });
            }
        }
        if fields.len() > FIELD_LIMIT {
            (fields, open) = (BTreeMap::new(), true);
        }
        Parameters { open, catches: self.catches, fields }
    }
}

fn without_description(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("description");
    }
    schema
}

/// Finds the names that mean `args` or a field of it.
struct Aliases<'u>(&'u mut Uses);

impl Visit for Aliases<'_> {
    fn visit_var_declarator(&mut self, node: &VarDeclarator) {
        if let Some(init) = &node.init
            && let Some(meaning) = self.0.meaning(init)
        {
            self.bind(&node.name, &meaning);
        }
        node.visit_children_with(self);
    }
}

impl Aliases<'_> {
    fn bind(&mut self, pattern: &Pat, meaning: &Meaning) {
        match (pattern, meaning) {
            (Pat::Ident(name), _) => self.name(&name.id.sym, meaning.clone()),
            (Pat::Object(pattern), Meaning::All) => {
                for prop in &pattern.props {
                    let Some((name, bound, defaulted)) = destructured(prop) else { continue };
                    if let Some(bound) = bound {
                        self.name(bound, Meaning::Field { name, defaulted });
                    }
                }
            }
            _ => {}
        }
    }

    fn name(&mut self, name: &Atom, meaning: Meaning) {
        if self.0.is_constant(name) {
            self.0.aliases.insert(name.clone(), meaning);
        }
    }
}

/// Returns the field that a property of a pattern reads, the variable that it binds if any, and whether it has a
/// default.
fn destructured(prop: &ObjectPatProp) -> Option<(String, Option<&Atom>, bool)> {
    match prop {
        ObjectPatProp::Assign(assign) => {
            let name = &assign.key.id.sym;
            Some((name.to_string(), Some(name), assign.value.is_some()))
        }
        ObjectPatProp::KeyValue(pair) => {
            let name = match &pair.key {
                PropName::Ident(name) => name.sym.to_string(),
                PropName::Str(name) => name.value.as_str()?.to_owned(),
                _ => return None,
            };
            match &*pair.value {
                Pat::Ident(bound) => Some((name, Some(&bound.id.sym), false)),
                Pat::Assign(assign) => match &*assign.left {
                    Pat::Ident(bound) => Some((name, Some(&bound.id.sym), true)),
                    _ => Some((name, None, true)),
                },
                _ => Some((name, None, false)),
            }
        }
        ObjectPatProp::Rest(_) => None,
    }
}
