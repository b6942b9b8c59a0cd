//! Generates `docs/builtins.md` from the tables. `PML_TEST_BUILTINS=write` writes the file.

mod rules;

use std::fmt::Write as _;

use self::rules::{OTHERS, RULES, Rule};
use super::{Calls, FOLLOWED, Gives, METHODS, Method, OPAQUE, PURE, Takes, is_pure};
use crate::Limits;
use crate::structure::lower::lower;
use crate::structure::solve::solve;

/// Prefixes of functions that are all pure.
const ALL_PURE: &[&str] = &["Math.", "Number."];

const INTRO: &str = "\
# Built-in functions in a plan

<!-- A test writes this page from `analysis/src/structure/builtins.rs`: see CONTRIBUTING.md. -->

[A plan](plans.md#what-a-plan-promises) follows the functions of the JavaScript engine by the rules on this page. Each
rule states what the result of a call is computed from, what the call changes, and which functions of the program it
calls.

- **Items** are the items of an array, a map, a set or an iterator, or the characters of a string. Each item also
  depends on what decides how many items there are.
- **Everything given** is everything reachable from the arguments and the receiver of a method.
- **Methods are recognized by name**, on arrays, maps, strings, dates and results of tools alike. A method that the
  program itself defines on an object is followed as a function of the program.
- **Methods and functions that only compute can fail**, depending on everything given. If the program catches the
  failure, everything given decides what happens then.
- **Conversion to a string or a number** calls a `toString`, `valueOf` or `Symbol.toPrimitive` that the program
  defines.
- **A callback** can be called any number of times: a tool that it calls is `may, many`, and decided by what decides
  how many items there are.
- **The clock and random numbers** (`Date.now`, `Math.random`, `crypto.randomUUID`) depend on nothing.
- **Everything else** is [unknown code](#everything-else).

Assigning to a built-in object, as in `Array.prototype.map = …`, makes the whole plan incomplete.
";

const ELSE: &str = "\
Any other function of the engine, and any name that neither the program nor this page defines, is unknown code.
Everything that was ever passed to unknown code, and everything reachable from there, is one pool:

- the result of unknown code depends on everything in the pool;
- it may change every object in the pool;
- it may call every function in the pool, at any time, any number of times, with anything in the pool;
- it may fail, depending on everything in the pool.

If `mcp`, a namespace or a tool gets into the pool, the plan is incomplete. The same applies to `eval`, `Function` and
`constructor`.

";

#[test]
fn docs_builtins_is_up_to_date() {
    let page = page();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/builtins.md");
    if std::env::var("PML_TEST_BUILTINS").is_ok_and(|how| how == "write") {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let stored = std::fs::read_to_string(path).expect("the page exists");
    let lines = page.lines().zip(stored.lines());
    let differs = lines.filter(|(new, old)| new != old).map(|(new, _)| new).next();
    assert!(
        page == stored,
        "docs/builtins.md differs from the tables; PML_TEST_BUILTINS=write updates it. First line: {differs:?}"
    );
}

/// The result of each function on the page depends on its own arguments only.
#[test]
fn every_documented_function_is_followed() {
    let of_methods = METHODS.iter().flat_map(|(names, _)| *names);
    let calls = of_methods
        .map(|name| format!("'x'.{name}()"))
        .chain(PURE.iter().map(|name| format!("{name}('x')")))
        .chain(ALL_PURE.iter().map(|start| format!("{start}x('x')")))
        .chain(["console.log('x')".to_owned()])
        .chain(OPAQUE.iter().map(|name| format!("new {name}('x')")))
        .chain(RULES.iter().flat_map(|rule| rule.names.iter().map(|name| rule.call(name))));
    let lost: Vec<String> = calls.filter(|call| !is_followed(call)).collect();
    assert!(lost.is_empty(), "unknown code: {lost:#?}");
    for start in ALL_PURE {
        assert!(is_pure(&format!("{start}x")), "{start}");
    }
}

#[test]
fn every_followed_function_is_documented() {
    assert!(!is_followed("madeUp('x')") && !is_followed("'x'.madeUp()"), "unknown code is found");
    let is_described = |name: &str| {
        let name = name.strip_prefix("new ").unwrap_or(name);
        is_pure(name)
            || super::is_opaque(name)
            || super::method(name).is_some()
            || RULES.iter().any(|rule| rule.names.contains(&name))
    };
    for (name, call) in OTHERS {
        assert!(is_described(name) || !is_followed(call), "no row documents `{name}`");
    }
    for name in FOLLOWED {
        let other = OTHERS.iter().any(|(other, _)| other.rsplit('.').next() == Some(name));
        assert!(is_described(name) || other, "no row documents `{name}`");
    }
}

/// Returns whether a call is not unknown code, whose result would depend on the `secret` in the pool.
fn is_followed(call: &str) -> bool {
    let source = format!(
        "const secret = await mcp.probe.one({{}}); madeUp(secret);\n\
         const given = {call};\n\
         await mcp.probe.two({{ given }});"
    );
    let limits = Limits::default();
    let parsed = crate::parse::parse(&source, &limits).expect("a probe can be parsed");
    let core = lower(parsed.function().expect("a program is a function"));
    let solved = solve(&core, &limits).expect("it is not refused");
    let two = solved.tasks.iter().find(|task| task.tool.action() == "two");
    // The second call is missing if the first one always fails.
    two.is_some_and(|two| !solved.domain.sources.has_tasks(two.data))
}

impl Rule {
    fn call(&self, name: &str) -> String {
        self.call.replace("NAME", name)
    }

    fn row(&self) -> Row {
        let names = self.names.iter().map(|name| self.shown.replace("NAME", name)).collect();
        Row {
            names,
            result: self.result.into(),
            changes: self.changes.into(),
            calls: self.calls.into(),
        }
    }
}

/// A row of the page.
struct Row {
    names: Vec<String>,
    result: String,
    changes: String,
    calls: String,
}

fn page() -> String {
    let calls = |method: &Method| method.calls != Calls::Never;
    let changes = |method: &Method| method.moves || method.takes != Takes::Nothing;
    let of = |wanted: &dyn Fn(&Method) -> bool| -> Vec<Row> {
        let rows = METHODS.iter().filter(|(_, method)| wanted(method));
        rows.map(|(names, method)| of_method(names, method)).collect()
    };
    let mut page = INTRO.to_owned();
    section(&mut page, "Methods that call a function", of(&calls));
    let changing = of(&|method| !calls(method) && changes(method));
    section(&mut page, "Methods that change their receiver", changing);
    page += "\n`test` and `exec` change nothing if called on a regular expression literal without the flags `g` and `y`.\n";
    let reading = of(&|method| !calls(method) && !changes(method));
    section(&mut page, "Methods that only read", reading);
    section(&mut page, "Functions that only compute", computing());
    let rules = RULES.iter().map(Rule::row).collect();
    section(&mut page, "Objects, lists, promises and timers", rules);
    page += "\n## Everything else\n\n";
    page += ELSE;
    let unknown = OTHERS.iter().filter(|(_, call)| !is_followed(call));
    let unknown: Vec<String> = unknown.map(|(name, _)| (*name).to_owned()).collect();
    let _ = writeln!(page, "Unknown code includes: {}.", listed(&unknown));
    page
}

fn section(page: &mut String, title: &str, rows: Vec<Row>) {
    let _ = write!(page, "\n## {title}\n\n| function | result | changes | calls |\n");
    *page += "|---|---|---|---|\n";
    for Row { names, result, changes, calls } in rows {
        let _ = writeln!(page, "| {} | {result} | {changes} | {calls} |", listed(&names));
    }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn computing() -> Vec<Row> {
    let row = |names: Vec<String>, result: &str| Row {
        names,
        result: result.into(),
        changes: "nothing".into(),
        calls: "nothing".into(),
    };
    let pure = PURE.iter().map(|name| (*name).to_owned());
    let all = ALL_PURE.iter().map(|start| format!("{start}…"));
    let opaque = OPAQUE.iter().map(|name| format!("new {name}"));
    vec![
        row(pure.chain(all).collect(), "everything given"),
        row(vec!["console.…".into()], "`undefined`"),
        row(opaque.collect(), "an object that holds everything given"),
    ]
}

fn of_method(names: &[&str], method: &Method) -> Row {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Row { names, result: result(method), changes: changes(method), calls: calls(method).into() }
}

fn result(method: &Method) -> String {
    let all = "everything given";
    match (method.gives, method.calls) {
        (Gives::Undefined, _) => "`undefined`".into(),
        (Gives::Computed, Calls::Each | Calls::Until) => {
            "how many items there are, and what the calls return".into()
        }
        (Gives::Computed, Calls::Never) => all.into(),
        (Gives::Computed, _) => format!("{all}, and what the calls return"),
        (Gives::Data, _) => format!("data from {all}"),
        (Gives::Texts, _) => format!("a list of strings from {all}"),
        (Gives::Itself, _) => "the receiver".into(),
        (Gives::Part, Calls::Never) => "one of the items, chosen by the arguments".into(),
        (Gives::Part, _) => "one of the items, chosen by what the calls return".into(),
        (Gives::Parts, Calls::Never) => {
            "a list of the items, chosen and extended by the arguments; for a string, a string"
                .into()
        }
        (Gives::Parts, _) => {
            "a list of the items, chosen and ordered by what the calls return".into()
        }
        (Gives::Pairs, _) => "a list of pairs of a key and an item".into(),
        (Gives::Keys, _) => "a list of the keys".into(),
        (Gives::Mapped, _) => "a list of what the calls return".into(),
        (Gives::Flat, _) => "a list of the items of what the calls return".into(),
        (Gives::Folded, _) => "what the calls return".into(),
    }
}

fn changes(method: &Method) -> String {
    match method.takes {
        Takes::Nothing if !method.moves => "nothing".into(),
        Takes::Nothing => "its contents".into(),
        Takes::All => "its contents: the arguments are added".into(),
        Takes::From(place) => {
            format!("its contents: the arguments from number {} on are added", place + 1)
        }
        Takes::Pair => "its contents: the second argument is stored under the first".into(),
    }
}

fn calls(method: &Method) -> &'static str {
    match method.calls {
        Calls::Never => "nothing",
        Calls::Each => "the first argument, for each item",
        Calls::Until => "the first argument, for each item until its result is decisive",
        Calls::Fold => "the first argument, for each item, with the result of the previous call",
        Calls::Order => {
            "the first argument, if it is a function, any number of times with two items"
        }
        Calls::Match => "the second argument, if it is a function, for each match",
    }
}
