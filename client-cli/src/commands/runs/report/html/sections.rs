//! The sections of the page.

use std::path::Path;

use super::differences;
use super::page::{Page, Source, head};
use super::records::Places;
use crate::commands::runs::display::{answer, compared, counted};
use crate::commands::runs::report::resources::Used;
use crate::commands::runs::report::{
    Counts, Named, PolicyFile, Report, duration, milliseconds, policy_file,
};
use crate::run_store::reader::{Call, Link};
use crate::run_store::record::{Content, Failure};

/// How much each part may take, in bytes of markup. Together they leave at least 180 KB for the records.
const PROGRAM: usize = 70_000;
const PICTURE: usize = 95_000;
const LISTS: usize = 110_000;
const TIMELINE: usize = 160_000;
const CALLS: usize = 150_000;
const APPROVALS: usize = 50_000;
const DIFFERENCES: usize = 90_000;
/// The largest value, and the smallest that a value is reduced to.
const VALUE: usize = 8_000;
const SMALL_VALUE: usize = 100;
/// The maximum size of a name or a message.
const NAME: usize = 80;
const MESSAGE: usize = 600;
/// Calls that succeeded are open up to this number.
const OPEN: usize = 20;

/// What the sections are made of.
pub(super) struct Sections<'a> {
    pub(super) report: &'a Report<'a>,
    pub(super) places: &'a Places,
    pub(super) links: &'a [Link],
    pub(super) picture: &'a Result<String, String>,
    pub(super) root: &'a Path,
}

