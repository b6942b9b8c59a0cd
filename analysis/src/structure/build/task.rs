//! Calls of tools.

use swc_atoms::Atom;

use protocol::ToolId;

use super::Builder;
use super::call::Given;
use super::finish::{RoundKind, RoundTask};
use super::promise::Use;
use super::value::{Deps, Form, SiteId, Value};
use crate::diagnostic::Code;

impl Builder<'_> {
    /// Notes the call of a tool.
    pub(super) fn task(&mut self, namespace: &Atom, action: &Atom, given: &Given) -> Value {
        for value in given.values.iter().chain(&given.rest) {
            self.takes_all(value, Use::Argument);
        }
        let mut arguments: Vec<(Atom, Value)> = Vec::new();
        let mut whole = Deps::default();
        match (given.values.first(), &given.rest) {
            (Some(value), _) => match &value.form {
                Form::Object { fields, open } if !value.partial => {
                    whole = value.deps.clone();
                    arguments.reserve(fields.len());
                    for (name, field) in fields.iter() {
                        let mut field = field.clone();
                        field.shared |= value.shared;
                        field.loosen(value.shared);
                        arguments.push((name.clone(), field));
                    }
                    if *open {
                        let mut rest = Value::computed(value.all_deps());
                        rest.span = value.span;
                        arguments.push(("*".into(), rest));
                    }
                }
                _ => arguments.push(("*".into(), value.clone())),
            },
            (None, Some(rest)) => arguments.push(("*".into(), rest.clone())),
            (None, None) => {}
        }
        self.add_task(namespace, action, arguments, whole, given.deps())
    }

    fn add_task(
        &mut self,
        namespace: &Atom,
        action: &Atom,
        arguments: Vec<(Atom, Value)>,
        whole: Deps,
        deps: Deps,
    ) -> Value {
        let Ok(tool) = ToolId::from_call(namespace, action) else {
            return Value::computed(deps);
        };
        if self.tasks.len() >= self.limits.tasks {
            let message = format!(
                "the program has more than {} calls of tools; use a loop",
                self.limits.tasks
            );
            self.refuse(Code::TooComplex, &message);
            return Value::never();
        }
        let next = self.sites.len() as SiteId;
        let site = (self.at, namespace.clone(), action.clone());
        let site = *self.sites.entry(site).or_insert(next);
        self.add_node(RoundKind::Task(self.tasks.len()));
        self.has_tools();
        self.tasks.push(RoundTask {
            site,
            tool,
            at: self.at,
            arguments,
            whole,
            deps: deps.clone().and(&self.control.deps),
            decides: self.control.decides.clone(),
            data: deps,
            conditional: self.control.conditional,
            repeats: self.control.repeats,
        });
        Value::result(site).in_promise()
    }
}
