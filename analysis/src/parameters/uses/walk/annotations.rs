//! Type annotations of fields, and the patterns that destructure them.

use serde_json::{Value, json};
use swc_ecma_ast::{Expr, ObjectPatProp, OptChainBase, Pat, TsType};
use swc_ecma_visit::VisitWith;

use super::super::evidence::{Kinds, of_default};
use super::super::{Meaning, destructured};
use super::{Missing, Walk};

impl Walk<'_> {
    /// Reads the casts around an expression that means `args` or a field.
    pub(super) fn annotations(&mut self, mut expression: &Expr) {
        loop {
            let (inner, kind) = match expression {
                Expr::Paren(inner) => (&inner.expr, None),
                Expr::TsNonNull(inner) => (&inner.expr, None),
                Expr::TsConstAssertion(inner) => (&inner.expr, None),
                Expr::TsAs(inner) => (&inner.expr, Some(&inner.type_ann)),
                Expr::TsSatisfies(inner) => (&inner.expr, Some(&inner.type_ann)),
                Expr::TsTypeAssertion(inner) => (&inner.expr, Some(&inner.type_ann)),
                _ => break,
            };
            if let (Some(kind), Some(meaning)) = (kind, self.uses.meaning(inner)) {
                self.annotated(&meaning, kind);
            }
            expression = inner;
        }
        // `(args as Input).path` has a type for `args`.
        let object = match expression {
            Expr::Member(member) => Some(&member.obj),
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => Some(&member.obj),
                OptChainBase::Call(_) => None,
            },
            _ => None,
        };
        if let Some(object) = object {
            self.annotations(object);
        }
    }

    fn annotated(&mut self, meaning: &Meaning, kind: &TsType) {
        match meaning {
            Meaning::All => {
                let Some(members) = self.uses.named.members(kind) else { return };
                self.uses.open |= members.open;
                for member in members.fields {
                    let field = self.uses.field(&member.name);
                    field.annotated.get_or_insert((member.schema, member.optional));
                }
            }
            Meaning::Field { name, .. } => {
                let schema = self.uses.named.schema(kind);
                if schema != json!({}) {
                    // A cast gives the type, but not whether the field is required.
                    let annotation: (Value, bool) = (schema, true);
                    self.uses.field(name).annotated.get_or_insert(annotation);
                }
            }
        }
    }

    /// Follows `pattern = init`.
    pub(super) fn bound(&mut self, pattern: &Pat, meaning: &Meaning) {
        if let Some(kind) = annotation(pattern) {
            self.annotated(meaning, kind);
        }
        match (pattern, meaning) {
            (Pat::Ident(name), Meaning::All) => {
                self.uses.open |= !self.uses.aliases.contains_key(&name.id.sym);
            }
            (Pat::Object(object), Meaning::All) => {
                for prop in &object.props {
                    self.destructured(prop);
                }
            }
            (_, Meaning::All) => self.uses.open = true,
            (Pat::Ident(name), Meaning::Field { name: field, .. }) => {
                self.passed_to(field, Some(&name.id.sym));
            }
            (pattern, Meaning::Field { name, defaulted }) => {
                let kinds = matches!(pattern, Pat::Array(_)).then_some(Kinds::ITERABLE);
                self.field(name, *defaulted, Missing::Fails, kinds);
                pattern.visit_with(self);
            }
        }
    }

    /// Records that a variable gets the field. If its uses are not followed, the field counts as optional.
    fn passed_to(&mut self, field: &str, variable: Option<&swc_atoms::Atom>) {
        let followed = variable.is_some_and(|name| self.uses.aliases.contains_key(name));
        let missing = if followed { Missing::PassesOn } else { Missing::Tolerates };
        self.field(field, false, missing, None);
    }

    fn destructured(&mut self, prop: &ObjectPatProp) {
        let Some((name, variable, defaulted)) = destructured(prop) else {
            self.uses.open = true;
            prop.visit_with(self);
            return;
        };
        let default = match prop {
            ObjectPatProp::Assign(assign) => assign.value.as_deref(),
            ObjectPatProp::KeyValue(pair) => match &*pair.value {
                Pat::Assign(assign) => Some(&*assign.right),
                _ => None,
            },
            ObjectPatProp::Rest(_) => None,
        };
        let kinds = default.and_then(of_default);
        if defaulted {
            self.field(&name, true, Missing::Tolerates, kinds);
        } else if variable.is_some() {
            self.passed_to(&name, variable);
        } else {
            // A pattern within the pattern.
            self.field(&name, false, Missing::Fails, None);
        }
        if let Some(default) = default {
            self.conditionally(|walk| default.visit_with(walk));
        }
        if let (ObjectPatProp::KeyValue(pair), None) = (prop, variable) {
            pair.value.visit_with(self);
        }
    }
}

fn annotation(pattern: &Pat) -> Option<&TsType> {
    let kind = match pattern {
        Pat::Ident(name) => &name.type_ann,
        Pat::Object(object) => &object.type_ann,
        Pat::Array(array) => &array.type_ann,
        _ => return None,
    };
    kind.as_ref().map(|kind| &*kind.type_ann)
}
