//! README and every page of `docs/`, walked as a new user would: each block runs as printed, in order.
//!
//! What a block is, its language says:
//! - `sh` runs, and must end well. One that ends with `pml-server` is left running.
//! - `console` runs what stands behind each `$ ` and compares what follows with what was printed;
//!   `…` stands for anything within a line, or for lines where it is alone. `$ cat FILE` shows the reader a
//!   file that the project is meant to have.
//! - `ts` is a file: named in its first line (`// lib/x.ts`), else by the next block that names one, else it is
//!   analysed. A link `[the program](…)` names the file of the block before it.
//! - `json` parses. A `.pml.json` is loaded by `pml`.
//! - `sql` runs on the gateway's database.
//!
//! `tests/walk.tsv` lists what is not run, each with its reason, and what the reader has besides.

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

/// What the list says of a block.
struct Row {
    page: String,
    /// A line of the block; `*` speaks of the page.
    block: String,
    action: String,
    /// Why a block is not run; a file's name; a command.
    detail: String,
}

fn rows() -> Vec<Row> {
    let list = fs::read_to_string(root().join("tests/walk.tsv")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut fields = line.splitn(4, '\t').map(str::to_owned);
            let mut next = || fields.next().unwrap_or_else(|| panic!("four fields: `{line}`"));
            Row { page: next(), block: next(), action: next(), detail: next() }
        })
        .collect()
}

/// Walks a page; `look` sees the reader before each block that runs.
#[track_caller]
fn walk(name: &str, look: impl Fn(&Reader, &Block)) -> Reader {
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
        look(&reader, block);
        let file = of_block.iter().find(|row| row.action == "file").map(|row| row.detail.as_str());
        if let Err(report) = reader.take(&page, block, file) {
            wrong.push(format!("{name}:{}:\n{report}", block.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    reader
}

/// Makes the test of each page, and the list of them.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        $(
            #[test]
            fn $test() {
                walk($page, |_, _| ());
            }
        )*

        /// A page that nobody walks is not a page.
        #[test]
        fn every_page_is_walked() {
            let mut walked = vec![SELF_HOSTING.to_owned(), $($page.to_owned()),*];
            let docs = fs::read_dir(root().join("docs")).unwrap().flatten();
            let docs = docs.map(|entry| format!("docs/{}", entry.file_name().display()));
            let mut pages: Vec<String> = docs.filter(|name| name.ends_with(".md")).collect();
            pages.extend(["README.md", "CONTRIBUTING.md", "deploy/README.md"].map(str::to_owned));
            pages.sort();
            walked.sort();
            assert_eq!(walked, pages);
        }
    };
}

const SELF_HOSTING: &str = "docs/self-hosting.md";

pages! {
    readme: "README.md",
    contributing: "CONTRIBUTING.md",
    deploying: "deploy/README.md",
    builtins: "docs/builtins.md",
    capabilities: "docs/capabilities.md",
    cli: "docs/cli.md",
    errors: "docs/errors.md",
    identity: "docs/identity.md",
    mcp: "docs/mcp.md",
    operating: "docs/operating.md",
    performance: "docs/performance.md",
    plans: "docs/plans.md",
    programs: "docs/programs.md",
    proxy: "docs/proxy.md",
    registry: "docs/registry.md",
    secrets: "docs/secrets.md",
    security: "docs/security.md",
    threats: "docs/threats.md",
}

/// The page for companies, and that it keeps what it promises about keys.
#[test]
fn self_hosting() {
    let reader = walk(SELF_HOSTING, |reader, block| {
        if block.text.contains("members remove") {
            assert_eq!(status(reader, "ben.key"), 200, "the old key goes on");
        }
    });
    for shown in ["HELLO", "AGAIN", "ACME_TOKEN", "context7:*  1000/day", "\"servers\":["] {
        assert!(reader.seen.contains(shown), "no `{shown}` in\n{}", reader.seen);
    }
    assert!(!reader.seen.contains("the-key-of-acme"), "{}", reader.seen);
    assert_eq!(status(&reader, "ben.key"), 401, "who has left is out");
    assert_eq!(status(&reader, "ana.key"), 200);
}

fn status(reader: &Reader, file: &str) -> u16 {
    let key = fs::read_to_string(reader.folder().join(file)).unwrap();
    let url = format!("http://{}/api/v1/keys/self", reader.address());
    get(&url, &[("authorization", &format!("Bearer {}", key.trim()))]).status
}

/// Every row of the list speaks of a block that is there, and gives its reason.
#[test]
fn the_list_speaks_of_blocks_that_are_there() {
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

/// The walk can fail: what is wrong in a page of each kind is told.
#[test]
fn a_wrong_block_is_found() {
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

/// Returns where a link of a page leads.
fn linked(target: &str) -> PathBuf {
    root().join("docs").join(target)
}
