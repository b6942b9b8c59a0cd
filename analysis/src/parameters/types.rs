//! Converts TypeScript types to JSON Schema.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use swc_ecma_ast::{
    Expr, Lit, TsEntityName, TsInterfaceDecl, TsKeywordTypeKind, TsLit, TsType, TsTypeAliasDecl,
    TsTypeElement, TsTypeRef, TsUnionOrIntersectionType,
};
use swc_ecma_visit::{Visit, VisitWith};

/// The maximum depth to which types are read; deeper types accept anything.
const DEPTH: usize = 8;

/// The maximum number of types read in total; types that refer to each other can expand exponentially.
const BUDGET: usize = 2_000;

/// The named types of a program.
pub(super) struct Named {
    types: BTreeMap<String, Option<Body>>,
    left: Cell<usize>,
}

enum Body {
    Members(Vec<TsTypeElement>),
    Type(Box<TsType>),
}

/// A field of an object type.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) optional: bool,
    pub(super) schema: Value,
}

/// The fields of an object type, and whether it may have others.
pub(super) struct Members {
    pub(super) fields: Vec<Member>,
    pub(super) open: bool,
}

impl Default for Named {
    fn default() -> Self {
        Self { types: BTreeMap::new(), left: Cell::new(BUDGET) }
    }
}

impl Named {
    /// Reads the types that a tree declares.
    pub(super) fn of(tree: &impl VisitWith<Self>) -> Self {
        let mut named = Self::default();
        tree.visit_with(&mut named);
        named
    }

    fn add(&mut self, name: &str, body: Option<Body>) {
        // Scopes are not tracked here, so two types of the same name are ambiguous.
        self.types.entry(name.to_owned()).and_modify(|known| *known = None).or_insert(body);
    }

