//! The documents: links resolve, and settings and tools match the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::http::get;
use crate::support::server::Server;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("`{path}`: {error}"))
}

/// Returns the files in a folder and its subfolders whose names end like this.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || ["target", "node_modules", "vendor"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Returns the text without code blocks.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            out += line;
            out.push('\n');
        }
    }
    out
}

/// Returns the targets of `[text](target)`, except in `code`.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in prose(text).split("\n\n") {
        // Every second part is between backticks; the text of a link may contain some, too.
        let plain: String = paragraph.split('`').step_by(2).collect();
        for part in plain.split("](").skip(1) {
            found.extend(part.split_once(')').map(|(target, _)| target.trim().to_owned()));
        }
    }
    found
}

/// Returns the anchors of a document's headings, as GitHub generates them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text);
    let headings = headings.lines().filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    headings
        .map(|title| {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            title.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
        })
        .collect()
}

/// Returns the dead links of a document. `open` returns the content of a relative path, or `None`.
fn dead_links(text: &str, open: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_dead = |target: &String| {
        if target.contains("://") || target.starts_with("mailto:") {
            return false;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let there = if path.is_empty() { Some(text.to_owned()) } else { open(path) };
        there
            .is_none_or(|there| !anchor.is_empty() && !anchors(&there).contains(&anchor.to_owned()))
    };
    links(text).into_iter().filter(is_dead).collect()
}

/// Every relative link in the documents has an existing file and heading as its target.
#[test]
fn links_between_documents_resolve() {
    let documents = files(root(), ".md");
    assert!(documents.len() >= 15, "{documents:?}");
    let mut dead = Vec::new();
    for document in &documents {
        let folder = document.parent().unwrap();
        let open = |path: &str| {
            let file = folder.join(path);
            file.exists().then(|| fs::read_to_string(file).unwrap_or_default())
        };
        let text = fs::read_to_string(document).unwrap();
        dead.extend(
            dead_links(&text, open).iter().map(|link| format!("{}: {link}", document.display())),
        );
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// Checks the checker: exactly the dead links of a made-up document are detected.
#[test]
fn dead_links_are_detected() {
    let open = |path: &str| (path == "a.md").then(|| "# One `two`, three\n".to_owned());
    let dead = |text: &str| dead_links(text, open);
    let good = "[a](a.md) [h](a.md#one-two-three) [w](https://x.test/y) `[c](d.md)`\n\
                # Own\n[o](#own)\n```\n[c](d.md)\n```\n";
    assert_eq!(dead(good), [""; 0]);
    assert_eq!(dead("[a](b.md), [`b`](a.md#two)\n[c](#own)"), ["b.md", "a.md#two", "#own"]);
}

/// Returns the names of PML's environment variables in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.strip_prefix("PML_").is_some_and(|rest| !rest.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// Each program's table of settings lists exactly the environment variables in its code.
#[test]
fn every_environment_variable_is_documented() {
    for (folder, document) in
        [("server/src", "deploy/README.md"), ("client-cli/src", "docs/cli.md")]
    {
        let mut known = BTreeSet::new();
        for file in files(&root().join(folder), ".rs") {
            known.extend(variables(&fs::read_to_string(file).unwrap()));
        }
        let rows: String =
            read(document).lines().filter(|line| line.starts_with("| `PML_")).collect();
        let documented = variables(&rows);
        let other = variables(&(read("deploy/README.md") + &read("docs/cli.md")));
        assert!(documented.len() >= 5, "{document}: {documented:?}");
        // A program may mention variables of the other one: the gateway's start screen names some of the CLI.
        let missing: Vec<&String> = known.difference(&other).collect();
        assert!(missing.is_empty(), "{document} lacks {missing:?}");
        let unknown: Vec<&String> = documented.difference(&known).collect();
        assert!(unknown.is_empty(), "{document} has {unknown:?}, which {folder} does not use");
    }
}

/// The operator's page lists exactly the tools that the gateway itself implements.
#[test]
fn every_native_tool_is_documented() {
    let page = read("docs/operating.md");
    let catalog = format!("{}/mcp", Server::shared().url());
    let list = get(&format!("{catalog}?type=native&routing=server&limit=100"), &[]).json();
    let servers = list["items"].as_array().unwrap();
    assert!(servers.len() >= 6, "{list}");
    for server in servers {
        let fqdn = server["fqdn"].as_str().unwrap();
        let namespace = fqdn.rsplit('.').next().unwrap();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{namespace}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/operating.md has no row for `{namespace}`"));
        let documented: BTreeSet<&str> =
            row.split('`').nth(3).unwrap_or_default().split_whitespace().collect();
        let entry = get(&format!("{catalog}/{fqdn}"), &[]).json();
        let tools = entry["tools"].as_array().unwrap();
        let there: BTreeSet<&str> =
            tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(documented, there, "docs/operating.md, the row of `{namespace}`");
    }
}
