//! NX-13: every use of `unsafe` is listed with the reason why it is sound.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A use of `unsafe`.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    /// The enclosing modules, implementations and functions.
    item: String,
    /// `block`, `fn`, `impl`, `extern`, `trait` or `attribute`.
    kind: &'static str,
    /// Counted from one.
    line: usize,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// Finds every `unsafe` in a file. It works on tokens instead of syntax, so it also finds those in macro calls.
fn uses(text: &str) -> Vec<Use> {
    let tokens: TokenStream = text.parse().expect("a file that compiles is made of tokens");
    let mut found = Vec::new();
    walk(tokens, &[], &mut found);
    found
}

fn walk(tokens: TokenStream, path: &[String], found: &mut Vec<Use>) {
    // The item whose body the next braces are, and whether its name continues.
    let mut item: Option<String> = None;
    let mut reads_name = false;
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(ident) if ident == "unsafe" => {
                let kind = match tokens.get(index + 1) {
                    Some(TokenTree::Group(group))
                        if group.delimiter() == Delimiter::Parenthesis =>
                    {
                        "attribute"
                    }
                    Some(TokenTree::Ident(next)) if next == "fn" => "fn",
                    Some(TokenTree::Ident(next)) if next == "impl" => "impl",
                    Some(TokenTree::Ident(next)) if next == "trait" => "trait",
                    Some(TokenTree::Ident(next)) if next == "extern" => "extern",
                    _ => "block",
                };
                let name = match (kind, tokens.get(index + 2)) {
                    ("fn", Some(TokenTree::Ident(name))) => Some(name.to_string()),
                    _ => None,
                };
                let place = path.iter().cloned().chain(name).collect::<Vec<_>>().join("::");
                found.push(Use { item: place, kind, line: ident.span().start().line });
            }
            TokenTree::Ident(ident) if ident == "fn" || ident == "mod" => {
                let name = tokens.get(index + 1).map(ToString::to_string).unwrap_or_default();
                // Not `fn(…)`, which is a type.
                if !name.starts_with('(') {
                    item = Some(name);
                    reads_name = false;
                }
            }
            TokenTree::Ident(ident) if ident == "impl" && item.is_none() => {
                item = Some("impl".to_owned());
                reads_name = true;
            }
            TokenTree::Ident(ident) if reads_name => {
                item = item.map(|item| format!("{item} {ident}"));
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => {
                (item, reads_name) = (None, false);
            }
            TokenTree::Group(group) => {
                let mut within = path.to_vec();
                if group.delimiter() == Delimiter::Brace {
                    within.extend(item.take());
                    reads_name = false;
                }
                walk(group.stream(), &within, found);
            }
            _ => {}
        }
    }
}

/// Returns whether there is a safety comment directly above a line. Attributes and the beginning of the same statement
/// may be in between.
fn has_reason(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let above = lines[..line - 1].iter().rev();
    // A statement and its attributes may begin some lines before.
    for line in above.take(12) {
        if line.starts_with("// SAFETY: ") || line.starts_with("/// # Safety") {
            return true;
        }
        let ends_a_statement = line.ends_with(';') || line.ends_with('}') || line.is_empty();
        if ends_a_statement && !line.starts_with("//") && !line.starts_with('#') {
            return false;
        }
    }
    false
}

/// Returns every Rust file of the workspace.
fn files() -> Vec<PathBuf> {
    let mut folders = vec![root().to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
                folders.extend(is_ours.then_some(path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// NX-13: the list and the code have the same uses of `unsafe`, and each has a safety comment.
#[test]
fn every_use_of_unsafe_is_listed_with_a_reason() {
    let mut there: BTreeMap<String, usize> = BTreeMap::new();
    let mut silent = Vec::new();
    let files = files();
    assert!(files.len() > 300, "{} files", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        if !text.contains("unsafe") {
            continue;
        }
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for found in uses(&text) {
            // The requirements of an `unsafe fn` are in its documentation or in its trait, not in a comment above.
            if found.kind != "fn" && !has_reason(&text, found.line) {
                silent.push(format!("{name}:{}: no `// SAFETY:` right above", found.line));
            }
            *there.entry(format!("{name}\t{}\t{}", found.item, found.kind)).or_default() += 1;
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
    let list = fs::read_to_string(root().join("tests/unsafe.tsv")).unwrap();
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for row in list.lines().filter(|row| !row.starts_with('#')) {
        let (use_of, reason) = row.rsplit_once('\t').expect("a row ends with its reason");
        assert!(reason.len() > 15, "{row}: that is no reason");
        *listed.entry(use_of.to_owned()).or_default() += 1;
    }
    let of = |map: &BTreeMap<String, usize>, others: &BTreeMap<String, usize>| -> Vec<String> {
        map.iter()
            .filter(|(key, count)| others.get(*key) != Some(*count))
            .map(|(key, count)| format!("{key} ({count})"))
            .collect()
    };
    let (unlisted, obsolete) = (of(&there, &listed), of(&listed, &there));
    assert!(unlisted.is_empty(), "missing in tests/unsafe.tsv: {unlisted:#?}");
    assert!(obsolete.is_empty(), "in tests/unsafe.tsv, but not in the code: {obsolete:#?}");
}

/// Checks the checker: every form of `unsafe` is detected with its item and line, and text that only looks like it is
/// not.
#[test]
fn every_form_of_unsafe_is_detected() {
    let text = r##"
mod inner {
    fn plain(call: unsafe_name, text: &str) { let _ = "unsafe {}"; /* unsafe {} */ }
    impl<T> Thing for Other<T> {
        unsafe fn demanded(&self) { call(|| { unsafe { raw() } }) }
    }
}
// SAFETY: there is one.
unsafe impl Send for Other {}
#[unsafe(no_mangle)]
unsafe extern "C" { fn c(); }
fn with_macro(f: fn() -> u8) { wrap!(unsafe { raw() }); }
"##;
    let found = uses(text);
    let shown: Vec<(&str, &str, usize)> =
        found.iter().map(|it| (it.item.as_str(), it.kind, it.line)).collect();
    assert_eq!(
        shown,
        [
            ("inner::impl T Thing for Other T::demanded", "fn", 5),
            ("inner::impl T Thing for Other T::demanded", "block", 5),
            ("", "impl", 9),
            ("", "attribute", 10),
            ("", "extern", 11),
            ("with_macro", "block", 12),
        ]
    );
    let reasons: Vec<bool> = found.iter().map(|it| has_reason(text, it.line)).collect();
    assert_eq!(reasons, [false, false, true, false, false, false]);
}
