//! The form of patterns and assignment targets.

use swc_ecma_ast::{
    AssignTarget, AssignTargetPat, ObjectPat, ObjectPatProp, Pat, SimpleAssignTarget,
};

use super::Writer;

impl<'a> Writer<'a> {
    pub(super) fn maybe_pattern(&mut self, pattern: Option<&'a Pat>) {
        match pattern {
            Some(pattern) => self.pattern(pattern),
            None => self.absent(),
        }
    }

    pub(super) fn pattern(&mut self, pattern: &'a Pat) {
        match pattern {
            Pat::Ident(name) => self.name(&name.id.sym),
            Pat::Array(array) => self.array_pattern(&array.elems),
            Pat::Rest(rest) => self.node("rest", |writer| writer.pattern(&rest.arg)),
            Pat::Object(object) => self.object_pattern(object),
            Pat::Assign(assign) => self.node("default", |writer| {
                writer.pattern(&assign.left);
                if assign.left.is_ident() {
                    writer.named_value(&assign.right);
                } else {
                    writer.expr(&assign.right);
                }
            }),
            Pat::Expr(target) => self.expr(target),
            Pat::Invalid(_) => self.absent(),
        }
    }

    fn array_pattern(&mut self, items: &'a [Option<Pat>]) {
        self.node("array-pattern", |writer| {
            for item in items {
                writer.maybe_pattern(item.as_ref());
            }
        });
    }

    fn object_pattern(&mut self, object: &'a ObjectPat) {
        self.node("object-pattern", |writer| {
            for property in &object.props {
                match property {
                    ObjectPatProp::KeyValue(pair) => writer.node("take", |writer| {
                        writer.key(&pair.key);
                        writer.pattern(&pair.value);
                    }),
                    // `{ a }` is `{ a: a }`, of which only the second is a local name.
                    ObjectPatProp::Assign(short) => writer.node("take", |writer| {
                        let name = &*short.key.id.sym;
                        writer.property(name);
                        writer.text(name);
                        match &short.value {
                            Some(value) => writer.node("default", |writer| {
                                writer.name(name);
                                writer.named_value(value);
                            }),
                            None => writer.name(name),
                        }
                    }),
                    ObjectPatProp::Rest(rest) => {
                        writer.node("rest", |writer| writer.pattern(&rest.arg));
                    }
                }
            }
        });
    }

    pub(super) fn target(&mut self, target: &'a AssignTarget) {
        match target {
            AssignTarget::Simple(simple) => self.simple_target(simple),
            AssignTarget::Pat(AssignTargetPat::Array(array)) => self.array_pattern(&array.elems),
            AssignTarget::Pat(AssignTargetPat::Object(object)) => self.object_pattern(object),
            AssignTarget::Pat(AssignTargetPat::Invalid(_)) => self.absent(),
        }
    }

    fn simple_target(&mut self, target: &'a SimpleAssignTarget) {
        match target {
            SimpleAssignTarget::Ident(name) => self.name(&name.id.sym),
            SimpleAssignTarget::Member(member) => self.member(member),
            SimpleAssignTarget::SuperProp(member) => self.super_member(member),
            SimpleAssignTarget::Paren(inner) => self.expr(&inner.expr),
            SimpleAssignTarget::OptChain(chain) => self.chain(chain),
            SimpleAssignTarget::TsAs(cast) => self.expr(&cast.expr),
            SimpleAssignTarget::TsSatisfies(cast) => self.expr(&cast.expr),
            SimpleAssignTarget::TsNonNull(cast) => self.expr(&cast.expr),
            SimpleAssignTarget::TsTypeAssertion(cast) => self.expr(&cast.expr),
            SimpleAssignTarget::TsInstantiation(cast) => self.expr(&cast.expr),
            SimpleAssignTarget::Invalid(_) => self.absent(),
        }
    }
}
