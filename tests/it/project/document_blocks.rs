//! Runs the blocks of README and every page of `docs/` in order, exactly as printed.
//!
//! The language of a block determines what is done:
//! - `sh` is run, and must succeed. A final `pml-server` is left running.
//! - `console` runs the command after each `$ ` and compares the following lines with its output. `…` matches anything
//!   within a line, or any number of lines if it is alone. `$ cat FILE` creates the file if it does not exist.
//! - `ts` is written to a file that is named in its first line (`// lib/x.ts`) or by the next block of commands;
//!   otherwise it is only analysed. A link `[the program](…)` names the file for the block before it.
//! - `json` must parse. A `.pml.json` is loaded by `pml`.
//! - `sql` runs on the gateway's database.
//!
//! `tests/document_blocks.tsv` lists the blocks that are not run, with the reason, and what a page needs in addition.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::http::get;

mod expect;
mod page;
mod reader;

use page::{Block, Page};
use reader::{Gateway, Reader};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// A row of the list.
struct Row {
    page: String,
    /// A line of the block; `*` means the whole page.
    block: String,
    action: String,
    /// The reason, a file name or a command, depending on the action.
    detail: String,
}

fn rows() -> Vec<Row> {
    let list = fs::read_to_string(root().join("tests/document_blocks.tsv")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut fields = line.splitn(4, '\t').map(str::to_owned);
            let mut next = || fields.next().unwrap_or_else(|| panic!("four fields: `{line}`"));
            Row { page: next(), block: next(), action: next(), detail: next() }
        })
        .collect()
}

/// Runs the blocks of a page; `before_block` is called before each of them.
#[track_caller]
fn run_page(name: &str, before_block: impl Fn(&Reader, &Block)) -> Reader {
    let text = fs::read_to_string(root().join(name)).unwrap();
    let page = Page::read(&text);
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.page == name).collect();
    let of_page = |action: &str| {
        rows.iter().filter(move |row| row.block == "*" && row.action == action).collect::<Vec<_>>()
    };
    let gateway = match of_page("gateway").first().map(|row| row.detail.as_str()) {
        None => Gateway::Runs,
        Some("started") => Gateway::Started,
        Some("none") => Gateway::None,
        Some(other) => panic!("`{name}`: no such gateway: `{other}`"),
    };
    let mut reader = Reader::new(root(), gateway);
    for row in of_page("before") {
        reader.prepare(&row.detail);
    }
    let mut wrong = Vec::new();
    for block in &page.blocks {
        let of_block: Vec<&Row> =
            rows.iter().filter(|row| block.text.lines().any(|line| line == row.block)).collect();
        if of_block.iter().any(|row| row.action == "skip") {
            continue;
        }
        if block.language.is_empty() && block.looks_like_commands() {
            wrong.push(format!("{name}:{}: commands in a block without `sh`", block.line));
            continue;
        }
        before_block(&reader, block);
        let file = of_block.iter().find(|row| row.action == "file").map(|row| row.detail.as_str());
        if let Err(report) = reader.take(&page, block, file) {
            wrong.push(format!("{name}:{}:\n{report}", block.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    reader
}

/// Generates a test for each page, and the test that no page is missing.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        $(
            #[test]
            fn $test() {
                run_page($page, |_, _| ());
            }
        )*

        #[test]
        fn every_page_has_a_test() {
            let mut tested = vec![SELF_HOSTING.to_owned(), $($page.to_owned()),*];
            let docs = fs::read_dir(root().join("docs")).unwrap().flatten();
            let docs = docs.map(|entry| format!("docs/{}", entry.file_name().display()));
            let mut pages: Vec<String> = docs.filter(|name| name.ends_with(".md")).collect();
            pages.extend(["README.md", "CONTRIBUTING.md", "deploy/README.md"].map(str::to_owned));
            pages.sort();
            tested.sort();
            assert_eq!(tested, pages);
        }
    };
}

const SELF_HOSTING: &str = "docs/self-hosting.md";

