//! `try`, `catch` and `finally`.

use swc_ecma_ast::TryStmt;

use super::Builder;
use super::control::{Exit, Writes};
use super::finish::RoundKind;
use super::scope::{ScopeKind, pattern_names};
use super::value::{Deps, Value};
use crate::parse;

impl<'a> Builder<'a> {
    pub(super) fn attempt(&mut self, attempt: &'a TryStmt) -> Exit {
        let word = (parse::start(attempt.span), parse::start(attempt.span) + 3);
        let kind = RoundKind::Decision { test: word, deps: Deps::default() };
        self.node(kind, |builder| {
            #[cfg(test)]
            if super::fault::is(super::fault::Fault::Finally) {
                return builder.try_and_catch(attempt);
            }
            let Some(last) = &attempt.finalizer else {
                return builder.try_and_catch(attempt);
            };
            let mut exit = Exit::default();
            builder.region(|builder| {
                exit = builder.try_and_catch(attempt);
                Deps::default()
            });
            let last = builder.way("finally", |b| b.block(last));
            exit.always |= last.always;
            exit.add(&last);
            exit.settle()
        })
    }

    fn try_and_catch(&mut self, attempt: &'a TryStmt) -> Exit {
        let first_task = self.tasks.len();
        let mut tried = Exit::default();
        let (left_with, thrown) = self.catching(|builder| {
            builder.collect(|builder| {
                tried = builder.way("try", |b| b.block(&attempt.block));
                Deps::default()
            })
        });
        let value = self.caught_value();
        #[cfg(test)]
        let left_with = super::fault::none_if(super::fault::Fault::WritesBeforeThrow, left_with);
        let Some(handler) = &attempt.handler else {
            self.throw_on(&thrown, &value);
            return tried;
        };
        // The handler runs when something in the block fails: it waits for the
        // block's calls.
        let mut failing = Deps::default();
        for task in self.tasks.get(first_task..).unwrap_or_default() {
            failing.add(&Deps::one(task.site));
        }
        // And when the block throws by itself, which others may decide.
        if let Some(deps) = &thrown {
            failing.add(deps);
        }
        let scope = self.scope_at(handler.span.lo.0, ScopeKind::Params, |names| {
            if let Some(param) = &handler.param {
                pattern_names(param, false, names);
            }
        });
        let ((caught, writes), thrown_on) = self.catching(|builder| {
            builder.branch(|builder| {
                for (binding, value) in left_with {
                    builder.set(binding, Some(value));
                }
                builder.within(scope, |builder| {
                    builder.under(&failing, true, false, |builder| {
                        if let Some(param) = &handler.param {
                            let given = failing.clone().and(&value);
                            builder.bind(param, Value::computed(given));
                        }
                        builder.way("catch", |b| b.block(&handler.body))
                    })
                })
            })
        });
        let value_on = self.caught_value();
        if caught.only_throws() {
            // It is as if there were no `try`.
            self.throw_on(&thrown, &value.and(&value_on));
            return tried;
        }
        self.throw_on(&thrown_on, &value_on);
        match (tried.always, caught.always) {
            (_, true) => {}
            (true, false) => self.merge(vec![writes], &failing),
            (false, false) => self.merge(vec![Writes::default(), writes], &failing),
        }
        let mut exit = tried.clone();
        exit.throws = false;
        exit = exit.settle();
        exit.always = tried.always && caught.always;
        if caught.may() {
            exit.add(&caught);
            exit.deps.add(&failing);
        }
        exit.settle()
    }
}
