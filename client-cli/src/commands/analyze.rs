//! `pml analyze FILE|-`: shows what a program calls, without running it.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use analysis::Bundle;
use protocol::{RoutingRules, Side};

use super::plan::draw;
use super::program::{locate_diagnostics, note_diagnostics};
use super::terminal::{for_terminal, say};
use crate::analyser::Analyser;
use crate::args::Analyze;
use crate::error::CliError;

/// Runs the command; exit code 2 for a program that cannot run.
///
/// # Errors
/// Returns why the program could not be read or analysed.
pub(crate) async fn analyze(
    analyser: Arc<Analyser>,
    analyze: &Analyze,
    program: &Bundle,
) -> Result<ExitCode, CliError> {
    // The command works offline, so the rules of the gateway are not known.
    let rules = RoutingRules::shipped();
    let analysis = analyser.analyse(&program.code).await?;
    let mut report = analysis.to_json(&rules);
    locate_diagnostics(program, &mut report);
    if analyze.bundle {
        let is_terminal = std::io::stdout().is_terminal();
        say(&if is_terminal { for_terminal(&program.code) } else { program.code.clone() })?;
        note_diagnostics(&analysis.diagnostics, program);
    } else if analyze.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| CliError::failed(error.to_string()))?;
        say(&(text + "\n"))?;
    } else {
        note_diagnostics(&analysis.diagnostics, program);
        if analysis.can_run() {
            match analyze.graph {
                Some(format) => say(&draw(&analysis::plan(&analysis, &rules), format)?)?,
                None => say(&summary(&analysis, &rules))?,
            }
        }
    }
    Ok(if analysis.can_run() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn summary(analysis: &analysis::Analysis, rules: &RoutingRules) -> String {
    let mut out = match analysis.side(rules) {
        // First, because it holds wherever the tools are that were found.
        _ if analysis.dynamic => {
            "Runs on the client, because it chooses tools as it runs (dynamic).\n".to_owned()
        }
        Side::Unknown => "Runs on the client or on the server.\n".to_owned(),
        side => {
            format!("Runs on the {}, according to the table shipped with `pml`.\n", side.as_str())
        }
    };
    let unknown: Vec<&str> =
        analysis.unknown_tools(rules).into_iter().map(|tool| tool.as_str()).collect();
    if !unknown.is_empty() {
        let unknown = protocol::escape_text(&unknown.join(", "));
        out += &format!("The table does not list {unknown}; `pml plan` asks the gateway.\n");
    }
    if analysis.dag.tasks.is_empty() {
        out += "No tool calls found.\n";
    }
    for task in &analysis.dag.tasks {
        let mut traits = Vec::new();
        if task.conditional {
            traits.push("may run".to_owned());
        }
        if task.repeats {
            traits.push("repeats".to_owned());
        }
        if !task.depends_on.is_empty() {
            traits.push(format!("after {}", task.depends_on.join(", ")));
        }
        let traits =
            if traits.is_empty() { String::new() } else { format!("  ({})", traits.join("; ")) };
        out += &format!(
            "  layer {}  {}  {} {}{traits}\n",
            task.layer,
            task.id,
            task.tool,
            match rules.covering(&task.tool) {
                Some(routing) => format!("on the {}", routing.as_str()),
                None => "location unknown".to_owned(),
            }
        );
    }
    out
}
