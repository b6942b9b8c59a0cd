//! Which modules of one crate may import which, determined from the paths in its source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{COMPONENTS, CYCLES, IMPORTS_ACROSS};

/// The modules that no row of the table names.
const REST: &str = "*";

/// The modules of a crate by their path, such as `host/run`, each with the modules that it imports. The crate's root is
/// the empty path. Its imports are not checked, because it declares and re-exports everything.
type Modules = BTreeMap<String, BTreeSet<String>>;

/// The tables for one crate.
#[derive(Clone, Copy)]
struct Rules<'a> {
    components: &'a [(&'a str, &'a str, &'a [&'a str])],
    across: &'a [(&'a str, &'a str, &'a str)],
    cycles: &'a [(&'a str, &'a str)],
}

/// Determines the imports of a crate, given the text of each of its modules.
fn read(sources: &BTreeMap<String, String>) -> Modules {
    let read_one = |(path, text): (&String, &String)| {
        let tokens: TokenStream = text.parse().expect("a file that compiles is made of tokens");
        let mut paths = Vec::new();
        let module: Vec<String> = path.split('/').map(str::to_owned).collect();
        collect(&tokens.into_iter().collect::<Vec<_>>(), &module, &mut paths);
        let imports = paths.iter().map(|path| module_of(path, sources));
        (path.clone(), imports.filter(|import| import != path).collect())
    };
    sources.iter().map(read_one).collect()
}

/// Returns the module that a path refers to: its longest prefix that is a module.
fn module_of(path: &[String], sources: &BTreeMap<String, String>) -> String {
    (1..=path.len())
        .rev()
        .map(|length| path[..length].join("/"))
        .find(|path| sources.contains_key(path))
        .unwrap_or_default()
}

/// Collects the paths that begin with `crate`, `super` or `self`, relative to the crate's root.
fn collect(tokens: &[TokenTree], module: &[String], paths: &mut Vec<Vec<String>>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Ident(word) if word == "mod" => {
                // In an inline module, `super` is the module of the file.
                if let [TokenTree::Ident(name), TokenTree::Group(body), ..] = &tokens[at..] {
                    let inner = [module, &[name.to_string()]].concat();
                    collect(&body.stream().into_iter().collect::<Vec<_>>(), &inner, paths);
                    at += 2;
                }
            }
            TokenTree::Ident(word) if is_separator(&tokens[at..]) => {
                let base = match word.to_string().as_str() {
                    "crate" => Vec::new(),
                    "self" => module.to_vec(),
                    "super" => module[..module.len().saturating_sub(1)].to_vec(),
                    // Any other path refers to another crate, or to an item that this file imports or declares.
                    _ => {
                        at += 2;
                        while matches!(tokens.get(at), Some(TokenTree::Ident(_)))
                            && is_separator(&tokens[at + 1..])
                        {
                            at += 3;
                        }
                        continue;
                    }
                };
                at += follow(&tokens[at..], base, paths);
            }
            TokenTree::Group(group) => {
                collect(&group.stream().into_iter().collect::<Vec<_>>(), module, paths);
            }
            _ => {}
        }
    }
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    let colon = |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ':');
    matches!(tokens, [first, second, ..] if colon(first) && colon(second))
}

/// Parses a path after its first segment, including braces; returns its number of tokens.
fn follow(tokens: &[TokenTree], mut base: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let mut at = 0;
    while is_separator(&tokens[at..]) {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(word)) if word == "super" => drop(base.pop()),
            Some(TokenTree::Ident(word)) if word == "self" => {}
            Some(TokenTree::Ident(word)) => base.push(word.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |it: &TokenTree| matches!(it, TokenTree::Punct(it) if it.as_char() == ',');
                for one in inside.split(is_comma) {
                    if let [TokenTree::Ident(word), rest @ ..] = one {
                        let mut base = base.clone();
                        base.extend((word != "self").then(|| word.to_string()));
                        follow(rest, base, paths);
                    }
                }
                return at + 3;
            }
            _ => break,
        }
        at += 3;
    }
    paths.push(base);
    at
}

