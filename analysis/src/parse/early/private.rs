//! Private names of classes.

use std::collections::{HashMap, HashSet};

use swc_common::Span;
use swc_ecma_ast::{Class, ClassMember, Key, MethodKind, PrivateName};

/// The enclosing classes, the innermost last.
#[derive(Default)]
pub(super) struct Private(Vec<Opened>);

#[derive(Default)]
struct Opened {
    declared: HashSet<String>,
    used: Vec<(String, Span)>,
}

/// The kind of a private name, which decides whether another one may share it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    accessor: Option<MethodKind>,
    is_static: bool,
}

impl Private {
    /// Enters a class; returns repeated declarations of a name.
    pub(super) fn open<'a>(&mut self, class: &'a Class) -> Vec<&'a PrivateName> {
        let mut kinds: HashMap<&str, Vec<Kind>> = HashMap::new();
        let mut repeated = Vec::new();
        for member in &class.body {
            let (name, accessor, is_static) = match member {
                ClassMember::PrivateProp(field) => (&field.key, None, field.is_static),
                ClassMember::PrivateMethod(method) if method.function.body.is_none() => continue,
                ClassMember::PrivateMethod(method) => match method.kind {
                    MethodKind::Method => (&method.key, None, method.is_static),
                    kind => (&method.key, Some(kind), method.is_static),
                },
                ClassMember::AutoAccessor(field) => match &field.key {
                    Key::Private(key) => (key, None, field.is_static),
                    Key::Public(_) => continue,
                },
                _ => continue,
            };
            let before = kinds.entry(&*name.name).or_default();
            // A getter and a setter may share a name.
            let pairs = |other: &Kind| {
                accessor.is_some()
                    && other.accessor.is_some()
                    && other.accessor != accessor
                    && other.is_static == is_static
            };
            if !before.iter().all(pairs) {
                repeated.push(name);
            }
            before.push(Kind { accessor, is_static });
        }
        let declared = kinds.into_keys().map(str::to_owned).collect();
        self.0.push(Opened { declared, used: Vec::new() });
        repeated
    }

    /// Records the use of a name; returns whether it is inside a class.
    pub(super) fn used(&mut self, name: &PrivateName) -> bool {
        let Some(class) = self.0.last_mut() else { return false };
        class.used.push((name.name.to_string(), name.span));
        true
    }

    /// Leaves a class; on leaving the outermost, returns the uses of undeclared names.
    pub(super) fn close(&mut self) -> Vec<(String, Span)> {
        let Some(class) = self.0.pop() else { return Vec::new() };
        let left = class.used.into_iter().filter(|(name, _)| !class.declared.contains(name));
        match self.0.last_mut() {
            Some(outer) => {
                outer.used.extend(left);
                Vec::new()
            }
            None => left.collect(),
        }
    }
}
