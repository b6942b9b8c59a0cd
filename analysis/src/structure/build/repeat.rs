//! Loops.

use swc_common::Spanned;
use swc_ecma_ast::{Expr, ForHead, Lit, Stmt};

use super::Builder;
use super::builtin::names_of;
use super::control::Exit;
use super::expr::{bare, bounds};
use super::finish::RoundKind;
use super::path::{Path, Step};
use super::promise::Use;
use super::rows::is_made_anew;
use super::scope::{ScopeKind, head_names};
use super::value::{Deps, Value};

/// What a loop goes over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Iteration {
    /// `for … of`
    Items,
    /// `for await … of`
    Awaited,
    /// `for … in`
    Names,
}

impl<'a> Builder<'a> {
    /// Follows `while`, `do … while` and `for (;;)`.
    pub(super) fn repeat(
        &mut self,
        statement: &'a Stmt,
        test: Option<&'a Expr>,
        test_first: bool,
        update: Option<&'a Expr>,
        body: &'a Stmt,
    ) -> Exit {
        #[cfg(test)]
        let test = test.filter(|_| !super::fault::is(super::fault::Fault::LoopTests));
        #[cfg(test)]
        let update = update.filter(|_| !super::fault::is(super::fault::Fault::LoopUpdates));
        let mut exit = Exit::default();
        let over = bounds(test.map_or(statement.span(), Spanned::span));
        // `while (true)` is entered for certain.
        let endless =
            test.is_none_or(|test| matches!(bare(test), Expr::Lit(Lit::Bool(b)) if b.value));
        let node = self.add_node(RoundKind::Loop { over, deps: Deps::default() });
        let (parent, branch) = (self.parent.replace(node), self.branch.take());
        let key = statement.span().lo.0;
        let ends = self.framed_loop(key, |builder, carried| {
            let mut ends = Deps::default();
            builder.looped(key, |builder| {
                let mut deps = Deps::default();
                if test_first && let Some(test) = test {
                    let value =
                        builder.way("test", |b| b.under(carried, false, true, |b| b.expr(test)));
                    builder.takes(&value, Use::Condition);
                    deps = value.all_deps();
                }
                deps.add(carried);
                let jumped =
                    builder.way("body", |b| b.under(&deps, false, true, |b| b.statement(body)));
                let mut rest = carried.clone();
                if jumped.may() {
                    rest.add(&jumped.deps);
                }
                if let Some(update) = update {
                    let _ = builder
                        .way("update", |b| b.under(&deps, jumped.may(), true, |b| b.expr(update)));
                }
                if !test_first && let Some(test) = test {
                    let value = builder
                        .way("test", |b| b.under(&rest, jumped.may(), true, |b| b.expr(test)));
                    builder.takes(&value, Use::Condition);
                    deps = value.all_deps();
                    builder.ends_loop(&deps);
                }
                exit.add(&jumped);
                exit.always = jumped.always && endless && !jumped.breaks && !jumped.continues;
                builder.loop_deps(node, deps.clone());
                ends = deps.clone();
                deps.and(&rest)
            });
            ends
        });
        self.loop_deps(node, ends.clone());
        exit.deps = ends;
        (self.parent, self.branch) = (parent, branch);
        (exit.breaks, exit.continues) = (false, false);
        exit.settle()
    }

    /// Follows `for … of` and `for … in`.
    pub(super) fn iterate(
        &mut self,
        statement: &'a Stmt,
        head: &'a ForHead,
        right: &'a Expr,
        body: &'a Stmt,
        kind: Iteration,
    ) -> Exit {
        let scope = self.scope_at(statement.span().lo.0, ScopeKind::Head, |names| {
            if let ForHead::VarDecl(declared) = head {
                head_names(declared, names);
            }
        });
        let mut exit = Exit::default();
        let over = match kind {
            Iteration::Items | Iteration::Names => self.looked_at(right),
            Iteration::Awaited => self.expr(right),
        };
        self.takes(&over, Use::List);
        let deps = over.all_deps();
        let item = if kind == Iteration::Items {
            self.row(&over, body.span().lo.0)
        } else if kind == Iteration::Awaited {
            // The values may come from an iterator of the program's own.
            let mut item = self.item(&over).loosened();
            self.after_await(&mut item);
            item
        } else {
            let leads = !over.caps().is_empty();
            if leads {
                self.escape(&over, "is iterated");
            }
            match names_of(&over) {
                Some(names) => self.item(&Value::array(names)).with_deps(&deps),
                None => Value::computed(deps.clone()),
            }
        };
        let key = statement.span().lo.0;
        let kind = RoundKind::Loop { over: bounds(right.span()), deps: deps.clone() };
        let node = self.nodes.len() as u32;
        let walk = |builder: &mut Self, carried: &Deps| {
            let begin = deps.clone().and(carried);
            builder.within(scope, |builder| {
                builder.looped(key, |builder| {
                    builder.way("body", |builder| {
                        builder.under(&begin, false, true, |builder| {
                            match head {
                                ForHead::VarDecl(declared) => {
                                    for declarator in &declared.decls {
                                        let part = Path::of(Step::Any);
                                        builder.alias_pattern(&declarator.name, right, &part);
                                        let mut item = item.clone();
                                        item.rows =
                                            item.rows.filter(|_| is_made_anew(declared.kind));
                                        builder.bind(&declarator.name, item);
                                    }
                                }
                                ForHead::Pat(pattern) => {
                                    let mut item = item.clone();
                                    item.rows = None;
                                    builder.bind(pattern, item);
                                }
                                ForHead::UsingDecl(_) => {
                                    builder.stir(&item);
                                    builder.escape(&item, "is declared by `using`");
                                }
                            }
                            exit.add(&builder.statement(body));
                        });
                    });
                    begin
                });
            });
            deps.clone()
        };
        let ends = self.node(kind, |builder| builder.framed_loop(key, walk));
        self.loop_deps(node, ends.clone());
        exit.deps = ends;
        (exit.breaks, exit.continues) = (false, false);
        exit.settle()
    }
}