impl Sections<'_> {
    /// Appends all sections.
    pub(super) fn write(&self, page: &mut Page) {
        if let Some(why) = &self.report.doubt {
            let what = format!("The record was not verified: {why}");
            page.element(r#"<p class="alert">"#, head(&what, MESSAGE).0, "</p>");
        }
        self.overview(page);
        self.resources(page);
        self.plan(page);
        self.timeline(page);
        self.approvals(page);
        self.calls(page);
        let until = page.len() + DIFFERENCES;
        differences::section(page, self.report, self.root, until);
        self.meaning(page);
    }

    fn overview(&self, page: &mut Page) {
        let run = self.report.run;
        page.element("<section><h2>", "Overview", "</h2><dl>");
        row(page, "Run", &run.began.run);
        page.element("<dt>", "Status", "</dt><dd>");
        status(page, run.status());
        page.markup("</dd>");
        if run.began.mode != "run" {
            row(page, "Mode", &run.began.mode);
        }
        for told in run.compared.iter().flat_map(|compared| self::compared(run, compared)) {
            row(page, "Replay", &told);
        }
        row(page, "Started", &run.began.at);
        for resumed in run.resumed.iter().take(20) {
            row(page, "Resumed", &resumed.at);
        }
        if let Some(ended) = &run.ended {
            row(page, "Ended", &ended.at);
            if let Some(took) = milliseconds(&run.began.at, &ended.at) {
                row(page, "Duration", &format!("{took} ms"));
            }
        }
        let Counts { success, error, denied, indeterminate, mocked } = Counts::of(run);
        let calls = counted(i64::try_from(run.calls.len()).unwrap_or(i64::MAX), "call");
        let counts = format!(
            "{calls}: {success} succeeded, {error} failed, {denied} denied, {indeterminate} without an end on record"
        );
        let counts = if mocked == 0 { counts } else { format!("{counts}, {mocked} mocked") };
        row(page, "Calls", &counts);
        if let Some(PolicyFile { name, hash }) = policy_file(self.report) {
            row(page, "Policy file", &format!("{name} ({hash})"));
        }
        row(page, "Version of pml", &run.began.pml);
        row(page, "Report made", &self.report.generated_at);
        page.markup("</dl>");
        if let Some(ended) = &run.ended {
            if let Some(error) = &ended.error {
                page.element("<h3>", "Error", "</h3>");
                self.failure(page, error, self.places.ended, VALUE);
            }
            if let Some(output) = &ended.output {
                page.element("<h3>", "Result", "</h3>");
                self.value(page, output, self.places.ended, "output.json", VALUE);
            }
        }
        page.markup("</section>");
    }

    fn resources(&self, page: &mut Page) {
        let resources = &self.report.resources;
        let until = page.len() + LISTS;
        page.element("<section><h2>", "Files, hosts and programs", "</h2>");
        lists(page, &resources.certain, "", until);
        lists(
            page,
            &resources.possible,
            ", perhaps: by calls that failed or have no end on record",
            until,
        );
        let denials = resources.denials.iter().map(|denial| {
            let code = denial.code.as_deref().unwrap_or("connections refused");
            place(denial.call.as_deref(), denial.tool.as_deref()) + code + ": " + &denial.message
        });
        list(page, "Denied", denials, until);
        let gaps = resources.not_known.iter();
        let gaps = gaps.map(|gap| place(gap.call.as_deref(), gap.tool.as_deref()) + &gap.what);
        list(page, "Not known", gaps, until);
        page.element(
            r#"<p class="note">"#,
            "Paths of files that were read are those that the program gave, relative to the workspace; those of files that were written have their links resolved.",
            "</p></section>",
        );
    }

    fn plan(&self, page: &mut Page) {
        let began = &self.report.run.began;
        page.element("<section><h2>", "Program", "</h2>");
        match self.picture {
            Ok(svg) if svg.len() * 4 / 3 <= PICTURE => {
                page.markup(r#"<div class="scroll" tabindex="0" role="region" aria-label="Picture of the plan">"#);
                page.picture(
                    svg,
                    "The calls of the program and the data that flows between them; the program and the calls are below as text",
                );
                page.markup("</div>");
                page.element(
                    r#"<p class="note">"#,
                    "Drawn from the program. Where tools run is by the rules that are shipped with this version of pml; the calls below say where they ran.",
                    "</p>",
                );
            }
            Ok(_) => page.element(
                r#"<p class="note">"#,
                "The picture is too large for this page; `pml plan --graph svg` draws it.",
                "</p>",
            ),
            Err(why) => page.element(
                r#"<p class="note">"#,
                head(&format!("There is no picture: {why}"), MESSAGE).0,
                "</p>",
            ),
        }
        page.element("<h3>", "Text", "</h3>");
        let code = self.report.reader.content(&began.code);
        match code.and_then(|text| serde_json::from_str::<String>(&text).ok()) {
            Some(text) => {
                let source = self.places.began.filter(|_| began.code.json.is_some());
                let source = source.map(|record| Source { record, member: "code.json" });
                page.value(&text, PROGRAM, source);
            }
            None => self.value(page, &began.code, None, "", VALUE),
        }
        page.element("<h3>", "Arguments", "</h3>");
        self.value(page, &began.args, self.places.began, "args.json", VALUE);
        page.element("<h3>", "Rules and policy", "</h3>");
        self.value(page, &began.policy, self.places.began, "policy.json", VALUE);
        page.markup("</section>");
    }

    fn timeline(&self, page: &mut Page) {
        let run = self.report.run;
        let until = page.len() + TIMELINE;
        page.element("<section><h2>", "Timeline", "</h2>");
        if run.calls.is_empty() {
            page.element("<p>", "The run made no call.", "</p></section>");
            return;
        }
        page.element(
            "<table><caption>",
            "Calls in the order in which they began; times in milliseconds",
            "</caption><thead><tr>",
        );
        for name in ["Call", "Tool", "Status", "Where", "After", "Took"] {
            page.element(r#"<th scope="col">"#, name, "</th>");
        }
        page.markup("</tr></thead><tbody>");
        for (index, call) in run.calls.iter().enumerate() {
            if page.len() + 2_000 > until {
                let more = format!("and {} more calls", run.calls.len() - index);
                page.element(r#"<tr><td colspan="6">"#, &more, "</td></tr>");
                break;
            }
            let name = Named::of(call);
            let (routing, took) = match call {
                Call::Made(made) => (&*made.began.routing, duration(made)),
                Call::Refused(_) | Call::Mocked(_) => ("", None),
            };
            // HTML ends a cell and a row where the next one begins, which saves a third of a long table.
            page.element("<tr><td>", head(name.call, NAME).0, "<td>");
            page.element("", head(name.tool, NAME).0, "<td>");
            status(page, call.status());
            page.element("<td>", head(routing, NAME).0, "<td>");
            let number = |ms: Option<i64>| ms.map_or_else(String::new, |ms| ms.to_string());
            page.element("", &number(milliseconds(&run.began.at, name.at)), "<td>");
            page.element("", &number(took), "");
        }
        page.markup("</tbody></table></section>");
    }

    fn approvals(&self, page: &mut Page) {
        let approvals = &self.report.run.approvals;
        if approvals.is_empty() {
            return;
        }
        let until = page.len() + APPROVALS;
        page.element("<section><h2>", "Approvals", "</h2>");
        for (index, approval) in approvals.iter().enumerate() {
            if page.len() + VALUE > until {
                more(page, approvals.len() - index, "answers");
                break;
            }
            let record = self.places.approvals.get(index).copied();
            page.markup("<h3>");
            page.text(head(&approval.tool, NAME).0);
            let times = if approval.count > 1 {
                format!(", {} times", approval.count)
            } else {
                String::new()
            };
            page.text(&format!("{times}: {}", head(&answer(approval), NAME).0));
            page.markup("</h3><dl>");
            row(page, "Asked", &approval.asked_at);
            row(page, "Answered", &approval.at);
            row(page, "Because", &approval.reason);
            page.markup("</dl>");
            self.value(page, &approval.args, record, "args.json", VALUE / 4);
        }
        page.markup("</section>");
    }

    fn calls(&self, page: &mut Page) {
        let calls = &self.report.run.calls;
        if calls.is_empty() {
            return;
        }
        let until = page.len() + CALLS;
        page.element("<section><h2>", "Calls", "</h2>");
        // What a call has besides its values takes up to 1 KB.
        let share = (CALLS / calls.len()).saturating_sub(1_000) / 2;
        let limit = share.clamp(SMALL_VALUE, VALUE);
        for (index, call) in calls.iter().enumerate() {
            if page.len() + 2 * limit + 3 * MESSAGE > until {
                more(page, calls.len() - index, "calls");
                break;
            }
            let status = call.status();
            let is_open = calls.len() <= OPEN || status != "success";
            page.markup(if is_open { "<details open><summary>" } else { "<details><summary>" });
            let name = Named::of(call);
            page.text(&format!("{} ", head(name.call, NAME).0));
            page.element("<code>", head(name.tool, NAME).0, "</code>");
            page.text(" ");
            self::status(page, status);
            page.markup("</summary>");
            self.call(page, call, limit);
            page.markup("</details>");
        }
        page.markup("</section>");
    }

    fn call(&self, page: &mut Page, call: &Call, limit: usize) {
        let name = Named::of(call);
        let place = |kind| self.places.call(kind, name.call);
        match call {
            Call::Made(made) => {
                page.element("<div>", "Because", "</div>");
                let source = place("began").map(|record| Source { record, member: "decision" });
                page.value(&made.began.decision, MESSAGE, source);
                page.element("<div>", "Arguments", "</div>");
                self.value(page, &made.began.args, place("began"), "args.json", limit);
                let Some(ended) = &made.ended else { return };
                if let Some(output) = &ended.output {
                    page.element("<div>", "Result", "</div>");
                    self.value(page, output, place("ended"), "output.json", limit);
                }
                if let Some(error) = &ended.error {
                    self.failure(page, error, place("ended"), limit.max(MESSAGE));
                }
            }
            Call::Mocked(mocked) => {
                page.element("<div>", "Answered from", "</div>");
                let source = place("mocked").map(|record| Source { record, member: "of" });
                page.value(&mocked.of, MESSAGE, source);
                page.element("<div>", "Arguments", "</div>");
                self.value(page, &mocked.args, place("mocked"), "args.json", limit);
                if let Some(output) = &mocked.output {
                    page.element("<div>", "Result", "</div>");
                    self.value(page, output, place("mocked"), "output.json", limit);
                }
                if let Some(error) = &mocked.error {
                    self.failure(page, error, place("mocked"), limit.max(MESSAGE));
                }
            }
            Call::Refused(refused) => {
                page.element("<div>", "Arguments", "</div>");
                self.value(page, &refused.args, place("refused"), "args.json", limit);
                self.failure(page, &refused.error, place("refused"), limit.max(MESSAGE));
            }
        }
    }

    fn failure(&self, page: &mut Page, error: &Failure, record: Option<i64>, limit: usize) {
        page.element(r#"<div class="error">"#, head(&error.code, NAME).0, "</div>");
        let source = record.map(|record| Source { record, member: "error.message" });
        page.value(&error.message, limit, source);
    }

    /// Appends a recorded value. A large one is not part of its record, so a browser cannot compare it.
    fn value(
        &self,
        page: &mut Page,
        content: &Content,
        record: Option<i64>,
        member: &str,
        limit: usize,
    ) {
        let Some(text) = self.report.reader.content(content) else {
            let why = if content.erased { "were erased" } else { "are missing or were changed" };
            let gone =
                format!("{} bytes with the hash {}, which {why}", content.bytes, content.hash);
            page.element(r#"<p class="alert">"#, &gone, "</p>");
            return;
        };
        let record = record.filter(|_| content.json.is_some());
        page.value(&text, limit, record.map(|record| Source { record, member }));
    }

    /// Says what the check of the page shows.
    fn meaning(&self, page: &mut Page) {
        page.element("<section><h2>", "What the check shows", "</h2><ul>");
        let gaps = self.links.windows(2).filter(|pair| pair[0].seq + 1 != pair[1].seq).count();
        let between = match gaps {
            0 => "The records of this run directly follow one another.".to_owned(),
            1 => "At one place, records of other runs are in between. They are not on this page: their hash is taken as it is.".to_owned(),
            gaps => format!("At {gaps} places, records of other runs are in between. They are not on this page: their hashes are taken as they are."),
        };
        let end = self.links.last().map_or_else(String::new, |last| {
            format!("The last record of the run is number {} with the hash {}. `pml runs verify` in the project verifies the whole store, and `pml report --format json` has this hash as `last_record`.", last.seq, last.hash)
        });
        let verified = match &self.report.doubt {
            None => {
                "When this page was made, `pml` had verified the whole store, with all values and kept contents."
            }
            Some(_) => "When this page was made, `pml` could not verify the store.",
        };
        for text in [
            "This page carries the records of the run with their hashes. Its script computes each hash again, from the record, its number and the hash before it, and compares the shown programs, arguments, results and messages with the records. So it notices a record, a value or a text that was changed on this page.",
            &*between,
            "Values above 16 KiB are not part of their records, only their hashes are. They are shown in part and not compared here.",
            verified,
            "It does not protect against somebody who changes the hashes and the script as well. Compare with the store to be certain.",
            &*end,
        ] {
            if !text.is_empty() {
                page.element("<li>", text, "</li>");
            }
        }
        page.markup("</ul></section>");
    }
}

fn row(page: &mut Page, name: &str, value: &str) {
    page.element("<dt>", name, "</dt>");
    page.element("<dd>", head(value, MESSAGE).0, "</dd>");
}

fn status(page: &mut Page, status: &str) {
    page.markup(match status {
        "success" => r#"<span class="status success">"#,
        "completed" => r#"<span class="status completed">"#,
        "error" => r#"<span class="status error">"#,
        "denied" => r#"<span class="status denied">"#,
        "failed" => r#"<span class="status failed">"#,
        "stopped" => r#"<span class="status stopped">"#,
        "running" => r#"<span class="status running">"#,
        "mocked" => r#"<span class="status">"#,
        _ => r#"<span class="status indeterminate">"#,
    });
    page.text(status);
    page.markup("</span>");
}

fn lists(page: &mut Page, used: &Used, why: &str, until: usize) {
    for (name, entries) in used.lists() {
        let mut name = name.to_owned();
        name[..1].make_ascii_uppercase();
        list(page, &format!("{name}{why}"), entries.iter().cloned(), until);
    }
}

/// Appends a list with a heading; nothing if it is empty.
fn list(page: &mut Page, name: &str, entries: impl ExactSizeIterator<Item = String>, until: usize) {
    let count = entries.len();
    if count == 0 {
        return;
    }
    page.element("<h3>", name, "</h3><ul>");
    for (index, entry) in entries.enumerate() {
        // Each list has room for some entries, and for the number of the others.
        if index >= 50 || (page.len() + MESSAGE > until && index >= 3) {
            page.markup("<li>");
            page.text(&format!(
                "and {} more; `pml report --format json` has all of them",
                count - index
            ));
            page.markup("</li>");
            break;
        }
        let shown = head(&entry, MESSAGE).0;
        let cut = if shown.len() < entry.len() { " …" } else { "" };
        page.element("<li>", &format!("{shown}{cut}"), "</li>");
    }
    page.markup("</ul>");
}

fn more(page: &mut Page, count: usize, what: &str) {
    let text = format!(
        "{count} more {what} are not on this page; `pml report --format json` has all of them."
    );
    page.element(r#"<p class="note">"#, &text, "</p>");
}

fn place(call: Option<&str>, tool: Option<&str>) -> String {
    match (call, tool) {
        (Some(call), Some(tool)) => format!("call {call}, {tool}: "),
        _ => "the run: ".to_owned(),
    }
}
