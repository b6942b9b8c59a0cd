//! `pml plan FILE|-`: shows what a program will and may do, without running it.

mod denied;
mod egress;
mod locations;
mod style;
mod text;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use analysis::{Analysis, Bundle, Plan};
use protocol::RoutingRules;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::{self, GraphFormat};
use crate::commands::program::locate_diagnostics;
use crate::commands::program::note_diagnostics;
use crate::commands::terminal::say;
use crate::consent::program_lock::LockFile;
use crate::diagram::{self, TooLarge, display};
use crate::error::CliError;
use crate::placement::Placement;

pub(crate) use style::Part;
pub use style::Style;
pub use text::text;
pub(crate) use text::text_on;

/// Runs the command; exit code 2 for a program that cannot run.
///
/// # Errors
/// Returns why the program could not be read, analysed or drawn.
pub(crate) async fn plan(
    app: Arc<App>,
    plan: &args::Plan,
    program: &Bundle,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let analysis = app.analyser()?.analyse(&program.code).await?;
    if !analysis.can_run() {
        // The gateway is not queried about a program that cannot run.
        let found = analysis::plan(&analysis, &RoutingRules::shipped());
        if plan.json {
            let mut report = to_json(&found, &analysis);
            locate_diagnostics(program, &mut report);
            say(&(json_text(&report)? + "\n"))?;
        } else {
            note_diagnostics(&analysis.diagnostics, program);
        }
        return Ok(ExitCode::from(2));
    }
    let mut placement = Placement::of_program(&app, &analysis, plan.offline, stop).await?;
    let is_stdin = plan.file.as_os_str() == "-";
    match if is_stdin { Ok(None) } else { LockFile::read(&plan.file) } {
        Ok(None) => {}
        Ok(Some(_)) => placement.keep_here("it is locked, so the program runs here".to_owned()),
        Err(error) => placement.refusals.push(error.message),
    }
    let found = placement.plan(&analysis);
    let refused = denied::denied(&app, &found);
    if plan.json {
        let mut report = to_json(&found, &analysis);
        locate_diagnostics(program, &mut report);
        locations::add_to(&mut report, &placement);
        report["denied"] = denied::to_json(&refused);
        say(&(json_text(&report)? + "\n"))?;
    } else {
        note_diagnostics(&analysis.diagnostics, program);
        match plan.graph {
            Some(format) => say(&draw(&found, format)?)?,
            None => {
                let style = Style::of_stdout();
                let shown = text_on(&found, &style, &locations::basis(&placement));
                let shown = shown + &denied::text(&refused, &style);
                say(&(shown + &locations::text(&placement, &style)))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws a plan as a diagram of its tasks.
///
/// # Errors
/// Returns an error if the plan is too large for an SVG diagram.
pub fn draw(plan: &Plan, format: GraphFormat) -> Result<String, CliError> {
    match format {
        GraphFormat::Mermaid => Ok(diagram::mermaid(plan)),
        GraphFormat::Svg => diagram::svg(plan).map_err(|TooLarge { calls, edges }| {
            CliError::failed(format!(
                "the program has {calls} calls and {edges} edges between them, too many for a diagram"
            ))
            .with_hint("`--graph mermaid` and `--json` have no such limit.")
        }),
    }
}

/// Returns what `pml plan --json` prints: the plan and the diagnostics.
pub fn to_json(plan: &Plan, analysis: &Analysis) -> Value {
    let mut out = json!(plan);
    // Only the diagnostics are used, which do not depend on the rules.
    let report = analysis.to_json(&RoutingRules::shipped());
    if let (Some(fields), Some(diagnostics)) = (out.as_object_mut(), report.get("diagnostics")) {
        fields.insert("diagnostics".into(), diagnostics.clone());
    }
    out
}

/// Formats JSON with hidden characters as `\u` escapes, so that a terminal can show it. The value is the same.
fn json_text(value: &Value) -> Result<String, CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::failed(error.to_string()))?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && display::is_hidden(c) {
            // JSON escapes are UTF-16 code units (RFC 8259, section 7).
            for unit in c.encode_utf16(&mut [0; 2]) {
                out += &format!("\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

/// Returns whether to print colours: stdout is a terminal, and `NO_COLOR` is not set.
fn wants_colour(no_colour: Option<&str>, term: Option<&str>, terminal: bool) -> bool {
    // By the convention of no-color.org, an empty variable does not count.
    terminal && no_colour.is_none_or(str::is_empty) && term != Some("dumb")
}

impl Style {
    /// Returns the style for stdout.
    pub(crate) fn of_stdout() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let (no_colour, term) = (variable("NO_COLOR"), variable("TERM"));
        let terminal = std::io::stdout().is_terminal();
        if wants_colour(no_colour.as_deref(), term.as_deref(), terminal) {
            Self::COLOUR
        } else {
            Self::PLAIN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_depends_on_the_terminal_and_no_color() {
        assert!(wants_colour(None, Some("xterm"), true));
        assert!(wants_colour(Some(""), None, true));
        assert!(!wants_colour(Some("1"), Some("xterm"), true));
        assert!(!wants_colour(None, Some("dumb"), true));
        assert!(!wants_colour(None, Some("xterm"), false));
    }

    #[test]
    fn hidden_characters_in_json_are_escaped() {
        let value = json!({ "a\u{202e}": "\u{1b}[31m\u{200b}\u{e0041}é😀\u{9b}" });
        let text = json_text(&value).unwrap();
        assert!(!text.chars().any(|c| c != '\n' && display::is_hidden(c)), "{text:?}");
        assert!(text.contains("é😀"));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