    /// Returns whether another type may be read, and charges the budget for it.
    fn may_read(&self, depth: usize) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        depth <= DEPTH && left > 0
    }

    /// Returns the fields of an object type, or `None` for other types and those that are not supported.
    pub(super) fn members(&self, kind: &TsType) -> Option<Members> {
        self.members_within(kind, 0)
    }

    fn members_within(&self, kind: &TsType, depth: usize) -> Option<Members> {
        if !self.may_read(depth) {
            return None;
        }
        match kind {
            TsType::TsParenthesizedType(inner) => self.members_within(&inner.type_ann, depth + 1),
            TsType::TsTypeLit(literal) => self.fields(&literal.members, depth),
            TsType::TsTypeRef(named) => {
                let (name, given) = reference(named)?;
                match (name, given) {
                    ("Readonly" | "Required", [inner]) => self.members_within(inner, depth + 1),
                    ("Partial", [inner]) => {
                        let mut members = self.members_within(inner, depth + 1)?;
                        members.fields.iter_mut().for_each(|field| field.optional = true);
                        Some(members)
                    }
                    (name, []) => match self.types.get(name)?.as_ref()? {
                        Body::Members(members) => self.fields(members, depth),
                        Body::Type(kind) => self.members_within(kind, depth + 1),
                    },
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn fields(&self, members: &[TsTypeElement], depth: usize) -> Option<Members> {
        let mut out = Members { fields: Vec::new(), open: false };
        for member in members {
            match member {
                TsTypeElement::TsPropertySignature(field) if !field.computed => {
                    let name = match &*field.key {
                        Expr::Ident(name) => name.sym.to_string(),
                        Expr::Lit(Lit::Str(name)) => name.value.as_str()?.to_owned(),
                        _ => return None,
                    };
                    let kind = field.type_ann.as_ref().map(|kind| &*kind.type_ann);
                    let (schema, absent) =
                        kind.map_or((json!({}), true), |kind| self.schema_or_none(kind, depth + 1));
                    out.fields.push(Member { name, optional: field.optional || absent, schema });
                }
                _ => out.open = true,
            }
        }
        Some(out)
    }

    /// Returns the schema of a type, or `{}` if the type is not supported.
    pub(super) fn schema(&self, kind: &TsType) -> Value {
        self.schema_or_none(kind, 0).0
    }

    /// Returns the schema, and whether `undefined` is a value of the type.
    fn schema_or_none(&self, kind: &TsType, depth: usize) -> (Value, bool) {
        let any = || (json!({}), true);
        if !self.may_read(depth) {
            return any();
        }
        let present = |schema| (schema, false);
        match kind {
            TsType::TsParenthesizedType(inner) => self.schema_or_none(&inner.type_ann, depth + 1),
            TsType::TsKeywordType(keyword) => match keyword.kind {
                TsKeywordTypeKind::TsStringKeyword => present(json!({ "type": "string" })),
                TsKeywordTypeKind::TsNumberKeyword => present(json!({ "type": "number" })),
                TsKeywordTypeKind::TsBooleanKeyword => present(json!({ "type": "boolean" })),
                TsKeywordTypeKind::TsNullKeyword => present(json!({ "type": "null" })),
                // `object` includes arrays.
                TsKeywordTypeKind::TsObjectKeyword => {
                    present(json!({ "type": ["object", "array"] }))
                }
                _ => any(),
            },
            TsType::TsArrayType(list) => {
                present(self.list(self.schema_or_none(&list.elem_type, depth + 1).0))
            }
            TsType::TsTupleType(_) => present(json!({ "type": "array" })),
            TsType::TsTypeOperator(operator) => self.schema_or_none(&operator.type_ann, depth + 1),
            TsType::TsLitType(literal) => match &literal.lit {
                TsLit::Str(text) => match text.value.as_str() {
                    Some(text) => present(json!({ "enum": [text] })),
                    None => any(),
                },
                TsLit::Number(number) => present(json!({ "enum": [whole(number.value)] })),
                TsLit::Bool(value) => present(json!({ "enum": [value.value] })),
                TsLit::Tpl(_) => present(json!({ "type": "string" })),
                TsLit::BigInt(_) => any(),
            },
            TsType::TsUnionOrIntersectionType(TsUnionOrIntersectionType::TsUnionType(union)) => {
                self.union(union.types.iter().map(|kind| &**kind), depth)
            }
            TsType::TsTypeRef(named) => match reference(named) {
                Some(("Array" | "ReadonlyArray", [item])) => {
                    present(self.list(self.schema_or_none(item, depth + 1).0))
                }
                Some(("Record", _)) => present(json!({ "type": "object" })),
                Some((name, [])) => match self.types.get(name).and_then(Option::as_ref) {
                    Some(Body::Type(kind)) => self.schema_or_none(kind, depth + 1),
                    Some(Body::Members(_)) => self.object(kind, depth),
                    None => any(),
                },
                _ => match self.members_within(kind, depth + 1) {
                    Some(_) => self.object(kind, depth),
                    None => any(),
                },
            },
            TsType::TsTypeLit(_) => self.object(kind, depth),
            _ => any(),
        }
    }

    fn list(&self, item: Value) -> Value {
        if item == json!({}) {
            return json!({ "type": "array" });
        }
        json!({ "type": "array", "items": item })
    }

    fn object(&self, kind: &TsType, depth: usize) -> (Value, bool) {
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        if let Some(members) = self.members_within(kind, depth + 1) {
            let required: Vec<&str> = members
                .fields
                .iter()
                .filter(|field| !field.optional)
                .map(|field| field.name.as_str())
                .collect();
            if !required.is_empty() {
                schema.insert("required".into(), json!(required));
            }
            let fields = members.fields.into_iter().map(|field| (field.name, field.schema));
            schema.insert("properties".into(), Value::Object(fields.collect()));
        }
        (Value::Object(schema), false)
    }

    /// Returns the schema of a union of literals, or of simple types.
    fn union<'t>(&self, kinds: impl Iterator<Item = &'t TsType>, depth: usize) -> (Value, bool) {
        let (mut literals, mut types, mut absent) = (Vec::new(), Vec::new(), false);
        for kind in kinds {
            let is_undefined = matches!(kind, TsType::TsKeywordType(keyword)
                if keyword.kind == TsKeywordTypeKind::TsUndefinedKeyword);
            if is_undefined {
                absent = true;
                continue;
            }
            let (schema, may_be_absent) = self.schema_or_none(kind, depth + 1);
            absent |= may_be_absent;
            match schema
                .as_object()
                .map(|fields| (fields.len(), fields.get("enum"), fields.get("type")))
            {
                Some((1, Some(Value::Array(values)), _)) => literals.extend(values.clone()),
                Some((1, _, Some(kind @ Value::String(_)))) => types.push(kind.clone()),
                _ => return (json!({}), absent),
            }
        }
        types.dedup();
        let schema = match (literals.is_empty(), types.as_slice()) {
            (false, []) => json!({ "enum": literals }),
            (true, [one]) => json!({ "type": one }),
            (true, [_, ..]) => json!({ "type": types }),
            _ => json!({}),
        };
        (schema, absent)
    }
}

/// Returns a number as JSON writes it: without a fraction where it has none.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}

fn reference(named: &TsTypeRef) -> Option<(&str, &[Box<TsType>])> {
    let TsEntityName::Ident(name) = &named.type_name else { return None };
    let given = named.type_params.as_ref().map_or(&[][..], |given| &given.params);
    Some((&name.sym, given))
}

impl Visit for Named {
    fn visit_ts_interface_decl(&mut self, node: &TsInterfaceDecl) {
        // Base interfaces are not read, so the fields of a derived one are incomplete.
        let plain = node.extends.is_empty() && node.type_params.is_none();
        let body = plain.then(|| Body::Members(node.body.body.clone()));
        self.add(&node.id.sym, body);
    }

    fn visit_ts_type_alias_decl(&mut self, node: &TsTypeAliasDecl) {
        let body = node.type_params.is_none().then(|| Body::Type(node.type_ann.clone()));
        self.add(&node.id.sym, body);
    }
}
