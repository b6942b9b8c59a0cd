//! What methods of lists give back: one item, some items, or nothing of them.

use super::Builder;
use super::call::Given;
use super::value::{Deps, Form, Value};

/// What a method of arrays, or of what a generator makes, does with the items.
enum Gives {
    /// It keeps them to itself, or hands them only to a function that was followed.
    Nothing,
    /// It gives any one of them, or something else.
    Item,
    /// It gives a list of any of them.
    Items,
    /// It gives a list of pairs: a place, and an item.
    Entries,
    /// It may give them to anybody.
    Anything,
}

fn gives(method: &str) -> Gives {
    match method {
        "includes" | "indexOf" | "lastIndexOf" | "keys" | "forEach" | "some" | "every"
        | "findIndex" | "findLastIndex" | "map" | "flatMap" | "reduce" | "reduceRight" => {
            Gives::Nothing
        }
        "find" | "findLast" | "at" | "pop" | "shift" => Gives::Item,
        "filter" | "slice" | "concat" | "reverse" | "toReversed" | "splice" | "values" => {
            Gives::Items
        }
        "entries" => Gives::Entries,
        _ => Gives::Anything,
    }
}

impl Builder<'_> {
    /// Returns what a method of a list gives, when it is called with arguments that
    /// were followed and would give `result` of a list without tools.
    pub(super) fn given_by_list(&mut self, list: &Value, method: &str, result: Value) -> Value {
        if !list.is_loaded() {
            return self.given_by_table(list, method, result);
        }
        match gives(method) {
            Gives::Nothing => result,
            Gives::Item => {
                let item = self.item(list);
                self.join(&item, &result).loosened()
            }
            Gives::Items => {
                let item = self.item(list);
                Value::items(item).with_deps(&result.all_deps()).loosened()
            }
            Gives::Entries => {
                let item = self.item(list);
                let pair = Value::array(vec![Value::computed(Deps::default()), item]);
                Value::items(pair).with_deps(&result.all_deps()).loosened()
            }
            Gives::Anything => {
                self.escape_all_but_tools(list, "is in a list that is handed on");
                result
            }
        }
    }

    fn given_by_table(&mut self, list: &Value, method: &str, result: Value) -> Value {
        match gives(method) {
            Gives::Nothing => result,
            Gives::Items if list.tables.is_some() && method != "concat" => {
                let item = self.row(list, 0);
                Value::items(item).with_deps(&result.all_deps()).of_tables(list)
            }
            Gives::Entries if list.tables.is_some() => {
                let pair = self.pair(list);
                Value::items(pair).with_deps(&result.all_deps()).of_tables(list)
            }
            _ => {
                if list.parts().any(Value::is_container) {
                    self.stir(list);
                }
                result
            }
        }
    }

    /// Notes that a function may be given a whole list, where it has more parameters
    /// than `unseen`: those that are given something else.
    pub(super) fn may_see_list(&mut self, list: &Value, given: &Given, unseen: usize) {
        if !list.is_list() || !list.is_loaded() {
            return;
        }
        let sees = match given.values.first() {
            Some(callee) if callee.form == Form::Function && callee.caps().is_empty() => {
                callee.funcs().iter().any(|func| {
                    let func = &self.funcs[*func as usize];
                    func.reads_arguments || func.body.may_be_given(unseen)
                })
            }
            _ => true,
        };
        if sees {
            self.escape_all_but_tools(list, "is in a list that a function is given");
        }
    }
}
