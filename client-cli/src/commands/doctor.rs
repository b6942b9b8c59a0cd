//! `pml doctor`: checks this machine and a project on it.

mod project;

use std::process::ExitCode;

use protocol::ErrorCode;
use sandbox::{LayerState, SelfTest};
use serde_json::json;

use super::terminal::say;
use crate::args::{Doctor, Settings};
use crate::error::CliError;
use project::{Finding, State};

/// Runs the self-test of the sandbox, checks the project and its gateway, and prints the results.
pub(super) async fn doctor(settings: &Settings, doctor: &Doctor) -> Result<ExitCode, CliError> {
    let self_test = sandbox::self_test()
        .await
        .map_err(|error| CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string()))?;
    let findings = project::check(settings).await;
    if doctor.json {
        let report = json!({
            "holds": self_test.holds(),
            "layers": self_test.layers,
            "calls": self_test.calls,
            "findings": findings,
        });
        say(&format!("{report:#}\n"))?;
    } else {
        let in_full = doctor.verbose || !self_test.holds();
        let mut text = if in_full { format!("{self_test}\n") } else { String::new() };
        text.extend(sandbox(&self_test).iter().chain(&findings).map(Finding::line));
        say(&text)?;
    }
    let worst = findings.iter().filter_map(|finding| match finding.state {
        State::Failed(code) => Some(code),
        _ => None,
    });
    let worst = worst.chain((!self_test.holds()).then_some(4)).max();
    Ok(ExitCode::from(worst.unwrap_or(0)))
}

/// Returns the verdict of the self-test, and each layer that does not hold as a whole although the others suffice.
fn sandbox(self_test: &SelfTest) -> Vec<Finding> {
    let (refused, tried) =
        (self_test.calls.iter().filter(|call| call.refused).count(), self_test.calls.len());
    let (state, verdict) = match self_test.holds() {
        true => (State::Good, "holds"),
        false => (State::Failed(4), "does not hold, see above"),
    };
    let verdict = format!("{verdict}: {refused} of {tried} forbidden system calls are refused");
    let mut findings = vec![Finding::new("sandbox", state, verdict)];
    for layer in &self_test.layers {
        let what = match &layer.state {
            LayerState::Holds => continue,
            LayerState::Partial(why) => {
                format!("the layer `{}` holds partially: {why}", layer.name)
            }
            LayerState::Absent(why) => format!("the layer `{}` is absent: {why}", layer.name),
        };
        findings.push(Finding::new("sandbox", State::Warning, what));
    }
    findings
}