pages! {
    readme: "README.md",
    contributing: "CONTRIBUTING.md",
    deploying: "deploy/README.md",
    approvals: "docs/approvals.md",
    builtins: "docs/builtins.md",
    capabilities: "docs/capabilities.md",
    cli: "docs/cli.md",
    errors: "docs/errors.md",
    identity: "docs/identity.md",
    install: "docs/install.md",
    kubernetes: "docs/kubernetes.md",
    mcp: "docs/mcp.md",
    operating: "docs/operating.md",
    performance: "docs/performance.md",
    permissions: "docs/permissions.md",
    plans: "docs/plans.md",
    programs: "docs/programs.md",
    proxy: "docs/proxy.md",
    registry: "docs/registry.md",
    runs: "docs/runs.md",
    secrets: "docs/secrets.md",
    security: "docs/security.md",
    session: "docs/session.md",
    threats: "docs/threats.md",
    tool_sync: "docs/tool-sync.md",
    traces: "docs/traces.md",
}

/// The page for companies. In addition to its blocks, the state of the keys is checked.
#[test]
fn self_hosting() {
    let reader = run_page(SELF_HOSTING, |reader, block| {
        if block.text.contains("members remove") {
            assert_eq!(status(reader, "ben.key"), 200, "the old key is still valid");
        }
    });
    for shown in ["HELLO", "AGAIN", "ACME_TOKEN", "context7:*  1000/day", "\"servers\":["] {
        assert!(reader.seen.contains(shown), "no `{shown}` in\n{}", reader.seen);
    }
    assert!(!reader.seen.contains("the-key-of-acme"), "{}", reader.seen);
    assert_eq!(status(&reader, "ben.key"), 401, "the key of the removed member");
    assert_eq!(status(&reader, "ana.key"), 200);
}

fn status(reader: &Reader, file: &str) -> u16 {
    let key = fs::read_to_string(reader.folder().join(file)).unwrap();
    let url = format!("http://{}/api/v1/keys/self", reader.address());
    get(&url, &[("authorization", &format!("Bearer {}", key.trim()))]).status
}

/// Every row of the list names an existing block and has a reason.
#[test]
fn the_list_of_exceptions_names_existing_blocks() {
    for row in rows() {
        let Row { page, block, action, detail } = row;
        assert!(!detail.trim().is_empty(), "{page}: `{block}`: no reason");
        let text = fs::read_to_string(root().join(&page)).unwrap();
        match action.as_str() {
            "gateway" | "before" => assert_eq!(block, "*", "{page}"),
            "skip" | "file" => {
                let there = Page::read(&text)
                    .blocks
                    .iter()
                    .any(|candidate| candidate.text.lines().any(|line| line == block));
                assert!(there, "{page} has no block with the line `{block}`");
            }
            other => panic!("{page}: no such action: `{other}`"),
        }
    }
}

/// Checks the checker: a wrong block of each kind is detected, and a correct one passes.
#[test]
fn wrong_blocks_are_detected() {
    let take = |text: &str| {
        let page = Page::read(text);
        let mut reader = Reader::new(root(), Gateway::None);
        page.blocks.iter().try_for_each(|block| reader.take(&page, block, None))
    };
    for right in [
        "```sh\ntest 1 = 1\n```\n",
        "```sh\nexport A=7\nmkdir b && cd b\n```\n```console\n$ echo $A; basename $PWD\n7\nb\n```\n",
        "```console\n$ cat a.txt\none\n$ wc -l < a.txt\n1\n```\n",
        "```console\n$ printf 'x12y\\nz\\n'\nx…y\nz\n$ seq 9\n1\n…\n9\n```\n",
        "```ts\nreturn await mcp.json.parse({ data: args.x });\n```\n",
        "```json\n{ \"permissions\": { \"allow\": [\"json:*\"] } }\n```\n",
    ] {
        assert_eq!(take(right), Ok(()), "{right}");
    }
    for wrong in [
        "```sh\ntest 1 = 2\n```\n",
        "```sh\npml no-such-command\n```\n",
        "```console\n$ echo 7\n8\n```\n",
        "```console\n$ printf 'x12z\\n'\nx…y\n```\n",
        "```console\n$ seq 9\n1\n…\n8\n```\n",
        "```console\n$ seq 3\n1\n2\n```\n",
        "```ts\nreturn await mcp.json.parse({ data: \n```\n",
        "```json\n{ \"permissions\": { \"allow\": [\"json:*\"] }\n```\n",
        "```json\n{ \"permissions\": { \"alow\": [\"json:*\"] } }\n```\n",
    ] {
        assert!(take(wrong).is_err(), "{wrong}");
    }
}

/// Returns the target of a link on a page.
fn linked(target: &str) -> PathBuf {
    root().join("docs").join(target)
}
