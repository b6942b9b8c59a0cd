//! `pml doctor`: checks this machine and a project on it.

mod project;

use std::process::ExitCode;

use protocol::ErrorCode;
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
        say(&format!("{self_test}\n{}", findings.iter().map(Finding::line).collect::<String>()))?;
    }
    let worst = findings.iter().filter_map(|finding| match finding.state {
        State::Failed(code) => Some(code),
        _ => None,
    });
    let worst = worst.chain((!self_test.holds()).then_some(4)).max();
    Ok(ExitCode::from(worst.unwrap_or(0)))
}
