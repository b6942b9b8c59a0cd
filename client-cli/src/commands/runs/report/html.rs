//! A report as one page: it needs no network, verifies its own records, and has less than 1 MB.
//!
//! The parts have budgets, and the records get what is left. A part that is too large says what is missing.

mod differences;
mod page;
mod records;
mod sections;

use std::path::Path;

use protocol::{Integrity, escape_text};

use self::page::{Page, push_escaped};
use self::records::{Places, embedded};
use self::sections::Sections;
use super::Report;
use crate::run_store::reader::Link;

/// The maximum size of a page, in bytes.
const LIMIT: usize = 1_000_000;

const STYLE: &str = include_str!("html/style.css");
const CHECK: &str = include_str!("html/check.js");

/// Returns a report as a page; `links` are all records of the run, `picture` is its plan as SVG or why there is none, and
/// `root` is the folder of the workspace.
pub(super) fn report(
    report: &Report<'_>,
    links: &[Link],
    picture: &Result<String, String>,
    root: &Path,
) -> String {
    let mut page = Page::default();
    let places = Places::of(links);
    Sections { report, places: &places, links, picture, root }.write(&mut page);
    let (main, shown) = page.finish();
    let run = &report.run.began.run;
    let head = head(run);
    let before = "<script type=\"application/json\" id=\"records\">";
    let foot = format!("</script>\n<script>{CHECK}</script>\n</body>\n</html>\n");
    let around = head.len() + main.len() + "</main>\n".len() + before.len() + foot.len();
    let records = embedded(links, run, shown, LIMIT.saturating_sub(around + 1));
    format!("{head}{main}</main>\n{before}{records}{foot}")
}

fn head(run: &str) -> String {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        Integrity::of(CHECK.as_bytes()),
        Integrity::of(STYLE.as_bytes()),
    );
    let mut title = String::new();
    push_escaped(&escape_text(run), &mut title);
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Run {title} – report of pml</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#report">Skip to the report</a>
<header>
<h1>Report of a run</h1>
<p id="check" role="status">Not verified: the script of this page has not run.</p>
</header>
<main id="report">"##
    )
}