fn is_within(module: &str, component: &str) -> bool {
    module.strip_prefix(component).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the imports that the tables forbid, and the rows of the tables that match nothing.
fn forbidden<'a>(name: &str, modules: &Modules, rules: Rules<'a>) -> Vec<String> {
    let rows: Vec<_> = rules.components.iter().filter(|row| row.0 == name).collect();
    let named = |row: &&(&'a str, &'a str, &'a [&'a str])| [&[row.1], row.2].concat();
    let mut components: BTreeSet<&str> = rows.iter().flat_map(named).collect();
    components.remove(REST);
    let component_of = |module: &str| {
        let around = components.iter().filter(|component| is_within(module, component));
        around.max_by_key(|component| component.len()).copied().unwrap_or(REST)
    };
    let is_missing = |component: &&&str| !modules.keys().any(|module| is_within(module, component));
    let missing = components.iter().filter(is_missing);
    let mut found: Vec<String> =
        missing.map(|component| format!("{name}: there is no component `{component}`")).collect();
    let mut across: BTreeSet<_> = rules.across.iter().filter(|it| it.0 == name).collect();
    for (module, imports) in modules {
        let from = component_of(module);
        let Some((_, _, allowed)) = rows.iter().find(|row| row.1 == from) else { continue };
        for import in imports {
            let to = component_of(import);
            let is_excepted = across.iter().any(|it| it.1 == module && it.2 == import);
            if is_excepted {
                across.retain(|it| it.1 != module || it.2 != import);
            } else if to != from && !allowed.contains(&to) {
                found.push(format!("{name}: `{module}` must not import `{import}`"));
            }
        }
    }
    found.extend(across.iter().map(|it| format!("{name}: `{}` does not import `{}`", it.1, it.2)));
    found
}

/// Returns the folders whose modules have import cycles, with the modules of each cycle.
fn cycles(modules: &Modules) -> BTreeMap<String, BTreeSet<String>> {
    // An import is an edge between two entries of the innermost folder that contains both modules.
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, imports) in modules {
        for import in imports.iter().filter(|import| !import.is_empty()) {
            let (from, to): (Vec<_>, Vec<_>) =
                (module.split('/').collect(), import.split('/').collect());
            let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
            // A file and its folder are one module.
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let folder = folders.entry(from[..shared].join("/")).or_default();
                folder.entry((*a).to_owned()).or_default().insert((*b).to_owned());
            }
        }
    }
    folders
        .into_iter()
        .map(|(folder, mut edges)| {
            // A module that imports none of the remaining ones is in no cycle, so it is removed. Modules that remain
            // at the end are in a cycle or lead into one.
            loop {
                let left: BTreeSet<String> = edges.keys().cloned().collect();
                edges.values_mut().for_each(|to| to.retain(|one| left.contains(one)));
                let before = edges.len();
                edges.retain(|_, to| !to.is_empty());
                if edges.len() == before {
                    return (folder, left);
                }
            }
        })
        .filter(|(_, cycle)| !cycle.is_empty())
        .collect()
}

/// Returns all violations of a crate's tables.
fn faults(name: &str, modules: &Modules, rules: Rules<'_>) -> Vec<String> {
    let mut found = forbidden(name, modules, rules);
    let cycles = cycles(modules);
    let known: Vec<&str> =
        rules.cycles.iter().filter(|it| it.0 == name).map(|(_, folder)| *folder).collect();
    for (folder, cycle) in &cycles {
        if !known.contains(&folder.as_str()) {
            found.push(format!("{name}: an import cycle in `{folder}`: {cycle:?}"));
        }
    }
    for folder in known.iter().filter(|folder| !cycles.contains_key(**folder)) {
        found.push(format!("{name}: there is no import cycle in `{folder}`"));
    }
    found
}

/// Returns the text of each module of a crate, by its path.
fn sources(name: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    let mut sources = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let module = path.strip_prefix(&root).unwrap().with_extension("");
                let module = module.to_str().unwrap().to_owned();
                if !["lib", "main"].contains(&module.as_str()) {
                    sources.insert(module, std::fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    sources
}

#[test]
fn components_import_only_what_the_table_allows() {
    let rules = Rules { components: COMPONENTS, across: IMPORTS_ACROSS, cycles: CYCLES };
    let mut names: Vec<&str> = COMPONENTS.iter().map(|row| row.0).collect();
    names.dedup();
    for name in names {
        let modules = read(&sources(name));
        let edges: usize = modules.values().map(BTreeSet::len).sum();
        assert!(modules.len() > 5 && edges > modules.len(), "{name}: {modules:#?}");
        let found = faults(name, &modules, rules);
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Checks the checker: forbidden imports in every form of a path are detected.
#[test]
fn forbidden_imports_are_detected() {
    let rules = Rules {
        components: &[
            ("it", "host", &["wire", "*"]),
            ("it", "child", &["wire", "*"]),
            ("it", "*", &[]),
        ],
        across: &[],
        cycles: &[],
    };
    let base = [("host", ""), ("host/run", "use super::Own;"), ("child", ""), ("child/main", "")];
    let base = [&base[..], &[("wire", ""), ("wire/frame", ""), ("limits", "")]].concat();
    let with = |module: &str, text: &str, rules: Rules<'_>| {
        let mut sources: BTreeMap<String, String> =
            base.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        sources.insert(module.to_owned(), text.to_owned());
        faults("it", &read(&sources), rules)
    };
    for (module, text) in [
        ("host/run", "use crate::child::main::start;"),
        ("host/run", "use crate::{limits, wire::frame, child::main::{self, start}};"),
        ("host/run", "pub(crate) use super::super::child::main;"),
        ("host/run", "fn f() -> Vec<crate::child::main::Child> { Vec::new() }"),
        ("host/run", "fn f() { let _ = [crate::child::main::start()]; }"),
        ("host/run", "mod tests { use super::super::super::child::main; }"),
        ("host", "use super::child::main as other;"),
        ("host", "use self::super::child::main::*;"),
    ] {
        let expected = format!("it: `{module}` must not import `child/main`");
        assert_eq!(with(module, text, rules), [expected], "{text}");
    }
    let up = "it: `limits` must not import `wire/frame`";
    assert_eq!(with("limits", "use crate::wire::frame;", rules), [up]);
    // Paths that only look forbidden.
    for text in [
        "use crate::wire::frame; use crate::programs::limits::Limits; use super::Own; pub(crate) fn f() {}",
        "/// Like [`crate::child::main`].\nfn f() { g(\"crate::child::main\"); }",
        "mod tests { use super::*; } use other::child::main; use other::crate_::child;",
    ] {
        assert_eq!(with("host/run", text, rules), [""; 0], "{text}");
    }

    let across = Rules { across: &[("it", "host/run", "child/main")], ..rules };
    assert_eq!(with("host/run", "use crate::child::main::start;", across), [""; 0]);
    assert_eq!(with("host/run", "", across), ["it: `host/run` does not import `child/main`"]);
    let missing = Rules { components: &[("it", "guest", &[])], ..rules };
    assert_eq!(with("host/run", "", missing), ["it: there is no component `guest`"]);
}

/// Checks the checker: import cycles are detected.
#[test]
fn import_cycles_are_detected() {
    let rules = Rules { components: &[("it", "*", &[])], across: &[], cycles: &[] };
    let faults_of = |sources: &[(&str, &str)], rules: Rules<'_>| {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        faults("it", &read(&sources.iter().map(owned).collect()), rules)
    };
    let line = [("a", "use crate::b::x;"), ("b", "use crate::c;"), ("b/x", "use super::Y;")];
    assert_eq!(faults_of(&[&line[..], &[("c", "")]].concat(), rules), [""; 0]);
    let cycle = faults_of(&[&line[..], &[("c", "use crate::a;")]].concat(), rules);
    assert_eq!(cycle, [r#"it: an import cycle in ``: {"a", "b", "c"}"#]);

    let within = [("a", ""), ("a/b", "use super::c;"), ("a/c", "use crate::a::b;")];
    assert_eq!(faults_of(&within, rules), [r#"it: an import cycle in `a`: {"b", "c"}"#]);
    let known = Rules { cycles: &[("it", "a")], ..rules };
    assert_eq!(faults_of(&within, known), [""; 0]);
    assert_eq!(faults_of(&within[..2], known), ["it: there is no import cycle in `a`"]);
}
